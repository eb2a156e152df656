//! Index blocks: entries in key order, under one checksum.
//!
//! A block is read from front to back: a log is stored as the distance to the one before, a start within the same log
//! as the gap to the end before, and data positions not at all, since data stands in the order of the entries.

use crate::lengths::Lengths;
use crate::run::codec::Head;
use crate::run::error::RunError;
use crate::run::extent::{Entry, Place};
use bytes::Bytes;
use thalweg_base::{DecodeError, Decoder, LogId, ObjectId, Offset, crc};

pub(super) const CRC_BYTES: usize = 4;
pub(super) const DATA: u8 = 0;
pub(super) const REFERENCE: u8 = 1;

/// The entries' bytes of a block that starts at `at`, if its checksum is right.
pub(in crate::run) fn checked(object: ObjectId, at: u64, block: &Bytes) -> Result<Bytes, RunError> {
    let entries = check(block).ok_or_else(|| RunError::corrupt(object, at, "the index block's checksum differs"))?;
    Ok(block.slice(..entries.len()))
}

/// The entry that covers `offset` of `log`, else the next one of that log in this block.
pub(in crate::run) fn find(
    object: ObjectId,
    entries: &[u8],
    log: LogId,
    offset: Offset,
) -> Result<Option<Entry>, DecodeError> {
    let mut entries = Entries::new(object, entries)?;
    while let Some((head, lengths)) = entries.next_head()? {
        if head.log > log {
            break;
        }
        if head.log == log && head.end > offset {
            return head.entry(lengths).map(Some);
        }
    }
    Ok(None)
}

/// The entries' bytes of a block, if its checksum is right.
pub(super) fn check(block: &[u8]) -> Option<&[u8]> {
    let (entries, sum) = block.split_last_chunk::<CRC_BYTES>()?;
    (crc(entries) == u32::from_le_bytes(*sum)).then_some(entries)
}

/// Walks over the entries of a block whose checksum was checked.
pub(in crate::run) struct Entries<'a> {
    object: ObjectId,
    from: Decoder<'a>,
    log: LogId,
    end: Offset,
    data: u64,
}

impl<'a> Entries<'a> {
    pub(in crate::run) fn new(object: ObjectId, entries: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(entries);
        let data = from.varint()?;
        Ok(Self { object, from, log: LogId::ZERO, end: Offset::ZERO, data })
    }

    /// The place of the data of the next entry that has any.
    pub(in crate::run) fn data(&self) -> u64 {
        self.data
    }

    /// The next entry, without its lengths: they are left in the decoder that comes with it.
    pub(in crate::run) fn next_head(&mut self) -> Result<Option<(Head, Decoder<'a>)>, DecodeError> {
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

    pub(in crate::run) fn next_entry(&mut self) -> Result<Option<Entry>, DecodeError> {
        let Some((head, lengths)) = self.next_head()? else {
            return Ok(None);
        };
        head.entry(lengths).map(Some)
    }
}
