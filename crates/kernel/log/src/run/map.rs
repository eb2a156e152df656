//! The map of an object: it leads to every block and page of the object, in either form.

use super::block::{Block, Form};
use super::codec::{self, Extents};
use super::earlier;
use super::error::RunError;
use super::inspect::Key;
use super::meta::ObjectMeta;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_container::{END_MAGIC, FOOTER_BYTES, Index, Need};
use thalweg_storage::Storage;

/// A page of data, in bytes: each has a checksum of its own.
pub(crate) const PAGE_BYTES: u64 = thalweg_container::PAGE_BYTES;
const _: () = assert!(PAGE_BYTES == earlier::PAGE_BYTES);

/// An index of up to this many bytes is read as a whole: one read instead of one for the map and one for each block.
const WHOLE_INDEX_BYTES: u64 = 64 << 10;
/// The bytes of all parts of an object's end whose length does not depend on the object's content, and some more.
const FIXED_BYTES: u64 = 512;
/// Bytes in a map for each page, for each log, and for each block (compressed, at least).
const SUM_BYTES: u64 = 4;
const BITS_PER_LOG: u64 = 10;
const BLOCK_ADDRESS_BYTES: u64 = 28;
const BLOCK_STORED_BYTES: u64 = 2 << 10;

/// The part of an object that leads to all its blocks and pages. Positions are those of the object.
#[derive(Debug)]
pub(crate) struct Map {
    pub(super) meta: ObjectMeta,
    form: FormMap,
}

#[derive(Debug)]
enum FormMap {
    Container(Box<Index>),
    Earlier(Box<earlier::Map>),
}

impl Map {
    /// Takes it from `end`, the last bytes of an object of `len` bytes; or says which end it wants. Keeps nothing of
    /// `end` alive.
    pub(super) fn decode(object: ObjectId, len: u64, end: &Bytes) -> Result<Need<Self>, RunError> {
        let wanted = len.saturating_sub(FOOTER_BYTES.max(earlier::FOOTER_BYTES))..len;
        if (end.len() as u64) < wanted.end - wanted.start {
            return Ok(Need::Range(wanted));
        }
        let footer = end.len().saturating_sub(FOOTER_BYTES as usize);
        if !end[footer..].starts_with(&END_MAGIC) {
            return Ok(match earlier::Map::decode(object, len, end)? {
                Need::Range(range) => Need::Range(range),
                Need::Done(map) => Need::Done(Self { meta: map.meta, form: FormMap::Earlier(Box::new(map)) }),
            });
        }
        match Index::decode::<Extents>(object, len, end)? {
            Need::Range(range) => Ok(Need::Range(range)),
            Need::Done(index) => {
                let meta = codec::decode_meta(object, len, index.stats(), index.note());
                let meta = meta.map_err(|error| RunError::corrupt(object, index.range().start, error))?;
                Ok(Need::Done(Self { meta, form: FormMap::Container(Box::new(index)) }))
            }
        }
    }

    #[must_use]
    pub(crate) fn object(&self) -> ObjectId {
        self.meta.id
    }

    pub(super) fn form(&self) -> Form {
        match &self.form {
            FormMap::Container(_) => Form::Container,
            FormMap::Earlier(_) => Form::Earlier,
        }
    }

    /// The map of an object of the earlier form.
    pub(super) fn earlier(&self) -> Option<&earlier::Map> {
        match &self.form {
            FormMap::Container(_) => None,
            FormMap::Earlier(map) => Some(map),
        }
    }

    pub(super) fn may_hold(&self, log: LogId) -> bool {
        match &self.form {
            FormMap::Container(index) => index.may_hold::<Extents>(&codec::key(log, Offset::ZERO)),
            FormMap::Earlier(map) => map.may_hold(log),
        }
    }

    /// How many blocks of entries there are.
    pub(super) fn blocks(&self) -> usize {
        match &self.form {
            FormMap::Container(index) => index.blocks(),
            FormMap::Earlier(map) => map.blocks.len(),
        }
    }

    /// The bytes of a block.
    pub(super) fn block_range(&self, block: usize) -> Range<u64> {
        match &self.form {
            FormMap::Container(index) => index.block_range(block),
            FormMap::Earlier(map) => map.blocks.get(block).map_or(0..0, earlier::Address::range),
        }
    }

    /// Opens a block that was read.
    pub(super) fn open_block(&self, block: usize, stored: &Bytes) -> Result<Block, RunError> {
        Block::open(self.form(), self.meta.id, self.block_range(block).start, stored)
    }

    /// The blocks, one after the other, in which the entry that covers `offset` of `log` is, or else the next one of
    /// that log.
    pub(super) fn blocks_from(&self, log: LogId, offset: Offset) -> Range<usize> {
        match &self.form {
            FormMap::Container(_) => self.blocks_of(log, &(offset..offset)),
            FormMap::Earlier(map) => map.blocks_from(log, offset),
        }
    }

