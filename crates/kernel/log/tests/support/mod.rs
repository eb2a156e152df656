//! A unit of logs in memory whose parts survive reopening.

#![allow(dead_code)]

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use thalweg_base::{DecodeError, Durability, Lsn, ObjectId, Ticket};
use thalweg_journal::{AppendError, Appended, Class, FrameRef, Journal, JournalStats, Poisoned, ReadError};
use thalweg_log::{Attachment, Logs, LogsOptions, Loss, OpenError};
use thalweg_manifest::{Manifest, ManifestError, MemoryManifest, Root};
use thalweg_storage::{MemoryStorage, ObjectWriter, Storage, StorageError};

/// An attachment that remembers every note: live and replayed state must be the same list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes(pub(crate) Vec<Vec<u8>>);

impl Attachment for Notes {
    fn create(note: &[u8], _: Lsn) -> Result<Self, DecodeError> {
        Ok(Self(vec![note.to_vec()]))
    }

    fn check(&self, note: &[u8]) -> Result<(), DecodeError> {
        if note == b"bad" { Err(DecodeError::Range("note")) } else { Ok(()) }
    }

    fn apply(&mut self, note: &[u8], _: Lsn) -> Result<(), DecodeError> {
        self.check(note)?;
        self.0.push(note.to_vec());
        Ok(())
    }

