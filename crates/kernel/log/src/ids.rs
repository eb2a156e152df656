//! Owns the ids of logs that are given out from now on. No id is ever given out twice: not by this owner, and not by
//! one after a crash.
//!
//! The root reserves ids ahead: every id that was given out is below the ceiling that the durable root has. A start
//! goes on from that ceiling, so that ids which were given out and lost in a crash stay unused.

use crate::logs::SHARD_BITS;
use thalweg_base::LogId;
use thalweg_unit::sync::atomic::{AtomicU64, Ordering};

/// Ids without the bits of shards: see [`LogIds::take`].
pub(crate) struct LogIds {
    next: AtomicU64,
    /// The durable root reserves the ids below.
    ceiling: AtomicU64,
    reserve: u64,
}

impl LogIds {
    /// Ids above `last`, of which the durable root reserves `reserve`.
    pub(crate) fn above(last: u64, reserve: u64) -> Self {
        Self { next: AtomicU64::new(last + 1), ceiling: AtomicU64::new(last + reserve), reserve }
    }

    /// The next id, of a log of this shard; `None` if the root reserves no more, until the next round.
    pub(crate) fn take(&self, shard: usize) -> Option<LogId> {
        let ceiling = self.ceiling.load(Ordering::Acquire);
        let next = |id| (id < ceiling).then_some(id + 1);
        let id = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(LogId(id << SHARD_BITS | shard as u64))
    }

    /// The ceiling that the next edit of the root writes.
    pub(crate) fn next_ceiling(&self) -> u64 {
        self.next.load(Ordering::Relaxed) + self.reserve
    }

    /// An edit with this ceiling is durable: ids below may be given out.
    pub(crate) fn raise(&self, ceiling: u64) {
        let next = self.next.load(Ordering::Relaxed);
        let before = self.ceiling.fetch_max(ceiling, Ordering::Release);
        assert!(next <= ceiling.max(before), "id {next} was given out, and the root reserves ids below {ceiling}");
    }
}
