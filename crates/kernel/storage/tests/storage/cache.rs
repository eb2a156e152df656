//! The promises of a cache in front of a remote storage, beyond those of every storage.

use crate::support::RamDisk;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thalweg_base::{ObjectId, Ticket};
use thalweg_disk::{Disk, RealDisk};
use thalweg_sim::{Rand64, SimDisk};
use thalweg_storage::{
    CacheError, CacheOptions, CachedStorage, FileStorage, MemoryStorage, SlowStorage, Storage, StorageError, StoreId,
};

type Read = Ticket<Result<Bytes, StorageError>>;

const BLOCK: u64 = 4096;
const STORE: StoreId = StoreId([9; 16]);

fn options(blocks: u64) -> CacheOptions {
    // Two pages beside the blocks and their entries.
    let capacity_bytes = 8192 + (blocks + 1) * (BLOCK + 32);
    CacheOptions { block_bytes: BLOCK as u32, threads: 0, ..CacheOptions::new(STORE, capacity_bytes) }
}

fn content(id: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ (id * 77)) as u8).collect()
}

fn put(storage: &dyn Storage, id: u64, len: u64) -> Vec<u8> {
    let bytes = content(id, len);
    let mut writer = storage.create(ObjectId(id)).unwrap();
    writer.write(&bytes).unwrap();
    writer.finish().unwrap();
    bytes
}

fn slice(bytes: &[u8], range: Range<u64>) -> &[u8] {
    &bytes[range.start as usize..range.end as usize]
}

/// A cache on `disk` before a storage that answers when told, with object 1 of `len` bytes.
struct Far {
    slow: Arc<SlowStorage>,
    cache: CachedStorage,
    bytes: Vec<u8>,
}

fn far(disk: &dyn Disk, options: CacheOptions, len: u64) -> Far {
    let memory = MemoryStorage::new();
    let bytes = put(&memory, 1, len);
    let slow = Arc::new(SlowStorage::held(Arc::new(memory), 1));
    Far { cache: CachedStorage::open(slow.clone(), disk, "cache", options).unwrap(), slow, bytes }
}

impl Far {
    fn reopen(&mut self, disk: &dyn Disk, options: CacheOptions) {
        self.cache = CachedStorage::open(self.slow.clone(), disk, "cache", options).unwrap();
    }

    fn start(&self, range: Range<u64>) -> Read {
        self.cache.read(ObjectId(1), range)
    }

    /// Reads, answers the requests to the remote storage, and compares.
    fn read(&self, range: Range<u64>) {
        let ticket = self.start(range.clone());
        self.slow.answer_all();
        assert_eq!(ticket.wait().unwrap(), slice(&self.bytes, range));
    }

    fn block(&self, number: u64) {
        self.read(number * BLOCK..(number + 1) * BLOCK);
    }

    fn asked(&self) -> usize {
        self.slow.asked().len()
    }
}

#[test]
fn a_thousand_cold_reads_are_in_flight_at_once() {
    let far = far(&SimDisk::new(1), options(2000), 1000 * 2 * BLOCK);
    far.cache.len(ObjectId(1)).unwrap();
    let range = |n: u64| n * 2 * BLOCK + 7..n * 2 * BLOCK + 50;
    let tickets: Vec<_> = (0..1000).map(|n| far.start(range(n))).collect();
    // All have returned, and nothing was answered yet.
    assert_eq!((far.slow.in_flight(), far.asked()), (1000, 1000));
    far.slow.answer_all();
    for (n, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap(), slice(&far.bytes, range(n as u64)));
    }
}

