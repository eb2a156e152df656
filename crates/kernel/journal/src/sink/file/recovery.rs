//! Opening a journal: lists the folder's files, decides which frames count and where the journal ends, and makes a
//! segment to go on in.
//!
//! Frames count up to the first damage, at P. It is a torn tail if nothing proves that P was durable, and corruption if
//! something does: a successor's header (written only after everything below its base was synced), a batch header
//! behind P whose `known_durable` is above P, or the owner's bounds. Behind a torn tail nothing counts, whole or not:
//! the next segment starts at P, under the seal of another term, so every later walk of the old segment ends at P. The
//! discarded bytes are reported, because damage at the very end of the journal looks like a torn write.
//!
//! Damage below the floor is passed over if a whole batch starts between it and the floor: all frames there are
//! settled, and none is read again.
//!
//! Files are numbered without a hole, so a segment that is lost from the middle is corruption, and so is the loss of
//! the last one that holds frames as long as a blank behind it is there.

use crate::format::{
    BATCH_HEADER, BatchHeader, FOLDER, SEGMENT_HEADER, SegmentError, SegmentHeader, segment_number, segment_path,
    spare_number, spare_path,
};
use crate::options::Options;
use crate::sink::Fenced;
use crate::sink::file::arrange::arrange;
use crate::sink::file::copy::SegmentFile;
use crate::sink::file::prepare::create_blank;
use crate::sink::file::scan::Body;
use crate::sink::file::segments::{Blank, Segment, Segments};
use crate::sink::file::{FileJournal, FileSink};
use crate::{Bounds, FrameRef};
use bytes::Bytes;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use thalweg_base::Lsn;
use thalweg_disk::{Disk, File};
use thiserror::Error;

/// Why a journal in files cannot be opened. `E` is the error of the caller's replay.
#[derive(Debug, Error)]
pub enum OpenError<E> {
    /// Bytes that were durable are damaged or missing; `proof` says how that is known. Final.
    #[error("the journal is damaged at {at}, which was durable: {proof}")]
    Corrupt { at: Lsn, proof: String },
    /// The format `found` of a segment is above the newest that this program reads.
    #[error(
        "{path} has journal format {found}, and this program reads formats up to {known}: use a newer thalweg",
        known = crate::format::VERSION
    )]
    Version { path: String, found: u32 },
    /// The device failed during `operation`. A retry may succeed.
    #[error("{operation} {path} failed: {source}")]
    Io { operation: &'static str, path: String, source: io::Error },
    /// The caller's replay refused the frame at this position.
    #[error("the frame at {at} was refused: {error}")]
    Replay { at: Lsn, error: E },
    /// The term that the owner chose was used before: a later owner has the folder, or it must acquire a larger one.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The options contradict each other; the text says how.
    #[error("journal options: {0}")]
    Options(&'static str),
}

/// How a journal was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The number of this opening.
    pub term: u64,
    /// The position where the journal goes on.
    pub end: Lsn,
    /// How many segment files hold the replayed frames.
    pub segments: usize,
    /// The torn end that was discarded, if there was one.
    pub discarded: Option<Discarded>,
}

/// Bytes behind the last whole frame that were written, but not known to be durable. A crash leaves such; so does
/// damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// The position of the first discarded byte.
    pub at: Lsn,
    /// At least so many.
    pub bytes: u64,
    /// Why the walk ended there.
    pub cause: &'static str,
}

/// One file of the folder.
pub(crate) struct Found {
    pub(crate) number: u64,
    pub(crate) path: String,
    pub(crate) file: Arc<dyn File>,
    pub(crate) len: u64,
    /// The first page of the segment's file.
    head: Vec<u8>,
}

impl Found {
    /// That of its last use, if it is not the one that its number names.
    pub(crate) fn header(&self) -> Option<SegmentHeader> {
        SegmentHeader::decode(&self.head).ok()
    }

    /// An opening that was cut short had taken it out of the row.
    pub(crate) fn is_spare(&self) -> bool {
        self.path == spare_path(self.number)
    }
}

