//! Reads from a storage that is far away: how many dependent round trips they take, and that they take them together.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{Notes, ScriptedJournal, Unit};
use thalweg_base::{LogId, Millis, ObjectId, Offset, Step, Ticket};
use thalweg_journal::Class;
use thalweg_log::{
    Append, BoundaryRead, ChunkRead, Lengths, Logs, LogsOptions, Op, Origin, ReadError, ReadFrom, Seek, SeekRead, When,
};
use thalweg_storage::{
    CacheOptions, CachedStorage, MemoryStorage, ObjectWriter, SlowStorage, Storage, StorageError, StoreId,
};

const ROUND_TRIP: Duration = Duration::from_millis(50);

fn options() -> LogsOptions {
    // Runs stay apart, and no log is read through what another one has left in memory.
    LogsOptions { chunk_bytes: 4096, fan_in: 100, chunk_cache_bytes: 0, ..LogsOptions::default() }
}

fn unit(storage: Arc<dyn Storage>) -> Unit {
    Unit::over(storage, ScriptedJournal::eager(), options())
}

fn create(logs: &Logs<Notes>, name: &str, origin: Option<Origin>) -> LogId {
    let op = Op::Create { name, note: b"new", origin, append: None };
    let sources: Vec<LogId> = origin.iter().map(|origin| origin.source).collect();
    logs.lock_logs(&sources, &[name]).commit(Class::User, &[op]).unwrap().created.unwrap()
}

fn append(logs: &Logs<Notes>, log: LogId, message: &[u8]) {
    let lengths = Lengths::one(message.len() as u32);
    let append = Append::Bytes { parts: &[message], lengths: &lengths };
    logs.lock_logs(&[log], &[]).commit(Class::User, &[Op::Write { log, note: b"", append: Some(append) }]).unwrap();
}

fn settle(logs: &Logs<Notes>, at: u64) {
    while logs.settle(Millis(at), When::Now).unwrap() {}
}

fn message(log: usize, run: usize) -> Vec<u8> {
    format!("message {run} of log {log}; ").into_bytes()
}

/// So many logs, each with a message in each of so many runs, on an object store that is near while they are written.
fn settled(storage: &Arc<dyn Storage>, logs: usize, runs: usize) -> (Unit, Vec<LogId>) {
    let unit = unit(Arc::clone(storage));
    let open = unit.open();
    let ids: Vec<LogId> = (0..logs).map(|n| create(&open, &format!("log {n}"), None)).collect();
    for run in 0..runs {
        for (n, id) in ids.iter().enumerate() {
            append(&open, *id, &message(n, run));
        }
        settle(&open, run as u64);
    }
    (unit, ids)
}

/// Opens the unit once more, over a storage that is far away. No part of any object is in a cache.
fn from_afar(unit: &Unit, far: Arc<dyn Storage>) -> Arc<Logs<Notes>> {
    Unit { manifest: unit.manifest.clone(), ..Unit::over(far, unit.journal.clone(), unit.options) }.open()
}

fn want(logs: &Logs<Notes>, log: LogId) -> ReadFrom {
    let upto = logs.lock_logs(&[log], &[]).view(log).unwrap().published;
    ReadFrom { log, from: Offset(0), upto }
}

/// Takes the steps of all reads in round trips: requests made during one are answered at its end. Returns the number of
/// round trips and the results of the reads.
fn in_round_trips<T>(slow: &SlowStorage, mut reads: Vec<impl FnMut() -> Step<T>>) -> (usize, Vec<T>) {
    let mut done: Vec<Option<T>> = reads.iter().map(|_| None).collect();
    for trips in 0.. {
        for (read, done) in reads.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            // Each wakes its read at least once, which steps again in the next round.
            if let Step::Done(value) = read() {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) {
            return (trips, done.into_iter().flatten().collect());
        }
        assert!(slow.in_flight() > 0, "a read waits for nothing");
        (0..slow.in_flight()).for_each(|_| assert!(slow.answer()));
    }
    unreachable!()
}

