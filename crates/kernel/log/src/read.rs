//! Reading: from a position to the end of its chunk.
//!
//! A log's content lies in up to three places: what a fork inherited lies with its ancestors, what is settled in runs, the rest in
//! journal frames. A read takes a snapshot of where its range lies, then fetches. Settling and merging move content meanwhile:
//! a fetch that finds its place gone starts over with a new snapshot.
//!
//! Chunks end by content alone: at the first message boundary at or after the next multiple of `chunk_bytes`. So everyone who
//! reads from one position gets the same bytes, before and after settling, on a fork, after a restart.

use crate::attachment::Attachment;
use crate::damage::Place as DamagedPlace;
use crate::error::ReadError;
use crate::frame::{self, Ancestor};
use crate::lengths::Lengths;
use crate::log::Piece;
use crate::logs::{Logs, ReadFrom, shard_of_log};
use crate::root::{Root, Run};
use crate::run::{Entry, Fetch, Mode, PAGE_BYTES, Place, RunError};
use bytes::Bytes;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_storage::StorageError;
use thiserror::Error;

/// What a read gave: whole messages, except where a fork cut its last inherited one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// They concatenate to the content.
    pub parts: Vec<Bytes>,
    /// Where the next read starts.
    pub end: Offset,
}

impl Chunk {
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// A distance from a message boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    Messages(u64),
    /// Not past the next message boundary; equal to it is allowed.
    Bytes(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SeekError {
    #[error("the distance goes past the next boundary or the tail")]
    Overshoot,
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl<A: Attachment> Logs<A> {
    /// The chunk, if it was read again and again lately.
    pub fn recall(&self, from: ReadFrom) -> Option<Chunk> {
        self.gathered.get(from)
    }

    /// Reads a chunk if no device has to be waited for; else `None`: then call [`Logs::read`] from an I/O thread.
    pub fn try_read(&self, from: ReadFrom) -> Option<Result<Chunk, ReadError>> {
        let read = self.reader(Mode::NoWait).again(|reader| reader.chunk(from))?;
        Some(read.map(|chunk| self.gathered.note(from, chunk, self.journal.as_ref())))
    }

    /// Reads a chunk; may wait for a device.
    pub fn read(&self, from: ReadFrom) -> Result<Chunk, ReadError> {
        let read = self.reader(Mode::Wait).again(|reader| reader.chunk(from));
        read.unwrap_or_else(|| Err(restless(from.log, from.from)))
            .map(|chunk| self.gathered.note(from, chunk, self.journal.as_ref()))
    }

    /// How much memory answers hold that are not sent yet, and the cache that they share: buffers that reads made, and batches of the
    /// journal of which they have a part.
    pub fn held_bytes(&self) -> u64 {
        self.gathered.memory.bytes() + self.journal.pinned_bytes()
    }

    /// Counts a buffer that was made from what was read, such as an encoded answer.
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        self.gathered.memory.count(bytes)
    }

    /// The position at a distance from a message boundary, if no device has to be waited for.
    pub fn try_seek(&self, log: LogId, from: Offset, upto: Offset, by: Seek) -> Option<Result<Offset, SeekError>> {
        let found = self.reader(Mode::NoWait).again(|reader| reader.seek(log, from, upto, by))?;
        Some(found.map_err(SeekError::Read).and_then(|found| found.ok_or(SeekError::Overshoot)))
    }

    /// The position at a distance from a message boundary; may wait for a device.
    pub fn seek(&self, log: LogId, from: Offset, upto: Offset, by: Seek) -> Result<Offset, SeekError> {
        let found = self.reader(Mode::Wait).again(|reader| reader.seek(log, from, upto, by));
        found.unwrap_or_else(|| Err(restless(log, from)))?.ok_or(SeekError::Overshoot)
    }

    /// The last message boundary that is not after `at`, which lies between the log's start and `upto`, a published tail; may wait
    /// for a device.
    pub fn boundary(&self, log: LogId, at: Offset, upto: Offset) -> Result<Offset, ReadError> {
        let found = self.reader(Mode::Wait).again(|reader| reader.boundary(log, at, upto));
        found.unwrap_or_else(|| Err(restless(log, at)))
    }

    fn reader(&self, mode: Mode) -> Reader<'_, A> {
        Reader { logs: self, mode }
    }
}

/// A reader's place was gone this often in a row. Content moves a few times in its life, not during one read.
const TRIES: usize = 16;

/// References may lead to references, but not without end.
const REFERENCE_DEPTH_MAX: usize = 8;

/// Frames fetched from the journal in one go: this many, or this many bytes.
const FRAMES_PER_FETCH: usize = 1024;
const FRAME_BYTES_PER_FETCH: usize = 8 << 20;

fn restless(log: LogId, offset: Offset) -> ReadError {
    ReadError::Io { log, offset, cause: format!("content moved away {TRIES} times while it was read") }
}

enum Stop {
    WouldWait,
    /// Content has moved since the snapshot.
    Moved,
    /// The root in force does not have content that the snapshot names. The log may have been trimmed or deleted between the two,
    /// and its content reclaimed: then a new snapshot says so.
    Absent(ReadError),
    Failed(ReadError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Stop::Failed(error)
    }
}

struct Reader<'a, A: Attachment> {
    logs: &'a Logs<A>,
    mode: Mode,
}

