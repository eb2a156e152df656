//! One shape of the graph, and its view of the sets that it asks for, while rows are pending and otherwise.

use super::inner::Inner;
use super::pending::{Overlay, Pending};
use crate::shape::Shape;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_filter::{Condition, Filter, Key, Membership, TooCostly};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_core::subquery::place::After;
use thalweg_shapes_core::subquery::seen::Seen;
use thalweg_shapes_core::subquery::sets::Sets;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;

/// A shape with a condition on other tables' rows, or an inner shape.
pub(crate) struct Node {
    pub(super) shape: Arc<Shape>,
    pub(super) route_id: RouteId,
    pub(super) table: Arc<Table>,
    pub(crate) projection: Projection,
    pub(super) filter: Filter,
    /// For each position of the condition the number of the inner shape whose values it asks for.
    pub(super) sets: Vec<Option<u64>>,
    /// How many levels of inner shapes are below.
    pub(super) depth: usize,
    /// The snapshot of its first rows; `None` once no transaction in it can come again.
    pub(super) contained: Option<PgSnapshot>,
    /// A transaction came that these rows do not have, and others may follow that they have.
    pub(super) overtaken: bool,
    pub(super) pendings: VecDeque<Pending>,
    pub(super) after: After,
    /// Of an inner shape.
    pub(super) inner: Option<Inner>,
}

impl Node {
    pub(super) fn condition(&self) -> Option<&Arc<Condition>> {
        match &self.filter {
            Filter::Nested(condition) => Some(condition),
            Filter::All | Filter::Row(_) => None,
        }
    }

    /// Whether it has to see every change of its table: it does not know yet which rows it has.
    pub(super) fn is_watching(&self) -> bool {
        self.is_loading() || self.inner.is_some() && !self.pendings.is_empty()
    }

    /// Whether its first rows are still being read.
    pub(crate) fn is_loading(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.loading.is_some())
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
    fn is_in(&self, sets: &Sets, position: usize, key: &Key) -> bool {
        let early = self.pendings.iter().filter(|pending| !pending.reached);
        early.filter_map(|pending| pending.before.get(position, key)).next().unwrap_or_else(|| {
            let set = self.sets.get(position).copied().flatten().and_then(|set| sets.get(set));
            set.is_some_and(|set| set.has(key))
        })
    }

    fn is_true(&self, sets: &Sets, position: usize, membership: &Membership, key: &Key, overlays: &[&Overlay]) -> bool {
        let overlaid = overlays.iter().find_map(|overlay| overlay.get(position, key));
        let is_in = || overlaid.unwrap_or_else(|| self.is_in(sets, position, key));
        if membership.negated {
            let set = self.sets.get(position).copied().flatten().and_then(|set| sets.get(set));
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
    pub(super) fn see(&self, condition: &Condition, sets: &Sets, row: &[Option<&[u8]>]) -> Result<Seen, TooCostly> {
        Seen::new(condition, row, &|at, membership, key| self.is_true(sets, at, membership, key, &[]))
    }

    /// A row as it was seen at the boundary of the first pending: right before, and right after.
    pub(super) fn see_at_boundary(
        &self,
        condition: &Condition,
        sets: &Sets,
        pending: &Pending,
        row: &[Option<&[u8]>],
    ) -> Result<(Seen, Seen), TooCostly> {
        let see = |overlays: &[&Overlay]| {
            Seen::new(condition, row, &|at, membership, key| self.is_true(sets, at, membership, key, overlays))
        };
        Ok((see(&[&pending.before, &pending.boundary])?, see(&[&pending.boundary])?))
    }

    /// Whether the inner shape selects a row.
    pub(super) fn selects(&self, sets: &Sets, row: &[Option<&[u8]>]) -> Result<bool, TooCostly> {
        match &self.filter {
            Filter::All => Ok(true),
            Filter::Row(predicate) => predicate.holds(row),
            Filter::Nested(condition) => Ok(self.see(condition, sets, row)?.holds),
        }
    }
}
