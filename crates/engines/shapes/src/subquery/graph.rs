//! All shapes that depend on other tables' rows, and the inner shapes that they depend on.

use super::node::{Cells, Inner, Node, Overlay, Pending, RowChange, row};
use super::seen::hash;
use super::set::{Changes, Moves, Set};
use crate::format::message::{IS_MOVE_IN, Move, Pattern, push_move, push_snapshot_end, with_headers};
use crate::format::projection::{Difference, Place};
use crate::shape::Shape;
use crate::state::snapshot::PgSnapshot;
use crate::state::transaction::Transaction;
use hashbrown::{HashMap, HashSet};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_filter::Key;

/// Most values whose rows are fetched at once for one shape; with more it is made anew.
const KEYS_MAX: usize = 20_000;
/// Patterns of one event.
const PATTERNS_MAX: usize = 1000;
/// Places in a transaction: first come those of what changed because sets did, from here on those of rows that were written…
const OUTER_OPS: u32 = 1 << 12;
const INNER_OPS: u32 = 1 << 28;
/// …and from here on those of rows that come after it.
pub(super) const MOVED_OPS: u32 = 1 << 30;
/// Places that are kept for rows that are on their way.
const ROWS_MAX: u32 = 1 << 20;

#[derive(Default)]
pub(crate) struct Graph {
    nodes: HashMap<u64, Node>,
    sets: HashMap<u64, Set>,
    by_identity: HashMap<String, u64>,
    /// Nodes by the tables whose rows they select.
    by_table: HashMap<u32, Vec<u64>>,
    /// All nodes that wait for rows.
    waiting: Vec<u64>,
    /// Slots whose changes are not to be referred to yet: rows that belong before them are on their way.
    held: HashSet<u32>,
    next_pending: Cell<u64>,
    /// The last transaction that was seen.
    last_lsn: u64,
}

/// What the caller has to do after the graph was told something.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Shapes that cannot go on, and why.
    pub(crate) drop: Vec<(Arc<Shape>, &'static str)>,
    /// Shapes that wait for rows from now on.
    pub(crate) began: Vec<u64>,
    /// What is to be fetched, all from one snapshot.
    pub(crate) ask: Vec<Ask>,
}

/// Rows that are to be fetched.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) shape: u64,
    pub(crate) pending: u64,
    pub(crate) table: Arc<crate::table::Table>,
    /// Places of the columns that are needed, ascending.
    pub(crate) columns: Vec<usize>,
    /// SQL.
    pub(crate) filter: String,
}

/// Rows that came, ready to be put into the log.
pub(crate) struct Publication {
    pub(crate) transaction: Transaction,
    pub(crate) shape: Arc<Shape>,
    pub(crate) pending: u64,
    /// The last transaction before the rows: they stand behind it. What others are told stands behind `transaction.lsn`.
    pub(crate) boundary: u64,
    pub(crate) slot: u32,
    pub(crate) verdict: Verdict,
}

/// Where something happens: in a transaction, or after it.
#[derive(Clone, Copy)]
struct At {
    xid: u32,
    lsn: u64,
}

impl Graph {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether rows are on their way.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether changes of the shape in this slot must not be referred to yet.
    pub(crate) fn held(&self) -> &HashSet<u32> {
        &self.held
    }

    pub(crate) fn shape(&self, number: u64) -> Option<Arc<Shape>> {
        self.nodes.get(&number).map(|node| Arc::clone(&node.shape))
    }

    /// The shapes that select from these tables.
    pub(crate) fn of_tables(&self, tables: &[u32]) -> Vec<Arc<Shape>> {
        let numbers = tables.iter().filter_map(|table| self.by_table.get(table)).flatten();
        numbers.filter_map(|number| self.shape(*number)).collect()
    }

    pub(super) fn inner(&self, identity: &str) -> Option<(u64, &Node)> {
        let number = *self.by_identity.get(identity)?;
        Some((number, self.nodes.get(&number)?))
    }

