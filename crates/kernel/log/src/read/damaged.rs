//! Telling damage in whole messages.

use super::asks::Asks;
use super::stop::Stop;
use super::walk::{Found, Walk};
use crate::attachment::Attachment;
use crate::error::ReadError;
use crate::logs::{Logs, ReadFrom};
use std::ops::Range;
use thalweg_base::{LogId, Offset};

/// Damage that ended a read. Its error covers the whole messages that the damage cuts, so that a read from the error's
/// end succeeds; where their bounds are unknown, it covers the damage alone.
pub(super) struct Damaged {
    want: ReadFrom,
    log: LogId,
    start: Offset,
    end: Offset,
    what: String,
    looks: [Look; 2],
}

/// The search for the bounds of the message around a position.
struct Look {
    at: Offset,
    walk: Option<Walk>,
    done: bool,
}

impl Look {
    fn new(at: Offset) -> Self {
        Self { at, walk: None, done: false }
    }

    /// The message around the position, once; `Err` while that is not known.
    fn found<A: Attachment>(&mut self, want: ReadFrom, logs: &Logs<A>, asks: &mut Asks) -> Result<Option<Found>, Stop> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        let walk = match self.walk.take() {
            Some(walk) => Ok(walk),
            None => Walk::open(logs, want.log, self.at..want.upto, self.at.plus(1), true),
        };
        let Ok(mut walk) = walk else { return Ok(None) };
        match walk.next(logs, asks) {
            Ok(visit) => Ok(visit.map(|visit| visit.found)),
            Err(Stop::Pending) => {
                (self.walk, self.done) = (Some(walk), false);
                Err(Stop::Pending)
            }
            Err(_) => Ok(None),
        }
    }
}

impl Damaged {
    pub(super) fn new(want: ReadFrom, log: LogId, damaged: Range<Offset>, what: String) -> Self {
        let (start, end) = (damaged.start, damaged.end.min(want.upto));
        Self { want, log, start, end, what, looks: [Look::new(start), Look::new(end)] }
    }

    /// The error to tell; or [`Stop::Pending`].
    pub(super) fn widen<A: Attachment>(&mut self, logs: &Logs<A>, asks: &mut Asks) -> Stop {
        let [first, last] = &mut self.looks;
        let (before, after) = (first.found(self.want, logs, asks), last.found(self.want, logs, asks));
        if let Ok(Some(found)) = &before {
            self.start = found.start.plus(found.lengths.boundary_at_or_before(first.at.since(found.start)));
        }
        if let Ok(Some(found)) = &after {
            let next = found.lengths.boundary_at_or_after(last.at.since(found.start));
            self.end = next.map_or(found.end(), |next| found.start.plus(next));
        }
        if before.is_err() || after.is_err() {
            return Stop::Pending;
        }
        let what = std::mem::take(&mut self.what);
        Stop::Failed(ReadError::Corrupt { log: self.log, offset: self.start, end: self.end, what })
    }
}
