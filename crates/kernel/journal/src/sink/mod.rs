//! The half of a journal below its sequencer: it makes batches durable.
//!
//! A *sink* keeps batches at the positions that the sequencer gave them. It knows nothing of frames, readers or
//! waiters, and publishes nothing. [`Kept`] says which failures a *kept* batch survives. An *extent* is a piece of the
//! sink that batches are packed into; a sink without extents is one extent without end.
//!
//! Two kinds of sinks exist, told apart by [`Sink::LOCAL`]:
//!
//! - A *local* sink (files) answers an append at once with [`Kept::Written`]: the batch survives the process, and
//!   [`Sink::sync`] makes everything written survive loss of power. The sequencer writes batches through on the threads
//!   that made them, and has one sync under way at a time.
//! - A *remote* sink answers an append later with [`Kept::Durable`]. Several appends are in flight, up to
//!   [`Sink::in_flight_max`], and their answers may come in any order.
//!
//! The sequencer acknowledges a batch only after every batch before it is kept, so a hole in the sink is never below an
//! acknowledged position.

pub(crate) mod file;
#[cfg(feature = "testing")]
mod memory;

#[cfg(feature = "testing")]
pub use memory::{MemorySink, Network};

use crate::format::Seal;
use crate::{Class, Inspected, Inspection};
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{Lsn, Ticket};
use thiserror::Error;

/// One opening of a journal: its number, larger than that of any opening before, and a random salt. Both are part of
/// every checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The opening's number, from 1.
    pub number: u64,
    /// Random for each opening.
    pub salt: u64,
}

impl Term {
    pub(crate) fn seal(self) -> Seal {
        Seal::of_term(self.number, self.salt)
    }
}

/// A later owner has fenced the sink: the owner of `term` can append nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the journal belongs to the owner of term {by}; the owner of term {term} must open it again")]
pub struct Fenced {
    /// The deposed owner's term.
    pub term: u64,
    /// The later owner's term.
    pub by: u64,
}

/// A batch with its place. The bytes begin with its header and are the same in every sink: see
/// `docs/format/journal.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkBatch {
    /// The position of the batch's header.
    pub at: Lsn,
    /// The opening that wrote the batch.
    pub term: Term,
    /// The batch's header and frames.
    pub bytes: Bytes,
}

impl SinkBatch {
    /// The position just after the batch.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.at.plus(self.bytes.len() as u64)
    }
}

/// The failures that an appended batch survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The end of the process. [`Sink::sync`] makes it durable.
    Written,
    /// Loss of power, or another failure that the sink is made to survive.
    Durable,
}

/// Why a call of a sink failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SinkError {
    /// Final: nothing of this owner is kept from here on, and this batch was not.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// No extent could be opened. The same call may succeed when there is space. No append is answered so: an extent
    /// has its space.
    #[error("the sink has no space")]
    NoSpace,
    /// The sink does not know whether the batch is kept, or will be. The same batch may be appended again.
    #[error("the outcome of an append is unknown: {cause}")]
    Unknown { cause: String },
    /// Final for this opening: batches in flight may or may not be kept.
    #[error("{operation} failed: {cause}")]
    Failed { operation: &'static str, cause: String },
    /// A read met a position that the sink has no bytes for.
    #[error("nothing is kept at {0}")]
    Missing(Lsn),
    /// A read met bytes that the device cannot give.
    #[error("the bytes at {at} cannot be read: {cause}")]
    Damaged { at: Lsn, cause: String },
}

impl SinkError {
    pub(crate) fn failed(operation: &'static str, cause: impl ToString) -> Self {
        Self::Failed { operation, cause: cause.to_string() }
    }
}

/// Bytes of one term that stand at a position. The bytes of each answer are its own: readers are charged for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The position of the first byte.
    pub at: Lsn,
    /// The bytes as they are stored.
    pub bytes: Bytes,
    pub(crate) seal: Seal,
}

impl Piece {
    /// Bytes at `at` that the opening `term` wrote.
    #[must_use]
    pub fn new(at: Lsn, term: Term, bytes: Bytes) -> Self {
        Self { at, bytes, seal: term.seal() }
    }

    /// The position just after the piece.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.at.plus(self.bytes.len() as u64)
    }
}

/// What a remote sink keeps beside the batches that follow each other: see [`Sink::survey`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Where the first batch begins that is kept; `None` if none is. A sink that was trimmed keeps the last one.
    pub first: Option<Lsn>,
    /// Where the last batch ends that is kept; 0 if none is.
    pub end: Lsn,
    /// The largest position that a batch behind the end says was durable when it was sent.
    pub known: Lsn,
}

