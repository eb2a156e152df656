//! A storage in two tiers keeps every finished object: through copies, evictions, crashes at any point, failures of
//! either tier, and removals; and it knows all of them without asking the remote one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_sim::{Rand64, SimDisk};
use thalweg_storage::{
    Folders, MemoryStorage, ObjectWriter, Remote, SlowStorage, Storage, StorageError, TieredStorage,
};

const FOLDERS: Folders<'_> = Folders { objects: "objects", marks: "copies" };

fn content(id: u64) -> Vec<u8> {
    (0..(id * 7919) % 20_000).map(|n| (n ^ id) as u8).collect()
}

fn remote(storage: &MemoryStorage) -> Remote {
    let copies: Arc<dyn Storage> = Arc::new(storage.clone());
    Remote { reads: Arc::clone(&copies), copies }
}

fn open(disk: &SimDisk, storage: &MemoryStorage) -> TieredStorage {
    TieredStorage::open(Arc::new(disk.clone()), FOLDERS, remote(storage)).unwrap()
}

fn put(storage: &dyn Storage, id: u64) -> Result<u64, StorageError> {
    let mut writer = storage.create(ObjectId(id))?;
    writer.write(&content(id))?;
    writer.finish()
}

fn read(storage: &dyn Storage, id: u64) -> Result<Vec<u8>, StorageError> {
    let len = storage.len(ObjectId(id))?;
    storage.read(ObjectId(id), 0..len).wait().map(Vec::from)
}

struct History {
    disk: SimDisk,
    remote: MemoryStorage,
    random: Rand64,
    /// Finished and not removed: these must be there. `false`: a removal or an attempt to write was cut off.
    objects: BTreeMap<u64, bool>,
    next: u64,
    evicted: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let random = Rand64::new(u128::from(seed));
        let (disk, remote) = (SimDisk::new(seed), MemoryStorage::new());
        Self { disk, remote, random, objects: BTreeMap::new(), next: 1, evicted: 0 }
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.random.rand_range(0..n)
    }

    fn any(&mut self) -> Option<u64> {
        let all: Vec<u64> = self.objects.keys().copied().collect();
        (!all.is_empty()).then(|| all[self.pick(all.len() as u64) as usize])
    }

    fn check(&self, storage: &TieredStorage) {
        let listed: BTreeSet<u64> = storage.list().unwrap().iter().map(|id| id.0).collect();
        for (id, is_certain) in &self.objects {
            assert!(!is_certain || listed.contains(id), "object {id} is lost");
        }
        for id in listed {
            assert!(self.objects.contains_key(&id), "object {id} came out of nowhere");
            // A mark may have come back after the removal of the copy; only objects that must be there are read.
            if self.objects[&id] {
                assert_eq!(read(storage, id), Ok(content(id)));
                assert_eq!(storage.len(ObjectId(id)), Ok(content(id).len() as u64));
            }
        }
    }

    fn act(&mut self, storage: &TieredStorage) {
        match self.pick(10) {
            0 => self.disk.fail_next_sync(),
            1 => self.disk.fail_next_dir_sync(),
            2 => self.disk.fail_next_write(),
            _ => {}
        }
        match (self.pick(8), self.any()) {
            (0..=2, _) | (_, None) => {
                self.objects.insert(self.next, put(storage, self.next).is_ok());
                self.next += 1;
            }
            (3, Some(id)) => drop(storage.copy(ObjectId(id))),
            (4, _) => {
                let evictable = storage.evictable().unwrap();
                if !evictable.is_empty() {
                    let (object, _) = evictable[self.pick(evictable.len() as u64) as usize];
                    self.evicted += storage.evict(object).unwrap_or_default();
                }
            }
            (5, _) => drop(storage.sync_marks()),
            (6, Some(id)) => {
                self.objects.insert(id, false);
                if storage.remove(ObjectId(id)).is_ok() && self.pick(2) == 0 {
                    storage.remove_copies(&storage.unneeded()).unwrap();
                }
            }
            (_, Some(id)) => {
                if self.objects[&id] {
                    assert_eq!(read(storage, id), Ok(content(id)));
                }
            }
        }
        self.disk.heal();
    }
}

fn run(seed: u64) {
    let mut history = History::new(seed);
    for _ in 0..6 {
        let storage = open(&history.disk, &history.remote);
        history.check(&storage);
        for _ in 0..history.pick(20) {
            history.act(&storage);
        }
        history.check(&storage);
        match history.pick(3) {
            0 => history.disk.crash_kill(),
            _ => history.disk.crash_power(),
        }
    }
}

