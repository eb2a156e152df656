//! Writing objects and runs.

use super::codec::{self, Extents};
use super::error::RunError;
use super::extent::{Content, Entry, Extent, Place};
use super::meta::ObjectMeta;
use super::verify::verify;
use crate::lengths::{Lengths, Run};
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_container::{Builder, Compression, Entry as Stored, Kind, Options};
use thalweg_storage::{ObjectWriter, Storage};

/// An index entry covers at most so many messages, so that finding a boundary never decodes a long list.
pub(crate) const ENTRY_MESSAGES_MAX: u64 = 512;
/// An index entry covers at most so many bytes, unless it is a single larger message.
pub(crate) const ENTRY_BYTES_MAX: u64 = 256 << 10;

/// A block of entries is closed when it has so many bytes: a lookup in a cold object reads one of them.
const BLOCK_BYTES: usize = 4 << 10;
/// One partition, so that a reader takes it with the checksums of data in one piece: objects are bounded by
/// [`RunOptions`]. Blocks are cached as they are when unpacked, and unpacking one takes 2 µs.
const OPTIONS: Options =
    Options { block_bytes: BLOCK_BYTES, compression: Compression::Lz4, has_content: true, has_one_partition: true };

/// Writes one object from extents in key order. Holds the index in memory until it is finished, and no data.
pub(crate) struct ObjectBuilder {
    out: Builder<Extents>,
    /// Joined from extents, not written yet.
    pending: Option<Entry>,
    /// Room for the value of an entry.
    value: Vec<u8>,
    last_log: Option<LogId>,
    /// The object's content so far, without its index.
    meta: ObjectMeta,
}

impl ObjectBuilder {
    pub(crate) fn new(id: ObjectId, writer: Box<dyn ObjectWriter>) -> Result<Self, RunError> {
        let meta = ObjectMeta { id, ..ObjectMeta::default() };
        Ok(Self { out: Builder::new(id, writer, OPTIONS)?, pending: None, value: Vec::new(), last_log: None, meta })
    }

    #[must_use]
    pub(crate) fn data_bytes(&self) -> u64 {
        self.meta.data_bytes
    }

    /// How long the index is by now, about.
    #[must_use]
    pub(crate) fn index_bytes(&self) -> u64 {
        self.out.bytes() - self.meta.data_bytes
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.meta.messages == 0
    }

