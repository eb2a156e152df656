//! Finding entries and checking data, through bounded caches.
//!
//! Nothing here reads from a storage. A lookup takes two steps in an object: the *map* at the object's end says which
//! index block to look into, and the block has the entry. A lookup that does not have one of the two gives
//! [`Fetch::Lacks`]; the caller reads that range in its own way, hands it to [`RunReader::take`], and asks again. The
//! parts that were handed over also stay in the caller's [`Known`], so that a lookup goes on however small the shared
//! caches are.

use super::block::{Block, Form};
use super::error::{Fetch, RunError};
use super::extent::Entry;
use super::map::{Map, end_bytes, load_map};
use super::meta::ObjectMeta;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_container::Need;
use thalweg_storage::{Storage, StorageError};

/// How many blocks one caller holds beside the shared cache.
const KNOWN_BLOCKS: usize = 64;
/// How many maps a caller holds that goes over many objects: more than twice as many as it asks for ahead, so that it
/// comes to each before it lets go of it.
const KNOWN_MAPS: usize = 128;

/// Lookups in objects. Shared by all threads; its memory is that of the caches.
pub(crate) struct RunReader {
    maps: Cache<ObjectId, Arc<Map>, ByBytes>,
    blocks: Cache<BlockId, Block, ByBytes>,
}

type BlockId = (ObjectId, u32);

#[derive(Clone)]
struct ByBytes;

impl Weighter<ObjectId, Arc<Map>> for ByBytes {
    fn weight(&self, _: &ObjectId, map: &Arc<Map>) -> u64 {
        map.weight()
    }
}

impl Weighter<BlockId, Block> for ByBytes {
    fn weight(&self, _: &BlockId, block: &Block) -> u64 {
        block.weight() + 64
    }
}

/// A range of an object's index that a lookup needs, and neither the caches nor its caller have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub object: ObjectId,
    pub range: Range<u64>,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The end of the object, with the map.
    End(ObjectMeta),
    Block(u32, Form),
}

impl Lack {
    /// Whether it has the object's map, which takes some time to decode.
    #[must_use]
    pub(crate) fn has_map(&self) -> bool {
        matches!(self.part, Part::End(_))
    }

    /// The same missing part with a range of at most the object's last `len` bytes.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(super) fn ending_with(&self, len: u64) -> Self {
        Self { range: self.range.end - len..self.range.end, ..self.clone() }
    }
}

/// The parts of indexes that one caller has for its lookups.
#[derive(Default)]
pub(crate) struct Known {
    maps: VecDeque<Arc<Map>>,
    blocks: VecDeque<(BlockId, Block)>,
    /// Objects whose map is longer than was expected, with the bytes from its start to the object's end.
    ends: VecDeque<(ObjectId, u64)>,
}

impl Known {
    /// Lets go of the maps that came first, if there are many: for a caller that goes from object to object and does
    /// not come back.
    pub(crate) fn trim(&mut self) {
        self.maps.drain(..self.maps.len().saturating_sub(KNOWN_MAPS));
        self.ends.drain(..self.ends.len().saturating_sub(KNOWN_MAPS));
    }

    #[cfg(feature = "faults")]
    pub(crate) fn maps(&self) -> usize {
        self.maps.len()
    }
}

/// An entry, and the map of the object that it was found in.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    pub entry: Entry,
    pub map: Arc<Map>,
}

impl RunReader {
    /// `cache_bytes` bounds the memory that it takes: a quarter for maps (about 0.1 % of the data), the rest for index
    /// blocks.
    #[must_use]
    pub(crate) fn new(cache_bytes: u64) -> Self {
        let map_bytes = cache_bytes / 4;
        let block_bytes = cache_bytes - map_bytes;
        let maps = Cache::with_weighter((map_bytes >> 16).max(16) as usize, map_bytes, ByBytes);
        let blocks = Cache::with_weighter((block_bytes >> 12).max(16) as usize, block_bytes, ByBytes);
        Self { maps, blocks }
    }

