//! A bounded local copy of the blocks that were read from a remote storage.
//!
//! [`CachedStorage`] stands before any [`Storage`] and is one itself. Objects are cut into blocks of equal size; a read
//! takes its blocks from the local disk, joins requests for them that are under way, and asks the remote storage for
//! the others, neighbours in one range. It promises:
//!
//! - A read does not wait for the remote storage, if that answers by ticket: it returns a ticket, which the remote
//!   answer resolves. Only a cache without threads has its reads wait for the local disk.
//! - A block that many reads want is asked for once; an error reaches all reads that wait for the block, and is not
//!   cached.
//! - No local byte is believed before its checksum was verified. A damaged local block or a failing local disk costs
//!   time, and fails no read.
//! - The number of requests to the remote storage at one time is bounded.
//! - The files of the cache folder never have more bytes than their bound. The blocks that are given up are those that
//!   were used least of late; blocks that were read once, as by a scan, go before those that are read again and again.
//! - Cached blocks are found again after a restart, also one after a kill; a power cut may cost some. No block is
//!   synced for that.
//!
//! It must not know the content of objects, nor how the remote storage is reached. One folder belongs to one cache of
//! one process at a time: the lock of the data folder around it ensures that. `docs/format/cache.md` has the bytes.

mod fetch;
mod flights;
mod folder;
mod format;
mod gather;
mod index;
mod local;
mod options;
mod queue;
mod read;
mod requests;
mod shared;
mod stats;
mod writer;

pub use format::fuzz_cache_index;
pub use options::{CacheError, CacheOptions, StoreId};
pub use stats::CacheStats;

use crate::{ObjectWriter, Storage, StorageError};
use bytes::Bytes;
use flights::Flights;
use folder::{Folder, Found};
use format::{ENTRY_BYTES, HEADER_SPAN, Header};
use index::Index;
use parking_lot::Mutex;
use queue::Queue;
use requests::Requests;
use shared::{Bounds, Shared, State};
use stats::Counters;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use thalweg_base::{ObjectId, Ticket};
use thalweg_disk::Disk;

/// A storage with a bounded local copy of the blocks that were read from it. When it is dropped, waiting tickets are
/// still resolved.
pub struct CachedStorage {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl CachedStorage {
    /// Puts the folder `dir` of `disk` before `remote`. A folder with files that are no files of a cache is refused;
    /// the content of one for another store, with another block size or of another version is deleted. A local disk
    /// that fails is no error: then the cache is off, see [`CacheStats::turned_off`].
    pub fn open(
        remote: Arc<dyn Storage>,
        disk: &dyn Disk,
        dir: &str,
        options: CacheOptions,
    ) -> Result<Self, CacheError> {
        let slots = options.slots()?;
        let header = Header { block_bytes: options.block_bytes, store: options.store };
        let opened = folder::check_names(disk, dir)?.and_then(|()| Folder::open(disk, dir, header, slots));
        let (folder, found, failed) = match opened {
            Ok((folder, found)) => (Some(folder), found, None),
            Err(error) => (None, Found::default(), Some(error)),
        };
        let mut index = Index::new(slots, options.spare_slots());
        index.restore(found.used, found.entries);
        let shared = Arc::new(Shared {
            remote,
            state: Mutex::new(State { index, flights: Flights::default(), off: false }),
            queue: Queue::new(options.queued_reads_max, options.queued_fill_bytes_max),
            requests: Requests::new(options.remote_requests_max),
            counters: Counters::default(),
            bounds: Bounds {
                block_bytes: u64::from(options.block_bytes),
                request_blocks: options.request_blocks_max(),
                inline: options.threads == 0,
            },
            folder,
        });
        if let Some(error) = failed {
            shared.turn_off("opening", &error);
        }
        let mut cache = Self { shared, threads: Vec::new() };
        cache.start(options.threads)?;
        Ok(cache)
    }

    fn start(&mut self, threads: usize) -> Result<(), CacheError> {
        for _ in 0..threads {
            let shared = Arc::clone(&self.shared);
            let work = move || {
                while let Some(job) = shared.queue.next() {
                    shared.perform(job);
                }
            };
            let thread = thread::Builder::new().name("cache".into()).spawn(work);
            self.threads.push(thread.map_err(|error| CacheError::Threads(error.to_string()))?);
        }
        Ok(())
    }

    /// Figures since the start.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let mut stats = self.shared.counters.snapshot();
        let state = self.shared.state.lock();
        let (blocks, slots) = state.index.sizes();
        stats.blocks = blocks;
        stats.disk_bytes = HEADER_SPAN + u64::from(slots) * (self.shared.bounds.block_bytes + ENTRY_BYTES as u64);
        stats.in_flight = state.flights.len() as u64;
        stats
    }

    /// Waits until all writes and reads of the local disk are done. Callbacks of tickets must not call it: they run on
    /// the threads for which it waits.
    pub fn wait_idle(&self) {
        self.shared.queue.wait_idle();
    }
}

impl Drop for CachedStorage {
    fn drop(&mut self) {
        self.shared.queue.close();
        let own = thread::current().id();
        for thread in self.threads.drain(..) {
            // A callback of a ticket may hold the last reference: then the thread that drops it is one of these, and
            // ends by itself.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

impl Storage for CachedStorage {
    /// Writes through: the object exists once the remote storage has it.
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        writer::create(&self.shared, object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.shared.try_read(object, &range).or_else(|| self.shared.remote.try_read(object, range))
    }

    /// Waits for nothing but the locks of the cache, and for the remote storage only as far as its own `read` does.
    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.shared.read(object, range)
    }

    /// The object's length, from memory if it is known there; else the caller waits for the remote storage.
    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.shared.len(object)
    }

    /// Reads from the remote storage, never from the cache.
    fn read_device(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.shared.remote.read_device(object, range)
    }

    fn len_device(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.shared.remote.len_device(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.shared.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.shared.remote.list()
    }
}
