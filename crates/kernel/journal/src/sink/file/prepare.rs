//! Blank segment files: made ahead, recycled from trimmed ones, or removed. All of it is IO that no batch should wait
//! for.
//!
//! A blank stands on the disk, durably, under the number it will be used with, before it is used. It has no header for
//! that number: a new file is zeros, a recycled one still has the header of its last use, which its name contradicts.

use crate::format::{FOLDER, segment_path, spare_path};
use crate::sink::file::segments::{Blank, Segment, Segments};
use crate::sink::file::{FileJournal, FileSink};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_disk::{Disk, File, is_exhausted};

const ZEROS: usize = 1 << 20;

/// Creates a blank of `bytes` zeros, durable in name and contents.
pub(crate) fn create_blank(disk: &dyn Disk, path: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
    let file = match disk.create(path) {
        // Left over from an earlier attempt that failed, and could not remove its file.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            disk.remove(path)?;
            disk.create(path)?
        }
        created => created?,
    };
    let made = (|| {
        file.allocate(bytes)?;
        // Reserved blocks are marked as unwritten: without real zeros the first sync of each would have metadata to
        // write.
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
            // Best effort: recovery removes a remaining file.
            let _ = disk.remove(path);
            Err(e)
        }
    }
}

impl FileJournal {
    /// Whether [`FileJournal::prepare`] has something to do.
    #[must_use]
    pub fn wants_prepare(&self) -> bool {
        self.sink.wants_prepare()
    }

    /// Recycles or removes trimmed segments that no reader holds, and makes blanks ahead. For a background job that may
    /// wait for the disk, again and again. After an error (no space, mostly) it may be called again.
    pub fn prepare(&self) -> io::Result<()> {
        let done = self.sink.prepare();
        // A batch may have been waiting for a file.
        self.kick_if_waiting();
        done
    }
}

impl FileSink {
    fn wants_prepare(&self) -> bool {
        let segments = self.segments.lock();
        let (ahead, bytes) = (self.wanted_ahead(), self.wanted_bytes());
        segments.has_retired()
            || segments.is_owing()
            || (self.used.load(Ordering::Relaxed) > 0
                && (segments.next_bytes(ahead, bytes).is_some() || segments.all_are_smaller(bytes)))
    }

    fn prepare(&self) -> io::Result<()> {
        let _one = self.preparing.lock();
        self.reclaim().and_then(|()| self.make_larger()).and_then(|()| self.make_ahead())
    }

    /// Half of the segment in use is used up: the next one will soon be needed.
    fn is_half_used(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.active_bytes.load(Ordering::Relaxed) / 2
    }

    /// How many blanks there should be: the reserve, and one to go on in where frames come in.
    fn wanted_ahead(&self) -> usize {
        self.options.reserve_segments + usize::from(self.is_half_used())
    }

    /// The size of the next blank: a journal that is not much used gets small ones.
    fn wanted_bytes(&self) -> u64 {
        let bytes = self.active_bytes.load(Ordering::Relaxed);
        let wanted = if self.is_half_used() { self.options.grown(bytes) } else { bytes };
        wanted.clamp(self.options.first_bytes(), self.options.segment_bytes)
    }

