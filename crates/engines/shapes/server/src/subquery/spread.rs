//! The effects of a transaction: changed rows act on nodes, and the changes of their sets act on the nodes above.

use super::graph::{Ended, Graph, MoveInRequest, Verdict};
use super::node::Node;
use super::outer::GONE_MAX;
use super::pending::{Asked, Pending, Step};
use super::waiting::ANOTHER_ORDER;
use crate::state::transaction::Transaction;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_shapes_core::encode::message::Move;
use thalweg_shapes_core::subquery::place::{At, Places, When};
use thalweg_shapes_core::subquery::set::Moves;
use thalweg_shapes_model::row::RowChange;

/// The changes and moves that concern one node.
#[derive(Default)]
struct Moved {
    changes: Vec<Arc<RowChange>>,
    moves: Vec<(u64, Arc<Moves>)>,
}

/// The concerned nodes: by their depth, and by their number.
type Affected = BTreeMap<(usize, u64), Moved>;

impl Graph {
    /// Applies a whole transaction to the nodes of the tables that it changed. The encoded changes are put into `out`.
    pub(crate) fn transaction(&mut self, changes: &[Arc<RowChange>], out: &mut Transaction) -> Verdict {
        let at = At { xid: out.xid, lsn: out.lsn, since: out.lsn };
        self.last_lsn = self.last_lsn.max(at.lsn);
        let mut verdict = Verdict::default();
        self.grow(at, &mut verdict);
        let (mut affected, mut found) = (Affected::default(), Vec::new());
        let Some(deepest) = self.finders.depth(changes.iter().map(|change| change.table)) else { return verdict };
        for depth in 0..=deepest {
            // The sets below are as the transaction leaves them: only now is it known which nodes of this depth it
            // concerns.
            for change in changes {
                found.clear();
                self.finders.find(depth, change, &self.sets, &mut found);
                for number in &found {
                    affected.entry((depth, *number)).or_default().changes.push(Arc::clone(change));
                }
            }
            self.spread(&mut affected, depth, at, When::Within, out, &mut verdict);
        }
        self.spread(&mut affected, usize::MAX, at, When::Within, out, &mut verdict);
        verdict
    }

    /// Nodes see a transaction that their first rows may have.
    fn grow(&mut self, at: At, verdict: &mut Verdict) {
        let nodes = &mut self.nodes;
        self.young.retain(|number| {
            let Some(node) = nodes.get_mut(number) else { return false };
            let Some(contained) = &node.contained else { return false };
            if contained.is_past(at.lsn) {
                node.contained = None;
                return false;
            }
            if !contained.contains(at.xid, at.lsn) {
                node.overtaken = true;
            } else if node.overtaken && node.depth > 0 {
                // It committed after another that the rows do not have, and became visible before it.
                verdict.drop.push((Arc::clone(&node.shape), Ended::Because(ANOTHER_ORDER)));
            }
            true
        });
    }

    /// Spreads the moves of a set that fetched rows have caused.
    pub(super) fn moved(&mut self, number: u64, moves: Moves, at: At, out: &mut Transaction) -> Verdict {
        let (mut verdict, mut affected) = (Verdict::default(), Affected::default());
        self.tell_users(number, moves, &mut affected);
        self.spread(&mut affected, usize::MAX, at, When::After, out, &mut verdict);
        verdict
    }

    fn tell_users(&self, number: u64, moves: Moves, affected: &mut Affected) {
        if moves.is_empty() {
            return;
        }
        let moves = Arc::new(moves);
        let users = self.nodes.get(&number).and_then(|node| node.inner.as_ref()).into_iter().flat_map(|i| &i.users);
        for user in users {
            if let Some(above) = self.nodes.get(user) {
                affected.entry((above.depth, *user)).or_default().moves.push((number, Arc::clone(&moves)));
            }
        }
    }

    /// Applies gathered changes and moves to their nodes, up to a depth, and the moves of their sets to the nodes
    /// above.
    fn spread(
        &mut self,
        affected: &mut Affected,
        depth: usize,
        at: At,
        when: When,
        out: &mut Transaction,
        verdict: &mut Verdict,
    ) {
        while let Some(entry) = affected.first_entry()
            && entry.key().0 <= depth
        {
            let ((_, number), moved) = entry.remove_entry();
            let Some(mut node) = self.nodes.remove(&number) else { continue };
            let moves = self.act(&mut node, moved, at, when, out, verdict);
            self.nodes.insert(number, node);
            self.tell_users(number, moves, affected);
        }
    }

