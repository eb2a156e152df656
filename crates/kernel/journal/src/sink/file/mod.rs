//! The sink in segment files of one folder. An extent is a segment.
//!
//! *Fencing.* The lock of the data folder, which the process holds, gives the folder one owner at a time, and an
//! opening makes a header of its term durable before it appends. If the lock failed and another process has opened the
//! folder since, the earlier owner is not stopped at every append, but when it opens its next segment: there it
//! searches for segments of a later term.
//!
//! Locks: `preparing` (over IO with segment files) and `active` (over writes to the page cache), then `segments`.

mod arrange;
mod copy;
mod hold;
mod inspect;
mod prepare;
mod recovery;
mod scan;
mod segments;
mod tail;
mod verify;

pub use copy::{HeldSegments, SegmentFile};
pub use hold::Held;
pub use inspect::{Inspected, Inspection, JournalDamage};
pub use recovery::{Discarded, OpenError, Opened};
pub use scan::fuzz_segment;
pub use tail::{Tail, TailFiles};
pub use verify::{Report, verify};

pub(crate) use scan::Body;

use crate::Class;
use crate::format::{SEGMENT_HEADER, Seal, SegmentHeader, segment_path};
use crate::options::Options;
use crate::sequencer::Sequencer;
use crate::sink::{Fenced, Kept, Piece, Sink, SinkBatch, SinkError, Term};
use parking_lot::Mutex;
use segments::{Blank, Segment, Segments};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_base::{Lsn, Ticket};
use thalweg_disk::Disk;

/// The journal in segment files.
///
/// A background job should call [`FileJournal::prepare`], so that no batch waits for a new segment.
pub type FileJournal = Sequencer<FileSink>;

/// Segment files of one folder: see the module.
pub struct FileSink {
    disk: Arc<dyn Disk>,
    options: Options,
    seal: Seal,
    /// The largest term that fenced it: the opening's own, or that of a later one.
    fenced: AtomicU64,
    segments: Mutex<Segments>,
    /// The segment that batches go to.
    active: Mutex<Arc<Segment>>,
    /// One preparation at a time.
    preparing: Mutex<()>,
    /// The log says already that a batch waits for a segment.
    told_full: AtomicBool,
    header_bytes: AtomicU64,
    /// Bytes of batches in the segment that batches go to; zero if this opening has written nothing.
    used: AtomicU64,
    /// The size of the active segment's file.
    active_bytes: AtomicU64,
}

impl FileSink {
    fn sound(&self, term: Term) -> Result<(), Fenced> {
        let by = self.fenced.load(Ordering::Acquire);
        if term.number < by { Err(Fenced { term: term.number, by }) } else { Ok(()) }
    }

    /// Searches for a segment of a later term, which another process has made. Files that cannot be read are passed
    /// over.
    fn check_folder(&self) -> Result<(), Fenced> {
        let term = self.fenced.load(Ordering::Acquire);
        match FileJournal::newest_term::<std::convert::Infallible>(self.disk.as_ref()) {
            Ok(by) if by > term => Err(Fenced { term, by }),
            _ => Ok(()),
        }
    }

    /// Takes up the extent that was promised first. `false` if there is no space for it.
    fn open_segment(&self, base: Lsn) -> Result<bool, SinkError> {
        let failed = |error: io::Error| SinkError::failed("opening of a segment", error);
        self.check_folder()?;
        let Some(Blank { number, bytes, file }) = self.provide().map_err(failed)? else { return Ok(false) };
        self.told_full.store(false, Ordering::Relaxed);
        let term = self.fenced.load(Ordering::Acquire);
        let header = SegmentHeader { number, base, bytes, term, salt: self.options.salt };
        file.write_at(&header.encode(), 0).map_err(failed)?;
        self.header_bytes.fetch_add(SEGMENT_HEADER, Ordering::Relaxed);
        let header_is_durable = AtomicBool::new(false);
        let segment = Arc::new(Segment { number, base, bytes, seal: self.seal, file, header_is_durable });
        *self.active.lock() = Arc::clone(&segment);
        self.active_bytes.store(bytes, Ordering::Relaxed);
        self.segments.lock().push_live(segment);
        Ok(true)
    }