#[test]
fn simulation_of_tiers_loses_no_finished_object() {
    thalweg_sim::histories(500, "thalweg-storage", run);
}

#[test]
fn histories_evict() {
    let mut history = History::new(7);
    let storage = open(&history.disk, &history.remote);
    (0..200).for_each(|_| history.act(&storage));
    assert!(history.evicted > 0, "no history of this kind reads a cold object");
}

#[test]
fn an_evicted_object_is_read_from_its_copy_and_counted() {
    let (disk, far) = (SimDisk::new(1), MemoryStorage::new());
    let storage = open(&disk, &far);
    put(&storage, 5).unwrap();
    let len = content(5).len() as u64;
    assert_eq!(storage.evict(ObjectId(5)), Ok(0), "it has no copy");
    assert_eq!(storage.copy(ObjectId(5)), Ok(len));
    assert_eq!(storage.evict(ObjectId(5)), Ok(0), "its mark is not durable");
    storage.sync_marks().unwrap();
    assert!(!storage.is_cold(ObjectId(5)));
    assert_eq!(storage.evict(ObjectId(5)), Ok(len));
    assert!(storage.is_cold(ObjectId(5)));
    assert_eq!(disk.files(), ["copies/0000000000000005.0000000000004c8b"]);
    assert_eq!(read(&storage, 5), Ok(content(5)));
    let stats = storage.stats().unwrap();
    assert_eq!((stats.cold_objects, stats.cold_bytes, stats.local_objects, stats.cold_reads), (1, len, 0, 1));
    assert_eq!(TieredStorage::cold_in(Arc::new(disk), FOLDERS), Ok(vec![(ObjectId(5), len)]));
}

#[test]
fn lost_marks_are_found_again_where_the_copies_are() {
    let (disk, far) = (SimDisk::new(1), MemoryStorage::new());
    let storage = open(&disk, &far);
    put(&storage, 5).unwrap();
    storage.copy(ObjectId(5)).unwrap();
    storage.sync_marks().unwrap();
    storage.evict(ObjectId(5)).unwrap();
    assert!(disk.lose("copies/0000000000000005.0000000000004c8b"));
    let storage = open(&disk, &far);
    assert_eq!(storage.list(), Ok(vec![]));
    assert_eq!((storage.find_copies(), storage.find_copies()), (Ok(1), Ok(0)));
    assert_eq!(read(&open(&disk, &far), 5), Ok(content(5)));
}

#[test]
fn a_copy_stays_until_it_is_said_that_nothing_names_it() {
    let (disk, far) = (SimDisk::new(1), MemoryStorage::new());
    let storage = open(&disk, &far);
    put(&storage, 5).unwrap();
    storage.copy(ObjectId(5)).unwrap();
    storage.remove(ObjectId(5)).unwrap();
    assert_eq!(storage.list(), Ok(vec![]));
    assert_eq!((far.list(), storage.unneeded()), (Ok(vec![ObjectId(5)]), vec![ObjectId(5)]));
    storage.remove_copies(&[ObjectId(5)]).unwrap();
    assert_eq!((far.list(), storage.unneeded()), (Ok(vec![]), vec![]));
}

#[test]
fn an_object_that_is_removed_while_it_is_copied_leaves_no_mark() {
    let (disk, far) = (SimDisk::new(1), MemoryStorage::new());
    let storage = open(&disk, &far);
    put(&storage, 5).unwrap();
    /// Removes the object when its copy is begun.
    struct Removing(MemoryStorage, std::sync::OnceLock<TieredStorage>);
    impl Storage for Removing {
        fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
            self.1.get().unwrap().remove(object)?;
            self.0.create(object)
        }
        fn try_read(&self, _: ObjectId, _: std::ops::Range<u64>) -> Option<Result<bytes::Bytes, StorageError>> {
            None
        }
        fn read(
            &self,
            object: ObjectId,
            range: std::ops::Range<u64>,
        ) -> thalweg_base::Ticket<Result<bytes::Bytes, StorageError>> {
            self.0.read(object, range)
        }
        fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
            self.0.len(object)
        }
        fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
            self.0.remove(object)
        }
        fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
            self.0.list()
        }
    }
    drop(storage);
    let removing = Arc::new(Removing(far.clone(), std::sync::OnceLock::new()));
    let remote = Remote { copies: removing.clone(), reads: removing.clone() };
    let storage = TieredStorage::open(Arc::new(disk.clone()), FOLDERS, remote).unwrap();
    assert!(removing.1.set(storage.clone()).is_ok());
    assert_eq!(storage.copy(ObjectId(5)), Err(StorageError::Missing(ObjectId(5))));
    assert_eq!((storage.list(), disk.files(), far.list()), (Ok(vec![]), vec![], Ok(vec![])));
}

