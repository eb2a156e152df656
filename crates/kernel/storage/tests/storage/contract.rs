//! The promises of every storage, tested for each backend.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_base::ObjectId;
use thalweg_disk::{Disk, RealDisk};
use thalweg_sim::SimDisk;
use thalweg_storage::{
    CacheOptions, CachedStorage, FileStorage, MemoryStorage, SlowStorage, Storage, StorageError, StoreId,
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

/// Whether a read that does not wait gives `error`. A storage that is far away may have to wait even for an error.
fn tells(name: &str, read: Option<Result<Bytes, StorageError>>, error: &StorageError) -> bool {
    read.map_or(name == FAR_AWAY, |read| read.as_ref() == Err(error))
}

fn put(storage: &dyn Storage, id: u64, pieces: &[&[u8]]) -> Result<u64, StorageError> {
    let mut writer = storage.create(ObjectId(id))?;
    for piece in pieces {
        writer.write(piece)?;
    }
    writer.finish()
}

#[test]
fn what_was_written_is_what_is_read() {
    let large: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
    for (name, storage, _folder) in backends() {
        let id = ObjectId(7);
        assert_eq!(put(&*storage, 7, &[b"head", &large, b"tail"]), Ok(20_000_008), "{name}");
        assert_eq!(storage.len(id), Ok(20_000_008));
        assert_eq!(storage.read(id, 0..6).wait().unwrap(), &b"head\0\x01"[..]);
        assert_eq!(storage.read(id, 4..20_000_004).wait().unwrap(), large);
        assert_eq!(storage.read(id, 20_000_004..20_000_008).wait().unwrap(), &b"tail"[..]);
        // It may always have to wait; if it answers, then rightly.
        assert!(storage.try_read(id, 1..3).is_none_or(|read| read.unwrap() == b"ea"[..]), "{name}");
        assert!(storage.read(id, 5..5).wait().unwrap().is_empty());
    }
}

#[test]
fn what_the_device_has_is_what_was_written() {
    for (name, storage, _folder) in backends() {
        put(&*storage, 7, &[b"head", b"tail"]).unwrap();
        assert_eq!(storage.len_device(ObjectId(7)), Ok(8), "{name}");
        assert_eq!(storage.read_device(ObjectId(7), 2..6).unwrap(), &b"adta"[..], "{name}");
    }
}

#[test]
fn many_small_writes_are_one_object() {
    for (name, storage, _folder) in backends() {
        let mut writer = storage.create(ObjectId(1)).unwrap();
        for n in 0..100_000u32 {
            writer.write(&n.to_le_bytes()).unwrap();
        }
        assert_eq!(writer.written(), 400_000, "{name}");
        assert_eq!(writer.finish(), Ok(400_000));
        let bytes = storage.read(ObjectId(1), 0..400_000).wait().unwrap();
        assert!(bytes.chunks(4).enumerate().all(|(n, four)| four == (n as u32).to_le_bytes()));
    }
}

#[test]
fn an_object_does_not_exist_before_it_is_finished() {
    for (name, storage, _folder) in backends() {
        let mut writer = storage.create(ObjectId(1)).unwrap();
        writer.write(b"abc").unwrap();
        let missing = StorageError::Missing(ObjectId(1));
        assert_eq!(storage.len(ObjectId(1)), Err(missing.clone()), "{name}");
        assert!(tells(name, storage.try_read(ObjectId(1), 0..1), &missing), "{name}");
        assert_eq!(storage.read(ObjectId(1), 0..1).wait(), Err(missing));
        assert_eq!(storage.list(), Ok(vec![]));
        writer.finish().unwrap();
        assert_eq!(storage.list(), Ok(vec![ObjectId(1)]));
    }
}

#[test]
fn an_unfinished_object_leaves_no_trace() {
    for (name, storage, _folder) in backends() {
        let mut writer = storage.create(ObjectId(1)).unwrap();
        writer.write(b"abc").unwrap();
        drop(writer);
        assert_eq!(storage.list(), Ok(vec![]), "{name}");
        assert_eq!(put(&*storage, 1, &[b"again"]), Ok(5));
    }
}

#[test]
fn an_object_is_written_once() {
    for (name, storage, _folder) in backends() {
        let exists = StorageError::Exists(ObjectId(1));
        let writer = storage.create(ObjectId(1)).unwrap();
        assert_eq!(storage.create(ObjectId(1)).err(), Some(exists.clone()), "{name}");
        writer.finish().unwrap();
        assert_eq!(storage.create(ObjectId(1)).err(), Some(exists));
        assert_eq!(storage.len(ObjectId(1)), Ok(0));
    }
}

#[test]
fn a_range_outside_is_refused() {
    for (name, storage, _folder) in backends() {
        put(&*storage, 1, &[b"abc"]).unwrap();
        #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is one of the questions")]
        for range in [2..4, 4..5, 3..2, u64::MAX..u64::MAX] {
            let refused = StorageError::Range { object: ObjectId(1), start: range.start, end: range.end, len: 3 };
            assert_eq!(storage.read(ObjectId(1), range.clone()).wait(), Err(refused), "{name}");
        }
    }
}

#[test]
fn a_removed_object_is_missing_and_removing_it_again_is_no_error() {
    for (name, storage, _folder) in backends() {
        put(&*storage, 1, &[b"abc"]).unwrap();
        put(&*storage, 2, &[b"def"]).unwrap();
        assert_eq!(storage.len(ObjectId(1)), Ok(3));
        storage.remove(ObjectId(1)).unwrap();
        storage.remove(ObjectId(1)).unwrap();
        let missing = StorageError::Missing(ObjectId(1));
        assert!(tells(name, storage.try_read(ObjectId(1), 0..1), &missing), "{name}");
        assert_eq!(storage.read(ObjectId(1), 0..1).wait(), Err(missing.clone()), "{name}");
        assert_eq!(storage.len(ObjectId(1)), Err(missing), "{name}");
        assert_eq!(storage.list(), Ok(vec![ObjectId(2)]));
    }
}

#[test]
fn objects_are_listed_in_order_of_id() {
    for (name, storage, _folder) in backends() {
        for id in [300, 2, u64::MAX, 17] {
            put(&*storage, id, &[b"x"]).unwrap();
        }
        assert_eq!(storage.list(), Ok([2, 17, 300, u64::MAX].map(ObjectId).to_vec()), "{name}");
    }
}
