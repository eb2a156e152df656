//! Gathering the content of one chunk.
//!
//! The visits of a walk become parts, in order: bytes in memory, ranges of objects that are read later, and references,
//! each of which is gathered by a walk of its own. All data that is known to be needed is asked for at once; the walk
//! goes on while requests are under way.

use super::Chunk;
use super::asks::{Answer, Asked, Asks};
use super::attempt::Goal;
use super::damaged::Damaged;
use super::stop::{Miss, Stop};
use super::walk::{Found, FoundPlace, Visit, Walk};
use crate::attachment::Attachment;
use crate::error::ReadError;
use crate::logs::{Logs, ReadFrom};
use crate::run::{Map, PAGE_BYTES, Pages, RunError};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, Offset};

/// References may lead to references, but not without end.
const REFERENCE_DEPTH_MAX: usize = 8;

/// The most that is fetched from an object in one go.
const FETCH_BYTES_MAX: u64 = 1 << 20;

/// The chunk at a position, or a part of it.
pub(super) struct Chunks {
    want: ReadFrom,
    part: Part,
    /// The first part of it, kept in memory when the log ended there: the read gathers only later content.
    kept: Option<Bytes>,
    gathering: Option<Gathering>,
    damaged: Option<Box<Damaged>>,
}

/// How much of a chunk is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Chunk,
    /// The wanted range only, which begins at a message boundary.
    First,
    /// The wanted range only, which may begin inside a message.
    Later,
}

impl Chunks {
    pub(super) fn new(want: ReadFrom) -> Self {
        Self::of(want, Part::Chunk)
    }

    pub(super) fn of(want: ReadFrom, part: Part) -> Self {
        Self { want, part, kept: None, gathering: None, damaged: None }
    }

    fn gather<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<Chunk, Stop> {
        let gathering = match &mut self.gathering {
            Some(gathering) => gathering,
            None => {
                let ReadFrom { log, from, upto } = self.want;
                let (target, anywhere) = match self.part {
                    Part::Chunk => (logs.chunk_target(from), false),
                    Part::First => (upto, false),
                    Part::Later => (upto, true),
                };
                let is_whole = matches!(self.part, Part::Chunk);
                let kept = is_whole.then(|| logs.chunk_cache.first_part(self.want)).flatten();
                let begin = kept.as_ref().map_or(from, |kept| from.plus(kept.len() as u64));
                let walk = Walk::open(logs, log, begin..upto, target, anywhere)?;
                walk.must_reach_back_to(from)?;
                self.kept = kept;
                self.gathering.insert(Gathering::new(walk, target, 0))
            }
        };
        gathering.advance(logs, asks)?;
        let chunk = Chunk { end: gathering.end, parts: gathering.take_parts() };
        Ok(match self.part {
            Part::Chunk => logs.chunk_cache.note(self.want, self.kept.take(), chunk, logs.journal.as_ref()),
            Part::First | Part::Later => logs.chunk_cache.own(chunk, logs.journal.as_ref()),
        })
    }
}

impl Goal for Chunks {
    type Found = Chunk;

    fn advance<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<Chunk, Stop> {
        if self.damaged.is_none() {
            match self.gather(logs, asks) {
                Err(Stop::Failed(ReadError::Corrupt { log, offset, end, what })) => {
                    self.damaged = Some(Box::new(Damaged::new(self.want, log, offset..end, what)));
                }
                gathered => return gathered,
            }
        }
        match &mut self.damaged {
            Some(damaged) => Err(damaged.widen(logs, asks)),
            None => Err(Stop::Pending),
        }
    }

    fn start_over(&mut self) {
        *self = Self::of(self.want, self.part);
    }

    fn place(&self) -> (LogId, Offset) {
        (self.want.log, self.want.from)
    }
}

/// The parts of a range of one log that were read, and the requests under way for the others.
struct Gathering {
    walk: Walk,
    /// The read ends at the first message boundary from here on.
    target: Offset,
    end: Offset,
    walked: bool,
    parts: Vec<Bytes>,
    /// Neighbouring ranges of one object that become one fetch.
    wanted: Option<Wanted>,
    /// Parts that come later. Their places are kept with nothing in them.
    coming: Vec<Coming>,
    references: Vec<Reference>,
    /// The first error, in the order of the parts.
    failure: Option<(usize, ReadError)>,
    depth: usize,
}

/// Data of an object that is to be fetched: content of `log` from `start` on.
struct Wanted {
    map: Arc<Map>,
    range: Range<u64>,
    log: LogId,
    start: Offset,
}

struct Coming {
    part: usize,
    asked: Asked,
    wanted: Wanted,
    pages: Pages,
}

