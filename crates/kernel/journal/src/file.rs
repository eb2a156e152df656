//! The journal in segment files: its parts, and the trait in terms of them.
//!
//! Locks, from the outside in: `driving` (held over syncs), then `writer` (over writes, and while a segment is opened), then `preparing`
//! (over IO with segment files), then `fill`, then `segments`; `window` and those inside `published` stand alone.

use crate::fill::Fill;
use crate::format::{BATCH_HEADER, FRAME_HEADER, Seal};
use crate::options::Options;
use crate::pinned::Pinned;
use crate::published::Published;
use crate::read::Large;
use crate::recovery::Opened;
use crate::segments::Segments;
use crate::shell::Shell;
use crate::window::Window;
use crate::writer::Writer;
use crate::{
    AppendError, Appended, Class, FrameRef, Inspected, Inspection, Journal, JournalStats, PinnedBuffer, Poisoned,
    ReadError, WaitError,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_base::{Crc, Durability, Lsn, Ticket};
use thalweg_disk::Disk;

/// The journal in segment files.
///
/// Somebody must drive it: [`FileJournal::start_writer`] starts a thread, or a single thread calls [`FileJournal::begin`],
/// [`FileJournal::finish`] and [`FileJournal::mark`] itself. Somebody should call [`FileJournal::prepare`] in the background, so
/// that no batch waits for a new segment.
pub struct FileJournal {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) opened: Opened,
    /// What this opening writes is marked as its own.
    pub(crate) seal: Seal,
    pub(crate) fill: Mutex<Fill>,
    pub(crate) segments: Mutex<Segments>,
    /// One thread at a time takes the writer's steps: so no two syncs are under way, of which only one might learn of a failure.
    pub(crate) driving: Mutex<()>,
    pub(crate) writer: Mutex<Writer>,
    /// A buffered frame was accepted since the last look.
    pub(crate) early: AtomicBool,
    pub(crate) window: Mutex<Window>,
    pub(crate) large: Large,
    /// Batches of the window, and what readers hold.
    pub(crate) pinned: Pinned,
    /// One preparation at a time.
    pub(crate) preparing: Mutex<()>,
    pub(crate) published: Published,
    /// The log says already that a batch waits for a segment.
    pub(crate) told_full: AtomicBool,
    pub(crate) shell: Shell,
    pub(crate) counters: Counters,
    /// Nothing below is readable.
    pub(crate) start: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) frames: AtomicU64,
    /// Frames in batches that are written.
    pub(crate) written_frames: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_nanos: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl FileJournal {
    fn check_bound(&self, class: Class, head: Lsn, len: usize) -> Result<(), AppendError> {
        let bound = match class {
            Class::User => self.options.bound_bytes,
            Class::Upkeep => {
                let reserve = self.options.reserve_segments as u64 * self.options.segment_bytes;
                self.options.bound_bytes.saturating_add(reserve)
            }
        };
        let held = head.since(self.start());
        if held + (BATCH_HEADER + FRAME_HEADER + len) as u64 > bound {
            return Err(AppendError::Full { held, bound });
        }
        Ok(())
    }

    /// Waits until `upto` is durable, or `is_given_up` when something was told; whether it is durable. Without a writer thread the caller
    /// drives.
    fn wait_until(&self, upto: Lsn, is_given_up: impl Fn() -> bool) -> Result<bool, Poisoned> {
        if !self.shell.is_running() {
            while self.durable() < upto && self.step()? {}
        }
        self.shell.wake();
        if upto <= self.durable_end() {
            self.published.wait(|published| published.durable() >= upto || is_given_up())?;
            return Ok(self.durable() >= upto);
        }
        // Nobody else would sync it soon.
        self.published.wait(|published| published.written() >= upto || is_given_up())?;
        if self.written() < upto {
            return Ok(false);
        }
        self.sync_if(|writer| writer.synced < upto).map(|_| true)
    }

    pub(crate) fn accepted_frames(&self) -> u64 {
        self.counters.frames.load(Ordering::SeqCst)
    }

    pub(crate) fn written_frames(&self) -> u64 {
        self.counters.written_frames.load(Ordering::SeqCst)
    }
}

