//! Bases: the rows of a shape as of a position of its log.
//!
//! Base 0 is the snapshot. Each later base merges the previous one and the changes after it. The newest serves new
//! clients; the others, and the log from the end of the oldest, stay for clients that began with them.

use std::collections::VecDeque;
use thalweg_base::LogId;
use thalweg_shapes_model::offset::ShapeOffset;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// Rows of a shape as of a position of its log.
#[derive(Clone, Debug)]
pub struct Base {
    pub number: u32,
    /// The log of its rows.
    pub log: LogId,
    /// The rows contain every change up to here.
    pub end: ShapeOffset,
    /// Ends of chunks in the log.
    pub chunks: Vec<u64>,
    /// The snapshot of the rows, for clients.
    pub snapshot: Box<PgSnapshot>,
    /// The time at which it was published, on the engine's clock; 0: before the last start.
    pub shown_ms: u64,
}

/// The bases after the first one, of a shape that has any.
#[derive(Clone, Debug)]
pub struct Bases {
    /// Whether the rows of base 0 were deleted.
    first_is_gone: bool,
    /// Oldest first, never empty.
    kept: VecDeque<Base>,
    /// Logs of retired bases that are not deleted yet.
    leaving: Vec<LogId>,
    /// Base 0 is retired and its rows are not deleted yet.
    first_is_leaving: bool,
    /// Bytes of the log's entries that the newest base contains.
    pub merged: u64,
}

/// The logs to delete before the shape's log can be cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Whether the rows of base 0 are among them.
    pub first: bool,
    pub logs: Vec<LogId>,
}

impl Bases {
    pub fn new(base: Base, first_is_gone: bool) -> Self {
        Self { first_is_gone, kept: [base].into(), leaving: Vec::new(), first_is_leaving: false, merged: 0 }
    }

    /// Adds a newer base.
    pub fn push(&mut self, base: Base) {
        let newest = self.newest();
        assert!(
            base.number > newest.number && base.end >= newest.end,
            "invariant 7: base {} to {} behind base {} to {}",
            base.number,
            base.end,
            newest.number,
            newest.end
        );
        self.kept.push_back(base);
    }

    pub fn newest(&self) -> &Base {
        &self.kept[self.kept.len() - 1]
    }

    /// A published base other than base 0.
    pub fn get(&self, number: u32) -> Option<&Base> {
        let at = self.kept.binary_search_by_key(&number, |base| base.number).ok()?;
        self.kept.get(at)
    }

    pub fn first_is_gone(&self) -> bool {
        self.first_is_gone
    }

    /// The first offset that can be answered.
    pub fn start(&self) -> ShapeOffset {
        if self.first_is_gone { self.kept[0].end } else { ShapeOffset::SNAPSHOT_END }
    }

    /// The number of bases, base 0 included.
    pub fn count(&self) -> usize {
        self.kept.len() + usize::from(!self.first_is_gone)
    }

    /// The logs of all bases after base 0.
    pub fn logs(&self) -> impl Iterator<Item = LogId> + '_ {
        self.kept.iter().map(|base| base.log).chain(self.leaving.iter().copied())
    }

    /// Whether [`Bases::leave`] would find anything.
    pub fn may_leave(&self, before_ms: u64) -> bool {
        self.first_is_leaving
            || !self.leaving.is_empty()
            || self.kept.get(usize::from(self.first_is_gone)).is_some_and(|next| next.shown_ms <= before_ms)
    }

    /// Retires the bases that had a newer one at `before_ms`. Returns the logs to delete, with those of earlier calls.
    pub fn leave(&mut self, before_ms: u64) -> Leaving {
        if !self.first_is_gone && self.kept[0].shown_ms <= before_ms {
            (self.first_is_gone, self.first_is_leaving) = (true, true);
        }
        while self.first_is_gone && self.kept.get(1).is_some_and(|next| next.shown_ms <= before_ms) {
            self.leaving.extend(self.kept.pop_front().map(|base| base.log));
        }
        Leaving { first: self.first_is_leaving, logs: self.leaving.clone() }
    }

    /// The logs of `gone` were deleted.
    pub fn left(&mut self, gone: &Leaving) {
        self.first_is_leaving &= !gone.first;
        self.leaving.retain(|log| !gone.logs.contains(log));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(number: u32, lsn: u64, shown_ms: u64) -> Base {
        let snapshot = Box::new("1:1:".parse().unwrap());
        Base {
            number,
            log: LogId(u64::from(number)),
            end: ShapeOffset::new(lsn, 0),
            chunks: vec![0],
            snapshot,
            shown_ms,
        }
    }

    fn three() -> Bases {
        let mut bases = Bases::new(base(1, 10, 100), false);
        bases.push(base(2, 20, 200));
        bases.push(base(3, 30, 300));
        bases
    }

    #[test]
    fn a_base_is_shown_for_a_while_after_there_is_a_newer_one() {
        let mut bases = three();
        assert_eq!((bases.start(), bases.count()), (ShapeOffset::SNAPSHOT_END, 4));
        assert!(!bases.may_leave(99));
        assert_eq!(bases.leave(99), Leaving::default());
        assert!(bases.may_leave(100));
        assert_eq!(bases.leave(100), Leaving { first: true, logs: vec![] });
        assert_eq!((bases.start(), bases.count()), (ShapeOffset::new(10, 0), 3));
        assert!(bases.get(1).is_some());
        assert_eq!(bases.leave(250), Leaving { first: true, logs: vec![LogId(1)] });
        assert!(bases.get(1).is_none());
        assert_eq!(bases.start(), ShapeOffset::new(20, 0));
    }

    #[test]
    fn the_newest_base_stays() {
        let mut bases = three();
        bases.leave(u64::MAX);
        assert_eq!((bases.count(), bases.newest().number, bases.start()), (1, 3, ShapeOffset::new(30, 0)));
        assert_eq!(bases.logs().count(), 3, "logs that are not deleted yet belong to the shape");
    }

    #[test]
    fn what_could_not_be_deleted_is_tried_again() {
        let mut bases = three();
        let leaving = bases.leave(200);
        assert_eq!(leaving, Leaving { first: true, logs: vec![LogId(1)] });
        assert!(bases.may_leave(0));
        bases.left(&leaving);
        assert!(!bases.may_leave(200));
        assert_eq!(bases.leave(200), Leaving::default());
    }
}