#[test]
fn a_thousand_cold_reads_take_about_as_long_as_one() {
    let memory = MemoryStorage::new();
    let bytes = put(&memory, 1, 1000 * 2 * BLOCK);
    let delay = Duration::from_millis(50);
    let slow = Arc::new(SlowStorage::after(Arc::new(memory), delay, delay / 10, 1));
    let options = CacheOptions { threads: 4, ..options(2000) };
    let cache = CachedStorage::open(slow.clone(), &SimDisk::new(1), "cache", options).unwrap();
    let began = Instant::now();
    let range = |n: u64| n * 2 * BLOCK..n * 2 * BLOCK + 100;
    let tickets: Vec<_> = (0..1000).map(|n| cache.read(ObjectId(1), range(n))).collect();
    for (n, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap(), slice(&bytes, range(n as u64)));
    }
    let took = began.elapsed();
    // Four at a time would take 12.5 s. A busy machine may be slow, but not that slow.
    assert!(took >= delay && took < Duration::from_secs(6), "{took:?}");
    assert!(slow.in_flight_max() > 4, "{} in flight", slow.in_flight_max());
    cache.wait_idle();
    assert_eq!((cache.stats().filled, cache.stats().in_flight), (1000, 0));
}

#[test]
fn a_cold_block_that_many_read_is_asked_for_once() {
    let far = far(&SimDisk::new(1), options(50), 10 * BLOCK);
    let tickets: Vec<_> = (0..100).map(|n| far.start(n..n + 10)).collect();
    assert_eq!(far.asked(), 1);
    far.slow.answer_all();
    for (n, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(ticket.wait().unwrap(), slice(&far.bytes, n as u64..n as u64 + 10));
    }
    let stats = far.cache.stats();
    assert_eq!((stats.misses, stats.coalesced_waits, stats.hits), (1, 99, 0));
    far.block(0);
    assert_eq!((far.asked(), far.cache.stats().hits), (1, 1));
}

#[test]
fn many_threads_that_read_a_cold_block_ask_for_it_once() {
    let memory = MemoryStorage::new();
    let bytes = put(&memory, 1, 64 * BLOCK);
    let slow = Arc::new(SlowStorage::after(Arc::new(memory), Duration::from_millis(5), Duration::ZERO, 1));
    let options = CacheOptions { threads: 2, ..options(200) };
    let cache = CachedStorage::open(slow.clone(), &SimDisk::new(1), "cache", options).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for block in 0..64 {
                    let range = block * BLOCK + 1..(block + 1) * BLOCK;
                    assert_eq!(cache.read(ObjectId(1), range.clone()).wait().unwrap(), slice(&bytes, range));
                }
            });
        }
    });
    // Also not in the moments in which a block has arrived, and is not on the local disk yet.
    assert_eq!(slow.asked().len(), 64);
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.hits + stats.coalesced_waits), (64, 7 * 64));
}

#[test]
fn readers_fills_and_evictions_on_many_threads_never_mix_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(folder.path()).unwrap();
    let memory = Arc::new(MemoryStorage::new());
    let objects: Vec<_> = (0..4).map(|id| put(&*memory, id, 50 * BLOCK + 7 * id)).collect();
    let cache = CachedStorage::open(memory, &disk, "cache", CacheOptions { threads: 3, ..options(40) }).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (cache, objects) = (&cache, &objects);
            scope.spawn(move || {
                let mut random = Rand64::new(seed);
                for n in 0..3000 {
                    // Else blocks could be read from memory before any of them is written.
                    if n % 50 == 0 {
                        cache.wait_idle();
                    }
                    let id = random.rand_range(0..4);
                    let bytes = &objects[id as usize];
                    let start = random.rand_range(0..bytes.len() as u64);
                    let range = start..(start + random.rand_range(1..3 * BLOCK)).min(bytes.len() as u64);
                    let read = cache.read(ObjectId(id), range.clone()).wait().unwrap();
                    assert!(read == slice(bytes, range.clone()), "object {id}, {range:?}");
                }
            });
        }
    });
    cache.wait_idle();
    let stats = cache.stats();
    assert!(stats.hits > 1000 && stats.evictions > 1000, "{stats:?}");
    // A block that was evicted while it was read is no damage.
    assert_eq!((stats.damaged, stats.in_flight, stats.turned_off), (0, 0, 0));
}