    /// Whether all of these inner shapes are there.
    pub(super) fn has(&self, sets: &[Option<u64>]) -> bool {
        sets.iter().flatten().all(|number| self.nodes.contains_key(number))
    }

    /// Whether these inner shapes have all of their rows, and those below them.
    pub(super) fn is_settled(&self, sets: &[Option<u64>]) -> bool {
        sets.iter().flatten().all(|number| {
            self.nodes.get(number).is_some_and(|node| {
                node.pendings.is_empty()
                    && node.inner.as_ref().is_some_and(|inner| inner.loading.is_none())
                    && self.is_settled(&node.sets)
            })
        })
    }

    pub(super) fn depth_of(&self, sets: &[Option<u64>]) -> usize {
        sets.iter().flatten().filter_map(|set| self.nodes.get(set)).map(|node| node.depth + 1).max().unwrap_or(0)
    }

    pub(super) fn insert(&mut self, node: Node) {
        let number = node.shape.number;
        for set in node.sets.iter().flatten() {
            if let Some(inner) = self.nodes.get_mut(set).and_then(|node| node.inner.as_mut())
                && !inner.users.contains(&number)
            {
                inner.users.push(number);
                inner.was_unused = false;
            }
        }
        self.by_table.entry(node.table.oid).or_default().push(number);
        if let Some(inner) = &node.inner {
            self.by_identity.insert(inner.identity.clone(), number);
            self.sets.entry(number).or_default();
        }
        self.nodes.insert(number, node);
    }

    /// Takes a shape out. Gives those that cannot be without it, and inner shapes that nobody needs any more.
    pub(crate) fn remove(&mut self, number: u64) -> Vec<Arc<Shape>> {
        let Some(node) = self.nodes.remove(&number) else { return Vec::new() };
        self.sets.remove(&number);
        self.held.remove(&node.slot);
        self.waiting.retain(|waiting| *waiting != number);
        if let Some(list) = self.by_table.get_mut(&node.table.oid) {
            list.retain(|other| *other != number);
            if list.is_empty() {
                self.by_table.remove(&node.table.oid);
            }
        }
        let mut others = Vec::new();
        for set in node.sets.iter().flatten() {
            let Some(below) = self.nodes.get_mut(set) else { continue };
            let Some(inner) = &mut below.inner else { continue };
            inner.users.retain(|user| *user != number);
            if inner.users.is_empty() && inner.loading.is_none() {
                others.push(Arc::clone(&below.shape));
            }
        }
        if let Some(inner) = node.inner {
            self.by_identity.remove(&inner.identity);
            others.extend(inner.users.iter().filter_map(|user| Some(Arc::clone(&self.nodes.get(user)?.shape))));
        }
        others
    }

    /// Inner shapes that nobody has needed since the last time this was asked.
    pub(crate) fn orphans(&mut self) -> Vec<Arc<Shape>> {
        let mut orphans = Vec::new();
        for node in self.nodes.values_mut() {
            let Some(inner) = &mut node.inner else { continue };
            let unused = inner.users.is_empty() && inner.loading.is_none();
            if unused && std::mem::replace(&mut inner.was_unused, unused) {
                orphans.push(Arc::clone(&node.shape));
            }
        }
        orphans
    }

    /// The first rows of an inner shape are all here.
    pub(super) fn loaded(&mut self, number: u64, rows: Vec<Cells>) {
        let Some(mut node) = self.nodes.remove(&number) else { return };
        let mut set = self.sets.remove(&number).unwrap_or_default();
        let mut changes = set.begin();
        if let Some(mut inner) = node.inner.take() {
            for cells in rows {
                put(&mut inner, &mut set, &mut changes, cells);
            }
            let queued = inner.loading.take().unwrap_or_default();
            node.inner = Some(inner);
            let mut nothing = Transaction::new(0, 0, usize::MAX);
            for change in &queued {
                self.inner_change(&mut node, &mut set, &mut changes, change, At { xid: 0, lsn: 0 }, &mut nothing);
            }
        }
        self.sets.insert(number, set);
        self.nodes.insert(number, node);
    }