/// Keeps batches. See the module for the two kinds.
pub trait Sink: Send + Sync + 'static {
    /// Whether an append answers at once with [`Kept::Written`].
    const LOCAL: bool;

    /// How many appends of a remote sink may be without an answer. At least 1.
    fn in_flight_max(&self) -> usize {
        1
    }

    /// Promises an extent with room for a batch of one frame with a payload of `len` bytes, behind the extents that
    /// were promised before: the bytes of batches that fit it. `None` if only the reserve is left and `class` may not
    /// use it, or nothing is left. Waits for no device: it may ask the operating system for the free space, which it
    /// knows.
    fn promise(&self, class: Class, len: usize) -> Option<u64> {
        let _ = (class, len);
        Some(u64::MAX)
    }

    /// Opens the extent that was promised first, at `base`. The caller has made everything below `base` durable. After
    /// [`SinkError::NoSpace`] the promise stands, and the call may be repeated.
    fn open_extent(&self, base: Lsn) -> Result<(), SinkError> {
        let _ = base;
        Ok(())
    }

    /// Keeps a batch.
    ///
    /// *Order.* The sequencer appends batches in the order of their positions, without holes. A remote sink may keep
    /// them in any order, and may keep a batch although it lost one before it.
    ///
    /// *Idempotence.* Appending the same bytes at the same position in the same term again succeeds and changes
    /// nothing, however often and however late. Other bytes at a position that holds some are refused with
    /// [`SinkError::Failed`]: nothing that is kept is ever replaced.
    ///
    /// *Unknown outcomes.* After [`SinkError::Unknown`] the batch may be kept, may never be, or may be kept later. The
    /// sequencer appends it again until the outcome is known. A sink gives this answer only after a time limit of its
    /// own, which paces the repetitions.
    ///
    /// *Failure.* After [`SinkError::Failed`] or [`SinkError::Fenced`] the sequencer stops for good. An answer must
    /// always come.
    fn append(&self, batch: SinkBatch) -> Ticket<Result<Kept, SinkError>>;

    /// Makes everything that was appended before this call durable, for a local sink. After an error it is unknown how
    /// much is durable.
    fn sync(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// The newest term that has left something; `None`: the sink knows nothing of terms. Changes nothing, so it may be asked
    /// before the sink is fenced: later the reader's own fence would be there.
    fn newest_term(&self) -> Ticket<Result<Option<u64>, SinkError>> {
        Ticket::ready(Ok(None))
    }

    /// Makes `term` the only one that may append. When the answer is there, no batch of an earlier term that is not
    /// kept yet will ever be, whenever it was sent. A term that is not above every other that fenced the sink or that a
    /// kept batch has is refused with [`SinkError::Fenced`], but for the very same term and salt again, which succeeds.
    fn fence(&self, term: Term) -> Ticket<Result<(), SinkError>>;

    /// The owner of `term` has fenced the sink, found what it needs, and cut off the rest: what nobody needs may go. Before
    /// this the sink removes nothing, because the owner may refuse what it finds.
    fn accept(&self, term: Term) -> Ticket<Result<(), SinkError>> {
        let _ = term;
        Ticket::ready(Ok(()))
    }

    /// Bytes of the range, in order and without a hole, from its first byte on. A sink may give more on either side
    /// than was asked for, and may stop before the end of the range, but not before its first byte;
    /// [`SinkError::Missing`] if that is not there. A remote sink gives whole batches. The bytes are not checked.
    fn read(&self, range: Range<Lsn>) -> Ticket<Result<Vec<Piece>, SinkError>>;

    /// The bytes that [`Self::read`] gives, if no device or network has to be waited for; else `None`.
    fn try_read(&self, range: Range<Lsn>) -> Option<Result<Vec<Piece>, SinkError>> {
        let _ = range;
        None
    }

    /// Nothing below `upto` is read again by the sequencer, and everything below `synced` is durable: the sink may free
    /// it, in its own time. Never waits.
    fn trim(&self, upto: Lsn, synced: Lsn);

    /// Removes everything at `from` and behind it, for the owner of `term`, which fenced the sink and has appended
    /// nothing. Only batches that no owner has acknowledged may stand there: those behind a hole, or whose owner died
    /// before it knew. When the answer is there, nothing of it is ever read again, and the owner may append at `from`.
    /// May be repeated.
    fn truncate(&self, from: Lsn, term: Term) -> Ticket<Result<(), SinkError>>;

    /// What is kept beside the batches that a take-over reads, up to `end`: it may show that these are not all. `None`: the
    /// sink knows nothing of that. For a sink that was fenced, or that is only read.
    fn survey(&self, end: Lsn) -> Ticket<Result<Option<Survey>, SinkError>> {
        let _ = end;
        Ticket::ready(Ok(None))
    }

    /// The position of the oldest bytes that the next opening would read, needed or not; `None` if that is where frames are
    /// readable from.
    fn oldest(&self) -> Option<Lsn> {
        None
    }

    /// The file that a position stands in, and its byte there.
    fn file_of(&self, at: Lsn) -> Option<(String, u64)> {
        let _ = at;
        None
    }

    /// The next step of a search for damage below `synced`: see [`crate::Journal::inspect`].
    fn inspect(&self, inspection: &mut Inspection, synced: Lsn) -> std::io::Result<Option<Inspected>> {
        let _ = (inspection, synced);
        Ok(None)
    }

    /// Bytes written beside the batches, since the opening.
    fn extra_bytes(&self) -> u64 {
        0
    }
}