    /// `None` where a device would have to be waited for and may not.
    fn read_pieces(&self, range: Range<Lsn>, may_wait: bool) -> Option<Result<Vec<Piece>, SinkError>> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (segment, end) = {
                let segments = self.segments.lock();
                let Some(segment) = segments.find(at) else { return Some(Err(SinkError::Missing(at))) };
                let end = segments.end_of(&segment).map_or(range.end, |next| next.min(range.end));
                (segment, end)
            };
            match segment.read(at..end, may_wait) {
                Ok(Some(piece)) if piece.end() < end => {
                    pieces.push(piece);
                    break;
                }
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
            at = end;
        }
        Some(Ok(pieces))
    }
}

impl Sink for FileSink {
    const LOCAL: bool = true;

    fn promise(&self, class: Class, len: usize) -> Option<u64> {
        let free = || self.disk.free().unwrap_or(0);
        self.segments.lock().promise(class, len, &self.options, free).map(Options::room)
    }

    fn open_extent(&self, base: Lsn) -> Result<(), SinkError> {
        if self.open_segment(base)? { Ok(()) } else { Err(SinkError::NoSpace) }
    }

    /// A write to the page cache. It lies in the segment that was opened last.
    fn append(&self, batch: SinkBatch) -> Ticket<Result<Kept, SinkError>> {
        let active = self.active.lock();
        let write = || {
            self.sound(batch.term)?;
            self.used.store(batch.end().since(active.base), Ordering::Relaxed);
            let written = active.file.write_at(&batch.bytes, active.offset(batch.at));
            written.map(|()| Kept::Written).map_err(|error| SinkError::failed("write", error))
        };
        Ticket::ready(write())
    }

    fn sync(&self) -> Result<(), SinkError> {
        let active = Arc::clone(&self.active.lock());
        active.file.sync().map_err(|error| SinkError::failed("sync", error))?;
        active.header_is_durable.store(true, Ordering::Release);
        Ok(())
    }

    /// Stops appends of earlier terms in this process. An opening in another process fences by the header that it
    /// makes: see the module.
    fn fence(&self, term: Term) -> Ticket<Result<(), SinkError>> {
        let before = self.fenced.fetch_max(term.number, Ordering::AcqRel);
        // Appends that were under way have ended.
        drop(self.active.lock());
        let is_own = before == term.number && term.seal() == self.seal;
        let fenced = before < term.number || is_own;
        Ticket::ready(if fenced { Ok(()) } else { Err(Fenced { term: term.number, by: before }.into()) })
    }

    fn read(&self, range: Range<Lsn>) -> Ticket<Result<Vec<Piece>, SinkError>> {
        let read = self.read_pieces(range, true);
        Ticket::ready(read.unwrap_or_else(|| Err(SinkError::failed("read", "a waiting read did not wait"))))
    }

    fn try_read(&self, range: Range<Lsn>) -> Option<Result<Vec<Piece>, SinkError>> {
        self.read_pieces(range, false)
    }

    fn trim(&self, upto: Lsn, synced: Lsn) {
        self.segments.lock().trim(upto, synced);
    }

    /// Recovery has cut the tail already: the opening's first segment begins where it ended, under the seal of another
    /// term, and nothing of an earlier one is read from there on.
    fn truncate(&self, from: Lsn, term: Term) -> Ticket<Result<(), SinkError>> {
        let active = self.active.lock();
        let is_cut = active.base == from && active.seal == self.seal && term.seal() == self.seal;
        Ticket::ready(match is_cut {
            true => Ok(()),
            false => {
                Err(SinkError::failed("truncate", format!("the journal of this folder goes on at {}", active.base)))
            }
        })
    }

    fn oldest(&self) -> Option<Lsn> {
        self.segments.lock().live().next().map(|segment| segment.base)
    }

    fn file_of(&self, at: Lsn) -> Option<(String, u64)> {
        let segment = self.segments.lock().find(at)?;
        Some((segment_path(segment.number), segment.offset(at)))
    }

    fn inspect(&self, inspection: &mut Inspection, synced: Lsn) -> io::Result<Option<Inspected>> {
        self.inspect_piece(inspection, synced)
    }

    fn extra_bytes(&self) -> u64 {
        self.header_bytes.load(Ordering::Relaxed)
    }
}
