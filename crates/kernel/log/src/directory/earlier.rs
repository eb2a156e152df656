//! Directory objects as versions before containers wrote them: blocks (a length, records in order of their logs, a
//! checksum over both), then a footer. They are read, never written.

use super::DirectoryError;
use super::build::DirectoryMeta;
use super::codec;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, LogId, ObjectId, crc};
use thalweg_container::{Entry, Kind, Source};
use thalweg_storage::Storage;

const MAGIC: [u8; 8] = *b"THWGDIRS";
const FORMAT: u32 = 1;
const FOOTER_BYTES: u64 = 68;
const HEAD_BYTES: usize = 4;
const CRC_BYTES: usize = 4;
/// The object is read in pieces of about this size.
const PIECE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Footer {
    meta: DirectoryMeta,
    first: LogId,
    last: LogId,
}

pub(super) struct Reader {
    storage: Arc<dyn Storage>,
    footer: Footer,
    seen: Footer,
    /// Read, not yet taken apart; it stands at `at` of the object.
    piece: Bytes,
    at: u64,
    /// The records left of the block at hand.
    records: Bytes,
    /// The log at hand, or zero before the first one of a block.
    log: LogId,
    key: [u8; 8],
    record: Option<Bytes>,
}

impl Reader {
    /// `None` if the object does not end as one of this form does.
    pub(super) fn open(storage: &Arc<dyn Storage>, object: ObjectId, len: u64) -> Result<Option<Self>, DirectoryError> {
        let footer = storage.read(object, len.saturating_sub(FOOTER_BYTES)..len).wait()?;
        if !footer.starts_with(&MAGIC) {
            return Ok(None);
        }
        let footer = Footer::decode(object, len, &footer)?;
        let meta = DirectoryMeta { records: 0, tombstones: 0, ..footer.meta };
        Ok(Some(Self {
            storage: Arc::clone(storage),
            footer,
            seen: Footer { meta, first: LogId::ZERO, last: LogId::ZERO },
            piece: Bytes::new(),
            at: 0,
            records: Bytes::new(),
            log: LogId::ZERO,
            key: [0; 8],
            record: None,
        }))
    }

    pub(super) fn meta(&self) -> DirectoryMeta {
        self.footer.meta
    }

    pub(super) fn check_block(&mut self) -> Result<Option<u64>, DirectoryError> {
        let before = self.at;
        if !self.next_block()? {
            return Ok(None);
        }
        while !self.records.is_empty() {
            self.next_record()?;
        }
        Ok(Some(self.at - before))
    }

    fn damaged(&self, what: impl ToString) -> DirectoryError {
        DirectoryError::corrupt(self.footer.meta.id, self.at, what)
    }

    /// Takes a record off the block at hand.
    fn next_record(&mut self) -> Result<(), DirectoryError> {
        let mut from = Decoder::new(&self.records);
        let (log, record) = record(&mut from, self.log).map_err(|error| self.damaged(error))?;
        let record = record.map(|record| self.records.slice_ref(record));
        let rest = self.records.slice_ref(from.rest());
        let seen = &mut self.seen;
        if seen.meta.records + seen.meta.tombstones == 0 {
            seen.first = log;
        } else if log <= seen.last {
            return Err(self.damaged("records are out of order"));
        }
        seen.last = log;
        if record.is_some() {
            seen.meta.records += 1;
        } else {
            seen.meta.tombstones += 1;
        }
        (self.records, self.log, self.key, self.record) = (rest, log, codec::key(log), record);
        Ok(())
    }

    /// Checks the next block; false at the end of the object.
    fn next_block(&mut self) -> Result<bool, DirectoryError> {
        if self.at == self.footer.meta.bytes - FOOTER_BYTES {
            let is_whole = self.seen == self.footer;
            return if is_whole { Ok(false) } else { Err(self.damaged("its footer tells of other records")) };
        }
        self.fill(HEAD_BYTES as u64)?;
        let head = self.piece.first_chunk::<HEAD_BYTES>().copied().unwrap_or_default();
        let len = u32::from_le_bytes(head) as usize + HEAD_BYTES + CRC_BYTES;
        self.fill(len as u64)?;
        let block = self.piece.split_to(len);
        let (content, sum) = block.split_at(len - CRC_BYTES);
        if crc(content).to_le_bytes() != sum {
            return Err(self.damaged("the block's checksum differs"));
        }
        if content.len() == HEAD_BYTES {
            return Err(self.damaged("a block is empty"));
        }
        self.records = block.slice(HEAD_BYTES..content.len());
        self.log = LogId::ZERO;
        self.at += len as u64;
        Ok(true)
    }

