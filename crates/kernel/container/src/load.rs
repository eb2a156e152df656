//! Loading the parts of a container by ranges: every reader asks a cache first, then for a range, and goes on when it
//! is fed.

use crate::block::Block;
use crate::cache::{BlockCache, Cached, Part};
use crate::content::Layout;
use crate::error::ContainerError;
use crate::footer::{FOOTER_BYTES, Footer};
use crate::frame::{self, BlockType, Place};
use crate::object::Object;
use crate::partition::Partition;
use crate::root::Root;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_storage::Storage;

/// The next need of a reader: a range of bytes, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need<T> {
    /// These bytes of the object: the caller reads them, and calls the reader again with them.
    Range(Range<u64>),
    /// Nothing: the reader is at its end.
    Done(T),
}

/// Drives a reader to its end with a storage that it waits for: `step` is given the bytes of the range that it asked
/// for last.
pub fn wait<T>(
    storage: &Arc<dyn Storage>,
    object: Object,
    mut step: impl FnMut(Option<Bytes>) -> Result<Need<T>, ContainerError>,
) -> Result<T, ContainerError> {
    let mut fed = None;
    loop {
        match step(fed.take())? {
            Need::Done(done) => return Ok(done),
            Need::Range(range) => fed = Some(storage.read(object.id, range).wait()?),
        }
    }
}

/// The parts of one container that a reader has. It keeps the root and one partition, so that it comes to its end
/// without a cache, too.
#[derive(Debug)]
pub(crate) struct Loader {
    object: Object,
    codec: u32,
    asked: Option<Range<u64>>,
    fed: Option<Bytes>,
    footer: Option<Footer>,
    root: Option<Arc<Root>>,
    partition: Option<(usize, Arc<Partition>)>,
}

impl Loader {
    pub(crate) fn new(object: Object, codec: u32) -> Self {
        Self { object, codec, asked: None, fed: None, footer: None, root: None, partition: None }
    }

    pub(crate) fn object(&self) -> Object {
        self.object
    }

    fn place(&self, at: u64) -> Place {
        Place { object: self.object.id, at }
    }

    /// Takes the bytes of the range that was asked for.
    pub(crate) fn feed(&mut self, bytes: Option<Bytes>) -> Result<(), ContainerError> {
        let wanted = self.asked.as_ref().map(|range| range.end - range.start);
        self.fed = match (bytes, wanted) {
            (Some(bytes), Some(wanted)) if bytes.len() as u64 != wanted => {
                let at = self.asked.as_ref().map_or(0, |range| range.start);
                return Err(self.place(at).corrupt(format!("a read of {wanted} bytes gave {}", bytes.len())));
            }
            (bytes, wanted) => bytes.filter(|_| wanted.is_some()),
        };
        Ok(())
    }

    /// The range that was asked for last, as the answer of a step that has to wait for it.
    pub(crate) fn wants<T>(&self) -> Need<T> {
        Need::Range(self.asked.clone().unwrap_or(0..0))
    }

    /// The bytes of a range if they were just fed; else they are asked for.
    pub(crate) fn fetch(&mut self, range: Range<u64>) -> Option<Bytes> {
        if self.asked.as_ref() == Some(&range)
            && let Some(fed) = self.fed.take()
        {
            self.asked = None;
            return Some(fed);
        }
        self.asked = Some(range);
        None
    }

    /// The root, `None` if it must be waited for.
    pub(crate) fn root(&mut self, cache: &dyn BlockCache) -> Result<Option<Arc<Root>>, ContainerError> {
        if let Some(root) = &self.root {
            return Ok(Some(Arc::clone(root)));
        }
        let id = self.object.id;
        if let Some(Cached(Part::Root(root))) = cache.get(id, self.object.bytes) {
            return self.found_root(root).map(Some);
        }
        let Some(framed) = self.framed_root()? else { return Ok(None) };
        let footer_at = self.object.footer_at();
        let at = self.footer.as_ref().map_or(footer_at, |footer| footer.root.start);
        let root = Arc::new(Root::open(id, at, &framed)?);
        cache.insert(id, self.object.bytes, Cached(Part::Root(Arc::clone(&root))));
        self.found_root(root).map(Some)
    }