/// The result of a scan of the folder.
pub(crate) struct Scanned {
    /// Segments from the one that holds the floor on.
    live: Vec<(Found, SegmentHeader)>,
    /// Segments wholly below the floor.
    below: Vec<Found>,
    /// Files without frames.
    blank: Vec<Found>,
    /// The largest that a header names.
    term: u64,
    pub(crate) end: Lsn,
    /// The last segment's bytes from here to `end` may not be durable yet.
    proven: Lsn,
    tail: Option<Body>,
    pub(crate) discarded: Option<Discarded>,
    pub(crate) passed: Option<Passed>,
}

/// Damage below the floor, and everything up to the next readable batch. No index needs any of it.
pub(crate) struct Passed {
    range: Range<Lsn>,
    path: String,
    what: &'static str,
}

impl Scanned {
    pub(crate) fn segments(&self) -> usize {
        self.live.len()
    }

    /// The files from the floor's on, each up to where its frames end.
    pub(crate) fn files(&self) -> Vec<SegmentFile> {
        let ends = self.live.iter().skip(1).map(|(_, next)| next.base).chain([self.end]);
        let file = |((found, header), end): (&(Found, SegmentHeader), Lsn)| SegmentFile {
            path: segment_path(found.number),
            bytes: SEGMENT_HEADER + end.since(header.base),
            allocated: found.len,
        };
        self.live.iter().zip(ends).map(file).collect()
    }
}

fn failed<E>(operation: &'static str, path: &str) -> impl FnOnce(io::Error) -> OpenError<E> {
    let path = path.to_owned();
    move |source| OpenError::Io { operation, path, source }
}

type Replay<'a, E> = &'a mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>;

/// Reads the folder and replays every frame that counts. Changes nothing.
pub(crate) fn scan<E>(
    disk: &dyn Disk,
    options: &Options,
    bounds: Bounds,
    replay: Replay<'_, E>,
) -> Result<Scanned, OpenError<E>> {
    let Bounds { floor, known_durable, .. } = bounds;
    let (mut live, blank, term) = list(disk)?;
    for pair in live.windows(2) {
        if pair[1].1.base < pair[0].1.base {
            let proof = format!("{} starts before {}", segment_path(pair[1].0.number), segment_path(pair[0].0.number));
            return Err(OpenError::Corrupt { at: pair[1].1.base, proof });
        }
    }
    let holds_floor = live.partition_point(|(_, header)| header.base <= floor).checked_sub(1);
    if holds_floor.is_none() && (!live.is_empty() || bounds != Bounds::default()) {
        return Err(OpenError::Corrupt {
            at: floor,
            proof: "no segment that holds this needed position is there".into(),
        });
    }
    let below = live.drain(..holds_floor.unwrap_or(0)).map(|(found, _)| found).collect();
    check_numbers(&live, &blank)?;
    let mut scanned = Scanned {
        live,
        below,
        blank,
        term,
        end: Lsn::ZERO,
        proven: Lsn::ZERO,
        tail: None,
        discarded: None,
        passed: None,
    };
    let known = known_durable.max(floor);
    scanned.walk(options, floor, known, replay)?;
    scanned.check_blanks(options)?;
    scanned.check_term(bounds.term)?;
    Ok(scanned)
}

type Lists = (Vec<(Found, SegmentHeader)>, Vec<Found>, u64);

/// The segments, the other files, and the largest term that any of them names.
pub(crate) fn list<E>(disk: &dyn Disk) -> Result<Lists, OpenError<E>> {
    let (mut live, mut blank, mut term) = (Vec::new(), Vec::new(), 0);
    for name in disk.list(FOLDER).map_err(failed("listing", FOLDER))? {
        let Some(number) = segment_number(&name).or_else(|| spare_number(&name)) else { continue };
        let path = format!("{FOLDER}/{name}");
        let file = disk.open(&path).map_err(failed("opening", &path))?;
        let len = file.len().map_err(failed("reading", &path))?;
        let mut head = vec![0; SEGMENT_HEADER as usize];
        let n = file.read_at(&mut head, 0).map_err(failed("reading", &path))?;
        head.truncate(n);
        let header = SegmentHeader::decode(&head);
        let found = Found { number, path: path.clone(), file, len, head };
        match header {
            Ok(header) => {
                term = term.max(header.term);
                if header.number == number && !found.is_spare() {
                    live.push((found, header))
                } else {
                    blank.push(found)
                }
            }
            Err(SegmentError::Version(found)) => return Err(OpenError::Version { path, found }),
            Err(SegmentError::Invalid) => blank.push(found),
        }
    }
    live.sort_by_key(|(found, _)| found.number);
    blank.sort_by_key(|found| found.number);
    Ok((live, blank, term))
}

