//! One shape of the graph: how it sees the sets that it asks for, while rows are on their way and otherwise.

use super::seen::Seen;
use super::set::Set;
use crate::format::projection::Projection;
use crate::shape::Shape;
use crate::state::snapshot::PgSnapshot;
use crate::table::Table;
use hashbrown::HashMap;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_filter::{Condition, Filter, Key, Membership, Query};

/// A row's values by the table's columns; columns that nobody needs may be missing.
pub(crate) type Cells = Box<[Option<Box<[u8]>>]>;

/// The same, borrowed.
pub(crate) type Row<'a> = Vec<Option<&'a [u8]>>;

pub(crate) fn row(cells: &Cells) -> Row<'_> {
    cells.iter().map(|cell| cell.as_deref()).collect()
}

/// A change of a row of a table that nodes look at.
#[derive(Debug, Clone)]
pub(crate) struct RowChange {
    pub(crate) table: u32,
    pub(crate) op: u32,
    pub(crate) old: Option<Cells>,
    pub(crate) new: Option<Cells>,
}

impl RowChange {
    /// It stands for changes that were too many to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.old.is_none() && self.new.is_none()
    }
}

/// A shape with a condition on other tables' rows, or an inner shape.
pub(super) struct Node {
    pub(super) shape: Arc<Shape>,
    pub(super) slot: u32,
    pub(super) table: Arc<Table>,
    pub(super) projection: Projection,
    pub(super) filter: Filter,
    /// For each position of the condition the number of the inner shape whose values it asks for.
    pub(super) sets: Vec<Option<u64>>,
    /// How many levels of inner shapes are below.
    pub(super) depth: usize,
    /// What the rows have that it began with; `None` when no such transaction can come any more.
    pub(super) contained: Option<PgSnapshot>,
    pub(super) pendings: VecDeque<Pending>,
    pub(super) after: After,
    /// Of an inner shape.
    pub(super) inner: Option<Inner>,
}

/// The rows of an inner shape.
pub(super) struct Inner {
    pub(super) identity: String,
    pub(super) query: Arc<Query>,
    /// By their keys. A table without a primary key may have the same row several times.
    pub(super) rows: HashMap<Box<[u8]>, (Cells, u32)>,
    /// Places of the columns of the table's key.
    pub(super) key: Vec<usize>,
    /// Changes that came while the first rows were being read.
    pub(super) loading: Option<Vec<Arc<RowChange>>>,
    pub(super) users: Vec<u64>,
    /// It had no users some time ago.
    pub(super) was_unused: bool,
}

/// Values whose rows come, and are not here yet.
pub(super) struct Pending {
    pub(super) number: u64,
    /// The transaction that brought them.
    pub(super) xid: u32,
    pub(super) lsn: u64,
    /// With their positions.
    pub(super) keys: Vec<(usize, Key)>,
    /// For values that count as before until the boundary: whether they are in the set.
    pub(super) before: Overlay,
    /// For values that changed again between the boundary and now: what they were at the boundary.
    pub(super) boundary: Overlay,
    pub(super) snapshot: Option<PgSnapshot>,
    pub(super) reached: bool,
    pub(super) rows: Option<Vec<Cells>>,
    /// The last transaction before the boundary, and where behind it the next body goes.
    pub(super) place: (u64, Cell<u32>),
    /// Keys of an inner shape's rows that were changed since the boundary.
    pub(super) touched: hashbrown::HashSet<Box<[u8]>>,
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
        let first = super::graph::MOVED_OPS.saturating_add(self.given);
        self.given = self.given.saturating_add(count);
        first
    }
}

/// Whether values are in a position's set, where that is not what the set says.
#[derive(Default, Debug)]
pub(super) struct Overlay(HashMap<(usize, Box<[u8]>), bool>);

