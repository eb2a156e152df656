//! Numbers and handles of shapes: none is given out twice, also not after a restart.

use crate::definition::Identity;
use crate::name::Name;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Numbers {
    next: AtomicU64,
    last_micros: AtomicU64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), last_micros: AtomicU64::new(0) }
    }
}

impl Numbers {
    pub(crate) fn new_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// This one was given out before.
    pub(crate) fn know_number(&self, number: u64) {
        self.next.fetch_max(number + 1, Ordering::Relaxed);
    }

    /// A handle that was never given out: microseconds of the clock, which go on from the last ones if the clock went back.
    pub(crate) fn new_handle(&self, identity: Identity, now_micros: u64) -> Name {
        let last = self.last_micros.fetch_max(now_micros, Ordering::AcqRel);
        let micros = if now_micros > last { now_micros } else { self.last_micros.fetch_add(1, Ordering::AcqRel) + 1 };
        Name { sum: thalweg_base::crc(&identity.0), micros }
    }

    pub(crate) fn know_handle(&self, handle: Name) {
        self.last_micros.fetch_max(handle.micros, Ordering::AcqRel);
    }
}
