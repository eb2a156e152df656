//! The state that the change path decides with: the router, the recently applied transactions, the graph of subqueries,
//! and the entries that wait to be durable.
//!
//! One lock is around all of it, so a shape is registered, is told of a transaction, and is taken out
//! between two steps of the applier. No method waits for Postgres, for the disk or for a client. The locks that methods
//! take, of one shape's state at a time and of counters in the catalog, are held for a few instructions wherever they
//! are taken.

use crate::format::references::{Group, References};
use crate::routed_shapes::RoutedShapes;
use crate::router::{Invalidation, Router};
use crate::shape::{Phase, Shape};
use crate::state::transaction::Transaction;
use crate::subquery::{Ended, FetchedRows, Graph, MoveIn, Node, Verdict};
use std::collections::HashSet;
use std::sync::Arc;
use thalweg_base::{LogId, Lsn};
use thalweg_http::Waker;
use thalweg_pg::pgoutput::Message;
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_core::state::recent::{Recent, RecentMark};
use thalweg_shapes_model::name::Name;
use thalweg_shapes_model::predicate::Predicate;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;

#[derive(Default)]
pub(crate) struct Feed {
    pub(crate) router: Router,
    /// The shapes that the router knows by their ids.
    shapes: RoutedShapes,
    pub(crate) graph: Graph,
    pub(crate) recent: Recent,
    /// Shapes whose newest entries wait until the journal is durable up to the position.
    holding: Vec<(Arc<Shape>, Lsn)>,
    /// Identities of inner shapes that are being made.
    pub(crate) inner_in_flight: HashSet<String>,
}

/// An inner shape as a definition that needs it finds it.
pub(crate) enum Claim {
    /// Its rows are all there; its number.
    Made(u64),
    /// The caller is to make it.
    Ours,
    /// Another thread makes it.
    Others,
}

/// Why a shape with subqueries is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRegistered {
    /// The shape was dropped, or an inner shape that it needs, or its table was altered.
    Gone,
    /// A transaction that was applied is not in the snapshot.
    Missed,
    /// An inner shape that it needs waits for rows.
    Unsettled,
}

/// The remaining work for a shape that was taken out of the feed: logs to delete, waiters to wake.
pub(crate) struct Retired {
    pub(crate) number: u64,
    pub(crate) handle: Name,
    /// The shape, if it went because of another one.
    pub(crate) dependent: Option<Arc<Shape>>,
    pub(crate) logs: Vec<LogId>,
    pub(crate) waiters: Vec<(u64, Waker)>,
}

/// Entries that one publication of moved-in rows comes to.
pub(crate) struct MoveInEntries {
    /// Of the shape that waited for the rows, each with its transaction's xid.
    pub(crate) rows: Vec<(u32, Entry)>,
    /// The references to these.
    pub(crate) own: References,
    /// Of other shapes, which the rows have changed.
    pub(crate) others: Vec<(Arc<Shape>, Entry)>,
    /// The references to those of the other shapes that do not wait for rows themselves.
    pub(crate) references: References,
}

impl Feed {
    /// A transaction that commits at `lsn` is about to be read. `wanted`: it was not applied before.
    pub(crate) fn begin(&mut self, xid: u32, lsn: u64, wanted: bool) -> Verdict {
        self.recent.push(xid);
        self.router.turn();
        if wanted && self.graph.is_waiting() { self.graph.pass(Some(xid), lsn) } else { Verdict::default() }
    }

    /// Takes in one message between a transaction's begin and its commit. Returns its effects beyond its rows; `Err`:
    /// relations whose place among partitions must be known before ([`Router::know_ancestors`]).
    pub(crate) fn change(
        &mut self,
        message: &Message<'_>,
        into: &mut Transaction,
    ) -> Result<Vec<Invalidation>, Vec<u32>> {
        let unknown = self.router.unknown_relations(message);
        if unknown.is_empty() { Ok(self.router.change(message, into)) } else { Err(unknown) }
    }

    /// Has the shapes with subqueries see a whole transaction. Returns how often a predicate was evaluated since the
    /// last call, too.
    pub(crate) fn see(&mut self, transaction: &mut Transaction) -> (Verdict, u64) {
        let verdict = if self.graph.is_empty() { Verdict::default() } else { self.see_graph(transaction) };
        (verdict, self.router.take_evaluations() + self.graph.take_evaluations())
    }

    fn see_graph(&mut self, transaction: &mut Transaction) -> Verdict {
        match transaction.take_kept() {
            Ok(changes) => self.graph.transaction(&changes, transaction),
            Err(tables) => {
                let drop = self.graph.of_tables(&tables).into_iter();
                let why = || Ended::from("one transaction changed too much");
                Verdict { drop: drop.map(|shape| (shape, why())).collect(), ..Verdict::default() }
            }
        }
    }