#[test]
fn a_remote_storage_that_is_away_holds_up_neither_writes_nor_reads_of_local_objects() {
    let disk = SimDisk::new(1);
    let held: Arc<dyn Storage> = Arc::new(SlowStorage::held(Arc::new(MemoryStorage::new()), 1));
    let remote = Remote { copies: Arc::clone(&held), reads: held };
    let storage = TieredStorage::open(Arc::new(disk), FOLDERS, remote).unwrap();
    put(&storage, 5).unwrap();
    put(&storage, 6).unwrap();
    storage.copy(ObjectId(5)).unwrap();
    storage.sync_marks().unwrap();
    storage.evict(ObjectId(5)).unwrap();
    assert_eq!(read(&storage, 6), Ok(content(6)));
    assert!(storage.read(ObjectId(5), 0..1).take().is_err(), "a cold read waits, and nobody waits for it");
    put(&storage, 7).unwrap();
    storage.remove(ObjectId(5)).unwrap();
    assert_eq!(storage.list(), Ok(vec![ObjectId(6), ObjectId(7)]));
}

#[test]
fn what_an_opening_asks_for_needs_no_remote_storage() {
    let (disk, remote) = (SimDisk::new(1), MemoryStorage::new());
    let storage = open(&disk, &remote);
    put(&storage, 3).unwrap();
    storage.copy(ObjectId(3)).unwrap();
    storage.sync_marks().unwrap();
    storage.evict(ObjectId(3)).unwrap();
    drop(storage);
    // Whoever asks it for the object is told that it is missing.
    remote.remove(ObjectId(3)).unwrap();
    let storage = open(&disk, &remote);
    let len = content(3).len() as u64;
    assert_eq!(storage.list(), Ok(vec![ObjectId(3)]));
    assert_eq!((storage.len(ObjectId(3)), storage.len_device(ObjectId(3))), (Ok(len), Ok(len)));
    assert!(storage.is_cold(ObjectId(3)));
    assert_eq!(read(&storage, 3), Err(StorageError::Missing(ObjectId(3))));
}

#[test]
fn copies_that_the_remote_storage_has_lost_are_made_again_or_named() {
    let (disk, remote) = (SimDisk::new(1), MemoryStorage::new());
    let storage = open(&disk, &remote);
    for id in 3..7 {
        put(&storage, id).unwrap();
        storage.copy(ObjectId(id)).unwrap();
    }
    storage.sync_marks().unwrap();
    storage.evict(ObjectId(5)).unwrap();
    storage.evict(ObjectId(6)).unwrap();
    remote.remove(ObjectId(3)).unwrap();
    remote.remove(ObjectId(5)).unwrap();
    let found: Vec<_> = remote.list().unwrap().into_iter().map(|id| (id, remote.len(id).unwrap())).collect();
    assert_eq!(storage.compare_copies(&found), Ok(vec![ObjectId(5)]), "what is cold and not there is lost");
    assert!(!storage.is_copied(ObjectId(3)) && storage.is_copied(ObjectId(4)));
    disk.crash_power();
    let storage = open(&disk, &remote);
    assert!(!storage.is_copied(ObjectId(3)), "the mark is gone for good");
    storage.copy(ObjectId(3)).unwrap();
    assert_eq!(read(&remote, 3), Ok(content(3)));
    // A cold object comes home, and keeps its copy.
    storage.evict(ObjectId(6)).unwrap();
    assert!(storage.is_cold(ObjectId(6)));
    storage.bring_home(ObjectId(6)).unwrap();
    assert!(!storage.is_cold(ObjectId(6)) && storage.is_copied(ObjectId(6)));
}

#[test]
fn an_object_of_other_bytes_is_no_copy() {
    let (disk, remote) = (SimDisk::new(1), MemoryStorage::new());
    let storage = open(&disk, &remote);
    put(&storage, 3).unwrap();
    let mut other = remote.create(ObjectId(3)).unwrap();
    other.write(&vec![7; content(3).len()]).unwrap();
    other.finish().unwrap();
    assert_eq!(storage.copy(ObjectId(3)), Err(StorageError::Exists(ObjectId(3))));
    assert!(!storage.is_copied(ObjectId(3)));
}
