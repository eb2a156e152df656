//! Making shapes with subqueries, and the inner shapes that they need.

use super::inner::Inner;
use super::move_in_fetcher::cells;
use super::node::Node;
use super::rows::Rows;
use crate::feed::Feed;
use crate::format::note::Stored;
use crate::make::{cannot_store, invalid, not_published, unavailable};
use crate::server::ShapesServer;
use crate::shape::{Phase, Shape, State};
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_filter::{Condition, Filter, Position, Query};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::subquery::seen::Seen;
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::definition::{self, Definition, Identity, LogMode, Replica};
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::row::{Cells, Row as _, borrowed};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::session::Session;
use thalweg_shapes_source::snapshot::{self, Taken};

/// How long to wait for other makers of the same inner shape, or for rows that are on their way to it.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(3);

/// A where clause with subqueries, and the tables that those select from.
#[derive(Clone)]
pub(crate) struct Dependence {
    pub(crate) condition: Arc<Condition>,
    pub(crate) tables: HashMap<u32, Arc<Table>>,
}

/// What to select so that rows say which positions are true of them: these columns, and behind them one boolean for each position.
pub(crate) fn positions_list(table: &Table, columns: &[usize], condition: &Condition) -> String {
    let names = columns.iter().map(|at| thalweg_shapes_model::table::quoted(&table.columns[*at].name));
    let truths = condition.positions().iter().map(|position| format!("({}) IS TRUE", position.sql()));
    names.chain(truths).collect::<Vec<_>>().join(", ")
}

/// JSON members for the headers of a row of a [`positions_list`], and the row by the table's columns.
pub(crate) fn headers(
    table: &Table,
    columns: &[usize],
    condition: &Condition,
    handle: &str,
    line: &CopyRow,
) -> (Cells, Vec<u8>) {
    let cells = cells(columns, line, table.columns.len());
    let truths = (0..condition.positions().len()).map(|at| line.cell(columns.len() + at) == Some(b"t")).collect();
    let seen = Seen::told(condition, &borrowed(&cells), truths);
    let mut headers = Vec::new();
    seen.push_headers(condition, handle, None, &mut headers);
    (cells, headers)
}

impl Dependence {
    /// The columns of the shape's table that are needed, ascending.
    pub(crate) fn columns(&self, selected: &[usize]) -> Vec<usize> {
        let all: BTreeSet<usize> = selected.iter().copied().chain(self.condition.columns()).collect();
        all.into_iter().collect()
    }
}

/// What distinguishes an inner shape from all others. No definition of a client looks like this.
pub(super) fn identity(query: &Query) -> String {
    format!("inner {} {}", query.table.oid, query.canonical())
}

/// The same as shapes have it.
pub(super) fn inner_identity(query: &Query) -> Identity {
    Identity::of(identity(query).as_bytes())
}

/// The columns of an inner shape: the key, and what the query looks at.
pub(super) fn inner_columns(table: &Table, query: &Query) -> Vec<usize> {
    let all: BTreeSet<usize> = table.key().into_iter().chain(query.columns()).collect();
    all.into_iter().collect()
}

/// A node for an outer shape.
pub(super) fn outer_node(
    shape: &Arc<Shape>,
    route_id: u32,
    table: &Arc<Table>,
    projection: Projection,
    condition: Arc<Condition>,
    sets: Vec<Option<u64>>,
    contained: Option<PgSnapshot>,
) -> Node {
    Node {
        shape: Arc::clone(shape),
        route_id,
        table: Arc::clone(table),
        projection,
        filter: Filter::Nested(condition),
        sets,
        depth: 0,
        contained,
        overtaken: false,
        pendings: VecDeque::new(),
        after: Default::default(),
        inner: None,
    }
}

