//! Finding entries and reading data, through bounded caches.

use super::block::{self, Entries};
use super::error::{Fetch, RunError};
use super::extent::{Entry, Place};
use super::footer::{FOOTER_BYTES, Footer, Map};
use super::meta::ObjectMeta;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{DecodeError, LogId, ObjectId, Offset};
use thalweg_storage::Storage;

/// May a call wait for a device?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No: it gives [`Fetch::WouldWait`] instead. For reactors.
    NoWait,
    /// Yes. For I/O threads.
    Wait,
}

/// Looks things up in objects. Shared by all threads; its memory is what the caches are given.
pub struct RunReader {
    storage: Arc<dyn Storage>,
    maps: Cache<ObjectId, Arc<Map>, ByBytes>,
    blocks: Cache<(ObjectId, u32), Bytes, ByBytes>,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<ObjectId, Arc<Map>> for ByBytes {
    fn weight(&self, _: &ObjectId, map: &Arc<Map>) -> u64 {
        map.weight()
    }
}

impl Weighter<(ObjectId, u32), Bytes> for ByBytes {
    fn weight(&self, _: &(ObjectId, u32), block: &Bytes) -> u64 {
        block.len() as u64 + 64
    }
}

impl RunReader {
    /// `cache_bytes` bounds the memory that it takes: a quarter for footers, block directories and filters (about 0.1 % of the
    /// data), the rest for index blocks.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, cache_bytes: u64) -> Self {
        let map_bytes = cache_bytes / 4;
        let block_bytes = cache_bytes - map_bytes;
        let maps = Cache::with_weighter((map_bytes >> 16).max(16) as usize, map_bytes, ByBytes);
        let blocks = Cache::with_weighter((block_bytes >> 12).max(16) as usize, block_bytes, ByBytes);
        Self { storage, maps, blocks }
    }

    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The entry that covers `offset` of `log`, else the next one of that log in this object; `None` if there is neither.
    pub fn find(&self, object: ObjectId, log: LogId, offset: Offset, mode: Mode) -> Result<Option<Entry>, Fetch> {
        let map = self.map(object, mode)?;
        if !map.meta.reaches(log, offset) || !map.may_hold(log) {
            return Ok(None);
        }
        let start = map.block_of((log, offset));
        for number in start..map.blocks.len() {
            // The first entry of a later block may be the next one of this log; then it is the answer.
            if number > start && map.blocks[number].first.0 != log {
                break;
            }
            if let Some(entry) = self.find_in_block(&map, number, log, offset, mode)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Like [`RunReader::find`], in a run: its objects in key order.
    pub fn find_in_run(
        &self,
        run: &[ObjectMeta],
        log: LogId,
        offset: Offset,
        mode: Mode,
    ) -> Result<Option<Entry>, Fetch> {
        let start = run.partition_point(|object| (object.last, object.end) <= (log, offset));
        for object in run[start..].iter().take_while(|object| object.first.0 <= log) {
            if let Some(entry) = self.find(object.id, log, offset, mode)? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The bytes of an entry in `range`, relative to its start and clipped to it. Empty for a reference: its bytes are in
    /// another log.
    pub fn entry_data(&self, entry: &Entry, range: Range<u64>, mode: Mode) -> Result<Bytes, Fetch> {
        let Place::Data { object, at } = entry.place else {
            return Ok(Bytes::new());
        };
        let end = range.end.min(entry.lengths.bytes());
        let start = range.start.min(end);
        self.data(object, at + start..at + end, mode)
    }

    /// The bytes of an object's data in `range`, checked.
    pub fn data(&self, object: ObjectId, range: Range<u64>, mode: Mode) -> Result<Bytes, Fetch> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let map = self.map(object, mode)?;
        if range.end > map.meta.data_bytes {
            let what = format!("data {}..{} is outside of {} bytes", range.start, range.end, map.meta.data_bytes);
            return Err(RunError::corrupt(object, range.start, what).into());
        }
        let pages = map.pages(&range);
        let bytes = self.read(object, pages.clone(), mode)?;
        map.check_pages(pages.start, &bytes)?;
        Ok(bytes.slice((range.start - pages.start) as usize..(range.end - pages.start) as usize))
    }

    /// Lets go of what is cached of an object, when it was removed or found damaged.
    pub fn forget(&self, object: ObjectId) {
        if let Some((_, map)) = self.maps.remove(&object) {
            for number in 0..map.blocks.len() as u32 {
                self.blocks.remove(&(object, number));
            }
        }
    }

    fn find_in_block(
        &self,
        map: &Map,
        number: usize,
        log: LogId,
        offset: Offset,
        mode: Mode,
    ) -> Result<Option<Entry>, Fetch> {
        let object = map.meta.id;
        let at = map.blocks[number].at;
        let damaged = |error: DecodeError| RunError::corrupt(object, at, error);
        let entries = self.block(map, number, mode)?;
        let mut entries = Entries::new(object, &entries).map_err(damaged)?;
        while let Some((head, lengths)) = entries.next_head().map_err(damaged)? {
            if head.log > log {
                break;
            }
            if head.log == log && head.end > offset {
                return Ok(Some(head.entry(lengths).map_err(damaged)?));
            }
        }
        Ok(None)
    }

    fn map(&self, object: ObjectId, mode: Mode) -> Result<Arc<Map>, Fetch> {
        if let Some(map) = self.maps.get(&object) {
            return Ok(map);
        }
        if mode == Mode::NoWait {
            return Err(Fetch::WouldWait);
        }
        let map = Arc::new(load_map(&self.storage, object)?);
        self.maps.insert(object, Arc::clone(&map));
        Ok(map)
    }

    fn block(&self, map: &Map, number: usize, mode: Mode) -> Result<Bytes, Fetch> {
        let object = map.meta.id;
        let key = (object, number as u32);
        if let Some(entries) = self.blocks.get(&key) {
            return Ok(entries);
        }
        let range = map.blocks[number].range();
        let block = self.read(object, range.clone(), mode)?;
        let entries = checked(object, range.start, &block)?;
        self.blocks.insert(key, entries.clone());
        Ok(entries)
    }

    fn read(&self, object: ObjectId, range: Range<u64>, mode: Mode) -> Result<Bytes, Fetch> {
        let read = match mode {
            Mode::Wait => self.storage.read(object, range).wait(),
            Mode::NoWait => self.storage.try_read(object, range).ok_or(Fetch::WouldWait)?,
        };
        Ok(read?)
    }
}

/// The entries' bytes of a block that starts at `at`, if its checksum is right.
pub(super) fn checked(object: ObjectId, at: u64, block: &Bytes) -> Result<Bytes, RunError> {
    let entries =
        block::check(block).ok_or_else(|| RunError::corrupt(object, at, "the index block's checksum differs"))?;
    Ok(block.slice(..entries.len()))
}

/// Reads footer and map. Waits.
pub(super) fn load_map(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<Map, RunError> {
    let len = storage.len(object)?;
    let footer = storage.read(object, len.saturating_sub(FOOTER_BYTES)..len).wait()?;
    let footer = Footer::decode(object, len, &footer)?;
    let map = storage.read(object, footer.map_range()).wait()?;
    footer.decode_map(&map)
}