    /// The entry that covers `offset` of `log`, else the next one of that log in this object; `None` if there is
    /// neither.
    pub(crate) fn find(
        &self,
        known: &Known,
        meta: &ObjectMeta,
        log: LogId,
        offset: Offset,
    ) -> Result<Option<Hit>, Fetch> {
        if !meta.reaches(log, offset) {
            return Ok(None);
        }
        let map = self.map(known, meta)?;
        if !map.may_hold(log) {
            return Ok(None);
        }
        for number in map.blocks_from(log, offset) {
            let block = self.block(known, &map, number)?;
            let found = block.find(meta.id, log, offset);
            let damaged = |error| RunError::corrupt(meta.id, map.block_range(number).start, error);
            if let Some(entry) = found.map_err(damaged)? {
                return Ok(Some(Hit { entry, map }));
            }
        }
        Ok(None)
    }

    /// The parts that lookups of `span` of `log` in this object are known to lack, among the first `parts` parts that
    /// they use; and how many parts they use of these.
    pub(crate) fn lacks(
        &self,
        known: &Known,
        meta: &ObjectMeta,
        log: LogId,
        span: &Range<Offset>,
        parts: usize,
    ) -> (Vec<Lack>, usize) {
        let map = match self.map(known, meta) {
            Ok(map) => map,
            Err(lack) => return (vec![lack], 1),
        };
        if !map.may_hold(log) {
            return (Vec::new(), 1);
        }
        let blocks = map.blocks_of(log, span).take(parts);
        let count = blocks.clone().count();
        (blocks.filter_map(|number| self.block(known, &map, number).err()).collect(), count.max(1))
    }

    /// Takes the bytes that were read of a range that a lookup lacked. An error is the failure of every lookup that
    /// needs the range.
    pub(crate) fn take(
        &self,
        known: &mut Known,
        lack: &Lack,
        read: Result<Bytes, StorageError>,
    ) -> Result<(), RunError> {
        let bytes = read.map_err(of_storage)?;
        match &lack.part {
            Part::Block(number, form) => {
                let block = Block::open(*form, lack.object, lack.range.start, &bytes)?;
                self.keep(known, (lack.object, *number), block);
                Ok(())
            }
            Part::End(meta) => self.take_end(known, meta, lack.range.start, &bytes),
        }
    }

    fn take_end(&self, known: &mut Known, meta: &ObjectMeta, at: u64, end: &Bytes) -> Result<(), RunError> {
        if end.len() as u64 != meta.bytes() - at {
            return Err(cut(meta.id, at, end.len()));
        }
        let map = match Map::decode(meta.id, meta.bytes(), end)? {
            Need::Done(map) => Arc::new(map),
            Need::Range(range) => {
                known.ends.push_back((meta.id, range.end - range.start));
                return Ok(());
            }
        };
        if map.meta != *meta {
            return Err(RunError::corrupt(meta.id, 0, "it is not the object that the run names"));
        }
        self.maps.insert(meta.id, Arc::clone(&map));
        known.maps.push_back(Arc::clone(&map));
        // Of an index that was not read as a whole only some blocks at its end happen to be here: they are not worth
        // opening.
        let is_whole = map.block_range(0).start >= at;
        for number in (0..map.blocks()).filter(|_| is_whole) {
            let range = map.block_range(number);
            let stored = Bytes::copy_from_slice(&end[(range.start - at) as usize..(range.end - at) as usize]);
            // A damaged block is not cached: a lookup that needs it reads it, and gets the error.
            if let Ok(block) = map.open_block(number, &stored) {
                self.keep(known, (meta.id, number as u32), block);
            }
        }
        Ok(())
    }

    fn keep(&self, known: &mut Known, id: BlockId, block: Block) {
        self.blocks.insert(id, block.clone());
        if known.blocks.len() == KNOWN_BLOCKS {
            known.blocks.pop_front();
        }
        known.blocks.push_back((id, block));
    }

    /// Drops the cached parts of an object that was removed or found damaged.
    pub(crate) fn forget(&self, object: ObjectId) {
        if let Some((_, map)) = self.maps.remove(&object) {
            for number in 0..map.blocks() as u32 {
                self.blocks.remove(&(object, number));
            }
        }
    }

    /// The map of an object, for background work: waits for the storage.
    pub(super) fn wait_for_map(
        &self,
        storage: &dyn Storage,
        known: &mut Known,
        meta: &ObjectMeta,
    ) -> Result<Arc<Map>, RunError> {
        loop {
            match self.map(known, meta) {
                Ok(map) => return Ok(map),
                Err(lack) => self.wait_for(storage, known, &lack)?,
            }
        }
    }

