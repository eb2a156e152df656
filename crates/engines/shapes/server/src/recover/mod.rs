//! Recovery: restores the shapes that a start finds in the kernel unit.

mod dependent;

use crate::faults::Fault;
use crate::format::note::Stored;
use crate::server::ShapesServer;
use crate::shape::{Phase, Shape, State};
use crate::store::{Kept, KeptBase, StoreError, StoredSharedRows};
use crate::trim_index::TrimPoint;
use dependent::Restoring;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use thalweg_base::LogId;
use thalweg_filter::Schema;
use thalweg_pg::PgLsn;
use thalweg_shapes_core::state::bases::{Base, Bases};
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::columns::selected;
use thalweg_shapes_model::definition::{Condition, Definition, LogMode};
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::name::Name;
use thalweg_shapes_model::predicate::{self, Predicate};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;

/// The counts of a recovery.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) shapes: usize,
    pub(crate) transactions: usize,
}

impl ShapesServer {
    /// Restores every shape whose snapshot is complete; no client has seen the ends of the others, and the next request
    /// makes them again.
    pub(crate) fn recover(self: &Arc<Self>) -> Result<Recovered, StoreError> {
        let found = self.changes.store.found()?;
        let tables: HashMap<u32, Arc<Table>> =
            found.tables.into_iter().map(|table| (table.oid, Arc::new(table))).collect();
        // Shapes with subqueries are registered once the rows of all of them are known.
        let mut dependents: Vec<Arc<Shape>> = Vec::new();
        let mut waiting: HashMap<u64, i64> = HashMap::new();
        let mut bases: HashMap<u64, Vec<KeptBase>> = HashMap::new();
        for base in found.bases {
            bases.entry(base.stored.shape).or_default().push(base);
        }
        let mut shared = Shared::default();
        let count = self.changes.store.logs().len();
        self.catalog.registry.write().reserve(count);
        let mut shapes: hashbrown::HashMap<u64, Arc<Shape>> = hashbrown::HashMap::with_capacity(count);
        let mut gone: Vec<Vec<LogId>> = Vec::new();
        self.each_read(&tables, &mut |log, stored, read| {
            self.catalog.ids.reserve_number(stored.number);
            let its_bases = bases.remove(&stored.number).unwrap_or_default();
            let base_logs: Vec<LogId> = its_bases.iter().map(|base| base.log).collect();
            match read.and_then(|read| self.restore(&mut shared, log, stored, read, its_bases)) {
                Some(shape) => {
                    if shape.lock().route_id.is_none() {
                        dependents.push(Arc::clone(&shape));
                    }
                    if !base_logs.is_empty() {
                        let taken: Vec<LogId> = shape.lock().bases.iter().flat_map(|bases| bases.logs()).collect();
                        gone.push(base_logs.into_iter().filter(|log| !taken.contains(log)).collect());
                    }
                    shapes.insert(shape.number, shape);
                }
                None => gone.push([vec![log], base_logs].concat()),
            }
        });
        for logs in gone.iter().filter(|logs| !logs.is_empty()) {
            self.changes.store.delete_shape(logs)?;
        }
        // Their shapes are gone.
        for base in bases.into_values().flatten() {
            self.changes.store.delete_shape(&[base.log])?;
        }
        for StoredSharedRows { log, number, mut holders } in found.shared_rows {
            self.catalog.ids.reserve_number(number);
            let has_rows = |shape: &Arc<Shape>| !shape.lock().bases.as_ref().is_some_and(|bases| bases.first_is_gone());
            holders.retain(|number| shapes.get(number).is_some_and(has_rows));
            if holders.is_empty() {
                self.changes.store.delete_shape(&[log])?;
            } else {
                self.changes.shared_rows.acquire(log, &holders);
            }
        }
        let mut recovered = Recovered { shapes: shapes.len(), transactions: 0 };
        if !self.lifetime.faults.has(Fault::RecentForgotten) {
            // Transactions of which no shape has anything left no references.
            let noted = found.source.iter().flat_map(|note| &note.recent);
            noted.for_each(|xid| self.feed.lock().recent.push(*xid));
        }
        self.changes.store.each_references(&mut |at, references| {
            recovered.transactions += 1;
            if let Some(first) = references.groups.first() {
                self.changes.trim_index.lock().note(TrimPoint { bodies: first.at, references: at });
            }
            for group in &references.groups {
                let entry = Entry { lsn: references.lsn, at: group.at, op: group.op, len: group.len };
                for shape in group.shapes.iter().filter_map(|number| shapes.get(number)) {
                    shape.lock().push(references.xid, entry, self.config.http.chunk_bytes);
                }
            }
            references.began.iter().for_each(|number| *waiting.entry(*number).or_default() += 1);
            // The references that began a wait may have been given up, but only if no other wait was open then.
            references.ended.iter().for_each(|number| {
                let count = waiting.entry(*number).or_default();
                *count = (*count - 1).max(0);
            });
            if !self.lifetime.faults.has(Fault::RecentForgotten) {
                self.feed.lock().recent.push(references.xid);
            }
            self.watermarks.set_applied(PgLsn(references.lsn));
            self.watermarks.processed(PgLsn(references.lsn));
        })?;
        if let Some(note) = &found.source {
            self.watermarks.set_anchor(note.anchor);
            note.acknowledged.into_iter().for_each(|position| self.watermarks.processed(PgLsn(position).before()));
        }
        self.source.bookmark.found(found.source);
        let waiting = waiting.into_iter().filter(|(_, count)| *count > 0).map(|(number, _)| number).collect();
        self.restore_dependents(&tables, &dependents, waiting)?;
        Ok(recovered)
    }

