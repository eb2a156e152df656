//! Reading directory objects from front to back.

use super::block::{self, CRC_BYTES, HEAD_BYTES};
use super::error::DirectoryError;
use super::footer::{DirectoryMeta, FOOTER_BYTES};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use thalweg_base::{DecodeError, Decoder, LogId, ObjectId, crc};
use thalweg_storage::Storage;

/// The object is read in pieces of about this size.
const PIECE_BYTES: u64 = 1 << 20;

/// Reads one directory object. Every byte is checked before a record of it is given out; what the footer tells is checked at
/// the end.
pub struct DirectoryReader {
    storage: Arc<dyn Storage>,
    meta: DirectoryMeta,
    /// Read, not yet taken apart; it stands at `at` of the object.
    piece: Bytes,
    at: u64,
    /// The records left of the block at hand.
    records: Bytes,
    in_block: LogId,
    seen: DirectoryMeta,
}

impl DirectoryReader {
    pub fn open(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<Self, DirectoryError> {
        let len = storage.len(object)?;
        let footer = storage.read(object, len.saturating_sub(FOOTER_BYTES)..len).wait()?;
        let meta = DirectoryMeta::decode_footer(object, len, &footer)?;
        let seen = DirectoryMeta { first: LogId::ZERO, last: LogId::ZERO, records: 0, tombstones: 0, ..meta };
        Ok(Self {
            storage: Arc::clone(storage),
            meta,
            piece: Bytes::new(),
            at: 0,
            records: Bytes::new(),
            in_block: LogId::ZERO,
            seen,
        })
    }

    #[must_use]
    pub fn meta(&self) -> &DirectoryMeta {
        &self.meta
    }

    /// The next record in order of logs, or a tombstone.
    pub fn next_record(&mut self) -> Result<Option<(LogId, Option<Bytes>)>, DirectoryError> {
        if self.records.is_empty() && !self.next_block()? {
            return Ok(None);
        }
        let mut from = Decoder::new(&self.records);
        let (log, record) =
            block::record(&mut from, self.in_block).map_err(|error| self.damaged(&error.to_string()))?;
        let record = record.map(|record| self.records.slice_ref(record));
        let rest = self.records.slice_ref(from.rest());
        self.records = rest;
        self.in_block = log;
        self.saw(log, record.is_some())?;
        Ok(Some((log, record)))
    }

    /// Gives every record that is left to `f`, borrowed: the fastest way through.
    pub fn for_each(&mut self, mut f: impl FnMut(LogId, Option<&[u8]>)) -> Result<(), DirectoryError> {
        loop {
            let records = std::mem::take(&mut self.records);
            let mut from = Decoder::new(&records);
            while !from.is_empty() {
                let (log, record) = block::record(&mut from, self.in_block)
                    .map_err(|error: DecodeError| self.damaged(&error.to_string()))?;
                self.in_block = log;
                self.saw(log, record.is_some())?;
                f(log, record);
            }
            if !self.next_block()? {
                return Ok(());
            }
        }
    }

    /// Checks the next block; how many bytes it has, `None` at the end.
    pub(crate) fn check_block(&mut self) -> Result<Option<u64>, DirectoryError> {
        let before = self.at;
        if !self.next_block()? {
            return Ok(None);
        }
        let records = std::mem::take(&mut self.records);
        let mut from = Decoder::new(&records);
        while !from.is_empty() {
            let (log, record) =
                block::record(&mut from, self.in_block).map_err(|error| self.damaged(&error.to_string()))?;
            self.in_block = log;
            self.saw(log, record.is_some())?;
        }
        Ok(Some(self.at - before))
    }

    fn damaged(&self, what: &str) -> DirectoryError {
        DirectoryError::corrupt(self.meta.id, self.at, what)
    }

    fn saw(&mut self, log: LogId, record: bool) -> Result<(), DirectoryError> {
        if self.seen.records + self.seen.tombstones == 0 {
            self.seen.first = log;
        } else if log <= self.seen.last {
            return Err(self.damaged("records are out of order"));
        }
        self.seen.last = log;
        if record {
            self.seen.records += 1;
        } else {
            self.seen.tombstones += 1;
        }
        Ok(())
    }

    /// Checks the next block; false at the end of the object.
    fn next_block(&mut self) -> Result<bool, DirectoryError> {
        let end = self.meta.bytes - FOOTER_BYTES;
        if self.at == end {
            return if self.seen == self.meta {
                Ok(false)
            } else {
                Err(self.damaged("its footer tells of other records"))
            };
        }
        self.fill(HEAD_BYTES as u64)?;
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&self.piece[..HEAD_BYTES]);
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
        self.in_block = LogId::ZERO;
        self.at += len as u64;
        Ok(true)
    }

    /// Makes sure that at least `need` bytes are read.
    fn fill(&mut self, need: u64) -> Result<(), DirectoryError> {
        let have = self.piece.len() as u64;
        if have >= need {
            return Ok(());
        }
        let end = self.meta.bytes - FOOTER_BYTES;
        if need > end - self.at {
            return Err(self.damaged("a block runs over the end"));
        }
        let from = self.at + have;
        let to = (self.at + need.max(have + PIECE_BYTES)).min(end);
        let more = self.storage.read(self.meta.id, from..to).wait()?;
        if have == 0 {
            self.piece = more;
        } else {
            let mut joined = BytesMut::with_capacity(self.piece.len() + more.len());
            joined.extend_from_slice(&self.piece);
            joined.extend_from_slice(&more);
            self.piece = joined.freeze();
        }
        Ok(())
    }
}

/// Reads every byte of a directory object and checks it.
pub fn verify(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<DirectoryMeta, DirectoryError> {
    let mut reader = DirectoryReader::open(storage, object)?;
    reader.for_each(|_, _| ())?;
    Ok(reader.meta)
}
