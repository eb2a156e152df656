//! Logs over the journal that ships, on a simulated disk.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use support::{Doubtful, Notes};
use thalweg_base::{LogId, Millis, Offset};
use thalweg_disk::Disk;
use thalweg_journal::{Bounds, Class, FileJournal, Journal, Options};
use thalweg_log::{Append, FileUnit, Lengths, Logs, LogsOptions, Loss, MANIFEST, Op, ReadFrom, UpkeepError, When};
use thalweg_manifest::{FileManifest, Manifest};
use thalweg_sim::SimDisk;
use thalweg_storage::MemoryStorage;

const SEGMENT: u64 = 64 << 10;
/// How long a test waits for what must not wait.
const PATIENCE: Duration = Duration::from_secs(20);

struct Unit {
    disk: SimDisk,
    storage: Arc<MemoryStorage>,
    manifest: Arc<Doubtful>,
    options: Options,
}

impl Unit {
    fn new(options: Options) -> Self {
        Self { disk: SimDisk::new(1), storage: Arc::new(MemoryStorage::new()), manifest: Arc::default(), options }
    }

    fn open(&self) -> (Arc<Logs<Notes>>, Arc<FileJournal>) {
        let (logs, journal) = self.open_without_writer();
        journal.start_writer().unwrap();
        (logs, journal)
    }

    /// Opens the unit without a writer thread: a caller that waits for the journal drives it.
    fn open_without_writer(&self) -> (Arc<Logs<Notes>>, Arc<FileJournal>) {
        let (storage, manifest) = (Arc::clone(&self.storage), Arc::clone(&self.manifest));
        let options =
            LogsOptions { settle_after_ms: 0, reclaim_every_ms: 0, object_bytes: 1 << 20, ..LogsOptions::default() };
        let mut opening = Logs::begin(options, storage, manifest, Loss::Nothing).unwrap();
        let bounds = opening.bounds();
        let journal = FileJournal::open(Arc::new(self.disk.clone()), self.options, bounds, &mut |at, payload| {
            opening.replay(at, &payload)
        });
        let journal = Arc::new(journal.unwrap());
        let logs = opening.finish(Arc::clone(&journal) as _).unwrap();
        (Arc::new(logs), journal)
    }
}

fn create(logs: &Logs<Notes>, name: &str) -> LogId {
    let op = Op::Create { name, note: b"new", origin: None, append: None };
    logs.lock(&[name]).commit(Class::User, &[op]).unwrap().created.unwrap()
}

fn append(logs: &Logs<Notes>, log: LogId, message: &[u8]) {
    let lengths = Lengths::one(message.len() as u32);
    let parts = [message];
    let op = Op::Write { log, note: b"", append: Some(Append::Bytes { parts: &parts, lengths: &lengths }) };
    logs.lock_logs(&[log], &[]).commit(Class::User, &[op]).unwrap();
}

fn read(logs: &Logs<Notes>, log: LogId, upto: usize) -> Vec<u8> {
    let upto = Offset(upto as u64);
    logs.read(ReadFrom { log, from: Offset(0), upto }).unwrap().parts.concat()
}

/// What `work` gives, on a thread of its own; it must end by itself.
fn within_patience<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(PATIENCE).expect("it waits for space that it could have freed")
}

