//! Immutable objects with a name, written once, read by ranges.
//!
//! [`FileStorage`] keeps one file per object; [`MemoryStorage`] keeps none; [`CachedStorage`] stands before a storage
//! that is far away, and keeps a bounded local copy of the blocks that were read from it; [`TieredStorage`] keeps files,
//! copies them to a storage that is far away, and gives the files up. All give the same answers:
//! `tests/storage/contract.rs` asks them the same questions.

mod cache;
#[cfg(feature = "testing")]
pub mod contract;
mod file;
mod handles;
mod memory;
#[cfg(feature = "testing")]
mod slow;
mod tiered;

pub use cache::{CacheError, CacheOptions, CacheStats, CachedStorage, StoreId, fuzz_cache_index};
pub use file::FileStorage;
pub use memory::MemoryStorage;
#[cfg(feature = "testing")]
pub use slow::SlowStorage;
pub use tiered::{Folders, Remote, TierStats, TieredStorage};

use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{ObjectId, Ticket};
use thiserror::Error;

/// Why an object cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StorageError {
    /// The object does not exist.
    #[error("object {0} does not exist")]
    Missing(ObjectId),
    /// An object of this id exists.
    #[error("object {0} exists already: objects are written once")]
    Exists(ObjectId),
    /// The byte range `start..end` is not within the object's `len` bytes.
    #[error("range {start}..{end} is outside object {object} of {len} bytes")]
    Range { object: ObjectId, start: u64, end: u64, len: u64 },
    /// The object was not written: the disk is full. A retry may succeed.
    #[error("no space left for object {0}")]
    NoSpace(ObjectId),
    /// The folder of objects cannot be listed, opened or synced.
    #[error("{operation} of the folder of objects failed: {cause}")]
    Folder { operation: &'static str, cause: String },
    /// The device does not read back data that was written to it. A later try may succeed.
    #[error("object {object} cannot be read at byte {at}: {cause}")]
    Unreadable { object: ObjectId, at: u64, cause: String },
    /// Another failure of the device during `operation`.
    #[error("{operation} of object {object} failed: {cause}")]
    Io { object: ObjectId, operation: &'static str, cause: String },
}

/// A set of immutable objects.
pub trait Storage: Send + Sync + 'static {
    /// Starts a new object. It does not exist for readers, or after a crash, until [`ObjectWriter::finish`] has
    /// returned.
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError>;

    /// The bytes of one range if no device has to be waited for.
    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>>;

    /// The bytes of one range. A local backend blocks the caller and returns a resolved ticket: call it from an I/O
    /// thread. A remote one returns at once, and resolves the ticket from a thread of its own.
    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>>;

    /// The object's length in bytes.
    fn len(&self, object: ObjectId) -> Result<u64, StorageError>;

    /// Like [`Storage::read`], but from the device and not from the page cache, where the system can do that. Waits.
    fn read_device(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.read(object, range).wait()
    }

    /// Like [`Storage::len`], asked of the device: the length of the file that has the object's name now.
    fn len_device(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.len(object)
    }

    /// Whether reading the object costs requests to a storage that is far away.
    fn is_cold(&self, object: ObjectId) -> bool {
        let _ = object;
        false
    }

    /// Removes an object; its space returns when its last reader is done. Removing a missing object is not an error.
    /// After a crash a removed object may exist again: the unit that names objects removes those that its root does not
    /// name.
    fn remove(&self, object: ObjectId) -> Result<(), StorageError>;

    /// Every finished object, in order of id. Unfinished ones of an earlier run are removed on opening.
    fn list(&self) -> Result<Vec<ObjectId>, StorageError>;
}

/// Writes one object from front to back. Dropping it unfinished removes the bytes that were written.
pub trait ObjectWriter: Send {
    /// Appends bytes to the object.
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError>;
    /// How much was written so far, in bytes.
    fn written(&self) -> u64;
    /// Makes the object durable and visible; its length in bytes.
    fn finish(self: Box<Self>) -> Result<u64, StorageError>;
}

/// Writes a copy of an object into another storage; its length in bytes. Waits for both.
pub fn copy_object(object: ObjectId, from: &dyn Storage, to: &dyn Storage) -> Result<u64, StorageError> {
    const PIECE_BYTES: u64 = 4 << 20;
    let len = from.len(object)?;
    let mut writer = to.create(object)?;
    let mut at = 0;
    while at < len {
        let end = len.min(at + PIECE_BYTES);
        writer.write(&from.read(object, at..end).wait()?)?;
        at = end;
    }
    writer.finish()
}

/// Refuses a range that is not within the object's `len` bytes.
pub fn check_range(object: ObjectId, range: &Range<u64>, len: u64) -> Result<(), StorageError> {
    if range.start <= range.end && range.end <= len {
        Ok(())
    } else {
        Err(StorageError::Range { object, start: range.start, end: range.end, len })
    }
}
