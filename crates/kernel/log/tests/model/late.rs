//! Reads whose answers come late and in any order, while rounds, merges and deletes go on.
//!
//! The storage is far away for these reads alone: everything else in a history finds its objects at once.

use super::support::Notes;
use super::{CHUNK, Modelled, World};
use bytes::Bytes;
use oorandom::Rand32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_base::{LogId, ObjectId, Offset, Step, Ticket};
use thalweg_log::{Chunk, ChunkRead, Logs, ReadError, ReadFrom};
use thalweg_storage::{MemoryStorage, ObjectWriter, SlowStorage, Storage, StorageError};

/// A storage that is far away while it is told to be.
pub(crate) struct Far {
    near: Arc<Counted>,
    slow: SlowStorage,
    is_far: AtomicBool,
}

/// Counts the reads that found nothing.
struct Counted {
    inner: MemoryStorage,
    missed: AtomicU64,
}

impl Far {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let near = Arc::new(Counted { inner: MemoryStorage::new(), missed: AtomicU64::new(0) });
        let slow = SlowStorage::held(Arc::clone(&near) as _, seed);
        Arc::new(Self { near, slow, is_far: AtomicBool::new(false) })
    }

    fn remotely<T>(&self, act: impl FnOnce() -> T) -> T {
        self.is_far.store(true, Ordering::Relaxed);
        let done = act();
        self.is_far.store(false, Ordering::Relaxed);
        done
    }

    fn serving(&self) -> &dyn Storage {
        if self.is_far.load(Ordering::Relaxed) { &self.slow } else { self.near.as_ref() }
    }
}

impl Storage for Far {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.near.create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.serving().try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.serving().read(object, range)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.near.len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.near.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.near.list()
    }
}

impl Storage for Counted {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.inner.create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.inner.try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        let read = self.inner.read(object, range).wait();
        self.missed.fetch_add(u64::from(matches!(read, Err(StorageError::Missing(_)))), Ordering::Relaxed);
        Ticket::ready(read)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.inner.len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.inner.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.inner.list()
    }
}

/// The outcomes of late reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) whole: u64,
    /// Those that did not end with their first step.
    pub(crate) late: u64,
    /// Reads during which the log was trimmed, or deleted.
    pub(crate) trimmed: u64,
    pub(crate) deleted: u64,
    /// Answers that found the object gone.
    pub(crate) vanished: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.whole += other.whole;
        self.late += other.late;
        self.trimmed += other.trimmed;
        self.deleted += other.deleted;
        self.vanished += other.vanished;
    }
}

pub(crate) struct Late {
    random: Rand32,
    far: Arc<Far>,
    /// One turn in so many has answers.
    pace: usize,
    reads: Vec<Reading>,
    seen: Seen,
}

/// A read under way, and the log as it was when it began.
struct Reading {
    log: LogId,
    from: u64,
    upto: u64,
    was: Modelled,
    read: ChunkRead,
    woken: Arc<AtomicBool>,
    steps: u64,
}

const READS_MAX: usize = 12;

impl Late {
    pub(crate) fn new(seed: u64, far: Arc<Far>) -> Self {
        let pace = [1, 6, 20][(seed % 3) as usize];
        Self { random: Rand32::new(seed ^ 0x1a7e), far, pace, reads: Vec::new(), seen: Seen::default() }
    }

    fn upto(&mut self, n: usize) -> usize {
        self.random.rand_range(0..n.max(1) as u32) as usize
    }

    /// Inside of background work, which has many moments.
    pub(crate) fn meanwhile(&mut self, world: &World) {
        if self.upto(12) == 0 {
            self.turn(world);
        }
    }

    /// Reads begin, answers come, and reads go on.
    pub(crate) fn turn(&mut self, world: &World) {
        if self.reads.len() < READS_MAX && self.upto(2) == 0 {
            self.begin(world);
        }
        if self.upto(self.pace) == 0 {
            for _ in 0..self.upto(4) {
                self.far.slow.answer();
            }
        }
        for at in (0..self.reads.len()).rev() {
            // A step that comes too early does no harm.
            if self.reads[at].woken.load(Ordering::Relaxed) || self.upto(30) == 0 {
                self.step(at, world);
            }
        }
    }

    fn begin(&mut self, world: &World) {
        let at = self.upto(world.now.len());
        let Some((log, was)) = world.now.iter().nth(at) else { return };
        let published = {
            let mut guard = world.logs.lock_logs(&[*log], &[]);
            guard.view(*log).expect("the log is there").published.0
        };
        let starts: Vec<u64> =
            was.boundaries.iter().copied().filter(|at| (was.start..=published).contains(at)).collect();
        let from = starts.get(self.upto(starts.len())).copied().unwrap_or(published);
        let read = ChunkRead::new(ReadFrom { log: *log, from: Offset(from), upto: Offset(published) });
        let woken = Arc::new(AtomicBool::new(true));
        self.reads.push(Reading { log: *log, from, upto: published, was: was.clone(), read, woken, steps: 0 });
        self.step(self.reads.len() - 1, world);
    }

    fn step(&mut self, at: usize, world: &World) {
        let Reading { read, woken, steps, .. } = &mut self.reads[at];
        *steps += 1;
        match self.far.remotely(|| read.step::<Notes>(&world.logs as &Logs<Notes>)) {
            Step::Done(read) => {
                let reading = self.reads.swap_remove(at);
                self.seen.late += u64::from(reading.steps > 1);
                self.judge(&reading, read, world);
            }
            Step::Wants(ticket) => {
                *woken = Arc::new(AtomicBool::new(false));
                let wake = Arc::clone(woken);
                ticket.then(move |()| wake.store(true, Ordering::Relaxed));
            }
        }
    }

    /// Compares a read with the content at its beginning. Only a trim or a delete during the read excuses a refusal.
    fn judge(&mut self, reading: &Reading, read: Result<Chunk, ReadError>, world: &World) {
        let Reading { log, from, upto, was, .. } = reading;
        match read {
            Ok(chunk) => {
                let target = (from / CHUNK + 1) * CHUNK;
                let end = was.boundaries.iter().copied().find(|b| b >= &target).unwrap_or(*upto).min(*upto);
                assert_eq!(chunk.end.0, end, "the chunk of log {log} from {from} of {upto}");
                assert!(chunk.parts.concat() == was.bytes[*from as usize..end as usize], "log {log} from {from}");
                self.seen.whole += 1;
            }
            Err(ReadError::Trimmed { .. }) if world.now.get(log).is_some_and(|now| now.start > *from) => {
                self.seen.trimmed += 1;
            }
            Err(ReadError::Missing(_)) if !world.now.contains_key(log) => self.seen.deleted += 1,
            Err(error) => panic!("log {log} from {from} of {upto}: {error}"),
        }
    }

    /// The process died, and its reads with it.
    pub(crate) fn die(&mut self) {
        self.reads.clear();
        self.far.slow.answer_all();
    }

    /// All answers come, and no read waits for more.
    pub(crate) fn finish(&mut self, world: &World) -> Seen {
        while !self.reads.is_empty() {
            self.far.slow.answer_all();
            for at in (0..self.reads.len()).rev() {
                let reading = &self.reads[at];
                assert!(reading.woken.load(Ordering::Relaxed), "log {} from {} hangs", reading.log, reading.from);
                self.step(at, world);
            }
        }
        Seen { vanished: self.far.near.missed.load(Ordering::Relaxed), ..self.seen.clone() }
    }
}