    /// The references of a transaction: which shapes have which of its encoded changes. Changes that belong behind
    /// pending rows are left out; the references to these rows include them.
    pub(crate) fn references(&self, transaction: &Transaction) -> References {
        let held = self.graph.held();
        let mut groups: Vec<Group> = Vec::with_capacity(transaction.placed().len());
        let mut before: Option<&Arc<[RouteId]>> = None;
        for placed in transaction.placed() {
            if !held.is_empty() && placed.route_ids.iter().all(|route_id| held.contains(route_id)) {
                continue;
            }
            let shapes = match (before, groups.last()) {
                (Some(route_ids), Some(group)) if *route_ids == placed.route_ids => Arc::clone(&group.shapes),
                _ => {
                    let numbers =
                        placed.route_ids.iter().filter_map(|route_id| Some(self.shapes.get(*route_id)?.number));
                    let mut numbers: Vec<u64> = numbers.collect();
                    numbers.sort_unstable();
                    numbers.into()
                }
            };
            before = Some(&placed.route_ids);
            groups.push(Group { at: placed.at, len: placed.len, op: placed.op, shapes });
        }
        groups.retain(|group| !group.shapes.is_empty());
        References { groups, ..References::new(transaction.lsn, transaction.xid) }
    }

    /// Publishes a transaction's entries to its shapes. Returns the waiters to wake.
    pub(crate) fn publish(&self, transaction: &Transaction, chunk_bytes: u64) -> Vec<(u64, Waker)> {
        let mut waiters = Vec::new();
        for placed in transaction.placed() {
            let entry = Entry { lsn: transaction.lsn, at: placed.at, op: placed.op, len: placed.len };
            for shape in placed.route_ids.iter().filter_map(|route_id| self.shapes.get(*route_id)) {
                let mut state = shape.lock();
                state.push(transaction.xid, entry, chunk_bytes);
                if state.has_waiters() {
                    waiters.append(&mut state.take_waiters());
                }
            }
        }
        waiters
    }

    /// The shapes that have any of a transaction's encoded changes.
    pub(crate) fn shapes_with(&self, transaction: &Transaction) -> Vec<Arc<Shape>> {
        let route_ids: HashSet<RouteId> =
            transaction.placed().iter().flat_map(|placed| placed.route_ids.iter().copied()).collect();
        route_ids.into_iter().filter_map(|route_id| self.shapes.get(route_id).cloned()).collect()
    }

    /// Everything before `lsn` was applied.
    pub(crate) fn pass(&mut self, lsn: u64) -> Verdict {
        if self.graph.is_listening() { self.graph.pass(None, lsn) } else { Verdict::default() }
    }