    /// A block of an object, for background work: waits for the storage.
    pub(super) fn wait_for_block(
        &self,
        storage: &dyn Storage,
        known: &mut Known,
        map: &Map,
        number: usize,
    ) -> Result<Block, RunError> {
        loop {
            match self.block(known, map, number) {
                Ok(block) => return Ok(block),
                Err(lack) => self.wait_for(storage, known, &lack)?,
            }
        }
    }

    fn wait_for(&self, storage: &dyn Storage, known: &mut Known, lack: &Lack) -> Result<(), RunError> {
        self.take(known, lack, storage.read(lack.object, lack.range.clone()).wait())
    }

    fn map(&self, known: &Known, meta: &ObjectMeta) -> Result<Arc<Map>, Lack> {
        if let Some(map) = self.maps.get(&meta.id) {
            return Ok(map);
        }
        if let Some(map) = known.maps.iter().find(|map| map.meta.id == meta.id) {
            return Ok(Arc::clone(map));
        }
        let found = known.ends.iter().find(|(object, _)| *object == meta.id);
        let len = found.map_or_else(|| end_bytes(meta), |(_, len)| *len).min(meta.bytes());
        let range = meta.bytes() - len..meta.bytes();
        Err(Lack { object: meta.id, range, part: Part::End(*meta) })
    }

    fn block(&self, known: &Known, map: &Map, number: usize) -> Result<Block, Lack> {
        let id = (map.meta.id, number as u32);
        if let Some(block) = self.blocks.get(&id) {
            return Ok(block);
        }
        match known.blocks.iter().find(|(known, _)| *known == id) {
            Some((_, block)) => Ok(block.clone()),
            None => Err(Lack { object: id.0, range: map.block_range(number), part: Part::Block(id.1, map.form()) }),
        }
    }
}

/// The pages around a range of an object's data, which must be read to verify the range.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    map: Arc<Map>,
    wanted: Range<u64>,
    /// The whole pages.
    pub range: Range<u64>,
}

impl Pages {
    pub(crate) fn around(map: &Arc<Map>, wanted: Range<u64>) -> Result<Self, RunError> {
        let data = map.data();
        if wanted.start < data.start || wanted.end > data.end {
            let what = format!("data {}..{} is outside of {}..{}", wanted.start, wanted.end, data.start, data.end);
            return Err(RunError::corrupt(map.meta.id, wanted.start, what));
        }
        let range = if wanted.is_empty() { wanted.clone() } else { map.pages(&wanted) };
        Ok(Self { map: Arc::clone(map), wanted, range })
    }

    #[must_use]
    pub(crate) fn object(&self) -> ObjectId {
        self.map.meta.id
    }

    /// Checks each of the pages that were read, and returns the bytes of the wanted range.
    pub(crate) fn checked(&self, read: Result<Bytes, StorageError>) -> Result<Bytes, RunError> {
        let pages = read.map_err(of_storage)?;
        if pages.len() as u64 != self.range.end - self.range.start {
            return Err(cut(self.object(), self.range.start, pages.len()));
        }
        self.map.check_pages(self.range.start, &pages)?;
        let within = self.wanted.start - self.range.start..self.wanted.end - self.range.start;
        Ok(pages.slice(within.start as usize..within.end as usize))
    }
}

/// An object that is shorter than the root says is damaged.
fn of_storage(error: StorageError) -> RunError {
    match error {
        StorageError::Range { object, end, len, .. } => {
            RunError::corrupt(object, len, format!("it has {len} bytes, and must have {end} or more"))
        }
        error => error.into(),
    }
}

fn cut(object: ObjectId, at: u64, got: usize) -> RunError {
    RunError::corrupt(object, at, format!("only {got} bytes were read"))
}

/// Looks up as [`RunReader::find`] does, and reads missing parts of the index. Waits.
pub(crate) fn find_waiting(
    reader: &RunReader,
    storage: &dyn Storage,
    meta: &ObjectMeta,
    log: LogId,
    offset: Offset,
) -> Result<Option<Hit>, RunError> {
    let mut known = Known::default();
    loop {
        match reader.find(&known, meta, log, offset) {
            Ok(found) => return Ok(found),
            Err(Fetch::Failed(error)) => return Err(error),
            Err(Fetch::Lacks(lack)) => {
                let read = storage.read(lack.object, lack.range.clone()).wait();
                reader.take(&mut known, &lack, read)?;
            }
        }
    }
}

/// The meta that an object holds of itself. Waits.
pub(crate) fn load_meta(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<ObjectMeta, RunError> {
    Ok(load_map(storage, object)?.meta)
}
