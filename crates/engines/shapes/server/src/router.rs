//! Which shapes a change belongs to, and the encoded changes that they get of it.

use crate::state::transaction::Transaction;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_filter::Explanation;
use thalweg_pg::pgoutput::{Columns, Message, OldTuple, Tuple, Value};
use thalweg_shapes_core::encode::projection::{Difference, Place, Projection};
use thalweg_shapes_core::route::ids::{ProjectionId, RouteId};
use thalweg_shapes_core::route::matching::Matcher;
use thalweg_shapes_model::definition::Replica;
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::predicate::Predicate;
use thalweg_shapes_model::row::RowChange;
use thalweg_shapes_model::table::{FIRST_NORMAL_OID, Kind, Table, TableName};

/// A row by the table's columns. `None`: NULL.
type Cells<'a> = Vec<Option<&'a [u8]>>;

/// An effect of a change beyond its rows: shapes to drop, or a table to describe again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// The table is not the one that its shapes were made for, or its rows are all gone: they must be fetched again.
    Table { oid: u32, why: &'static str },
    /// A column that was never null is: the table as it must be now. Its rows look as before, so its shapes go on.
    Nullable(Arc<Table>),
    /// The where clause of a shape is too costly to evaluate for the row.
    Costly { route_id: RouteId },
}

/// A shape's place in the router.
struct Registration {
    /// [`DEPENDENT`]: its changes are found by the graph of subqueries.
    projection: ProjectionId,
    table: u32,
}

/// In place of a projection.
const DEPENDENT: ProjectionId = ProjectionId(u32::MAX);

/// All shapes of one table.
struct Route {
    table: Arc<Table>,
    /// Places of columns that are never null, as far as is known.
    strict: Vec<usize>,
    matcher: Matcher<RouteId>,
    /// The number of shapes whose changes the graph finds, a transaction at a time.
    dependents: u32,
}

impl Route {
    fn of(table: &Arc<Table>) -> Self {
        let mut route =
            Self { table: Arc::clone(table), strict: Vec::new(), matcher: Matcher::default(), dependents: 0 };
        route.describe(Arc::clone(table));
        route
    }

    fn describe(&mut self, table: Arc<Table>) {
        let strict = |at: &usize| table.columns[*at].not_null && table.columns[*at].generated.is_none();
        self.strict = (0..table.columns.len()).filter(strict).collect();
        self.table = table;
    }

    /// Whether a row shows that a column may be null after all.
    fn learn(&mut self, row: &[Option<&[u8]>]) -> Option<Invalidation> {
        self.strict.iter().find(|at| row[**at].is_none())?;
        self.describe(Arc::new(self.table.with_nulls(|at| row[at].is_none())));
        Some(Invalidation::Nullable(Arc::clone(&self.table)))
    }
}

/// A table as the stream describes it, and whose changes its changes are: its own, and those of the tables that it is a
/// partition of.
struct Relation {
    name: TableName,
    columns: Vec<(String, u32)>,
    targets: Vec<Target>,
    /// Tables whose changes these would be, but which have shapes that were made for other columns, and why.
    unfit: Vec<(u32, &'static str)>,
    /// The count of changes of the routes when `targets` was made.
    version: u64,
}

struct Target {
    table: u32,
    /// For each column of the table: its place in the stream's rows.
    places: Vec<usize>,
}

/// All shapes by the tables that they select from. Route ids are small numbers that are used again.
#[derive(Default)]
pub(crate) struct Router {
    registrations: Vec<Option<Registration>>,
    free: Vec<RouteId>,
    /// Route ids that come free when the transaction that is being read is over: until then it may name them.
    leaving: Vec<RouteId>,
    routes: HashMap<u32, Route>,
    /// The tables that a partition is part of.
    ancestors: HashMap<u32, Vec<u32>>,
    relations: HashMap<u32, Relation>,
    projections: Vec<Projection>,
    projection_ids: HashMap<(u32, Vec<usize>, Replica), ProjectionId>,
    /// Of the last shape that came.
    last: Option<(Arc<Family>, Arc<Table>, ProjectionId)>,
    /// Changes whenever `routes` or `ancestors` do.
    version: u64,
    evaluations: u64,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    old: Vec<RouteId>,
    new: Vec<RouteId>,
    costly: Vec<RouteId>,
    /// Route ids of one projection.
    part: Vec<RouteId>,
}

impl Router {
    /// Takes a shape of a family in: every change from now on is given to it. `selected` are places of columns.
    pub(crate) fn insert(
        &mut self,
        of: &Arc<Family>,
        table: &Arc<Table>,
        selected: &[usize],
        predicate: Option<Arc<Predicate>>,
    ) -> RouteId {
        let projection = match &self.last {
            // Most shapes are of the family of the one before.
            Some((family, known, id)) if Arc::ptr_eq(family, of) && Arc::ptr_eq(known, table) => *id,
            _ => {
                let id = self.projection(table, selected, of.replica);
                self.last = Some((Arc::clone(of), Arc::clone(table), id));
                id
            }
        };
        let route_id = self.claim_route_id(table, projection);
        self.route(table).matcher.insert(route_id, predicate);
        route_id
    }

