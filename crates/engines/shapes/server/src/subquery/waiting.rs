//! Nodes with pending rows: from the request for the rows until these are in the log.

use super::graph::{Ask, Ended, Graph, Turn, Verdict};
use super::node::Node;
use super::pending::Asked;
use crate::faults::Fault;
use crate::shape::Shape;
use crate::state::transaction::Transaction;
use hashbrown::HashSet;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_core::subquery::place::At;
use thalweg_shapes_core::subquery::set::Moves;
use thalweg_shapes_model::row::Cells;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// The effect of one transaction was applied to sets that lack another one, and to rows that have it.
pub(super) const ANOTHER_ORDER: &str = "transactions became visible in another order";

/// The nodes with pending rows.
#[derive(Default)]
pub(super) struct Waiting {
    numbers: BTreeSet<u64>,
    /// Route ids whose changes get no references yet: rows that belong before them are pending.
    held: HashSet<RouteId>,
    /// The nodes whose pending rows may be complete, and can then be written to the log.
    ready: BTreeSet<u64>,
    last_pending: u64,
}

impl Waiting {
    pub(super) fn is_any(&self) -> bool {
        !self.numbers.is_empty()
    }

    pub(super) fn held(&self) -> &HashSet<RouteId> {
        &self.held
    }

    /// A node waits for rows. Returns the number of the pending.
    pub(super) fn begin(&mut self, node: &Node) -> u64 {
        self.numbers.insert(node.shape.number);
        self.last_pending += 1;
        self.last_pending
    }

    pub(super) fn forget(&mut self, node: &Node) {
        self.numbers.remove(&node.shape.number);
        self.ready.remove(&node.shape.number);
        self.held.remove(&node.route_id);
    }

    /// Updates the state of a node after a change of its pendings.
    fn note(&mut self, node: &Node) {
        let number = node.shape.number;
        let first = node.pendings.front();
        if first.is_none() {
            self.numbers.remove(&number);
        }
        if first.is_some_and(|first| first.complete && first.rows.is_some()) {
            self.ready.insert(number);
        } else {
            self.ready.remove(&number);
        }
        if node.pendings.iter().any(|pending| pending.reached) {
            self.held.insert(node.route_id);
        } else {
            self.held.remove(&node.route_id);
        }
    }
}

/// Rows that came, ready to be put into the log.
pub(crate) struct MoveIn {
    pub(crate) transaction: Transaction,
    pub(crate) shape: Arc<Shape>,
    pub(crate) pending: u64,
    /// The last transaction before the rows: they stand behind it. Messages for other shapes stand behind
    /// `transaction.lsn`.
    pub(crate) boundary: u64,
    pub(crate) route_id: RouteId,
    pub(crate) verdict: Verdict,
}

impl Graph {
    /// Rows are about to be fetched. Returns the query. From now on no values join the request.
    pub(crate) fn turn(&mut self, shape: u64, pending: u64) -> Turn {
        let Some(node) = self.nodes.get_mut(&shape) else { return Turn::Gone };
        let Some(at) = node.pendings.iter().position(|known| known.number == pending) else { return Turn::Gone };
        // Boundaries are passed in the order of the pendings.
        if node.pendings.range(..at).any(|earlier| earlier.snapshot.is_none()) {
            return Turn::Later;
        }
        node.pendings[at].asked = Asked::Begun;
        let pending = &node.pendings[at];
        let filter = node.condition().filter(|_| !pending.keys.is_empty()).map(|condition| pending.filter(condition));
        let (table, columns) = (Arc::clone(&node.table), node.columns());
        Turn::Ask(Ask { shape, pending: pending.number, table, columns, filter })
    }