impl Journal for FileJournal {
    fn append_as(&self, durability: Durability, class: Class, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let max = self.options.payload_max();
        if len > max {
            return Err(AppendError::TooLarge { len, max });
        }
        let payload = parts.iter().fold(Crc::new(), |crc, part| crc.bytes(part));
        self.published.sound()?;
        let mut fill = self.fill.lock();
        if fill.closed {
            return Err(Poisoned { operation: "close", cause: "the journal is closed".into() }.into());
        }
        self.check_bound(class, fill.head(), len)?;
        if fill.needs_segment(len, &self.options) {
            if !self.segments.lock().promise(class, self.options.reserve_segments) {
                return Err(AppendError::NoSpace);
            }
            fill.roll();
        }
        let appended = fill.append(durability, parts, len, payload, &self.options);
        if durability == Durability::Buffered {
            self.early.store(true, Ordering::SeqCst);
        }
        Counters::add(&self.counters.frames, 1);
        Ok(appended)
    }

    /// What need not be synced now is written by whoever kicks: cheaper than waking somebody for it.
    fn kick(&self) {
        if !self.early.load(Ordering::SeqCst) || !self.early.swap(false, Ordering::SeqCst) {
            let accepted = self.accepted_frames();
            // Event loops kick after every round, most of which append nothing: what is written is the writer's to sync already.
            if accepted > self.written_frames() {
                self.shell.kick(accepted);
            }
            return;
        }
        if self.write_through() {
            self.shell.wake();
        }
    }

    fn durable(&self) -> Lsn {
        self.published.durable()
    }

    fn written(&self) -> Lsn {
        self.published.written()
    }

    fn end(&self) -> Lsn {
        self.fill.lock().end()
    }

    fn durable_end(&self) -> Lsn {
        self.fill.lock().durable_end()
    }

    fn poisoned(&self) -> Option<Poisoned> {
        self.published.poisoned()
    }

    fn subscribe(&self, f: Arc<dyn Fn() + Send + Sync>) {
        self.published.subscribe(f);
    }

    fn wait(&self, upto: Lsn) -> Result<(), Poisoned> {
        self.wait_until(upto, || false).map(|_| ())
    }

    fn wait_unless_full(&self, upto: Lsn) -> Result<(), WaitError> {
        let before = self.published.times_full();
        match self.wait_until(upto, || self.published.times_full() > before)? {
            true => Ok(()),
            false => Err(WaitError::NoSpace),
        }
    }

    fn try_read(&self, frames: &[FrameRef]) -> Option<Result<Vec<Bytes>, ReadError>> {
        self.read_frames(frames, false)
    }

    fn read(&self, frames: &[FrameRef]) -> Ticket<Result<Vec<Bytes>, ReadError>> {
        Ticket::ready(self.read_frames(frames, true).unwrap_or_else(|| {
            let at = frames.first().map_or(Lsn::ZERO, |frame| frame.lsn);
            Err(ReadError::Io { at, cause: "a waiting read did not wait".into() })
        }))
    }

    /// What is not synced cannot be trimmed: until then the call has no effect on it.
    fn trim(&self, upto: Lsn) {
        let synced = self.published.synced();
        self.start.fetch_max(upto.min(synced).0, Ordering::AcqRel);
        self.segments.lock().trim(self.start(), synced);
        self.window.lock().trim(self.start());
        self.large.trim(self.start());
        // A batch may be waiting for a file.
        self.kick_if_waiting();
    }

    fn start(&self) -> Lsn {
        Lsn(self.start.load(Ordering::Acquire))
    }

    fn pinned_bytes(&self) -> u64 {
        let kept = (self.window.lock().held() + self.large.held()) as u64;
        self.pinned.bytes().saturating_sub(kept)
    }

    fn buffer_of(&self, part: &[u8]) -> Option<PinnedBuffer> {
        self.pinned.buffer_of(part)
    }

    fn oldest(&self) -> Lsn {
        self.oldest_live()
    }

    fn file_of(&self, at: Lsn) -> Option<(String, u64)> {
        let segment = self.segments.lock().find(at)?;
        Some((crate::format::segment_path(segment.number), segment.offset(at)))
    }

    fn inspect(&self, inspection: &mut Inspection) -> Result<Option<Inspected>, ReadError> {
        let at = self.oldest_live();
        self.inspect_piece(inspection).map_err(|error| ReadError::Io { at, cause: error.to_string() })
    }

    fn term(&self) -> u64 {
        self.opened.term
    }

    fn stats(&self) -> JournalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        JournalStats {
            frames: load(&self.counters.frames),
            batches: load(&self.counters.batches),
            written_bytes: load(&self.counters.written_bytes),
            syncs: load(&self.counters.syncs),
            sync_nanos: load(&self.counters.sync_nanos),
            held_bytes: self.end().since(self.start()),
            window_bytes: self.window.lock().held() as u64,
        }
    }
}