    /// Makes sure that at least `need` bytes are read.
    fn fill(&mut self, need: u64) -> Result<(), DirectoryError> {
        let have = self.piece.len() as u64;
        if have >= need {
            return Ok(());
        }
        let end = self.footer.meta.bytes - FOOTER_BYTES;
        if need > end - self.at {
            return Err(self.damaged("a block runs over the end"));
        }
        let from = self.at + have;
        let to = (self.at + need.max(have + PIECE_BYTES)).min(end);
        let more = self.storage.read(self.footer.meta.id, from..to).wait()?;
        let mut joined = BytesMut::with_capacity(self.piece.len() + more.len());
        joined.extend_from_slice(&self.piece);
        joined.extend_from_slice(&more);
        self.piece = joined.freeze();
        Ok(())
    }
}

impl Source for Reader {
    fn advance(&mut self) -> Result<bool, DirectoryError> {
        if self.records.is_empty() && !self.next_block()? {
            return Ok(false);
        }
        self.next_record().map(|()| true)
    }

    fn entry(&self) -> Entry<'_> {
        let kind = if self.record.is_some() { Kind::Value } else { Kind::Tombstone };
        Entry { key: &self.key, kind, value: self.record.as_deref().unwrap_or_default() }
    }
}

impl Footer {
    fn decode(object: ObjectId, len: u64, footer: &[u8]) -> Result<Self, DirectoryError> {
        let damaged = |what: &str| DirectoryError::corrupt(object, len.saturating_sub(FOOTER_BYTES), what);
        let short = |_: DecodeError| damaged("its footer is cut");
        let mut fields = Decoder::new(footer.get(MAGIC.len()..).unwrap_or_default());
        let format = fields.u32().map_err(short)?;
        if format > FORMAT {
            return Err(DirectoryError::Newer { object, found: format, known: FORMAT });
        }
        let (content, sum) = footer.split_last_chunk::<CRC_BYTES>().ok_or_else(|| damaged("its footer is cut"))?;
        if footer.len() as u64 != FOOTER_BYTES || crc(content) != u32::from_le_bytes(*sum) {
            return Err(damaged("the footer's checksum differs"));
        }
        let flags = fields.u32().map_err(short)?;
        let id = ObjectId(fields.u64().map_err(short)?);
        let bytes = fields.u64().map_err(short)?;
        let (records, tombstones) = (fields.u64().map_err(short)?, fields.u64().map_err(short)?);
        let (first, last) = (LogId(fields.u64().map_err(short)?), LogId(fields.u64().map_err(short)?));
        if id != object || bytes != len || format != FORMAT || flags != 0 {
            return Err(damaged("its footer is that of another object"));
        }
        Ok(Self { meta: DirectoryMeta { id, records, tombstones, bytes }, first, last })
    }
}

/// Takes one record off a block that went to `before` (zero at the start of a block).
fn record<'a>(from: &mut Decoder<'a>, before: LogId) -> Result<(LogId, Option<&'a [u8]>), DecodeError> {
    let step = from.varint()?;
    let log = before.0.checked_add(step).map(LogId).ok_or(DecodeError::Range("log"))?;
    let record = match from.varint()? {
        0 => None,
        len => Some(from.take(usize::try_from(len - 1).map_err(|_| DecodeError::Range("length"))?)?),
    };
    Ok((log, record))
}

/// Takes `data` for records of a block, and for a footer whose checksum fits.
pub(super) fn fuzz_parts(object: ObjectId, data: &[u8]) {
    let (mut from, mut log) = (Decoder::new(data), LogId::ZERO);
    while !from.is_empty() {
        let Ok((next, _)) = record(&mut from, log) else { break };
        assert!(next >= log, "records of a block rise");
        log = next;
    }
    let sealed = crate::fuzz::sealed(&[&MAGIC[..], data].concat());
    let _ = Footer::decode(object, data.len() as u64, &sealed);
}
