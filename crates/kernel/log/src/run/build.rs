//! Writing objects and runs.

use super::block::{BYTES_MIN, BlockBuilder};
use super::error::RunError;
use super::extent::{Content, Entry, Extent, Place};
use super::filter;
use super::footer::{Address, Map, PAGE_BYTES};
use super::meta::ObjectMeta;
use super::verify::verify;
use crate::lengths::{Lengths, Run};
use std::sync::Arc;
use thalweg_base::{Crc, LogId, ObjectId, Offset};
use thalweg_storage::{ObjectWriter, Storage};

/// An index entry covers at most so many messages, so that finding a boundary never decodes a long list.
pub const ENTRY_MESSAGES_MAX: u64 = 512;
/// An index entry covers at most so many bytes, unless it is a single larger message.
pub const ENTRY_BYTES_MAX: u64 = 256 << 10;

/// Writes one object from extents in key order. Holds the index in memory until it is finished, and no data.
pub struct ObjectBuilder {
    writer: Box<dyn ObjectWriter>,
    id: ObjectId,
    pages: Pages,
    data_bytes: u64,
    reference_bytes: u64,
    /// Joined from extents, not in a block yet.
    pending: Option<Entry>,
    block: BlockBuilder,
    blocks: Vec<u8>,
    /// Positions are relative to the first block until the object is finished.
    addresses: Vec<Address>,
    logs: Vec<LogId>,
    first: Option<(LogId, Offset)>,
    last: (LogId, Offset),
    entries: u64,
    messages: u64,
}

/// Checksums of the pages of data as it streams by.
#[derive(Default)]
struct Pages {
    sums: Vec<u32>,
    sum: Crc,
    filled: u64,
}

impl Pages {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = (PAGE_BYTES - self.filled) as usize;
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.sum = self.sum.bytes(now);
            self.filled += now.len() as u64;
            bytes = rest;
            if self.filled == PAGE_BYTES {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        if self.filled > 0 {
            self.sums.push(self.sum.finish());
            self.sum = Crc::new();
            self.filled = 0;
        }
    }
}

impl ObjectBuilder {
    #[must_use]
    pub fn new(id: ObjectId, writer: Box<dyn ObjectWriter>) -> Self {
        Self {
            writer,
            id,
            pages: Pages::default(),
            data_bytes: 0,
            reference_bytes: 0,
            pending: None,
            block: BlockBuilder::default(),
            blocks: Vec::new(),
            addresses: Vec::new(),
            logs: Vec::new(),
            first: None,
            last: (LogId::ZERO, Offset::ZERO),
            entries: 0,
            messages: 0,
        }
    }

    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// How long the index is by now, about.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        (self.blocks.len() + self.block.len() + self.addresses.len() * 28 + self.pages.sums.len() * 4) as u64
            + self.logs.len() as u64 * 10 / 8
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Appends an extent, which must start at or after the end of the one before. An empty one leaves no trace.
    pub fn push(&mut self, extent: &Extent) -> Result<(), RunError> {
        let (log, start) = (extent.log, extent.start);
        if self.first.is_some() && (log, start) < self.last {
            return Err(RunError::Order { log, start });
        }
        let lengths = extent.lengths();
        let mismatch = |bytes| RunError::Lengths { log, start, bytes, lengths: lengths.bytes() };
        start.0.checked_add(lengths.bytes()).ok_or_else(|| mismatch(lengths.bytes()))?;
        match &extent.content {
            Content::Bytes { parts, .. } => {
                let bytes = parts.iter().map(|part| part.len() as u64).sum();
                if bytes != lengths.bytes() {
                    return Err(mismatch(bytes));
                }
                self.index(log, start, Place::Data { object: self.id, at: self.data_bytes }, lengths);
                for part in parts {
                    self.writer.write(part)?;
                    self.pages.add(part);
                }
                self.data_bytes += bytes;
            }
            Content::Reference { source, from, .. } => {
                from.0.checked_add(lengths.bytes()).ok_or_else(|| mismatch(lengths.bytes()))?;
                self.index(log, start, Place::Reference { source: *source, from: *from }, lengths);
                self.reference_bytes += lengths.bytes();
            }
        }
        Ok(())
    }

    /// Makes entries of bounded size out of an extent, the first of them joined to the pending one where they fit.
    fn index(&mut self, log: LogId, start: Offset, place: Place, lengths: &Lengths) {
        let mut at = 0;
        for mut run in lengths.runs() {
            while run.count > 0 {
                let entry = self.entry_at(log, start.plus(at), after(place, at), run.length);
                let messages = ENTRY_MESSAGES_MAX.saturating_sub(entry.lengths.count());
                let bytes = ENTRY_BYTES_MAX.saturating_sub(entry.lengths.bytes());
                let fit = messages.min(bytes / u64::from(run.length)).min(u64::from(run.count)).max(1) as u32;
                let piece = Run { count: fit, length: run.length };
                entry.lengths.push_run(piece);
                at += piece.bytes();
                run.count -= fit;
                self.messages += u64::from(fit);
            }
        }
        if at > 0 {
            self.last = (log, start.plus(at));
        }
    }