    /// The snapshot from which rows are fetched. It has all transactions that were applied so far.
    pub(crate) fn asked<'a>(&mut self, asks: impl IntoIterator<Item = &'a Ask>, snapshot: &PgSnapshot) {
        for ask in asks {
            if let Some(node) = self.nodes.get_mut(&ask.shape)
                && let Some(pending) = node.pendings.iter_mut().find(|pending| pending.number == ask.pending)
            {
                pending.snapshot = Some(snapshot.clone());
            }
        }
    }

    /// The fetch from this snapshot failed. Returns whether the rows can be requested again.
    pub(crate) fn unask(&mut self, shape: u64, pending: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&shape) else { return false };
        let Some(at) = node.pendings.iter().position(|known| known.number == pending) else { return false };
        let is_last = node.pendings.range(at + 1..).all(|later| later.snapshot.is_none());
        let pending = &mut node.pendings[at];
        if pending.reached || !is_last {
            return false;
        }
        (pending.asked, pending.snapshot) = (Asked::Not, None);
        true
    }

    /// Rows that were fetched.
    pub(crate) fn arrived(&mut self, shape: u64, pending: u64, rows: Vec<Cells>) {
        if let Some(node) = self.nodes.get_mut(&shape)
            && let Some(pending) = node.pendings.iter_mut().find(|known| known.number == pending)
        {
            pending.rows = Some(rows);
            self.waiting.note(node);
        }
    }

    /// A transaction is about to be applied, or (`xid` is `None`) everything before `lsn` was: which boundaries that
    /// passes.
    pub(crate) fn pass(&mut self, xid: Option<u32>, lsn: u64) -> Verdict {
        let mut verdict = Verdict::default();
        for number in self.waiting.numbers.clone() {
            let Some(node) = self.nodes.get_mut(&number) else { continue };
            for at in 0..node.pendings.len() {
                let Some(snapshot) = &node.pendings[at].snapshot else { break };
                let (contained, complete) = match xid {
                    Some(xid) => (snapshot.contains(xid, lsn), snapshot.is_past(lsn)),
                    None => (lsn < snapshot.lsn, lsn >= snapshot.lsn),
                };
                match (node.pendings[at].reached, contained) {
                    (true, true) if xid.is_some() && !self.faults.has(Fault::OrderUnnoticed) => {
                        // It committed after another that the snapshot does not have, and became visible before it.
                        verdict.drop.push((Arc::clone(&node.shape), Ended::Because(ANOTHER_ORDER)));
                        break;
                    }
                    (true, _) => {}
                    (false, true) => break,
                    (false, false) => node.reach(at, self.last_lsn),
                }
                node.pendings[at].complete |= complete;
            }
            self.waiting.note(node);
        }
        if xid.is_none() {
            self.settle(lsn);
        }
        verdict
    }

    /// Everything before `lsn` was applied: nodes whose first rows are from a snapshot before that do not wait for more
    /// of it.
    fn settle(&mut self, lsn: u64) {
        let nodes = &mut self.nodes;
        self.young.retain(|number| {
            let Some(node) = nodes.get_mut(number) else { return false };
            node.contained.take_if(|contained| lsn >= contained.lsn);
            node.contained.is_some()
        });
    }

    /// The next rows that came and whose boundary is passed, as bodies after the last transaction. When shapes have
    /// them, that is to be said ([`Graph::published`]).
    pub(crate) fn publish(&mut self, split_bytes: usize) -> Option<MoveIn> {
        let number = *self.waiting.ready.first()?;
        let mut node = self.nodes.remove(&number)?;
        let mut pending = node.pendings.pop_front()?;
        assert!(pending.reached && pending.complete, "rows are put into the log after the boundary of their snapshot");
        let at = At { xid: pending.xid(), lsn: self.last_lsn, since: pending.lsn };
        let mut out = Transaction::new(at.xid, at.lsn, split_bytes);
        let rows = pending.rows.take().unwrap_or_default();
        let (mut told, is_inner) = (Ok(()), node.inner.is_some());
        let moves = if is_inner {
            self.sets.change(number, |sets, set, changes| {
                let mut rows = rows.into_iter();
                told = rows.try_for_each(|cells| node.inner_row_comes(&pending, cells, sets, set, changes, &mut out));
            })
        } else {
            told = node.outer_rows_come(&self.sets, &pending, &rows, &mut out);
            Moves::default()
        };
        self.waiting.note(&node);
        self.finders.watch(&node);
        let (shape, route_id) = (Arc::clone(&node.shape), node.route_id);
        self.nodes.insert(number, node);
        // Which rows of the shapes above had a row of an inner shape as their only reason is not known.
        self.missing_since(number, pending.lsn, if is_inner { u64::MAX } else { pending.lost });
        let mut verdict = self.moved(number, moves, at, &mut out);
        if let Err(costly) = told {
            verdict.drop.push((Arc::clone(&shape), costly.into()));
        }
        Some(MoveIn { transaction: out, shape, pending: pending.number, boundary: pending.place.0, route_id, verdict })
    }

    /// The rows that a node lacked since `lsn` are here, or are no longer selected. A transaction between `lsn` and
    /// `until` may have given rows of the shapes above another reason, which clients do not have yet: that reason is
    /// missing since `lsn` too, or clients would be told that they have rows which they never had.
    fn missing_since(&mut self, number: u64, lsn: u64, until: u64) {
        let Some(node) = self.nodes.get_mut(&number).filter(|_| until > lsn) else { return };
        node.pendings.iter_mut().for_each(|pending| pending.backdate(lsn, until));
        let above: Vec<u64> = node.inner.iter().flat_map(|inner| &inner.users).copied().collect();
        let below: Vec<u64> = node.sets.iter().flatten().copied().collect();
        below.into_iter().for_each(|set| self.missing_below(set, lsn, until));
        above.into_iter().for_each(|user| self.missing_since(user, lsn, until));
    }

    fn missing_below(&mut self, number: u64, lsn: u64, until: u64) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.pendings.iter_mut().for_each(|pending| pending.backdate(lsn, until));
        let below: Vec<u64> = node.sets.iter().flatten().copied().collect();
        below.into_iter().for_each(|set| self.missing_below(set, lsn, until));
    }

    /// Rows of a shape, and their effects on others, are in the shapes or held by them: no node waits for them now.
    pub(crate) fn published(&self, shape: u64) {
        self.uncap(shape);
    }

    /// Nothing of the transaction at `lsn` and of those after it is complete in the shape, and in those above it.
    pub(super) fn cap(&self, node: &Node, lsn: u64) {
        node.shape.lock().cap(lsn.saturating_sub(1));
        for user in node.inner.iter().flat_map(|inner| &inner.users) {
            if let Some(above) = self.nodes.get(user) {
                self.cap(above, lsn);
            }
        }
    }

    /// Updates the positions up to which a shape, and the shapes above it, are complete.
    fn uncap(&self, number: u64) {
        let Some(node) = self.nodes.get(&number) else { return };
        node.shape.lock().set_cap(self.complete(node));
        node.inner.iter().flat_map(|inner| &inner.users).for_each(|user| self.uncap(*user));
    }

    /// The position before which a node is complete; `None`: it is complete.
    fn complete(&self, node: &Node) -> Option<u64> {
        let own = node.pendings.iter().map(|pending| pending.lsn.saturating_sub(1));
        let below = node.sets.iter().flatten().filter_map(|set| self.complete(self.nodes.get(set)?));
        own.chain(below).min()
    }
}