/// The bytes that a reference stands for, at `span` of `owner`.
struct Reference {
    part: usize,
    owner: LogId,
    span: Range<Offset>,
    gathering: Gathering,
    done: bool,
}

impl Wanted {
    /// The positions of the log that the damaged page at byte `at` has, of those that are wanted.
    fn damaged(&self, at: u64) -> Range<Offset> {
        let position = |at: u64| self.start.plus(at.clamp(self.range.start, self.range.end) - self.range.start);
        position(at)..position(at.saturating_add(PAGE_BYTES))
    }

    fn stop<A: Attachment>(&self, miss: Miss, logs: &Logs<A>) -> Stop {
        let span = match &miss {
            Miss::Failed(RunError::Corrupt { at, .. }) => self.damaged(*at),
            _ => self.start..self.start.plus(self.range.end - self.range.start),
        };
        miss.stop(logs, self.log, span)
    }
}

impl Gathering {
    fn new(walk: Walk, target: Offset, depth: usize) -> Self {
        let end = walk.at();
        let (parts, coming, references) = (Vec::new(), Vec::new(), Vec::new());
        Self { walk, target, end, walked: false, parts, wanted: None, coming, references, failure: None, depth }
    }

    /// Goes on until all parts are read.
    fn advance<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<(), Stop> {
        self.receive(logs, asks)?;
        for n in 0..self.references.len() {
            self.resolve(n, logs, asks)?;
        }
        if !self.walked {
            let walked = self.walk_on(logs, asks);
            self.note_failure(self.parts.len(), walked)?;
        }
        self.references.retain(|reference| self.failure.as_ref().is_none_or(|(first, _)| reference.part <= *first));
        if !self.walked || !self.coming.is_empty() || self.references.iter().any(|reference| !reference.done) {
            return Err(Stop::Pending);
        }
        self.failure.take().map_or(Ok(()), |(_, error)| Err(error.into()))
    }

    fn walk_on<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<(), Stop> {
        loop {
            match self.walk.next(logs, asks) {
                Ok(Some(Visit { owner, found, span })) => {
                    let inside = found.lengths.boundary_at_or_after(self.target.since(found.start));
                    let stop = inside.map_or(span.end, |at| found.start.plus(at).min(span.end));
                    self.take(owner, &found, span.start..stop, logs, asks)?;
                    self.end = stop;
                    self.walked |= stop >= self.target;
                }
                Ok(None) => self.walked = true,
                Err(Stop::Pending) => {
                    // Data whose place is known is requested now, together with the index blocks that the walk waits
                    // for.
                    self.fetch(logs, asks)?;
                    return Err(Stop::Pending);
                }
                Err(stop) => return Err(stop),
            }
            if self.walked {
                return self.fetch(logs, asks);
            }
        }
    }

    fn take<A: Attachment>(
        &mut self,
        owner: LogId,
        found: &Found,
        span: Range<Offset>,
        logs: &Logs<A>,
        asks: &mut Asks,
    ) -> Result<(), Stop> {
        let relative = span.start.since(found.start)..span.end.since(found.start);
        if relative.is_empty() {
            return Ok(());
        }
        match &found.place {
            FoundPlace::Data { map, at } => {
                let range = at + relative.start..at + relative.end;
                if let Some(wanted) = &mut self.wanted
                    && (wanted.map.object(), wanted.log, wanted.range.end) == (map.object(), owner, range.start)
                    && range.end - wanted.range.start <= FETCH_BYTES_MAX
                {
                    wanted.range.end = range.end;
                    return Ok(());
                }
                self.fetch(logs, asks)?;
                self.wanted = Some(Wanted { map: Arc::clone(map), range, log: owner, start: span.start });
            }
            FoundPlace::Frame(bytes) => {
                self.fetch(logs, asks)?;
                self.parts.push(bytes.slice(relative.start as usize..relative.end as usize));
            }
            FoundPlace::Reference { source, from } => {
                self.fetch(logs, asks)?;
                let range = from.plus(relative.start)..from.plus(relative.end);
                self.refer(*source, range, owner, span, logs, asks)?;
            }
        }
        Ok(())
    }

    /// Fetches the wanted range of an object.
    fn fetch<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<(), Stop> {
        let Some(wanted) = self.wanted.take() else { return Ok(()) };
        let pages = Pages::around(&wanted.map, wanted.range.clone());
        let pages = pages.map_err(|error| wanted.stop(Miss::Failed(error), logs))?;
        let part = match asks.data(logs, &pages).map_err(|miss| wanted.stop(miss, logs))? {
            Ok(answer) => checked(&wanted, &pages, answer, logs)?,
            Err(asked) => {
                self.coming.push(Coming { part: self.parts.len(), asked, wanted, pages });
                Bytes::new()
            }
        };
        self.parts.push(part);
        Ok(())
    }