    /// What a whole transaction did to the tables that nodes look at. Its bodies are put into `out`.
    pub(crate) fn transaction(&mut self, changes: &[Arc<RowChange>], out: &mut Transaction) -> Verdict {
        let at = At { xid: out.xid, lsn: out.lsn };
        self.last_lsn = at.lsn;
        let mut affected: BTreeMap<(usize, u64), Moved> = BTreeMap::new();
        for change in changes {
            for number in self.by_table.get(&change.table).into_iter().flatten() {
                if let Some(node) = self.nodes.get(number) {
                    affected.entry((node.depth, *number)).or_default().changes.push(Arc::clone(change));
                }
            }
        }
        let mut verdict = Verdict::default();
        self.spread(affected, at, When::Within, out, &mut verdict);
        verdict
    }

    /// Lets changes act on nodes, and what that does to their sets on the nodes above.
    fn spread(
        &mut self,
        mut affected: BTreeMap<(usize, u64), Moved>,
        at: At,
        when: When,
        out: &mut Transaction,
        verdict: &mut Verdict,
    ) {
        while let Some(((_, number), moved)) = affected.pop_first() {
            let Some(mut node) = self.nodes.remove(&number) else { continue };
            let moves = self.act(&mut node, moved, at, when, out, verdict);
            if let Some(inner) = &node.inner
                && !moves.is_empty()
            {
                let moves = Arc::new(moves);
                for user in &inner.users {
                    if let Some(above) = self.nodes.get(user) {
                        affected.entry((above.depth, *user)).or_default().moves.push((number, Arc::clone(&moves)));
                    }
                }
            }
            if !node.pendings.is_empty() && !self.waiting.contains(&number) {
                self.waiting.push(number);
            }
            self.nodes.insert(number, node);
        }
    }

    /// What changes of rows and of sets mean for one node; what they do to its own set.
    fn act(
        &mut self,
        node: &mut Node,
        moved: Moved,
        at: At,
        when: When,
        out: &mut Transaction,
        verdict: &mut Verdict,
    ) -> Moves {
        if let Some(contained) = &node.contained {
            if contained.is_past(at.lsn) {
                node.contained = None;
            } else if contained.contains(at.xid, at.lsn) {
                if when == When::After {
                    // The rows were read when the inner rows that come now were in their table already.
                    verdict.drop.push((Arc::clone(&node.shape), "began while rows of an inner query came"));
                }
                return Moves::default();
            }
        }
        if let Some(inner) = &mut node.inner
            && let Some(queue) = &mut inner.loading
        {
            queue.extend(moved.changes);
            return Moves::default();
        }
        let number = node.shape.number;
        let mut set = self.sets.remove(&number);
        let mut changes = set.as_ref().map(Set::begin);
        let mut within = 0;
        let mut after = std::mem::take(&mut node.after);
        after.at(at.lsn);
        let mut next = || match when {
            When::Within => {
                within += 1;
                within - 1
            }
            When::After => after.next(1),
        };
        let step = sets_moved(node, &moved.moves, at);
        match step {
            Err(why) => verdict.drop.push((Arc::clone(&node.shape), why)),
            Ok(step) => {
                if let (Some(set), Some(changes)) = (&mut set, &mut changes) {
                    if !step.gone.is_empty() {
                        self.inner_rows_leave(node, set, changes, at, &mut next, out);
                    }
                } else if step.gone.len() > PATTERNS_MAX * (OUTER_OPS as usize - 1) {
                    verdict.drop.push((Arc::clone(&node.shape), "too many values of an inner query went at once"));
                } else {
                    tell(node, Move::Out, &step.gone, at.xid, &mut next, out);
                }
                if let Some(mut pending) = step.pending {
                    self.next_pending.set(self.next_pending.get() + 1);
                    pending.number = self.next_pending.get();
                    verdict.began.push(number);
                    verdict.ask.push(ask(node, &pending));
                    self.cap(node, at.lsn);
                    node.pendings.push_back(pending);
                }
            }
        }
        node.after = after;
        for change in &moved.changes {
            match (&mut set, &mut changes) {
                (Some(set), Some(changes)) => self.inner_change(node, set, changes, change, at, out),
                _ => self.outer_change(node, change, at, out),
            }
        }
        match (set, changes) {
            (Some(set), Some(changes)) => {
                let moves = set.end(changes);
                self.sets.insert(number, set);
                moves
            }
            _ => Moves::default(),
        }
    }