/// Files follow each other without a hole, and each is made whole before the next. In folders of format version 1 they
/// did not.
fn check_numbers<E>(live: &[(Found, SegmentHeader)], blank: &[Found]) -> Result<(), OpenError<E>> {
    let corrupt = |at: Lsn, proof: String| Err(OpenError::Corrupt { at, proof });
    for pair in live.windows(2) {
        let [(one, header), (next, after)] = pair else { continue };
        if header.term > 0 && next.number != one.number + 1 {
            let (missing, next) = (segment_path(one.number + 1), segment_path(next.number));
            return corrupt(after.base, format!("{missing} is missing or its header is damaged; {next} is there"));
        }
    }
    let (last, at) = match live.last() {
        Some((_, newest)) if newest.term == 0 => return Ok(()),
        Some((last, newest)) => (last.number, newest.base),
        None => (0, Lsn::ZERO),
    };
    let mut before: Option<&Found> = None;
    for found in blank.iter().filter(|found| found.number > last && !found.is_spare()) {
        let expected = before.map_or(last, |found| found.number) + 1;
        if found.number != expected {
            let (missing, next) = (segment_path(expected), segment_path(found.number));
            return corrupt(at, format!("{missing}, behind this position, is missing; {next} is there"));
        }
        if let Some(short) = before.filter(|before| before.len < found.len) {
            let (short, next) = (segment_path(short.number), segment_path(found.number));
            return corrupt(at, format!("{short}, behind this position, is cut short; {next} is whole"));
        }
        before = Some(found);
    }
    Ok(())
}

impl Scanned {
    fn walk<E>(
        &mut self,
        options: &Options,
        floor: Lsn,
        known: Lsn,
        replay: Replay<'_, E>,
    ) -> Result<(), OpenError<E>> {
        for at in 0..self.live.len() {
            let (found, header) = &self.live[at];
            let next = self.live.get(at + 1);
            let path = segment_path(found.number);
            let body = Body::read(found.file.as_ref(), header.base, options.seal_of(header))
                .map_err(failed("reading", &path))?;
            let limit = next.map(|(_, header)| header.base);
            let mut take = |frame: FrameRef, payload| {
                if frame.lsn < floor {
                    return Ok(());
                }
                replay(frame, payload).map_err(|error| OpenError::Replay { at: frame.lsn, error })
            };
            let mut walk = body.walk(limit, &mut take)?;
            // No index needs frames below the floor. Payloads could forge batches under seals of version 1, which have
            // no term.
            let may_pass = header.term > 0 && !options.faults().settled_damage_refused();
            let behind = if may_pass { body.last_batch(walk.end, floor) } else { None };
            if let (Some(what), Some(batch)) = (walk.damage, behind) {
                self.passed.get_or_insert(Passed { range: walk.end..batch, path: path.clone(), what });
                walk = body.walk_from(batch, limit, &mut take)?;
            }
            let stopped = walk.damage.unwrap_or("it ends there");
            if let Some((successor, header)) = next {
                if walk.end != header.base {
                    let successor = segment_path(successor.number);
                    let proof = format!("{successor} starts at {}; in {path} {stopped}", header.base);
                    return Err(OpenError::Corrupt { at: walk.end, proof });
                }
                continue;
            }
            self.end = walk.end;
            self.proven = header.base.max(walk.known).max(known).min(walk.end);
            self.check_tail(options, &body, known, &path, stopped)?;
            self.discard(walk.batch_end.max(body.written_upto(walk.end)), stopped);
            self.tail = Some(body);
        }
        Ok(())
    }

