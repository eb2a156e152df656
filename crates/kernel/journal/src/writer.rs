//! Writing and syncing batches, in steps that one thread at a time takes.
//!
//! `begin` writes the oldest batch, `finish` syncs it and publishes. In between appends fill the next one. There is one batch in
//! flight, so everything before it is durable when it is written: that is what its header says, and what a segment's header
//! (written by the first `begin` in it) proves about all segments before.

use crate::Poisoned;
use crate::file::{Counters, FileJournal};
use crate::fill::Batch;
use crate::format::{BATCH_HEADER, BatchHeader, SEGMENT_HEADER, SegmentHeader};
use crate::options::Durability;
use crate::segments::Segment;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_base::Lsn;

pub(crate) struct Writer {
    pub(crate) active: Arc<Segment>,
    pub(crate) written: Lsn,
    pub(crate) synced: Lsn,
    /// A batch is written that `finish` has to sync.
    inflight: bool,
    /// The last thing written says that everything before it is durable.
    marked: bool,
}

impl Writer {
    pub(crate) fn new(active: Arc<Segment>, at: Lsn) -> Self {
        Self { active, written: at, synced: at, inflight: false, marked: true }
    }
}

impl FileJournal {
    pub(crate) fn buffered(&self) -> bool {
        matches!(self.options.durability, Durability::Buffered { .. })
    }

    /// Takes the oldest batch and writes it. `false` if there is none, if the last one is not finished, or if there is no space
    /// for its segment: then it waits for [`FileJournal::prepare`] or a trim.
    pub fn begin(&self) -> Result<bool, Poisoned> {
        {
            let mut writer = self.writer.lock();
            self.published.sound()?;
            if writer.inflight {
                return Ok(false);
            }
            let Some(batch) = self.fill.lock().take() else { return Ok(false) };
            if batch.place.generation != writer.active.number && !self.roll(&mut writer, &batch)? {
                self.fill.lock().put_back(batch);
                return Ok(false);
            }
            self.write(&mut writer, batch)?;
            let early = self.options.faults().acknowledged_before_sync();
            if !self.buffered() {
                writer.inflight = true;
            }
            if !self.buffered() && !early {
                return Ok(true);
            }
            self.published.set_durable(writer.written);
        }
        self.published.notify();
        Ok(true)
    }

    /// Of a buffered journal: writes the oldest batch on the caller's thread, if that needs neither a sync, nor a new segment, nor
    /// waiting for another thread. `false` if the writer's thread has to see to it. A write to allocated blocks goes to the page
    /// cache; it is not held up by the device while little is waiting to be synced, which is seen to.
    pub(crate) fn write_through(&self) -> bool {
        let Durability::Buffered { sync_bytes, .. } = self.options.durability else { return false };
        let unsynced = {
            let Some(mut writer) = self.writer.try_lock() else { return false };
            if writer.written.since(writer.synced) > 2 * sync_bytes {
                return false;
            }
            let batch = {
                let mut fill = self.fill.lock();
                let Some(batch) = fill.take() else { return true };
                if batch.place.generation != writer.active.number {
                    fill.put_back(batch);
                    return false;
                }
                batch
            };
            if self.published.poisoned().is_some() || self.write(&mut writer, batch).is_err() {
                return false;
            }
            self.published.set_durable(writer.written);
            writer.written.since(writer.synced)
        };
        self.published.notify();
        if unsynced > sync_bytes {
            self.shell.wake();
        }
        // A batch is bounded: there may be another.
        self.fill.lock().is_empty()
    }

    /// Syncs what `begin` wrote, and publishes it. A buffered journal syncs only when enough has gathered. `false` if there was
    /// nothing to do.
    pub fn finish(&self) -> Result<bool, Poisoned> {
        if let Durability::Buffered { sync_bytes, .. } = self.options.durability {
            return self.sync_buffered(sync_bytes);
        }
        {
            let mut writer = self.writer.lock();
            self.published.sound()?;
            if !writer.inflight {
                return Ok(false);
            }
            self.sync_active(&mut writer)?;
            self.published.set_durable(writer.written);
        }
        self.published.notify();
        Ok(true)
    }