    /// A changed row of the table that an outer shape selects from.
    fn outer_change(&self, node: &Node, change: &RowChange, at: At, out: &mut Transaction) {
        let Some(condition) = node.condition() else { return };
        let (old, new) = (change.old.as_ref().map(row), change.new.as_ref().map(row));
        let see = |row: &Vec<Option<&[u8]>>| Some(self.see(node, condition, row)).filter(|seen| seen.holds);
        let (was, is) = (old.as_ref().and_then(see), new.as_ref().and_then(see));
        let op = change.op.saturating_add(OUTER_OPS);
        let place = Place { xid: at.xid, lsn: at.lsn, op };
        let handle = &node.shape.handle.to_string();
        let (mut body, mut headers) = (Vec::new(), Vec::new());
        let projection = &node.projection;
        let mut tell = |op: u32, body: &mut Vec<u8>, headers: &mut Vec<u8>| {
            out.add(private(node.slot), &[node.slot], op, |out| with_headers(out, body, headers));
            body.clear();
            headers.clear();
        };
        match (old, new, was, is) {
            (Some(old), _, Some(_), None) => {
                projection.delete(place, &old[..], &mut body);
                tell(op, &mut body, &mut headers);
            }
            (_, Some(new), None, Some(is)) => {
                projection.insert(place, &new[..], &mut body);
                is.push_headers(condition, handle, None, &mut headers);
                tell(op, &mut body, &mut headers);
            }
            (Some(old), Some(new), Some(was), Some(is)) => match projection.difference(&old[..], &new[..]) {
                Difference::Nothing if was == is => {}
                Difference::Nothing | Difference::Columns => {
                    projection.update(place, &old[..], &new[..], &mut body);
                    is.push_headers(condition, handle, Some(&was), &mut headers);
                    tell(op, &mut body, &mut headers);
                }
                Difference::Key => {
                    projection.key_change_delete(place, &old[..], &new[..], &mut body);
                    tell(op, &mut body, &mut headers);
                    projection.key_change_insert(place, &old[..], &new[..], &mut body);
                    is.push_headers(condition, handle, None, &mut headers);
                    tell(op + 1, &mut body, &mut headers);
                }
            },
            _ => {}
        }
    }

    fn see(&self, node: &Node, condition: &thalweg_filter::Condition, row: &[Option<&[u8]>]) -> super::seen::Seen {
        node.see(condition, &self.sets, row)
    }