    fn reclaim(&self) -> io::Result<()> {
        let held_too = self.options.faults().recycled_under_reader();
        loop {
            let (segment, is_wanted) = {
                let mut segments = self.segments.lock();
                let Some(segment) = segments.take_retired(0, held_too) else { return Ok(()) };
                let kept = self.options.reserve_segments + self.options.spare_segments;
                let max = self.options.segment_bytes.min(segments.ready_max());
                let wanted = segments.next_bytes(kept, self.wanted_bytes());
                let is_wanted = wanted.is_some_and(|bytes| (bytes..=max).contains(&segment.bytes));
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
            // Under a name that may not be durable it must not be used. If it cannot be removed either, the next blank
            // replaces it.
            let _ = self.disk.remove(&segment_path(number));
            return Err(e);
        }
        Ok(Blank { number, bytes: segment.bytes, file: Arc::clone(&segment.file) })
    }

    fn make_ahead(&self) -> io::Result<()> {
        let wanted = || {
            let segments = self.segments.lock();
            let bytes = segments.next_bytes(self.wanted_ahead(), self.wanted_bytes())?;
            Some((segments.next_number(), bytes, segments.is_owing()))
        };
        while let Some((number, mut bytes, is_owed)) = wanted() {
            let path = segment_path(number);
            let first = self.options.first_bytes();
            let file = match create_blank(self.disk.as_ref(), &path, bytes) {
                // A small reserve is better than none.
                Err(e) if is_exhausted(&e) && !is_owed && bytes > first => {
                    bytes = first;
                    create_blank(self.disk.as_ref(), &path, bytes)?
                }
                made => made?,
            };
            self.segments.lock().push_ready(Blank { number, bytes, file });
        }
        Ok(())
    }

    /// Replaces blanks that are too small for the frames that come in. The larger blank is made under another name
    /// first, so that a full disk leaves the others where they are.
    fn make_larger(&self) -> io::Result<()> {
        let bytes = self.wanted_bytes();
        let is_wanted = |segments: &Segments| {
            segments.all_are_smaller(bytes)
                && segments.live().last().is_some_and(|active| active.header_is_durable.load(Ordering::Acquire))
        };
        let unused = {
            let segments = self.segments.lock();
            if !is_wanted(&segments) {
                return Ok(());
            }
            spare_path(segments.next_number())
        };
        let file = create_blank(self.disk.as_ref(), &unused, bytes)?;
        let smaller = {
            let mut segments = self.segments.lock();
            // A batch may have taken a blank since then.
            if is_wanted(&segments) { segments.take_all_ready() } else { VecDeque::new() }
        };
        if smaller.is_empty() {
            return self.disk.remove(&unused);
        }
        let blank = self.put_in_place(smaller, &unused, bytes, file)?;
        self.segments.lock().push_ready(blank);
        Ok(())
    }

    /// Gives the file that was made under the name `unused` the number of the first of the smaller blanks, which are
    /// out of the row already, and removes these. Those that cannot be removed are blanks again.
    fn put_in_place(
        &self,
        mut smaller: VecDeque<Blank>,
        unused: &str,
        bytes: u64,
        file: Arc<dyn File>,
    ) -> io::Result<Blank> {
        let number = self.segments.lock().next_number();
        let placed = (|| {
            // From the end of the row on, so that it has no hole at any moment.
            while let Some(blank) = smaller.back() {
                self.disk.remove(&segment_path(blank.number))?;
                smaller.pop_back();
            }
            self.disk.rename(unused, &segment_path(number))?;
            self.disk.sync_dir(FOLDER)
        })();
        let Err(e) = placed else { return Ok(Blank { number, bytes, file }) };
        // Best effort: a file whose name may not be durable must not be used, and recovery removes it.
        let _ = self.disk.remove(unused);
        if smaller.is_empty() {
            let _ = self.disk.remove(&segment_path(number));
        } else if self.disk.open(&segment_path(number + smaller.len() as u64 - 1)).is_err() {
            // The file is gone, although removing it returned an error.
            smaller.pop_back();
        }
        let mut segments = self.segments.lock();
        smaller.into_iter().for_each(|blank| segments.push_ready(blank));
        Err(e)
    }

    /// The blank for the next segment: one that is ready, else one made now. `None` if none can be made for the time
    /// being: the disk, a quota, or the process's files are at their limit.
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
                self.segments.lock().made_promised(blank.bytes);
                Ok(Some(blank))
            }
            Err(e) if is_exhausted(&e) => {
                if !self.told_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %e, "the next journal segment could not be created: appends wait until a retry succeeds");
                }
                self.segments.lock().note_out();
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Makes a blank that is large enough for the promised batch. Blanks that are too small are removed only when it
    /// exists: on a full disk they are the reserve.
    fn make_promised(&self) -> io::Result<Blank> {
        let (bytes, number, in_the_way) = {
            let segments = self.segments.lock();
            let bytes = segments.next_promised().max(self.options.first_bytes());
            (bytes, segments.next_number(), segments.has_ready())
        };
        let retired = self.segments.lock().take_retired(bytes, self.options.faults().recycled_under_reader());
        let retired = match retired {
            Some(segment) if segment.bytes > self.options.segment_bytes => {
                self.segments.lock().push_retired(segment);
                None
            }
            retired => retired,
        };
        match (retired, in_the_way) {
            (Some(segment), false) => self.recycle(segment),
            (None, false) => {
                let file = create_blank(self.disk.as_ref(), &segment_path(number), bytes)?;
                Ok(Blank { number, bytes, file })
            }
            (Some(segment), true) => {
                let smaller = self.segments.lock().take_all_ready();
                self.put_in_place(smaller, &segment_path(segment.number), segment.bytes, Arc::clone(&segment.file))
            }
            (None, true) => {
                let unused = spare_path(number);
                let file = create_blank(self.disk.as_ref(), &unused, bytes)?;
                let smaller = self.segments.lock().take_all_ready();
                self.put_in_place(smaller, &unused, bytes, file)
            }
        }
    }
}
