//! Random reads, writes, removals, evictions, restarts, kills at any change of the local disk, flipped bits and errors:
//! what a cache answers is what plain bytes say, and its files stay within their bound.

use bytes::Bytes;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{ObjectId, Ticket};
use thalweg_sim::{Rand64, SimDisk};
use thalweg_storage::{
    CacheOptions, CacheStats, CachedStorage, MemoryStorage, SlowStorage, Storage, StorageError, StoreId,
};

const BLOCK: u64 = 512;

struct Asked {
    object: u64,
    range: Range<u64>,
    ticket: Ticket<Result<Bytes, StorageError>>,
    /// The object was removed before the answer: then it may be missing.
    removed: bool,
}

struct World {
    random: Rand64,
    disk: SimDisk,
    remote: Arc<SlowStorage>,
    options: CacheOptions,
    cache: CachedStorage,
    /// The bytes of every object, removed ones included.
    objects: BTreeMap<u64, Vec<u8>>,
    removed: Vec<u64>,
    asked: Vec<Asked>,
    /// Errors that the remote storage was told to give.
    errors: u64,
    stores: u8,
    totals: CacheStats,
    /// The answers: equal for two runs with one seed.
    trace: Vec<u64>,
}

fn error() -> StorageError {
    StorageError::Io { object: ObjectId(0), operation: "fetching", cause: "simulated".to_owned() }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rand64::new(u128::from(seed));
        let blocks = 17 + random.rand_range(0..60);
        let capacity_bytes = 8192 + blocks * (BLOCK + 32) + random.rand_range(0..BLOCK);
        let mut options =
            CacheOptions { block_bytes: 512, threads: 0, ..CacheOptions::new(StoreId([0; 16]), capacity_bytes) };
        if random.rand_range(0..4) == 0 {
            options.queued_fill_bytes_max = 4096;
            options.queued_reads_max = 1;
        }
        let disk = SimDisk::new(seed);
        let remote = Arc::new(SlowStorage::held(Arc::new(MemoryStorage::new()), seed));
        let cache = CachedStorage::open(remote.clone(), &disk, "cache", options).unwrap();
        Self {
            random,
            disk,
            remote,
            options,
            cache,
            objects: BTreeMap::new(),
            removed: Vec::new(),
            asked: Vec::new(),
            errors: 0,
            stores: 0,
            totals: CacheStats::default(),
            trace: Vec::new(),
        }
    }

    fn upto(&mut self, n: u64) -> u64 {
        self.random.rand_range(0..n)
    }

    fn step(&mut self) {
        match self.upto(100) {
            0..6 => self.put(),
            6..45 => self.ask(),
            45..75 => self.answer(),
            75..80 => self.try_read(),
            80..82 => self.remove(),
            82..87 => self.rot(),
            87..89 => {
                self.remote.fail_next(error());
                self.errors += 1;
            }
            89..92 => self.local_fault(),
            92..95 => {
                let changes = self.upto(40);
                self.disk.stop_after(changes);
            }
            _ => self.restart(),
        }
        self.check_bound();
    }

    fn put(&mut self) {
        let id = self.objects.len() as u64 + 1;
        let len = self.upto(30) * self.upto(BLOCK);
        let bytes: Vec<u8> =
            (0..len).map(|at| (at * 7 + (at >> 9) + id * 31 + u64::from(self.stores) * 97) as u8).collect();
        // Some objects are made by another process, and not through this cache.
        let storage: &dyn Storage = if self.random.rand_range(0..2) == 0 { &self.cache } else { &*self.remote };
        let mut writer = storage.create(ObjectId(id)).unwrap();
        for piece in bytes.chunks(1000) {
            writer.write(piece).unwrap();
        }
        assert_eq!(writer.finish(), Ok(len));
        self.objects.insert(id, bytes);
    }

    /// A range of some object; now and then outside of it, or of none.
    fn choose(&mut self) -> (u64, Range<u64>) {
        let object = 1 + self.upto(self.objects.len() as u64 + 1);
        let len = self.objects.get(&object).map_or(100, |bytes| bytes.len() as u64);
        let start = self.upto(len + 1);
        let end = match self.upto(10) {
            0 => start + self.upto(2000),
            1..5 => len.min(start + self.random.rand_range(0..200)),
            _ => start + self.upto(len - start + 1),
        };
        (object, start..end)
    }

    fn ask(&mut self) {
        let (object, range) = self.choose();
        if self.upto(5) == 0 && self.objects.contains_key(&object) {
            let len = self.cache.len(ObjectId(object));
            assert!(self.fits(object, 0..0, &len.map(|len| Bytes::from(vec![0; len as usize]).slice(0..0)), false));
        }
        let ticket = self.cache.read(ObjectId(object), range.clone());
        self.asked.push(Asked { object, range, ticket, removed: false });
    }

    fn answer(&mut self) {
        for _ in 0..=self.upto(3) {
            self.remote.answer();
        }
        self.collect();
    }

    fn collect(&mut self) {
        for Asked { object, range, ticket, removed } in std::mem::take(&mut self.asked) {
            match ticket.take() {
                Ok(answer) => self.judge(object, range, &answer, removed),
                Err(ticket) => self.asked.push(Asked { object, range, ticket, removed }),
            }
        }
    }

    fn judge(&mut self, object: u64, range: Range<u64>, answer: &Result<Bytes, StorageError>, removed: bool) {
        assert!(self.fits(object, range.clone(), answer, removed), "object {object}, {range:?}: {answer:?}");
        self.trace.extend([object, range.start, range.end, answer.as_ref().map_or(0, |bytes| bytes.len() as u64)]);
    }

    /// Whether an answer is one that the plain bytes allow.
    fn fits(&self, object: u64, range: Range<u64>, answer: &Result<Bytes, StorageError>, removed: bool) -> bool {
        let missing = *answer == Err(StorageError::Missing(ObjectId(object)));
        let Some(bytes) = self.objects.get(&object).filter(|_| !self.removed.contains(&object) || removed) else {
            return missing || self.is_error(answer);
        };
        let len = bytes.len() as u64;
        let right = match answer {
            Ok(read) => range.end <= len && *read == bytes[range.start as usize..range.end as usize],
            Err(StorageError::Range { start, end, len: told, .. }) => {
                range.end > len && (*start..*end, *told) == (range, len)
            }
            Err(_) => self.is_error(answer),
        };
        right || (removed && missing)
    }

    /// Only errors of the remote storage reach a reader.
    fn is_error(&self, answer: &Result<Bytes, StorageError>) -> bool {
        self.errors > 0 && *answer == Err(error())
    }

    fn try_read(&mut self) {
        let (object, range) = self.choose();
        if let Some(answer) = self.cache.try_read(ObjectId(object), range.clone()) {
            self.judge(object, range, &answer, false);
        }
    }

    fn remove(&mut self) {
        let object = 1 + self.upto(self.objects.len() as u64 + 1);
        self.collect();
        self.cache.remove(ObjectId(object)).unwrap();
        if self.objects.contains_key(&object) {
            self.removed.push(object);
            self.asked.iter_mut().filter(|asked| asked.object == object).for_each(|asked| asked.removed = true);
        }
    }

    fn rot(&mut self) {
        let path = if self.upto(3) == 0 { "cache/cache.index" } else { "cache/cache.blocks" };
        self.disk.flip_bit(path, &mut self.random);
    }

    fn local_fault(&mut self) {
        match self.upto(8) {
            0 => self.disk.fail_next_write(),
            1 => {
                let files = self.disk.cached();
                let used: usize = files.values().map(Vec::len).sum();
                self.disk.capacity(used as u64 + 700);
            }
            2 => self.disk.misreads(0.2),
            3 => self.disk.waits(0.5),
            4 => self.disk.no_new_files(Some(28)),
            _ => self.disk.fail_next_read(),
        }
    }

    /// The process ends in some way; reads that waited get their answers from the remote storage, or never.
    fn restart(&mut self) {
        let stats = self.cache.stats();
        self.totals.hits += stats.hits;
        self.totals.damaged += stats.damaged;
        self.totals.evictions += stats.evictions;
        self.totals.turned_off += stats.turned_off;
        match self.upto(4) {
            0 => {}
            1 => self.disk.crash_kill(),
            _ => self.disk.crash_power(),
        }
        if self.disk.is_stopped() {
            self.disk.crash_kill();
        }
        self.disk.heal();
        // The bound may be another one, and the storage too.
        if self.upto(4) == 0 {
            self.options.capacity_bytes = 8192 + (17 + self.upto(60)) * (BLOCK + 32);
        }
        if self.upto(12) == 0 {
            self.change_store();
        }
        // The process may die while it opens the folder.
        for _ in 0..self.upto(3) {
            let changes = self.upto(8);
            self.disk.stop_after(changes);
            self.cache = CachedStorage::open(self.remote.clone(), &self.disk, "cache", self.options).unwrap();
            if self.upto(2) == 0 {
                self.disk.crash_kill()
            } else {
                self.disk.crash_power()
            }
            self.disk.heal();
        }
        self.cache = CachedStorage::open(self.remote.clone(), &self.disk, "cache", self.options).unwrap();
        assert_eq!(self.cache.stats().turned_off, 0, "the disk is healthy");
        self.totals.blocks += self.cache.stats().blocks;
        // After a restart the root says which objects there are; the cache may still have blocks of others.
        for object in std::mem::take(&mut self.removed) {
            self.cache.remove(ObjectId(object)).unwrap();
            self.removed.push(object);
        }
    }

    /// Another storage, with other objects under the same ids.
    fn change_store(&mut self) {
        self.remote.answer_all();
        self.collect();
        assert!(self.asked.is_empty(), "a read was never answered");
        self.stores += 1;
        self.options.store = StoreId([self.stores; 16]);
        self.remote = Arc::new(SlowStorage::held(Arc::new(MemoryStorage::new()), u64::from(self.stores)));
        self.objects.clear();
        self.removed.clear();
        self.errors = 0;
    }

    fn check_bound(&self) {
        let used: usize = self.disk.cached().values().map(Vec::len).sum();
        assert!(used as u64 <= self.options.capacity_bytes, "{used} bytes on the disk");
        assert!(self.disk.is_stopped() || used as u64 <= self.cache.stats().disk_bytes.max(4096));
    }

    /// Everything can be read, whatever happened before.
    fn finish(&mut self) {
        self.remote.answer_all();
        self.collect();
        assert!(self.asked.is_empty(), "a read was never answered");
        for (id, bytes) in self.objects.clone() {
            if !self.removed.contains(&id) {
                let range = 0..bytes.len() as u64;
                let ticket = self.cache.read(ObjectId(id), range.clone());
                self.remote.answer_all();
                let answer = ticket.take().ok().expect("every read was answered");
                self.judge(id, range, &answer, false);
            }
        }
        assert_eq!(self.cache.stats().in_flight, 0);
        self.check_bound();
    }
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..200 {
        world.step();
    }
    world.finish();
    world
}

#[test]
fn simulation_of_a_cache_answers_what_plain_bytes_say() {
    let seen = Cell::new([0; 5]);
    thalweg_sim::histories(150, "thalweg-storage", |seed| {
        let totals = run(seed).totals;
        let [hits, damaged, evictions, off, found] = seen.get();
        let more = [hits + totals.hits, damaged + totals.damaged, evictions + totals.evictions];
        seen.set([more[0], more[1], more[2], off + totals.turned_off, found + totals.blocks]);
    });
    if std::env::var("SEED").is_err() {
        assert!(seen.get().iter().all(|n| *n > 100), "the histories have met too little: {:?}", seen.get());
    }
}

#[test]
fn simulation_of_a_cache_is_the_same_for_one_seed() {
    thalweg_sim::histories(10, "thalweg-storage", |seed| {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.trace, second.trace);
        assert_eq!(first.disk.cached(), second.disk.cached());
    });
}