    /// A changed row of the table that an inner query selects from.
    fn inner_change(
        &self,
        node: &mut Node,
        set: &mut Set,
        changes: &mut Changes,
        change: &RowChange,
        at: At,
        out: &mut Transaction,
    ) {
        let Some(mut inner) = node.inner.take() else { return };
        let old = change.old.as_ref().map(row);
        let new = change.new.as_ref().map(row);
        let selects = |row: &Vec<Option<&[u8]>>| node.selects(&self.sets, row);
        let (old_key, new_key) = (old.as_ref().map(|old| inner.key_of(old)), new.as_ref().map(|new| inner.key_of(new)));
        let was = old_key.as_ref().is_some_and(|key| inner.rows.contains_key(key));
        let is = new.as_ref().is_some_and(selects);
        for pending in node.pendings.iter_mut().filter(|pending| pending.reached) {
            pending.touched.extend(old_key.iter().chain(&new_key).cloned());
        }
        let op = change.op.saturating_add(INNER_OPS);
        let place = Place { xid: at.xid, lsn: at.lsn, op };
        let projection = &node.projection;
        let slot = [node.slot];
        let same = old_key == new_key;
        match (&old, &new) {
            (Some(old), Some(new)) if was && is && same => {
                if projection.difference(&old[..], &new[..]) != Difference::Nothing {
                    out.add(private(node.slot), &slot, op, |out| projection.update(place, &old[..], &new[..], out));
                }
            }
            _ => {
                if let Some(old) = old.as_ref().filter(|_| was) {
                    out.add(private(node.slot), &slot, op, |out| projection.delete(place, &old[..], out));
                }
                if let Some(new) = new.as_ref().filter(|_| is) {
                    let place = Place { op: op + 1, ..place };
                    out.add(private(node.slot), &slot, op + 1, |out| projection.insert(place, &new[..], out));
                }
            }
        }
        if let (true, Some(key)) = (was, &old_key) {
            take(&mut inner, set, changes, key);
        }
        if let (true, Some(cells)) = (is, &change.new) {
            put(&mut inner, set, changes, cells.clone());
        }
        node.inner = Some(inner);
    }

    /// Rows of an inner shape that go because the sets below it changed.
    fn inner_rows_leave(
        &self,
        node: &mut Node,
        set: &mut Set,
        changes: &mut Changes,
        at: At,
        next: &mut dyn FnMut() -> u32,
        out: &mut Transaction,
    ) {
        let Some(mut inner) = node.inner.take() else { return };
        let left: Vec<Box<[u8]>> = inner
            .rows
            .iter()
            .filter(|(_, (cells, _))| !node.selects(&self.sets, &row(cells)))
            .map(|(key, _)| key.clone())
            .collect();
        for key in left {
            while let Some((cells, _)) = inner.rows.get(&key) {
                let cells = cells.clone();
                let (projection, op) = (&node.projection, next());
                let place = Place { xid: at.xid, lsn: at.lsn, op };
                out.add(private(node.slot), &[node.slot], op, |out| projection.delete(place, &row(&cells)[..], out));
                take(&mut inner, set, changes, &key);
            }
        }
        node.inner = Some(inner);
    }

    /// The snapshot from which rows are fetched.
    pub(crate) fn asked(&mut self, asks: &[Ask], snapshot: &PgSnapshot) {
        for ask in asks {
            if let Some(node) = self.nodes.get_mut(&ask.shape)
                && let Some(pending) = node.pendings.iter_mut().find(|pending| pending.number == ask.pending)
            {
                pending.snapshot = Some(snapshot.clone());
            }
        }
    }

    /// Rows that were fetched.
    pub(crate) fn arrived(&mut self, shape: u64, pending: u64, rows: Vec<Cells>) {
        if let Some(node) = self.nodes.get_mut(&shape)
            && let Some(pending) = node.pendings.iter_mut().find(|known| known.number == pending)
        {
            pending.rows = Some(rows);
        }
    }

    /// A transaction is about to be applied, or (`xid` is `None`) everything before `lsn` was: which boundaries that passes.
    pub(crate) fn pass(&mut self, xid: Option<u32>, lsn: u64) -> Verdict {
        let mut verdict = Verdict::default();
        for number in self.waiting.clone() {
            let Some(node) = self.nodes.get_mut(&number) else { continue };
            for at in 0..node.pendings.len() {
                let Some(snapshot) = &node.pendings[at].snapshot else { break };
                let contained = match xid {
                    Some(xid) => snapshot.contains(xid, lsn),
                    None => lsn < snapshot.lsn,
                };
                match (node.pendings[at].reached, contained) {
                    (true, true) if xid.is_some() => {
                        // It committed after another that the snapshot does not have, and became visible before it.
                        verdict.drop.push((Arc::clone(&node.shape), "transactions became visible in another order"));
                        break;
                    }
                    (true, _) => {}
                    (false, true) => break,
                    (false, false) => reach(node, at, self.last_lsn, &mut self.held),
                }
            }
        }
        verdict
    }

