//! Reading: from a position to the end of its chunk.
//!
//! A log's content lies in up to three places: the part that a fork inherited with its ancestors, the settled part in
//! runs, the rest in journal frames. A read takes a snapshot of where its range lies, then fetches. If settling or
//! merging has moved the content by then, the fetch finds its place gone and starts over with a new snapshot.
//!
//! A read is a state machine ([`attempt`]): a step goes as far as the data at hand allows, asks for the data that the
//! read lacks, and gives a ticket for it. The next step goes on from there. [`walk`] has the place in lineage and runs,
//! [`frames`] the place in the journal; [`chunk`] and [`seek`] are the goals of walks; [`asks`] has the requests to
//! storage and journal that are under way; [`arrivals`] waits for frames that are not written. The same machine serves
//! callers that must not wait, which try one step, and callers that may block.
//!
//! Chunks end by content alone: at the first message boundary at or after the next multiple of `chunk_bytes`. So all
//! readers of one position get the same bytes, before and after settling, on a fork, after a restart.

mod arrivals;
mod asks;
mod attempt;
mod chunk;
mod damaged;
mod frames;
mod seek;
mod snapshot;
mod stop;
mod walk;

pub(crate) use arrivals::Arrivals;

use crate::attachment::Attachment;
use crate::error::ReadError;
use crate::logs::{Logs, ReadFrom};
use asks::Mode;
use attempt::Attempts;
use bytes::Bytes;
use chunk::{Chunks, Part};
use seek::{Boundary, ChunkEnd, Distance};
use thalweg_base::{LogId, Offset, Step};
use thiserror::Error;

/// The result of a read: whole messages, except where a fork cut its last inherited one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The content, in parts that concatenate.
    pub parts: Vec<Bytes>,
    /// The start of the next read.
    pub end: Offset,
}

impl Chunk {
    /// The length of the content in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// A distance from a message boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// This many messages.
    Messages(u64),
    /// This many bytes, at most up to the next message boundary.
    Bytes(u64),
}

/// Why a position at a distance cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SeekError {
    /// The distance goes past the next boundary, or past the tail.
    #[error("the distance goes past the next boundary or the tail")]
    Overshoot,
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// A chunk that is being read. Steps may block for a local device, and for nothing else: take them on an I/O thread.
pub struct ChunkRead(Attempts<Chunks>);

impl ChunkRead {
    /// A read at its first step.
    #[must_use]
    pub fn new(from: ReadFrom) -> Self {
        Self(Attempts::new(Chunks::new(from), Mode::Ask))
    }

    /// Takes a step, see [`Step`]; done, it has the chunk.
    pub fn step<A: Attachment>(&mut self, logs: &Logs<A>) -> Step<Result<Chunk, ReadError>> {
        self.0.step(logs)
    }
}

/// A search for the end of a chunk: its target or the first message boundary after it, or the end of the log. Steps are
/// as those of a [`ChunkRead`].
pub struct EndRead(Attempts<ChunkEnd>);

impl EndRead {
    /// A search at its first step.
    #[must_use]
    pub fn new(from: ReadFrom) -> Self {
        Self(Attempts::new(ChunkEnd::new(from), Mode::Ask))
    }

    /// Takes a step; done, it has the chunk's end.
    pub fn step<A: Attachment>(&mut self, logs: &Logs<A>) -> Step<Result<Offset, ReadError>> {
        self.0.step(logs)
    }
}

/// A range of a log, being read: a chunk in pieces. Steps are as those of a [`ChunkRead`].
pub struct PieceRead(Attempts<Chunks>);

impl PieceRead {
    /// The first piece of a chunk begins at a message boundary.
    #[must_use]
    pub fn first(piece: ReadFrom) -> Self {
        Self(Attempts::new(Chunks::of(piece, Part::First), Mode::Ask))
    }

    /// A later one begins anywhere.
    #[must_use]
    pub fn later(piece: ReadFrom) -> Self {
        Self(Attempts::new(Chunks::of(piece, Part::Later), Mode::Ask))
    }

    /// Takes a step; done, it has the piece.
    pub fn step<A: Attachment>(&mut self, logs: &Logs<A>) -> Step<Result<Chunk, ReadError>> {
        self.0.step(logs)
    }
}

/// A search for the position at a distance. Steps are as those of a [`ChunkRead`].
pub struct SeekRead(Attempts<Distance>);

impl SeekRead {
    /// See [`Logs::seek`].
    #[must_use]
    pub fn new(log: LogId, from: Offset, upto: Offset, by: Seek) -> Self {
        Self(Attempts::new(Distance::new(log, from, upto, by), Mode::Ask))
    }

    /// Takes a step; done, it has the position.
    pub fn step<A: Attachment>(&mut self, logs: &Logs<A>) -> Step<Result<Offset, SeekError>> {
        self.0.step(logs).map(sought)
    }

