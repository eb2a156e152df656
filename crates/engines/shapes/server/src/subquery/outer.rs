//! The messages for clients of a shape with subqueries.

use super::node::Node;
use super::pending::Pending;
use crate::state::transaction::Transaction;
use thalweg_filter::{Key, TooCostly};
use thalweg_shapes_core::encode::message::{IS_MOVE_IN, Move, Pattern, push_move, push_snapshot_end, with_headers};
use thalweg_shapes_core::encode::projection::{Difference, Place};
use thalweg_shapes_core::route::ids::ProjectionId;
use thalweg_shapes_core::subquery::place::{At, OUTER_OPS};
use thalweg_shapes_core::subquery::seen::hash;
use thalweg_shapes_core::subquery::sets::Sets;
use thalweg_shapes_model::row::{Cells, RowChange, RowRef, borrowed};

/// Patterns of one event.
const PATTERNS_MAX: usize = 1000;
/// Values that may go at once: there are places for so many events.
pub(super) const GONE_MAX: usize = PATTERNS_MAX * (OUTER_OPS as usize - 1);

impl Node {
    /// A changed row of the table that an outer shape selects from.
    pub(super) fn outer_change(
        &self,
        sets: &Sets,
        change: &RowChange,
        at: At,
        out: &mut Transaction,
    ) -> Result<(), TooCostly> {
        let Some(condition) = self.condition() else { return Ok(()) };
        let (old, new) = (change.old.as_ref().map(borrowed), change.new.as_ref().map(borrowed));
        let see = |row: &Option<RowRef<'_>>| match row {
            Some(row) => Ok(Some(self.see(condition, sets, row)?).filter(|seen| seen.holds)),
            None => Ok(None),
        };
        let (was, is) = (see(&old)?, see(&new)?);
        let op = change.op.saturating_add(OUTER_OPS);
        let place = Place { xid: at.xid, lsn: at.lsn, op };
        let handle = &self.shape.handle.to_string();
        let (mut body, mut headers) = (Vec::new(), Vec::new());
        let projection = &self.projection;
        let mut deliver = |op: u32, body: &mut Vec<u8>, headers: &mut Vec<u8>| {
            out.add(ProjectionId::private(self.route_id), &[self.route_id], op, |out| with_headers(out, body, headers));
            body.clear();
            headers.clear();
        };
        match (old, new, was, is) {
            (Some(old), _, Some(_), None) => {
                projection.delete(place, &old[..], &mut body);
                deliver(op, &mut body, &mut headers);
            }
            (_, Some(new), None, Some(is)) => {
                projection.insert(place, &new[..], &mut body);
                is.push_headers(condition, handle, None, &mut headers);
                deliver(op, &mut body, &mut headers);
            }
            (Some(old), Some(new), Some(was), Some(is)) => match projection.difference(&old[..], &new[..]) {
                Difference::Nothing if was == is => {}
                Difference::Nothing | Difference::Columns => {
                    projection.update(place, &old[..], &new[..], &mut body);
                    is.push_headers(condition, handle, Some(&was), &mut headers);
                    deliver(op, &mut body, &mut headers);
                }
                Difference::Key => {
                    projection.key_change_delete(place, &old[..], &new[..], &mut body);
                    deliver(op, &mut body, &mut headers);
                    projection.key_change_insert(place, &old[..], &new[..], &mut body);
                    is.push_headers(condition, handle, None, &mut headers);
                    deliver(op + 1, &mut body, &mut headers);
                }
            },
            _ => {}
        }
        Ok(())
    }

    /// Rows that were fetched.
    pub(super) fn outer_rows_come(
        &self,
        sets: &Sets,
        pending: &Pending,
        rows: &[Cells],
        out: &mut Transaction,
    ) -> Result<(), TooCostly> {
        let (Some(condition), Some(snapshot)) = (self.condition(), &pending.snapshot) else { return Ok(()) };
        let handle = &self.shape.handle.to_string();
        let route_id = [self.route_id];
        if pending.keys.is_empty() {
            return Ok(());
        }
        self.tell(Move::In, &pending.keys, &pending.xids, &mut || pending.next_op(), out);
        for cells in rows {
            let row = borrowed(cells);
            let (before, after) = self.see_at_boundary(condition, sets, pending, &row)?;
            if before.holds || !after.holds {
                continue;
            }
            let mut headers = IS_MOVE_IN.to_vec();
            after.push_headers(condition, handle, None, &mut headers);
            let op = pending.next_op();
            out.add(ProjectionId::private(self.route_id), &route_id, op, |out| {
                self.projection.table_row_with(&row[..], &headers, out)
            });
        }
        out.add(ProjectionId::private(self.route_id), &route_id, pending.next_op(), |out| {
            push_snapshot_end(out, snapshot, true)
        });
        Ok(())
    }

    /// Sends clients a move message, whose tags select the rows to check.
    pub(super) fn tell(
        &self,
        direction: Move,
        keys: &[(usize, Key)],
        xids: &[u32],
        op: &mut dyn FnMut() -> u32,
        out: &mut Transaction,
    ) {
        let handle = self.shape.handle.to_string();
        for keys in keys.chunks(PATTERNS_MAX) {
            let hashes: Vec<(u32, String)> = keys.iter().map(|(at, key)| (*at as u32, hash(&handle, key))).collect();
            let patterns: Vec<Pattern<'_>> =
                hashes.iter().map(|(position, value)| Pattern { position: *position, value }).collect();
            out.add(ProjectionId::private(self.route_id), &[self.route_id], op(), |out| {
                push_move(out, direction, &patterns, xids)
            });
        }
    }
}
