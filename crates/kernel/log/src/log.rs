//! One log: its state while it is awake, and the compact record that it becomes at rest and in checkpoints.

use crate::attachment::Attachment;
use crate::frame::{self, Ancestor};
use std::collections::VecDeque;
use thalweg_base::{DecodeError, Decoder, Durability, Encoder, LogId, Lsn, Offset, Reached};
use thalweg_journal::FrameRef;

/// Content that is not settled yet: it stands in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: Offset,
    pub(crate) frame: FrameRef,
}

/// A log that is awake.
pub(crate) struct Log<A> {
    pub(crate) id: LogId,
    pub(crate) name: Box<str>,
    /// The earliest position that its own readers may read.
    pub(crate) start: Offset,
    /// The position of the next append.
    pub(crate) tail: Offset,
    /// Content below stands in runs, content from here on in `pieces`.
    pub(crate) settled: Offset,
    /// Content in the journal, in order; the first piece starts at `settled`.
    pub(crate) pieces: VecDeque<Piece>,
    /// Forks or references may need the content below, even if it is before `start`.
    pub(crate) pinned: Offset,
    /// The ancestors of a fork, oldest first, and where their content ends in it.
    pub(crate) lineage: Box<[Ancestor]>,
    /// End of the frame that created it, zero if that was before the last start.
    pub(crate) created: Lsn,
    /// End of the last frame that changed it.
    pub(crate) changed: Lsn,
    /// End of the last durable frame (not a buffered one) that changed it: while the journal is not durable up to here,
    /// every answer about the log waits for that.
    pub(crate) durable_end: Lsn,
    /// The directory does not know its present state.
    pub(crate) dirty: bool,
    /// The log is in its shard's list of active logs.
    pub(crate) active: bool,
    pub(crate) attachment: A,
}

impl<A: Attachment> Log<A> {
    /// The durability that acknowledgements promise; `unsaid` is that of logs that do not say so themselves.
    pub(crate) fn durability(&self, unsaid: Durability) -> Durability {
        self.attachment.durability().unwrap_or(unsaid)
    }

    /// The least durability of a frame that touches the log: while a durable frame is pending, all later ones are
    /// durable, so that an answer waits for one position.
    pub(crate) fn frame_durability(&self, unsaid: Durability, reached: Reached) -> Durability {
        if self.durable_end > reached.durable { Durability::Durable } else { self.durability(unsaid) }
    }

    /// The end of the content that readers may see: that of frames below `reached`, the durable or the written
    /// position, as the log promises. So it is the start of the first piece whose frame is above. The log and the
    /// content of its creating frame become visible together: every answer about the log waits for that frame.
    pub(crate) fn published(&self, reached: Lsn) -> Offset {
        if self.changed <= reached {
            return self.tail;
        }
        let visible = reached.max(self.created);
        let first = self.pieces.partition_point(|piece| piece.frame.lsn < visible);
        self.pieces.get(first).map_or(self.tail, |piece| piece.start)
    }

    /// The end of settled content, once everything in the journal below `floor` is settled.
    pub(crate) fn settled_at(&self, floor: Lsn) -> Offset {
        let first = self.pieces.partition_point(|piece| piece.frame.lsn < floor);
        self.pieces.get(first).map_or(self.tail, |piece| piece.start)
    }

    /// The pieces that stand below `floor` in the journal.
    pub(crate) fn pieces_below(&self, floor: Lsn) -> impl Iterator<Item = Piece> + '_ {
        self.pieces.iter().copied().take_while(move |piece| piece.frame.lsn < floor)
    }

    pub(crate) fn drop_pieces_below(&mut self, floor: Lsn) {
        self.settled = self.settled_at(floor);
        let first = self.pieces.partition_point(|piece| piece.frame.lsn < floor);
        self.pieces.drain(..first);
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
    }

    /// Whether none of its state is only in memory or only in the journal.
    pub(crate) fn may_rest(&self, durable: Lsn) -> bool {
        !self.dirty && self.pieces.is_empty() && self.changed <= durable && self.attachment.may_rest(durable)
    }

    /// The log's record, as it is true once everything in the journal below `floor` is settled.
    pub(crate) fn record(&self, floor: Lsn) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.name.len() + 64);
        Head {
            name: &self.name,
            start: self.start,
            tail: self.tail,
            settled: self.settled_at(floor),
            pinned: self.pinned,
            changed: self.changed,
        }
        .encode(&mut out);
        frame::put_lineage(&self.lineage, &mut out);
        self.attachment.encode(&mut out);
        out
    }

    pub(crate) fn from_record(id: LogId, record: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(record);
        let head = Head::decode(&mut d)?;
        let lineage = frame::lineage(&mut d)?;
        Ok(Self {
            id,
            name: head.name.into(),
            start: head.start,
            tail: head.tail,
            settled: head.settled,
            pieces: VecDeque::new(),
            pinned: head.pinned,
            lineage,
            created: Lsn::ZERO,
            changed: head.changed,
            durable_end: Lsn::ZERO,
            dirty: false,
            active: false,
            attachment: A::decode(d.rest())?,
        })
    }
}

/// The fixed part of a record. Positions are coded as distances, most of which are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    pub(crate) name: &'a str,
    pub(crate) start: Offset,
    pub(crate) tail: Offset,
    pub(crate) settled: Offset,
    pub(crate) pinned: Offset,
    pub(crate) changed: Lsn,
}

impl<'a> Head<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { name, start, tail, settled, .. } = self;
        assert!(start <= tail && settled <= tail, "log {name} from {start} to {tail} is settled up to {settled}");
        out.put_bytes(self.name.as_bytes());
        out.put_varint(self.tail.0);
        out.put_varint(self.tail.since(self.settled));
        out.put_varint(self.start.0);
        out.put_varint(self.pinned.0);
        out.put_varint(self.changed.0);
    }

    pub(crate) fn decode(d: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        let name = d.str()?;
        let tail = d.varint()?;
        let settled = tail.checked_sub(d.varint()?).ok_or(DecodeError::Range("settled"))?;
        let (start, pinned, changed) = (d.varint()?, d.varint()?, d.varint()?);
        if start > tail {
            return Err(DecodeError::Range("start"));
        }
        Ok(Self {
            name,
            start: Offset(start),
            tail: Offset(tail),
            settled: Offset(settled),
            pinned: Offset(pinned),
            changed: Lsn(changed),
        })
    }
}

/// The name of a record, without decoding the rest.
pub(crate) fn record_name(record: &[u8]) -> &[u8] {
    Decoder::new(record).bytes().unwrap_or(&[])
}
