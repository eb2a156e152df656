//! The options of a cache, and the values that it refuses.

use super::format::{ENTRY_BYTES, HEADER_SPAN};
use thiserror::Error;

/// Names the remote storage that a cache stands before, so that a folder with blocks of another storage is never
/// believed: object ids of two storages may be equal. It must be made at random with the storage, and kept in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId(pub [u8; 16]);

/// The bounds of a [`crate::CachedStorage`].
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Identity of the remote storage.
    pub store: StoreId,
    /// How many bytes all files of the cache folder may have together.
    pub capacity_bytes: u64,
    /// The size of a block, which is fetched, kept, checked and evicted as one: a power of two from 512 bytes to 4 MiB.
    /// If it differs from that of the folder, the folder is emptied.
    pub block_bytes: u32,
    /// Threads that read and write the local disk. With 0 the thread that asks does it: for simulations, which need one
    /// order.
    pub threads: usize,
    /// How many reads may wait for these threads; the ones beyond go to the remote storage.
    pub queued_reads_max: usize,
    /// How many requests the remote storage is asked at once. Further ones are sent as answers come.
    pub remote_requests_max: usize,
    /// How many fetched bytes may wait in memory to be written; those beyond are not cached.
    pub queued_fill_bytes_max: usize,
}

/// Why a cache cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CacheError {
    /// The folder holds a file that no cache has written; nothing was changed.
    #[error(
        "the cache folder {dir} holds {name:?}, which is no file of a cache: give the cache a folder of its own, or empty this one"
    )]
    Foreign { dir: String, name: String },
    /// The capacity in bytes holds too few blocks; `needed` is the least one.
    #[error(
        "a cache of {capacity} bytes is too small for blocks of {block_bytes} bytes: give it {needed} bytes at least"
    )]
    TooSmall { capacity: u64, block_bytes: u32, needed: u64 },
    /// The block size in bytes is no power of two from 512 to 4 MiB.
    #[error("a cache block of {0} bytes is not possible: choose a power of two from 512 to 4194304")]
    BlockBytes(u32),
    /// The system refused a thread.
    #[error("the threads of the cache could not be started ({0}): raise the limit of threads")]
    Threads(String),
}

/// Below this the eviction policy has nothing to choose from.
const BLOCKS_MIN: u64 = 16;
/// How many bytes one request to the remote storage asks for at most.
pub(crate) const REQUEST_BYTES_MAX: u64 = 4 << 20;

impl CacheOptions {
    /// A cache of `capacity_bytes` before the storage named `store`. Its index takes about 100 bytes of memory per
    /// block: 1.6 MB for each GB of capacity.
    #[must_use]
    pub fn new(store: StoreId, capacity_bytes: u64) -> Self {
        Self {
            store,
            capacity_bytes,
            block_bytes: 64 << 10,
            threads: 4,
            queued_reads_max: 4096,
            remote_requests_max: 1024,
            queued_fill_bytes_max: 64 << 20,
        }
    }

    /// Slots that are being filled: these are neither free, nor do they hold a block that can be read.
    pub(crate) fn spare_slots(&self) -> u32 {
        self.threads.clamp(1, 1024) as u32
    }

    /// How many slots fit into the capacity with their entries in the index, whose file is rounded up to whole pages.
    pub(crate) fn slots(&self) -> Result<u32, CacheError> {
        if !self.block_bytes.is_power_of_two() || !(512..=REQUEST_BYTES_MAX).contains(&u64::from(self.block_bytes)) {
            return Err(CacheError::BlockBytes(self.block_bytes));
        }
        let each = u64::from(self.block_bytes) + ENTRY_BYTES as u64;
        let fixed = HEADER_SPAN * 2;
        let slots = self.capacity_bytes.saturating_sub(fixed) / each;
        let least = BLOCKS_MIN + u64::from(self.spare_slots());
        if slots < least {
            let needed = fixed + least * each;
            return Err(CacheError::TooSmall { capacity: self.capacity_bytes, block_bytes: self.block_bytes, needed });
        }
        Ok(u32::try_from(slots).unwrap_or(u32::MAX))
    }

    /// How many neighbouring blocks one request to the remote storage asks for at most.
    pub(crate) fn request_blocks_max(&self) -> u32 {
        (REQUEST_BYTES_MAX / u64::from(self.block_bytes)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_all_slots_fit_into_the_capacity() {
        for capacity in [100 << 10, 1 << 20, 10 << 30, u64::MAX] {
            let options = CacheOptions { block_bytes: 4096, ..CacheOptions::new(StoreId([0; 16]), capacity) };
            let slots = u64::from(options.slots().unwrap());
            assert!(slots * 4096 + (HEADER_SPAN + slots * ENTRY_BYTES as u64).next_multiple_of(4096) <= capacity);
        }
    }

    #[test]
    fn impossible_bounds_are_refused_with_what_is_possible() {
        let options = CacheOptions::new(StoreId([0; 16]), 1 << 20);
        let Err(CacheError::TooSmall { needed, .. }) = options.slots() else { panic!("1 MiB is too small") };
        assert!(CacheOptions { capacity_bytes: needed, ..options }.slots().is_ok());
        assert!(CacheOptions { capacity_bytes: needed - 1, ..options }.slots().is_err());
        for block_bytes in [0, 100, 768, 8 << 20] {
            assert_eq!(CacheOptions { block_bytes, ..options }.slots(), Err(CacheError::BlockBytes(block_bytes)));
        }
    }
}
