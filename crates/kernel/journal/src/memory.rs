//! A journal in memory: the same promises but for surviving. A kick stands for the writer.

use crate::options::Options;
use crate::sequencer::published::Published;
use crate::{AppendError, Appended, Class, FrameRef, Journal, JournalStats, Poisoned, ReadError};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_base::{Durability, Lsn, Ticket};

const FRAME_HEADER: u64 = crate::format::FRAME_HEADER as u64;

/// The journal in memory, which loses everything with the process. Accepted frames count as durable from the next
/// [`Journal::kick`] on; subscribers are called on the thread that kicks.
pub struct MemoryJournal {
    options: Options,
    frames: Mutex<Frames>,
    published: Published,
}

#[derive(Default)]
struct Frames {
    held: VecDeque<(FrameRef, Bytes)>,
    start: Lsn,
    end: Lsn,
    accepted: u64,
    kicks: u64,
}

impl MemoryJournal {
    /// An empty journal. It heeds `max_payload`, `bound_bytes` and the reserve of the options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, frames: Mutex::new(Frames::default()), published: Published::new(Lsn::ZERO) }
    }

    /// Stops it, as a failed write would.
    pub fn poison(&self, cause: &str) {
        self.published.poison(Poisoned::new("write", cause));
    }
}

impl Journal for MemoryJournal {
    fn append_as(&self, _: Durability, class: Class, parts: &[&[u8]]) -> Result<Appended, AppendError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let max = self.options.payload_max();
        if len > max {
            return Err(AppendError::TooLarge { len, max });
        }
        self.published.sound()?;
        let mut payload = BytesMut::with_capacity(len);
        parts.iter().for_each(|part| payload.extend_from_slice(part));
        let mut frames = self.frames.lock();
        let bound = self.options.bound_bytes
            + match class {
                Class::User => 0,
                Class::Upkeep => self.options.reserve_segments as u64 * self.options.segment_bytes,
            };
        let held = frames.end.since(frames.start);
        if held + FRAME_HEADER + len as u64 > bound {
            return Err(AppendError::Full { held, bound });
        }
        let frame = FrameRef { lsn: frames.end, len: len as u32 };
        frames.end = frame.end();
        frames.accepted += 1;
        frames.held.push_back((frame, payload.freeze()));
        Ok(Appended { frame, end: frames.end })
    }

    fn kick(&self) {
        if self.published.poisoned().is_some() {
            return;
        }
        let end = {
            let mut frames = self.frames.lock();
            frames.kicks += 1;
            frames.end
        };
        if end > self.published.durable() {
            self.published.set_written(end);
            self.published.set_durable(end);
            self.published.notify();
        }
    }

    fn durable(&self) -> Lsn {
        self.published.durable()
    }

    fn written(&self) -> Lsn {
        self.published.written()
    }

    fn end(&self) -> Lsn {
        self.frames.lock().end
    }

    fn poisoned(&self) -> Option<Poisoned> {
        self.published.poisoned()
    }

    fn subscribe(&self, f: Arc<dyn Fn() + Send + Sync>) {
        self.published.subscribe(f);
    }

    fn wait(&self, upto: Lsn) -> Result<(), Poisoned> {
        self.kick();
        self.published.wait(|published| published.durable() >= upto)
    }

    fn try_read(&self, frames: &[FrameRef]) -> Option<Result<Vec<Bytes>, ReadError>> {
        let written = self.published.written();
        let all = self.frames.lock();
        let read = |frame: &FrameRef| {
            if frame.lsn < all.start {
                return Err(ReadError::Trimmed(frame.lsn));
            }
            if frame.end() > written {
                return Err(ReadError::NotWritten(frame.lsn));
            }
            match all.held.binary_search_by_key(&frame.lsn, |(held, _)| held.lsn) {
                Ok(at) if all.held[at].0 == *frame => Ok(all.held[at].1.clone()),
                _ => Err(ReadError::Corrupt { at: frame.lsn, what: "no frame of this length stands there".into() }),
            }
        };
        Some(frames.iter().map(read).collect())
    }

    fn read(&self, frames: &[FrameRef]) -> Ticket<Result<Vec<Bytes>, ReadError>> {
        Ticket::ready(self.try_read(frames).unwrap_or_else(|| Ok(Vec::new())))
    }

    fn trim(&self, upto: Lsn) {
        let durable = self.published.durable();
        let mut frames = self.frames.lock();
        frames.start = frames.start.max(upto.min(durable));
        while frames.held.front().is_some_and(|(frame, _)| frame.lsn < frames.start) {
            frames.held.pop_front();
        }
    }

    fn start(&self) -> Lsn {
        self.frames.lock().start
    }

    fn term(&self) -> u64 {
        1
    }

    fn stats(&self) -> JournalStats {
        let frames = self.frames.lock();
        let held_bytes = frames.end.since(frames.start);
        JournalStats {
            frames: frames.accepted,
            batches: frames.kicks,
            written_bytes: frames.end.0,
            held_bytes,
            window_bytes: held_bytes,
            ..JournalStats::default()
        }
    }
}