    /// Gives shapes with subqueries their place, and drops those that cannot go on.
    fn restore_dependents(
        &self,
        tables: &HashMap<u32, Arc<Table>>,
        dependents: &[Arc<Shape>],
        waiting: hashbrown::HashSet<u64>,
    ) -> Result<(), StoreError> {
        let (inner, outer): (Vec<_>, Vec<_>) = dependents.iter().partition(|shape| shape.is_inner());
        let known = |shape: &&Arc<Shape>| (shape.identity, Arc::clone(shape));
        let restoring =
            Restoring { tables, inner: inner.iter().copied().map(|shape| known(&shape)).collect(), waiting };
        for shape in outer {
            let Some(table) = tables.get(&shape.family.table) else { continue };
            let back = match (restoring.dependence(shape, table), selected(table, &shape.definition(), true)) {
                (Some(dependence), Ok(selected)) => {
                    self.restore_outer(&restoring, shape, table, &selected, &dependence)?
                }
                _ => false,
            };
            if !back {
                tracing::info!(table = %table.name, "a shape with subqueries is dropped: its move-in was pending, or it cannot be restored");
                self.retirement.drop_shape(shape);
            }
        }
        // No restored shape needs these inner shapes.
        inner.into_iter().filter(|shape| shape.lock().route_id.is_none()).for_each(|shape| {
            self.retirement.drop_shape(shape);
        });
        Ok(())
    }

    fn restore(
        self: &Arc<Self>,
        shared: &mut Shared,
        log: LogId,
        stored: Stored,
        read: Read,
        bases: Vec<KeptBase>,
    ) -> Option<Arc<Shape>> {
        let Read { handle, table, selected, dependent, predicate } = read;
        self.catalog.ids.reserve_handle(handle);
        let snapshot = stored.snapshot.as_ref().filter(|_| stored.complete)?;
        let bases = whole(bases, stored.rows_gone);
        if stored.rows_gone && bases.is_none() {
            tracing::error!(%handle, "a shape has neither its first rows nor later ones: it is dropped");
            return None;
        }
        let definition = &stored.definition;
        let family = shared.family(self, &table, &selected, definition);
        let mut state = State::default();
        (state.phase, state.log, state.chunks) = (Phase::Live, Some(log), stored.chunks.into());
        state.bases = bases.map(Box::new);
        state.snapshot_taken(shared.snapshot(snapshot), self.config.http.chunk_bytes);
        let condition = Condition::of(definition);
        let shape = Arc::new(Shape::new(stored.number, handle, family, condition, stored.identity, state));
        if !dependent {
            let route_id = self.feed.lock().insert(&shape, &table, &selected, predicate);
            shape.lock().route_id = Some(route_id);
        }
        self.catalog.registry.write().insert(Arc::clone(&shape));
        Some(shape)
    }
}

/// Shapes that are read together: a message for each would cost more than its content.
const TOGETHER: usize = 256;
/// So many of those may wait to be put in.
const AHEAD: usize = 64;