/// Opened near, because opening blocks; then read from afar.
struct Switch {
    near: Arc<dyn Storage>,
    far: Arc<SlowStorage>,
    opened: AtomicBool,
}

impl Storage for Switch {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.near.create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        if self.opened.load(Ordering::Relaxed) {
            self.far.try_read(object, range)
        } else {
            self.near.try_read(object, range)
        }
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        if self.opened.load(Ordering::Relaxed) { self.far.read(object, range) } else { self.near.read(object, range) }
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        assert!(!self.opened.load(Ordering::Relaxed), "measuring an object would block");
        self.near.len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.near.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.near.list()
    }
}

/// Answers come when a test says so.
fn held(unit: &Unit) -> (Arc<Logs<Notes>>, Arc<SlowStorage>) {
    held_with(unit, 7)
}

fn held_with(unit: &Unit, seed: u64) -> (Arc<Logs<Notes>>, Arc<SlowStorage>) {
    let far = Arc::new(SlowStorage::held(unit.storage.clone(), seed));
    let switch = Switch { near: unit.storage.clone(), far: Arc::clone(&far), opened: false.into() };
    let switch = Arc::new(switch);
    let logs = from_afar(unit, switch.clone());
    switch.opened.store(true, Ordering::Relaxed);
    (logs, far)
}

#[test]
fn a_thousand_cold_reads_over_many_runs_take_three_round_trips() {
    // The index of few logs is read as a whole: no trip for its blocks.
    for (logs, trips) in [(1_000, 2), (12_000, 3)] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let (unit, ids) = settled(&storage, logs, 3);
        let (open, far) = held(&unit);
        let reads: Vec<_> = (0..1_000)
            .map(|n| {
                let mut read = ChunkRead::new(want(&open, ids[n]));
                let open = Arc::clone(&open);
                move || read.step(&open)
            })
            .collect();
        let (took, chunks) = in_round_trips(&far, reads);
        assert_eq!(took, trips, "with {logs} logs");
        for (n, chunk) in chunks.into_iter().enumerate() {
            let whole: Vec<u8> = (0..3).flat_map(|run| message(n, run)).collect();
            assert!(chunk.unwrap().parts.concat() == whole, "log {n}");
        }
        assert!(far.in_flight_max() >= 3_000);
        let mut again = ChunkRead::new(want(&open, ids[3]));
        let (took, _) = in_round_trips(&far, vec![|| again.step(&open)]);
        assert_eq!(took, 1, "once the index is in memory, only the data is far away");
    }
}

#[test]
fn looking_for_a_position_takes_two_round_trips_at_most() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (unit, ids) = settled(&storage, 12_000, 2);
    let (open, far) = held(&unit);
    let upto = want(&open, ids[40]).upto;
    let mut seek = SeekRead::new(ids[40], Offset(0), upto, Seek::Messages(2));
    let (took, found) = in_round_trips(&far, vec![|| seek.step(&open)]);
    let expected: usize = (0..2).map(|run| message(40, run).len()).sum();
    assert_eq!((took, found), (2, vec![Ok(Offset(expected as u64))]));
    let mut boundary = BoundaryRead::new(ids[5_000], Offset(3), upto);
    let found = in_round_trips(&far, vec![|| boundary.step(&open)]);
    assert_eq!(found, (1, vec![Ok(Offset(0))]), "the map is in memory by now, and the block is not");
}

