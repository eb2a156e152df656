//! After any crash a finished object is whole, and an unfinished one is whole or not there.

use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_sim::{Rand64, SimDisk};
use thalweg_storage::{FileStorage, Storage, StorageError};

fn content(id: u64) -> Vec<u8> {
    (0..(id * 7919) % 300_000).map(|n| (n ^ id) as u8).collect()
}

fn put(storage: &FileStorage, id: u64) -> Result<u64, StorageError> {
    let mut writer = storage.create(ObjectId(id))?;
    for piece in content(id).chunks(100_000) {
        writer.write(piece)?;
    }
    writer.finish()
}

fn run(seed: u64) {
    let disk = SimDisk::new(seed);
    let mut random = Rand64::new(u128::from(seed));
    // Objects, and whether they are certain to be there.
    let mut objects: BTreeMap<u64, bool> = BTreeMap::new();
    let mut next = 1;
    for _ in 0..6 {
        let storage = FileStorage::open(Arc::new(disk.clone()), "objects").unwrap();
        let listed: Vec<u64> = storage.list().unwrap().iter().map(|id| id.0).collect();
        for (id, certain) in &objects {
            assert!(!certain || listed.contains(id), "seed {seed}: object {id} is lost");
        }
        for id in &listed {
            let len = storage.len(ObjectId(*id)).unwrap();
            assert!(objects.contains_key(id), "seed {seed}: object {id} came out of nowhere");
            assert_eq!(storage.read(ObjectId(*id), 0..len).wait().unwrap(), content(*id), "seed {seed}");
        }
        assert!(disk.files().iter().all(|path| path.ends_with(".obj")), "seed {seed}: leftovers");
        for _ in 0..random.rand_range(0..4) {
            match random.rand_range(0..6) {
                0 => disk.fail_next_sync(),
                1 => disk.fail_next_dir_sync(),
                2 => disk.fail_next_write(),
                _ => {}
            }
            objects.insert(next, put(&storage, next).is_ok());
            disk.heal();
            next += 1;
        }
        if let Some(id) = listed.first().filter(|_| random.rand_range(0..2) == 0) {
            storage.remove(ObjectId(*id)).unwrap();
            objects.insert(*id, false);
        }
        // A writer that is cut off.
        let mut writer = storage.create(ObjectId(next)).unwrap();
        writer.write(&content(next)).unwrap();
        next += 1;
        match random.rand_range(0..3) {
            0 => disk.crash_kill(),
            _ => disk.crash_power(),
        }
        drop(writer);
    }
}

#[test]
fn simulation_of_storage_loses_no_finished_object_and_leaves_no_half_one() {
    thalweg_sim::histories(100, "thalweg-storage", run);
}
