//! The one way in which shapes go: out of the registry and the feed, their clients told to refetch, their logs deleted.

use crate::catalog::Catalog;
use crate::change_store::ChangeStore;
use crate::costly;
use crate::feed::Retired;
use crate::feed_lock::SharedFeed;
use crate::lifetime::Lifetime;
use crate::no_wait;
use crate::shape::{Chunks, Phase, Shape};
use crate::source::Source;
use crate::state::transaction::Transaction;
use crate::store::StoreError;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Lsn;
use thalweg_filter::TooCostly;
use thalweg_shapes_model::failure::Failure;

/// The pause before a shape that could not be deleted for want of space is tried again.
const DELETE_AGAIN: Duration = Duration::from_millis(100);

/// Takes shapes out. Every position that a method returns says: when it is durable, the shapes are gone for good.
pub(crate) struct Retirement {
    /// Held while logs of shapes are deleted, so that no log is deleted twice.
    deleting: Mutex<()>,
    lifetime: Arc<Lifetime>,
    feed: Arc<SharedFeed>,
    catalog: Arc<Catalog>,
    changes: Arc<ChangeStore>,
    source: Arc<Source>,
}

impl Retirement {
    pub(crate) fn new(
        lifetime: Arc<Lifetime>,
        feed: Arc<SharedFeed>,
        catalog: Arc<Catalog>,
        changes: Arc<ChangeStore>,
        source: Arc<Source>,
    ) -> Self {
        Self { deleting: Mutex::default(), lifetime, feed, catalog, changes, source }
    }

    /// Drops every shape of a table.
    pub(crate) fn drop_table(&self, table: u32, why: &str) -> Lsn {
        self.drop_shapes(table, why, |_| true)
    }

    /// Drops the shapes of a table because of a transaction. Shapes whose snapshot has the
    /// transaction stay: they were made after it, perhaps of a table with other columns.
    pub(crate) fn drop_table_by(&self, table: u32, why: &str, by: &Transaction) -> Lsn {
        let concerned =
            |shape: &Shape| !shape.lock().snapshot.as_ref().is_some_and(|snapshot| snapshot.contains(by.xid, by.lsn));
        self.drop_shapes(table, why, concerned)
    }

    fn drop_shapes(&self, table: u32, why: &str, which: impl Fn(&Shape) -> bool) -> Lsn {
        let mut shapes = self.feed.lock().shapes_of(table);
        shapes.retain(|shape| which(shape));
        if let Some(shape) = shapes.first() {
            // The next shape of the table has the publication checked again.
            self.source.publisher.forget(table);
            tracing::info!(table = %shape.family.name, shapes = shapes.len(), "shapes are dropped: the table {why}");
        }
        shapes.iter().map(|shape| self.drop_shape(shape)).max().unwrap_or_default()
    }

    /// Drops every shape. Creates that have not registered theirs yet begin again.
    pub(crate) fn drop_all(&self, why: &str) -> Lsn {
        let shapes = self.catalog.registry.write().begin_epoch();
        if !shapes.is_empty() {
            tracing::warn!(shapes = shapes.len(), "all shapes are dropped: {why}");
        }
        shapes.iter().map(|shape| self.drop_shape(shape)).max().unwrap_or_default()
    }

    /// Drops a shape: its clients must refetch.
    pub(crate) fn drop_shape(&self, shape: &Shape) -> Lsn {
        self.retire(shape, Phase::Gone)
    }

    /// Drops a shape, and waits until that is durable.
    pub(crate) fn drop_for_good(&self, shape: &Shape) -> Result<(), StoreError> {
        self.changes.store.wait(self.drop_shape(shape))
    }

    /// Ends a shape that could not be made.
    pub(crate) fn fail_shape(&self, shape: &Shape, failure: Failure) -> Lsn {
        self.retire(shape, Phase::Failed(Arc::new(failure)))
    }

