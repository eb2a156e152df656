//! Index blocks: entries in key order, under one checksum.
//!
//! A block is read from front to back: a log is stored as the distance to the one before, a start within the same log as the gap
//! to the end before, and data positions not at all, since data stands in the order of the entries.

use super::extent::{Entry, Place};
use crate::lengths::Lengths;
use thalweg_base::{DecodeError, Decoder, Encoder, LogId, ObjectId, Offset, crc};

pub(super) const CRC_BYTES: usize = 4;
/// A block is closed when it has grown so long. Only the last one of an object is shorter.
pub(super) const BYTES_MIN: usize = 4 << 10;
const DATA: u8 = 0;
const REFERENCE: u8 = 1;

/// Gathers the entries of one block.
#[derive(Default)]
pub(super) struct BlockBuilder {
    bytes: Vec<u8>,
    first: Option<(LogId, Offset)>,
    log: LogId,
    end: Offset,
}

impl BlockBuilder {
    /// Appends an entry. In the first one of a block, `data` is where the block's data starts in the object.
    pub(super) fn push(&mut self, entry: &Entry, data: u64) {
        if self.first.is_none() {
            self.first = Some((entry.log, entry.start));
            self.log = LogId::ZERO;
            self.end = Offset::ZERO;
            self.bytes.put_varint(data);
        }
        self.bytes.put_varint(entry.log.since(self.log));
        let before = if entry.log == self.log { self.end } else { Offset::ZERO };
        self.bytes.put_varint(entry.start.since(before));
        match entry.place {
            Place::Data { .. } => self.bytes.put_u8(DATA),
            Place::Reference { source, from } => {
                self.bytes.put_u8(REFERENCE);
                self.bytes.put_varint(source.0);
                self.bytes.put_varint(from.0);
            }
        }
        entry.lengths.encode(&mut self.bytes);
        self.log = entry.log;
        self.end = entry.end();
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The key of its first entry and its bytes, if there are any; it is empty again afterwards.
    pub(super) fn take(&mut self) -> Option<((LogId, Offset), Vec<u8>)> {
        let first = self.first.take()?;
        let mut bytes = std::mem::take(&mut self.bytes);
        let sum = crc(&bytes);
        bytes.put_u32(sum);
        Some((first, bytes))
    }
}

/// The entries' bytes of a block, if its checksum is right.
pub(super) fn check(block: &[u8]) -> Option<&[u8]> {
    let (entries, sum) = block.split_last_chunk::<CRC_BYTES>()?;
    (crc(entries) == u32::from_le_bytes(*sum)).then_some(entries)
}

/// Walks over the entries of a block whose checksum was checked.
pub(super) struct Entries<'a> {
    object: ObjectId,
    from: Decoder<'a>,
    log: LogId,
    end: Offset,
    data: u64,
}

/// An entry whose lengths were only added up.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) log: LogId,
    pub(super) start: Offset,
    pub(super) end: Offset,
    place: Place,
}

impl<'a> Entries<'a> {
    pub(super) fn new(object: ObjectId, entries: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(entries);
        let data = from.varint()?;
        Ok(Self { object, from, log: LogId::ZERO, end: Offset::ZERO, data })
    }

    /// Where the data of the next entry that has any stands.
    pub(super) fn data(&self) -> u64 {
        self.data
    }

    /// The next entry, without its lengths: they are left in the decoder that comes with it.
    pub(super) fn next_head(&mut self) -> Result<Option<(Head, Decoder<'a>)>, DecodeError> {
        if self.from.is_empty() {
            return Ok(None);
        }
        let step = self.from.varint()?;
        let log = self.log.0.checked_add(step).map(LogId).ok_or(DecodeError::Range("log"))?;
        let before = if step == 0 { self.end } else { Offset::ZERO };
        let gap = self.from.varint()?;
        let start = before.0.checked_add(gap).map(Offset).ok_or(DecodeError::Range("offset"))?;
        let place = match self.from.u8()? {
            DATA => Place::Data { object: self.object, at: self.data },
            REFERENCE => Place::Reference { source: LogId(self.from.varint()?), from: Offset(self.from.varint()?) },
            got => {
                return Err(DecodeError::Unknown { what: "kind of entry", got: u64::from(got) });
            }
        };
        let lengths = self.from;
        let (bytes, messages) = Lengths::skip(&mut self.from)?;
        let end = start.0.checked_add(bytes).map(Offset).ok_or(DecodeError::Range("offset"))?;
        if messages == 0 {
            return Err(DecodeError::Range("number of messages"));
        }
        match place {
            Place::Data { .. } => {
                self.data = self.data.checked_add(bytes).ok_or(DecodeError::Range("data position"))?;
            }
            Place::Reference { from, .. } => {
                from.0.checked_add(bytes).ok_or(DecodeError::Range("offset"))?;
            }
        }
        self.log = log;
        self.end = end;
        Ok(Some((Head { log, start, end, place }, lengths)))
    }

    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, DecodeError> {
        let Some((head, lengths)) = self.next_head()? else {
            return Ok(None);
        };
        head.entry(lengths).map(Some)
    }
}

impl Head {
    pub(super) fn entry(self, mut lengths: Decoder<'_>) -> Result<Entry, DecodeError> {
        let lengths = Lengths::decode(&mut lengths)?;
        Ok(Entry { log: self.log, start: self.start, place: self.place, lengths })
    }
}
