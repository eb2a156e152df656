//! The sequencer: the half of a journal that is the same for all sinks.
//!
//! Locks, from the outside in: `driving` (held over syncs), then `writer` (over writes, and while an extent is opened),
//! then those of the sink, then `fill`; `window`, `answers` and those inside `published` stand alone.

pub(crate) mod answers;
pub(crate) mod fill;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod published;
pub(crate) mod read;
pub(crate) mod shell;
pub(crate) mod take_over;
pub(crate) mod window;
pub(crate) mod writer;

use crate::Opened;
use crate::format::{BATCH_HEADER, FRAME_HEADER, Seal};
use crate::options::Options;
use crate::sequencer::fill::Fill;
use crate::sequencer::pinned::Pinned;
use crate::sequencer::published::Published;
use crate::sequencer::shell::Shell;
use crate::sequencer::window::Window;
use crate::sequencer::writer::Writer;
use crate::sink::{Sink, Term};
use crate::{
    AppendError, Appended, Class, FrameRef, Inspected, Inspection, Journal, JournalStats, PinnedBuffer, Poisoned,
    ReadError, WaitError,
};
use answers::Answers;
use bytes::Bytes;
use parking_lot::Mutex;
use read::Large;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_base::{Crc, Durability, Lsn, Ticket};

/// A journal: gives frames their order and their places, gathers them into batches, gives these to a sink, and
/// publishes how far the sink keeps them.
///
/// It must be driven: [`Sequencer::start_writer`] has a thread do so, or a single thread calls [`Sequencer::begin`],
/// [`Sequencer::finish`] and [`Sequencer::mark`] itself.
pub struct Sequencer<S: Sink> {
    pub(crate) sink: S,
    pub(crate) options: Options,
    pub(crate) opened: Opened,
    pub(crate) term: Term,
    /// The mark of everything that this opening writes.
    pub(crate) seal: Seal,
    pub(crate) fill: Mutex<Fill>,
    /// One thread at a time takes the writer's steps: so no two syncs are under way, of which only one might learn of a
    /// failure.
    pub(crate) driving: Mutex<()>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) answers: Arc<Answers>,
    /// A buffered frame was accepted since the last look.
    pub(crate) early: AtomicBool,
    pub(crate) window: Mutex<Window>,
    pub(crate) large: Large,
    /// Buffers of the window, and of readers.
    pub(crate) pinned: Pinned,
    pub(crate) published: Published,
    pub(crate) shell: Arc<Shell>,
    pub(crate) counters: Counters,
    /// The trim point: frames below it cannot be read.
    pub(crate) start: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Counters {
    /// Frames that were accepted, whether or not they are written.
    pub(crate) frames: AtomicU64,
    /// Frames in batches that are written: never more than `frames`.
    pub(crate) written_frames: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_nanos: AtomicU64,
}

impl Counters {
    /// A thread that sees the sum also sees this thread's earlier counts.
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Release);
    }
}

impl<S: Sink> Sequencer<S> {
    /// Goes on at `opened.end`, at the base of an extent with room for so many bytes of batches.
    pub(crate) fn new(sink: S, options: Options, opened: Opened, seal: Seal, start: Lsn, room: u64) -> Self {
        let end = opened.end;
        Self {
            sink,
            options,
            opened,
            term: Term { number: opened.term, salt: options.salt },
            seal,
            fill: Mutex::new(Fill::new(seal, end, room)),
            driving: Mutex::new(()),
            writer: Mutex::new(Writer::new(end)),
            answers: Arc::default(),
            early: AtomicBool::new(false),
            window: Mutex::new(Window::new(options.window_bytes, options.window_batches)),
            large: Large::default(),
            pinned: Pinned::default(),
            published: Published::new(end),
            shell: Arc::default(),
            counters: Counters::default(),
            start: AtomicU64::new(start.0),
        }
    }

    /// How the journal was found when it was opened.
    #[must_use]
    pub fn opened(&self) -> Opened {
        self.opened
    }

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