    /// The pending entry if a message of `length` bytes can go into it, else a new one.
    fn entry_at(&mut self, log: LogId, start: Offset, place: Place, length: u32) -> &mut Entry {
        let joins = self.pending.as_ref().is_some_and(|entry| {
            entry.log == log
                && entry.end() == start
                && after(entry.place, entry.lengths.bytes()) == place
                && entry.lengths.count() < ENTRY_MESSAGES_MAX
                && entry.lengths.bytes() + u64::from(length) <= ENTRY_BYTES_MAX
        });
        if !joins {
            self.flush_entry();
            if self.first.is_none() {
                self.first = Some((log, start));
            }
            if self.logs.last() != Some(&log) {
                self.logs.push(log);
            }
        }
        self.pending.get_or_insert_with(|| Entry { log, start, place, lengths: Lengths::new() })
    }

    fn flush_entry(&mut self) {
        let Some(entry) = self.pending.take() else {
            return;
        };
        // Data positions follow from the order, so only a block's first one is stored: where data stood before this entry.
        let data = match entry.place {
            Place::Data { at, .. } => at,
            Place::Reference { .. } => self.data_bytes,
        };
        self.block.push(&entry, data);
        self.entries += 1;
        if self.block.len() >= BYTES_MIN {
            self.flush_block();
        }
    }

    fn flush_block(&mut self) {
        if let Some((first, bytes)) = self.block.take() {
            self.addresses.push(Address { first, at: self.blocks.len() as u64, len: bytes.len() as u32 });
            self.blocks.extend_from_slice(&bytes);
        }
    }

    /// Writes the index. The object is durable when this returns, but not verified.
    pub fn finish(mut self) -> Result<ObjectMeta, RunError> {
        self.flush_entry();
        self.flush_block();
        self.pages.close();
        for address in &mut self.addresses {
            address.at += self.data_bytes;
        }
        let meta = ObjectMeta {
            id: self.id,
            first: self.first.unwrap_or_default(),
            last: self.last.0,
            end: self.last.1,
            data_bytes: self.data_bytes,
            reference_bytes: self.reference_bytes,
            index_bytes: 0,
            entries: self.entries,
            logs: self.logs.len() as u64,
            messages: self.messages,
        };
        let filter = filter::build(&self.logs);
        let mut map = Map { meta, blocks: self.addresses, sums: self.pages.sums, filter };
        let end = map.encode(self.blocks.len() as u64);
        self.writer.write(&self.blocks)?;
        self.writer.write(&end)?;
        self.writer.finish()?;
        Ok(map.meta)
    }
}

/// The place `bytes` further on.
fn after(place: Place, bytes: u64) -> Place {
    match place {
        Place::Data { object, at } => Place::Data { object, at: at + bytes },
        Place::Reference { source, from } => Place::Reference { source, from: from.plus(bytes) },
    }
}

#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// An object is finished when its data has grown so long, or its index an eighth of it.
    pub object_bytes: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { object_bytes: 64 << 20 }
    }
}

/// Writes a run: as many objects as it takes, each read back and verified in full. Dropped unfinished, it removes what it wrote.
pub struct RunBuilder {
    storage: Arc<dyn Storage>,
    ids: Box<dyn FnMut() -> ObjectId + Send>,
    options: RunOptions,
    object: Option<ObjectBuilder>,
    done: Vec<ObjectMeta>,
    /// Finished here, so removed if the run is not.
    written: Vec<ObjectId>,
}

impl RunBuilder {
    pub fn new(storage: Arc<dyn Storage>, ids: impl FnMut() -> ObjectId + Send + 'static, options: RunOptions) -> Self {
        Self { storage, ids: Box::new(ids), options, object: None, done: Vec::new(), written: Vec::new() }
    }

    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    #[must_use]
    pub fn options(&self) -> RunOptions {
        self.options
    }

    /// Appends an extent, which must start at or after the end of the one before.
    pub fn push(&mut self, extent: &Extent) -> Result<(), RunError> {
        let (log, start) = (extent.log, extent.start);
        if self.done.last().is_some_and(|before| (log, start) < (before.last, before.end)) {
            return Err(RunError::Order { log, start });
        }
        if extent.lengths().is_empty() {
            return Ok(());
        }
        let object = match &mut self.object {
            Some(object) => object,
            none => {
                let id = (self.ids)();
                none.insert(ObjectBuilder::new(id, self.storage.create(id)?))
            }
        };
        object.push(extent)?;
        let target = self.options.object_bytes;
        if object.data_bytes() >= target || object.index_bytes() >= target / 8 {
            self.close()?;
        }
        Ok(())
    }

    /// Takes a finished, verified object into the run as it is. It must come after everything so far.
    pub fn adopt(&mut self, meta: ObjectMeta) -> Result<(), RunError> {
        self.close()?;
        if self.done.last().is_some_and(|before| meta.first < (before.last, before.end)) {
            return Err(RunError::Order { log: meta.first.0, start: meta.first.1 });
        }
        self.done.push(meta);
        Ok(())
    }

    fn close(&mut self) -> Result<(), RunError> {
        let Some(object) = self.object.take() else {
            return Ok(());
        };
        self.written.push(object.id);
        let meta = object.finish()?;
        let read_back = verify(&self.storage, meta.id)?;
        if read_back != meta {
            return Err(RunError::corrupt(meta.id, 0, "it reads back as another object"));
        }
        self.done.push(meta);
        Ok(())
    }

    /// The run's objects in key order, all durable and verified.
    pub fn finish(mut self) -> Result<Vec<ObjectMeta>, RunError> {
        self.close()?;
        self.written.clear();
        Ok(std::mem::take(&mut self.done))
    }
}

impl Drop for RunBuilder {
    fn drop(&mut self) {
        for object in &self.written {
            // What stays is named nowhere, so it is removed at the next start.
            let _ = self.storage.remove(*object);
        }
    }
}
