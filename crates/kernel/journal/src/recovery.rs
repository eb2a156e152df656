//! Opening: what is in the folder, which frames count, where the journal ends, and a new segment to go on in.
//!
//! Frames count up to the first damage, at P. It is a torn tail if nothing proves that P was durable, and corruption if something
//! does: a successor's header (written only after everything below its base was synced), a batch header behind P that knew more, or
//! what the caller knows. Behind a torn tail nothing counts, whole or not: the next segment starts at P, in a larger generation,
//! and a walk of the old one ends there for ever.

use crate::FrameRef;
use crate::copy::SegmentFile;
use crate::file::{Counters, FileJournal};
use crate::fill::{Fill, Place};
use crate::format::{
    BATCH_HEADER, BatchHeader, FOLDER, SEGMENT_HEADER, SegmentError, SegmentHeader, segment_number, segment_path,
};
use crate::options::Options;
use crate::prepare::{create_blank, renumber};
use crate::published::Published;
use crate::scan::Body;
use crate::segments::{Blank, Segment, Segments};
use crate::shell::Shell;
use crate::window::Window;
use crate::writer::Writer;
use bytes::Bytes;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use thalweg_base::Lsn;
use thalweg_disk::{Disk, File};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum OpenError<E> {
    #[error("the journal is damaged at {at}, which was durable: {proof}")]
    Corrupt { at: Lsn, proof: String },
    #[error("{path} has journal format {found}; this build reads {known}", known = crate::format::VERSION)]
    Version { path: String, found: u32 },
    #[error("{operation} {path} failed: {source}")]
    Io { operation: &'static str, path: String, source: io::Error },
    #[error("the frame at {at} was refused: {error}")]
    Replay { at: Lsn, error: E },
    #[error("journal options: {0}")]
    Options(&'static str),
}

/// One file of the folder.
struct Found {
    number: u64,
    file: Arc<dyn File>,
    len: u64,
}

/// What a scan of the folder found.
pub(crate) struct Scanned {
    /// Segments from the one that holds the floor on.
    live: Vec<(Found, SegmentHeader)>,
    /// Segments wholly below the floor.
    below: Vec<Found>,
    /// Files without frames.
    blank: Vec<Found>,
    next_number: u64,
    pub(crate) end: Lsn,
    /// What of the last segment may not be durable yet: from here to `end`.
    proven: Lsn,
    tail: Option<Body>,
    /// What stopped the walk of the last segment.
    pub(crate) stopped: &'static str,
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
    floor: Lsn,
    known_durable: Lsn,
    replay: Replay<'_, E>,
) -> Result<Scanned, OpenError<E>> {
    let (mut live, blank) = list(disk)?;
    let newest = blank.iter().map(|f| f.number).chain(live.iter().map(|(f, _)| f.number)).max();
    for pair in live.windows(2) {
        if pair[1].1.base < pair[0].1.base {
            let proof = format!("{} starts before {}", segment_path(pair[1].0.number), segment_path(pair[0].0.number));
            return Err(OpenError::Corrupt { at: pair[1].1.base, proof });
        }
    }
    let holds_floor = live.partition_point(|(_, header)| header.base <= floor).checked_sub(1);
    if holds_floor.is_none() && (!live.is_empty() || floor > Lsn::ZERO || known_durable > Lsn::ZERO) {
        return Err(OpenError::Corrupt {
            at: floor,
            proof: "no segment that holds this needed position is there".into(),
        });
    }
    let below = live.drain(..holds_floor.unwrap_or(0)).map(|(found, _)| found).collect();
    let mut scanned = Scanned {
        live,
        below,
        blank,
        next_number: newest.map_or(1, |n| n + 1),
        end: Lsn::ZERO,
        proven: Lsn::ZERO,
        tail: None,
        stopped: "it is new",
    };
    let known = known_durable.max(floor);
    scanned.walk(options, floor, known, replay)?;
    scanned.check_blanks(options)?;
    Ok(scanned)
}

type Lists = (Vec<(Found, SegmentHeader)>, Vec<Found>);

fn list<E>(disk: &dyn Disk) -> Result<Lists, OpenError<E>> {
    let (mut live, mut blank) = (Vec::new(), Vec::new());
    for name in disk.list(FOLDER).map_err(failed("listing", FOLDER))? {
        let Some(number) = segment_number(&name) else { continue };
        let path = segment_path(number);
        let file = disk.open(&path).map_err(failed("opening", &path))?;
        let len = file.len().map_err(failed("reading", &path))?;
        let mut head = vec![0; SEGMENT_HEADER as usize];
        let n = file.read_at(&mut head, 0).map_err(failed("reading", &path))?;
        let found = Found { number, file, len };
        match SegmentHeader::decode(&head[..n]) {
            Ok(header) if header.generation == number => live.push((found, header)),
            Err(SegmentError::Version(found)) => return Err(OpenError::Version { path, found }),
            _ => blank.push(found),
        }
    }
    live.sort_by_key(|(found, _)| found.number);
    blank.sort_by_key(|found| found.number);
    Ok((live, blank))
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
            let body = Body::read(found.file.as_ref(), header.base, options.seal(found.number))
                .map_err(failed("reading", &path))?;
            let walk = body.walk(next.map(|(_, header)| header.base), |frame, payload| {
                if frame.lsn < floor {
                    return Ok(());
                }
                replay(frame, payload).map_err(|error| OpenError::Replay { at: frame.lsn, error })
            })?;
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
            self.stopped = stopped;
            self.proven = header.base.max(walk.known).max(known).min(walk.end);
            self.check_tail(options, &body, known, &path)?;
            self.tail = Some(body);
        }
        Ok(())
    }

    /// Refuses to call the end of the last segment a torn tail where something proves the contrary.
    fn check_tail<E>(&self, options: &Options, body: &Body, known: Lsn, path: &str) -> Result<(), OpenError<E>> {
        let (at, stopped) = (self.end, self.stopped);
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

    /// A blank may be a segment whose header is damaged. It would start at the end that was found, and its batches would tell.
    fn check_blanks<E>(&self, options: &Options) -> Result<(), OpenError<E>> {
        let last = self.live.last().map_or(0, |(found, _)| found.number);
        for blank in self.blank.iter().filter(|blank| blank.number > last) {
            let path = segment_path(blank.number);
            let seal = options.seal(blank.number);
            let mut head = [0; BATCH_HEADER];
            let n = blank.file.read_at(&mut head, SEGMENT_HEADER).map_err(failed("reading", &path))?;
            if BatchHeader::decode(&head[..n], seal, self.end).is_none() || options.faults().corruption_is_torn_tail() {
                continue;
            }
            let body = Body::read(blank.file.as_ref(), self.end, seal).map_err(failed("reading", &path))?;
            if let Some((lsn, knew)) = body.proof(self.end) {
                let proof = format!("the batch at {lsn} knew that {knew} was durable; the header of {path} is damaged");
                return Err(OpenError::Corrupt { at: self.end, proof });
            }
        }
        Ok(())
    }

    /// What was accepted may be only in the page cache, or not even dirty there if a sync had failed: it is written again.
    fn settle_tail<E>(&self, disk: &dyn Disk) -> Result<(), OpenError<E>> {
        let (Some((found, header)), Some(body)) = (self.live.last(), &self.tail) else { return Ok(()) };
        let path = segment_path(found.number);
        let at = |lsn: Lsn| lsn.since(header.base) as usize;
        let tail = body.bytes.get(at(self.proven)..at(self.end)).unwrap_or_default();
        let settle = || {
            found.file.write_at(&header.encode(), 0)?;
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
    /// Every frame from `floor` on is given to `replay`, in order. `floor` is the oldest position that is still needed and
    /// `known_durable` one that was durable: an end before either is corruption. What was replayed is durable when this returns.
    pub fn open<E>(
        disk: Arc<dyn Disk>,
        options: Options,
        floor: Lsn,
        known_durable: Lsn,
        replay: &mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>,
    ) -> Result<Self, OpenError<E>> {
        options.check().map_err(OpenError::Options)?;
        let scanned = scan(disk.as_ref(), &options, floor, known_durable, replay)?;
        scanned.settle_tail(disk.as_ref())?;
        let end = scanned.end;
        match scanned.stopped {
            "it is new" => tracing::info!("a new journal begins"),
            because => {
                tracing::info!(%floor, %end, segments = scanned.live.len(), because, "the journal was read to its end")
            }
        }
        Self::resume(disk, options, floor, scanned)
    }

    /// Goes on in a new generation at the end that was found, and finds a use for the other files.
    fn resume<E>(disk: Arc<dyn Disk>, options: Options, floor: Lsn, scanned: Scanned) -> Result<Self, OpenError<E>> {
        let Scanned { mut live, below, blank, next_number, end, .. } = scanned;
        let mut segments = Segments::new(next_number);
        let mut pool: Vec<Found> = blank.into_iter().chain(below).collect();
        // The last segment may be empty, as after two crashes in a row. It is needed until its successor is there, unless the
        // one before it, which ends at the same place, is there as well.
        let empty = live.pop_if(|(_, header)| header.base == end).map(|(found, _)| found);
        let may_reuse_empty = !live.is_empty();
        let usable = |found: &Found| found.len == options.segment_bytes;
        let active = match pool.iter().position(usable) {
            Some(at) => Active::Reused(pool.swap_remove(at)),
            None => Active::New,
        };
        let number = segments.fresh_number();
        let path = segment_path(number);
        let mut leftover = empty;
        let file = match active {
            Active::Reused(found) => {
                renumber(disk.as_ref(), found.number, number).map_err(failed("renaming to", &path))?;
                found.file
            }
            Active::New => match create_blank(disk.as_ref(), number, options.segment_bytes) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                    let reuse = if may_reuse_empty { leftover.take_if(|f| usable(f)) } else { None };
                    let Some(found) = reuse else { return Err(failed("allocating", &path)(e)) };
                    renumber(disk.as_ref(), found.number, number).map_err(failed("renaming to", &path))?;
                    found.file
                }
                Err(e) => return Err(failed("creating", &path)(e)),
            },
        };
        let header = SegmentHeader { generation: number, base: end, bytes: options.segment_bytes };
        file.write_at(&header.encode(), 0).and_then(|()| file.sync()).map_err(failed("writing", &path))?;
        pool.extend(leftover);
        for (found, header) in live {
            let Found { number, file, .. } = found;
            segments.push_live(Arc::new(Segment { number, base: header.base, bytes: header.bytes, file }));
        }
        let active = Arc::new(Segment { number, base: end, bytes: options.segment_bytes, file });
        segments.push_live(Arc::clone(&active));
        restock(disk.as_ref(), &options, pool, &mut segments)?;
        let journal = Self {
            disk,
            options,
            fill: Mutex::new(Fill::new(Place { generation: number, base: end })),
            segments: Mutex::new(segments),
            driving: Mutex::new(()),
            writer: Mutex::new(Writer::new(active, end)),
            early: AtomicBool::new(false),
            window: Mutex::new(Window::new(options.window_bytes, options.window_batches)),
            preparing: Mutex::new(()),
            published: Published::new(end),
            shell: Shell::default(),
            counters: Counters::default(),
            start: AtomicU64::new(floor.0),
        };
        journal.allow();
        Ok(journal)
    }
}

enum Active {
    Reused(Found),
    New,
}

/// Keeps as many files as may be kept ready, each under a new number: under its old one it may hold batches that were cut off.
fn restock<E>(
    disk: &dyn Disk,
    options: &Options,
    pool: Vec<Found>,
    segments: &mut Segments,
) -> Result<(), OpenError<E>> {
    let mut kept = Vec::new();
    let changed = !pool.is_empty();
    for found in pool {
        let path = segment_path(found.number);
        if found.len == options.segment_bytes && kept.len() < options.reserve_segments + options.spare_segments {
            let number = segments.fresh_number();
            disk.rename(&path, &segment_path(number)).map_err(failed("renaming", &path))?;
            kept.push(Blank { number, file: found.file });
        } else {
            disk.remove(&path).map_err(failed("removing", &path))?;
        }
    }
    if changed {
        disk.sync_dir(FOLDER).map_err(failed("syncing", FOLDER))?;
    }
    for blank in kept {
        segments.offer(blank);
    }
    Ok(())
}
