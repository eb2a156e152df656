//! Logs over the journal that ships, on a simulated disk.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use support::{Doubtful, Notes};
use thalweg_base::{LogId, Millis, Offset};
use thalweg_journal::{Class, FileJournal, Journal, Options};
use thalweg_log::{Append, Lengths, Logs, LogsOptions, Loss, Op, ReadFrom, UpkeepError, When};
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
        let mut opened = None;
        let (storage, manifest) = (Arc::clone(&self.storage), Arc::clone(&self.manifest));
        let options =
            LogsOptions { settle_after_ms: 0, reclaim_every_ms: 0, object_bytes: 1 << 20, ..LogsOptions::default() };
        let logs = Logs::open(options, storage, manifest, Loss::Nothing, |bounds, replay| {
            let journal = FileJournal::open(Arc::new(self.disk.clone()), self.options, bounds, &mut |at, payload| {
                replay(at, payload)
            });
            let journal = Arc::new(journal.map_err(|error| error.to_string())?);
            journal.start_writer().unwrap();
            opened = Some(Arc::clone(&journal));
            Ok(journal as _)
        });
        (Arc::new(logs.unwrap()), opened.unwrap())
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