    /// The next rows that came and whose boundary is passed, as bodies after the last transaction.
    pub(crate) fn publish(&mut self, split_bytes: usize) -> Option<Publication> {
        let ready = |node: &Node| node.pendings.front().is_some_and(|first| first.reached && first.rows.is_some());
        let number = *self.waiting.iter().find(|number| self.nodes.get(*number).is_some_and(ready))?;
        let mut node = self.nodes.remove(&number)?;
        let mut pending = node.pendings.pop_front()?;
        let at = At { xid: pending.xid, lsn: self.last_lsn };
        let own = At { lsn: pending.place.0, ..at };
        let mut out = Transaction::new(at.xid, at.lsn, split_bytes);
        let mut verdict = Verdict::default();
        let rows = pending.rows.take().unwrap_or_default();
        let mut moves = Moves::default();
        if let Some(mut set) = self.sets.remove(&number) {
            let mut changes = set.begin();
            for cells in rows {
                let mut next = || pending.next_op();
                self.inner_row_comes(&mut node, &mut set, &mut changes, &pending, cells, own, &mut next, &mut out);
            }
            moves = set.end(changes);
            self.sets.insert(number, set);
        } else {
            self.outer_rows_come(&node, &pending, &rows, &mut out);
        }
        if !node.pendings.iter().any(|pending| pending.reached) {
            self.held.remove(&node.slot);
        }
        let (shape, slot) = (Arc::clone(&node.shape), node.slot);
        let users = node.inner.as_ref().map(|inner| inner.users.clone()).unwrap_or_default();
        if node.pendings.is_empty() {
            self.waiting.retain(|waiting| *waiting != number);
        }
        self.nodes.insert(number, node);
        if !moves.is_empty() {
            let moves = Arc::new(moves);
            let mut affected: BTreeMap<(usize, u64), Moved> = BTreeMap::new();
            for user in users {
                if let Some(above) = self.nodes.get(&user) {
                    affected.entry((above.depth, user)).or_default().moves.push((number, Arc::clone(&moves)));
                }
            }
            self.spread(affected, at, When::After, &mut out, &mut verdict);
        }
        self.uncap();
        Some(Publication { transaction: out, shape, pending: pending.number, boundary: own.lsn, slot, verdict })
    }

    fn outer_rows_come(&self, node: &Node, pending: &Pending, rows: &[Cells], out: &mut Transaction) {
        let (Some(condition), Some(snapshot)) = (node.condition(), &pending.snapshot) else { return };
        let handle = &node.shape.handle.to_string();
        let slot = [node.slot];
        if pending.keys.is_empty() {
            return;
        }
        tell(node, Move::In, &pending.keys, pending.xid, &mut || pending.next_op(), out);
        for cells in rows {
            let row = row(cells);
            let (before, after) = node.see_at_boundary(condition, &self.sets, pending, &row);
            if before.holds || !after.holds {
                continue;
            }
            let mut headers = IS_MOVE_IN.to_vec();
            after.push_headers(condition, handle, None, &mut headers);
            let op = pending.next_op();
            out.add(private(node.slot), &slot, op, |out| node.projection.table_row_with(&row[..], &headers, out));
        }
        out.add(private(node.slot), &slot, pending.next_op(), |out| push_snapshot_end(out, snapshot, true));
    }