/// A shape as its log describes it, and the values that follow from that alone; `None`: it cannot go on.
type Found = (LogId, Stored, Option<Read>);

struct Read {
    handle: Name,
    table: Arc<Table>,
    /// Places of the columns.
    selected: Vec<usize>,
    /// It has subqueries, or is of one.
    dependent: bool,
    predicate: Option<Arc<Predicate>>,
}

impl Read {
    fn of(kept: Kept<'_>, tables: &HashMap<u32, Arc<Table>>, rows: &mut HashMap<u32, Schema>) -> Option<Self> {
        let table = Arc::clone(tables.get(&kept.stored.table)?);
        let definition = &kept.stored.definition;
        let selected = selected(&table, definition, true).ok()?;
        let dependent = definition.log == LogMode::Inner
            || definition.where_sql.as_ref().is_some_and(|sql| {
                predicate::may_have_subqueries(sql)
                    && predicate::inner_tables(sql, &definition.params).is_ok_and(|named| !named.is_empty())
            });
        let predicate = match &definition.where_sql {
            None => None,
            Some(_) if dependent => None,
            Some(sql) => {
                let schema = rows.entry(table.oid).or_insert_with(|| predicate::schema(&table));
                Some(Arc::new(Predicate::parse(sql, &definition.params, schema).ok()?))
            }
        };
        Some(Self { handle: kept.handle.parse().ok()?, table, selected, dependent, predicate })
    }
}

impl ShapesServer {
    /// Visits every shape. A second thread reads them ahead, as there may be a million.
    fn each_read(&self, tables: &HashMap<u32, Arc<Table>>, f: &mut dyn FnMut(LogId, Stored, Option<Read>)) {
        let (send, receive) = std::sync::mpsc::sync_channel::<Vec<Found>>(AHEAD);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut rows, mut together) = (HashMap::new(), Vec::with_capacity(TOGETHER));
                self.changes.store.each_shape(&mut |kept| {
                    together.push((kept.log, kept.stored.clone(), Read::of(kept, tables, &mut rows)));
                    if together.len() == TOGETHER {
                        // If the receiver is gone, its thread has panicked, and the scope ends with that.
                        let _ = send.send(std::mem::replace(&mut together, Vec::with_capacity(TOGETHER)));
                    }
                });
                let _ = send.send(together);
            });
            receive.iter().flatten().for_each(|(log, stored, read)| f(log, stored, read));
        });
    }
}

/// State that many shapes share during recovery.
#[derive(Default)]
struct Shared {
    /// Most shapes are of the family of the one before.
    last: Option<Arc<Family>>,
    snapshots: HashSet<Arc<PgSnapshot>>,
}

impl Shared {
    fn family(
        &mut self,
        server: &ShapesServer,
        table: &Table,
        selected: &[usize],
        definition: &Definition,
    ) -> Arc<Family> {
        if let Some(last) = self.last.as_ref().filter(|last| last.is_of(definition, table.oid)) {
            return Arc::clone(last);
        }
        let header = thalweg_shapes_core::encode::schema::header(table, selected);
        let family = server.catalog.families.share(Family::of(definition, table.oid, header));
        Arc::clone(self.last.insert(family))
    }

    fn snapshot(&mut self, snapshot: &PgSnapshot) -> Arc<PgSnapshot> {
        if let Some(known) = self.snapshots.get(snapshot) {
            return Arc::clone(known);
        }
        let snapshot = Arc::new(snapshot.clone());
        self.snapshots.insert(Arc::clone(&snapshot));
        snapshot
    }
}

/// The bases that were complete at the stop.
fn whole(mut found: Vec<KeptBase>, first_is_gone: bool) -> Option<Bases> {
    found.sort_unstable_by_key(|base| base.stored.number);
    let mut whole = found.into_iter().filter(|base| base.stored.complete).filter_map(|KeptBase { log, stored }| {
        let snapshot = Box::new(stored.snapshot?);
        Some(Base { number: stored.number, log, end: stored.end, chunks: stored.chunks, snapshot, shown_ms: 0 })
    });
    let mut bases = Bases::new(whole.next()?, first_is_gone);
    whole.for_each(|base| bases.push(base));
    Some(bases)
}
