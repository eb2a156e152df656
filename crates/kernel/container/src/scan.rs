//! Reading a container from front to back, in large pieces and with bounded memory: for work in the background. Waits.

use crate::block::BlockCursor;
use crate::build::Written;
use crate::cache::NoCache;
use crate::codec::{Codec, Entry, Kind};
use crate::error::ContainerError;
use crate::footer::{self, HEADER_BYTES};
use crate::frame::Place;
use crate::load::{Loader, open_block, wait};
use crate::merge::Source;
use crate::object::Object;
use crate::partition::Partition;
use crate::root::{Root, Stats};
use bytes::Bytes;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use thalweg_storage::Storage;

/// Data blocks are read in pieces of about this size.
const PIECE_BYTES: u64 = 1 << 20;

/// Walks over the entries of one container. The scan verifies the bytes of each entry before it returns the entry, and
/// the root's totals at the end.
pub struct Scan<C> {
    storage: Arc<dyn Storage>,
    load: Loader,
    root: Arc<Root>,
    /// The partition at hand, and the next block of it.
    part: usize,
    partition: Option<Arc<Partition>>,
    block: usize,
    /// Read data blocks, from `piece_at` of the object on.
    piece: Bytes,
    piece_at: u64,
    entries: Option<BlockCursor>,
    is_block_begun: bool,
    /// The place of the block at hand.
    at: u64,
    seen: Stats,
    is_thorough: bool,
    codec: PhantomData<C>,
}

impl<C: Codec> Scan<C> {
    /// Reads the root, and begins before the first entry. Waits for the storage.
    pub fn open(storage: &Arc<dyn Storage>, object: Object) -> Result<Self, ContainerError> {
        let mut load = Loader::new(object, C::ID);
        let root = wait(storage, object, |fed| {
            load.feed(fed)?;
            let root = load.root(&NoCache)?;
            Ok(root.map_or_else(|| load.wants(), crate::Need::Done))
        })?;
        let header = storage.read(object.id, 0..HEADER_BYTES.min(object.bytes)).wait()?;
        footer::check_header(object.id, C::ID, &header)?;
        let seen = Stats { content_bytes: root.stats.content_bytes, ..Stats::default() };
        Ok(Self {
            storage: Arc::clone(storage),
            load,
            root,
            part: 0,
            partition: None,
            block: 0,
            piece: Bytes::new(),
            piece_at: 0,
            entries: None,
            is_block_begun: false,
            at: HEADER_BYTES,
            seen,
            is_thorough: false,
            codec: PhantomData,
        })
    }

    /// Makes the scan also check everything that lookups rely on: filters, and the codec's rules for entries.
    #[must_use]
    pub fn thorough(self) -> Self {
        Self { is_thorough: true, ..self }
    }

    /// The scanned object.
    #[must_use]
    pub fn object(&self) -> Object {
        self.load.object()
    }