    /// Applies changes of rows and of sets to one node. Returns the moves of its own set.
    fn act(
        &mut self,
        node: &mut Node,
        moved: Moved,
        at: At,
        when: When,
        out: &mut Transaction,
        verdict: &mut Verdict,
    ) -> Moves {
        if node.contained.as_ref().is_some_and(|contained| contained.contains(at.xid, at.lsn)) {
            return Moves::default();
        }
        if node.is_loading() {
            if let Err(why) = self.act_while_loading(node, moved, at, out) {
                verdict.drop.push((Arc::clone(&node.shape), why));
            }
            return Moves::default();
        }
        let Step { gone, pending } = node.moved(&self.sets, &moved.moves, at).unwrap_or_else(|why| {
            verdict.drop.push((Arc::clone(&node.shape), why.into()));
            Step::default()
        });
        node.lose(&moved.changes, at);
        // A new value does not count before its rows are here: neither for rows that go nor for those that were
        // written.
        if let Some(pending) = pending {
            self.drop_began(node, at, verdict);
            self.wait_for(node, pending, verdict);
        }
        let mut after = std::mem::take(&mut node.after);
        let mut places = Places::new(when, at.lsn, &mut after);
        let mut told = Ok(());
        let moves = if node.inner.is_some() {
            self.sets.change(node.shape.number, |sets, set, changes| {
                if !gone.is_empty() {
                    told = node.inner_rows_leave(&gone, sets, set, changes, at, &mut places, out);
                }
                for change in &moved.changes {
                    told = told.and_then(|()| node.inner_change(sets, set, changes, change, at, out));
                }
            })
        } else {
            if gone.len() > GONE_MAX {
                verdict.drop.push((Arc::clone(&node.shape), "too many values of an inner query went at once".into()));
            } else {
                node.tell(Move::Out, &gone, &[at.xid], &mut || places.take(), out);
            }
            told = moved.changes.iter().try_for_each(|change| node.outer_change(&self.sets, change, at, out));
            Moves::default()
        };
        if let Err(costly) = told {
            verdict.drop.push((Arc::clone(&node.shape), costly.into()));
        }
        node.after = after;
        moves
    }

    /// The same for a node whose first rows are still being read: its log gets the changes now, its values when the
    /// rows are here.
    fn act_while_loading(&self, node: &mut Node, moved: Moved, at: At, out: &mut Transaction) -> Result<(), Ended> {
        if !moved.moves.is_empty() {
            // Its rows were chosen by values that are others now.
            return Err("began while the values that it asks for changed".into());
        }
        for change in &moved.changes {
            node.inner_change_while_loading(&self.sets, change, at, out)?;
        }
        if let Some(queue) = node.inner.as_mut().and_then(|inner| inner.loading.as_mut()) {
            queue.extend(moved.changes);
        }
        Ok(())
    }

    /// Drops the shapes above a node that is about to wait for rows of a transaction, if their own first rows contain
    /// that transaction. These rows, as they were then, have selected those first rows; they may be others when they
    /// arrive.
    fn drop_began(&self, node: &Node, at: At, verdict: &mut Verdict) {
        for number in node.inner.iter().flat_map(|inner| &inner.users) {
            let Some(above) = self.nodes.get(number) else { continue };
            if above.contained.as_ref().is_some_and(|contained| contained.contains(at.xid, at.lsn)) {
                verdict.drop.push((Arc::clone(&above.shape), "began while rows of an inner query came".into()));
            }
            self.drop_began(above, at, verdict);
        }
    }

    /// Makes a node wait for the rows of `pending`.
    fn wait_for(&mut self, node: &mut Node, mut pending: Pending, verdict: &mut Verdict) {
        self.cap(node, pending.lsn);
        if let Some(last) = node.pendings.back_mut().filter(|last| last.asked == Asked::Not) {
            if let Err(why) = last.join(pending) {
                verdict.drop.push((Arc::clone(&node.shape), why.into()));
            }
            return;
        }
        pending.number = self.waiting.begin(node);
        let (shape, table) = (node.shape.number, node.table.oid);
        verdict.began.push(shape);
        verdict.ask.push(MoveInRequest { shape, pending: pending.number, table });
        node.pendings.push_back(pending);
        self.finders.watch(node);
    }
}
