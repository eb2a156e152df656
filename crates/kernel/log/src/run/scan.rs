//! Reading objects and runs from front to back, in large pieces and with bounded memory. Nothing goes through the
//! caches.

use super::error::RunError;
use super::extent::{Content, Entry, Extent, Place};
use super::map::{Map, load_map};
use super::meta::ObjectMeta;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{DecodeError, LogId, ObjectId, Offset};
use thalweg_storage::Storage;

/// Index and data are read in pieces of about this size: a multiple of the page.
const PIECE_BYTES: u64 = 512 << 10;

/// Walks over one object. Checks every byte that it reads, that entries are in order, and that they name exactly the
/// object's data.
pub(crate) struct ObjectScan {
    storage: Arc<dyn Storage>,
    map: Map,
    /// The next block to load.
    block: usize,
    /// Loaded index blocks: `piece` starts at `piece_at` of the object.
    piece: Bytes,
    piece_at: u64,
    /// Entries of the block at hand, last first.
    entries: Vec<Entry>,
    /// The end of the last entry, where the data of the block at hand starts.
    last: (LogId, Offset),
    data_at: u64,
    /// Pieces of data, in order: position and bytes.
    data: VecDeque<(u64, Bytes)>,
    /// The pages below are checked or not wanted.
    checked: u64,
}

impl ObjectScan {
    pub(crate) fn open(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<Self, RunError> {
        let map = load_map(storage, object)?;
        Ok(Self {
            storage: Arc::clone(storage),
            block: 0,
            piece: Bytes::new(),
            piece_at: 0,
            entries: Vec::new(),
            last: (LogId::ZERO, Offset::ZERO),
            data_at: map.data().start,
            data: VecDeque::new(),
            checked: 0,
            map,
        })
    }

    #[must_use]
    pub(crate) fn meta(&self) -> &ObjectMeta {
        &self.map.meta
    }

    /// The next entry in key order.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, RunError> {
        while self.entries.is_empty() {
            if self.block == self.map.blocks() {
                return Ok(None);
            }
            self.load_block()?;
        }
        Ok(self.entries.pop())
    }

    /// The next entry with its data.
    pub(crate) fn next_extent(&mut self) -> Result<Option<Extent>, RunError> {
        self.next_entry()?.map(|entry| self.extent(entry)).transpose()
    }

    /// An entry of this scan with its data. Entries may be skipped, but not gone back to.
    pub(crate) fn extent(&mut self, entry: Entry) -> Result<Extent, RunError> {
        let content = match entry.place {
            Place::Data { at, .. } => {
                let parts = self.data(at..at + entry.lengths.bytes())?;
                Content::Bytes { parts, lengths: entry.lengths }
            }
            Place::Reference { source, from } => Content::Reference { source, from, lengths: entry.lengths },
        };
        Ok(Extent { log: entry.log, start: entry.start, content })
    }

    fn load_block(&mut self) -> Result<(), RunError> {
        let object = self.map.meta.id;
        let range = self.map.block_range(self.block);
        let piece_end = self.piece_at + self.piece.len() as u64;
        if range.end > piece_end {
            let ends = (self.block..self.map.blocks()).map(|block| self.map.block_range(block).end);
            let end = ends.take_while(|end| *end <= range.start + PIECE_BYTES).last().unwrap_or(range.end);
            self.piece = self.storage.read(object, range.start..end).wait()?;
            self.piece_at = range.start;
        }
        let within = (range.start - self.piece_at) as usize..(range.end - self.piece_at) as usize;
        if within.end > self.piece.len() {
            return Err(RunError::corrupt(object, range.start, "a read was cut"));
        }
        let stored = self.piece.slice(within);
        let damaged = |error: DecodeError| RunError::corrupt(object, range.start, error);
        let wrong = |what: &str| RunError::corrupt(object, range.start, what);
        let block = self.map.open_block(self.block, &stored)?;
        let mut entries = block.entries(object).map_err(damaged)?;
        if entries.data().is_some_and(|at| at != self.data_at) {
            return Err(wrong("the block names the wrong data"));
        }
        while let Some(entry) = entries.next_entry().map_err(damaged)? {
            if (entry.log, entry.start) < self.last {
                return Err(wrong("entries are out of order"));
            }
            if let Place::Data { at, .. } = entry.place {
                if at != self.data_at {
                    return Err(wrong("the block names the wrong data"));
                }
                self.data_at += entry.lengths.bytes();
            }
            self.last = (entry.log, entry.end());
            self.entries.push(entry);
        }
        if self.data_at > self.map.data().end {
            return Err(wrong("the block names data that is not there"));
        }
        let Some(first) = self.entries.first() else { return Err(wrong("the block is empty")) };
        if !self.map.is_begun_by(self.block, (first.log, first.start)) || !self.map.is_ended_by(self.block, self.last) {
            return Err(wrong("the block does not have the keys that the map names"));
        }
        self.entries.reverse();
        self.block += 1;
        Ok(())
    }

