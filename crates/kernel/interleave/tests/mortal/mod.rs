//! Journal, storage and manifest of a process that may die: from then on nothing that it does has any effect.

use bytes::Bytes;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{Durability, Lsn, ObjectId, Ticket};
use thalweg_journal::{AppendError, Appended, Class, FrameRef, Journal, JournalStats, Poisoned, ReadError};
use thalweg_manifest::{Manifest, ManifestError, MemoryManifest, Root};
use thalweg_storage::{MemoryStorage, ObjectWriter, Storage, StorageError};

/// The state that survives the process.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    dead: Arc<AtomicBool>,
    storage: Arc<MemoryStorage>,
    manifest: MemoryManifest,
}

impl Disk {
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    pub(crate) fn live_again(&self) {
        self.dead.store(false, Ordering::SeqCst);
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(Mortal(self.clone()))
    }

    pub(crate) fn manifest(&self) -> Arc<dyn Manifest> {
        Arc::new(Mortal(self.clone()))
    }
}

struct Mortal(Disk);

fn dead(object: ObjectId) -> StorageError {
    StorageError::Io { object, operation: "writing", cause: "the process is dead".into() }
}

impl Storage for Mortal {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        if self.0.is_dead() { Err(dead(object)) } else { self.0.storage.create(object) }
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.0.storage.try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.0.storage.read(object, range)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.0.storage.len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        if self.0.is_dead() { Ok(()) } else { self.0.storage.remove(object) }
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.0.storage.list()
    }
}

impl Manifest for Mortal {
    fn read(&self) -> Result<Option<Root>, ManifestError> {
        self.0.manifest.read()
    }

    fn load(&self) -> Result<Option<Root>, ManifestError> {
        self.0.manifest.load()
    }

    fn acquire(&self, above: u64) -> Result<Root, ManifestError> {
        self.0.manifest.acquire(above)
    }

    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        if self.0.is_dead() {
            return Err(ManifestError::Io { operation: "writing", cause: "the process is dead".into() });
        }
        self.0.manifest.commit(epoch, expected, body)
    }
}

/// A journal that makes frames durable when a caller waits for them, and no others.
pub(crate) struct MortalJournal {
    disk: Disk,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    frames: BTreeMap<Lsn, Bytes>,
    end: Lsn,
    durable: Lsn,
    start: Lsn,
}

impl MortalJournal {
    pub(crate) fn new(disk: Disk) -> Arc<Self> {
        Arc::new(Self { disk, state: Mutex::new(State::default()) })
    }

    /// One that a restart has found.
    pub(crate) fn at(disk: Disk, frames: &[(Lsn, Bytes)], end: Lsn) -> Arc<Self> {
        let state = State { frames: frames.iter().cloned().collect(), end, durable: end, start: Lsn::ZERO };
        Arc::new(Self { disk, state: Mutex::new(state) })
    }

    fn state(&self) -> shuttle::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics and goes on")
    }

    pub(crate) fn sync(&self) {
        let mut state = self.state();
        if !self.disk.dead.load(Ordering::SeqCst) {
            state.durable = state.end;
        }
    }

    /// The frames that a crash leaves, and where they end: at least the durable ones, at most all.
    pub(crate) fn survivors(&self, all: bool) -> (Vec<(Lsn, Bytes)>, Lsn) {
        let state = self.state();
        let cut = if all { state.end } else { state.durable };
        (state.frames.range(..cut).map(|(lsn, bytes)| (*lsn, bytes.clone())).collect(), cut)
    }
}

fn stopped() -> Poisoned {
    Poisoned::new("sync", "the process is dead")
}

impl Journal for MortalJournal {
    fn append_as(&self, _: Durability, _: Class, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        if self.disk.is_dead() {
            return Err(stopped().into());
        }
        let mut state = self.state();
        let payload = Bytes::from(parts.concat());
        let frame = FrameRef { lsn: state.end, len: payload.len() as u32 };
        state.end = frame.end();
        state.frames.insert(frame.lsn, payload);
        Ok(Appended { frame, end: frame.end() })
    }

    fn kick(&self) {}

    fn durable(&self) -> Lsn {
        self.state().durable
    }

    fn written(&self) -> Lsn {
        self.state().end
    }

    fn end(&self) -> Lsn {
        self.state().end
    }

    fn poisoned(&self) -> Option<Poisoned> {
        None
    }

    fn subscribe(&self, _: Arc<dyn Fn() + Send + Sync>) {}

    fn wait(&self, upto: Lsn) -> Result<(), Poisoned> {
        if self.disk.is_dead() {
            return Err(stopped());
        }
        let mut state = self.state();
        assert!(upto <= state.end, "{upto} is waited for, {} is accepted", state.end);
        state.durable = state.durable.max(upto);
        Ok(())
    }

    fn try_read(&self, frames: &[FrameRef]) -> Option<Result<Vec<Bytes>, ReadError>> {
        Some(self.read(frames).wait())
    }

    fn read(&self, frames: &[FrameRef]) -> Ticket<Result<Vec<Bytes>, ReadError>> {
        let state = self.state();
        let one = |frame: &FrameRef| {
            if frame.lsn < state.start {
                return Err(ReadError::Trimmed(frame.lsn));
            }
            state.frames.get(&frame.lsn).cloned().ok_or(ReadError::NotWritten(frame.lsn))
        };
        Ticket::ready(frames.iter().map(one).collect())
    }

    fn trim(&self, upto: Lsn) {
        let mut state = self.state();
        if !self.disk.dead.load(Ordering::SeqCst) {
            state.start = state.start.max(upto);
            state.frames.retain(|lsn, _| *lsn >= upto);
        }
    }

    fn start(&self) -> Lsn {
        self.state().start
    }

    fn term(&self) -> u64 {
        1
    }

    fn stats(&self) -> JournalStats {
        JournalStats::default()
    }
}
