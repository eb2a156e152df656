//! Reading objects and runs from front to back, in large pieces and with bounded memory. Nothing goes through the caches.

use super::block::Entries;
use super::error::RunError;
use super::extent::{Content, Entry, Extent, Place};
use super::footer::Map;
use super::meta::ObjectMeta;
use super::read::{checked, load_map};
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{DecodeError, LogId, ObjectId, Offset};
use thalweg_storage::Storage;

/// Index and data are read in pieces of about this size: a multiple of the page.
const PIECE_BYTES: u64 = 512 << 10;

/// Walks over one object. Checks every byte that it reads, and that entries are in order and name the data that is there.
pub struct ObjectScan {
    storage: Arc<dyn Storage>,
    map: Map,
    /// The next block to load.
    block: usize,
    /// Loaded index blocks: `piece` starts at `piece_at` of the object.
    piece: Bytes,
    piece_at: u64,
    /// Entries of the block at hand, last first.
    entries: Vec<Entry>,
    /// Where the last entry ended, and the data of the block at hand starts.
    last: (LogId, Offset),
    data_at: u64,
    /// Pieces of data, in order: position and bytes.
    data: VecDeque<(u64, Bytes)>,
    /// The pages below are checked or not wanted.
    checked: u64,
}

impl ObjectScan {
    pub fn open(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<Self, RunError> {
        let map = load_map(storage, object)?;
        Ok(Self {
            storage: Arc::clone(storage),
            map,
            block: 0,
            piece: Bytes::new(),
            piece_at: 0,
            entries: Vec::new(),
            last: (LogId::ZERO, Offset::ZERO),
            data_at: 0,
            data: VecDeque::new(),
            checked: 0,
        })
    }

    #[must_use]
    pub fn meta(&self) -> &ObjectMeta {
        &self.map.meta
    }

    pub(super) fn map(&self) -> &Map {
        &self.map
    }

    /// The next entry in key order.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, RunError> {
        while self.entries.is_empty() {
            if self.block == self.map.blocks.len() {
                return Ok(None);
            }
            self.load_block()?;
        }
        Ok(self.entries.pop())
    }

    /// The next entry with its data.
    pub fn next_extent(&mut self) -> Result<Option<Extent>, RunError> {
        self.next_entry()?.map(|entry| self.extent(entry)).transpose()
    }

    /// An entry of this scan with its data. Entries may be skipped, but not gone back to.
    pub fn extent(&mut self, entry: Entry) -> Result<Extent, RunError> {
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
        let address = self.map.blocks[self.block];
        let range = address.range();
        let piece_end = self.piece_at + self.piece.len() as u64;
        if range.end > piece_end {
            let blocks = &self.map.blocks[self.block..];
            let whole = blocks.iter().take_while(|block| block.range().end <= range.start + PIECE_BYTES).count();
            let end = blocks[whole.max(1) - 1].range().end;
            self.piece = self.storage.read(object, range.start..end).wait()?;
            self.piece_at = range.start;
        }
        let block = self.piece.slice((range.start - self.piece_at) as usize..(range.end - self.piece_at) as usize);
        let damaged = |error: DecodeError| RunError::corrupt(object, range.start, error);
        let wrong = |what: &str| RunError::corrupt(object, range.start, what);
        let bytes = checked(object, range.start, &block)?;
        let mut entries = Entries::new(object, &bytes).map_err(damaged)?;
        if entries.data() != self.data_at {
            return Err(wrong("the block names the wrong data"));
        }
        while let Some(entry) = entries.next_entry().map_err(damaged)? {
            let key = (entry.log, entry.start);
            if self.entries.is_empty() && key != address.first {
                return Err(wrong("the block does not start with the key that the directory names"));
            }
            if key < self.last {
                return Err(wrong("entries are out of order"));
            }
            self.last = (entry.log, entry.end());
            self.entries.push(entry);
        }
        self.data_at = entries.data();
        if self.data_at > self.map.meta.data_bytes {
            return Err(wrong("the block names data that is not there"));
        }
        if self.entries.is_empty() {
            return Err(wrong("the block is empty"));
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
            let end = (next + PIECE_BYTES).min(self.map.meta.data_bytes);
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
    /// Checks those of these pages that were not. Others are left alone: what nobody wants may be damaged.
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
pub struct RunScan {
    storage: Arc<dyn Storage>,
    objects: VecDeque<ObjectMeta>,
    scan: Option<ObjectScan>,
}

impl RunScan {
    #[must_use]
    pub fn new(storage: &Arc<dyn Storage>, run: &[ObjectMeta]) -> Self {
        Self { storage: Arc::clone(storage), objects: run.iter().copied().collect(), scan: None }
    }

    pub fn next_entry(&mut self) -> Result<Option<Entry>, RunError> {
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
    pub fn extent(&mut self, entry: Entry) -> Result<Extent, RunError> {
        match &mut self.scan {
            Some(scan) => scan.extent(entry),
            None => Err(RunError::Order { log: entry.log, start: entry.start }),
        }
    }

    pub fn next_extent(&mut self) -> Result<Option<Extent>, RunError> {
        self.next_entry()?.map(|entry| self.extent(entry)).transpose()
    }
}
