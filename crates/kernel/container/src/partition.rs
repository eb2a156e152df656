//! Partitions of the index: which data blocks follow each other, the last key of each, and a filter over the keys in
//! them.
//!
//! The index of a large container is read a partition at a time; only the list of partitions stays in memory.

use crate::codec::Codec;
use crate::error::ContainerError;
use crate::filter;
use crate::frame::{self, BlockType, Place};
use crate::root::Part;
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{DecodeError, Decoder, Encoder, ObjectId};

/// A partition is closed when its keys and lengths take so many bytes,
const INDEX_BYTES: usize = 16 << 10;
/// or when its filter has so many prefixes.
const PREFIXES_MAX: usize = 32 << 10;

/// Builds a partition's table of data blocks.
#[derive(Default)]
pub(crate) struct PartitionBuilder {
    index: Vec<u8>,
    blocks: u64,
    hashes: Vec<u64>,
}

impl PartitionBuilder {
    /// Notes a prefix. Entries of the same prefix follow each other, so it is compared with the one before only.
    pub(crate) fn note_prefix(&mut self, prefix: &[u8]) {
        let hash = filter::hash(prefix);
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Notes a data block, which stands right behind the one before.
    pub(crate) fn push(&mut self, last: &[u8], len: usize) {
        self.index.put_bytes(last);
        self.index.put_varint(len as u64);
        self.blocks += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// How long it is by now, about.
    pub(crate) fn len(&self) -> usize {
        self.index.len() + self.hashes.len() * 10 / 8
    }

    pub(crate) fn is_full(&self) -> bool {
        self.index.len() >= INDEX_BYTES || self.hashes.len() >= PREFIXES_MAX
    }

    /// The partition's content; `self` is empty again.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let done = std::mem::take(self);
        let mut out = Vec::with_capacity(done.index.len() + done.hashes.len() * 2);
        out.put_bytes(&filter::build(&done.hashes));
        out.put_varint(done.blocks);
        out.extend_from_slice(&done.index);
        out
    }
}

/// A decoded partition.
#[derive(Debug)]
pub(crate) struct Partition {
    bytes: Bytes,
    filter: Range<usize>,
    blocks: Vec<Handle>,
}

/// A data block of a partition.
#[derive(Debug)]
struct Handle {
    last: Range<u32>,
    /// The end of the block, in bytes from the first data block of the partition on.
    end: u64,
}

impl Partition {
    /// `data` is where its data blocks stand: they must fill it exactly.
    pub(crate) fn decode(bytes: Bytes, data: &Range<u64>) -> Result<Self, DecodeError> {
        let len = bytes.len();
        let mut from = Decoder::new(&bytes);
        let filter = from.bytes()?;
        let filter_end = len - from.rest().len();
        let filter = filter_end - filter.len()..filter_end;
        let count = from.varint()?;
        // Each takes two bytes at least.
        if count == 0 || count > from.rest().len() as u64 / 2 {
            return Err(DecodeError::Range("number of blocks"));
        }
        let (mut blocks, mut end, mut before) = (Vec::with_capacity(count as usize), data.start, None);
        for _ in 0..count {
            let last = from.bytes()?;
            let last_end = (len - from.rest().len()) as u32;
            end = end.checked_add(from.varint()?).ok_or(DecodeError::Range("length of a block"))?;
            if before.is_some_and(|before| before >= last) {
                return Err(DecodeError::Range("key of a block"));
            }
            before = Some(last);
            blocks.push(Handle { last: last_end - last.len() as u32..last_end, end });
        }
        from.end()?;
        if end == data.end { Ok(Self { bytes, filter, blocks }) } else { Err(DecodeError::Range("length of a block")) }
    }

    /// Decodes a framed partition. `part` is its entry in the root.
    pub(crate) fn open(object: ObjectId, part: &Part, framed: &Bytes) -> Result<Self, ContainerError> {
        let place = Place { object, at: part.at };
        let content = frame::open(place, BlockType::Partition, framed)?;
        let partition = Self::decode(content, &part.data()).map_err(|error| place.corrupt(error))?;
        if partition.last_key(partition.len() - 1) != part.last {
            return Err(place.corrupt("the partition ends with another key than its root says"));
        }
        Ok(partition)
    }

    pub(crate) fn weight(&self) -> usize {
        self.bytes.len() + self.blocks.len() * size_of::<Handle>()
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The last key of a block.
    pub(crate) fn last_key(&self, block: usize) -> &[u8] {
        self.blocks.get(block).map_or(&[], |handle| &self.bytes[handle.last.start as usize..handle.last.end as usize])
    }

    /// The bytes of a block. `start` is the first byte of the partition's data.
    pub(crate) fn range(&self, block: usize, start: u64) -> Range<u64> {
        let end = |n: usize| self.blocks.get(n).map_or(start, |handle| handle.end);
        let from = if block == 0 { start } else { end(block - 1) };
        from..end(block)
    }

    /// The only block that may hold the first entry at or after `key`; the number of blocks if none does.
    pub(crate) fn block_of(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.blocks.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.last_key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// May an entry with the prefix of `key` be in this partition?
    pub(crate) fn may_hold<C: Codec>(&self, key: &[u8]) -> bool {
        C::prefix(key).is_none_or(|prefix| filter::may_hold(&self.bytes[self.filter.clone()], filter::hash(prefix)))
    }
}