#[test]
fn an_error_reaches_all_reads_that_wait_and_is_not_cached() {
    let far = far(&SimDisk::new(1), options(50), 10 * BLOCK);
    let error = StorageError::Io { object: ObjectId(1), operation: "fetching", cause: "503".to_owned() };
    far.slow.fail_next(error.clone());
    let tickets: Vec<_> = (0..5).map(|n| far.start(n..2 * BLOCK + n)).collect();
    assert_eq!(far.asked(), 2, "the third block is for four of them");
    far.slow.fail_next(error.clone());
    far.slow.answer_all();
    for ticket in tickets {
        assert_eq!(ticket.wait(), Err(error.clone()));
    }
    assert_eq!((far.cache.stats().remote_errors, far.cache.stats().in_flight), (2, 0));
    far.read(0..3 * BLOCK);
}

#[test]
fn neighbouring_blocks_of_a_read_are_one_request() {
    let far = far(&SimDisk::new(1), options(5000), 20 << 20);
    far.cache.len(ObjectId(1)).unwrap();
    far.read(10 * BLOCK + 5..18 * BLOCK + 1);
    assert_eq!(far.slow.asked(), [(ObjectId(1), 10 * BLOCK..19 * BLOCK)]);
    // Cached blocks are not asked for again, and split the request.
    far.read(5 * BLOCK..30 * BLOCK);
    assert_eq!(far.slow.asked()[1..], [(ObjectId(1), 5 * BLOCK..10 * BLOCK), (ObjectId(1), 19 * BLOCK..30 * BLOCK)]);
    // A request asks for 4 MiB at most.
    far.read(10 << 20..20 << 20);
    let lens: Vec<_> = far.slow.asked()[3..].iter().map(|(_, range)| (range.end - range.start) >> 20).collect();
    assert_eq!(lens, [4, 4, 2]);
}

#[test]
fn a_length_that_is_not_known_costs_one_more_request_at_the_end_of_an_object_only() {
    let len = 10 * BLOCK + 100;
    let far = far(&SimDisk::new(1), options(50), len);
    far.read(BLOCK..BLOCK + 1);
    assert_eq!(far.asked(), 1);
    far.read(10 * BLOCK..len);
    assert_eq!(far.slow.asked()[1..], [(ObjectId(1), 10 * BLOCK..11 * BLOCK), (ObjectId(1), 10 * BLOCK..len)]);
    assert_eq!(far.cache.len(ObjectId(1)), Ok(len));
}

#[test]
fn a_range_outside_an_object_of_unknown_length_is_refused_with_its_length() {
    let len = 10 * BLOCK + 100;
    #[expect(clippy::reversed_empty_ranges, reason = "a reversed range is one of the questions")]
    for range in [10 * BLOCK..len + 1, 9 * BLOCK..12 * BLOCK, 40 * BLOCK..41 * BLOCK, 3..2, 0..u64::MAX] {
        let far = far(&SimDisk::new(1), options(50), len);
        let ticket = far.start(range.clone());
        far.slow.answer_all();
        let refused = StorageError::Range { object: ObjectId(1), start: range.start, end: range.end, len };
        assert_eq!(ticket.wait(), Err(refused));
        far.read(9 * BLOCK..len);
    }
}

#[test]
fn what_was_read_is_found_again_after_a_restart_without_reading_it_at_the_start() {
    let disk = RamDisk::new();
    let mut far = far(&*disk, options(500), 300 * BLOCK + 9);
    let syncs = disk.counters().syncs.load(Ordering::Relaxed);
    far.cache.len(ObjectId(1)).unwrap();
    far.read(0..300 * BLOCK + 9);
    let asked = far.asked();
    let before = disk.counters().read_bytes.load(Ordering::Relaxed);
    far.reopen(&*disk, options(500));
    let read = disk.counters().read_bytes.load(Ordering::Relaxed) - before;
    assert!(read < 301 * 32 + 4096, "{read} bytes were read at the start");
    assert_eq!(far.cache.stats().blocks, 301);
    far.read(0..300 * BLOCK + 9);
    let stats = far.cache.stats();
    assert_eq!((far.asked(), stats.hits, stats.misses), (asked, 301, 0));
    // The length is known too, and not asked for.
    far.slow.remove(ObjectId(1)).unwrap();
    assert_eq!(far.cache.len(ObjectId(1)), Ok(300 * BLOCK + 9));
    assert_eq!(disk.counters().syncs.load(Ordering::Relaxed), syncs, "no block has to be synced for that");
}