    /// Drops a shape because one of its table's rows is too costly to evaluate its where clause for. Its definition,
    /// and those of the shapes that depend on it, are refused for a while.
    pub(crate) fn drop_costly(&self, shape: &Shape) -> Lsn {
        // Requests name the shapes above an inner shape, never the inner shape.
        let above = self.feed.lock().graph.above(shape.number);
        let now = self.lifetime.clock.now();
        for shape in above.iter().map(AsRef::as_ref).chain([shape]) {
            self.catalog.costly.note(shape.identity, now);
        }
        let definition = shape.definition();
        let clause: String = definition.where_sql.unwrap_or_default().chars().take(200).collect();
        tracing::warn!(table = %shape.family.name, clause, "a shape is dropped: {TooCostly}");
        if matches!(shape.lock().phase, Phase::Preparing | Phase::Snapshotting) {
            self.fail_shape(shape, costly::refusal())
        } else {
            self.drop_shape(shape)
        }
    }

    /// Takes a shape out, with the shapes that cannot be without it and the inner shapes that only it needed.
    fn retire(&self, shape: &Shape, phase: Phase) -> Lsn {
        no_wait::assert_may_wait();
        self.catalog.registry.write().remove(shape);
        let deleting = self.deleting.lock();
        // All at once: a transaction must not find a shape whose inner shape is gone already, nor a node whose place in
        // the router is another's.
        let retired = self.feed.lock().retire(shape, phase, |table| self.catalog.forget_description(table));
        for Retired { dependent, waiters, .. } in &retired {
            if let Some(dependent) = dependent {
                self.catalog.registry.write().remove(dependent);
            }
            waiters.iter().for_each(|(_, waker)| waker.wake());
        }
        let mut left: Vec<Retired> = Vec::new();
        let mut end = Lsn::ZERO;
        for retired in retired {
            match self.changes.delete_logs(retired.number, retired.logs.clone()) {
                Ok(deleted) => end = end.max(deleted),
                Err(error) if error.is_transient() => left.push(retired),
                Err(error) => could_not_delete(&retired, &error),
            }
        }
        drop(deleting);
        left.iter().map(|retired| self.delete_later(retired)).fold(end, Lsn::max)
    }

    /// Deletes the logs of a shape as soon as there is space for that. A shape that is forgotten but not deleted would
    /// come back at the next start, without the changes since.
    fn delete_later(&self, retired: &Retired) -> Lsn {
        loop {
            if !self.lifetime.stopping() {
                self.lifetime.clock.sleep(DELETE_AGAIN);
            }
            let _deleting = self.deleting.lock();
            match self.changes.delete_logs(retired.number, retired.logs.clone()) {
                Ok(end) => return end,
                Err(error) if error.is_transient() && !self.lifetime.stopping() => {}
                Err(error) => {
                    could_not_delete(retired, &error);
                    return Lsn::ZERO;
                }
            }
        }
    }

    /// Gives up the bases of a shape that had a newer one at `before_ms`, and the changes that only they need.
    pub(crate) fn release_bases(&self, shape: &Shape, before_ms: u64) -> Result<(), StoreError> {
        let _deleting = self.deleting.lock();
        let (first, leaving) = {
            let mut state = shape.lock();
            let log = state.log;
            let Some(bases) = &mut state.bases else { return Ok(()) };
            let leaving = bases.leave(before_ms);
            if leaving.first {
                state.chunks = Chunks::default();
            }
            (log.filter(|_| leaving.first), leaving)
        };
        if first.is_some() || !leaving.logs.is_empty() {
            // Common rows that only the snapshot's rows referred to go with them.
            let shared_rows = &self.changes.shared_rows;
            let shared = if first.is_some() { shared_rows.release(shape.number) } else { Vec::new() };
            let logs = [&leaving.logs[..], &shared].concat();
            self.changes.store.delete_bases(first, &logs).inspect_err(|_| shared_rows.requeue(shared))?;
        }
        let mut state = shape.lock();
        if let Some(bases) = &mut state.bases {
            bases.left(&leaving);
        }
        state.cut();
        Ok(())
    }
}

fn could_not_delete(retired: &Retired, error: &StoreError) {
    tracing::error!(handle = %retired.handle, %error, "a shape cannot be deleted");
}
