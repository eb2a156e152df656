//! Everything of a container but its entries and its content, in one piece: for containers whose index is one
//! partition.
//!
//! Such a container ends with its partition, the checksums of its content, its root and its footer. A reader that takes
//! them together needs one range more for an entry, and another one for content; it keeps the index, and finds and
//! caches blocks by itself.

use crate::block::Block;
use crate::codec::Codec;
use crate::content::{Layout, PAGE_BYTES, SUMS_EACH};
use crate::error::ContainerError;
use crate::footer::{self, FOOTER_BYTES, Footer, HEADER_BYTES};
use crate::frame::Place;
use crate::load::{Need, open_block};
use crate::object::Object;
use crate::partition::Partition;
use crate::root::{Root, Stats};
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::ObjectId;

/// The decoded index of one container. Positions are those of the object.
#[derive(Debug)]
pub struct Index {
    object: ObjectId,
    /// The byte where the index begins, and the one where the object ends.
    range: Range<u64>,
    root: Root,
    partition: Option<Partition>,
    layout: Layout,
    /// The contents of the blocks of checksums, in order.
    sums: Vec<Bytes>,
}

impl Index {
    /// Takes it from `tail`, the last bytes of an object of `bytes` bytes; or says which tail it wants. Keeps nothing
    /// of `tail` alive. A container with several partitions is refused: its writer must have been asked for one.
    pub fn decode<C: Codec>(object: ObjectId, bytes: u64, tail: &Bytes) -> Result<Need<Self>, ContainerError> {
        let corrupt = |at: u64, what: &str| ContainerError::corrupt(object, at, what);
        let Some(tail_at) = bytes.checked_sub(tail.len() as u64) else {
            return Err(corrupt(bytes, "more bytes were read than it has"));
        };
        let footer_at = bytes.checked_sub(FOOTER_BYTES).ok_or_else(|| corrupt(0, "its footer is cut"))?;
        // A copy, so that the caller's buffer is free when this returns.
        let part = |range: Range<u64>| {
            let within = (range.start - tail_at) as usize..(range.end - tail_at) as usize;
            Bytes::copy_from_slice(&tail[within])
        };
        if footer_at < tail_at {
            return Ok(Need::Range(footer_at..bytes));
        }
        let footer = Footer::decode(Object::new(object, bytes), &part(footer_at..bytes))?;
        if footer.root.start < tail_at {
            return Ok(Need::Range(footer.root.start..bytes));
        }
        let root = Root::open(object, footer.root.start, &part(footer.root.clone()))?;
        if root.codec != C::ID {
            let what = format!("it holds entries of codec {}, not of codec {}", root.codec, C::ID);
            return Err(ContainerError::corrupt(object, 0, what));
        }
        if root.parts.len() > 1 {
            return Err(corrupt(footer.root.start, "its index has several partitions"));
        }
        let start = root.parts.first().map_or(root.sums_at(), |part| part.at);
        if start < tail_at {
            return Ok(Need::Range(start..bytes));
        }
        let partition = root.parts.first();
        let partition = partition.map(|of| Partition::open(object, of, &part(of.range()))).transpose()?;
        let layout = Layout { object, content_bytes: root.stats.content_bytes, sums_at: root.sums_at() };
        let (mut sums, mut page) = (Vec::new(), 0);
        while page < layout.pages() {
            let (pages, range) = layout.sums_of(page);
            sums.push(layout.open_sums(range.start, &part(range))?);
            page = pages.end;
        }
        Ok(Need::Done(Self { object, range: start..bytes, root, partition, layout, sums }))
    }

    /// The object that the index is of.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The bytes of the index in the object: from the partition to the end.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Totals of the container's entries.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.root.stats
    }

    /// The note that the builder's caller left in the root.
    #[must_use]
    pub fn note(&self) -> &Bytes {
        &self.root.note
    }

    /// How many data blocks there are.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.partition.as_ref().map_or(0, Partition::len)
    }

    /// The bytes of a data block; `None` if there is no such block.
    #[must_use]
    pub fn block_range(&self, block: usize) -> Range<u64> {
        match (&self.partition, self.root.parts.first()) {
            (Some(partition), Some(part)) if block < partition.len() => partition.range(block, part.data),
            _ => 0..0,
        }
    }

    /// The last key of a data block; empty if there is no such block.
    #[must_use]
    pub fn last_key(&self, block: usize) -> &[u8] {
        self.partition.as_ref().map_or(&[], |partition| partition.last_key(block))
    }

    /// The only data block that may hold the first entry at or after `key`; the number of blocks if none does.
    #[must_use]
    pub fn block_of(&self, key: &[u8]) -> usize {
        self.partition.as_ref().map_or(0, |partition| partition.block_of(key))
    }

    /// May there be an entry with the prefix of `key`? No is certain.
    #[must_use]
    pub fn may_hold<C: Codec>(&self, key: &[u8]) -> bool {
        self.partition.as_ref().is_some_and(|partition| partition.may_hold::<C>(key))
    }

    /// The bytes of the content in the object.
    #[must_use]
    pub fn content(&self) -> Range<u64> {
        self.layout.range()
    }

    /// The whole pages around a range of the object, which must lie in its content.
    #[must_use]
    pub fn pages(&self, range: &Range<u64>) -> Range<u64> {
        let content = range.start.saturating_sub(HEADER_BYTES)..range.end.saturating_sub(HEADER_BYTES);
        self.layout.range_of(&self.layout.pages_of(&content))
    }

    /// Checks whole pages of content that start at `at` of the object.
    pub fn check_pages(&self, at: u64, pages: &[u8]) -> Result<(), ContainerError> {
        let first = at.saturating_sub(HEADER_BYTES) / PAGE_BYTES;
        for (page, bytes) in (first..).zip(pages.chunks(PAGE_BYTES as usize)) {
            let (of, _) = self.layout.sums_of(page);
            let sums = self.sums.get((page / SUMS_EACH) as usize).map_or(&[][..], |sums| sums);
            self.layout.check(&of, sums, page, bytes)?;
        }
        Ok(())
    }

    /// The header of a container, of which no lookup reads anything.
    #[must_use]
    pub fn header() -> Range<u64> {
        0..HEADER_BYTES
    }

    /// Checks the bytes of [`Index::header`].
    pub fn check_header(&self, header: &[u8]) -> Result<(), ContainerError> {
        footer::check_header(self.object, self.root.codec, header)
    }

    /// An approximation of the memory that it takes, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let sums: usize = self.sums.iter().map(Bytes::len).sum();
        size_of::<Self>() + self.root.weight() + self.partition.as_ref().map_or(0, Partition::weight) + sums
    }
}

impl Block {
    /// Takes a data block that stands at `at` of an object out of its frame. `framed` is all of it.
    pub fn open(object: ObjectId, at: u64, framed: &Bytes) -> Result<Self, ContainerError> {
        open_block(Place { object, at }, framed)
    }
}
