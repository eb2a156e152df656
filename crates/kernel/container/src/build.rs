//! Writing containers, from front to back.

use crate::block::BlockBuilder;
use crate::codec::{Codec, Entry, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::compress::Compression;
use crate::content::Sums;
use crate::error::ContainerError;
use crate::footer::{self, FOOTER_BYTES, Footer, HEADER_BYTES};
use crate::frame::{BlockType, Packed, Place};
use crate::object::Object;
use crate::partition::PartitionBuilder;
use crate::root::{NOTE_BYTES_MAX, Part, Root, Stats};
use bytes::Bytes;
use std::collections::VecDeque;
use std::marker::PhantomData;
use thalweg_base::ObjectId;
use thalweg_storage::ObjectWriter;

/// The entries of a container with content, packed, take so much memory at most.
pub const HELD_BYTES_MAX: usize = 256 << 20;

/// How a container is written.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A data block is closed when its entries take so many bytes.
    pub block_bytes: usize,
    /// How data blocks and partitions are compressed.
    pub compression: Compression,
    /// Whether it has a section of content. It stands before the entries, so that these are held in memory, packed,
    /// until the end: [`HELD_BYTES_MAX`] at most.
    pub has_content: bool,
    /// Whether the index is one partition, whatever its length. A reader then takes it with the checksums of content,
    /// the root and the footer in one piece ([`crate::Index`]), and has all of it in memory: for containers of bounded
    /// size.
    pub has_one_partition: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { block_bytes: 16 << 10, compression: Compression::Lz4, has_content: false, has_one_partition: false }
    }
}

/// A container that was written, or was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The object that holds the container.
    pub object: Object,
    /// Totals of its entries.
    pub stats: Stats,
}

/// Writes one container from entries in key order. Holds one block and one partition in memory, and the list of
/// partitions; with a section of content all blocks.
pub struct Builder<C> {
    writer: Box<dyn ObjectWriter>,
    object: ObjectId,
    options: Options,
    block: BlockBuilder,
    partition: PartitionBuilder,
    /// The first byte of the partition's data.
    data: u64,
    /// The length of the object, with the blocks that are held in memory.
    end: u64,
    held: VecDeque<Packed>,
    sums: Sums,
    root: Root,
    codec: PhantomData<C>,
}

impl<C: Codec> Builder<C> {
    /// Begins a container in the object that `writer` writes. Fails if the storage does.
    pub fn new(object: ObjectId, mut writer: Box<dyn ObjectWriter>, options: Options) -> Result<Self, ContainerError> {
        writer.write(&footer::header(object, C::ID))?;
        Ok(Self {
            writer,
            object,
            options,
            block: BlockBuilder::default(),
            partition: PartitionBuilder::default(),
            data: HEADER_BYTES,
            end: HEADER_BYTES,
            held: VecDeque::new(),
            sums: Sums::default(),
            root: Root { codec: C::ID, stats: Stats::default(), note: Bytes::new(), parts: Vec::new() },
            codec: PhantomData,
        })
    }

