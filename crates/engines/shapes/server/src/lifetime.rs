//! How long the server has run, whether it stops, and what it has counted since its start.

use crate::faults::Faults;
use crate::no_wait;
use crate::state::transaction::Deliveries;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg_shapes_source::clock::Clock;

/// A thread that pauses notices a stop within this time.
const STOP_NOTICED_WITHIN: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(crate) struct Counters {
    /// Times that the tables were compared with the catalog.
    pub(crate) compared: AtomicU64,
    /// Times that a source was left, with all shapes.
    pub(crate) left: AtomicU64,
    pub(crate) transactions: AtomicU64,
    /// Changes that were made for shapes, and how often one was given to a shape.
    pub(crate) changes: AtomicU64,
    pub(crate) deliveries: AtomicU64,
    /// Predicates that were evaluated for a row.
    pub(crate) evaluations: AtomicU64,
    /// Rows of snapshots that were copied.
    pub(crate) rows_copied: AtomicU64,
    /// Snapshots that are being copied.
    pub(crate) snapshots: AtomicU64,
    /// Live requests, long-polls and SSE, under way.
    pub(crate) live: AtomicU64,
    /// Bases that were made and shown, and bytes that were read and written for all of them.
    pub(crate) bases_made: AtomicU64,
    pub(crate) compact_read: AtomicU64,
    pub(crate) compact_written: AtomicU64,
}

impl Counters {
    /// Counts one applied transaction.
    pub(crate) fn applied(&self, deliveries: Deliveries, evaluations: u64) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(deliveries.changes, Ordering::Relaxed);
        self.deliveries.fetch_add(deliveries.shapes, Ordering::Relaxed);
        self.evaluations.fetch_add(evaluations, Ordering::Relaxed);
    }
}

/// Raises one counter for as long as it lives.
pub(crate) struct Counted {
    lifetime: Arc<Lifetime>,
    of: fn(&Counters) -> &AtomicU64,
}

impl Counted {
    pub(crate) fn new(lifetime: &Arc<Lifetime>, of: fn(&Counters) -> &AtomicU64) -> Self {
        of(&lifetime.counters).fetch_add(1, Ordering::Relaxed);
        Self { lifetime: Arc::clone(lifetime), of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.lifetime.counters).fetch_sub(1, Ordering::Relaxed);
    }
}

/// The server's clock, its stop, and its counters.
pub(crate) struct Lifetime {
    pub(crate) clock: Arc<dyn Clock>,
    /// [`Lifetime::now_ms`] counts from here.
    began: Instant,
    stopping: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) faults: Faults,
}

impl Lifetime {
    pub(crate) fn new(clock: Arc<dyn Clock>, faults: Faults) -> Self {
        Self { began: clock.now(), clock, stopping: AtomicBool::new(false), counters: Counters::default(), faults }
    }

    /// Milliseconds since the server was made, at least 1.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.since(self.began).as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Sleeps until `waits` is false, `time` is over, or the server stops.
    pub(crate) fn pause_while(&self, time: Duration, waits: impl Fn() -> bool) {
        no_wait::assert_may_wait();
        let until = self.clock.now() + time;
        while !self.stopping() && waits() {
            let left = until.saturating_duration_since(self.clock.now());
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left.min(STOP_NOTICED_WITHIN));
        }
    }

    /// Sleeps for `time`, or until the server stops.
    pub(crate) fn pause(&self, time: Duration) {
        self.pause_while(time, || true);
    }
}
