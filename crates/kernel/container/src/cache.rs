//! A bounded cache of decoded blocks, shared by all readers of a process or a unit.

use crate::block::Block;
use crate::partition::Partition;
use crate::root::Root;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use thalweg_base::ObjectId;

/// A checked and decoded part of a container: cheap to clone.
#[derive(Clone, Debug)]
pub struct Cached(pub(crate) Part);

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Root(Arc<Root>),
    Partition(Arc<Partition>),
    Block(Block),
    Sums(Bytes),
}

impl Cached {
    /// The memory that it takes, about, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match &self.0 {
                Part::Root(root) => root.weight(),
                Part::Partition(partition) => partition.weight(),
                Part::Block(block) => block.weight(),
                Part::Sums(sums) => sums.len(),
            }
    }
}

/// A cache that readers ask for a part before they ask for a range. The key of a part is its object and its place in
/// it; the root's place is the end of the object. Objects never change, so nothing in a cache is ever stale.
pub trait BlockCache: Send + Sync {
    /// The part of `object` at byte `at`, if it is cached.
    fn get(&self, object: ObjectId, at: u64) -> Option<Cached>;
    /// Offers a part. The cache may drop it at once.
    fn insert(&self, object: ObjectId, at: u64, part: Cached);
    /// Drops the cached parts of an object that was removed.
    fn forget(&self, object: ObjectId);
}

/// Keeps nothing: for a reader that reads each block once.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCache;

impl BlockCache for NoCache {
    fn get(&self, _: ObjectId, _: u64) -> Option<Cached> {
        None
    }

    fn insert(&self, _: ObjectId, _: u64, _: Cached) {}

    fn forget(&self, _: ObjectId) {}
}

/// Keeps parts of all containers together, up to a number of bytes, and evicts those that are used least.
pub struct SharedCache(Cache<(ObjectId, u64), Cached, ByWeight>);

#[derive(Clone)]
struct ByWeight;

impl Weighter<(ObjectId, u64), Cached> for ByWeight {
    fn weight(&self, _: &(ObjectId, u64), part: &Cached) -> u64 {
        part.weight() as u64
    }
}

/// A block's approximate size in bytes, for the size of the cache's table only.
const WEIGHT_GUESSED: u64 = 16 << 10;

impl SharedCache {
    /// A cache that keeps about `bytes` bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self(Cache::with_weighter((bytes / WEIGHT_GUESSED).max(16) as usize, bytes, ByWeight))
    }

    /// The bytes that it keeps now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.weight()
    }
}

impl BlockCache for SharedCache {
    fn get(&self, object: ObjectId, at: u64) -> Option<Cached> {
        self.0.get(&(object, at))
    }

    fn insert(&self, object: ObjectId, at: u64, part: Cached) {
        self.0.insert((object, at), part);
    }

    fn forget(&self, object: ObjectId) {
        self.0.retain(|(of, _), _| *of != object);
    }
}