    #[expect(clippy::too_many_arguments, reason = "one caller")]
    fn inner_row_comes(
        &self,
        node: &mut Node,
        set: &mut Set,
        changes: &mut Changes,
        pending: &Pending,
        cells: Cells,
        at: At,
        next: &mut dyn FnMut() -> u32,
        out: &mut Transaction,
    ) {
        let Some(condition) = node.condition().cloned() else { return };
        let comes = {
            let row = row(&cells);
            let (before, after) = node.see_at_boundary(&condition, &self.sets, pending, &row);
            !before.holds && after.holds
        };
        let Some(mut inner) = node.inner.take() else { return };
        let key = inner.key_of(&row(&cells));
        // What was changed since the boundary is known better from the change.
        if comes && !pending.touched.contains(&key) && self.still_selected(node, &condition, &cells) {
            let op = next();
            let place = Place { xid: at.xid, lsn: at.lsn, op };
            let projection = &node.projection;
            out.add(private(node.slot), &[node.slot], op, |out| projection.insert(place, &row(&cells)[..], out));
            put(&mut inner, set, changes, cells);
        }
        node.inner = Some(inner);
    }

    /// Whether values that went since the boundary have taken the row with them.
    fn still_selected(&self, node: &Node, condition: &thalweg_filter::Condition, cells: &Cells) -> bool {
        node.see(condition, &self.sets, &row(cells)).holds
    }

    /// Nothing of the transaction at `lsn` and of those after it is complete in the shape, and in those above it.
    fn cap(&self, node: &Node, lsn: u64) {
        node.shape.lock().cap(lsn.saturating_sub(1));
        for user in node.inner.iter().flat_map(|inner| &inner.users) {
            if let Some(above) = self.nodes.get(user) {
                self.cap(above, lsn);
            }
        }
    }

    /// Sets anew how far each shape is complete.
    fn uncap(&self) {
        for node in self.nodes.values() {
            let lsn = self.complete(node);
            node.shape.lock().set_cap(lsn);
        }
    }

    /// Before which position everything is there; `None`: it is all there.
    fn complete(&self, node: &Node) -> Option<u64> {
        let own = node.pendings.front().map(|pending| pending.lsn.saturating_sub(1));
        let below = node.sets.iter().flatten().filter_map(|set| self.complete(self.nodes.get(set)?));
        own.into_iter().chain(below).min()
    }
}

/// What came to one node.
#[derive(Default)]
struct Moved {
    changes: Vec<Arc<RowChange>>,
    moves: Vec<(u64, Arc<Moves>)>,
}

/// What moves of sets do to a node.
#[derive(Default)]
struct Step {
    gone: Vec<(usize, Key)>,
    pending: Option<Pending>,
}

/// When sets change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// By a transaction that is being applied.
    Within,
    /// After one, because rows came.
    After,
}

impl Pending {
    fn next_op(&self) -> u32 {
        let op = self.place.1.get();
        self.place.1.set(op.saturating_add(1));
        op
    }

    /// A value went again before its rows were there: whether it was one of these.
    fn take_back(&mut self, position: usize, key: &Key) -> bool {
        let was = self.before.take(position, key);
        if was {
            self.keys.retain(|(at, known)| *at != position || known != key);
        }
        was
    }
}

/// What moves of the sets below mean: patterns of rows that go now, and values whose rows come.
fn sets_moved(node: &mut Node, moves: &[(u64, Arc<Moves>)], at: At) -> Result<Step, &'static str> {
    let mut step = Step::default();
    let Some(condition) = node.condition().cloned() else { return Ok(step) };
    let mut gained = Vec::new();
    let mut before = Overlay::default();
    for (position, membership) in condition.memberships() {
        for (_, moves) in moves.iter().filter(|(set, _)| node.sets.get(position) == Some(&Some(*set))) {
            if membership.negated && moves.nulls {
                return Err("nulls came to the inner query of a NOT IN, or went");
            }
            // A row with a null may be decided by any value that comes or goes.
            if membership.negated && membership.width() > 1 && node.has_nullable(membership) {
                return Err("values of an inner query of NOT IN with several columns, which may be null, came or went");
            }
            // Null is not among the values of an empty set.
            let nothing = moves
                .filled
                .filter(|_| membership.negated && membership.width() == 1)
                .map(|filled| (membership.null(), filled));
            for (key, entered) in moves.keys.iter().cloned().chain(nothing) {
                if entered != membership.negated {
                    before.put(position, &key, !entered);
                    gained.push((position, key));
                    continue;
                }
                let mut early = node.pendings.iter_mut().filter(|pending| !pending.reached);
                if early.any(|pending| pending.take_back(position, &key)) {
                    continue;
                }
                for late in node.pendings.iter_mut().filter(|pending| pending.reached) {
                    late.boundary.put_first(position, &key, !entered);
                }
                step.gone.push((position, key));
            }
        }
    }
    if gained.len() > KEYS_MAX {
        return Err("too many values of an inner query came at once");
    }
    if !gained.is_empty() {
        step.pending = Some(Pending {
            number: 0,
            xid: at.xid,
            lsn: at.lsn,
            keys: gained,
            before,
            boundary: Overlay::default(),
            snapshot: None,
            reached: false,
            rows: None,
            place: (0, Cell::new(0)),
            touched: HashSet::new(),
        });
    }
    Ok(step)
}

