//! A place in the content of a log: a walk visits the spans of a range in order, wherever they lie.

use super::asks::{AHEAD_MAX, Asks};
use super::frames::Frames;
use super::snapshot::Snapshot;
use super::stop::{Miss, Stop};
use crate::attachment::Attachment;
use crate::error::ReadError;
use crate::lengths::Lengths;
use crate::logs::Logs;
use crate::root::{Root, Run};
use crate::run::{Fetch, Hit, Map, Place};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, Offset};

/// Consecutive messages of one log.
pub(super) struct Found {
    pub(super) start: Offset,
    pub(super) lengths: Lengths,
    pub(super) place: FoundPlace,
}

pub(super) enum FoundPlace {
    Frame(Bytes),
    Data { map: Arc<Map>, at: u64 },
    Reference { source: LogId, from: Offset },
}

impl Found {
    pub(super) fn end(&self) -> Offset {
        self.start.plus(self.lengths.bytes())
    }
}

/// One visit of a walk: the log that owns the content, and the asked-for span, which lies inside the content that was
/// found.
pub(super) struct Visit {
    pub(super) owner: LogId,
    pub(super) found: Found,
    pub(super) span: Range<Offset>,
}

/// Goes over a range of a log in order. It may end before the range does: it may omit content beyond its target.
pub(super) struct Walk {
    log: LogId,
    own: Snapshot,
    at: Offset,
    upto: Offset,
    target: Offset,
    /// Whether the start is known to be a message boundary, or need not be one.
    checked: bool,
    stay: Option<Stay>,
}

/// A walk among the content of one owner: an ancestor below its bound, else the log itself.
struct Stay {
    owner: LogId,
    end: Offset,
    /// The snapshot of the ancestor that the walk is in.
    inherited: Option<Snapshot>,
    /// The root that was in force when the walk came here.
    root: Option<Arc<Root>>,
    /// Earlier runs have nothing from here on: runs are ordered by time, and so are a log's positions.
    run: usize,
    frames: Frames,
}

impl Walk {
    /// A walk over `from..upto`, which covers at least the content before `target`. `from` must be a message boundary,
    /// unless it may lie `anywhere`.
    pub(super) fn open<A: Attachment>(
        logs: &Logs<A>,
        log: LogId,
        range: Range<Offset>,
        target: Offset,
        anywhere: bool,
    ) -> Result<Self, Stop> {
        let Range { start: from, end: upto } = range;
        let own = Snapshot::take(logs, log, from, target)?.ok_or(ReadError::Missing(log))?;
        if from > upto || upto > own.tail {
            return Err(ReadError::BeyondTail { offset: from.max(upto), tail: own.tail }.into());
        }
        let walk = Self { log, own, at: from, upto, target, checked: anywhere, stay: None };
        walk.must_reach_back_to(from)?;
        Ok(walk)
    }

    /// The log was not trimmed beyond this position when the walk was opened.
    pub(super) fn must_reach_back_to(&self, from: Offset) -> Result<(), Stop> {
        match from < self.own.start {
            true => Err(ReadError::Trimmed { offset: from, start: self.own.start }.into()),
            false => Ok(()),
        }
    }

    /// A walk over the content that another log refers to. It may start and end inside a message, and before the log's
    /// start.
    pub(super) fn of_reference<A: Attachment>(logs: &Logs<A>, log: LogId, range: Range<Offset>) -> Result<Self, Stop> {
        let Range { start: from, end: upto } = range;
        let own = Snapshot::take(logs, log, from, upto)?.ok_or(Stop::Absent(ReadError::Missing(log)))?;
        Ok(Self { log, own, at: from, upto, target: upto, checked: true, stay: None })
    }

    pub(super) fn at(&self) -> Offset {
        self.at
    }

    /// The next part; `None` at the end.
    pub(super) fn next<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<Option<Visit>, Stop> {
        if self.at >= self.upto {
            return Ok(None);
        }
        let mut stay = match self.stay.take().filter(|stay| self.at < stay.end) {
            Some(stay) => stay,
            None => self.enter(logs)?,
        };
        let found = self.find(&mut stay, logs, asks);
        let (owner, end) = (stay.owner, stay.end);
        self.stay = Some(stay);
        let Some(found) = found? else { return Ok(None) };
        let span = self.at..found.end().min(end);
        if !std::mem::replace(&mut self.checked, true) {
            must_be_boundary(&found, span.start, end)?;
        }
        self.at = span.end;
        Ok(Some(Visit { owner, found, span }))
    }

    fn enter<A: Attachment>(&self, logs: &Logs<A>) -> Result<Stay, Stop> {
        let ancestor = self.own.lineage.iter().find(|ancestor| self.at < ancestor.upto).copied();
        let end = ancestor.map_or(self.upto, |ancestor| ancestor.upto.min(self.upto));
        let inherited = match ancestor {
            None => None,
            Some(ancestor) => {
                let snapshot = Snapshot::take(logs, ancestor.id, self.at, self.target)?;
                // Deleted after the log itself was, since the log's snapshot was taken: or it should be there.
                Some(snapshot.ok_or_else(|| {
                    let what = format!("its ancestor {} is gone", ancestor.id);
                    Stop::Absent(ReadError::Corrupt { log: self.log, offset: self.at, end, what })
                })?)
            }
        };
        Ok(Stay {
            owner: ancestor.map_or(self.log, |ancestor| ancestor.id),
            end,
            inherited,
            root: None,
            run: 0,
            frames: Frames::default(),
        })
    }

