//! Places: the ops that the graph of subqueries gives its changes, within a transaction or behind it.

/// The first op of rows that the transaction wrote, of outer shapes; the ops below are of changes that follow from
/// changed sets.
pub const OUTER_OPS: u32 = 1 << 12;
/// The first op of rows that the transaction wrote, of inner shapes.
pub const INNER_OPS: u32 = 1 << 28;
/// The first op of rows that come after the transaction.
const MOVED_OPS: u32 = 1 << 30;
/// The ops that are reserved for fetched rows.
pub const ROWS_MAX: u32 = 1 << 20;

/// The position of a change of the graph: within a transaction, or after it.
#[derive(Clone, Copy)]
pub struct At {
    pub xid: u32,
    pub lsn: u64,
    /// Transaction of the change, which may be an earlier one.
    pub since: u64,
}

/// The moment at which sets change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// While a transaction is applied.
    Within,
    /// After a transaction, because fetched rows arrived.
    After,
}

/// The ops behind a transaction that a shape has used.
#[derive(Default, Debug)]
pub struct After {
    lsn: u64,
    given: u32,
}

impl After {
    pub fn at(&mut self, lsn: u64) {
        if self.lsn != lsn {
            *self = Self { lsn, given: 0 };
        }
    }

    /// Takes this many places, and returns the first.
    pub fn take(&mut self, count: u32) -> u32 {
        let first = MOVED_OPS.saturating_add(self.given);
        self.given = self.given.saturating_add(count);
        first
    }
}

/// Gives out ops one at a time.
pub struct Places<'a> {
    when: When,
    within: u32,
    after: &'a mut After,
}

impl<'a> Places<'a> {
    pub fn new(when: When, lsn: u64, after: &'a mut After) -> Self {
        after.at(lsn);
        Self { when, within: 0, after }
    }

    /// Takes a place.
    pub fn take(&mut self) -> u32 {
        match self.when {
            When::Within => {
                self.within += 1;
                self.within - 1
            }
            When::After => self.after.take(1),
        }
    }
}