    /// Takes a shape in whose changes the graph of subqueries finds.
    pub(crate) fn insert_dependent(&mut self, table: &Arc<Table>) -> RouteId {
        let route_id = self.claim_route_id(table, DEPENDENT);
        self.route(table).dependents += 1;
        route_id
    }

    fn claim_route_id(&mut self, table: &Table, projection: ProjectionId) -> RouteId {
        let route_id = self.free.pop().unwrap_or_else(|| {
            self.registrations.push(None);
            RouteId(self.registrations.len() as u32 - 1)
        });
        self.registrations[route_id.index()] = Some(Registration { projection, table: table.oid });
        // A part may have shapes as well as the whole.
        if self.ancestors.get(&table.oid) != Some(&table.ancestors) {
            self.know_ancestors([(table.oid, table.ancestors.clone())]);
        }
        route_id
    }

    fn route(&mut self, table: &Arc<Table>) -> &mut Route {
        self.routes.entry(table.oid).or_insert_with(|| {
            self.version += 1;
            Route::of(table)
        })
    }

    /// Takes the shape of a route id out.
    pub(crate) fn remove(&mut self, route_id: RouteId) {
        let Some(found) = self.registrations.get_mut(route_id.index()).and_then(Option::take) else { return };
        self.leaving.push(route_id);
        if let Some(route) = self.routes.get_mut(&found.table) {
            if found.projection == DEPENDENT {
                route.dependents -= 1;
            } else {
                route.matcher.remove(route_id);
            }
            if route.matcher.is_empty() && route.dependents == 0 {
                self.routes.remove(&found.table);
                self.version += 1;
            }
        }
    }

    /// A transaction begins: no later one names the route ids that were released before it, so they can be used again.
    pub(crate) fn turn(&mut self) {
        self.free.append(&mut self.leaving);
    }

    /// The route ids of a table's shapes.
    pub(crate) fn route_ids_of_table(&self, table: u32) -> impl Iterator<Item = RouteId> + '_ {
        let is_of = move |registration: &Registration| registration.table == table;
        (0..)
            .zip(&self.registrations)
            .filter(move |(_, found)| found.as_ref().is_some_and(is_of))
            .map(|(id, _)| RouteId(id))
    }

