//! How many streams there are, about: what is counted now and then, and what was made since.

use std::sync::atomic::{AtomicU64, Ordering};

/// Each stream takes a little memory for ever, so there is a bound on them.
#[derive(Debug, Default)]
pub(crate) struct Population(AtomicU64);

impl Population {
    /// All were counted. What is made meanwhile may be missed until the next count.
    pub(crate) fn counted(&self, streams: usize) {
        self.0.store(streams as u64, Ordering::Relaxed);
    }

    pub(crate) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn has_room(&self, max: u64) -> bool {
        self.0.load(Ordering::Relaxed) < max
    }
}