    /// The root's totals of the entries.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.root.stats
    }

    /// The note that the builder's caller left in the root.
    #[must_use]
    pub fn note(&self) -> &Bytes {
        &self.root.note
    }

    /// Checks the next block; how many bytes it has, `None` at the end.
    pub fn check_block(&mut self) -> Result<Option<u64>, ContainerError> {
        let before = self.seen.stored_bytes;
        if !self.next_block()? {
            return Ok(None);
        }
        while self.next_in_block()? {}
        Ok(Some(self.seen.stored_bytes - before))
    }

    pub(crate) fn written(&self) -> Written {
        Written { object: self.load.object(), stats: self.root.stats.clone() }
    }

    fn place(&self) -> Place {
        Place { object: self.load.object().id, at: self.at }
    }

    /// Loads the next block; false at the end of the container.
    fn next_block(&mut self) -> Result<bool, ContainerError> {
        let partition = loop {
            if let Some(partition) = self.partition.clone().filter(|partition| self.block < partition.len()) {
                break partition;
            }
            if self.partition.take().is_some() {
                self.part += 1;
                self.block = 0;
            }
            if self.part == self.root.parts.len() {
                return self.end();
            }
            let (load, root, part) = (&mut self.load, &self.root, self.part);
            let partition = wait(&self.storage, load.object(), |fed| {
                load.feed(fed)?;
                let partition = load.partition(&NoCache, root, part)?;
                Ok(partition.map_or_else(|| load.wants(), crate::Need::Done))
            })?;
            self.partition = Some(partition);
        };
        let start = self.root.parts[self.part].data;
        let range = partition.range(self.block, start);
        self.fill(&partition, start, &range)?;
        let framed = self.piece.split_to((range.end - range.start) as usize);
        self.piece_at = range.end;
        self.at = range.start;
        let block = open_block(self.place(), &framed)?;
        if self.is_thorough {
            block.check_restarts().map_err(|error| self.place().corrupt(error))?;
        }
        self.entries = Some(BlockCursor::new(block));
        self.block += 1;
        self.seen.blocks += 1;
        self.seen.stored_bytes += framed.len() as u64;
        Ok(true)
    }

    /// Makes sure that the next block is read, and as many behind it as a piece has room for.
    fn fill(&mut self, partition: &Partition, start: u64, block: &Range<u64>) -> Result<(), ContainerError> {
        if self.piece_at == block.start && !self.piece.is_empty() {
            return Ok(());
        }
        let mut end = block.end;
        for number in self.block + 1..partition.len() {
            let next = partition.range(number, start).end;
            if next - block.start > PIECE_BYTES {
                break;
            }
            end = next;
        }
        let object = self.load.object();
        if end > object.bytes {
            return Err(ContainerError::corrupt(object.id, block.start, "a block runs over the end"));
        }
        self.piece = self.storage.read(object.id, block.start..end).wait()?;
        self.piece_at = block.start;
        if self.piece.len() as u64 == end - block.start {
            Ok(())
        } else {
            Err(ContainerError::corrupt(object.id, block.start, "a read was cut"))
        }
    }

    /// False at the end of the block at hand.
    fn next_in_block(&mut self) -> Result<bool, ContainerError> {
        let place = self.place();
        let Some(entries) = &mut self.entries else { return Ok(false) };
        if entries.advance().map_err(|error| place.corrupt(error))? {
            return self.saw(place).map(|()| true);
        }
        let last = self.partition.as_ref().map(|partition| partition.last_key(self.block.saturating_sub(1)));
        if last != Some(entries.entry().key) {
            return Err(place.corrupt("the block ends with another key than its partition says"));
        }
        self.seen.last = entries.entry().key.to_vec();
        self.is_block_begun = false;
        self.entries = None;
        Ok(false)
    }

    fn saw(&mut self, place: Place) -> Result<(), ContainerError> {
        let Some(entries) = &self.entries else { return Ok(()) };
        let (entry, seen) = (entries.entry(), &mut self.seen);
        // Within a block the cursor checks the order.
        if !self.is_block_begun {
            self.is_block_begun = true;
            if seen.entries() == 0 {
                seen.first = entry.key.to_vec();
            } else if *entry.key <= seen.last[..] {
                return Err(place.corrupt("entries are out of order"));
            }
        }
        seen.entries[entry.kind as usize] += 1;
        seen.raw_bytes += (entry.key.len() + entry.value.len()) as u64;
        seen.measure(C::measure(&entry));
        if self.is_thorough {
            C::check(&entry).map_err(|error| place.corrupt(error))?;
            if !self.partition.as_ref().is_some_and(|partition| partition.may_hold::<C>(entry.key)) {
                return Err(place.corrupt("the filter denies a key that is there"));
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<bool, ContainerError> {
        if self.seen == self.root.stats {
            return Ok(false);
        }
        let object = self.load.object();
        Err(ContainerError::corrupt(object.id, object.footer_at(), "its root tells of other entries"))
    }
}

impl<C: Codec> Source for Scan<C> {
    fn advance(&mut self) -> Result<bool, ContainerError> {
        loop {
            if self.next_in_block()? {
                return Ok(true);
            }
            if !self.next_block()? {
                return Ok(false);
            }
        }
    }

    fn entry(&self) -> Entry<'_> {
        let none = Entry { key: &[], kind: Kind::Value, value: &[] };
        self.entries.as_ref().map_or(none, BlockCursor::entry)
    }
}