    fn accept(
        &self,
        fill: &mut Fill,
        durability: Durability,
        class: Class,
        parts: &[&[u8]],
        len: usize,
        payload: Crc,
    ) -> Result<Appended, AppendError> {
        self.check_bound(class, fill.head(), len)?;
        if fill.needs_extent(len, &self.options) {
            let room = self.sink.promise(class, len).ok_or(AppendError::NoSpace)?;
            fill.roll(room);
        }
        Ok(fill.append(durability, parts, len, payload, &self.options))
    }

    /// Waits until `upto` is durable, or `is_given_up` when something was told; whether it is durable. Without a writer
    /// thread the caller drives.
    fn wait_until(&self, upto: Lsn, is_given_up: impl Fn() -> bool) -> Result<bool, Poisoned> {
        if !self.shell.is_running() {
            self.step_all(|| self.durable() >= upto)?;
        }
        self.shell.wake();
        if upto <= self.durable_end() {
            self.published.wait(|published| published.durable() >= upto || is_given_up())?;
            return Ok(self.durable() >= upto);
        }
        // A buffered frame: without this call the writer would sync it late.
        self.published.wait(|published| published.written() >= upto || is_given_up())?;
        if self.written() < upto {
            return Ok(false);
        }
        self.sync_if(|writer| writer.synced < upto).map(|_| true)
    }

    pub(crate) fn kick_if_waiting(&self) {
        if !self.fill.lock().is_empty() {
            self.shell.wake();
        }
    }

    pub(crate) fn accepted_frames(&self) -> u64 {
        self.counters.frames.load(Ordering::SeqCst)
    }

    pub(crate) fn written_frames(&self) -> u64 {
        self.counters.written_frames.load(Ordering::SeqCst)
    }
}

impl<S: Sink> Journal for Sequencer<S> {
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
            return Err(Poisoned::new("close", "the journal is closed").into());
        }
        let waiting = fill.whole_batches();
        let appended = self.accept(&mut fill, durability, class, parts, len, payload);
        if appended.is_ok() {
            // Under the lock, so that no frame counts as written before it counts as accepted.
            Counters::add(&self.counters.frames, 1);
        }
        // Whole batches are written without a kick. So are all batches after a refusal for lack of space: only written
        // frames can be settled and trimmed.
        let is_due = match &appended {
            Ok(_) => fill.whole_batches() > waiting,
            Err(_) => !fill.is_empty(),
        };
        drop(fill);
        if is_due {
            self.shell.wake();
        }
        let appended = appended?;
        if durability == Durability::Buffered {
            self.early.store(true, Ordering::SeqCst);
        }
        Ok(appended)
    }

    /// Buffered frames are written on the caller's thread: that is cheaper than waking the writer for them.
    fn kick(&self) {
        if !self.early.load(Ordering::SeqCst) || !self.early.swap(false, Ordering::SeqCst) {
            let accepted = self.accepted_frames();
            // Event loops kick after every round, and most rounds append nothing. The writer knows already of frames
            // that are written.
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

    /// Trims up to `upto`, but only frames that are synced: for those above, the call must be made again later.
    fn trim(&self, upto: Lsn) {
        let synced = self.published.synced();
        self.start.fetch_max(upto.min(synced).0, Ordering::AcqRel);
        self.sink.trim(self.start(), synced);
        self.window.lock().trim(self.start());
        self.large.trim(self.start());
        // A batch may be waiting for an extent.
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
        self.sink.oldest().unwrap_or_else(|| self.start())
    }

    fn file_of(&self, at: Lsn) -> Option<(String, u64)> {
        self.sink.file_of(at)
    }

    fn inspect(&self, inspection: &mut Inspection) -> Result<Option<Inspected>, ReadError> {
        let read = self.sink.inspect(inspection, self.published.synced());
        read.map_err(|error| ReadError::Io { at: self.oldest(), cause: error.to_string() })
    }

    fn term(&self) -> u64 {
        self.opened.term
    }

    fn stats(&self) -> JournalStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        JournalStats {
            frames: load(&self.counters.frames),
            batches: load(&self.counters.batches),
            written_bytes: load(&self.counters.written_bytes) + self.sink.extra_bytes(),
            syncs: load(&self.counters.syncs),
            sync_nanos: load(&self.counters.sync_nanos),
            held_bytes: self.end().since(self.start()),
            window_bytes: self.window.lock().held() as u64,
        }
    }
}
