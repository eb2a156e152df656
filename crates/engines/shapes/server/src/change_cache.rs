//! Encoded changes of shapes that were put together lately: a cache of fixed size in memory.
//!
//! Changes are kept when they are requested a second time. Changes never change, so an entry is right for as long as
//! its shape lives, and every reader has seen the shape before.

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Less is as cheap to read as to find here.
const BYTES_MIN: usize = 512;
/// How many of the latest questions are remembered.
const ASKED: usize = 1024;
/// The memory of an entry beside its bytes.
const OVERHEAD: u64 = 128;

/// Changes of one shape, by where the first and the last of them lie in the change log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Its number.
    pub(crate) shape: u64,
    pub(crate) from: u64,
    pub(crate) upto: u64,
    /// The last change is the last of its transaction.
    pub(crate) whole: bool,
}

#[derive(Clone)]
struct Weigh;

impl Weighter<Key, Bytes> for Weigh {
    fn weight(&self, _: &Key, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + OVERHEAD
    }
}

pub(crate) struct ChangeCache {
    cache: Mutex<Cache<Key, Bytes, Weigh>>,
    /// Larger ones would drive out all others.
    bytes_max: usize,
    asked: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl ChangeCache {
    /// Holds about this many bytes at most.
    pub(crate) fn new(bytes: usize) -> Self {
        let items = (bytes / (64 << 10)).max(16);
        Self {
            cache: Mutex::new(Cache::with_weighter(items, bytes as u64, Weigh)),
            bytes_max: bytes / 2,
            asked: (0..ASKED).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Bytes> {
        self.cache.lock().get(key).cloned()
    }

    /// Keeps changes that were requested before.
    pub(crate) fn note(&self, key: Key, bytes: Bytes) -> Bytes {
        if (BYTES_MIN..=self.bytes_max).contains(&bytes.len()) && self.asked_before(&key) {
            self.cache.lock().insert(key, bytes.clone());
        }
        bytes
    }

    fn asked_before(&self, key: &Key) -> bool {
        let tag = self.hasher.hash_one(key) | 1;
        self.asked[tag as usize / 2 % ASKED].swap(tag, Ordering::Relaxed) == tag
    }

    #[cfg(test)]
    fn bytes(&self) -> u64 {
        self.cache.lock().weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(from: u64) -> Key {
        Key { shape: 1, from, upto: from + 1000, whole: true }
    }

    fn changes(n: u8) -> Bytes {
        vec![n; 1000].into()
    }

    #[test]
    fn what_is_asked_for_twice_is_kept() {
        let kept = ChangeCache::new(1 << 20);
        kept.note(key(0), changes(1));
        assert_eq!(kept.get(&key(0)), None);
        kept.note(key(0), changes(1));
        assert_eq!(kept.get(&key(0)), Some(changes(1)));
        assert_eq!(kept.get(&Key { whole: false, ..key(0) }), None);
        assert_eq!(kept.get(&Key { shape: 2, ..key(0) }), None);
    }

    #[test]
    fn there_is_never_more_than_its_size() {
        let kept = ChangeCache::new(100_000);
        for from in 0..10_000 {
            (0..2).for_each(|_| drop(kept.note(key(from), changes(2))));
            assert!(kept.bytes() <= 100_000);
        }
        assert!(kept.bytes() > 50_000);
        let large = Bytes::from(vec![0; 60_000]);
        (0..2).for_each(|_| drop(kept.note(key(0), large.clone())));
        assert_ne!(kept.get(&key(0)), Some(large), "it would drive out too many");
    }
}
