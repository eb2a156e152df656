//! Making shapes with subqueries, and the inner shapes that they need.

use super::dependent_rows::Rows;
use crate::failures::{cannot_store, invalid, not_published, unavailable};
use crate::feed::{Claim, NotRegistered};
use crate::format::note::Stored;
use crate::no_wait;
use crate::server::ShapesServer;
use crate::shape::{Phase, Shape, State};
use crate::subquery::{
    Dependence, Node, cells, headers, identity, inner_columns, inner_identity, inner_node, outer_node, positions_list,
};
use hashbrown::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_filter::{Condition, Filter, Position, Query};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::definition::{self, Definition, LogMode, Replica};
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::row::{Cells, borrowed};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::session::Session;
use thalweg_shapes_source::snapshot::{self, Taken};

/// How long to wait for another thread that makes the same inner shape, or for its pending rows.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(3);

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
        let epoch = self.catalog.registry.read().epoch();
        self.source.publisher.ensure(session, table).map_err(not_published)?;
        let identity = identity(query);
        // One thread makes the inner shape, others wait.
        let until = self.lifetime.clock.now() + SETTLED_WITHIN;
        loop {
            let claim = self.feed.lock().claim_inner(&identity);
            match claim {
                Claim::Made(number) => return Ok(number),
                Claim::Ours => break,
                Claim::Others => self.wait_until(until)?,
            }
        }
        let made = self.make_inner(session, query, table, &sets, epoch);
        self.feed.lock().inner_in_flight.remove(&identity);
        made
    }

    /// Waits until every transaction that a shape's first rows may contain is applied. Only then are the rows known to
    /// be a state between two transactions of the stream; if they are not, the applier drops the shape during the wait.
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
            let why = "Postgres has not sent all changes yet that the rows of a subquery depend on";
            return Err(Failure::unavailable("snapshot_error", why, 5));
        }
        no_wait::assert_may_wait();
        self.lifetime.clock.sleep(LOOK_AGAIN);
        Ok(())
    }

    fn make_inner(
        self: &Arc<Self>,
        session: &mut Session,
        query: &Arc<Query>,
        table: &Arc<Table>,
        sets: &[Option<u64>],
        epoch: u64,
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
        {
            let mut registry = self.catalog.registry.write();
            if registry.epoch() != epoch {
                return Err(Failure::Rotated);
            }
            registry.insert(Arc::clone(&shape));
        }
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

    /// Makes a shape with subqueries: like any other, but it gets changes from its snapshot on, and not before.
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
        node: &mut dyn FnMut(RouteId, PgSnapshot) -> Node,
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
        let chunk_bytes = self.config.http.chunk_bytes;
        loop {
            let projection_columns = filled.columns;
            let mut rows = Rows::new(&self.changes, &self.lifetime, chunk_bytes, shape, log);
            let mut kept = Vec::new();
            let (mut again, mut gone) = (false, false);
            let mut line = CopyRow::default();
            let mut projection = None;
            let copied = snapshot::copy(session, table, &select, None, |taken| match taken {
                Taken::Snapshot(snapshot) => {
                    // The shape sees changes from here on; the snapshot has all that was applied before, or another one
                    // is taken.
                    let shared = self.catalog.shared_snapshot(snapshot);
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
                // The shape, or an inner shape that it needs, was dropped during the copy: the next request makes it
                // again.
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

/// The query for a shape's first rows.
struct Filled<'a> {
    columns: &'a [usize],
    /// Of a shape whose rows say which positions are true.
    condition: Option<&'a Condition>,
    filter: Option<&'a str>,
}