/// The boundary of a pending is here: its values count from now on.
fn reach(node: &mut Node, at: usize, last_lsn: u64, held: &mut HashSet<u32>) {
    node.after.at(last_lsn);
    let first = node.after.next(ROWS_MAX);
    let pendings = node.pendings.make_contiguous();
    let (earlier, [pending, ..]) = pendings.split_at_mut(at) else { return };
    for (position, key) in &pending.keys {
        if let Some(was) = pending.before.get(*position, key) {
            earlier.iter_mut().for_each(|other| other.boundary.put_first(*position, key, was));
        }
    }
    pending.reached = true;
    pending.place = (last_lsn, Cell::new(first));
    held.insert(node.slot);
    node.shape.lock().hold(pending.number);
}

/// Bodies of a node's own lie together.
fn private(slot: u32) -> u32 {
    u32::MAX - slot
}

/// Tells a shape's clients which of their rows to look at.
fn tell(
    node: &Node,
    direction: Move,
    keys: &[(usize, Key)],
    xid: u32,
    op: &mut dyn FnMut() -> u32,
    out: &mut Transaction,
) {
    let handle = node.shape.handle.to_string();
    for keys in keys.chunks(PATTERNS_MAX) {
        let hashes: Vec<(u32, String)> = keys.iter().map(|(at, key)| (*at as u32, hash(&handle, key))).collect();
        let patterns: Vec<Pattern<'_>> =
            hashes.iter().map(|(position, value)| Pattern { position: *position, value }).collect();
        out.add(private(node.slot), &[node.slot], op(), |out| push_move(out, direction, &patterns, &[xid]));
    }
}

fn put(inner: &mut Inner, set: &mut Set, changes: &mut Changes, cells: Cells) {
    let key = inner.key_of(&row(&cells));
    set.add(inner.query.value(&row(&cells)), changes);
    inner.rows.entry(key).or_insert_with(|| (cells, 0)).1 += 1;
}

fn take(inner: &mut Inner, set: &mut Set, changes: &mut Changes, key: &[u8]) {
    let Some((cells, count)) = inner.rows.get_mut(key) else { return };
    set.remove(inner.query.value(&row(cells)), changes);
    *count -= 1;
    if *count == 0 {
        inner.rows.remove(key);
    }
}

fn ask(node: &Node, pending: &Pending) -> Ask {
    let mut filters = Vec::new();
    if let Some(condition) = node.condition() {
        for (position, _) in condition.memberships() {
            let keys: Vec<Key> =
                pending.keys.iter().filter(|(at, _)| *at == position).map(|(_, key)| key.clone()).collect();
            if !keys.is_empty() {
                filters.push(condition.sql_moving(position, &keys));
            }
        }
    }
    Ask {
        shape: node.shape.number,
        pending: pending.number,
        table: Arc::clone(&node.table),
        columns: node.columns(),
        filter: format!("({})", filters.join(") OR (")),
    }
}
