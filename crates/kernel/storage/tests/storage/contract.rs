//! The promises of every storage, asked of each backend here.

use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_base::{ObjectId, Ticket};
use thalweg_disk::{Disk, RealDisk};
use thalweg_sim::SimDisk;
use thalweg_storage::contract::QUESTIONS;
use thalweg_storage::{
    CacheOptions, CachedStorage, FileStorage, Folders, MemoryStorage, ObjectWriter, Remote, SlowStorage, Storage,
    StorageError, StoreId, TieredStorage,
};

const FAR_AWAY: &str = "a cache before what is far away";

type Backend = (&'static str, Arc<dyn Storage>, Option<TempDir>);

fn backends() -> Vec<Backend> {
    let folder = tempfile::tempdir().unwrap();
    let file = |disk| Arc::new(FileStorage::open(disk, "objects").unwrap());
    let real = file(Arc::new(RealDisk::open(folder.path()).unwrap()));
    let simulated = file(Arc::new(SimDisk::new(1)));
    let cached_folder = tempfile::tempdir().unwrap();
    let cached_disk = Arc::new(RealDisk::open(cached_folder.path()).unwrap());
    let cached_files = cached(file(cached_disk.clone()), &*cached_disk, 4);
    vec![
        ("memory", Arc::new(MemoryStorage::new()), None),
        ("files on a simulated disk", simulated, None),
        ("files", real, Some(folder)),
        ("a cache before memory", cached(Arc::new(MemoryStorage::new()), &SimDisk::new(2), 0), None),
        ("a cache before files", cached_files, Some(cached_folder)),
        (FAR_AWAY, far_away(), None),
        ("two tiers", Arc::new(tiered()), None),
        ("two tiers, of which the far one has all", Arc::new(AllCold(tiered())), None),
    ]
}

/// A cache that is smaller than the largest objects.
fn cached(remote: Arc<dyn Storage>, disk: &dyn Disk, threads: usize) -> Arc<CachedStorage> {
    let options = CacheOptions { threads, ..CacheOptions::new(StoreId([1; 16]), 8 << 20) };
    Arc::new(CachedStorage::open(remote, disk, "cache", options).unwrap())
}

fn far_away() -> Arc<CachedStorage> {
    let delay = Duration::from_millis(1);
    let slow = SlowStorage::after(Arc::new(MemoryStorage::new()), delay, delay, 3);
    cached(Arc::new(slow), &SimDisk::new(3), 2)
}

fn tiered() -> TieredStorage {
    let copies: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let remote = Remote { reads: Arc::clone(&copies), copies };
    TieredStorage::open(Arc::new(SimDisk::new(4)), Folders { objects: "objects", marks: "copies" }, remote).unwrap()
}

/// Copies and evicts every object before anything else is asked.
struct AllCold(TieredStorage);

impl AllCold {
    fn cool(&self) -> &TieredStorage {
        for object in self.0.list().unwrap() {
            self.0.copy(object).unwrap();
            self.0.sync_marks().unwrap();
            self.0.evict(object).unwrap();
            assert!(self.0.is_cold(object));
        }
        &self.0
    }
}

impl Storage for AllCold {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.cool().create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.cool().try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.cool().read(object, range)
    }

    fn read_device(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.cool().read_device(object, range)
    }

    fn len_device(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.cool().len_device(object)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.cool().len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.cool().remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.cool().list()
    }
}

#[test]
fn every_storage_keeps_its_promises() {
    for (promise, ask) in QUESTIONS {
        for (name, storage, _folder) in backends() {
            println!("{name}: {promise}");
            ask(name, &*storage, name == FAR_AWAY);
        }
    }
}
