//! The rows of an inner shape, and their changes.

use super::node::Node;
use super::pending::Pending;
use crate::state::transaction::Transaction;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_filter::{Filter, Key, Query, TooCostly};
use thalweg_shapes_core::encode::projection::{Difference, Place};
use thalweg_shapes_core::route::ids::ProjectionId;
use thalweg_shapes_core::subquery::place::{At, INNER_OPS, Places};
use thalweg_shapes_core::subquery::set::{Changes, Set};
use thalweg_shapes_core::subquery::sets::Sets;
use thalweg_shapes_model::row::{Cells, RowChange, borrowed};

/// A row's key by its bytes.
type RowKey = Arc<[u8]>;

/// The rows of an inner shape.
pub(super) struct Inner {
    pub(super) identity: String,
    pub(super) query: Arc<Query>,
    /// By their keys. A table without a primary key may have the same row several times.
    rows: HashMap<RowKey, (Cells, u32)>,
    /// Rows by the values that they ask of the sets below, with the position.
    asking: HashMap<(usize, Box<[u8]>), HashSet<RowKey>>,
    /// Places of the columns of the table's key.
    key: Vec<usize>,
    /// Changes that came while the first rows were being read.
    pub(super) loading: Option<Vec<Arc<RowChange>>>,
    /// The numbers of the nodes that ask for its values.
    pub(super) users: BTreeSet<u64>,
    /// It had no users some time ago.
    pub(super) was_unused: bool,
}

impl Inner {
    /// Without its rows: they are still to come. `key`: places of the columns of the table's key.
    pub(super) fn new(identity: String, query: &Arc<Query>, key: Vec<usize>) -> Self {
        Self {
            identity,
            query: Arc::clone(query),
            rows: HashMap::new(),
            asking: HashMap::new(),
            key,
            loading: Some(Vec::new()),
            users: BTreeSet::new(),
            was_unused: false,
        }
    }

    /// No shape asks for its values.
    pub(super) fn is_unused(&self) -> bool {
        self.users.is_empty() && self.loading.is_none()
    }