    fn find<A: Attachment>(&self, stay: &mut Stay, logs: &Logs<A>, asks: &mut Asks) -> Result<Option<Found>, Stop> {
        let snapshot = stay.inherited.as_ref().unwrap_or(&self.own);
        if self.at >= snapshot.settled {
            return stay.frames.next(&snapshot.pieces, stay.owner, self.at..stay.end, logs, asks);
        }
        let root = Arc::clone(stay.root.get_or_insert_with(|| logs.sealed.root()));
        let span = self.at..stay.end.min(snapshot.settled);
        let found = settled(&root, stay, span.clone(), logs, asks);
        if matches!(found, Err(Stop::Pending)) {
            let ahead = span.start..span.end.min(self.target.max(span.start.plus(1)));
            look_ahead(&root, stay, &ahead, logs, asks);
        }
        found.map(Some)
    }
}

/// The extent in the runs that covers the start of `span`.
fn settled<A: Attachment>(
    root: &Arc<Root>,
    stay: &mut Stay,
    span: Range<Offset>,
    logs: &Logs<A>,
    asks: &mut Asks,
) -> Result<Found, Stop> {
    while let Some(run) = root.runs.get(stay.run) {
        if let Some(Hit { entry, map }) = in_run(run, stay.owner, &span, logs, asks)? {
            let place = match entry.place {
                Place::Data { at, .. } => FoundPlace::Data { map, at },
                Place::Reference { source, from } => FoundPlace::Reference { source, from },
            };
            return Ok(Found { start: entry.start, lengths: entry.lengths, place });
        }
        stay.run += 1;
    }
    if Arc::ptr_eq(root, &logs.sealed.root()) {
        let what = "no run holds it".to_owned();
        return Err(Stop::Absent(ReadError::Corrupt { log: stay.owner, offset: span.start, end: span.end, what }));
    }
    Err(Stop::Moved)
}

fn in_run<A: Attachment>(
    run: &Run,
    log: LogId,
    span: &Range<Offset>,
    logs: &Logs<A>,
    asks: &mut Asks,
) -> Result<Option<Hit>, Stop> {
    let at = span.start;
    let after = run.objects.partition_point(|object| object.meta.first <= (log, at));
    let Some(meta) = after.checked_sub(1).and_then(|i| run.objects.get(i)).map(|object| &object.meta) else {
        return Ok(None);
    };
    let found = loop {
        let miss = match logs.sealed.reader.find(&asks.known, meta, log, at) {
            Ok(found) => break found,
            Err(Fetch::Failed(error)) => Miss::Failed(error),
            Err(Fetch::Lacks(lack)) => match asks.index(logs, lack) {
                Ok(()) => continue,
                Err(miss) => miss,
            },
        };
        // The damaged part of an index may name all extents that the object has of this log.
        let end = if meta.last == log { span.end.min(meta.end) } else { span.end };
        return Err(miss.stop(logs, log, at..end));
    };
    Ok(found.filter(|Hit { entry, .. }| entry.log == log && entry.start <= at && at < entry.end()))
}

/// Asks for the index parts that later lookups of `span` may lack. Without their indexes it is unknown which runs hold
/// the range, and asking for one after the other would take a round trip for each. It considers the parts that the walk
/// comes to next, those at hand included, up to the number that may be asked for: so the read still has them when the
/// walk gets there, and the cost does not grow with the range.
fn look_ahead<A: Attachment>(root: &Root, stay: &Stay, span: &Range<Offset>, logs: &Logs<A>, asks: &mut Asks) {
    let (log, mut parts) = (stay.owner, AHEAD_MAX);
    for run in root.runs.iter().skip(stay.run) {
        let first = run.objects.partition_point(|object| (object.meta.last, object.meta.end) <= (log, span.start));
        for object in run.objects[first..].iter().take_while(|object| object.meta.first < (log, span.end)) {
            if parts == 0 || asks.is_far_ahead() {
                return;
            }
            let (lacks, looked_at) = logs.sealed.reader.lacks(&asks.known, &object.meta, log, span, parts);
            lacks.into_iter().for_each(|lack| asks.index_ahead(logs, lack));
            parts -= looked_at;
        }
    }
}

fn must_be_boundary(found: &Found, at: Offset, end: Offset) -> Result<(), Stop> {
    let next = found.lengths.boundary_at_or_after(at.since(found.start)).map_or(end, |next| found.start.plus(next));
    if next == at {
        return Ok(());
    }
    Err(ReadError::InsideMessage { offset: at, next: next.min(end) }.into())
}
