//! Ordered, durable frames: the only place where anything becomes durable.
//!
//! Vocabulary. A *frame* is one payload with its header: callers append and read frames. A *batch* becomes durable by
//! one write and one sync: a batch header and the frames that gathered while the batch before was being synced. A
//! *segment* is one file with a *number* of its own. *Accepted* means ordered and in memory; *written* means that the
//! operating system has it, so that it survives the process; *durable* means that it survives loss of power.

#[cfg(feature = "testing")]
pub mod contract;
mod faults;
mod format;
mod memory;
mod options;
#[cfg(feature = "testing")]
pub mod owners;
mod sequencer;
mod sink;

#[cfg(any(feature = "faults", feature = "testing"))]
pub use faults::Faults;
pub use format::known_durable;
pub use memory::MemoryJournal;
pub use options::Options;
pub use sequencer::Sequencer;
pub use sequencer::pinned::PinnedBuffer;
pub use sequencer::pool::WriterPool;
pub use sequencer::take_over::{TakeOverError, read_through};
pub use sink::file::{
    Discarded, FileJournal, FileSink, Held, HeldSegments, Inspected, Inspection, JournalDamage, OpenError, Opened,
    Report, SegmentFile, Tail, TailFiles, fuzz_segment, verify,
};
pub use sink::{Fenced, Kept, Piece, Sink, SinkBatch, SinkError, Survey, Term};
#[cfg(feature = "testing")]
pub use sink::{MemorySink, Network};

use bytes::Bytes;
use std::sync::Arc;
use thalweg_base::{Durability, Lsn, Reached, Ticket};
use thiserror::Error;

/// The range that an owner expects its journal to hold when it opens it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The first frame that an index needs stands here or later.
    pub floor: Lsn,
    /// The journal was durable up to here: damage below is corruption, and so is an end before it.
    pub known_durable: Lsn,
    /// The term in which the journal was open last ([`Journal::term`]): if all its segments are of earlier terms, some
    /// are missing.
    pub term: u64,
}

/// The place of one frame: `lsn` of its first byte and the length of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameRef {
    /// The position of the frame's first byte.
    pub lsn: Lsn,
    /// The length of its payload in bytes, without the header.
    pub len: u32,
}

impl FrameRef {
    /// The position just after the frame.
    #[must_use]
    pub fn end(self) -> Lsn {
        self.lsn.plus(format::FRAME_HEADER as u64 + u64::from(self.len))
    }
}

/// An accepted frame. It is durable once [`Journal::durable`] has reached `end`: that is the append's ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The place of the frame.
    pub frame: FrameRef,
    /// The position just after the frame.
    pub end: Lsn,
}

/// The purpose of a frame: whether it may use the space that is held back for a full disk or a full journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// New data of users: refused first.
    User,
    /// Frames that free space or only move it: deletes, checkpoints, settling. They may use the reserve.
    Upkeep,
}

/// Why a frame was not accepted. Nothing of it is in the journal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The payload has `len` bytes, more than [`Options::max_payload`].
    #[error("a frame of {len} bytes is over the limit of {max}")]
    TooLarge { len: usize, max: usize },
    /// The journal would hold more than [`Options::bound_bytes`]. A retry after settling may succeed.
    #[error(
        "the journal holds {held} of at most {bound} bytes that are not settled yet; retry when settling has caught up"
    )]
    Full { held: u64, bound: u64 },
    /// The disk is full. A retry may succeed when there is space.
    #[error("the disk has no space for another journal segment; delete data or add space")]
    NoSpace,
    /// The journal has stopped.
    #[error("{0}")]
    Poisoned(#[from] Poisoned),
}

/// A write or sync failed: it is unknown which frames above the durable position are durable, so the journal accepts
/// nothing until a restart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the journal stopped after a failed {operation}: {cause}; restart after the cause is mended")]
pub struct Poisoned {
    /// The operation of the sink that failed.
    pub operation: &'static str,
    /// The sink's error.
    pub cause: String,
    /// Set if a later owner has taken the journal over: then no restart of this owner helps.
    pub fenced: Option<Fenced>,
}

impl Poisoned {
    /// A journal that stopped for a cause of its owner's own.
    #[must_use]
    pub fn new(operation: &'static str, cause: impl Into<String>) -> Self {
        Self { operation, cause: cause.into(), fenced: None }
    }
}

/// Why something that was accepted is not durable yet, or never will be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WaitError {
    /// The frame stays accepted, and becomes durable when there is space again.
    #[error("accepted frames wait for space on the disk for another journal segment; delete data or add space")]
    NoSpace,
    /// The journal has stopped: the frame may or may not be durable.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a frame cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The position is below the trim point.
    #[error("journal position {0} is trimmed")]
    Trimmed(Lsn),
    /// The frame is accepted, and not in the sink yet.
    #[error("journal frame at {0} is not written yet")]
    NotWritten(Lsn),
    /// The bytes at the position are not those of a frame of this length. Final.
    #[error("journal frame at {at} is damaged: {what}")]
    Corrupt { at: Lsn, what: String },
    /// The device failed. A retry may succeed.
    #[error("reading the journal at {at} failed: {cause}")]
    Io { at: Lsn, cause: String },
}