/// A node for an inner shape whose rows are still to come.
pub(super) fn inner_node(
    shape: &Arc<Shape>,
    route_id: u32,
    table: &Arc<Table>,
    query: &Arc<Query>,
    sets: Vec<Option<u64>>,
    contained: Option<PgSnapshot>,
) -> Node {
    let projection = Projection::new(table, &inner_columns(table, query), Replica::Full);
    Node {
        shape: Arc::clone(shape),
        route_id,
        table: Arc::clone(table),
        projection,
        filter: query.filter.clone(),
        sets,
        depth: 0,
        contained,
        overtaken: false,
        pendings: VecDeque::new(),
        after: Default::default(),
        inner: Some(Inner::new(identity(query), query, table.key())),
    }
}

impl ShapesServer {
    /// The inner shapes that a condition asks for, by position: found, or made.
    pub(crate) fn inner_shapes(
        self: &Arc<Self>,
        session: &mut Session,
        condition: &Condition,
        tables: &HashMap<u32, Arc<Table>>,
    ) -> Result<Vec<Option<u64>>, Failure> {
        let positions = condition.positions().iter().map(|position| match position {
            Position::Row(_) => Ok(None),
            Position::In(membership) => self.inner_shape(session, &membership.query, tables).map(Some),
        });
        positions.collect()
    }

    fn inner_shape(
        self: &Arc<Self>,
        session: &mut Session,
        query: &Arc<Query>,
        tables: &HashMap<u32, Arc<Table>>,
    ) -> Result<u64, Failure> {
        let sets = match &query.filter {
            Filter::Nested(condition) => self.inner_shapes(session, condition, tables)?,
            Filter::All | Filter::Row(_) => Vec::new(),
        };
        let table = tables.get(&query.table.oid).ok_or(Failure::Rotated)?;
        self.source.publisher.ensure(session, table).map_err(not_published)?;
        let identity = identity(query);
        // One makes it, others wait.
        let until = self.lifetime.clock.now() + SETTLED_WITHIN;
        loop {
            let claim = self.feed.lock().claim_inner(&identity);
            match claim {
                Claim::Made(number) => return Ok(number),
                Claim::Ours => break,
                Claim::Others => self.wait_until(until)?,
            }
        }
        let made = self.make_inner(session, query, table, &sets);
        self.feed.lock().inner_in_flight.remove(&identity);
        made
    }

    /// Waits until all was applied that the first rows of a shape may have. Only then it is known that these are a state between two
    /// transactions of the stream; if they are not, the shape is dropped meanwhile.
    fn until_grown(&self, shape: &Shape) -> Result<(), Failure> {
        let until = self.lifetime.clock.now() + SETTLED_WITHIN;
        loop {
            let grown = self.feed.lock().graph.is_grown(shape.number);
            match grown {
                None => return Err(Failure::Rotated),
                Some(true) => return Ok(()),
                Some(false) => {}
            }
            self.wait_until(until)?;
        }
    }

    fn wait_until(&self, until: Instant) -> Result<(), Failure> {
        if self.lifetime.stopping() || self.lifetime.clock.now() > until {
            let why = "changes of Postgres that the rows of a subquery depend on are still on their way";
            return Err(Failure::unavailable("snapshot_error", why, 5));
        }
        self.lifetime.clock.sleep(LOOK_AGAIN);
        Ok(())
    }