    /// Syncs if more than `least` bytes wait for it; others write meanwhile.
    fn sync_buffered(&self, least: u64) -> Result<bool, Poisoned> {
        let (active, written) = {
            let writer = self.writer.lock();
            self.published.sound()?;
            if writer.written.since(writer.synced) <= least {
                return Ok(false);
            }
            (Arc::clone(&writer.active), writer.written)
        };
        // A segment that is opened meanwhile does not matter: it is opened after a sync of this one.
        self.sync_segment(&active)?;
        let mut writer = self.writer.lock();
        writer.synced = writer.synced.max(written);
        self.published.set_synced(writer.synced);
        Ok(true)
    }

    /// `begin`, then `finish`. `false` if nothing was there to be written.
    pub fn step(&self) -> Result<bool, Poisoned> {
        let began = self.begin()?;
        let finished = self.finish()?;
        Ok(began || finished)
    }

    /// Writes and syncs all that was accepted, whatever the promised level; the position that now survives loss of power.
    pub fn sync(&self) -> Result<Lsn, Poisoned> {
        while self.step()? {}
        if self.buffered() {
            self.sync_buffered(0)?;
            return Ok(self.published.synced());
        }
        {
            let mut writer = self.writer.lock();
            self.published.sound()?;
            if writer.written > writer.synced {
                self.sync_active(&mut writer)?;
                self.published.set_durable(writer.written);
            }
        }
        self.published.notify();
        Ok(self.published.synced())
    }

    /// Says, once per pause and unsynced, that everything written is durable: so that damage to the last batch is told from a torn
    /// tail. For when there is nothing to do.
    pub fn mark(&self) -> Result<bool, Poisoned> {
        let mut writer = self.writer.lock();
        self.published.sound()?;
        if writer.inflight || writer.marked || writer.written > writer.synced {
            return Ok(false);
        }
        let Some(lsn) = self.fill.lock().mark(writer.active.number, &self.options) else { return Ok(false) };
        let header = BatchHeader { frames: 0, bytes: BATCH_HEADER as u32, known_durable: lsn };
        let bytes = header.encode(self.options.seal(writer.active.number), lsn);
        self.write_at(&writer, &bytes, lsn)?;
        writer.written = lsn.plus(BATCH_HEADER as u64);
        writer.marked = true;
        self.published.set_written(writer.written);
        Ok(true)
    }

    fn write(&self, writer: &mut Writer, batch: Batch) -> Result<(), Poisoned> {
        let (lsn, end, frames) = (batch.lsn, batch.end(), u64::from(batch.frames));
        let bytes = Bytes::from(batch.sealed(self.options.seal(writer.active.number), writer.synced));
        self.write_at(writer, &bytes, lsn)?;
        writer.written = end;
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

    fn sync_active(&self, writer: &mut Writer) -> Result<(), Poisoned> {
        self.sync_segment(&writer.active)?;
        writer.inflight = false;
        writer.synced = writer.written;
        self.published.set_synced(writer.synced);
        Ok(())
    }

    /// Opens the batch's segment. Its header says that everything below its base is durable, so that has to be true first.
    fn roll(&self, writer: &mut Writer, batch: &Batch) -> Result<bool, Poisoned> {
        if writer.written > writer.synced {
            self.sync_active(writer)?;
        }
        let poison = |e: std::io::Error| self.published.poison("opening of a segment", e.to_string());
        let Some(file) = self.provide(batch.place.generation).map_err(poison)? else { return Ok(false) };
        let (number, base, bytes) = (batch.place.generation, batch.place.base, self.options.segment_bytes);
        let header = SegmentHeader { generation: number, base, bytes };
        file.write_at(&header.encode(), 0).map_err(poison)?;
        Counters::add(&self.counters.written_bytes, SEGMENT_HEADER);
        writer.active = Arc::new(Segment { number, base, bytes, file });
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
