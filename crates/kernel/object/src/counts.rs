//! Requests that were sent, by kind: what a bucket costs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Kinds of requests, as object stores charge for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads of an object or a range of it.
    Get,
    /// Questions for an object's length.
    Head,
    /// Writes of whole objects, parts of one, and the requests around parts.
    Put,
    /// Pages of listings.
    List,
    /// Deletes of objects.
    Delete,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Get, Self::Head, Self::Put, Self::List, Self::Delete];

    /// The kind's name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }
}

/// Counters of one kind of requests, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestStats {
    /// Requests that were sent, repetitions included.
    pub requests: u64,
    /// Requests that failed, or were not answered; a refused condition and a missing object are answers.
    pub failures: u64,
    /// Bytes of contents that were sent or received.
    pub bytes: u64,
    /// Time from sending to the answer, summed, in nanoseconds.
    pub nanos: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Counts([Counters; 5]);

impl Counts {
    pub(crate) fn sent(&self, kind: Kind, took: Duration, failed: bool) {
        let of = &self.0[kind as usize];
        of.requests.fetch_add(1, Ordering::Relaxed);
        of.failures.fetch_add(u64::from(failed), Ordering::Relaxed);
        of.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn carried(&self, kind: Kind, bytes: u64) {
        self.0[kind as usize].bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, kind: Kind) -> RequestStats {
        let of = &self.0[kind as usize];
        RequestStats {
            requests: of.requests.load(Ordering::Relaxed),
            failures: of.failures.load(Ordering::Relaxed),
            bytes: of.bytes.load(Ordering::Relaxed),
            nanos: of.nanos.load(Ordering::Relaxed),
        }
    }
}
