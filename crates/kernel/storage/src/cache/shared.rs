//! The state that callers, local threads and remote answers share.
//!
//! One lock covers the index and the flights: a block is looked up and joined in one step. It is never held across IO,
//! nor while a ticket is resolved.

use super::flights::Flights;
use super::folder::Folder;
use super::index::Index;
use super::queue::Queue;
use super::requests::Requests;
use super::stats::{Counters, add};
use crate::{Storage, StorageError};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use thalweg_base::ObjectId;

pub(crate) struct Shared {
    pub(crate) remote: Arc<dyn Storage>,
    pub(crate) state: Mutex<State>,
    pub(crate) queue: Queue,
    pub(crate) requests: Requests,
    pub(crate) counters: Counters,
    pub(crate) bounds: Bounds,
    /// `None` if the local disk failed when it was opened.
    pub(crate) folder: Option<Folder>,
}

#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) block_bytes: u64,
    /// How many blocks one remote request asks for at most.
    pub(crate) request_blocks: u32,
    /// Whether the thread that queues work also does it.
    pub(crate) inline: bool,
}

pub(crate) struct State {
    pub(crate) index: Index,
    pub(crate) flights: Flights,
    /// The local disk failed: reads and writes go to the remote storage alone.
    pub(crate) off: bool,
}

impl Shared {
    /// The local disk failed: from here on the remote storage serves everything.
    pub(crate) fn turn_off(&self, operation: &'static str, error: &io::Error) {
        {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.off, true) {
                return;
            }
            state.index.clear();
            state.flights.drop_filling();
        }
        add(&self.counters.turned_off, 1);
        tracing::warn!(
            operation,
            %error,
            "the local disk of the cache failed: the cache is off until the next start, and all reads go to the remote storage"
        );
    }

    pub(crate) fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        let removals = {
            let state = self.state.lock();
            if let Some(len) = state.index.len(object) {
                return Ok(len);
            }
            state.index.removals()
        };
        let len = self.remote.len(object)?;
        self.state.lock().index.learn(object, len, removals);
        Ok(len)
    }

    /// Removes an object. Reads that begin after this do not find it; reads that began before get its bytes.
    pub(crate) fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        let removed = self.remote.remove(object);
        let state = &mut *self.state.lock();
        state.index.remove(object, self.bounds.block_bytes);
        state.flights.remove(object);
        removed
    }
}

impl Bounds {
    /// How many bytes a read may ask for of an object whose length is not known.
    pub(crate) fn unknown_read_max(&self) -> u64 {
        u64::from(self.request_blocks) * self.block_bytes
    }
}
