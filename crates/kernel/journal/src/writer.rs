//! Writing and syncing batches, in steps that one thread at a time takes.
//!
//! `begin` writes the oldest batch, `finish` syncs if a durable frame waits for it, and publishes. In between appends fill the next
//! batch. A batch with durable frames is the last one written until it is synced, but for batches with buffered frames, which
//! whoever kicks may write meanwhile. A batch's header says what was synced when it was written; a segment's header (written by the
//! first `begin` in it) proves that about all segments before.

use crate::Poisoned;
use crate::file::{Counters, FileJournal};
use crate::fill::Batch;
use crate::format::{BATCH_HEADER, BatchHeader, SEGMENT_HEADER, SegmentHeader};
use crate::segments::{Blank, Segment};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_base::Lsn;

/// How many batches are written in one kick.
const THROUGH_MAX: usize = 4;

pub(crate) struct Writer {
    pub(crate) active: Arc<Segment>,
    pub(crate) written: Lsn,
    pub(crate) synced: Lsn,
    /// Just after the last frame that is written, and the last durable one.
    frames: Lsn,
    urgent: Lsn,
    /// The last thing written says that everything before it is durable.
    marked: bool,
}

impl Writer {
    pub(crate) fn new(active: Arc<Segment>, at: Lsn) -> Self {
        Self { active, written: at, synced: at, frames: at, urgent: Lsn::ZERO, marked: true }
    }

    /// A durable frame is written that `finish` has to sync.
    fn is_waited_for(&self) -> bool {
        self.urgent > self.synced
    }

    fn is_dirty(&self) -> bool {
        self.frames > self.synced
    }
}

impl FileJournal {
    /// Takes the oldest batch and writes it. `false` if there is none, if a durable one is not finished, or if there is no space
    /// for its segment: then it waits for [`FileJournal::prepare`] or a trim.
    pub fn begin(&self) -> Result<bool, Poisoned> {
        let _one = self.driving.lock();
        let told = {
            let mut writer = self.writer.lock();
            self.published.sound()?;
            if writer.is_waited_for() {
                return Ok(false);
            }
            let Some(batch) = self.fill.lock().take() else { return Ok(false) };
            let before = writer.synced;
            if batch.segment != writer.active.base && !self.roll(&mut writer, &batch)? {
                self.fill.lock().put_back(batch);
                self.published.note_full();
                return Ok(false);
            }
            let early = batch.early;
            self.write(&mut writer, batch)?;
            let too_early = self.options.faults().acknowledged_before_sync();
            if too_early {
                self.published.set_durable(writer.written);
            }
            early || too_early || writer.synced > before
        };
        if told {
            self.published.notify();
        }
        Ok(true)
    }

    /// Writes what waits on the caller's thread, if that needs neither a new segment nor waiting for another thread; whether the
    /// writer's thread has something to see to. A write to allocated blocks goes to the page cache; it is not held up by the
    /// device while little is waiting to be synced, which is seen to.
    pub(crate) fn write_through(&self) -> bool {
        let (wrote, wanted) = {
            let Some(mut writer) = self.writer.try_lock() else { return true };
            let was_dirty = writer.is_dirty();
            let mut wrote = 0;
            let left = loop {
                if wrote == THROUGH_MAX {
                    break true;
                }
                let Some(batch) = self.fill.lock().take() else { break false };
                let waits = batch.segment != writer.active.base
                    || writer.written.since(writer.synced) > 2 * self.options.sync_bytes
                    || self.published.poisoned().is_some();
                if waits {
                    self.fill.lock().put_back(batch);
                    break true;
                }
                if self.write(&mut writer, batch).is_err() {
                    break true;
                }
                wrote += 1;
            };
            let wanted = left
                || writer.is_waited_for()
                || (writer.is_dirty() && !was_dirty)
                || writer.written.since(writer.synced) > self.options.sync_bytes;
            (wrote > 0, wanted)
        };
        if wrote {
            self.published.notify();
        }
        wanted
    }

    /// Syncs what `begin` wrote, and publishes it, if a durable frame is among it or enough has gathered. `false` if there was
    /// nothing to do.
    pub fn finish(&self) -> Result<bool, Poisoned> {
        let bytes = self.options.sync_bytes;
        self.sync_if(|writer| writer.is_waited_for() || writer.written.since(writer.synced) > bytes)
    }

    /// Syncs what is written, if it is `due`. Others may write meanwhile.
    pub(crate) fn sync_if(&self, due: impl FnOnce(&Writer) -> bool) -> Result<bool, Poisoned> {
        let _one = self.driving.lock();
        let (active, written) = {
            let writer = self.writer.lock();
            self.published.sound()?;
            if !due(&writer) {
                return Ok(false);
            }
            (Arc::clone(&writer.active), writer.written)
        };
        // No other segment is opened meanwhile, so this one is all that is not synced.
        self.sync_segment(&active)?;
        self.note_synced(&mut self.writer.lock(), written);
        self.published.notify();
        Ok(true)
    }

