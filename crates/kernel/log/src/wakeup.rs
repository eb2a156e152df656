//! When background work of logs has its next wake-up, so that no thread polls: at a journal position, after a time, or
//! when it is woken.

use crate::attachment::Attachment;
use crate::logs::Logs;
use std::sync::OnceLock;
use thalweg_base::{Lsn, Millis};
use thalweg_unit::sync::atomic::{AtomicBool, Ordering};

/// When the next round of settling can be due, after [`Logs::settle`] found none due: at the first of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRound {
    /// When the journal is durable up to here.
    pub at: Lsn,
    /// After so many milliseconds; `None` if only the position counts.
    pub after_ms: Option<u64>,
}

/// Tells once that [`Logs::settle`] has work that no journal position announces: logs that it can put to rest, a
/// damaged directory.
#[derive(Default)]
pub(crate) struct Awakened {
    /// Logs have woken since the last look.
    told: AtomicBool,
    tell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Awakened {
    pub(crate) fn note(&self) {
        if !self.told.swap(true, Ordering::AcqRel)
            && let Some(tell) = self.tell.get()
        {
            tell();
        }
    }

    /// Called before a search for awake logs: a log that wakes after this call is told again.
    pub(crate) fn look(&self) {
        self.told.store(false, Ordering::Release);
    }
}

impl<A: Attachment> Logs<A> {
    /// When to call [`Logs::settle`] again that found no round due.
    pub fn next_round(&self, now: Millis) -> NextRound {
        let (floor, durable) = (self.sealed.root().floor, self.durable());
        // Before the search: a log that wakes after it is told.
        self.awakened.look();
        let awake = self.shards.iter().any(|shard| !shard.lock().active.is_empty());
        let rest_ms = awake.then_some(crate::settle::REST_EVERY_MS);
        if durable <= floor {
            return NextRound { at: floor.plus(1), after_ms: rest_ms };
        }
        let waited_ms = match *self.pace.unsettled_since.lock() {
            Some((of, mut since)) if of == floor => since.elapsed(now),
            _ => 0,
        };
        let round_ms = self.options.settle_after_ms.saturating_sub(waited_ms);
        NextRound {
            at: floor.plus(self.options.settle_bytes),
            after_ms: Some(round_ms.min(rest_ms.unwrap_or(round_ms))),
        }
    }

    /// After how many milliseconds [`Logs::reclaim`] looks again; `None`: when [`Logs::deaths`] has changed.
    pub fn next_reclaim(&self, now: Millis) -> Option<u64> {
        self.pace.next_reclaim(self.deaths(), now, self.options.reclaim_every_ms)
    }

    /// How many events since the start may have left dead data: every delete; trims, pins and unpins that have changed
    /// which content is wanted; rounds that have written content that died before their edit.
    pub fn deaths(&self) -> u64 {
        self.counters.deaths.load(Ordering::Relaxed)
    }

    /// How many runs there are: a read looks into each of them, at most.
    pub fn runs(&self) -> u64 {
        self.sealed.root().runs.len() as u64
    }

    /// Bytes of objects that merging and rewriting have written since the start.
    pub fn merged_bytes(&self) -> u64 {
        self.pace.merged_bytes.load(Ordering::Relaxed)
    }

    /// `tell` is called when a log has woken, if none had since the last call of [`Logs::next_round`]: [`Logs::settle`]
    /// puts it to rest again. It is also called when the directory is found to be damaged. A shard may be locked then,
    /// so `tell` must neither block nor call the logs. Only the first call of this counts.
    pub fn on_awake(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.awakened.tell.set(Box::new(tell));
    }
}
