//! Leaving a source: the one place where everything is dropped that means something in one history only.
//!
//! Watermarks, transaction ids, oids, snapshots and what was made of them are of the history that was read. Another server, or the same one
//! after its storage was set back, gives the same numbers to other things.

use crate::engine::Engine;
use crate::store::StoreError;
use std::sync::atomic::Ordering;

impl Engine {
    /// Drops everything that came from the source so far. Whoever takes a snapshot meanwhile waits until another source is followed. When this
    /// returns nothing of it comes back at a restart, as soon as what is written next is durable.
    pub(crate) fn leave_source(&self, why: &str) -> Result<(), StoreError> {
        self.followed.lost();
        self.counters.left.fetch_add(1, Ordering::Relaxed);
        self.drop_all(why);
        {
            // The router's lock comes first.
            let mut router = self.router.lock();
            router.forget_source();
            self.recent.lock().forget();
            self.subqueries.forget_source();
        }
        self.watermarks.forget();
        self.forget_last_snapshot();
        self.lag.forget();
        self.tables.forget();
        self.templates.forget();
        self.publisher.forget_all();
        self.store.forget_tables()?;
        *self.trim_index.lock() = Default::default();
        self.store.forget_changes()
    }
}