    /// How many maps of objects it holds. For tests.
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn maps(&self) -> usize {
        self.0.maps()
    }
}

/// A search for a message boundary. Steps are as those of a [`ChunkRead`].
pub struct BoundaryRead(Attempts<Boundary>);

impl BoundaryRead {
    /// See [`Logs::boundary`].
    #[must_use]
    pub fn new(log: LogId, at: Offset, upto: Offset) -> Self {
        Self(Attempts::new(Boundary::new(log, at, upto), Mode::Ask))
    }

    /// Takes a step; done, it has the boundary.
    pub fn step<A: Attachment>(&mut self, logs: &Logs<A>) -> Step<Result<Offset, ReadError>> {
        self.0.step(logs)
    }
}

fn sought(found: Result<Option<Offset>, ReadError>) -> Result<Offset, SeekError> {
    found?.ok_or(SeekError::Overshoot)
}

impl<A: Attachment> Logs<A> {
    /// The chunk, if it was read again and again lately.
    pub fn recall(&self, from: ReadFrom) -> Option<Chunk> {
        self.chunk_cache.get(from)
    }

    /// How many bytes a read may have to gather: its whole range, less the beginning that the chunk cache has.
    pub fn to_gather(&self, from: ReadFrom) -> u64 {
        let kept = self.chunk_cache.first_part(from);
        from.upto.since(from.from) - kept.map_or(0, |first| first.len() as u64)
    }

    /// Notes that the chunk is asked for; whether it was lately, so that it is worth keeping.
    pub fn is_asked_again(&self, from: ReadFrom) -> bool {
        let bytes = from.upto.since(from.from).min(self.options.chunk_bytes);
        self.chunk_cache.asked_before(from, bytes as usize)
    }

    /// Reads a chunk if no device has to be waited for; else `None`: then take the steps of a [`ChunkRead`] on an I/O
    /// thread.
    pub fn try_read(&self, from: ReadFrom) -> Option<Result<Chunk, ReadError>> {
        Attempts::new(Chunks::new(from), Mode::NoWait).try_once(self)
    }

    /// Reads a chunk. Blocks, also for a storage that is far away.
    pub fn read(&self, from: ReadFrom) -> Result<Chunk, ReadError> {
        Attempts::new(Chunks::new(from), Mode::Block).block(self)
    }

    /// A chunk that several readers get at once, in one piece; later readers find it by [`Logs::recall`].
    #[must_use]
    pub fn share(&self, from: ReadFrom, chunk: Chunk) -> Chunk {
        // The read itself may have kept it.
        self.chunk_cache.get(from).unwrap_or_else(|| self.chunk_cache.keep(from, chunk))
    }

    /// Every chunk that is kept for several readers goes through `prepare`, which returns the same bytes: in a form
    /// that costs less to send, perhaps. Only the first call has an effect.
    pub fn prepare_shared(&self, prepare: impl Fn(Bytes) -> Bytes + Send + Sync + 'static) {
        let _ = self.chunk_cache.prepare.set(Box::new(prepare));
    }

    /// The place that the chunk from `from` on ends at, or at the first message boundary after it.
    #[must_use]
    pub fn chunk_target(&self, from: Offset) -> Offset {
        let chunk = self.options.chunk_bytes;
        Offset((from.0 / chunk + 1).saturating_mul(chunk))
    }

    /// How much memory answers hold that are not sent yet, and the cache that they share: buffers that reads made or
    /// wait for, and batches of the journal of which they have a part.
    pub fn held_bytes(&self) -> u64 {
        self.chunk_cache.held_bytes.bytes() + self.journal.pinned_bytes()
    }

    /// How many reads wait until the journal has written their frames.
    pub fn reads_waiting(&self) -> usize {
        self.arrivals.len()
    }

    /// Counts a buffer that was made from content of a read, such as an encoded answer.
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        self.chunk_cache.held_bytes.count(bytes)
    }

    /// The position at a distance from a message boundary, if no device has to be waited for; else `None`: then take
    /// the steps of a [`SeekRead`] on an I/O thread.
    pub fn try_seek(&self, log: LogId, from: Offset, upto: Offset, by: Seek) -> Option<Result<Offset, SeekError>> {
        Attempts::new(Distance::new(log, from, upto, by), Mode::NoWait).try_once(self).map(sought)
    }

    /// The position at a distance from a message boundary. Blocks.
    pub fn seek(&self, log: LogId, from: Offset, upto: Offset, by: Seek) -> Result<Offset, SeekError> {
        sought(Attempts::new(Distance::new(log, from, upto, by), Mode::Block).block(self))
    }

    /// The last message boundary that is not after `at`, which lies between the log's start and `upto`, a published
    /// tail. Blocks.
    pub fn boundary(&self, log: LogId, at: Offset, upto: Offset) -> Result<Offset, ReadError> {
        Attempts::new(Boundary::new(log, at, upto), Mode::Block).block(self)
    }
}
