//! How far changes have come, in Postgres's log and in the change log. Positions of Postgres's log are of one history.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_pg::PgLsn;
use thalweg_shapes_model::history::Anchor;

#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    /// Every transaction that commits at or before this LSN was applied.
    processed: AtomicU64,
    /// The last transaction that the change log has.
    applied: AtomicU64,
    /// The last transaction that this process has applied; the change log may have nothing of it.
    last_commit: AtomicU64,
    /// The highest LSN of a snapshot whose rows were fetched for a subquery, or shown as a subset.
    fetched: AtomicU64,
    /// The last transaction that the stream has brought.
    anchor: Mutex<Option<Anchor>>,
    /// Bodies before this place in the change log were published.
    published: AtomicU64,
}

impl Watermarks {
    /// Everything that commits at or before `lsn` was applied.
    pub(crate) fn processed(&self, lsn: PgLsn) {
        self.processed.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Every transaction that commits at or before it was applied. Read it before the shape: then the shape has them
    /// all.
    pub(crate) fn processed_lsn(&self) -> PgLsn {
        PgLsn(self.processed.load(Ordering::Acquire))
    }

    pub(crate) fn applied(&self) -> PgLsn {
        PgLsn(self.applied.load(Ordering::Relaxed))
    }

    pub(crate) fn set_applied(&self, lsn: PgLsn) {
        self.applied.fetch_max(lsn.0, Ordering::Relaxed);
    }

    /// Whether a transaction that commits at `lsn` was applied before. Not each one up to [`Self::processed_lsn`] was:
    /// that position comes from Postgres's heartbeats too. A server whose storage was set back without the loss of a
    /// transaction that was read gives positions before it to new transactions.
    pub(crate) fn is_applied(&self, lsn: PgLsn) -> bool {
        lsn.0 <= self.applied.load(Ordering::Relaxed).max(self.last_commit.load(Ordering::Relaxed))
    }

    /// Rows of a snapshot that Postgres has on its disk wait to be shown, or were shown.
    pub(crate) fn fetched(&self, lsn: PgLsn) {
        self.fetched.fetch_max(lsn.0, Ordering::Relaxed);
    }

    /// The highest LSN of this history that a client may have seen, or will see, beyond the stored shapes.
    pub(crate) fn seen(&self) -> PgLsn {
        let fetched = PgLsn(self.fetched.load(Ordering::Relaxed));
        self.processed_lsn().max(self.applied()).max(fetched)
    }

    pub(crate) fn set_last_commit(&self, lsn: PgLsn) {
        self.last_commit.fetch_max(lsn.0, Ordering::Relaxed);
    }

    pub(crate) fn anchor(&self) -> Option<Anchor> {
        *self.anchor.lock()
    }

    pub(crate) fn set_anchor(&self, anchor: Option<Anchor>) {
        *self.anchor.lock() = anchor;
    }

    /// Another history begins, where these positions mean nothing.
    pub(crate) fn forget(&self) {
        self.processed.store(0, Ordering::Release);
        self.applied.store(0, Ordering::Relaxed);
        self.last_commit.store(0, Ordering::Relaxed);
        self.fetched.store(0, Ordering::Relaxed);
        self.set_anchor(None);
    }

    /// Bodies before this place in the change log belong to entries of shapes, or to no shape.
    pub(crate) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    pub(crate) fn set_published(&self, bodies: u64) {
        self.published.store(bodies, Ordering::Release);
    }
}