    /// Refuses to call the end of the last segment a torn tail where something proves the contrary.
    fn check_tail<E>(
        &self,
        options: &Options,
        body: &Body,
        known: Lsn,
        path: &str,
        stopped: &str,
    ) -> Result<(), OpenError<E>> {
        let at = self.end;
        let corrupt = |proof: String| Err(OpenError::Corrupt { at, proof: format!("{proof}; in {path} {stopped}") });
        if options.faults().corruption_is_torn_tail() {
            return Ok(());
        }
        if known > at {
            return corrupt(format!("{known} is known to be durable"));
        }
        if let Some((lsn, knew)) = body.proof(at) {
            return corrupt(format!("the batch at {lsn} knew that {knew} was durable"));
        }
        let behind = body.bytes.get(at.since(body.base) as usize..).unwrap_or_default();
        if options.faults().torn_tail_is_corruption() && behind.iter().any(|b| *b != 0) {
            return corrupt("something is behind it".into());
        }
        Ok(())
    }

    fn discard(&mut self, upto: Lsn, cause: &'static str) {
        let bytes = upto.since(self.end);
        if bytes > self.discarded.map_or(0, |discarded| discarded.bytes) {
            self.discarded = Some(Discarded { at: self.end, bytes, cause });
        }
    }

    /// A blank may be a segment whose header is damaged, or did not reach the disk. It would start at the end that was
    /// found, and its batches would tell.
    fn check_blanks<E>(&mut self, options: &Options) -> Result<(), OpenError<E>> {
        let Some((last, header)) = self.live.last() else { return Ok(()) };
        let next = |blank: &&Found| blank.number > last.number && !blank.is_spare();
        let Some(blank) = self.blank.iter().find(next) else { return Ok(()) };
        let path = segment_path(blank.number);
        // That of an opening's first segment is not known here, but its header is durable before it is used: see
        // `check_term`.
        let seal = if header.term == 0 {
            SegmentHeader { number: blank.number, ..*header }.seal()
        } else {
            options.seal_of(header)
        };
        let mut head = [0; BATCH_HEADER];
        let n = blank.file.read_at(&mut head, SEGMENT_HEADER).map_err(failed("reading", &path))?;
        if BatchHeader::decode(&head[..n], seal, self.end).is_none() || options.faults().corruption_is_torn_tail() {
            return Ok(());
        }
        let body = Body::read(blank.file.as_ref(), self.end, seal).map_err(failed("reading", &path))?;
        if let Some((lsn, knew)) = body.proof(self.end) {
            let proof = format!("the batch at {lsn} knew that {knew} was durable; the header of {path} is damaged");
            return Err(OpenError::Corrupt { at: self.end, proof });
        }
        self.discard(body.written_upto(self.end), "a segment whose header is not whole starts there");
        Ok(())
    }

    /// An opening's first segment has a header before anything else of it is written.
    fn check_term<E>(&self, term: u64) -> Result<(), OpenError<E>> {
        let found = self.live.last().map_or(0, |(_, header)| header.term);
        if found < term {
            let proof =
                format!("it was opened in term {term}, its last segment is of term {found}: later ones are missing");
            return Err(OpenError::Corrupt { at: self.end, proof });
        }
        Ok(())
    }

    /// Writes the journal's tail again and syncs it: its frames may be in the page cache only, or not even dirty there
    /// if a sync had failed.
    fn settle_tail<E>(&self, disk: &dyn Disk) -> Result<(), OpenError<E>> {
        let (Some((found, header)), Some(body)) = (self.live.last(), &self.tail) else { return Ok(()) };
        let path = segment_path(found.number);
        let at = |lsn: Lsn| lsn.since(header.base) as usize;
        let tail = body.bytes.get(at(self.proven)..at(self.end)).unwrap_or_default();
        // Perhaps only one copy of the segment's header has reached the disk.
        let head = if header.term > 0 { header.encode() } else { found.head.clone() };
        let settle = || {
            found.file.write_at(&head, 0)?;
            found.file.write_at(tail, SEGMENT_HEADER + self.proven.since(header.base))?;
            found.file.sync()?;
            disk.sync_dir(FOLDER)
        };
        settle().map_err(failed("syncing", &path))
    }
}