#[test]
fn looking_over_many_objects_holds_few_of_their_maps_and_reads_each_once() {
    const OBJECTS: u64 = 400;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let small = LogsOptions { object_bytes: 4 << 10, index_cache_bytes: 0, ..options() };
    let unit = Unit::over(Arc::clone(&storage), ScriptedJournal::eager(), small);
    let open = unit.open();
    let log = create(&open, "a", None);
    (0..OBJECTS).for_each(|_| append(&open, log, &[7; 5 << 10]));
    settle(&open, 1);
    assert!(open.stats().objects >= OBJECTS, "{} objects", open.stats().objects);
    drop(open);
    let (open, far) = held(&unit);
    let upto = want(&open, log).upto;
    let (mut seek, most) = (SeekRead::new(log, Offset(0), upto, Seek::Messages(OBJECTS)), AtomicUsize::new(0));
    unit.storage.take_read();
    let step = || {
        let step = seek.step(&open);
        most.fetch_max(seek.maps(), Ordering::Relaxed);
        step
    };
    let (took, found) = in_round_trips(&far, vec![step]);
    assert_eq!(found, [Ok(upto)]);
    let (most, at_once) = (most.into_inner(), far.in_flight_max());
    assert!(most < 200 && at_once <= 40, "{most} maps of {OBJECTS} were held, {at_once} asked for at once");
    assert!(took <= OBJECTS as usize / 16, "{took} round trips");
    let read = unit.storage.take_read();
    let of_index = |object: &ObjectId| unit.storage.len(*object).unwrap() - (5 << 10);
    assert!(read.iter().all(|(object, bytes)| *bytes <= of_index(object)), "an index was read twice");
}

#[test]
fn what_many_references_stand_for_is_asked_for_together() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let unit = unit(Arc::clone(&storage));
    let (open, mut whole) = (unit.open(), Vec::new());
    let reader = create(&open, "reader", None);
    for n in 0..20 {
        let source = create(&open, &format!("source {n}"), None);
        append(&open, source, &message(n, 0));
        whole.extend(message(n, 0));
        let lengths = Lengths::one(message(n, 0).len() as u32);
        let refer = Append::Reference { source, from: Offset(0), lengths: &lengths };
        let op = Op::Write { log: reader, note: b"", append: Some(refer) };
        open.lock_logs(&[source, reader], &[]).commit(Class::User, &[op]).unwrap();
        settle(&open, n as u64);
    }
    drop(open);
    let (open, far) = held(&unit);
    let mut read = ChunkRead::new(want(&open, reader));
    let (took, chunks) = in_round_trips(&far, vec![|| read.step(&open)]);
    assert!(chunks[0].as_ref().unwrap().parts.concat() == whole);
    assert!(took <= 4, "twenty references took {took} round trips");
}

#[test]
fn errors_that_come_in_any_order_are_told_as_if_they_came_in_order() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (unit, ids) = settled(&storage, 3, 4);
    for seed in 0..20 {
        let (open, far) = held_with(&unit, seed);
        let mut read = ChunkRead::new(want(&open, ids[1]));
        assert!(matches!(read.step(&open), Step::Wants(_)));
        (0..4).for_each(|_| assert!(far.answer(), "the indexes of the four runs come"));
        assert!(matches!(read.step(&open), Step::Wants(_)));
        assert_eq!(far.in_flight(), 4, "the data of the four runs was asked for");
        let mut ended = None;
        for object in far.asked()[4..].iter().map(|(object, _)| *object) {
            assert!(ended.is_none(), "the first piece may still come");
            far.fail_next(StorageError::Io { object, operation: "reading", cause: "no route".into() });
            assert!(far.answer());
            if let Step::Done(read) = read.step(&open) {
                ended = Some(read);
                break;
            }
        }
        let offset = match ended {
            Some(Err(ReadError::Io { offset, .. })) => offset,
            other => panic!("{other:?}"),
        };
        assert_eq!(offset, Offset(0), "with seed {seed}");
    }
}

