//! The kernel unit with the shapes' logs, and the copies of changes in memory.

use crate::change_cache::ChangeCache;
use crate::read::Sources;
use crate::recent_window::RecentWindow;
use crate::shared_rows::SharedRows;
use crate::store::{Store, StoreError};
use crate::trim_index::TrimIndex;
use crate::write_stall::WriteStall;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{LogId, Lsn};

/// Bytes of the change cache.
const CACHE_BYTES: usize = 32 << 20;

pub(crate) struct ChangeStore {
    pub(crate) store: Store,
    /// The newest changes, durable or not.
    pub(crate) recent_window: RecentWindow,
    /// Encoded changes that several clients have requested.
    pub(crate) change_cache: ChangeCache,
    /// Which shapes refer to which logs of common rows.
    pub(crate) shared_rows: SharedRows,
    /// Where the change log can be cut.
    pub(crate) trim_index: Mutex<TrimIndex>,
    /// Whether changes can be stored.
    pub(crate) write_stall: WriteStall,
    /// Bytes of answers that are being put together.
    pub(crate) building: AtomicU64,
    /// The most bytes of answers that clients do not take.
    unsent_bytes_max: u64,
}

impl ChangeStore {
    /// `recent_bytes`: the size of the window of recent changes.
    pub(crate) fn new(store: Store, recent_bytes: usize, unsent_bytes_max: u64) -> Self {
        Self {
            store,
            recent_window: RecentWindow::new(recent_bytes),
            change_cache: ChangeCache::new(CACHE_BYTES),
            shared_rows: SharedRows::default(),
            trim_index: Mutex::default(),
            write_stall: WriteStall::default(),
            building: AtomicU64::new(0),
            unsent_bytes_max,
        }
    }

    /// From where answers are read.
    pub(crate) fn sources(&self) -> Sources<'_> {
        Sources { recent_window: &self.recent_window, store: &self.store, change_cache: &self.change_cache }
    }

    /// Whether answers that clients do not take hold as much memory as they may, beside the caches.
    pub(crate) fn is_memory_short(&self) -> bool {
        let logs = self.store.logs();
        let caches = logs.options().chunk_cache_bytes + CACHE_BYTES as u64;
        let held = logs.held_bytes() + self.building.load(Ordering::Relaxed);
        held >= self.unsent_bytes_max.saturating_add(caches)
    }

    /// Deletes logs of a shape (by its number) and the logs of common rows that only it referred to, in one frame.
    /// Durable when the returned position is.
    pub(crate) fn delete_logs(&self, shape: u64, mut logs: Vec<LogId>) -> Result<Lsn, StoreError> {
        let shared = self.shared_rows.release(shape);
        logs.extend(&shared);
        if logs.is_empty() {
            return Ok(Lsn::ZERO);
        }
        self.store.delete_shape(&logs).inspect_err(|_| self.shared_rows.requeue(shared))
    }

    /// Another history begins, for which the change log is not valid. The caller has dropped the shapes.
    pub(crate) fn forget_source(&self) -> Result<(), StoreError> {
        self.store.forget_tables()?;
        *self.trim_index.lock() = TrimIndex::default();
        self.store.forget_changes()
    }
}