#[test]
fn a_damaged_local_block_is_a_miss_and_never_an_error() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 4] = [
        ("altered", |bytes| bytes[5 * BLOCK as usize + 77] ^= 4),
        ("short", |bytes| bytes.truncate(9 * BLOCK as usize + 10)),
        ("stale", |bytes| bytes.copy_within(0..BLOCK as usize, 5 * BLOCK as usize)),
        ("gone", Vec::clear),
    ];
    for (name, change) in changes {
        let disk = RamDisk::new();
        let far = far(&*disk, options(50), 10 * BLOCK);
        far.cache.len(ObjectId(1)).unwrap();
        far.read(0..10 * BLOCK);
        disk.tamper("cache/cache.blocks", change);
        for block in 0..10 {
            far.block(block);
        }
        let damaged = if name == "gone" { 10 } else { 1 };
        let stats = far.cache.stats();
        assert_eq!((stats.damaged, stats.hits, stats.misses), (damaged, 10 - damaged, 10 + damaged), "{name}");
        // It is whole again.
        far.read(0..10 * BLOCK);
        assert_eq!(far.cache.stats().damaged, damaged, "{name}");
    }
}

#[test]
fn an_unreadable_local_block_is_fetched_again() {
    let disk = SimDisk::new(1);
    let far = far(&disk, options(50), 10 * BLOCK);
    far.block(3);
    disk.fail_next_read();
    far.block(3);
    far.block(3);
    let stats = far.cache.stats();
    assert_eq!((stats.damaged, stats.misses, stats.hits, stats.turned_off), (1, 2, 1, 0));
}

#[test]
fn a_damaged_index_costs_its_blocks_and_nothing_else() {
    let disk = RamDisk::new();
    let mut far = far(&*disk, options(50), 10 * BLOCK);
    for block in 0..10 {
        far.block(block);
    }
    disk.tamper("cache/cache.index", |bytes| bytes[4096 + 3 * 32 + 5] ^= 1);
    far.reopen(&*disk, options(50));
    assert_eq!(far.cache.stats().blocks, 9);
    far.read(0..10 * BLOCK);
    assert_eq!(far.cache.stats().hits, 9);
    // Entries that stand in slots of others are not believed.
    disk.tamper("cache/cache.index", |bytes| bytes[4096..].rotate_left(32));
    far.reopen(&*disk, options(50));
    assert_eq!(far.cache.stats().blocks, 0);
}

#[test]
fn an_index_that_cannot_be_read_costs_its_blocks_and_nothing_else() {
    for read in [1, 2] {
        let disk = RamDisk::new();
        let mut far = far(&*disk, options(50), 10 * BLOCK);
        far.block(1);
        // The first read is that of the header, the second that of the entries.
        disk.counters().fail_read.store(read, Ordering::Relaxed);
        far.reopen(&*disk, options(50));
        far.block(1);
        far.block(1);
        let stats = far.cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.turned_off), (1, 1, 0), "read {read}");
    }
}

#[test]
fn a_folder_of_another_store_or_block_size_is_emptied() {
    let other_store = CacheOptions { store: StoreId([8; 16]), ..options(50) };
    let other_size = CacheOptions { block_bytes: 8192, capacity_bytes: 1 << 20, ..options(50) };
    for other in [other_store, other_size] {
        let disk = RamDisk::new();
        let mut far = far(&*disk, options(50), 10 * BLOCK);
        far.block(1);
        far.reopen(&*disk, other);
        assert_eq!((far.cache.stats().blocks, disk.used()), (0, 36));
        far.block(1);
        assert_eq!(far.cache.stats().hits, 0);
        far.reopen(&*disk, options(50));
        assert_eq!(far.cache.stats().blocks, 0);
    }
}

