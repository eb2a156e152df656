//! Searches for positions in a log. They read no content: the lengths of messages are enough.

use super::Seek;
use super::asks::Asks;
use super::attempt::Goal;
use super::stop::Stop;
use super::walk::{Visit, Walk};
use crate::attachment::Attachment;
use crate::logs::{Logs, ReadFrom};
use thalweg_base::{LogId, Offset};

/// The position at a distance from a message boundary; `None` if that is too far.
pub(super) struct Distance {
    log: LogId,
    from: Offset,
    upto: Offset,
    by: Seek,
    at: Offset,
    left: u64,
    walk: Option<Walk>,
}

impl Distance {
    pub(super) fn new(log: LogId, from: Offset, upto: Offset, by: Seek) -> Self {
        let (Seek::Messages(left) | Seek::Bytes(left)) = by;
        Self { log, from, upto, by, at: from, left, walk: None }
    }

    /// Passes over the visited span; `true` if the search ends in it.
    fn pass(&mut self, Visit { found, span, .. }: &Visit) -> bool {
        let relative = span.start.since(found.start);
        let end = found.end().min(span.end);
        match self.by {
            Seek::Bytes(n) => {
                let next = found.lengths.boundary_at_or_after(relative + 1);
                let next = next.map_or(end, |next| found.start.plus(next).min(end));
                if self.at.plus(n) <= next {
                    self.at = self.at.plus(n);
                    self.left = 0;
                }
                true
            }
            Seek::Messages(_) => match found.lengths.nth_after(relative, self.left) {
                Some(place) if found.start.plus(place) <= end => {
                    self.at = found.start.plus(place);
                    self.left = 0;
                    true
                }
                _ => {
                    let before = found.lengths.messages_before(relative).unwrap_or(0);
                    let upto = found.lengths.messages_before(end.since(found.start)).unwrap_or(0);
                    self.left -= (upto - before).min(self.left);
                    // A message that a fork has cut counts as one.
                    self.left -= u64::from(!found.lengths.is_boundary(end.since(found.start))).min(self.left);
                    self.at = end;
                    self.left == 0
                }
            },
        }
    }
}

impl Goal for Distance {
    type Found = Option<Offset>;

    fn advance<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<Option<Offset>, Stop> {
        if matches!(self.by, Seek::Messages(0) | Seek::Bytes(0)) {
            return Ok(Some(self.from));
        }
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => Walk::open(logs, self.log, self.from..self.upto, self.upto, false)?,
        };
        loop {
            match walk.next(logs, asks) {
                Ok(Some(visit)) if !self.pass(&visit) => asks.known.trim(),
                Ok(_) => return Ok((self.left == 0).then_some(self.at)),
                Err(stop) => {
                    self.walk = Some(walk);
                    return Err(stop);
                }
            }
        }
    }

    fn start_over(&mut self) {
        *self = Self::new(self.log, self.from, self.upto, self.by);
    }

    fn place(&self) -> (LogId, Offset) {
        (self.log, self.from)
    }
}

/// The end of the chunk at a position.
pub(super) struct ChunkEnd {
    want: ReadFrom,
    walk: Option<Walk>,
}

impl ChunkEnd {
    pub(super) fn new(want: ReadFrom) -> Self {
        Self { want, walk: None }
    }
}

impl Goal for ChunkEnd {
    type Found = Offset;

    fn advance<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<Offset, Stop> {
        let ReadFrom { log, from, upto } = self.want;
        let target = logs.chunk_target(from);
        if target >= upto {
            return Ok(upto);
        }
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => Walk::open(logs, log, target..upto, target.plus(1), true)?,
        };
        let visit = match walk.next(logs, asks) {
            Ok(visit) => visit,
            Err(stop) => {
                self.walk = Some(walk);
                return Err(stop);
            }
        };
        let after = |Visit { found, span, .. }: Visit| {
            let inside = found.lengths.boundary_at_or_after(target.since(found.start));
            inside.map_or(span.end, |at| found.start.plus(at).min(span.end))
        };
        Ok(visit.map_or(upto, after))
    }

    fn start_over(&mut self) {
        self.walk = None;
    }

    fn place(&self) -> (LogId, Offset) {
        (self.want.log, self.want.from)
    }
}

/// The last message boundary that is not after a position.
pub(super) struct Boundary {
    log: LogId,
    at: Offset,
    upto: Offset,
    walk: Option<Walk>,
}

impl Boundary {
    pub(super) fn new(log: LogId, at: Offset, upto: Offset) -> Self {
        Self { log, at, upto, walk: None }
    }
}

impl Goal for Boundary {
    type Found = Offset;

    fn advance<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Result<Offset, Stop> {
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => Walk::open(logs, self.log, self.at..self.upto, self.at.plus(1), true)?,
        };
        let visit = match walk.next(logs, asks) {
            Ok(visit) => visit,
            Err(stop) => {
                self.walk = Some(walk);
                return Err(stop);
            }
        };
        let before = |Visit { found, .. }: Visit| {
            found.start.plus(found.lengths.boundary_at_or_before(self.at.since(found.start)))
        };
        Ok(visit.map_or(self.at, before))
    }

    fn start_over(&mut self) {
        self.walk = None;
    }

    fn place(&self) -> (LogId, Offset) {
        (self.log, self.at)
    }
}