    /// The tables that have shapes.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        self.routes.values().map(|route| Arc::clone(&route.table)).collect()
    }

    pub(crate) fn table(&self, oid: u32) -> Option<&Arc<Table>> {
        self.routes.get(&oid).map(|route| &route.table)
    }

    /// The lookup by which changes of a table would find a predicate, among those of the table.
    pub(crate) fn explain(&self, table: u32, predicate: &Predicate) -> Explanation {
        match self.routes.get(&table) {
            Some(route) => route.matcher.explain(predicate),
            None => Matcher::<RouteId>::default().explain(predicate),
        }
    }

    /// How often a predicate was evaluated since this was asked last.
    pub(crate) fn take_evaluations(&mut self) -> u64 {
        std::mem::take(&mut self.evaluations)
    }

    /// The shapes that have a row of their table.
    #[cfg(test)]
    pub(crate) fn route_ids_of(&mut self, table: u32, row: &[Option<&[u8]>]) -> Vec<RouteId> {
        let mut route_ids = Vec::new();
        if let Some(route) = self.routes.get_mut(&table) {
            route.matcher.matching(row, &mut route_ids, &mut Vec::new());
        }
        route_ids
    }

    /// Records the tables that these tables are partitions of.
    pub(crate) fn know_ancestors(&mut self, tables: impl IntoIterator<Item = (u32, Vec<u32>)>) {
        for (oid, ancestors) in tables {
            self.ancestors.insert(oid, ancestors);
        }
        self.version += 1;
    }

    /// The tables of a message whose ancestors are unknown, if they matter now. Evaluated for each message of rows: the
    /// stream describes a table once, and a partitioned table may get its first shape after that.
    pub(crate) fn unknown_relations(&self, message: &Message<'_>) -> Vec<u32> {
        match message {
            Message::Insert { relation, .. } | Message::Update { relation, .. } | Message::Delete { relation, .. } => {
                self.is_unknown(*relation).then_some(*relation).into_iter().collect()
            }
            Message::Truncate { relations, .. } => {
                relations.iter().filter(|relation| self.is_unknown(*relation)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn is_unknown(&self, relation: u32) -> bool {
        // While the router has not changed since the last row, no query is needed.
        self.relations.get(&relation).is_some_and(|known| known.version != self.version)
            && !self.ancestors.contains_key(&relation)
            && self.wholes().next().is_some()
    }

    /// The tables that have parts, or may have.
    pub(crate) fn wholes(&self) -> impl Iterator<Item = u32> + '_ {
        let is_whole = |route: &Route| route.table.kind == Kind::Partitioned || !route.table.parts.is_empty();
        self.routes.iter().filter(move |(_, route)| is_whole(route)).map(|(oid, _)| *oid)
    }

    /// A table whose rows are as before has other parts, is a part of others, or has columns that may be null or not as
    /// they were not. Whether it is described in another way than before.
    pub(crate) fn moved(&mut self, table: Arc<Table>) -> bool {
        self.know_ancestors([(table.oid, table.ancestors.clone())]);
        let Some(route) = self.routes.get_mut(&table.oid) else { return false };
        if !route.table.same_shape(&table) {
            return false;
        }
        let differs = route.table.columns != table.columns;
        route.describe(table);
        differs
    }

    /// Another history begins, where oids mean other tables.
    pub(crate) fn forget_source(&mut self) {
        self.relations.clear();
        self.ancestors.clear();
        self.last = None;
        self.version += 1;
    }

    /// Forgets the described tables: a new stream describes its tables again.
    pub(crate) fn forget_relations(&mut self) {
        self.relations.clear();
    }

    fn projection(&mut self, table: &Table, selected: &[usize], replica: Replica) -> ProjectionId {
        let key = (table.oid, selected.to_vec(), replica);
        let made = Projection::new(table, selected, replica);
        match self.projection_ids.get(&key) {
            // The table may have been altered since: its projections are others then.
            Some(id) if self.projections[id.index()] == made => *id,
            _ => {
                self.projections.push(made);
                let id = ProjectionId(self.projections.len() as u32 - 1);
                self.projection_ids.insert(key, id);
                id
            }
        }
    }

    /// Takes in one message between a transaction's begin and its commit.
    pub(crate) fn change(&mut self, message: &Message<'_>, into: &mut Transaction) -> Vec<Invalidation> {
        match message {
            Message::Relation { id, namespace, name, columns, .. } => {
                self.describe(*id, namespace, name, *columns);
                Vec::new()
            }
            Message::Insert { relation, new, .. } => {
                let op = into.op();
                self.row(*relation, None, Some(*new), op, into)
            }
            Message::Update { relation, old, new, .. } => {
                let op = into.op();
                match old {
                    OldTuple::Full(old) => self.row(*relation, Some(*old), Some(*new), op, into),
                    _ => self.incomplete(*relation),
                }
            }
            Message::Delete { relation, old, .. } => {
                let op = into.op();
                match old {
                    OldTuple::Full(old) => self.row(*relation, Some(*old), None, op, into),
                    _ => self.incomplete(*relation),
                }
            }
            Message::Truncate { relations, .. } => {
                into.op();
                relations.iter().flat_map(|relation| self.invalidate(relation, "was truncated")).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A change without the old row: the table's replica identity was changed under us.
    fn incomplete(&mut self, relation: u32) -> Vec<Invalidation> {
        self.invalidate(relation, "sends changes without the old row: its replica identity is not FULL")
    }

    fn invalidate(&mut self, relation: u32, why: &'static str) -> Vec<Invalidation> {
        let of = self.ancestors.get(&relation).cloned().unwrap_or_default();
        let affected = std::iter::once(relation).chain(of).filter(|oid| self.routes.contains_key(oid));
        affected.map(|oid| Invalidation::Table { oid, why }).collect()
    }

    fn describe(&mut self, id: u32, namespace: &str, name: &str, columns: Columns<'_>) {
        let columns: Vec<(String, u32)> =
            columns.iter().map(|column| (column.name.to_owned(), column.type_oid)).collect();
        let name = TableName { schema: namespace.to_owned(), name: name.to_owned() };
        let relation = Relation { name, columns, targets: Vec::new(), unfit: Vec::new(), version: u64::MAX };
        self.relations.insert(id, relation);
    }

    /// Finds out again where changes of a relation go, if that may have changed.
    fn resolve_targets(&mut self, id: u32) {
        let version = self.version;
        let Some(relation) = self.relations.get_mut(&id) else { return };
        if relation.version == version {
            return;
        }
        relation.version = version;
        relation.targets.clear();
        relation.unfit.clear();
        let ancestors = self.ancestors.get(&id).map(Vec::as_slice).unwrap_or_default();
        for oid in std::iter::once(&id).chain(ancestors) {
            let Some(route) = self.routes.get(oid) else { continue };
            if *oid == id && route.table.name != relation.name {
                relation.unfit.push((*oid, "was renamed"));
                continue;
            }
            // A table that inherits may have more columns than its parent; partitions have the same.
            let all = *oid == id || route.table.kind == Kind::Partitioned;
            if !fits(&route.table, &relation.columns, all) {
                relation.unfit.push((*oid, "was altered"));
                continue;
            }
            let place = |name: &str| relation.columns.iter().position(|(found, _)| found == name);
            let places = route.table.columns.iter().map(|column| place(&column.name).unwrap_or(usize::MAX)).collect();
            relation.targets.push(Target { table: *oid, places });
        }
    }

    fn row(
        &mut self,
        relation: u32,
        old: Option<Tuple<'_>>,
        new: Option<Tuple<'_>>,
        op: u32,
        into: &mut Transaction,
    ) -> Vec<Invalidation> {
        self.resolve_targets(relation);
        let Router { relations, routes, registrations, projections, scratch, evaluations, .. } = self;
        let Some(relation) = relations.get(&relation) else { return Vec::new() };
        let mut invalidations: Vec<Invalidation> =
            relation.unfit.iter().map(|(oid, why)| Invalidation::Table { oid: *oid, why }).collect();
        for target in &relation.targets {
            let Some(route) = routes.get_mut(&target.table) else { continue };
            let old_cells = old.map(|tuple| cells(tuple, None, &target.places));
            let new_cells = new.map(|tuple| cells(tuple, old, &target.places));
            invalidations.extend(new_cells.as_deref().and_then(|new| route.learn(new)));
            if route.dependents > 0 {
                let owned = |cells: &Cells<'_>| cells.iter().map(|cell| cell.map(Into::into)).collect();
                into.keep(RowChange {
                    table: target.table,
                    op,
                    old: old_cells.as_ref().map(owned),
                    new: new_cells.as_ref().map(owned),
                });
            }
            scratch.old.clear();
            scratch.new.clear();
            if let Some(old) = &old_cells {
                route.matcher.matching(old, &mut scratch.old, &mut scratch.costly);
            }
            if let Some(new) = &new_cells {
                route.matcher.matching(new, &mut scratch.new, &mut scratch.costly);
            }
            invalidations.extend(scratch.costly.drain(..).map(|route_id| Invalidation::Costly { route_id }));
            *evaluations += route.matcher.take_evaluations();
            fan_out(registrations, projections, scratch, old_cells.as_deref(), new_cells.as_deref(), op, into);
        }
        invalidations
    }
}

/// Adds a body for each projection and for each way in which shapes see the change.
fn fan_out(
    registrations: &[Option<Registration>],
    projections: &[Projection],
    scratch: &mut Scratch,
    old: Option<&[Option<&[u8]>]>,
    new: Option<&[Option<&[u8]>]>,
    op: u32,
    into: &mut Transaction,
) {
    let place = Place { xid: into.xid, lsn: into.lsn, op };
    let projection_of = |route_id: RouteId| {
        registrations
            .get(route_id.index())
            .and_then(Option::as_ref)
            .map_or(DEPENDENT, |registration| registration.projection)
    };
    // Route ids of both lists ascend.
    let (mut gone, mut both, mut come) = (Vec::new(), Vec::new(), Vec::new());
    if scratch.new.is_empty() {
        gone.append(&mut scratch.old);
    } else if scratch.old.is_empty() {
        come.append(&mut scratch.new);
    } else if scratch.old == scratch.new {
        both.append(&mut scratch.old);
    } else {
        for route_id in &scratch.old {
            if scratch.new.binary_search(route_id).is_ok() { both.push(*route_id) } else { gone.push(*route_id) }
        }
        come.extend(scratch.new.iter().filter(|route_id| scratch.old.binary_search(route_id).is_err()));
    }
    let part = &mut scratch.part;
    if let Some(old) = old {
        by_projection(gone, part, &projection_of, &mut |id, route_ids| {
            if let Some(projection) = projections.get(id.index()) {
                into.add(id, route_ids, op, |out| projection.delete(place, old, out));
            }
        });
    }
    if let Some(new) = new {
        by_projection(come, part, &projection_of, &mut |id, route_ids| {
            if let Some(projection) = projections.get(id.index()) {
                into.add(id, route_ids, op, |out| projection.insert(place, new, out));
            }
        });
    }
    let (Some(old), Some(new)) = (old, new) else { return };
    by_projection(both, part, &projection_of, &mut |id, route_ids| {
        let Some(projection) = projections.get(id.index()) else { return };
        match projection.difference(old, new) {
            Difference::Nothing => {}
            Difference::Columns => into.add(id, route_ids, op, |out| projection.update(place, old, new, out)),
            Difference::Key => {
                into.add(id, route_ids, op, |out| projection.key_change_delete(place, old, new, out));
                into.add(id, route_ids, op + 1, |out| projection.key_change_insert(place, old, new, out));
            }
        }
    });
}

/// Splits route ids, which ascend, by their projections.
fn by_projection(
    mut route_ids: Vec<RouteId>,
    part: &mut Vec<RouteId>,
    of: &dyn Fn(RouteId) -> ProjectionId,
    f: &mut dyn FnMut(ProjectionId, &[RouteId]),
) {
    while let Some(first) = route_ids.first() {
        let id = of(*first);
        if route_ids.iter().all(|route_id| of(*route_id) == id) {
            f(id, &route_ids);
            return;
        }
        part.clear();
        route_ids.retain(|route_id| {
            let same = of(*route_id) == id;
            if same {
                part.push(*route_id);
            }
            !same
        });
        f(id, part);
    }
}

/// A row's values by the table's columns. Values that the change did not touch are those of the old row.
fn cells<'a>(tuple: Tuple<'a>, old: Option<Tuple<'a>>, places: &[usize]) -> Cells<'a> {
    let values: Vec<Value<'a>> = tuple.values().collect();
    let mut old_values: Option<Vec<Value<'a>>> = None;
    places
        .iter()
        .map(|at| match values.get(*at)? {
            Value::Text(text) | Value::Binary(text) => Some(*text),
            Value::Null => None,
            Value::UnchangedToast => {
                let old_values =
                    old_values.get_or_insert_with(|| old.map(|old| old.values().collect()).unwrap_or_default());
                match old_values.get(*at)? {
                    Value::Text(text) | Value::Binary(text) => Some(*text),
                    Value::Null | Value::UnchangedToast => None,
                }
            }
        })
        .collect()
}

/// Whether a table that the stream describes by `columns` is the one that its shapes were made for. The stream leaves
/// out generated columns, and may name a domain where the catalog has its base type. Without `all` the table may have
/// other columns as well.
fn fits(table: &Table, columns: &[(String, u32)], all: bool) -> bool {
    let known = |name: &str| table.columns.iter().any(|column| column.name == name);
    let there = |name: &str| columns.iter().any(|(found, _)| found == name);
    (!all || columns.iter().all(|(name, _)| known(name)))
        && table.columns.iter().all(|column| column.generated.is_some() || there(&column.name))
        && table.columns.iter().all(|column| {
            let found = columns.iter().find(|(name, _)| *name == column.name);
            found.is_none_or(|(_, oid)| *oid == column.ty.oid || *oid >= FIRST_NORMAL_OID)
        })
}