/// Counters for metrics; all monotonic except `held_bytes` and `window_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Frames accepted.
    pub frames: u64,
    /// Batches written.
    pub batches: u64,
    /// Bytes written to segments, headers included.
    pub written_bytes: u64,
    /// Syncs of the sink.
    pub syncs: u64,
    /// Time spent in sync, in nanoseconds. Zero where the journal has no clock (simulation).
    pub sync_nanos: u64,
    /// Bytes from the trim point to the end.
    pub held_bytes: u64,
    /// Bytes of the journal's end in memory.
    pub window_bytes: u64,
}

/// An ordered sequence of frames that becomes durable in order.
///
/// `append` never waits for a device. A caller of `append` calls [`Journal::kick`] once per round of work, so that a
/// batch holds the frames of one round. A batch to which nothing more can be added is written without a kick, and so is
/// everything before an append that is refused for want of space: its caller may try again until there is space. A
/// subscriber learns of every advance of the durable position, and of the written one if anybody waits for it.
pub trait Journal: Send + Sync + 'static {
    /// Accepts one frame whose payload is the concatenation of `parts`. A durable one is synced as soon as possible; a
    /// buffered one is written as soon as possible, and synced with the next durable one or after some time.
    fn append_as(&self, durability: Durability, class: Class, parts: &[&[u8]]) -> Result<Appended, AppendError>;

    /// Accepts one durable frame.
    fn append(&self, class: Class, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        self.append_as(Durability::Durable, class, parts)
    }

    /// Has the writer start on accepted frames, if it is idle.
    fn kick(&self);

    /// Everything below is durable. Never goes back.
    fn durable(&self) -> Lsn;

    /// Everything below is written. Never goes back, and is never behind `durable`.
    fn written(&self) -> Lsn;

    /// The written and the durable position, as of one moment.
    fn reached(&self) -> Reached {
        // In this order, so that `written` is never behind `durable`.
        let durable = self.durable();
        Reached { written: self.written(), durable }
    }

    /// The position just after the last accepted frame. The next frame stands here or, where a header comes between, a
    /// little further on; no later frame stands before it. Everything accepted is durable once `durable` has reached
    /// it.
    fn end(&self) -> Lsn;

    /// The position just after the last durable frame; only buffered frames follow, whose acknowledgements wait for no
    /// sync.
    fn durable_end(&self) -> Lsn {
        self.end()
    }

    /// Set once a write or sync has failed.
    fn poisoned(&self) -> Option<Poisoned>;

    /// `f` is called on the thread that writes, after every advance of `durable`, after every advance of `written` over
    /// a buffered frame, once on poisoning, and when accepted frames begin to wait for space. It must not block.
    fn subscribe(&self, f: Arc<dyn Fn() + Send + Sync>);

    /// Kicks the writer, and blocks until the journal is durable up to `upto`, whatever was promised to users. Callers
    /// write something elsewhere then, which must not be ahead of the journal. Never call it on a reactor.
    fn wait(&self, upto: Lsn) -> Result<(), Poisoned>;

    /// Like [`Self::wait`], for callers that free space when they go on: ends with [`WaitError::NoSpace`] when frames
    /// below `upto` have no segment to go to and an attempt to make one failed after this call began.
    fn wait_unless_full(&self, upto: Lsn) -> Result<(), WaitError> {
        Ok(self.wait(upto)?)
    }

    /// The payloads of frames, in the order asked, if none of them needs a device; each is checked. Frames need not be
    /// durable, but must be written: one still in the filling batch is `NotWritten`.
    fn try_read(&self, frames: &[FrameRef]) -> Option<Result<Vec<Bytes>, ReadError>>;

    /// Like `try_read`, but may wait for a device. A local journal blocks the caller and returns a resolved ticket:
    /// call it from an I/O thread.
    fn read(&self, frames: &[FrameRef]) -> Ticket<Result<Vec<Bytes>, ReadError>>;

    /// Frees everything below `upto`. Space comes back segment by segment, never under a reader.
    fn trim(&self, upto: Lsn);

    /// The oldest position that is still readable.
    fn start(&self) -> Lsn;

    /// Bytes of buffers that readers' payloads keep in memory, beyond the journal's own window: a payload keeps its
    /// whole batch, or the whole read that it came with.
    fn pinned_bytes(&self) -> u64 {
        0
    }

    /// The buffer that a payload, or a part of one, keeps in memory; `None` if it keeps nothing but itself.
    fn buffer_of(&self, part: &[u8]) -> Option<PinnedBuffer> {
        let _ = part;
        None
    }

    /// The position of the oldest frames that the next opening would read, needed or not.
    fn oldest(&self) -> Lsn {
        self.start()
    }

    /// The file that a position stands in, and its byte there; `None` where there are no files.
    fn file_of(&self, at: Lsn) -> Option<(String, u64)> {
        let _ = at;
        None
    }

    /// The next step of an inspection, which searches for damage in the part of the journal that was synced when it
    /// began; `None` at its end, and for a journal that is on no device. Waits for the device: call it from an I/O
    /// thread.
    fn inspect(&self, inspection: &mut Inspection) -> Result<Option<Inspected>, ReadError> {
        let _ = inspection;
        Ok(None)
    }

    /// The number of this opening of the journal, larger than that of any earlier one, if the journal survives the
    /// process.
    fn term(&self) -> u64;

    /// Counters since the start.
    fn stats(&self) -> JournalStats;
}