#[test]
fn background_work_does_not_wait_for_a_journal_that_waits_for_space() {
    let unit = Unit::new(Options {
        segment_bytes: SEGMENT,
        max_payload: 8 << 10,
        reserve_segments: 0,
        spare_segments: 0,
        ..Options::default()
    });
    let (logs, journal) = unit.open_without_writer();
    let (kept, dead) = (create(&logs, "kept"), create(&logs, "dead"));
    append(&logs, kept, &[1; 1000]);
    append(&logs, dead, &[2; 3000]);
    journal.wait(journal.end()).unwrap();
    logs.settle(Millis(1), When::Now).unwrap();
    append(&logs, kept, &[3; 1000]);
    journal.wait(journal.end()).unwrap();
    let durable = journal.durable();
    logs.lock_logs(&[dead], &[]).commit(Class::Upkeep, &[Op::Delete { log: dead }]).unwrap();
    // Something else takes the space that the journal was promised.
    for _ in 0..SEGMENT / 1000 {
        append(&logs, kept, &[4; 1000]);
    }
    unit.disk.capacity(unit.disk.cached().values().map(|bytes| bytes.len() as u64).sum());
    journal.start_writer().unwrap();
    let is_full = |done: Result<bool, UpkeepError>| done.is_err_and(|error| error.is_no_space());
    let floor = logs.hold_sealed().cut.journal.floor;
    for now in 2..5 {
        let settling = Arc::clone(&logs);
        assert!(is_full(within_patience(move || settling.settle(Millis(now), When::Now))));
        let reclaiming = Arc::clone(&logs);
        assert!(is_full(within_patience(move || reclaiming.reclaim(Millis(now)))));
    }
    let cut = logs.hold_sealed();
    assert_eq!(cut.cut.journal.floor, floor, "nothing has happened");
    assert!(cut.cut.journal.known_durable <= durable);
    drop(cut);
    assert!(journal.durable() < journal.end() && journal.poisoned().is_none());
    let bytes = 2000 + 1000 * (SEGMENT as usize / 1000);
    // There is space again: accepted frames become durable, and the round that was given back succeeds.
    unit.disk.capacity(u64::MAX);
    let settling = Arc::clone(&logs);
    assert!(within_patience(move || settling.settle(Millis(9), When::Now)).unwrap());
    let reclaiming = Arc::clone(&logs);
    assert!(within_patience(move || reclaiming.reclaim(Millis(9))).unwrap());
    assert_eq!(journal.durable(), journal.end());
    let before = read(&logs, kept, bytes);
    assert_eq!(before.len(), bytes);
    append(&logs, kept, b"after");
    journal.close().unwrap();
    drop((logs, journal));
    unit.disk.crash_power();
    let (logs, journal) = unit.open();
    assert_eq!(logs.len(), 1, "the delete was durable");
    assert_eq!(read(&logs, kept, bytes + 5), [&before[..], b"after"].concat());
    journal.close().unwrap();
}

#[test]
fn a_reader_of_small_parts_does_not_keep_whole_batches() {
    let options = Options { max_payload: 1 << 20, ..Options::default() };
    let unit = Unit::new(options);
    let (logs, journal) = unit.open();
    let (small, large) = (create(&logs, "small"), create(&logs, "large"));
    const ROUNDS: usize = 8;
    for _ in 0..ROUNDS {
        // One transaction, so one batch.
        let (few, many) = ([vec![1; 5000]], [vec![2; 500_000]]);
        let (few, many) = ([&few[0][..]], [&many[0][..]]);
        let lengths = [Lengths::one(5000), Lengths::one(500_000)];
        let ops = [(small, &few, &lengths[0]), (large, &many, &lengths[1])].map(|(log, parts, lengths)| Op::Write {
            log,
            note: b"",
            append: Some(Append::Bytes { parts, lengths }),
        });
        logs.lock_logs(&[small, large], &[]).commit(Class::User, &ops).unwrap();
        journal.wait(journal.end()).unwrap();
    }
    let chunk = |log, upto: usize| logs.read(ReadFrom { log, from: Offset(0), upto: Offset(upto as u64) }).unwrap();
    let of_small = chunk(small, ROUNDS * 5000);
    assert_eq!(of_small.parts.concat(), vec![1; ROUNDS * 5000]);
    let of_large = chunk(large, ROUNDS * 500_000);
    assert_eq!(of_large.parts.len(), ROUNDS, "large parts are not copied");
    drop(of_large);
    // The window lets the batches go; readers alone could keep them.
    logs.settle(Millis(1), When::Now).unwrap();
    assert!(logs.held_bytes() < 100_000, "{} bytes are held for {}", logs.held_bytes(), of_small.bytes());
    journal.close().unwrap();
}

#[test]
fn the_term_of_a_journal_is_the_epoch_of_its_owner_however_many_openings_it_had() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let open = || FileUnit::<Notes>::open(Arc::clone(&disk), Options::default(), LogsOptions::default(), Loss::Nothing);
    let epoch = || {
        let manifest = FileManifest::open(Arc::clone(&disk), MANIFEST, 1).unwrap();
        manifest.read().unwrap().unwrap().epoch
    };
    let first = open().unwrap().journal.term();
    assert_eq!(first, epoch());
    // Openings that no owner stands behind, as a journal had them before owners had epochs.
    for _ in 0..5 {
        let bounds = Bounds { term: first, ..Bounds::default() };
        FileJournal::open(Arc::clone(&disk), Options::default(), bounds, &mut |_, _| Ok::<(), Infallible>(())).unwrap();
    }
    let unit = open().unwrap();
    assert_eq!(unit.journal.term(), epoch());
    assert!(unit.journal.term() > first + 5, "{}", unit.journal.term());
}
