//! The batch that is filling, and those that wait for the writer.
//!
//! A frame's checksum needs its position, which the append assigns: a frame that does not fit the rest of the extent
//! opens a batch in the next one, whose base is where this one ends. The lock around a `Fill` is never held over IO.

use crate::format::{BATCH_HEADER, BatchHeader, FRAME_HEADER, Seal, frame_header};
use crate::options::Options;
use crate::{Appended, FrameRef};
use std::collections::VecDeque;
use thalweg_base::{Crc, Durability, Lsn};

pub(crate) struct Fill {
    /// The seal of every batch that this opening of the journal fills.
    seal: Seal,
    /// The base of the extent that batches go to now, and how many bytes of them fit.
    base: Lsn,
    room: u64,
    /// The extent's number, because its base is not unique: an extent without batches has the base of the one behind
    /// it.
    extent: u64,
    /// The position of the next batch.
    next: Lsn,
    /// Just after the last frame, and the last durable one.
    end: Lsn,
    urgent: Lsn,
    open: Option<Batch>,
    waiting: VecDeque<Batch>,
    pub(crate) closed: bool,
    /// The next batch will hardly be larger: the largest of the last ones, forgotten slowly.
    guess: usize,
}

pub(crate) struct Batch {
    /// The number of its extent. It begins the extent if it is the first one of it.
    pub(crate) extent: u64,
    pub(crate) lsn: Lsn,
    pub(crate) frames: u32,
    /// Just after the last durable frame in it; zero if there is none.
    pub(crate) urgent: Lsn,
    /// The batch has a buffered frame, whose acknowledgement waits until the batch is written.
    pub(crate) early: bool,
    bytes: Vec<u8>,
}

impl Batch {
    pub(crate) fn end(&self) -> Lsn {
        self.lsn.plus(self.bytes.len() as u64)
    }

    /// The batch's bytes, with its header in place.
    pub(crate) fn sealed(mut self, seal: Seal, known_durable: Lsn) -> Vec<u8> {
        let header = BatchHeader { frames: self.frames, bytes: self.bytes.len() as u32, known_durable };
        self.bytes[..BATCH_HEADER].copy_from_slice(&header.encode(seal, self.lsn));
        self.bytes
    }
}

impl Fill {
    /// Goes on at the base of an empty extent with room for so many bytes of batches.
    pub(crate) fn new(seal: Seal, base: Lsn, room: u64) -> Self {
        Self {
            seal,
            base,
            room,
            extent: 0,
            next: base,
            end: base,
            urgent: Lsn::ZERO,
            open: None,
            waiting: VecDeque::new(),
            closed: false,
            guess: 0,
        }
    }

    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    pub(crate) fn durable_end(&self) -> Lsn {
        self.urgent
    }

    /// The position of the next batch, or the end of the open one.
    pub(crate) fn head(&self) -> Lsn {
        self.next
    }

    fn fits(&self, bytes: usize) -> bool {
        self.next.since(self.base).saturating_add(bytes as u64) <= self.room
    }

    /// Whether a frame of `len` bytes needs another extent than the one in use.
    pub(crate) fn needs_extent(&self, len: usize, options: &Options) -> bool {
        let frame = FRAME_HEADER + len;
        let opens = self.open.as_ref().is_none_or(|b| b.bytes.len() >= options.batch_bytes);
        !self.fits(if opens { frame + BATCH_HEADER } else { frame })
    }

    /// The next batch opens an extent.
    pub(crate) fn roll(&mut self, room: u64) {
        self.waiting.extend(self.open.take());
        (self.base, self.room) = (self.next, room);
        self.extent += 1;
    }

    /// Accepts a frame, which must fit. `payload` is the CRC state after its payload.
    pub(crate) fn append(
        &mut self,
        durability: Durability,
        parts: &[&[u8]],
        len: usize,
        payload: Crc,
        options: &Options,
    ) -> Appended {
        if self.open.as_ref().is_some_and(|b| b.bytes.len() >= options.batch_bytes) {
            self.waiting.extend(self.open.take());
        }
        let (extent, start) = (self.extent, self.next);
        let guess = self.guess.max(BATCH_HEADER + FRAME_HEADER + len);
        let batch = self.open.get_or_insert_with(|| {
            let mut bytes = Vec::with_capacity(guess);
            bytes.resize(BATCH_HEADER, 0);
            Batch { extent, lsn: start, frames: 0, urgent: Lsn::ZERO, early: false, bytes }
        });
        let lsn = batch.end();
        let header = frame_header(payload, len as u32, self.seal, lsn);
        batch.bytes.extend_from_slice(&header);
        for part in parts {
            batch.bytes.extend_from_slice(part);
        }
        batch.frames += 1;
        self.next = batch.end();
        self.end = self.next;
        match durability {
            Durability::Buffered => batch.early = true,
            Durability::Durable => (batch.urgent, self.urgent) = (self.end, self.end),
        }
        Appended { frame: FrameRef { lsn, len: len as u32 }, end: self.end }
    }

    /// The oldest batch that is not written.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        let batch = self.waiting.pop_front().or_else(|| self.open.take())?;
        self.guess = batch.bytes.len().max(self.guess - self.guess / 8).min(1 << 20);
        Some(batch)
    }

    /// Returns a batch of [`Fill::take`] that the writer cannot write now.
    pub(crate) fn put_back(&mut self, batch: Batch) {
        self.waiting.push_front(batch);
    }

    /// How many batches nothing more is added to.
    pub(crate) fn whole_batches(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }

    /// The position of a batch without frames, if nothing waits and the extent that was opened last is still in use.
    /// Each extent keeps room for one mark beyond the bound of frames.
    pub(crate) fn mark(&mut self, extent: u64) -> Option<Lsn> {
        let at = self.next;
        let end = at.since(self.base).saturating_add(BATCH_HEADER as u64);
        let is_possible = self.is_empty() && self.extent == extent && end <= self.room + BATCH_HEADER as u64;
        is_possible.then(|| {
            self.next = at.plus(BATCH_HEADER as u64);
            at
        })
    }
}
