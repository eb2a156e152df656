//! Where in a transaction, or behind it, the graph's bodies stand.

/// Places in a transaction: first come those of what changed because sets did, from here on those of rows that were written…
pub(super) const OUTER_OPS: u32 = 1 << 12;
pub(super) const INNER_OPS: u32 = 1 << 28;
/// …and from here on those of rows that come after it.
const MOVED_OPS: u32 = 1 << 30;
/// Places that are kept for rows that are on their way.
pub(super) const ROWS_MAX: u32 = 1 << 20;

/// Where something happens: in a transaction, or after it.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) xid: u32,
    pub(super) lsn: u64,
    /// The transaction that it comes of, which may be an earlier one: from there on it is missing for as long as it has not happened.
    pub(super) since: u64,
}

/// When sets change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// By a transaction that is being applied.
    Within,
    /// After one, because rows came.
    After,
}

/// Which places behind a transaction a shape has given away.
#[derive(Default, Debug)]
pub(super) struct After {
    lsn: u64,
    given: u32,
}

impl After {
    pub(super) fn at(&mut self, lsn: u64) {
        if self.lsn != lsn {
            *self = Self { lsn, given: 0 };
        }
    }

    /// The first of so many places.
    pub(super) fn next(&mut self, count: u32) -> u32 {
        let first = MOVED_OPS.saturating_add(self.given);
        self.given = self.given.saturating_add(count);
        first
    }
}

/// Gives places away, one at a time.
pub(super) struct Places<'a> {
    when: When,
    within: u32,
    after: &'a mut After,
}

impl<'a> Places<'a> {
    pub(super) fn new(when: When, lsn: u64, after: &'a mut After) -> Self {
        after.at(lsn);
        Self { when, within: 0, after }
    }

    pub(super) fn next(&mut self) -> u32 {
        match self.when {
            When::Within => {
                self.within += 1;
                self.within - 1
            }
            When::After => self.after.next(1),
        }
    }
}

/// Bodies of a node's own lie together.
pub(super) fn private(slot: u32) -> u32 {
    u32::MAX - slot
}
