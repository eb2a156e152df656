//! Blank segment files: made ahead, recycled from trimmed ones, or removed. All of it is IO that no batch should wait for.
//!
//! A blank stands on the disk, durably, under the number it will be used with, before it is used. It has no header for that number:
//! a new file is zeros, a recycled one still has the header of its last use, which its name contradicts.

use crate::file::FileJournal;
use crate::format::{FOLDER, segment_path};
use crate::segments::{Blank, Segment};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_disk::{Disk, File, is_exhausted};

const ZEROS: usize = 1 << 20;

/// Creates a blank of `bytes` zeros, durable in name and contents.
pub(crate) fn create_blank(disk: &dyn Disk, number: u64, bytes: u64) -> io::Result<Arc<dyn File>> {
    let path = segment_path(number);
    let file = match disk.create(&path) {
        // Left over: an earlier attempt failed, and so did removing what it had made.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            disk.remove(&path)?;
            disk.create(&path)?
        }
        created => created?,
    };
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

impl FileJournal {
    /// Whether [`FileJournal::prepare`] has something to do.
    #[must_use]
    pub fn wants_prepare(&self) -> bool {
        let segments = self.segments.lock();
        segments.has_retired() || segments.spare_len() <= self.options.reserve_segments
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
            let (segment, is_wanted) = {
                let mut segments = self.segments.lock();
                let Some(segment) = segments.take_retired(held_too) else { return Ok(()) };
                let kept = self.options.reserve_segments + self.options.spare_segments;
                let is_wanted = segment.bytes == self.options.segment_bytes && segments.spare_len() < kept;
                (segment, is_wanted)
            };
            if is_wanted {
                let blank = self.recycle(segment)?;
                self.segments.lock().push_ready(blank);
            } else {
                self.disk.remove(&segment_path(segment.number))?;
                self.disk.sync_dir(FOLDER)?;
            }
        }
    }

    /// Makes a blank of a trimmed segment, under the next number.
    fn recycle(&self, segment: Arc<Segment>) -> io::Result<Blank> {
        let number = self.segments.lock().next_number();
        if let Err(e) = self.disk.rename(&segment_path(segment.number), &segment_path(number)) {
            self.segments.lock().push_retired(segment);
            return Err(e);
        }
        if let Err(e) = self.disk.sync_dir(FOLDER) {
            // Under a name that may not be durable it must not be used. If it cannot be removed either, the next blank replaces it.
            let _ = self.disk.remove(&segment_path(number));
            return Err(e);
        }
        Ok(Blank { number, file: Arc::clone(&segment.file) })
    }

    fn make_ahead(&self) -> io::Result<()> {
        while self.segments.lock().spare_len() <= self.options.reserve_segments {
            let number = self.segments.lock().next_number();
            let file = create_blank(self.disk.as_ref(), number, self.options.segment_bytes)?;
            self.segments.lock().push_ready(Blank { number, file });
        }
        Ok(())
    }

    /// The blank for the next segment: one that is ready, else one made now. `None` if none can be made for the time being: the disk,
    /// a quota, or the process's files are at their limit.
    pub(crate) fn provide(&self) -> io::Result<Option<Blank>> {
        if let Some(blank) = self.segments.lock().take_ready() {
            return Ok(Some(blank));
        }
        // Rather than beside a preparation that is under way, after it: it may have made one.
        let _one = self.preparing.lock();
        if let Some(blank) = self.segments.lock().take_ready() {
            return Ok(Some(blank));
        }
        match self.make_promised() {
            Ok(blank) => {
                self.segments.lock().made_promised();
                Ok(Some(blank))
            }
            Err(e) if is_exhausted(&e) => {
                if !self.told_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %e, "no file for the next journal segment: appends wait for one");
                }
                self.segments.lock().allow(0);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    fn make_promised(&self) -> io::Result<Blank> {
        let retired = self.segments.lock().take_retired(self.options.faults().recycled_under_reader());
        if let Some(segment) = retired {
            if segment.bytes == self.options.segment_bytes {
                return self.recycle(segment);
            }
            self.segments.lock().push_retired(segment);
        }
        let number = self.segments.lock().next_number();
        let file = create_blank(self.disk.as_ref(), number, self.options.segment_bytes)?;
        Ok(Blank { number, file })
    }
}