impl Overlay {
    pub(super) fn get(&self, position: usize, key: &Key) -> Option<bool> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&(position, key.bytes().into())).copied()
    }

    pub(super) fn put(&mut self, position: usize, key: &Key, is_in: bool) {
        self.0.insert((position, key.bytes().into()), is_in);
    }

    /// Keeps what was put first.
    pub(super) fn put_first(&mut self, position: usize, key: &Key, is_in: bool) {
        self.0.entry((position, key.bytes().into())).or_insert(is_in);
    }

    pub(super) fn take(&mut self, position: usize, key: &Key) -> bool {
        self.0.remove(&(position, key.bytes().into())).is_some()
    }
}

impl Inner {
    pub(super) fn key_of(&self, row: &[Option<&[u8]>]) -> Box<[u8]> {
        let mut out = Vec::with_capacity(16);
        for at in &self.key {
            match row.get(*at).copied().flatten() {
                None => out.push(0),
                Some(text) => {
                    out.push(1);
                    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    out.extend_from_slice(text);
                }
            }
        }
        out.into()
    }
}

impl Node {
    pub(super) fn condition(&self) -> Option<&Arc<Condition>> {
        match &self.filter {
            Filter::Nested(condition) => Some(condition),
            Filter::All | Filter::Row(_) => None,
        }
    }

    /// Places of the columns that its rows need, ascending.
    pub(super) fn columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = self.projection.selected().collect();
        if let Some(condition) = self.condition() {
            columns.extend(condition.columns());
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Whether a column that a membership compares may be null.
    pub(super) fn has_nullable(&self, membership: &Membership) -> bool {
        let mut nullable = false;
        membership
            .for_each_column(&mut |at| nullable |= self.table.columns.get(at).is_none_or(|column| !column.not_null));
        nullable
    }

    /// Whether a value counts as a member now.
    fn is_in(&self, sets: &HashMap<u64, Set>, position: usize, key: &Key) -> bool {
        let early = self.pendings.iter().filter(|pending| !pending.reached);
        early.filter_map(|pending| pending.before.get(position, key)).next().unwrap_or_else(|| {
            let set = self.sets.get(position).copied().flatten().and_then(|set| sets.get(&set));
            set.is_some_and(|set| set.has(key))
        })
    }

    fn is_true(
        &self,
        sets: &HashMap<u64, Set>,
        position: usize,
        membership: &Membership,
        key: &Key,
        overlays: &[&Overlay],
    ) -> bool {
        let overlaid = overlays.iter().find_map(|overlay| overlay.get(position, key));
        let is_in = || overlaid.unwrap_or_else(|| self.is_in(sets, position, key));
        if membership.negated {
            let set = self.sets.get(position).copied().flatten().and_then(|set| sets.get(&set));
            match set {
                Some(set) if membership.width() > 1 && (key.has_null() || set.has_nulls()) => !set.may_have(key),
                Some(set) if set.has_nulls() => false,
                _ => !is_in(),
            }
        } else {
            !key.has_null() && is_in()
        }
    }

    /// A row as the condition sees it now.
    pub(super) fn see(&self, condition: &Condition, sets: &HashMap<u64, Set>, row: &[Option<&[u8]>]) -> Seen {
        Seen::new(condition, row, &|at, membership, key| self.is_true(sets, at, membership, key, &[]))
    }

    /// A row as it was seen at the boundary of the first pending: right before, and right after.
    pub(super) fn see_at_boundary(
        &self,
        condition: &Condition,
        sets: &HashMap<u64, Set>,
        pending: &Pending,
        row: &[Option<&[u8]>],
    ) -> (Seen, Seen) {
        let see = |overlays: &[&Overlay]| {
            Seen::new(condition, row, &|at, membership, key| self.is_true(sets, at, membership, key, overlays))
        };
        (see(&[&pending.before, &pending.boundary]), see(&[&pending.boundary]))
    }

    /// Whether the inner shape selects a row.
    pub(super) fn selects(&self, sets: &HashMap<u64, Set>, row: &[Option<&[u8]>]) -> bool {
        match &self.filter {
            Filter::All => true,
            Filter::Row(predicate) => predicate.holds(row),
            Filter::Nested(condition) => self.see(condition, sets, row).holds,
        }
    }
}