    /// Whether the graph waits for rows or transactions, or entries wait to be durable.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.holding.is_empty() || self.graph.is_listening()
    }

    /// Takes in rows that were fetched. Returns the shape that cannot go on, and why, if they could not be.
    pub(crate) fn fetched(&mut self, fetched: FetchedRows) -> Option<(Arc<Shape>, String)> {
        match fetched.rows {
            Ok(rows) => {
                self.graph.arrived(fetched.shape, fetched.pending, rows);
                None
            }
            Err(why) => Some((self.graph.shape(fetched.shape)?, why)),
        }
    }

    /// The entries that one shape's fetched rows cause, for it and for others.
    pub(crate) fn move_in_entries(&self, of: &MoveIn) -> MoveInEntries {
        let MoveIn { transaction, shape, boundary, route_id, .. } = of;
        let number: Arc<[u64]> = [shape.number].into();
        let mut found = MoveInEntries {
            rows: Vec::new(),
            own: References::new(*boundary, transaction.xid),
            others: Vec::new(),
            references: References::new(transaction.lsn, transaction.xid),
        };
        for placed in transaction.placed() {
            let entry = Entry { lsn: transaction.lsn, at: placed.at, op: placed.op, len: placed.len };
            for at in placed.route_ids.iter() {
                let Some(of) = self.shapes.get(*at) else { continue };
                let group = |shapes| Group { at: placed.at, len: placed.len, op: placed.op, shapes };
                if at == route_id {
                    found.rows.push((transaction.xid, Entry { lsn: *boundary, ..entry }));
                    found.own.groups.push(group(Arc::clone(&number)));
                } else {
                    found.others.push((Arc::clone(of), entry));
                    if !self.graph.held().contains(at) {
                        found.references.groups.push(group([of.number].into()));
                    }
                }
            }
        }
        found
    }

    /// The rows of a move-in are in the shape `number` or held by it; `holding`: shapes that show them when the journal
    /// is durable up to the position.
    pub(crate) fn moved_in(&mut self, number: u64, holding: Vec<(Arc<Shape>, Lsn)>) {
        self.graph.published(number);
        self.holding.extend(holding);
    }

    /// Shapes wait for rows from now on, and a frame says so that ends at `end`: until it is durable, they and the shapes
    /// above them show no later change. A start that does not find the frame would bring them back, and fetch the rows
    /// for a position before changes that clients have seen.
    pub(crate) fn hold_began(&mut self, began: &[u64], end: Lsn) {
        for number in began {
            let shapes = self.graph.shape(*number).into_iter().chain(self.graph.above(*number));
            for shape in shapes.filter(|shape| !shape.is_inner()) {
                shape.lock().hold_until(end);
                self.holding.push((shape, end));
            }
        }
    }

    /// The shapes that can publish waiting entries, now that the journal is durable up to `durable`.
    pub(crate) fn take_durable(&mut self, durable: Lsn) -> Vec<Arc<Shape>> {
        let ready = self.holding.extract_if(.., |(_, end)| *end <= durable);
        ready.map(|(shape, _)| shape).collect()
    }

    /// Registers a shape: it gets every change from here on. Returns the mark: the shape's snapshot must contain all
    /// transactions that were applied before it. `None`: the shape was retired before this call, or the table has
    /// shapes that see its changes by other columns. `selected` are places of columns.
    pub(crate) fn register(
        &mut self,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        selected: &[usize],
        predicate: Option<Arc<Predicate>>,
    ) -> Option<RecentMark> {
        if self.router.table(table.oid).is_some_and(|known| !known.same_shape(table)) {
            return None;
        }
        let mut state = shape.lock();
        if !matches!(state.phase, Phase::Snapshotting | Phase::Live) {
            return None;
        }
        state.route_id = Some(self.insert(shape, table, selected, predicate));
        Some(self.recent.mark())
    }

    /// Takes a shape in without asking whether its table is as it was; its route id.
    pub(crate) fn insert(
        &mut self,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        selected: &[usize],
        predicate: Option<Arc<Predicate>>,
    ) -> RouteId {
        let route_id = self.router.insert(&shape.family, table, selected, predicate);
        self.shapes.insert(route_id, Arc::clone(shape));
        route_id
    }

    fn insert_dependent(&mut self, shape: &Arc<Shape>, table: &Arc<Table>) -> RouteId {
        let route_id = self.router.insert_dependent(table);
        self.shapes.insert(route_id, Arc::clone(shape));
        route_id
    }

    /// The shape that has a route id.
    pub(crate) fn shape(&self, route_id: RouteId) -> Option<&Arc<Shape>> {
        self.shapes.get(route_id)
    }

    /// The shapes of a table.
    pub(crate) fn shapes_of(&self, table: u32) -> Vec<Arc<Shape>> {
        self.router.route_ids_of_table(table).filter_map(|route_id| self.shapes.get(route_id).cloned()).collect()
    }

    /// Looks for an inner shape by its identity; if there is none, the first caller is to make it, and to remove the
    /// claim ([`Feed::inner_in_flight`]) when that is over.
    pub(crate) fn claim_inner(&mut self, identity: &str) -> Claim {
        match self.graph.inner(identity) {
            Some((number, node)) if !node.is_loading() => Claim::Made(number),
            Some(_) => Claim::Others,
            None if self.inner_in_flight.insert(identity.to_owned()) => Claim::Ours,
            None => Claim::Others,
        }
    }

    /// Registers a shape whose changes the graph finds: it gets every change from here on, and its rows are those of
    /// `snapshot`, which has all that was applied before. Returns how its rows are encoded.
    pub(crate) fn register_dependent(
        &mut self,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        sets: &[Option<u64>],
        snapshot: Arc<PgSnapshot>,
        chunk_bytes: u64,
        node: &mut dyn FnMut(RouteId, PgSnapshot) -> Node,
    ) -> Result<Projection, NotRegistered> {
        // Shapes of one table see its changes by the same columns.
        let is_altered = self.router.table(table.oid).is_some_and(|known| !known.same_shape(table));
        if is_altered || !self.graph.has(sets) || !matches!(shape.lock().phase, Phase::Snapshotting) {
            return Err(NotRegistered::Gone);
        }
        if self.missed_any(&snapshot) {
            return Err(NotRegistered::Missed);
        }
        if !self.graph.is_settled(sets) {
            return Err(NotRegistered::Unsettled);
        }
        let route_id = self.insert_dependent(shape, table);
        let node = node(route_id, (*snapshot).clone());
        let projection = node.projection.clone();
        // Rows and changes that come from here on are ordered by the shape, and it drops the changes that its snapshot
        // has.
        let mut state = shape.lock();
        state.route_id = Some(route_id);
        state.snapshot_taken(snapshot, chunk_bytes);
        drop(state);
        self.graph.insert(node);
        Ok(projection)
    }

    /// Gives a shape with subqueries, or an inner shape, its place again.
    pub(crate) fn restore(
        &mut self,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        node: impl FnOnce(RouteId, Option<PgSnapshot>) -> Node,
    ) {
        let route_id = self.insert_dependent(shape, table);
        let contained = {
            let mut state = shape.lock();
            state.route_id = Some(route_id);
            // The transactions in its rows were applied long ago, or its log tells that they are to be left out.
            state.contained().cloned()
        };
        self.graph.insert(node(route_id, contained));
    }

    /// Whether a transaction that began to be applied before `mark` is not in the snapshot.
    pub(crate) fn missed(&self, mark: RecentMark, snapshot: &PgSnapshot) -> bool {
        self.recent.missed(mark, snapshot)
    }

    /// Whether a transaction that began to be applied is not in the snapshot.
    pub(crate) fn missed_any(&self, snapshot: &PgSnapshot) -> bool {
        self.recent.missed(self.recent.mark(), snapshot)
    }

    /// Takes a shape out, which ends in `phase`, with its dependent shapes and the inner shapes that only it needed;
    /// the shape itself comes first. `table_is_free` gets the oids of the tables whose last shape this was.
    pub(crate) fn retire(&mut self, shape: &Shape, phase: Phase, table_is_free: impl Fn(u32)) -> Vec<Retired> {
        let (first, mut dependents) = self.retire_one(shape, phase, &table_is_free);
        let mut retired = vec![first];
        while let Some(dependent) = dependents.pop() {
            let (other, more) = self.retire_one(&dependent, Phase::Gone, &table_is_free);
            retired.push(Retired { dependent: Some(dependent), ..other });
            dependents.extend(more);
        }
        retired
    }

    fn retire_one(&mut self, shape: &Shape, phase: Phase, table_is_free: &impl Fn(u32)) -> (Retired, Vec<Arc<Shape>>) {
        let (route_id, logs, waiters) = {
            let mut state = shape.lock();
            state.phase = phase;
            let bases = state.bases.take();
            let logs = state.log.take().into_iter().chain(bases.iter().flat_map(|bases| bases.logs()));
            (state.route_id.take(), logs.collect(), state.take_waiters())
        };
        if let Some(route_id) = route_id {
            if self.shapes.remove(route_id, shape.number) {
                self.router.remove(route_id);
            }
            if self.router.table(shape.family.table).is_none() {
                table_is_free(shape.family.table);
            }
        }
        let dependents = self.graph.remove(shape.number);
        (Retired { number: shape.number, handle: shape.handle, dependent: None, logs, waiters }, dependents)
    }

    /// Another history begins; all shapes of the one before are dropped.
    pub(crate) fn forget_source(&mut self) {
        self.router.forget_source();
        self.graph.forget_source();
        self.holding.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{State, sample};
    use thalweg_shapes_model::table::sample::{INT4, column, table};

    fn shape(number: u64) -> Arc<Shape> {
        let mut state = State::default();
        state.phase = Phase::Snapshotting;
        Arc::new(sample(number, state))
    }

    #[test]
    fn a_shape_that_was_taken_out_is_not_registered() {
        let (mut feed, shape) = (Feed::default(), shape(1));
        let table = Arc::new(table("t", vec![column("id", INT4, Some(0))]));
        feed.retire(&shape, Phase::Gone, |_| {});
        assert_eq!(feed.register(&shape, &table, &[0], None), None);
        assert!(
            feed.router.tables().is_empty() && shape.lock().route_id.is_none(),
            "nothing would ever take it out again"
        );
    }

    #[test]
    fn the_last_shape_of_a_table_frees_it() {
        let (mut feed, shapes) = (Feed::default(), [shape(1), shape(2)]);
        let table = Arc::new(table("t", vec![column("id", INT4, Some(0))]));
        for shape in &shapes {
            assert_eq!(feed.register(shape, &table, &[0], None), Some(RecentMark::START));
        }
        let freed = std::cell::RefCell::new(Vec::new());
        for (shape, free) in shapes.iter().zip([vec![], vec![shapes[0].family.table]]) {
            let retired = feed.retire(shape, Phase::Gone, |table| freed.borrow_mut().push(table));
            assert_eq!(retired.iter().map(|retired| retired.number).collect::<Vec<_>>(), [shape.number]);
            assert_eq!(*freed.borrow(), free);
        }
    }
}