    /// As the first note says.
    fn durability(&self) -> Option<Durability> {
        match self.0.first() {
            Some(note) if note.starts_with(b"buffered") => Some(Durability::Buffered),
            Some(note) if note.starts_with(b"durable") => Some(Durability::Durable),
            _ => None,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        use thalweg_base::Encoder;
        for note in &self.0 {
            out.put_bytes(note);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut d = thalweg_base::Decoder::new(bytes);
        let mut notes = Vec::new();
        while !d.is_empty() {
            notes.push(d.bytes()?.to_vec());
        }
        Ok(Self(notes))
    }

    fn may_rest(&self, _: Lsn) -> bool {
        true
    }
}

/// A journal whose durable position moves only when told to.
#[derive(Default)]
pub(crate) struct ScriptedJournal {
    state: Mutex<State>,
    subscribers: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

#[derive(Default)]
struct State {
    frames: BTreeMap<Lsn, Bytes>,
    end: Lsn,
    durable: Lsn,
    written: Lsn,
    durable_end: Lsn,
    start: Lsn,
    /// `durable` follows `end` by itself.
    eager: bool,
    /// The process is dead: nothing more becomes durable.
    dead: bool,
}

const HEADER: u64 = 8;

impl ScriptedJournal {
    pub(crate) fn eager() -> Arc<Self> {
        let journal = Arc::new(Self::default());
        journal.state.lock().eager = true;
        journal
    }

    pub(crate) fn lazy() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn sync(&self) {
        {
            let mut state = self.state.lock();
            (state.durable, state.written) = (state.end, state.end);
        }
        self.tell();
    }

    fn tell(&self) {
        let subscribers = self.subscribers.lock().clone();
        subscribers.iter().for_each(|f| f());
    }

    /// Accepted frames become written, and not durable.
    pub(crate) fn write(&self) {
        {
            let mut state = self.state.lock();
            state.written = state.end;
        }
        self.tell();
    }

    /// Until the next crash nothing more is written or waited for.
    pub(crate) fn die(&self) {
        self.state.lock().dead = true;
    }

    /// Ends of frames that are written and not durable.
    pub(crate) fn loose(&self) -> Vec<Lsn> {
        let state = self.state.lock();
        let ends = state.frames.range(state.durable..state.written);
        ends.map(|(lsn, payload)| lsn.plus(HEADER + payload.len() as u64)).collect()
    }

    /// A crash: frames below `end` are left, and are durable then.
    pub(crate) fn crash_at(&self, end: Lsn) {
        let mut state = self.state.lock();
        assert!(state.durable <= end && end <= state.written);
        state.frames.retain(|lsn, _| *lsn < end);
        (state.end, state.durable, state.written, state.dead) = (end, end, end, false);
    }

    /// The state after a crash: the durable frames.
    pub(crate) fn crash(&self) {
        let durable = self.durable();
        self.crash_at(durable);
    }
}

impl Journal for ScriptedJournal {
    fn append_as(&self, durability: Durability, _: Class, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        let mut state = self.state.lock();
        let payload = Bytes::from(parts.concat());
        let frame = FrameRef { lsn: state.end, len: payload.len() as u32 };
        state.end = frame.lsn.plus(HEADER + payload.len() as u64);
        state.frames.insert(frame.lsn, payload);
        if durability == Durability::Durable {
            state.durable_end = state.end;
        }
        if state.eager {
            (state.durable, state.written) = (state.end, state.end);
        }
        Ok(Appended { frame, end: state.end })
    }

    fn kick(&self) {}

    fn durable(&self) -> Lsn {
        self.state.lock().durable
    }

    fn written(&self) -> Lsn {
        self.state.lock().written
    }

    fn durable_end(&self) -> Lsn {
        self.state.lock().durable_end
    }

    fn end(&self) -> Lsn {
        self.state.lock().end
    }

    fn poisoned(&self) -> Option<Poisoned> {
        None
    }

    fn subscribe(&self, f: Arc<dyn Fn() + Send + Sync>) {
        self.subscribers.lock().push(f);
    }

    /// Makes the frames below `upto` durable, and no others.
    fn wait(&self, upto: Lsn) -> Result<(), Poisoned> {
        let mut state = self.state.lock();
        assert!(upto <= state.end, "{upto} is waited for, {} is accepted", state.end);
        if state.dead {
            return Err(Poisoned::new("sync", "the simulated process is dead"));
        }
        state.durable = state.durable.max(upto);
        state.written = state.written.max(upto);
        Ok(())
    }

    fn try_read(&self, frames: &[FrameRef]) -> Option<Result<Vec<Bytes>, ReadError>> {
        Some(self.read(frames).wait())
    }

    fn read(&self, frames: &[FrameRef]) -> Ticket<Result<Vec<Bytes>, ReadError>> {
        let state = self.state.lock();
        let one = |frame: &FrameRef| {
            if frame.lsn < state.start {
                return Err(ReadError::Trimmed(frame.lsn));
            }
            if frame.lsn >= state.written {
                return Err(ReadError::NotWritten(frame.lsn));
            }
            state.frames.get(&frame.lsn).cloned().ok_or(ReadError::NotWritten(frame.lsn))
        };
        Ticket::ready(frames.iter().map(one).collect())
    }

    fn trim(&self, upto: Lsn) {
        let mut state = self.state.lock();
        state.start = state.start.max(upto);
        state.frames.retain(|lsn, _| *lsn >= upto);
    }

    fn start(&self) -> Lsn {
        self.state.lock().start
    }

    fn term(&self) -> u64 {
        1
    }

    fn stats(&self) -> JournalStats {
        JournalStats::default()
    }
}

/// The parts that survive.
pub(crate) struct Unit {
    pub(crate) journal: Arc<ScriptedJournal>,
    pub(crate) storage: Arc<Counted>,
    pub(crate) manifest: Arc<Doubtful>,
    pub(crate) options: LogsOptions,
}

impl Unit {
    pub(crate) fn new(journal: Arc<ScriptedJournal>, options: LogsOptions) -> Self {
        Self::over(Arc::new(MemoryStorage::new()), journal, options)
    }

    pub(crate) fn over(storage: Arc<dyn Storage>, journal: Arc<ScriptedJournal>, options: LogsOptions) -> Self {
        let storage = Arc::new(Counted { inner: storage, read: Mutex::default() });
        Self { journal, storage, manifest: Arc::default(), options }
    }

    pub(crate) fn open(&self) -> Arc<Logs<Notes>> {
        self.open_after(Loss::Nothing)
    }

    pub(crate) fn open_after(&self, loss: Loss) -> Arc<Logs<Notes>> {
        self.try_open(loss).expect("the unit opens")
    }

    pub(crate) fn try_open(&self, loss: Loss) -> Result<Arc<Logs<Notes>>, OpenError> {
        let journal = Arc::clone(&self.journal);
        self.manifest.dead.store(false, Ordering::Relaxed);
        let (storage, manifest) = (Arc::clone(&self.storage), Arc::clone(&self.manifest));
        let mut opening = Logs::begin(self.options, storage, manifest, loss)?;
        let floor = opening.bounds().floor;
        let frames: Vec<_> = journal.state.lock().frames.range(floor..).map(|(lsn, b)| (*lsn, b.clone())).collect();
        for (lsn, bytes) in frames {
            opening.replay(FrameRef { lsn, len: bytes.len() as u32 }, &bytes)?;
        }
        opening.finish(journal).map(Arc::new)
    }
}

/// A storage that remembers which objects were read, and how much of them.
pub(crate) struct Counted {
    inner: Arc<dyn Storage>,
    read: Mutex<BTreeMap<ObjectId, u64>>,
}

impl Counted {
    /// Bytes that were read of each object since the last call.
    pub(crate) fn take_read(&self) -> BTreeMap<ObjectId, u64> {
        std::mem::take(&mut self.read.lock())
    }

    fn note(&self, object: ObjectId, range: &Range<u64>) {
        *self.read.lock().entry(object).or_default() += range.end - range.start;
    }
}

impl Storage for Counted {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.inner.create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.note(object, &range);
        self.inner.try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.note(object, &range);
        self.inner.read(object, range)
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

/// A manifest whose commits may fail so that it is not known whether they were made.
#[derive(Default)]
pub(crate) struct Doubtful {
    inner: MemoryManifest,
    next: Mutex<Option<Fate>>,
    held: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    dead: AtomicBool,
}

/// A commit that is held: it ends when this is dropped.
pub(crate) struct HeldCommit {
    begun: Receiver<()>,
    _held: Sender<()>,
}

impl HeldCommit {
    /// Waits until the commit has begun.
    pub(crate) fn wait(&self) {
        self.begun.recv().expect("a commit begins");
    }
}

/// The outcome of a failed commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Made,
    NotMade,
}

impl Doubtful {
    /// The next commit fails.
    pub(crate) fn fail_next(&self, fate: Fate) {
        *self.next.lock() = Some(fate);
    }

    /// The next commit waits.
    pub(crate) fn hold_next(&self) -> HeldCommit {
        let ((begin, begun), (_held, end)) = (channel(), channel());
        *self.held.lock() = Some((begin, end));
        HeldCommit { begun, _held }
    }

    /// Another one with the same root.
    pub(crate) fn copy(&self) -> Arc<Self> {
        let copy = Self::default();
        if let Some(root) = self.inner.load().unwrap() {
            let owner = copy.inner.acquire(0).unwrap();
            copy.inner.commit(owner.epoch, owner.version, &root.body).unwrap();
        }
        Arc::new(copy)
    }

    /// The process is dead: until it is opened again, nothing is committed.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn changed<T>(&self, change: impl FnOnce(&MemoryManifest) -> Result<T, ManifestError>) -> Result<T, ManifestError> {
        let next = self.next.lock().take();
        let fate = if self.dead.load(Ordering::Relaxed) { Some(Fate::NotMade) } else { next };
        if fate != Some(Fate::NotMade) {
            let done = change(&self.inner);
            if fate.is_none() || done.is_err() {
                return done;
            }
        }
        Err(ManifestError::Io { operation: "syncing the folder", cause: "simulated".into() })
    }
}

impl Manifest for Doubtful {
    fn read(&self) -> Result<Option<Root>, ManifestError> {
        self.inner.read()
    }

    fn load(&self) -> Result<Option<Root>, ManifestError> {
        self.inner.load()
    }

    fn acquire(&self, above: u64) -> Result<Root, ManifestError> {
        self.changed(|inner| inner.acquire(above))
    }

    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        let held = self.held.lock().take();
        if let Some((begin, end)) = held {
            let _ = (begin.send(()), end.recv());
        }
        self.changed(|inner| inner.commit(epoch, expected, body))
    }
}
