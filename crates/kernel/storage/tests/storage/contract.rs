//! The promises of every storage, asked of each backend here.

use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_disk::{Disk, RealDisk};
use thalweg_sim::SimDisk;
use thalweg_storage::contract::QUESTIONS;
use thalweg_storage::{CacheOptions, CachedStorage, FileStorage, MemoryStorage, SlowStorage, Storage, StoreId};

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

#[test]
fn every_storage_keeps_its_promises() {
    for (promise, ask) in QUESTIONS {
        for (name, storage, _folder) in backends() {
            println!("{name}: {promise}");
            ask(name, &*storage, name == FAR_AWAY);
        }
    }
}