#[test]
fn a_folder_whose_header_is_damaged_is_emptied() {
    let disk = RamDisk::new();
    let mut far = far(&*disk, options(50), 10 * BLOCK);
    for byte in 0..36 {
        far.block(1);
        disk.tamper("cache/cache.index", |bytes| bytes[byte] ^= 0x10);
        far.reopen(&*disk, options(50));
        assert_eq!(far.cache.stats().blocks, 0, "byte {byte}");
    }
    // A crash may leave names without content.
    far.block(1);
    disk.tamper("cache/cache.index", Vec::clear);
    far.reopen(&*disk, options(50));
    assert_eq!(far.cache.stats().blocks, 0);
}

#[test]
fn a_folder_with_files_of_others_is_refused_and_stays_as_it_is() {
    let disk = RamDisk::new();
    disk.create("cache/letters.txt").unwrap();
    let refused = CachedStorage::open(Arc::new(MemoryStorage::new()), &*disk, "cache", options(50)).err();
    assert_eq!(refused, Some(CacheError::Foreign { dir: "cache".to_owned(), name: "letters.txt".to_owned() }));
    assert_eq!(disk.names(), ["cache/letters.txt"]);
}

#[test]
fn the_files_never_outgrow_their_bound_and_a_smaller_bound_cuts_them() {
    let disk = RamDisk::new();
    let mut far = far(&*disk, options(40), 500 * BLOCK);
    for block in 0..500 {
        far.block(block);
        assert!(disk.used() <= options(40).capacity_bytes, "after block {block}");
        assert!(disk.used() <= far.cache.stats().disk_bytes);
    }
    let stats = far.cache.stats();
    assert_eq!((stats.blocks, stats.evictions, stats.filled), (40, 460, 500));
    far.reopen(&*disk, options(20));
    assert!(disk.used() <= options(20).capacity_bytes);
    for block in 0..500 {
        far.block(block);
        assert!(disk.used() <= options(20).capacity_bytes, "after block {block}");
    }
    far.reopen(&*disk, options(60));
    assert_eq!(far.cache.stats().blocks, 21, "one more was on the disk than could be resident");
}

/// Makes 50 of 100 blocks hot, scans 2,000 others in steps of `step` bytes, and counts the hot ones that are still
/// there.
fn hot_blocks_after_a_scan(step: u64) -> u64 {
    let far = far(&SimDisk::new(1), options(100), 2050 * BLOCK);
    far.cache.len(ObjectId(1)).unwrap();
    for _ in 0..4 {
        for block in 0..50 {
            far.read(block * BLOCK + 100..block * BLOCK + 200);
        }
    }
    let (scanned, end) = (50 * BLOCK, 2050 * BLOCK);
    for at in (scanned..end).step_by(step as usize) {
        far.read(at..end.min(at + step));
    }
    let before = far.cache.stats().hits;
    for block in 0..50 {
        far.read(block * BLOCK + 100..block * BLOCK + 200);
    }
    far.cache.stats().hits - before
}

#[test]
fn a_scan_does_not_evict_the_hot_set() {
    for step in [64 * BLOCK, BLOCK, BLOCK / 4, 1000] {
        let hot = hot_blocks_after_a_scan(step);
        assert!(hot >= 45, "in steps of {step} bytes: {hot} of 50 hot blocks are left");
    }
}

#[test]
fn a_full_disk_turns_the_cache_off_and_reads_go_on() {
    let disk = SimDisk::new(1);
    let far = far(&disk, options(50), 100 * BLOCK);
    disk.capacity(4096 + 50 * 32 + 10 * BLOCK);
    for round in 0..2 {
        for block in 0..30 {
            far.block(block);
        }
        assert_eq!(far.cache.stats().turned_off, 1, "round {round}");
    }
    let stats = far.cache.stats();
    assert_eq!((stats.blocks, stats.hits, stats.in_flight), (0, 0, 0));
    assert!(stats.bypassed >= 30, "{stats:?}");
}

#[test]
fn a_local_disk_that_cannot_be_opened_turns_the_cache_off() {
    let disk = SimDisk::new(1);
    disk.no_new_files(Some(30));
    let far = far(&disk, options(50), 10 * BLOCK);
    far.block(1);
    assert_eq!((far.cache.stats().turned_off, far.cache.stats().bypassed), (1, 1));
    put(&far.cache, 2, 10);
    assert_eq!(far.cache.list(), Ok(vec![ObjectId(1), ObjectId(2)]));
}