    /// `begin`, then `finish`. `false` if nothing was there to be written.
    pub fn step(&self) -> Result<bool, Poisoned> {
        let began = self.begin()?;
        let finished = self.finish()?;
        Ok(began || finished)
    }

    /// Writes and syncs all that was accepted; the position that now survives loss of power.
    pub fn sync(&self) -> Result<Lsn, Poisoned> {
        while self.step()? {}
        self.sync_if(|writer| writer.written > writer.synced)?;
        Ok(self.published.synced())
    }

    /// Syncs what is written if nobody has done so.
    pub(crate) fn sync_dirty(&self) -> Result<bool, Poisoned> {
        self.sync_if(Writer::is_dirty)
    }

    /// Frames are written that are not synced.
    pub(crate) fn is_dirty(&self) -> bool {
        self.writer.lock().is_dirty()
    }

    /// Says, once per pause and unsynced, that everything written is durable: so that damage to the last batch is told from a torn
    /// tail. For when there is nothing to do.
    pub fn mark(&self) -> Result<bool, Poisoned> {
        let _one = self.driving.lock();
        let mut writer = self.writer.lock();
        self.published.sound()?;
        if writer.marked || writer.written > writer.synced {
            return Ok(false);
        }
        let Some(lsn) = self.fill.lock().mark(writer.active.base, &self.options) else { return Ok(false) };
        let header = BatchHeader { frames: 0, bytes: BATCH_HEADER as u32, known_durable: lsn };
        let bytes = header.encode(writer.active.seal, lsn);
        self.write_at(&writer, &bytes, lsn)?;
        writer.written = lsn.plus(BATCH_HEADER as u64);
        writer.marked = true;
        self.published.set_written(writer.written);
        Ok(true)
    }

    fn write(&self, writer: &mut Writer, batch: Batch) -> Result<(), Poisoned> {
        let (lsn, end, frames) = (batch.lsn, batch.end(), u64::from(batch.frames));
        let urgent = batch.urgent;
        let bytes = self.pinned.count(batch.sealed(writer.active.seal, writer.synced));
        self.write_at(writer, &bytes, lsn)?;
        (writer.written, writer.frames) = (end, end);
        writer.urgent = writer.urgent.max(urgent);
        writer.marked = false;
        self.window.lock().push(lsn, bytes);
        self.published.set_written(end);
        Counters::add(&self.counters.batches, 1);
        Counters::add(&self.counters.written_frames, frames);
        Ok(())
    }

    fn write_at(&self, writer: &Writer, bytes: &[u8], lsn: Lsn) -> Result<(), Poisoned> {
        let at = writer.active.offset(lsn);
        writer.active.file.write_at(bytes, at).map_err(|e| self.published.poison("write", e.to_string()))?;
        Counters::add(&self.counters.written_bytes, bytes.len() as u64);
        Ok(())
    }

    fn sync_segment(&self, segment: &Segment) -> Result<(), Poisoned> {
        if !self.options.faults().sync_skipped() {
            segment.file.sync().map_err(|e| self.published.poison("sync", e.to_string()))?;
        }
        Counters::add(&self.counters.syncs, 1);
        Ok(())
    }

    fn note_synced(&self, writer: &mut Writer, upto: Lsn) {
        writer.synced = writer.synced.max(upto);
        self.published.set_synced(writer.synced);
    }

    /// Opens the batch's segment. Its header says that everything below its base is durable, so that has to be true first.
    fn roll(&self, writer: &mut Writer, batch: &Batch) -> Result<bool, Poisoned> {
        if writer.written > writer.synced {
            self.sync_segment(&writer.active)?;
            let written = writer.written;
            self.note_synced(writer, written);
        }
        let poison = |e: std::io::Error| self.published.poison("opening of a segment", e.to_string());
        let Some(Blank { number, file }) = self.provide().map_err(poison)? else { return Ok(false) };
        self.told_full.store(false, Ordering::Relaxed);
        let (base, bytes) = (batch.segment, self.options.segment_bytes);
        let header = SegmentHeader { number, base, bytes, term: self.opened.term, salt: self.options.salt };
        file.write_at(&header.encode(), 0).map_err(poison)?;
        Counters::add(&self.counters.written_bytes, SEGMENT_HEADER);
        writer.active = Arc::new(Segment { number, base, bytes, seal: self.seal, file });
        self.segments.lock().push_live(Arc::clone(&writer.active));
        Ok(true)
    }

    /// Writes and syncs all that was accepted, says so in a last batch, and stops. A closed journal accepts nothing. If frames are
    /// left for which the disk has no space, it may be called again.
    pub fn close(&self) -> Result<(), Poisoned> {
        self.shell.stop();
        self.fill.lock().closed = true;
        self.sync()?;
        if !self.fill.lock().is_empty() {
            let cause = "accepted frames still wait for space on the disk".into();
            return Err(Poisoned { operation: "close", cause });
        }
        self.mark()?;
        self.sync()?;
        Ok(())
    }
}