    fn make_inner(
        self: &Arc<Self>,
        session: &mut Session,
        query: &Arc<Query>,
        table: &Arc<Table>,
        sets: &[Option<u64>],
    ) -> Result<u64, Failure> {
        let columns = inner_columns(table, query);
        let definition = Definition {
            columns: Some(columns.iter().map(|at| table.columns[*at].name.clone()).collect()),
            replica: Replica::Full,
            log: LogMode::Inner,
            ..Definition::of_table(&table.name.schema, &table.name.name)
        };
        let (number, identity) = (self.catalog.ids.new_number(), inner_identity(query));
        let handle = self.catalog.ids.new_handle(identity, self.lifetime.clock.unix_us());
        let family = self.catalog.families.share(Family::of(&definition, table.oid, String::new()));
        let mut state = State::default();
        state.phase = Phase::Snapshotting;
        let shape =
            Arc::new(Shape::new(number, handle, family, definition::Condition::of(&definition), identity, state));
        self.catalog.registry.write().insert(Arc::clone(&shape));
        let made = self.fill_dependent(
            session,
            &shape,
            table,
            sets,
            &mut |route_id, snapshot| inner_node(&shape, route_id, table, query, sets.to_vec(), Some(snapshot)),
            &Filled { columns: &columns, condition: None, filter: query.filter.sql().as_deref() },
        );
        let made = made.and_then(|rows| {
            let loaded = self.feed.lock().graph.loaded(number, rows);
            loaded.map_err(|costly| invalid("where", costly))
        });
        match made {
            Ok(()) => Ok(number),
            Err(failure) => {
                self.retirement.fail_shape(&shape, failure.clone());
                Err(failure)
            }
        }
    }

    /// Makes a shape with subqueries: like any other, but it is told of changes from its snapshot on, and not before.
    pub(crate) fn fill_outer(
        self: &Arc<Self>,
        session: &mut Session,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        selected: &[usize],
        dependence: &Dependence,
        filter: Option<&str>,
    ) -> Result<(), Failure> {
        let sets = self.inner_shapes(session, &dependence.condition, &dependence.tables)?;
        for inner in dependence.tables.values() {
            self.changes.store.put_table(inner).map_err(cannot_store)?;
        }
        let columns = dependence.columns(selected);
        let projection = Projection::new(table, selected, shape.family.replica);
        let condition = &dependence.condition;
        self.fill_dependent(
            session,
            shape,
            table,
            &sets,
            &mut |route_id, snapshot| {
                let condition = Arc::clone(condition);
                outer_node(shape, route_id, table, projection.clone(), condition, sets.clone(), Some(snapshot))
            },
            &Filled { columns: &columns, condition: Some(condition), filter },
        )
        .map(drop)
    }

    fn fill_dependent(
        self: &Arc<Self>,
        session: &mut Session,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        sets: &[Option<u64>],
        node: &mut dyn FnMut(u32, PgSnapshot) -> Node,
        filled: &Filled<'_>,
    ) -> Result<Vec<Cells>, Failure> {
        // Inner shapes may have taken their time.
        let now = self.table_of(session, &table.name)?;
        if !now.table.same_shape(table) {
            return Err(Failure::Rotated);
        }
        let stored = Stored {
            number: shape.number,
            table: table.oid,
            definition: shape.definition(),
            identity: shape.identity,
            snapshot: None,
            chunks: Vec::new(),
            complete: false,
            rows_gone: false,
        };
        self.changes.store.put_table(table).map_err(cannot_store)?;
        let (log, _) = self.changes.store.create_shape(shape.handle, &stored, None).map_err(cannot_store)?;
        if !shape.change(|state| {
            let wanted = matches!(state.phase, Phase::Snapshotting);
            state.log = wanted.then_some(log);
            wanted
        }) {
            self.changes.store.delete_shape(&[log]).map_err(cannot_store)?;
            return Err(Failure::Rotated);
        }
        let select = match filled.condition {
            Some(condition) => {
                let list = positions_list(table, filled.columns, condition);
                let filter = filled.filter.map(|filter| format!(" WHERE ({filter})")).unwrap_or_default();
                format!("SELECT {list} FROM {}{filter}", table.name)
            }
            None => snapshot::select(table, filled.columns, filled.filter),
        };
        let until = self.lifetime.clock.now() + SETTLED_WITHIN;
        let handle = shape.handle.to_string();
        loop {
            let projection_columns = filled.columns;
            let mut rows = Rows::new(self, shape, log);
            let mut kept = Vec::new();
            let (mut again, mut gone) = (false, false);
            let mut line = CopyRow::default();
            let mut projection = None;
            let copied = snapshot::copy(session, table, &select, None, |taken| match taken {
                Taken::Snapshot(snapshot) => {
                    // The shape sees changes from here on; the snapshot has all that was applied before, or another one is taken.
                    let shared = self.catalog.shared_snapshot(snapshot);
                    let chunk_bytes = self.config.http.chunk_bytes;
                    let registered = self.feed.lock().register_dependent(shape, table, sets, shared, chunk_bytes, node);
                    match registered {
                        Ok(of) => projection = Some(of),
                        Err(why) => {
                            tracing::debug!(table = %table.name, ?why, "a shape with subqueries is not registered");
                            (gone, again) = (why == NotRegistered::Gone, true);
                            return ControlFlow::Break(());
                        }
                    }
                    rows.begin(snapshot)
                }
                Taken::Row(text) => {
                    let Some(projection) = &projection else { return ControlFlow::Break(()) };
                    if let Err(error) = line.decode(text) {
                        return rows.fail(error.to_string());
                    }
                    match filled.condition {
                        Some(condition) => {
                            let (cells, headers) = headers(table, projection_columns, condition, &handle, &line);
                            rows.put(|out| {
                                projection.table_row_with(&borrowed(&cells)[..], &headers, out);
                            })
                        }
                        None => {
                            let cells = cells(projection_columns, &line, table.columns.len());
                            let put = rows.put(|out| {
                                projection.table_row_with(&borrowed(&cells)[..], b"", out);
                            });
                            kept.push(cells);
                            put
                        }
                    }
                }
            });
            match copied {
                // What it depends on was dropped meanwhile, or it was itself: who asks again has it made anew.
                _ if gone => return Err(Failure::Rotated),
                _ if again => self.wait_until(until)?,
                Ok(_) => {
                    if sets.iter().any(Option::is_some) {
                        self.until_grown(shape)?;
                    }
                    return rows.finish().map(|()| kept);
                }
                Err(error) => return Err(rows.failure().unwrap_or_else(|| unavailable(error))),
            }
        }
    }
}