    fn found_root(&mut self, root: Arc<Root>) -> Result<Arc<Root>, ContainerError> {
        if root.codec != self.codec {
            let what = format!("it holds entries of codec {}, not of codec {}", root.codec, self.codec);
            return Err(self.place(0).corrupt(what));
        }
        self.root = Some(Arc::clone(&root));
        Ok(root)
    }

    fn framed_root(&mut self) -> Result<Option<Bytes>, ContainerError> {
        if let Some(footer) = &self.footer {
            let range = footer.root.clone();
            return Ok(self.fetch(range));
        }
        let tail = self.object.tail();
        let Some(bytes) = self.fetch(tail.clone()) else { return Ok(None) };
        let split = bytes.len().saturating_sub(FOOTER_BYTES as usize);
        let footer = Footer::decode(self.object, &bytes[split..])?;
        let root = footer.root.clone();
        self.footer = Some(footer);
        match root.start.checked_sub(tail.start) {
            Some(from) => Ok(Some(bytes.slice(from as usize..split))),
            None => Ok(self.fetch(root)),
        }
    }

    pub(crate) fn partition(
        &mut self,
        cache: &dyn BlockCache,
        root: &Root,
        number: usize,
    ) -> Result<Option<Arc<Partition>>, ContainerError> {
        if let Some((_, partition)) = self.partition.as_ref().filter(|(held, _)| *held == number) {
            return Ok(Some(Arc::clone(partition)));
        }
        let place = self.place(self.object.bytes);
        let part = root.parts.get(number).ok_or_else(|| place.corrupt("it has no such partition"))?;
        let id = self.object.id;
        let partition = match cache.get(id, part.at) {
            Some(Cached(Part::Partition(partition))) => partition,
            _ => {
                let Some(framed) = self.fetch(part.range()) else { return Ok(None) };
                let partition = Partition::open(id, part, &framed)?;
                let partition = Arc::new(partition);
                cache.insert(id, part.at, Cached(Part::Partition(Arc::clone(&partition))));
                partition
            }
        };
        self.partition = Some((number, Arc::clone(&partition)));
        Ok(Some(partition))
    }

    pub(crate) fn block(&mut self, cache: &dyn BlockCache, range: Range<u64>) -> Result<Option<Block>, ContainerError> {
        if let Some(Cached(Part::Block(block))) = cache.get(self.object.id, range.start) {
            return Ok(Some(block));
        }
        let place = self.place(range.start);
        let Some(framed) = self.fetch(range) else { return Ok(None) };
        let block = open_block(place, &framed)?;
        cache.insert(place.object, place.at, Cached(Part::Block(block.clone())));
        Ok(Some(block))
    }

    pub(crate) fn sums(
        &mut self,
        cache: &dyn BlockCache,
        layout: &Layout,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, ContainerError> {
        if let Some(Cached(Part::Sums(sums))) = cache.get(self.object.id, range.start) {
            return Ok(Some(sums));
        }
        let at = range.start;
        let Some(framed) = self.fetch(range) else { return Ok(None) };
        let sums = layout.open_sums(at, &framed)?;
        cache.insert(self.object.id, at, Cached(Part::Sums(sums.clone())));
        Ok(Some(sums))
    }

    pub(crate) fn layout(&self, root: &Root) -> Layout {
        Layout { object: self.object.id, content_bytes: root.stats.content_bytes, sums_at: root.sums_at() }
    }
}

pub(crate) fn open_block(place: Place, framed: &Bytes) -> Result<Block, ContainerError> {
    let content = frame::open(place, BlockType::Data, framed)?;
    Block::new(content).map_err(|error| place.corrupt(error))
}
