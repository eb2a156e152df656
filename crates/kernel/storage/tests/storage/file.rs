//! Promises of the file backend alone: names, leftovers, bounds, a full disk.

use crate::support::RamDisk;
use std::sync::atomic::Ordering;
use thalweg_base::ObjectId;
use thalweg_disk::Disk;
use thalweg_storage::{FileStorage, Storage, StorageError};

fn put(storage: &FileStorage, id: u64, bytes: &[u8]) -> Result<u64, StorageError> {
    let mut writer = storage.create(ObjectId(id))?;
    writer.write(bytes)?;
    writer.finish()
}

#[test]
fn objects_are_found_again_and_leftovers_removed() {
    let disk = RamDisk::new();
    let storage = FileStorage::open(disk.clone(), "objects").unwrap();
    put(&storage, 255, b"kept").unwrap();
    drop(storage);
    disk.create("objects/0000000000000007.tmp").unwrap();
    disk.create("objects/README").unwrap();
    let storage = FileStorage::open(disk.clone(), "objects").unwrap();
    assert_eq!(storage.list(), Ok(vec![ObjectId(255)]));
    assert_eq!(disk.names(), ["objects/00000000000000ff.obj", "objects/README"]);
    assert_eq!(storage.read(ObjectId(255), 0..4).wait().unwrap(), &b"kept"[..]);
    put(&storage, 7, b"new").unwrap();
}

#[test]
fn open_files_are_bounded() {
    let disk = RamDisk::new();
    let storage = FileStorage::with_open_files(disk.clone(), "objects", 8).unwrap();
    for round in 0..3 {
        for id in 0..100u64 {
            if round == 0 {
                put(&storage, id, &id.to_le_bytes()).unwrap();
            }
            assert_eq!(storage.read(ObjectId(id), 0..8).wait().unwrap(), &id.to_le_bytes()[..]);
            assert!(disk.counters().open.load(Ordering::Relaxed) <= 8);
        }
    }
    for id in 0..100 {
        storage.remove(ObjectId(id)).unwrap();
    }
    assert_eq!(disk.counters().open.load(Ordering::Relaxed), 0);
}

#[test]
fn a_file_that_is_not_open_is_not_opened_by_try_read() {
    let disk = RamDisk::new();
    let storage = FileStorage::open(disk.clone(), "objects").unwrap();
    put(&storage, 1, b"abc").unwrap();
    assert_eq!(storage.try_read(ObjectId(1), 0..3), None);
    storage.len(ObjectId(1)).unwrap();
    assert_eq!(storage.try_read(ObjectId(1), 0..3).unwrap().unwrap(), &b"abc"[..]);
}

#[test]
fn long_writes_sync_on_the_way() {
    let disk = RamDisk::new();
    let storage = FileStorage::open(disk.clone(), "objects").unwrap();
    let mut writer = storage.create(ObjectId(1)).unwrap();
    for _ in 0..8 {
        writer.write(&vec![7; 1 << 20]).unwrap();
    }
    assert_eq!(disk.counters().syncs.load(Ordering::Relaxed), 8);
    writer.finish().unwrap();
}

#[test]
fn a_full_disk_is_no_space_and_leaves_nothing() {
    let disk = RamDisk::new();
    let storage = FileStorage::open(disk.clone(), "objects").unwrap();
    disk.counters().room.store(1 << 20, Ordering::Relaxed);
    let mut writer = storage.create(ObjectId(9)).unwrap();
    let full = (0..8).find_map(|_| writer.write(&vec![1; 300 << 10]).err());
    assert_eq!(full, Some(StorageError::NoSpace(ObjectId(9))));
    assert!(matches!(writer.finish(), Err(StorageError::Io { .. })));
    assert!(disk.names().is_empty());
    disk.counters().room.store(0, Ordering::Relaxed);
    put(&storage, 9, b"now it fits").unwrap();
}
