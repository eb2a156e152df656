//! The inspection of one object: it finds all damage, a step at a time, and the keys that lie at a damaged byte.

use super::error::RunError;
use super::extent::{Entry, Place};
use super::map::{Map, PAGE_BYTES, load_map};
use super::meta::ObjectMeta;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_storage::{Storage, StorageError};

/// A position of a log, as objects are sorted.
pub(crate) type Key = (LogId, Offset);

/// How much one step reads: a multiple of the page.
const STEP_BYTES: u64 = 1 << 20;
const _: () = assert!(STEP_BYTES.is_multiple_of(PAGE_BYTES));

/// Reads one object from front to back, and goes on behind damaged pages and blocks.
pub(crate) struct Inspection {
    storage: Arc<dyn Storage>,
    map: Map,
    at: u64,
    block: usize,
}

impl Inspection {
    /// Fails if the footer or the map is damaged: nothing else of the object can be read then.
    pub(crate) fn open(storage: &Arc<dyn Storage>, meta: &ObjectMeta) -> Result<Self, RunError> {
        let map = load_map(storage, meta.id)?;
        if map.meta != *meta {
            return Err(RunError::corrupt(meta.id, 0, "it is whole, but not the object that the manifest names"));
        }
        Ok(Self { storage: Arc::clone(storage), map, at: 0, block: 0 })
    }

    #[must_use]
    pub(crate) fn object(&self) -> ObjectId {
        self.map.meta.id
    }

    /// Reads some more and adds the damage to `found`; how many bytes it has read, `None` at the end. An error that is
    /// no damage ends it.
    pub(crate) fn step(&mut self, found: &mut Vec<RunError>) -> Result<Option<u64>, RunError> {
        let (header, data) = (self.map.header(), self.map.data());
        if self.at < header.end {
            self.at = header.end;
            keep(self.read(header.clone()).and_then(|header| self.map.check_header(&header)), found)?;
            return Ok(Some(header.end));
        }
        if self.at < data.end {
            let range = self.at..(self.at + STEP_BYTES).min(data.end);
            self.at = range.end;
            let read = range.end - range.start;
            self.pages(range, found)?;
            return Ok(Some(read));
        }
        let mut read = 0;
        while read < STEP_BYTES && self.block < self.map.blocks() {
            let range = self.map.block_range(self.block);
            read += range.end - range.start;
            let block = self.read(range);
            keep(block.and_then(|block| self.map.open_block(self.block, &block)), found)?;
            self.block += 1;
        }
        Ok((read > 0).then_some(read))
    }

    fn read(&self, range: Range<u64>) -> Result<bytes::Bytes, RunError> {
        Ok(self.storage.read(self.map.meta.id, range).wait()?)
    }

    fn pages(&self, range: Range<u64>, found: &mut Vec<RunError>) -> Result<(), RunError> {
        let together = self.read(range.clone());
        let readable = match &together {
            Ok(bytes) if self.map.check_pages(range.start, bytes).is_ok() => return Ok(()),
            Err(error) if !is_unreadable(error) => return together.map(|_| ()),
            Ok(bytes) => Some(bytes),
            Err(_) => None,
        };
        for at in (range.start..range.end).step_by(PAGE_BYTES as usize) {
            let page = at..(at + PAGE_BYTES).min(range.end);
            let bytes = match readable {
                Some(all) => Ok(all.slice((page.start - range.start) as usize..(page.end - range.start) as usize)),
                None => self.read(page),
            };
            keep(bytes.and_then(|bytes| self.map.check_pages(at, &bytes)), found)?;
        }
        Ok(())
    }
}

fn is_unreadable(error: &RunError) -> bool {
    matches!(error, RunError::Storage(StorageError::Unreadable { .. }))
}

/// Puts damage into the list; other errors are passed on.
fn keep<T>(result: Result<T, RunError>, found: &mut Vec<RunError>) -> Result<(), RunError> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if is_unreadable(&error) || matches!(error, RunError::Corrupt { .. }) => {
            found.push(error);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The keys whose content or index lies at byte `at` of an object, and how many bytes are damaged together: a page, a
/// block of entries, or the whole object if its map is. The keys of a block that cannot be read are all those between
/// its neighbours. The header of a container holds no content; damage there gives all keys of the object, so that an
/// operator is told of it.
pub(crate) fn keys_at(storage: &Arc<dyn Storage>, meta: &ObjectMeta, at: u64) -> (u64, Vec<Range<Key>>) {
    let all = meta.first..(meta.last, meta.end);
    let Ok(map) = load_map(storage, meta.id) else { return (meta.bytes(), vec![all]) };
    let data = map.data();
    if data.contains(&at) {
        let page = map.pages(&(at..at + 1));
        return (page.end - page.start, keys_of_page(storage, &map, &page));
    }
    if map.header().contains(&at) {
        return (data.start, vec![all]);
    }
    match (0..map.blocks()).find(|block| map.block_range(*block).contains(&at)) {
        Some(block) => {
            let range = map.block_range(block);
            (range.end - range.start, vec![map.keys_of_block(block)])
        }
        None => (meta.bytes(), vec![all]),
    }
}

fn keys_of_page(storage: &Arc<dyn Storage>, map: &Map, page: &Range<u64>) -> Vec<Range<Key>> {
    let mut keys: Vec<Range<Key>> = Vec::new();
    for number in 0..map.blocks() {
        let Some(entries) = entries_of(storage, map, number) else {
            // It may be one whose data lies there.
            keys.push(map.keys_of_block(number));
            continue;
        };
        keys.extend(entries.iter().filter_map(|entry| within(entry, page)));
        let ends = entries.iter().rev().find_map(|entry| match entry.place {
            Place::Data { at, .. } => Some(at + entry.lengths.bytes()),
            Place::Reference { .. } => None,
        });
        if ends.is_some_and(|ends| ends >= page.end) {
            break;
        }
    }
    keys
}

/// The entries of a block.
fn entries_of(storage: &Arc<dyn Storage>, map: &Map, number: usize) -> Option<Vec<Entry>> {
    let stored = storage.read(map.object(), map.block_range(number)).wait().ok()?;
    let block = map.open_block(number, &stored).ok()?;
    let mut entries = block.entries(map.object()).ok()?;
    let mut all = Vec::new();
    while let Some(entry) = entries.next_entry().ok()? {
        all.push(entry);
    }
    Some(all)
}

/// The part of an entry whose data lies in `page`.
fn within(entry: &Entry, page: &Range<u64>) -> Option<Range<Key>> {
    let Place::Data { at, .. } = entry.place else { return None };
    let (from, to) = (at.max(page.start), (at + entry.lengths.bytes()).min(page.end));
    (from < to).then(|| (entry.log, entry.start.plus(from - at))..(entry.log, entry.start.plus(to - at)))
}