impl FileJournal {
    /// Opens the journal in the folder `journal`, or makes one.
    ///
    /// Every frame from the floor on is given to `replay`, in order. An end before the one in `bounds` is corruption.
    /// The replayed frames are durable when this returns.
    pub fn open<E>(
        disk: Arc<dyn Disk>,
        options: Options,
        bounds: Bounds,
        replay: &mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>,
    ) -> Result<Self, OpenError<E>> {
        options.check().map_err(OpenError::Options)?;
        if options.term > 0 {
            let by = Self::newest_term(disk.as_ref())?.max(bounds.term);
            if options.term <= by {
                return Err(Fenced { term: options.term, by }.into());
            }
        }
        let scanned = scan(disk.as_ref(), &options, bounds, replay)?;
        scanned.settle_tail(disk.as_ref())?;
        if let Some(Discarded { at, bytes, cause }) = scanned.discarded {
            tracing::warn!(
                %at, bytes, cause,
                "recovery discards the torn end of the journal. After a crash its frames were not acknowledged as durable; if the \
                 disk has damaged them, acknowledged appends are lost"
            );
        }
        if let Some(Passed { range, path, what }) = &scanned.passed {
            tracing::warn!(
                at = %range.start, upto = %range.end, path, what,
                "the journal is damaged below its floor, where all content is settled: nothing is lost, and the file will be recycled"
            );
        }
        Self::resume(disk, options, bounds, scanned)
    }

    /// The largest term that any file of the folder names; zero if there is none. Changes nothing.
    pub fn newest_term<E>(disk: &dyn Disk) -> Result<u64, OpenError<E>> {
        list(disk).map(|(_, _, term)| term)
    }

    /// Goes on in a new term at the end that was found, and finds a use for the other files.
    fn resume<E>(
        disk: Arc<dyn Disk>,
        options: Options,
        bounds: Bounds,
        scanned: Scanned,
    ) -> Result<Self, OpenError<E>> {
        let Scanned { mut live, below, blank, term, end, discarded, .. } = scanned;
        let next = if options.term > 0 { options.term } else { term.max(bounds.term) + 1 };
        let opened = Opened { term: next, end, segments: live.len(), discarded };
        let (term, seal) = (opened.term, options.seal(opened.term));
        // The last segment may be empty, as after two crashes in a row: it gets another header in place of the one that
        // it has.
        let empty = live.pop_if(|(found, header)| header.base == end && options.is_size(found.len));
        let headers: Vec<_> = live.iter().chain(&empty).map(|(_, header)| *header).collect();
        let mut segments = Segments::default();
        for (Found { number, file, .. }, header) in live {
            let seal = options.seal_of(&header);
            let header_is_durable = AtomicBool::new(true);
            let base = header.base;
            segments.push_live(Arc::new(Segment { number, base, bytes: header.bytes, seal, file, header_is_durable }));
        }
        let number = empty.as_ref().map_or(segments.next_number(), |(found, _)| found.number);
        let row = if empty.is_some() { number + 1 } else { number };
        let wanted = options.reserve_segments + options.spare_segments + usize::from(empty.is_none());
        let others = blank.into_iter().chain(below).collect();
        let mut blanks = arrange(disk.as_ref(), &options, row, others, wanted, &headers)
            .map_err(failed("arranging files in", FOLDER))?
            .into_iter();
        let path = segment_path(number);
        let (file, bytes) = match empty.map(|(found, _)| found).or_else(|| blanks.next()) {
            Some(found) => (found.file, found.len),
            None => {
                let bytes = options.first_bytes();
                (create_blank(disk.as_ref(), &path, bytes).map_err(failed("making", &path))?, bytes)
            }
        };
        let header = SegmentHeader { number, base: end, bytes, term, salt: options.salt };
        file.write_at(&header.encode(), 0).and_then(|()| file.sync()).map_err(failed("writing", &path))?;
        let header_is_durable = AtomicBool::new(true);
        let active = Arc::new(Segment { number, base: end, bytes, seal, file, header_is_durable });
        segments.push_live(Arc::clone(&active));
        blanks.for_each(|Found { number, file, len, .. }| segments.push_ready(Blank { number, bytes: len, file }));
        let sink = FileSink {
            disk,
            options,
            seal,
            fenced: AtomicU64::new(term),
            segments: Mutex::new(segments),
            active: Mutex::new(active),
            preparing: Mutex::new(()),
            told_full: AtomicBool::new(false),
            header_bytes: AtomicU64::new(0),
            used: AtomicU64::new(0),
            active_bytes: AtomicU64::new(bytes),
        };
        Ok(Self::new(sink, options, opened, seal, bounds.floor, Options::room(bytes)))
    }
}