    /// The blocks that may have entries of these positions of a log; of its first one where the range is empty.
    pub(super) fn blocks_of(&self, log: LogId, span: &Range<Offset>) -> Range<usize> {
        match &self.form {
            FormMap::Container(index) => {
                let Some(first) = span.start.0.checked_add(1) else { return 0..0 };
                // The last entry that starts before the end of the range is the first one that does not end before
                // that.
                let block_of = |end: u64| index.block_of(&codec::key(log, Offset(end)));
                let (first, last) = (block_of(first), block_of(first.max(span.end.0)));
                first..(last + 1).min(index.blocks())
            }
            FormMap::Earlier(map) => map.blocks_of(log, span),
        }
    }

    /// The keys that a block may have, by its neighbours.
    pub(super) fn keys_of_block(&self, block: usize) -> Range<Key> {
        let all = self.meta.first..(self.meta.last, self.meta.end);
        match &self.form {
            FormMap::Container(index) => {
                let before = block.checked_sub(1).and_then(|before| codec::decode_key(index.last_key(before)).ok());
                before.unwrap_or(all.start)..codec::decode_key(index.last_key(block)).unwrap_or(all.end)
            }
            FormMap::Earlier(map) => map.keys_of_block(block),
        }
    }

    /// Whether the map agrees that this is where the first entry of a block starts.
    pub(super) fn is_begun_by(&self, block: usize, first: Key) -> bool {
        match &self.form {
            FormMap::Container(_) => block > 0 || first == self.meta.first,
            FormMap::Earlier(map) => map.blocks.get(block).is_some_and(|block| block.first == first),
        }
    }

    /// Whether the map agrees that this is where the last entry of a block ends.
    pub(super) fn is_ended_by(&self, block: usize, end: Key) -> bool {
        match &self.form {
            FormMap::Container(index) => codec::decode_key(index.last_key(block)) == Ok(end),
            FormMap::Earlier(_) => true,
        }
    }

    /// The range in front of a container's data: its header, which no lookup reads.
    pub(super) fn header(&self) -> Range<u64> {
        0..self.data().start
    }

    pub(super) fn check_header(&self, header: &[u8]) -> Result<(), RunError> {
        match &self.form {
            FormMap::Container(index) => Ok(index.check_header(header)?),
            FormMap::Earlier(_) => Ok(()),
        }
    }

    /// The bytes of the data.
    pub(super) fn data(&self) -> Range<u64> {
        match &self.form {
            FormMap::Container(index) => index.content(),
            FormMap::Earlier(_) => 0..self.meta.data_bytes,
        }
    }

    /// The whole pages around a range of data.
    pub(super) fn pages(&self, range: &Range<u64>) -> Range<u64> {
        match &self.form {
            FormMap::Container(index) => index.pages(range),
            FormMap::Earlier(map) => map.pages(range),
        }
    }

    /// Checks whole pages of data that start at `at`.
    pub(super) fn check_pages(&self, at: u64, pages: &[u8]) -> Result<(), RunError> {
        match &self.form {
            FormMap::Container(index) => Ok(index.check_pages(at, pages)?),
            FormMap::Earlier(map) => map.check_pages(at, pages),
        }
    }

    /// An approximation of the memory that it takes, for the cache.
    pub(super) fn weight(&self) -> u64 {
        let map = match &self.form {
            FormMap::Container(index) => index.weight() as u64,
            FormMap::Earlier(map) => map.weight(),
        };
        map + size_of::<Self>() as u64
    }
}

/// How much of an object's end is read for its map: the whole index if that is short, else the largest size of the map.
/// A map of another shape than expected costs a second read.
pub(super) fn end_bytes(meta: &ObjectMeta) -> u64 {
    if meta.index_bytes <= WHOLE_INDEX_BYTES {
        return meta.index_bytes.max(FOOTER_BYTES);
    }
    let sums = meta.data_bytes.div_ceil(PAGE_BYTES).saturating_mul(SUM_BYTES);
    let filter = meta.logs.saturating_mul(BITS_PER_LOG) / 8;
    let fixed = FIXED_BYTES.saturating_add(sums).saturating_add(filter);
    let blocks = meta.index_bytes.saturating_sub(fixed) / BLOCK_STORED_BYTES + 1;
    fixed.saturating_add(blocks.saturating_mul(BLOCK_ADDRESS_BYTES)).min(meta.index_bytes)
}

/// Reads the map, and no byte that it does not need. Waits.
pub(super) fn load_map(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<Map, RunError> {
    let len = storage.len(object)?;
    let mut end = Bytes::new();
    loop {
        match Map::decode(object, len, &end)? {
            Need::Done(map) => return Ok(map),
            Need::Range(range) => end = storage.read(object, range).wait()?,
        }
    }
}