    /// Appends an extent, which must start at or after the end of the one before. An empty one leaves no trace.
    pub(crate) fn push(&mut self, extent: &Extent) -> Result<(), RunError> {
        let (log, start) = (extent.log, extent.start);
        if !self.is_empty() && (log, start) < (self.meta.last, self.meta.end) {
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
                let at = codec::content_at() + self.meta.data_bytes;
                self.index(log, start, Place::Data { object: self.meta.id, at }, lengths)?;
                for part in parts {
                    self.out.content(part)?;
                }
                self.meta.data_bytes += bytes;
            }
            Content::Reference { source, from, .. } => {
                from.0.checked_add(lengths.bytes()).ok_or_else(|| mismatch(lengths.bytes()))?;
                self.index(log, start, Place::Reference { source: *source, from: *from }, lengths)?;
                self.meta.reference_bytes += lengths.bytes();
            }
        }
        Ok(())
    }

    /// Makes entries of bounded size out of an extent, the first of them joined to the pending one where they fit.
    fn index(&mut self, log: LogId, start: Offset, place: Place, lengths: &Lengths) -> Result<(), RunError> {
        let mut at = 0;
        for mut run in lengths.runs() {
            while run.count > 0 {
                let entry = self.entry_at(log, start.plus(at), after(place, at), run.length)?;
                let messages = ENTRY_MESSAGES_MAX.saturating_sub(entry.lengths.count());
                let bytes = ENTRY_BYTES_MAX.saturating_sub(entry.lengths.bytes());
                let fit = messages.min(bytes / u64::from(run.length)).min(u64::from(run.count)).max(1) as u32;
                let piece = Run { count: fit, length: run.length };
                entry.lengths.push_run(piece);
                at += piece.bytes();
                run.count -= fit;
                self.meta.messages += u64::from(fit);
            }
        }
        if at > 0 {
            (self.meta.last, self.meta.end) = (log, start.plus(at));
        }
        Ok(())
    }

    /// The pending entry if a message of `length` bytes can go into it, else a new one.
    fn entry_at(&mut self, log: LogId, start: Offset, place: Place, length: u32) -> Result<&mut Entry, RunError> {
        let joins = self.pending.as_ref().is_some_and(|entry| {
            entry.log == log
                && entry.end() == start
                && after(entry.place, entry.lengths.bytes()) == place
                && entry.lengths.count() < ENTRY_MESSAGES_MAX
                && entry.lengths.bytes() + u64::from(length) <= ENTRY_BYTES_MAX
        });
        if !joins {
            self.flush_entry()?;
            if self.last_log.is_none() {
                self.meta.first = (log, start);
            }
            if self.last_log.replace(log) != Some(log) {
                self.meta.logs += 1;
            }
        }
        Ok(self.pending.get_or_insert_with(|| Entry { log, start, place, lengths: Lengths::new() }))
    }

    fn flush_entry(&mut self) -> Result<(), RunError> {
        let Some(entry) = self.pending.take() else { return Ok(()) };
        let key = codec::key(entry.log, entry.end());
        self.value.clear();
        codec::encode(&entry, &mut self.value);
        self.out.push(&Stored { key: &key, kind: Kind::Value, value: &self.value })?;
        self.meta.entries += 1;
        Ok(())
    }

    /// Writes the index. The object is durable when this returns, but not verified.
    pub(crate) fn finish(mut self) -> Result<ObjectMeta, RunError> {
        self.flush_entry()?;
        self.out.set_note(codec::encode_note(&self.meta).into())?;
        let bytes = self.out.finish()?.object.bytes;
        Ok(ObjectMeta { index_bytes: bytes - self.meta.data_bytes, ..self.meta })
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
pub(crate) struct RunOptions {
    /// An object is finished when its data has grown so long, or its index an eighth of it.
    pub object_bytes: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { object_bytes: 64 << 20 }
    }
}

/// Writes a run: as many objects as it takes, each read back and verified in full. Dropped unfinished, it removes the
/// objects that it wrote.
pub(crate) struct RunBuilder {
    storage: Arc<dyn Storage>,
    ids: Box<dyn FnMut() -> ObjectId + Send>,
    options: RunOptions,
    object: Option<ObjectBuilder>,
    done: Vec<ObjectMeta>,
    /// Finished here, so removed if the run is not.
    written: Vec<ObjectId>,
}

impl RunBuilder {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        ids: impl FnMut() -> ObjectId + Send + 'static,
        options: RunOptions,
    ) -> Self {
        Self { storage, ids: Box::new(ids), options, object: None, done: Vec::new(), written: Vec::new() }
    }

    #[must_use]
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    #[must_use]
    pub(crate) fn options(&self) -> RunOptions {
        self.options
    }

    /// Appends an extent, which must start at or after the end of the one before.
    pub(crate) fn push(&mut self, extent: &Extent) -> Result<(), RunError> {
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
                none.insert(ObjectBuilder::new(id, self.storage.create(id)?)?)
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
    pub(crate) fn adopt(&mut self, meta: ObjectMeta) -> Result<(), RunError> {
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
        self.written.push(object.meta.id);
        let meta = object.finish()?;
        let read_back = verify(&self.storage, meta.id)?;
        if read_back != meta {
            return Err(RunError::corrupt(meta.id, 0, "it reads back as another object"));
        }
        self.done.push(meta);
        Ok(())
    }

    /// The run's objects in key order, all durable and verified.
    pub(crate) fn finish(mut self) -> Result<Vec<ObjectMeta>, RunError> {
        self.close()?;
        self.written.clear();
        Ok(std::mem::take(&mut self.done))
    }
}

impl Drop for RunBuilder {
    fn drop(&mut self) {
        for object in &self.written {
            // No root names the object, so the next start removes it.
            let _ = self.storage.remove(*object);
        }
    }
}