/// Where a log's content lies, as far as one read wants to know.
struct Snapshot {
    start: Offset,
    tail: Offset,
    settled: Offset,
    lineage: Box<[Ancestor]>,
    pieces: Vec<Piece>,
}

/// Consecutive messages of one log.
struct Found {
    start: Offset,
    lengths: Lengths,
    place: FoundPlace,
}

enum FoundPlace {
    Frame(Bytes),
    Data { object: ObjectId, at: u64 },
    Reference { source: LogId, from: Offset },
}

impl Found {
    fn end(&self) -> Offset {
        self.start.plus(self.lengths.bytes())
    }
}

impl<A: Attachment> Reader<'_, A> {
    /// Tries until content holds still. `None`: it would have to wait.
    fn again<T>(&self, read: impl Fn(&Self) -> Result<T, Stop>) -> Option<Result<T, ReadError>> {
        let mut absent = None;
        for _ in 0..TRIES {
            match read(self) {
                Ok(value) => return Some(Ok(value)),
                Err(Stop::Failed(error)) => return Some(Err(error)),
                Err(Stop::WouldWait) => return None,
                Err(Stop::Moved) => absent = None,
                Err(Stop::Absent(error)) => absent = Some(error),
            }
        }
        absent.map(Err)
    }

    fn chunk(&self, want: ReadFrom) -> Result<Chunk, Stop> {
        self.collect(want).map_err(|stop| match stop {
            Stop::Failed(ReadError::Corrupt { log, offset, end, what }) => {
                let (offset, end) = self.messages_around(want, offset..end);
                Stop::Failed(ReadError::Corrupt { log, offset, end, what })
            }
            stop => stop,
        })
    }

    /// The damaged range with the rest of the messages that it cuts, so that a read from its end succeeds; as it is where that is not known.
    fn messages_around(&self, want: ReadFrom, damaged: Range<Offset>) -> (Offset, Offset) {
        let (mut start, mut end) = (damaged.start, damaged.end.min(want.upto));
        let look = |at: Offset, f: &mut dyn FnMut(&Found, u64)| {
            let visit = &mut |_, found: Found, _| {
                f(&found, at.since(found.start));
                Ok(ControlFlow::Break(()))
            };
            let _ = self.walk_from(want.log, at, want.upto, at.plus(1), true, visit);
        };
        look(start, &mut |found, at| start = found.start.plus(found.lengths.boundary_at_or_before(at)));
        look(damaged.end.min(want.upto), &mut |found, at| {
            end = found.lengths.boundary_at_or_after(at).map_or(found.end(), |at| found.start.plus(at));
        });
        (start, end)
    }

    fn collect(&self, want: ReadFrom) -> Result<Chunk, Stop> {
        let ReadFrom { log, from, upto } = want;
        let chunk = self.logs.options.chunk_bytes;
        let target = Offset((from.0 / chunk + 1).saturating_mul(chunk));
        let mut collected = Collected::new(self);
        let mut end = from;
        self.walk(log, from, upto, target, &mut |owner, found, span| {
            let inside = found.lengths.boundary_at_or_after(target.since(found.start));
            let stop = inside.map_or(span.end, |at| found.start.plus(at).min(span.end));
            collected.take(owner, &found, span.start..stop)?;
            end = stop;
            Ok(if stop >= target { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(Chunk { parts: collected.finish()?, end })
    }

    fn boundary(&self, log: LogId, at: Offset, upto: Offset) -> Result<Offset, Stop> {
        let mut boundary = at;
        self.walk_from(log, at, upto, at.plus(1), true, &mut |_, found, _| {
            boundary = found.start.plus(found.lengths.boundary_at_or_before(at.since(found.start)));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(boundary)
    }

    fn seek(&self, log: LogId, from: Offset, upto: Offset, by: Seek) -> Result<Option<Offset>, Stop> {
        let mut at = from;
        let mut left = match by {
            Seek::Messages(0) | Seek::Bytes(0) => return Ok(Some(from)),
            Seek::Messages(n) | Seek::Bytes(n) => n,
        };
        self.walk(log, from, upto, upto, &mut |_, found, span| {
            let relative = span.start.since(found.start);
            let end = found.start.plus(found.lengths.bytes()).min(span.end);
            match by {
                Seek::Bytes(n) => {
                    let next = found.lengths.boundary_at_or_after(relative + 1);
                    let next = next.map_or(end, |next| found.start.plus(next).min(end));
                    if at.plus(n) <= next {
                        at = at.plus(n);
                        left = 0;
                    }
                    Ok(ControlFlow::Break(()))
                }
                Seek::Messages(_) => match found.lengths.nth_after(relative, left) {
                    Some(place) if found.start.plus(place) <= end => {
                        at = found.start.plus(place);
                        left = 0;
                        Ok(ControlFlow::Break(()))
                    }
                    _ => {
                        let before = found.lengths.messages_before(relative).unwrap_or(0);
                        let upto = found.lengths.messages_before(end.since(found.start)).unwrap_or(0);
                        left -= (upto - before).min(left);
                        // A message that a fork has cut counts as one.
                        left -= u64::from(!found.lengths.is_boundary(end.since(found.start))).min(left);
                        at = end;
                        Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                    }
                },
            }
        })?;
        Ok((left == 0).then_some(at))
    }

    /// Visits what covers `from..upto` of `log`, in order, until told to stop. `from` must be a message boundary. The visitor gets
    /// the log that owns the content and the span that it is asked for, which lies inside what was found.
    fn walk(
        &self,
        log: LogId,
        from: Offset,
        upto: Offset,
        target: Offset,
        visit: &mut dyn FnMut(LogId, Found, Range<Offset>) -> Result<ControlFlow<()>, Stop>,
    ) -> Result<(), Stop> {
        self.walk_from(log, from, upto, target, false, visit)
    }

    /// The same; `from` may lie `anywhere`.
    fn walk_from(
        &self,
        log: LogId,
        from: Offset,
        upto: Offset,
        target: Offset,
        anywhere: bool,
        visit: &mut dyn FnMut(LogId, Found, Range<Offset>) -> Result<ControlFlow<()>, Stop>,
    ) -> Result<(), Stop> {
        let own = self.snapshot(log, from, target)?.ok_or(ReadError::Missing(log))?;
        if from < own.start {
            return Err(ReadError::Trimmed { offset: from, start: own.start }.into());
        }
        if from > upto || upto > own.tail {
            return Err(ReadError::BeyondTail { offset: from.max(upto), tail: own.tail }.into());
        }
        let mut checked = anywhere;
        let mut at = from;
        while at < upto {
            // The span of one owner: an ancestor below its bound, else the log itself.
            let inherited = own.lineage.iter().find(|a| at < a.upto).copied();
            let end = inherited.map_or(upto, |a| a.upto.min(upto));
            let flow = match inherited {
                Some(ancestor) => {
                    let snapshot = self.snapshot(ancestor.id, at, target)?.ok_or_else(|| ReadError::Corrupt {
                        log,
                        offset: at,
                        end,
                        what: format!("its ancestor {} is gone", ancestor.id),
                    })?;
                    self.walk_owner(ancestor.id, &snapshot, &mut at, end, &mut checked, visit)?
                }
                None => self.walk_owner(log, &own, &mut at, end, &mut checked, visit)?,
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits `at..end` of what `owner` itself holds; `at` moves along.
    fn walk_owner(
        &self,
        owner: LogId,
        snapshot: &Snapshot,
        at: &mut Offset,
        end: Offset,
        checked: &mut bool,
        visit: &mut dyn FnMut(LogId, Found, Range<Offset>) -> Result<ControlFlow<()>, Stop>,
    ) -> Result<ControlFlow<()>, Stop> {
        let mut step = |found: Found, at: &mut Offset| -> Result<ControlFlow<()>, Stop> {
            let span = *at..found.end().min(end);
            if !std::mem::replace(checked, true) {
                must_be_boundary(&found, *at, end)?;
            }
            *at = span.end;
            visit(owner, found, span)
        };
        if *at < snapshot.settled {
            let root = self.logs.sealed.root();
            let mut run = 0;
            let upto = end.min(snapshot.settled);
            while *at < upto {
                let found = self.sealed(&root, &mut run, owner, *at..upto)?;
                if step(found, at)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        // Not past the end: what follows may be accepted, but not written yet.
        let last = snapshot.pieces.partition_point(|piece| piece.start < end);
        let first = snapshot.pieces.partition_point(|piece| piece.start <= *at).saturating_sub(1);
        let mut pieces = &snapshot.pieces[first.min(last)..last];
        while *at < end && !pieces.is_empty() {
            let (now, later) = pieces.split_at(fetch_count(pieces));
            pieces = later;
            for found in self.frames(owner, now)? {
                if *at >= end {
                    break;
                }
                if step(found, at)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        if *at < end && pieces.is_empty() {
            // The snapshot reaches no further: the read wanted no more.
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn snapshot(&self, log: LogId, from: Offset, target: Offset) -> Result<Option<Snapshot>, Stop> {
        let shard = self.logs.shards[shard_of_log(log)].lock();
        shard.locate(log, from, target).map_err(|error| {
            Stop::Failed(ReadError::Corrupt { log, offset: from, end: target, what: format!("its record: {error}") })
        })
    }

    /// What covers `at` in the runs, from run `first` on. Runs are ordered by time, and so are a log's positions.
    fn sealed(&self, root: &Arc<Root>, first: &mut usize, log: LogId, span: Range<Offset>) -> Result<Found, Stop> {
        let at = span.start;
        for (number, run) in root.runs.iter().enumerate().skip(*first) {
            if let Some(entry) = self.in_run(run, log, &span)? {
                *first = number;
                let place = match entry.place {
                    Place::Data { object, at } => FoundPlace::Data { object, at },
                    Place::Reference { source, from } => FoundPlace::Reference { source, from },
                };
                return Ok(Found { start: entry.start, lengths: entry.lengths, place });
            }
        }
        if Arc::ptr_eq(root, &self.logs.sealed.root()) {
            let what = "no run holds it".to_owned();
            return Err(Stop::Absent(ReadError::Corrupt { log, offset: at, end: span.end, what }));
        }
        Err(Stop::Moved)
    }

    fn in_run(&self, run: &Run, log: LogId, span: &Range<Offset>) -> Result<Option<Entry>, Stop> {
        let at = span.start;
        let after = run.objects.partition_point(|object| object.meta.first <= (log, at));
        let Some(object) = after.checked_sub(1).and_then(|i| run.objects.get(i)) else {
            return Ok(None);
        };
        if !object.meta.reaches(log, at) {
            return Ok(None);
        }
        let found = self.logs.sealed.reader.find(object.meta.id, log, at, self.mode);
        // What of the log the damaged part of an index names is not known: perhaps all that the object has of it.
        let end = if object.meta.last == log { span.end.min(object.meta.end) } else { span.end };
        let found = found.map_err(|error| self.stop(error, log, at..end))?;
        Ok(found.filter(|entry| entry.log == log && entry.start <= at && at < entry.end()))
    }

    fn frames(&self, log: LogId, pieces: &[Piece]) -> Result<Vec<Found>, Stop> {
        let frames: Vec<_> = pieces.iter().map(|piece| piece.frame).collect();
        let journal = &self.logs.journal;
        use thalweg_journal::ReadError as J;
        let offset = pieces.first().map_or(Offset::ZERO, |piece| piece.start);
        let failed = |cause: String| Stop::Failed(ReadError::Io { log, offset, cause });
        let mut payloads = match self.mode {
            Mode::NoWait => journal.try_read(&frames).ok_or(Stop::WouldWait)?,
            Mode::Wait => journal.read(&frames).wait(),
        };
        // What a log's creating frame gave it may be asked for before that frame is written: the answer waits for it anyway.
        if matches!(payloads, Err(J::NotWritten(_))) {
            let (Mode::Wait, Some(last)) = (self.mode, frames.last()) else { return Err(Stop::WouldWait) };
            journal.wait_unless_full(last.end()).map_err(|error| failed(error.to_string()))?;
            payloads = journal.read(&frames).wait();
        }
        let payloads = payloads.map_err(|error| match error {
            J::Trimmed(_) => Stop::Moved,
            J::Corrupt { at, .. } | J::NotWritten(at) => {
                let piece = pieces.iter().find(|piece| piece.frame.lsn == at).or(pieces.first());
                let (offset, end) = piece.map_or((offset, offset), |piece| {
                    self.logs.damage.note(DamagedPlace::Journal { at, end: piece.frame.end() }, &error);
                    (piece.start, piece.start.plus(u64::from(piece.frame.len)))
                });
                let end = pieces.iter().map(|piece| piece.start).find(|next| *next > offset).unwrap_or(end);
                Stop::Failed(ReadError::Corrupt { log, offset, end, what: error.to_string() })
            }
            J::Io { .. } => failed(error.to_string()),
        })?;
        pieces.iter().zip(&payloads).map(|(piece, payload)| found_in_frame(log, *piece, payload)).collect()
    }

    /// The bytes that a reference stands for.
    fn reference(
        &self,
        source: LogId,
        from: Offset,
        upto: Offset,
        depth: usize,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Stop> {
        if depth == REFERENCE_DEPTH_MAX {
            let what = format!("references lead over more than {REFERENCE_DEPTH_MAX} logs");
            return Err(ReadError::Corrupt { log: source, offset: from, end: upto, what }.into());
        }
        let mut collected = Collected { reader: self, parts: Vec::new(), pending: None, depth: depth + 1 };
        let snapshot = self.snapshot(source, from, upto)?.ok_or(ReadError::Missing(source))?;
        let mut at = from;
        while at < upto {
            let inherited = snapshot.lineage.iter().find(|a| at < a.upto).copied();
            let (owner, end) = inherited.map_or((source, upto), |a| (a.id, a.upto.min(upto)));
            let before = at;
            let other = if owner == source { None } else { self.snapshot(owner, at, upto)? };
            // A reference may start and end inside a message: nothing to check.
            let mut checked = true;
            let place = other.as_ref().unwrap_or(&snapshot);
            let flow = self.walk_owner(owner, place, &mut at, end, &mut checked, &mut |owner, found, span| {
                collected.take(owner, &found, span)?;
                Ok(ControlFlow::Continue(()))
            })?;
            if at == before || (flow.is_break() && at < upto) {
                let what = "what it refers to is gone".to_owned();
                return Err(ReadError::Corrupt { log: source, offset: at, end: upto, what }.into());
            }
        }
        out.extend(collected.finish()?);
        Ok(())
    }
}

impl<A: Attachment> Reader<'_, A> {
    /// What a failed lookup of `span` means. Damage is noted.
    fn stop(&self, error: Fetch, log: LogId, span: Range<Offset>) -> Stop {
        let error = match error {
            Fetch::WouldWait => return Stop::WouldWait,
            Fetch::Failed(RunError::Storage(StorageError::Missing(object))) if !self.names(object) => {
                return Stop::Moved;
            }
            Fetch::Failed(error) => error,
        };
        let corrupt = |what| Stop::Failed(ReadError::Corrupt { log, offset: span.start, end: span.end, what });
        match &error {
            RunError::Storage(StorageError::Missing(object)) => {
                self.logs.damage.note(DamagedPlace::Object { object: *object, at: 0 }, "its file is gone");
                corrupt(error.to_string())
            }
            RunError::Storage(other) if !matches!(other, StorageError::Unreadable { .. }) => {
                Stop::Failed(ReadError::Io { log, offset: span.start, cause: error.to_string() })
            }
            _ => {
                self.logs.note_run(&error);
                corrupt(error.to_string())
            }
        }
    }

    /// Whether the root in force names an object. An edit puts its root in force before it removes objects of the one before.
    fn names(&self, object: ObjectId) -> bool {
        self.logs.sealed.root().object_ids().any(|named| named == object)
    }
}

/// How many of the pieces to fetch in one go: at least one.
fn fetch_count(pieces: &[Piece]) -> usize {
    let mut bytes = 0;
    let within = pieces.iter().take(FRAMES_PER_FETCH).take_while(|piece| {
        bytes += piece.frame.len as usize;
        bytes <= FRAME_BYTES_PER_FETCH
    });
    within.count().max(1)
}

fn must_be_boundary(found: &Found, at: Offset, end: Offset) -> Result<(), Stop> {
    let next = found.lengths.boundary_at_or_after(at.since(found.start)).map_or(end, |next| found.start.plus(next));
    if next == at {
        return Ok(());
    }
    Err(ReadError::InsideMessage { offset: at, next: next.min(end) }.into())
}

fn found_in_frame(log: LogId, piece: Piece, payload: &Bytes) -> Result<Found, Stop> {
    let end = piece.start.plus(u64::from(piece.frame.len));
    let corrupt = |what: String| Stop::Failed(ReadError::Corrupt { log, offset: piece.start, end, what });
    let append = frame::find_append(payload, log, piece.start)
        .map_err(|error| corrupt(format!("the frame at {}: {error}", piece.frame.lsn)))?
        .ok_or_else(|| corrupt(format!("the frame at {} does not append here", piece.frame.lsn)))?;
    let place = match append.content {
        frame::Content::Bytes(bytes) => FoundPlace::Frame(bytes),
        frame::Content::Reference { source, from } => FoundPlace::Reference { source, from },
    };
    Ok(Found { start: piece.start, lengths: append.lengths, place })
}

/// Gathers parts; neighbouring ranges of one object become one fetch.
struct Collected<'a, A: Attachment> {
    reader: &'a Reader<'a, A>,
    parts: Vec<Bytes>,
    pending: Option<Wanted>,
    depth: usize,
}

/// Data of an object that is to be fetched: content of `log` from `start` on.
struct Wanted {
    object: ObjectId,
    range: Range<u64>,
    log: LogId,
    start: Offset,
}

impl Wanted {
    /// The positions of the log that the damaged page at byte `at` has, of those that are wanted.
    fn damaged(&self, at: u64) -> Range<Offset> {
        let position = |at: u64| self.start.plus(at.clamp(self.range.start, self.range.end) - self.range.start);
        position(at)..position(at.saturating_add(PAGE_BYTES))
    }
}

/// The most that is fetched from an object in one go.
const FETCH_BYTES_MAX: u64 = 1 << 20;

impl<'a, A: Attachment> Collected<'a, A> {
    fn new(reader: &'a Reader<'a, A>) -> Self {
        Self { reader, parts: Vec::new(), pending: None, depth: 0 }
    }

    fn take(&mut self, owner: LogId, found: &Found, span: Range<Offset>) -> Result<(), Stop> {
        let relative = span.start.since(found.start)..span.end.since(found.start);
        if relative.is_empty() {
            return Ok(());
        }
        match &found.place {
            FoundPlace::Data { object, at } => {
                let range = at + relative.start..at + relative.end;
                if let Some(pending) = &mut self.pending
                    && (pending.object, pending.log, pending.range.end) == (*object, owner, range.start)
                    && range.end - pending.range.start <= FETCH_BYTES_MAX
                {
                    pending.range.end = range.end;
                    return Ok(());
                }
                self.fetch()?;
                self.pending = Some(Wanted { object: *object, range, log: owner, start: span.start });
            }
            FoundPlace::Frame(bytes) => {
                self.fetch()?;
                self.parts.push(bytes.slice(relative.start as usize..relative.end as usize));
            }
            FoundPlace::Reference { source, from } => {
                self.fetch()?;
                let (from, upto) = (from.plus(relative.start), from.plus(relative.end));
                let read = self.reader.reference(*source, from, upto, self.depth, &mut self.parts);
                read.map_err(|stop| match stop {
                    // Positions of the source mean nothing to this log's readers.
                    Stop::Failed(ReadError::Corrupt { what, .. }) => {
                        ReadError::Corrupt { log: owner, offset: span.start, end: span.end, what }.into()
                    }
                    stop => stop,
                })?;
            }
        }
        Ok(())
    }

    fn fetch(&mut self) -> Result<(), Stop> {
        if let Some(wanted) = self.pending.take() {
            let data = self.reader.logs.sealed.reader.data(wanted.object, wanted.range.clone(), self.reader.mode);
            let data = data.map_err(|error| {
                let span = match &error {
                    Fetch::Failed(RunError::Corrupt { at, .. }) => wanted.damaged(*at),
                    _ => wanted.start..wanted.start.plus(wanted.range.end - wanted.range.start),
                };
                self.reader.stop(error, wanted.log, span)
            })?;
            self.parts.push(self.reader.logs.gathered.memory.count(data));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Bytes>, Stop> {
        self.fetch()?;
        Ok(self.parts)
    }
}

impl<A: Attachment> crate::shard::Shard<A> {
    /// Where `from` and what follows it up to about `target` lies, without waking the log.
    fn locate(&self, log: LogId, from: Offset, target: Offset) -> Result<Option<Snapshot>, thalweg_base::DecodeError> {
        use crate::shard::Slot;
        let Some(slot) = self.slot_of(log) else {
            return Ok(None);
        };
        Ok(match &self.slots()[slot as usize] {
            Slot::Vacant => None,
            Slot::Rest { record, .. } => {
                let mut d = thalweg_base::Decoder::new(record);
                let head = crate::log::Head::decode(&mut d)?;
                let lineage = frame::lineage(&mut d)?;
                let (start, tail, settled) = (head.start, head.tail, head.settled);
                Some(Snapshot { start, tail, settled, lineage, pieces: Vec::new() })
            }
            Slot::Awake(log) => {
                let first = log.pieces.partition_point(|p| p.start <= from).saturating_sub(1);
                let last = log.pieces.partition_point(|p| p.start < target);
                Some(Snapshot {
                    start: log.start,
                    tail: log.tail,
                    settled: log.settled,
                    lineage: log.lineage.clone(),
                    pieces: log.pieces.range(first..last.max(first)).copied().collect(),
                })
            }
        })
    }
}