#[test]
fn a_read_of_the_device_verifies_the_remote_copy() {
    let remote_disk = RamDisk::new();
    let remote = Arc::new(FileStorage::open(remote_disk.clone(), "objects").unwrap());
    let cache = CachedStorage::open(remote, &*RamDisk::new(), "cache", options(50)).unwrap();
    let bytes = put(&cache, 1, 2 * BLOCK);
    remote_disk.tamper("objects/0000000000000001.obj", |bytes| bytes[9] ^= 1);
    assert_eq!(cache.read(ObjectId(1), 0..2 * BLOCK).wait().unwrap(), bytes);
    assert_ne!(cache.read_device(ObjectId(1), 0..2 * BLOCK).unwrap(), bytes);
    remote_disk.tamper("objects/0000000000000001.obj", |bytes| bytes.truncate(9));
    assert_eq!((cache.len(ObjectId(1)), cache.len_device(ObjectId(1))), (Ok(2 * BLOCK), Ok(9)));
}

#[test]
fn a_small_object_that_is_written_through_is_not_fetched() {
    let mut far = far(&SimDisk::new(1), options(5000), 1);
    far.bytes = put(&far.cache, 2, 10 * BLOCK + 3);
    let read = far.cache.read(ObjectId(2), 5..10 * BLOCK + 3).wait().unwrap();
    assert_eq!((far.asked(), &read[..]), (0, slice(&far.bytes, 5..10 * BLOCK + 3)));
    // A large one is not remembered while it is written.
    put(&far.cache, 3, (4 << 20) + 1);
    assert_eq!(far.cache.stats().filled, 11);
    // One that is not finished never was.
    let mut writer = far.cache.create(ObjectId(4)).unwrap();
    writer.write(b"abc").unwrap();
    drop(writer);
    let ticket = far.cache.read(ObjectId(4), 0..1);
    far.slow.answer_all();
    assert_eq!(ticket.wait(), Err(StorageError::Missing(ObjectId(4))));
}

#[test]
fn an_object_that_is_written_through_is_never_hidden_by_an_earlier_one_of_its_id() {
    let disk = SimDisk::new(1);
    for byte in [1, 2] {
        // The store is set back: the first object is gone, and its id is given out again.
        let cache = CachedStorage::open(
            Arc::new(MemoryStorage::new()),
            &disk,
            "cache",
            CacheOptions::new(StoreId([9; 16]), 100 << 20),
        )
        .unwrap();
        for (id, len) in [(ObjectId(1), 5 << 20), (ObjectId(2), 100)] {
            let content = vec![byte; len];
            let mut writer = cache.create(id).unwrap();
            writer.write(&content).unwrap();
            writer.finish().unwrap();
            assert_eq!(cache.read(id, 0..100).wait().unwrap(), &content[..100]);
            cache.wait_idle();
            assert_eq!(cache.read(id, 0..100).wait().unwrap(), &content[..100]);
        }
    }
}

#[test]
fn a_removed_object_is_missing_though_its_blocks_were_cached() {
    let far = far(&SimDisk::new(1), options(50), 10 * BLOCK);
    far.read(0..3 * BLOCK);
    let early = far.start(5 * BLOCK..6 * BLOCK);
    far.cache.remove(ObjectId(1)).unwrap();
    let late = [far.start(0..1), far.start(5 * BLOCK..6 * BLOCK)];
    far.slow.answer_all();
    let missing = Err(StorageError::Missing(ObjectId(1)));
    for ticket in late.into_iter().chain([early]) {
        assert_eq!(ticket.wait(), missing);
    }
    assert_eq!((far.cache.stats().blocks, far.cache.stats().in_flight), (0, 0));
}

#[test]
fn an_object_that_is_removed_while_its_block_is_written_stays_removed() {
    let disk = RamDisk::new();
    let far = Arc::new(far(&*disk, options(50), 10 * BLOCK));
    let remover = Arc::clone(&far);
    // Also shows that nothing is locked while the disk writes.
    *disk.counters().on_write.lock() = Some(Box::new(move || remover.cache.remove(ObjectId(1)).unwrap()));
    far.block(3);
    assert_eq!((far.cache.stats().blocks, far.cache.stats().in_flight), (0, 0));
    let ticket = far.start(3 * BLOCK..3 * BLOCK + 1);
    far.slow.answer_all();
    assert_eq!(ticket.wait(), Err(StorageError::Missing(ObjectId(1))));
}