/// An inner shape as a definition that needs it finds it.
enum Claim {
    /// Its rows are all there; its number.
    Made(u64),
    /// The caller is to make it.
    Ours,
    /// Another thread makes it.
    Others,
}

/// Why a shape with subqueries is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotRegistered {
    /// The shape was dropped, or an inner shape that it needs, or its table was altered.
    Gone,
    /// A transaction that was applied is not in the snapshot.
    Missed,
    /// Rows are on their way to an inner shape that it needs.
    Unsettled,
}

impl Feed {
    fn claim_inner(&mut self, identity: &str) -> Claim {
        match self.graph.inner(identity) {
            Some((number, node)) if !node.is_loading() => Claim::Made(number),
            Some(_) => Claim::Others,
            None if self.inner_in_flight.insert(identity.to_owned()) => Claim::Ours,
            None => Claim::Others,
        }
    }

    /// Registers a shape whose changes the graph finds: it gets every change from here on, and its rows are those of `snapshot`, which has all
    /// that was applied before. Returns how its rows are encoded.
    fn register_dependent(
        &mut self,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        sets: &[Option<u64>],
        snapshot: Arc<PgSnapshot>,
        chunk_bytes: u64,
        node: &mut dyn FnMut(u32, PgSnapshot) -> Node,
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
        let route_id = self.router.insert_dependent(Arc::clone(shape), table);
        let node = node(route_id, (*snapshot).clone());
        let projection = node.projection.clone();
        // Rows and changes that come from here on are ordered by the shape, and it drops what its snapshot has.
        let mut state = shape.lock();
        state.route_id = Some(route_id);
        state.snapshot_taken(snapshot, chunk_bytes);
        drop(state);
        self.graph.insert(node);
        Ok(projection)
    }
}

/// What a snapshot is to have.
struct Filled<'a> {
    columns: &'a [usize],
    /// Of a shape whose rows say which positions are true.
    condition: Option<&'a Condition>,
    filter: Option<&'a str>,
}
