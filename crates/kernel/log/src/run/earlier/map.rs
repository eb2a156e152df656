//! The end of an object: the map (block directory, page sums, filter) and the fixed footer that says where everything
//! is.

use super::filter;
use crate::run::error::RunError;
use crate::run::inspect::Key;
use crate::run::meta::ObjectMeta;
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{Decoder, LogId, ObjectId, Offset, crc};
use thalweg_container::Need;

pub(super) const MAGIC: [u8; 8] = *b"THWGRUNS";
pub(super) const FORMAT: u32 = 1;
pub(in crate::run) const FOOTER_BYTES: u64 = 124;
pub(in crate::run) const PAGE_BYTES: u64 = 16 << 10;
pub(super) const CRC_BYTES: u64 = 4;
pub(super) const ADDRESS_BYTES: u64 = 28;
pub(super) const SUM_BYTES: u64 = 4;

/// The place of one index block, and the key of its first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) struct Address {
    pub(in crate::run) first: (LogId, Offset),
    pub(super) at: u64,
    /// With its checksum.
    pub(super) len: u32,
}

impl Address {
    pub(in crate::run) fn range(&self) -> Range<u64> {
        self.at..self.at + u64::from(self.len)
    }
}

/// The part of an object that leads to all its blocks and pages.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::run) struct Map {
    pub(in crate::run) meta: ObjectMeta,
    pub(in crate::run) blocks: Vec<Address>,
    /// The CRC32C of each page of data.
    pub(super) sums: Vec<u32>,
    pub(in crate::run) filter: Vec<u8>,
}

/// The fixed footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) meta: ObjectMeta,
    pub(super) blocks: u32,
    pub(super) filter_bytes: u64,
}

impl Footer {
    /// `len` is the object's length, of which `footer` is the end.
    pub(super) fn decode(object: ObjectId, len: u64, footer: &[u8]) -> Result<Self, RunError> {
        let at = len.saturating_sub(FOOTER_BYTES);
        let damaged = |what: &str| RunError::corrupt(object, at, what);
        if footer.len() as u64 != FOOTER_BYTES || !footer.starts_with(&MAGIC) {
            return Err(damaged("its footer has no magic"));
        }
        let mut fields = Decoder::new(&footer[MAGIC.len()..]);
        let short = |_| damaged("its footer is cut");
        let format = fields.u32().map_err(short)?;
        if format > FORMAT {
            return Err(RunError::Newer { object, found: format, known: FORMAT });
        }
        let (content, sum) = footer.split_last_chunk::<{ CRC_BYTES as usize }>().ok_or_else(|| damaged("cut"))?;
        if crc(content) != u32::from_le_bytes(*sum) {
            return Err(damaged("the footer's checksum differs"));
        }
        let flags = fields.u32().map_err(short)?;
        let id = ObjectId(fields.u64().map_err(short)?);
        let data_bytes = fields.u64().map_err(short)?;
        let index_bytes = fields.u64().map_err(short)?;
        let blocks = fields.u32().map_err(short)?;
        let page_bytes = fields.u32().map_err(short)?;
        let filter_bytes = fields.u64().map_err(short)?;
        let entries = fields.u64().map_err(short)?;
        let logs = fields.u64().map_err(short)?;
        let messages = fields.u64().map_err(short)?;
        let reference_bytes = fields.u64().map_err(short)?;
        let first = (LogId(fields.u64().map_err(short)?), Offset(fields.u64().map_err(short)?));
        let last = LogId(fields.u64().map_err(short)?);
        let end = Offset(fields.u64().map_err(short)?);
        if id != object {
            return Err(damaged(&format!("it says that it is object {id}")));
        }
        if format != FORMAT || flags != 0 || u64::from(page_bytes) != PAGE_BYTES {
            return Err(damaged("the footer has unknown settings"));
        }
        let meta =
            ObjectMeta { id, first, last, end, data_bytes, reference_bytes, index_bytes, entries, logs, messages };
        let footer = Self { meta, blocks, filter_bytes };
        // Later reads rely on the lengths: they must add up within the object.
        let whole = data_bytes.checked_add(index_bytes) == Some(len);
        let map = footer.map_bytes().and_then(|map| map.checked_add(FOOTER_BYTES));
        if !whole || map.is_none_or(|tail| tail > index_bytes) {
            return Err(damaged("the footer's lengths do not add up to the object's"));
        }
        Ok(footer)
    }

    fn map_bytes(&self) -> Option<u64> {
        let sums = self.meta.data_bytes.div_ceil(PAGE_BYTES) * SUM_BYTES;
        (u64::from(self.blocks) * ADDRESS_BYTES + sums + CRC_BYTES).checked_add(self.filter_bytes)
    }

    /// The bytes of the map in the object. Only for a decoded footer.
    pub(super) fn map_range(&self) -> Range<u64> {
        let end = self.meta.bytes() - FOOTER_BYTES;
        end - self.map_bytes().unwrap_or(end)..end
    }