    /// Puts parts that have come into their places.
    fn receive<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<(), Stop> {
        let mut at = 0;
        while let Some(coming) = self.coming.get(at) {
            let Ok(answer) = asks.answer(coming.asked) else {
                at += 1;
                continue;
            };
            let Coming { part, wanted, pages, .. } = self.coming.remove(at);
            match checked(&wanted, &pages, answer, logs) {
                Ok(bytes) => self.parts[part] = bytes,
                Err(stop) => {
                    self.note_failure(part, Err(stop))?;
                    at = 0;
                }
            }
        }
        Ok(())
    }

    /// Notes a failure at `part`. Errors are returned in the order of the content: this one when all parts before it
    /// are read.
    fn note_failure(&mut self, part: usize, done: Result<(), Stop>) -> Result<(), Stop> {
        match done {
            Ok(()) | Err(Stop::Pending) => Ok(()),
            Err(Stop::Failed(error)) => {
                if self.failure.as_ref().is_none_or(|(first, _)| part < *first) {
                    self.coming.retain(|coming| coming.part < part);
                    self.failure = Some((part, error));
                }
                self.walked = true;
                Ok(())
            }
            Err(stop) => Err(stop),
        }
    }

    /// Begins to gather the content that a reference names.
    fn refer<A: Attachment>(
        &mut self,
        source: LogId,
        range: Range<Offset>,
        owner: LogId,
        span: Range<Offset>,
        logs: &Logs<A>,
        asks: &mut Asks,
    ) -> Result<(), Stop> {
        if self.depth == REFERENCE_DEPTH_MAX {
            let what = format!("references lead over more than {REFERENCE_DEPTH_MAX} logs");
            return Err(ReadError::Corrupt { log: owner, offset: span.start, end: span.end, what }.into());
        }
        let end = range.end;
        let walk = Walk::of_reference(logs, source, range).map_err(|stop| in_place_of(owner, &span, stop))?;
        let gathering = Gathering::new(walk, end, self.depth + 1);
        self.references.push(Reference { part: self.parts.len(), owner, span, gathering, done: false });
        self.parts.push(Bytes::new());
        self.resolve(self.references.len() - 1, logs, asks)
    }

    fn resolve<A: Attachment>(&mut self, n: usize, logs: &Logs<A>, asks: &mut Asks) -> Result<(), Stop> {
        let Reference { part, owner, span, gathering, done } = &mut self.references[n];
        if *done {
            return Ok(());
        }
        let gathered = gathering.advance(logs, asks).and_then(|()| gathering.must_be_whole());
        *done = !matches!(gathered, Err(Stop::Pending));
        let (part, gathered) = (*part, gathered.map_err(|stop| in_place_of(*owner, span, stop)));
        self.note_failure(part, gathered)
    }

    /// A reference stands for all that it names.
    fn must_be_whole(&self) -> Result<(), Stop> {
        if self.end == self.target {
            return Ok(());
        }
        let what = "what it refers to is gone".to_owned();
        Err(Stop::Absent(ReadError::Corrupt { log: LogId::ZERO, offset: self.end, end: self.target, what }))
    }

    fn take_parts(&mut self) -> Vec<Bytes> {
        let parts = std::mem::take(&mut self.parts);
        if self.references.is_empty() {
            return parts;
        }
        let mut whole = Vec::with_capacity(parts.len());
        let mut references = self.references.iter_mut().peekable();
        for (n, part) in parts.into_iter().enumerate() {
            match references.next_if(|reference| reference.part == n) {
                Some(reference) => whole.append(&mut reference.gathering.take_parts()),
                None => whole.push(part),
            }
        }
        whole
    }
}

/// Positions of the source mean nothing to the readers of the log that refers to it.
fn in_place_of(owner: LogId, span: &Range<Offset>, stop: Stop) -> Stop {
    let place = |error| match error {
        ReadError::Corrupt { what, .. } => ReadError::Corrupt { log: owner, offset: span.start, end: span.end, what },
        error => error,
    };
    match stop {
        Stop::Failed(error) => Stop::Failed(place(error)),
        Stop::Absent(error) => Stop::Absent(place(error)),
        stop => stop,
    }
}

fn checked<A: Attachment>(wanted: &Wanted, pages: &Pages, answer: Answer, logs: &Logs<A>) -> Result<Bytes, Stop> {
    let Answer::Object(read) = answer else {
        let cause = "the answer to another question came".to_owned();
        return Err(ReadError::Io { log: wanted.log, offset: wanted.start, cause }.into());
    };
    let data = pages.checked(read).map_err(|error| wanted.stop(Miss::Failed(error), logs))?;
    Ok(logs.chunk_cache.held_bytes.count(data))
}