    fn data(&mut self, range: Range<u64>) -> Result<Vec<Bytes>, RunError> {
        while self.data.front().is_some_and(|(at, piece)| at + piece.len() as u64 <= range.start) {
            self.data.pop_front();
        }
        let mut next = match self.data.back() {
            Some((at, piece)) => at + piece.len() as u64,
            None => self.map.pages(&range).start,
        };
        while next < range.end {
            let end = (next + PIECE_BYTES).min(self.map.data().end);
            let piece = self.storage.read(self.map.meta.id, next..end).wait()?;
            self.data.push_back((next, piece));
            next = end;
        }
        self.check(self.map.pages(&range))?;
        let parts = self.data.iter().filter_map(|(at, piece)| {
            let from = range.start.max(*at);
            let to = range.end.min(at + piece.len() as u64);
            (from < to).then(|| piece.slice((from - at) as usize..(to - at) as usize))
        });
        Ok(parts.collect())
    }
}

impl ObjectScan {
    /// Checks those of these pages that were not checked yet. Other pages are not: damage of dead data must not stop a
    /// scan.
    fn check(&mut self, pages: Range<u64>) -> Result<(), RunError> {
        let wanted = pages.start.max(self.checked)..pages.end;
        for (at, piece) in &self.data {
            let from = wanted.start.max(*at);
            let to = wanted.end.min(at + piece.len() as u64);
            if from < to {
                self.map.check_pages(from, &piece[(from - at) as usize..(to - at) as usize])?;
            }
        }
        self.checked = self.checked.max(pages.end);
        Ok(())
    }
}

/// Walks over the objects of a run, in key order.
pub(crate) struct RunScan {
    storage: Arc<dyn Storage>,
    objects: VecDeque<ObjectMeta>,
    scan: Option<ObjectScan>,
}

impl RunScan {
    #[must_use]
    pub(crate) fn new(storage: &Arc<dyn Storage>, run: &[ObjectMeta]) -> Self {
        Self { storage: Arc::clone(storage), objects: run.iter().copied().collect(), scan: None }
    }

    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, RunError> {
        loop {
            if let Some(scan) = &mut self.scan
                && let Some(entry) = scan.next_entry()?
            {
                return Ok(Some(entry));
            }
            let Some(object) = self.objects.pop_front() else {
                return Ok(None);
            };
            let scan = ObjectScan::open(&self.storage, object.id)?;
            if *scan.meta() != object {
                return Err(RunError::corrupt(object.id, 0, "it is not the object that the run names"));
            }
            self.scan = Some(scan);
        }
    }

    /// The last entry given out, with its data.
    pub(crate) fn extent(&mut self, entry: Entry) -> Result<Extent, RunError> {
        match &mut self.scan {
            Some(scan) => scan.extent(entry),
            None => Err(RunError::Order { log: entry.log, start: entry.start }),
        }
    }
}
