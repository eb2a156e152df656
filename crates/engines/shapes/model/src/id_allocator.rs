//! Numbers and names of shapes: none is given out twice, not even after a restart.

use crate::definition::Identity;
use crate::name::Name;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives out numbers and names.
#[derive(Debug)]
pub struct IdAllocator {
    next: AtomicU64,
    last_micros: AtomicU64,
}

impl Default for IdAllocator {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), last_micros: AtomicU64::new(0) }
    }
}

impl IdAllocator {
    /// A number that was never given out.
    pub fn new_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A number that was given out before the restart.
    pub fn reserve_number(&self, number: u64) {
        self.next.fetch_max(number + 1, Ordering::Relaxed);
    }

    /// A name that was never given out: microseconds of the clock, or the successor of the last name if the clock went
    /// back.
    pub fn new_handle(&self, identity: Identity, now_micros: u64) -> Name {
        let last = self.last_micros.fetch_max(now_micros, Ordering::AcqRel);
        let micros = if now_micros > last { now_micros } else { self.last_micros.fetch_add(1, Ordering::AcqRel) + 1 };
        Name { sum: thalweg_base::crc(&identity.0), micros }
    }

    /// A name that was given out before the restart.
    pub fn reserve_handle(&self, handle: Name) {
        self.last_micros.fetch_max(handle.micros, Ordering::AcqRel);
    }
}
