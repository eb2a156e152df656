//! The end of an object: the map (block directory, page sums, filter) and the fixed footer that says where everything is.

use super::error::RunError;
use super::filter;
use super::meta::ObjectMeta;
use std::ops::Range;
use thalweg_base::{Decoder, Encoder, LogId, ObjectId, Offset, crc};

pub(super) const MAGIC: [u8; 8] = *b"THWGRUNS";
pub(super) const FORMAT: u32 = 1;
pub(super) const FOOTER_BYTES: u64 = 124;
pub(crate) const PAGE_BYTES: u64 = 16 << 10;
pub(super) const CRC_BYTES: u64 = 4;
pub(super) const ADDRESS_BYTES: u64 = 28;
pub(super) const SUM_BYTES: u64 = 4;

/// Where one index block stands, and the key of its first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) first: (LogId, Offset),
    pub(super) at: u64,
    /// With its checksum.
    pub(super) len: u32,
}

impl Address {
    pub(super) fn range(&self) -> Range<u64> {
        self.at..self.at + u64::from(self.len)
    }
}

/// What is needed to find anything in an object.
#[derive(Debug, PartialEq, Eq)]
pub struct Map {
    pub(super) meta: ObjectMeta,
    pub(super) blocks: Vec<Address>,
    /// The CRC32C of each page of data.
    pub(super) sums: Vec<u32>,
    pub(super) filter: Vec<u8>,
}

/// The fixed footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) meta: ObjectMeta,
    pub(super) blocks: u32,
    pub(super) filter_bytes: u64,
}

impl Footer {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let meta = &self.meta;
        out.extend_from_slice(&MAGIC);
        out.put_u32(FORMAT);
        out.put_u32(0);
        out.put_u64(meta.id.0);
        out.put_u64(meta.data_bytes);
        out.put_u64(meta.index_bytes);
        out.put_u32(self.blocks);
        out.put_u32(PAGE_BYTES as u32);
        out.put_u64(self.filter_bytes);
        out.put_u64(meta.entries);
        out.put_u64(meta.logs);
        out.put_u64(meta.messages);
        out.put_u64(meta.reference_bytes);
        out.put_u64(meta.first.0.0);
        out.put_u64(meta.first.1.0);
        out.put_u64(meta.last.0);
        out.put_u64(meta.end.0);
        let sum = crc(&out[start..]);
        out.put_u32(sum);
    }

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
        // The lengths are what later reads rely on: they must add up within the object.
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

    /// Where the map stands in the object. Only for a decoded footer.
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
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.meta.id
    }

    /// The map and the footer as bytes. Sets the number of index bytes: `blocks_bytes` and what it writes.
    pub(super) fn encode(&mut self, blocks_bytes: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for block in &self.blocks {
            out.put_u64(block.first.0.0);
            out.put_u64(block.first.1.0);
            out.put_u64(block.at);
            out.put_u32(block.len);
        }
        for sum in &self.sums {
            out.put_u32(*sum);
        }
        out.extend_from_slice(&self.filter);
        let sum = crc(&out);
        out.put_u32(sum);
        self.meta.index_bytes = blocks_bytes + out.len() as u64 + FOOTER_BYTES;
        let footer =
            Footer { meta: self.meta, blocks: self.blocks.len() as u32, filter_bytes: self.filter.len() as u64 };
        footer.encode(&mut out);
        out
    }

    pub(super) fn may_hold(&self, log: LogId) -> bool {
        filter::may_hold(&self.filter, log)
    }

    /// The block that holds the last entry at or before a key.
    pub(super) fn block_of(&self, key: (LogId, Offset)) -> usize {
        self.blocks.partition_point(|block| block.first <= key).saturating_sub(1)
    }

    /// The whole pages around a range of data.
    pub(super) fn pages(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start / PAGE_BYTES * PAGE_BYTES;
        let end = (range.end.div_ceil(PAGE_BYTES) * PAGE_BYTES).min(self.meta.data_bytes);
        start..end
    }

    /// Checks whole pages of data that start at `at`.
    pub(super) fn check_pages(&self, at: u64, pages: &[u8]) -> Result<(), RunError> {
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
    pub(super) fn weight(&self) -> u64 {
        (self.blocks.len() * size_of::<Address>() + self.sums.len() * 4 + self.filter.len() + 256) as u64
    }
}