#[test]
fn reads_and_fills_beyond_the_bounds_of_the_queue_go_to_the_remote_storage() {
    let disk = SimDisk::new(1);
    disk.waits(1.0);
    let none = CacheOptions { queued_reads_max: 0, queued_fill_bytes_max: 0, ..options(50) };
    let mut far = far(&disk, none, 10 * BLOCK);
    far.block(1);
    assert_eq!((far.cache.stats().fills_refused, far.cache.stats().blocks), (1, 0));
    far.reopen(&disk, CacheOptions { queued_reads_max: 0, ..options(50) });
    far.block(1);
    far.block(1);
    let stats = far.cache.stats();
    assert_eq!((stats.reads_refused, stats.misses, stats.filled, stats.in_flight), (1, 2, 1, 0));
}

#[test]
fn the_remote_storage_is_asked_so_many_things_at_once_and_no_more() {
    let far = far(&SimDisk::new(1), CacheOptions { remote_requests_max: 3, ..options(50) }, 40 * BLOCK);
    // Every other block, so that none is asked for with its neighbour.
    let reads: Vec<_> = (0..20).map(|n| far.start(2 * n * BLOCK..2 * n * BLOCK + 9)).collect();
    assert_eq!(far.slow.in_flight(), 3);
    far.slow.fail_next(StorageError::NoSpace(ObjectId(1)));
    far.slow.answer_all();
    let failed = reads.into_iter().map(thalweg_base::Ticket::wait).filter(Result::is_err).count();
    assert_eq!((failed, far.slow.in_flight_max(), far.slow.asked().len()), (1, 3, 20));
}

#[test]
fn a_read_without_waiting_answers_what_is_in_memory_only() {
    let disk = SimDisk::new(1);
    let far = far(&disk, options(50), 10 * BLOCK);
    assert_eq!(far.cache.try_read(ObjectId(1), 0..1), None);
    far.read(0..2 * BLOCK);
    let read = far.cache.try_read(ObjectId(1), 9..2 * BLOCK).unwrap().unwrap();
    assert_eq!(read, slice(&far.bytes, 9..2 * BLOCK));
    disk.waits(1.0);
    assert_eq!(far.cache.try_read(ObjectId(1), 9..2 * BLOCK), None);
    far.cache.len(ObjectId(1)).unwrap();
    let refused = StorageError::Range { object: ObjectId(1), start: 0, end: 10 * BLOCK + 1, len: 10 * BLOCK };
    assert_eq!(far.cache.try_read(ObjectId(1), 0..10 * BLOCK + 1), Some(Err(refused)));
}

#[test]
fn tickets_outlive_the_cache_that_gave_them() {
    let Far { slow, cache, bytes } = far(&SimDisk::new(1), CacheOptions { threads: 3, ..options(60) }, 10 * BLOCK);
    let ticket = cache.read(ObjectId(1), 3..BLOCK + 3);
    drop(cache);
    slow.answer_all();
    assert_eq!(ticket.wait().unwrap(), slice(&bytes, 3..BLOCK + 3));
}

#[test]
fn every_block_of_a_read_is_a_hit_a_miss_or_a_wait() {
    let far = far(&SimDisk::new(1), options(50), 40 * BLOCK);
    far.cache.len(ObjectId(1)).unwrap();
    let (first, second) = (far.start(0..4 * BLOCK), far.start(2 * BLOCK..7 * BLOCK));
    far.slow.answer_all();
    drop((first, second));
    far.read(6 * BLOCK..9 * BLOCK);
    let stats = far.cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.coalesced_waits), (1, 4 + 3 + 2, 2));
    assert_eq!((stats.hit_bytes, stats.remote_bytes, stats.remote_requests), (BLOCK, 9 * BLOCK, 3));
}
