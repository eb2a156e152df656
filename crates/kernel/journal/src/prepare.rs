//! Blank segment files: made ahead, recycled from trimmed ones, or removed. All of it is IO that no batch should wait for.
//!
//! A blank stands on the disk, durably, under the number it will be used with, before it is used. It has no header for that number:
//! a new file is zeros, a recycled one still has the header of its last use, which its name contradicts.

use crate::file::FileJournal;
use crate::format::{FOLDER, segment_path};
use crate::segments::{Blank, Segment};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use thalweg_disk::{Disk, File};

const ZEROS: usize = 1 << 20;

/// Creates a blank of `bytes` zeros, durable in name and contents.
pub(crate) fn create_blank(disk: &dyn Disk, number: u64, bytes: u64) -> io::Result<Arc<dyn File>> {
    let path = segment_path(number);
    let file = disk.create(&path)?;
    let made = (|| {
        file.allocate(bytes)?;
        // Reserved blocks are marked as unwritten: without real zeros the first sync of each would have metadata to write.
        let zeros = vec![0; ZEROS.min(bytes as usize)];
        let mut at = 0;
        while at < bytes {
            let n = (bytes - at).min(zeros.len() as u64);
            file.write_at(&zeros[..n as usize], at)?;
            // Little by little: a sync of the journal waits for all that the device was given before it.
            file.sync()?;
            at += n;
        }
        disk.sync_dir(FOLDER)
    })();
    match made {
        Ok(()) => Ok(file),
        Err(e) => {
            // Best effort: recovery takes care of what stays.
            let _ = disk.remove(&path);
            Err(e)
        }
    }
}

/// Gives a file its next number, durably.
pub(crate) fn renumber(disk: &dyn Disk, from: u64, to: u64) -> io::Result<()> {
    disk.rename(&segment_path(from), &segment_path(to))?;
    disk.sync_dir(FOLDER)
}

impl FileJournal {
    /// Whether [`FileJournal::prepare`] has something to do.
    #[must_use]
    pub fn wants_prepare(&self) -> bool {
        let segments = self.segments.lock();
        segments.has_retired() || segments.ready_len() <= self.options.reserve_segments
    }

    /// Recycles or removes trimmed segments that no reader holds any more, and makes blanks ahead. Call it in the background,
    /// again and again, from a thread that may wait for the disk. An error says what stopped it (no space, mostly); it may be
    /// called again.
    pub fn prepare(&self) -> io::Result<()> {
        let done = {
            let _one = self.preparing.lock();
            let done = self.reclaim().and_then(|()| self.make_ahead());
            self.allow();
            done
        };
        // A batch may have been waiting for a file.
        self.kick_if_waiting();
        done
    }

    /// Asks the disk how many segments may still be promised.
    pub(crate) fn allow(&self) {
        let free = self.disk.free().unwrap_or(0);
        self.segments.lock().allow(free / self.options.segment_bytes);
    }

    pub(crate) fn kick_if_waiting(&self) {
        if !self.fill.lock().is_empty() {
            self.shell.wake();
        }
    }

    fn reclaim(&self) -> io::Result<()> {
        let held_too = self.options.faults().recycled_under_reader();
        loop {
            let (segment, number) = {
                let mut segments = self.segments.lock();
                let Some(segment) = segments.take_retired(held_too) else { return Ok(()) };
                let kept = self.options.reserve_segments + self.options.spare_segments;
                let wanted = segment.bytes == self.options.segment_bytes && segments.ready_len() < kept;
                (segment, wanted.then(|| segments.fresh_number()))
            };
            match number {
                Some(number) => self.recycle(&segment, number)?,
                None => {
                    self.disk.remove(&segment_path(segment.number))?;
                    self.disk.sync_dir(FOLDER)?;
                }
            }
        }
    }

    fn recycle(&self, segment: &Segment, number: u64) -> io::Result<()> {
        renumber(self.disk.as_ref(), segment.number, number)?;
        self.offer(Blank { number, file: Arc::clone(&segment.file) })
    }

    fn make_ahead(&self) -> io::Result<()> {
        while self.segments.lock().ready_len() <= self.options.reserve_segments {
            let number = self.segments.lock().fresh_number();
            let file = create_blank(self.disk.as_ref(), number, self.options.segment_bytes)?;
            self.offer(Blank { number, file })?;
        }
        Ok(())
    }

    /// Adds a blank. If a batch was promised a larger number while it was made, it gets a larger one still.
    fn offer(&self, mut blank: Blank) -> io::Result<()> {
        loop {
            let (late, number) = {
                let mut segments = self.segments.lock();
                match segments.offer(blank) {
                    None => return Ok(()),
                    Some(late) => (late, segments.fresh_number()),
                }
            };
            renumber(self.disk.as_ref(), late.number, number)?;
            blank = Blank { number, file: late.file };
        }
    }

    /// The file of a generation that was promised: the blank that was there then, else one made now. `None` if there is no space.
    pub(crate) fn provide(&self, number: u64) -> io::Result<Option<Arc<dyn File>>> {
        if let Some(blank) = self.segments.lock().take_assigned(number) {
            return Ok(Some(blank.file));
        }
        let file = self.make_deferred(number)?;
        if file.is_some() {
            self.segments.lock().made_deferred();
        }
        Ok(file)
    }

    fn make_deferred(&self, number: u64) -> io::Result<Option<Arc<dyn File>>> {
        let retired = self.segments.lock().take_retired(self.options.faults().recycled_under_reader());
        if let Some(segment) = retired {
            if segment.bytes == self.options.segment_bytes {
                renumber(self.disk.as_ref(), segment.number, number)?;
                return Ok(Some(Arc::clone(&segment.file)));
            }
            self.segments.lock().push_retired(segment);
        }
        match create_blank(self.disk.as_ref(), number, self.options.segment_bytes) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::StorageFull => {
                let ready = {
                    let mut segments = self.segments.lock();
                    segments.allow(0);
                    segments.take_ready()
                };
                let Some(ready) = ready else { return Ok(None) };
                renumber(self.disk.as_ref(), ready.number, number)?;
                Ok(Some(ready.file))
            }
            Err(e) => Err(e),
        }
    }
}
