//! The counters of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters since the cache was opened, and sizes of this moment. Blocks are counted per read that asks for
        /// them: each is a hit, a miss or a coalesced wait.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CacheStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Blocks on the local disk that can be read now.
            pub blocks: u64,
            /// Length of the files of the cache folder in bytes.
            pub disk_bytes: u64,
            /// Blocks that were asked for and are not there, or that are being written to the local disk.
            pub in_flight: u64,
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> CacheStats {
                CacheStats { $($name: self.$name.load(Ordering::Relaxed),)* ..CacheStats::default() }
            }
        }
    };
}

counters! {
    /// Blocks that were read locally.
    hits,
    /// Blocks that the remote storage was asked for.
    misses,
    /// Blocks that another read had asked for already.
    coalesced_waits,
    /// Bytes of blocks that were read locally.
    hit_bytes,
    /// Requests to the remote storage for ranges, those that bypass the cache included.
    remote_requests,
    /// Bytes of blocks that the remote storage answered with.
    remote_bytes,
    /// Requests that the remote storage answered with an error.
    remote_errors,
    /// Reads that bypass the cache: it is turned off, or the length of the object is not known and the range is empty
    /// or large.
    bypassed,
    /// Blocks that were written to the local disk.
    filled,
    /// Blocks that were not cached because too many bytes waited for the local disk.
    fills_refused,
    /// Local blocks that were asked of the remote storage because too many reads waited for the local disk.
    reads_refused,
    /// Blocks that were given up for others.
    evictions,
    /// Local blocks that were not as they had been written, and were dropped.
    damaged,
    /// 1 once an error of the local disk has turned the cache off, until the next start.
    turned_off,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