#[test]
fn a_read_of_frames_that_are_not_written_waits_without_a_thread() {
    let journal = ScriptedJournal::lazy();
    let unit = Unit::new(journal.clone(), options());
    let open = unit.open();
    let source = create(&open, "source", None);
    append(&open, source, b"told to nobody yet");
    let fork = create(&open, "fork", Some(Origin { source, at: Offset(18) }));
    let want = ReadFrom { log: fork, from: Offset(0), upto: Offset(18) };
    assert!(open.try_read(want).is_none());
    let mut read = ChunkRead::new(want);
    let Step::Wants(ticket) = read.step(&open) else { panic!("nothing is written") };
    assert_eq!(open.reads_waiting(), 1);
    let Err(ticket) = ticket.take() else { panic!("nothing is written") };
    journal.write();
    assert!(ticket.take().is_ok(), "the journal wakes it");
    assert_eq!(open.reads_waiting(), 0);
    let Step::Done(chunk) = read.step(&open) else { panic!("it is written") };
    assert_eq!(chunk.unwrap().parts.concat(), b"told to nobody yet");
}

/// Four threads that take steps, as an engine's do.
fn on_four_threads(open: &Arc<Logs<Notes>>, ids: &[LogId]) -> Duration {
    let began = Instant::now();
    let (send, queue) = std::sync::mpsc::channel::<(usize, ChunkRead)>();
    let queue = Arc::new(parking_lot::Mutex::new(queue));
    let left = Arc::new(AtomicUsize::new(ids.len()));
    for (n, id) in ids.iter().enumerate() {
        send.send((n, ChunkRead::new(want(open, *id)))).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while left.load(Ordering::SeqCst) > 0 {
                    let next = queue.lock().recv_timeout(Duration::from_millis(20));
                    let Ok((n, mut read)) = next else { continue };
                    match read.step(open) {
                        Step::Done(chunk) => {
                            let whole: Vec<u8> = (0..3).flat_map(|run| message(n, run)).collect();
                            assert!(chunk.unwrap().parts.concat() == whole, "log {n}");
                            left.fetch_sub(1, Ordering::SeqCst);
                        }
                        Step::Wants(ticket) => {
                            let send = send.clone();
                            ticket.then(move |()| send.send((n, read)).unwrap_or(()));
                        }
                    }
                }
            });
        }
    });
    began.elapsed()
}

#[test]
fn a_thousand_cold_reads_on_four_threads_take_a_few_round_trips_of_time() {
    // Four at a time they would take 1,000 × 50 ms / 4 for each of two trips.
    let bound = ROUND_TRIP * 1_000 / 4 / 2;
    for cached in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let (unit, ids) = settled(&storage, 1_000, 3);
        let slow = Arc::new(SlowStorage::after(unit.storage.clone(), ROUND_TRIP, ROUND_TRIP, 3));
        let far: Arc<dyn Storage> = if cached {
            let options = CacheOptions::new(StoreId([1; 16]), 64 << 20);
            Arc::new(CachedStorage::open(slow.clone(), &thalweg_sim::SimDisk::new(5), "cache", options).unwrap())
        } else {
            slow.clone()
        };
        let open = from_afar(&unit, far);
        let took = on_four_threads(&open, &ids);
        println!("cached: {cached}: {took:?} for 1,000 reads, {} asked for at once", slow.in_flight_max());
        assert!(took < bound, "{took:?}, cached: {cached}");
    }
}

/// `cargo test --release -p thalweg-log --test cold warm -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn a_warm_read_of_settled_data() {
    const LOGS: usize = 20_000;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let unit = unit(Arc::clone(&storage));
    let open = unit.open();
    let ids: Vec<LogId> = (0..LOGS).map(|n| create(&open, &format!("log {n}"), None)).collect();
    ids.iter().for_each(|id| append(&open, *id, &[7; 1_000]));
    settle(&open, 1);
    let wants: Vec<_> = ids.iter().map(|id| want(&open, *id)).collect();
    // From here on all indexes are in memory.
    wants.iter().for_each(|want| drop(open.read(*want).unwrap()));
    let mut best = Duration::MAX;
    for _ in 0..12 {
        let began = Instant::now();
        for n in 0..LOGS {
            let chunk = open.try_read(wants[n * 7_919 % LOGS]).unwrap().unwrap();
            assert_eq!(chunk.end, Offset(1_000));
        }
        best = best.min(began.elapsed());
    }
    println!("{:?} for 1 KB", best / LOGS as u32);
}