    pub(super) fn decode_map(&self, map: &[u8]) -> Result<Map, RunError> {
        let range = self.map_range();
        let damaged = |what: &str| RunError::corrupt(self.meta.id, range.start, what);
        // Only then do the counts below fit the bytes at hand.
        if map.len() as u64 != range.end - range.start {
            return Err(damaged("the block directory is cut"));
        }
        let (content, sum) = map.split_last_chunk::<{ CRC_BYTES as usize }>().ok_or_else(|| damaged("cut"))?;
        if crc(content) != u32::from_le_bytes(*sum) {
            return Err(damaged("the block directory's checksum differs"));
        }
        let cut = |_| damaged("the block directory is cut");
        let mut from = Decoder::new(content);
        let mut blocks = Vec::with_capacity(self.blocks as usize);
        let mut at = self.meta.data_bytes;
        for _ in 0..self.blocks {
            let address = Address {
                first: (LogId(from.u64().map_err(cut)?), Offset(from.u64().map_err(cut)?)),
                at: from.u64().map_err(cut)?,
                len: from.u32().map_err(cut)?,
            };
            let rises = blocks.last().is_none_or(|before: &Address| before.first < address.first);
            if address.at != at || !rises {
                return Err(damaged("the block directory is out of order"));
            }
            at += u64::from(address.len);
            blocks.push(address);
        }
        if at != range.start {
            return Err(damaged("the index blocks do not end where the block directory starts"));
        }
        let pages = self.meta.data_bytes.div_ceil(PAGE_BYTES);
        let mut sums = Vec::with_capacity(pages as usize);
        for _ in 0..pages {
            sums.push(from.u32().map_err(cut)?);
        }
        let filter = from.take(self.filter_bytes as usize).map_err(cut)?.to_vec();
        from.end().map_err(cut)?;
        Ok(Map { meta: self.meta, blocks, sums, filter })
    }
}

impl Map {
    /// Takes it from the last bytes of an object of `len` bytes, a footer at least; or says which end it wants.
    pub(in crate::run) fn decode(object: ObjectId, len: u64, end: &Bytes) -> Result<Need<Self>, RunError> {
        let footer = end.len().saturating_sub(FOOTER_BYTES as usize);
        let footer = Footer::decode(object, len, &end[footer..])?;
        let range = footer.map_range();
        let at = len - end.len() as u64;
        let Some(start) = range.start.checked_sub(at) else { return Ok(Need::Range(range.start..len)) };
        footer.decode_map(&end[start as usize..(range.end - at) as usize]).map(Need::Done)
    }

    pub(in crate::run) fn may_hold(&self, log: LogId) -> bool {
        filter::may_hold(&self.filter, log)
    }

    /// The block that holds the last entry at or before a key.
    pub(in crate::run) fn block_of(&self, key: (LogId, Offset)) -> usize {
        self.blocks.partition_point(|block| block.first <= key).saturating_sub(1)
    }

    /// The blocks, one after the other, in which the entry that covers `offset` of `log` is, or else the next one of
    /// that log: the first entry of a later block may be that.
    pub(in crate::run) fn blocks_from(&self, log: LogId, offset: Offset) -> Range<usize> {
        let start = self.block_of((log, offset));
        let end = self.blocks.partition_point(|block| block.first.0 <= log);
        start..end.max(start + 1).min(self.blocks.len())
    }

    /// The blocks that may have entries of these positions of a log.
    pub(in crate::run) fn blocks_of(&self, log: LogId, span: &Range<Offset>) -> Range<usize> {
        let last = Offset(span.end.0.saturating_sub(1)).max(span.start);
        self.block_of((log, span.start))..(self.block_of((log, last)) + 1).min(self.blocks.len())
    }

    pub(in crate::run) fn keys_of_block(&self, number: usize) -> Range<Key> {
        let end = self.blocks.get(number + 1).map_or((self.meta.last, self.meta.end), |next| next.first);
        self.blocks.get(number).map_or(self.meta.first, |block| block.first)..end
    }

    /// The whole pages around a range of data.
    pub(in crate::run) fn pages(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start / PAGE_BYTES * PAGE_BYTES;
        let end = (range.end.div_ceil(PAGE_BYTES) * PAGE_BYTES).min(self.meta.data_bytes);
        start..end
    }

    /// Checks whole pages of data that start at `at`.
    pub(in crate::run) fn check_pages(&self, at: u64, pages: &[u8]) -> Result<(), RunError> {
        let first = at / PAGE_BYTES;
        for (n, page) in pages.chunks(PAGE_BYTES as usize).enumerate() {
            let number = first + n as u64;
            if self.sums.get(number as usize) != Some(&crc(page)) {
                let what = format!("the checksum of page {number} differs");
                return Err(RunError::corrupt(self.meta.id, number * PAGE_BYTES, what));
            }
        }
        Ok(())
    }

    /// An approximation of the memory that it takes, for the cache.
    pub(in crate::run) fn weight(&self) -> u64 {
        (self.blocks.len() * size_of::<Address>() + self.sums.len() * 4 + self.filter.len() + 256) as u64
    }
}
