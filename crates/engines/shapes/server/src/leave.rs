//! Leaving a source: the one place that drops all state which is valid in one history only.
//!
//! Positions, transaction ids, oids, snapshots and all that was made of them belong to the history that was read.
//! Another server, or the same one after its storage was set back, gives the same numbers to other things.

use crate::faults::Fault;
use crate::server::ShapesServer;
use crate::store::StoreError;
use std::sync::atomic::Ordering;

impl ShapesServer {
    /// Drops all state from the source. New snapshots wait until another source is followed. Once the first frame that
    /// is written after this call is durable, a restart restores no state of the old source.
    pub(crate) fn leave_source(&self, why: &str) -> Result<(), StoreError> {
        self.source.followed.lost();
        self.lifetime.counters.left.fetch_add(1, Ordering::Relaxed);
        self.retirement.drop_all(why);
        if !self.lifetime.faults.has(Fault::PositionsOutliveHistory) {
            self.feed.lock().recent.forget();
            self.watermarks.forget();
        }
        self.feed.lock().forget_source();
        self.catalog.forget_source();
        self.source.forget();
        self.changes.forget_source()
    }
}