    /// Appends an entry. Its key must be above the one before.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), ContainerError> {
        let stats = &mut self.root.stats;
        if stats.entries() > 0 && entry.key <= self.block.last() {
            return Err(ContainerError::order(self.block.last(), entry.key));
        }
        within("a key", entry.key.len(), KEY_BYTES_MAX)?;
        within("a value", entry.value.len(), VALUE_BYTES_MAX)?;
        if stats.entries() == 0 {
            stats.first = entry.key.to_vec();
        }
        stats.entries[entry.kind as usize] += 1;
        stats.raw_bytes += (entry.key.len() + entry.value.len()) as u64;
        stats.measure(C::measure(entry));
        if let Some(prefix) = C::prefix(entry.key) {
            self.partition.note_prefix(prefix);
        }
        self.block.push(entry);
        if self.block.len() >= self.options.block_bytes {
            self.close_block()?;
        }
        Ok(())
    }

    /// Appends to the section of content; where the bytes stand in it.
    pub fn content(&mut self, bytes: &[u8]) -> Result<u64, ContainerError> {
        if !self.options.has_content {
            return Err(ContainerError::NoContent);
        }
        let at = self.sums.bytes();
        self.writer.write(bytes)?;
        self.sums.push(bytes);
        Ok(at)
    }

    /// Sets the note: bytes of the writer's choice, which readers find in the root without reading an entry.
    pub fn set_note(&mut self, note: Bytes) -> Result<(), ContainerError> {
        within("a note", note.len(), NOTE_BYTES_MAX)?;
        self.root.note = note;
        Ok(())
    }

    /// How long the object is by now, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end + self.sums.bytes() + (self.block.len() + self.partition.len()) as u64
    }

    /// How long the section of content is.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.sums.bytes()
    }

    /// Whether no entry was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.stats.entries() == 0
    }

    fn close_block(&mut self) -> Result<(), ContainerError> {
        let packed = Packed::new(BlockType::Data, self.options.compression, self.block.take());
        self.partition.push(self.block.last(), packed.len());
        self.root.stats.blocks += 1;
        self.root.stats.stored_bytes += packed.len() as u64;
        self.put(packed)?;
        if self.partition.is_full() && !self.options.has_one_partition {
            self.close_partition()?;
        }
        Ok(())
    }

    fn close_partition(&mut self) -> Result<(), ContainerError> {
        let packed = Packed::new(BlockType::Partition, self.options.compression, self.partition.take());
        let at = self.end;
        self.put(packed)?;
        let last = Bytes::copy_from_slice(self.block.last());
        self.root.parts.push(Part { last, data: self.data, at, end: self.end });
        self.data = self.end;
        Ok(())
    }

    /// Writes a block, or holds it until the content before it is whole.
    fn put(&mut self, packed: Packed) -> Result<(), ContainerError> {
        let at = self.end;
        self.end += packed.len() as u64;
        if self.options.has_content {
            within("what is held of entries", (self.end - HEADER_BYTES) as usize, HELD_BYTES_MAX)?;
            self.held.push_back(packed);
        } else {
            self.writer.write(&packed.seal(Place { object: self.object, at }))?;
        }
        Ok(())
    }

    /// Makes the object durable. To have it read back and checked, call [`crate::verify()`].
    pub fn finish(mut self) -> Result<Written, ContainerError> {
        if !self.block.is_empty() {
            self.close_block()?;
        }
        if !self.partition.is_empty() {
            self.close_partition()?;
        }
        self.write_held()?;
        for sums in std::mem::take(&mut self.sums).blocks() {
            self.seal(&Packed::new(BlockType::Sums, Compression::None, sums))?;
        }
        let at = self.writer.written();
        self.seal(&Packed::new(BlockType::Root, self.options.compression, self.root.encode()))?;
        let root = at..self.writer.written();
        self.root.stats.last = self.block.last().to_vec();
        self.writer.write(&Footer { root: root.clone() }.encode(self.object))?;
        let bytes = self.writer.written();
        self.writer.finish()?;
        let object = Object { id: self.object, bytes, tail_bytes: root.end - root.start + FOOTER_BYTES };
        Ok(Written { object, stats: self.root.stats })
    }

    /// The blocks follow the content, and so do the places that the root names.
    fn write_held(&mut self) -> Result<(), ContainerError> {
        let content = self.sums.bytes();
        self.root.stats.content_bytes = content;
        for part in &mut self.root.parts {
            part.data += content;
            part.at += content;
            part.end += content;
        }
        while let Some(packed) = self.held.pop_front() {
            self.seal(&packed)?;
        }
        Ok(())
    }

    fn seal(&mut self, packed: &Packed) -> Result<(), ContainerError> {
        let place = Place { object: self.object, at: self.writer.written() };
        Ok(self.writer.write(&packed.seal(place))?)
    }
}

fn within(what: &'static str, len: usize, max: usize) -> Result<(), ContainerError> {
    if len <= max { Ok(()) } else { Err(ContainerError::TooLarge { what, len, max }) }
}
