//! An estimate of the number of streams: a periodic count, and the streams created since.

use std::sync::atomic::{AtomicU64, Ordering};

/// Each stream takes a little memory for ever, so their number has a bound.
#[derive(Debug, Default)]
pub(crate) struct Population(AtomicU64);

impl Population {
    /// Sets a fresh count. Streams created during the count may be missing until the next one.
    pub(crate) fn counted(&self, streams: usize) {
        self.0.store(streams as u64, Ordering::Relaxed);
    }

    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