    fn key_of(&self, row: &[Option<&[u8]>]) -> RowKey {
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

    /// The values that a row asks of the sets below, with the positions.
    fn asks(&self, row: &[Option<&[u8]>]) -> Vec<(usize, Key)> {
        match &self.query.filter {
            Filter::Nested(condition) => {
                condition.memberships().map(|(position, membership)| (position, membership.key(row))).collect()
            }
            Filter::All | Filter::Row(_) => Vec::new(),
        }
    }

    pub(super) fn put(&mut self, set: &mut Set, changes: &mut Changes, cells: Cells) {
        let values = borrowed(&cells);
        let key = self.key_of(&values);
        set.add(self.query.value(&values), changes);
        if let Some((_, count)) = self.rows.get_mut(&key) {
            *count += 1;
            return;
        }
        for (position, asked) in self.asks(&values) {
            self.asking.entry((position, asked.bytes().into())).or_default().insert(Arc::clone(&key));
        }
        drop(values);
        self.rows.insert(key, (cells, 1));
    }

    fn take(&mut self, set: &mut Set, changes: &mut Changes, key: &[u8]) {
        let Some((cells, count)) = self.rows.get_mut(key) else { return };
        set.remove(self.query.value(&borrowed(cells)), changes);
        *count -= 1;
        if *count > 0 {
            return;
        }
        let Some((cells, _)) = self.rows.remove(key) else { return };
        let values = borrowed(&cells);
        for (position, asked) in self.asks(&values) {
            if let hashbrown::hash_map::Entry::Occupied(mut entry) = self.asking.entry((position, asked.bytes().into()))
            {
                entry.get_mut().remove(key);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        }
    }

    /// The keys of the rows that ask for one of these values, in order.
    fn asking(&self, values: &[(usize, Key)]) -> BTreeSet<RowKey> {
        let found = values.iter().filter_map(|(position, key)| self.asking.get(&(*position, key.bytes().into())));
        found.flatten().cloned().collect()
    }
}

impl Node {
    /// A changed row of the table that an inner query selects from.
    pub(super) fn inner_change(
        &mut self,
        sets: &Sets,
        set: &mut Set,
        changes: &mut Changes,
        change: &RowChange,
        at: At,
        out: &mut Transaction,
    ) -> Result<(), TooCostly> {
        let is = match &change.new {
            Some(new) => self.selects(sets, &borrowed(new))?,
            None => false,
        };
        let Some(mut inner) = self.inner.take() else { return Ok(()) };
        let key_of = |cells: &Option<Cells>| cells.as_ref().map(|cells| inner.key_of(&borrowed(cells)));
        let (old_key, new_key) = (key_of(&change.old), key_of(&change.new));
        let was = old_key.as_ref().is_some_and(|key| inner.rows.contains_key(key));
        for pending in self.pendings.iter_mut().filter(|pending| pending.reached) {
            pending.touched.extend(old_key.iter().chain(&new_key).cloned());
        }
        self.tell_inner(change, was, is, old_key == new_key, at, out);
        if let (true, Some(key)) = (was, &old_key) {
            inner.take(set, changes, key);
        }
        if let (true, Some(cells)) = (is, &change.new) {
            inner.put(set, changes, cells.clone());
        }
        self.inner = Some(inner);
        Ok(())
    }

    /// A changed row, of which it is not known yet whether it is among the first rows, as these are still being read:
    /// its log has the change, its values get it with the rows. No set that the row asks for has changed since these
    /// were chosen.
    pub(super) fn inner_change_while_loading(
        &self,
        sets: &Sets,
        change: &RowChange,
        at: At,
        out: &mut Transaction,
    ) -> Result<(), TooCostly> {
        let selected = |cells: &Option<Cells>| match cells {
            Some(cells) => self.selects(sets, &borrowed(cells)),
            None => Ok(false),
        };
        let (was, is) = (selected(&change.old)?, selected(&change.new)?);
        let Some(inner) = &self.inner else { return Ok(()) };
        let key_of = |cells: &Option<Cells>| cells.as_ref().map(|cells| inner.key_of(&borrowed(cells)));
        self.tell_inner(change, was, is, key_of(&change.old) == key_of(&change.new), at, out);
        Ok(())
    }

    /// Puts a change into the log of an inner shape, which had the row before, has it now, or both.
    fn tell_inner(&self, change: &RowChange, was: bool, is: bool, same: bool, at: At, out: &mut Transaction) {
        let (old, new) = (change.old.as_ref().map(borrowed), change.new.as_ref().map(borrowed));
        let op = change.op.saturating_add(INNER_OPS);
        let place = Place { xid: at.xid, lsn: at.lsn, op };
        let projection = &self.projection;
        let route_id = [self.route_id];
        match (&old, &new) {
            (Some(old), Some(new)) if was && is && same => {
                if projection.difference(&old[..], &new[..]) != Difference::Nothing {
                    out.add(ProjectionId::private(self.route_id), &route_id, op, |out| {
                        projection.update(place, &old[..], &new[..], out)
                    });
                }
            }
            _ => {
                if let Some(old) = old.as_ref().filter(|_| was) {
                    out.add(ProjectionId::private(self.route_id), &route_id, op, |out| {
                        projection.delete(place, &old[..], out)
                    });
                }
                if let Some(new) = new.as_ref().filter(|_| is) {
                    let place = Place { op: op + 1, ..place };
                    out.add(ProjectionId::private(self.route_id), &route_id, op + 1, |out| {
                        projection.insert(place, &new[..], out)
                    });
                }
            }
        }
    }

    /// Removes the rows of an inner shape that it no longer selects without these values.
    #[expect(clippy::too_many_arguments, reason = "one caller")]
    pub(super) fn inner_rows_leave(
        &mut self,
        gone: &[(usize, Key)],
        sets: &Sets,
        set: &mut Set,
        changes: &mut Changes,
        at: At,
        places: &mut Places<'_>,
        out: &mut Transaction,
    ) -> Result<(), TooCostly> {
        let Some(inner) = &self.inner else { return Ok(()) };
        let mut leaving = Vec::new();
        for key in inner.asking(gone) {
            if let Some((cells, _)) = inner.rows.get(&key)
                && !self.selects(sets, &borrowed(cells))?
            {
                leaving.push(key);
            }
        }
        let Some(mut inner) = self.inner.take() else { return Ok(()) };
        for key in leaving {
            while let Some((cells, _)) = inner.rows.get(&key) {
                let (projection, op) = (&self.projection, places.take());
                let place = Place { xid: at.xid, lsn: at.lsn, op };
                out.add(ProjectionId::private(self.route_id), &[self.route_id], op, |out| {
                    projection.delete(place, &borrowed(cells)[..], out)
                });
                inner.take(set, changes, &key);
            }
        }
        self.inner = Some(inner);
        Ok(())
    }

    /// A row of an inner shape that was fetched.
    pub(super) fn inner_row_comes(
        &mut self,
        pending: &Pending,
        cells: Cells,
        sets: &Sets,
        set: &mut Set,
        changes: &mut Changes,
        out: &mut Transaction,
    ) -> Result<(), TooCostly> {
        let Some(condition) = self.condition().cloned() else { return Ok(()) };
        let values = borrowed(&cells);
        let (before, after) = self.see_at_boundary(&condition, sets, pending, &values)?;
        let holds = self.see(&condition, sets, &values)?.holds;
        // A value that went since the boundary and is there again brings the row a second time: then only that counts.
        let mut comes_again = false;
        for later in self.pendings.iter().filter(|later| later.reached) {
            let (before, after) = self.see_at_boundary(&condition, sets, later, &values)?;
            comes_again |= !before.holds && after.holds;
        }
        let Some(mut inner) = self.inner.take() else { return Ok(()) };
        // A change since the boundary is newer than the fetched row, and values that left since then have taken the row
        // with them.
        let comes =
            !before.holds && after.holds && holds && !comes_again && !pending.touched.contains(&inner.key_of(&values));
        if comes {
            let op = pending.next_op();
            let place = Place { xid: pending.xid(), lsn: pending.place.0, op };
            out.add(ProjectionId::private(self.route_id), &[self.route_id], op, |out| {
                self.projection.insert(place, &values[..], out)
            });
            drop(values);
            inner.put(set, changes, cells);
        }
        self.inner = Some(inner);
        Ok(())
    }
}
