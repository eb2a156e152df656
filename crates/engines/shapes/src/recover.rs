//! What a start finds in the kernel unit, and makes shapes of.

use crate::engine::Engine;
use crate::format::note::SourceIdentity;
use crate::marks::Mark;
use crate::predicate;
use crate::serve::columns::selected;
use crate::shape::{Phase, Shape, State};
use crate::state::entries::Entry;
use crate::store::{Kept, StoreError};
use crate::subquery::{Known, Restoring};
use crate::table::Table;
use std::collections::HashMap;
use std::sync::Arc;

/// What a start found.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub(crate) source: Option<SourceIdentity>,
    pub(crate) shapes: usize,
    pub(crate) transactions: usize,
}

impl Engine {
    /// Brings every shape back whose snapshot is complete; nobody was told of the others' ends, and they are made again when they are
    /// asked for.
    pub(crate) fn recover(self: &Arc<Self>) -> Result<Recovered, StoreError> {
        let found = self.store.found()?;
        let tables: HashMap<u32, Arc<Table>> =
            found.tables.into_iter().map(|table| (table.oid, Arc::new(table))).collect();
        let mut schemas = HashMap::new();
        let mut shapes: HashMap<u64, Arc<Shape>> = HashMap::with_capacity(found.shapes.len());
        // Those with subqueries get their place when it is known what all of them have.
        let mut dependents: Vec<Arc<Shape>> = Vec::new();
        let mut waiting: HashMap<u64, i64> = HashMap::new();
        for kept in found.shapes {
            self.know_number(kept.stored.number);
            self.know_handle(&kept.handle);
            let log = kept.log;
            match self.restore(&tables, &mut schemas, kept) {
                Some(shape) => {
                    if shape.lock().slot.is_none() {
                        dependents.push(Arc::clone(&shape));
                    }
                    shapes.insert(shape.number, shape);
                }
                None => {
                    self.store.delete_shape(log)?;
                }
            }
        }
        // They were looked after until the stop; what has happened since is found out when the stream is back.
        // Tables without shapes may have left the publication.
        let in_use = shapes.values().filter_map(|shape| tables.get(&shape.table));
        self.publisher.trust(in_use.map(AsRef::as_ref));
        let mut recovered = Recovered { source: found.source, shapes: shapes.len(), transactions: 0 };
        self.store.each_references(&mut |at, references| {
            recovered.transactions += 1;
            if let Some(first) = references.groups.first() {
                self.marks.lock().note(Mark { bodies: first.at, references: at });
            }
            for group in &references.groups {
                let entry = Entry { lsn: references.lsn, at: group.at, op: group.op, len: group.len };
                for shape in group.shapes.iter().filter_map(|number| shapes.get(number)) {
                    shape.lock().push(references.xid, entry, self.config.http.chunk_bytes);
                }
            }
            references.began.iter().for_each(|number| *waiting.entry(*number).or_default() += 1);
            references.ended.iter().for_each(|number| *waiting.entry(*number).or_default() -= 1);
            self.set_applied(references.lsn);
            self.processed(references.lsn);
        })?;
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
        let known = |shape: &&Arc<Shape>| {
            let rows = shape.lock().chunks.last().copied().unwrap_or(0);
            (shape.identity.to_string(), Known { shape: Arc::clone(shape), rows })
        };
        let restoring = Restoring { tables, inner: inner.iter().copied().map(|shape| known(&shape)).collect(), waiting };
        for shape in outer {
            let Some(table) = tables.get(&shape.table) else { continue };
            let back = match (restoring.dependence(shape, table), selected(table, &shape.definition, true)) {
                (Some(dependence), Ok(selected)) => {
                    self.restore_outer(&restoring, shape, table, &selected, &dependence)?
                }
                _ => false,
            };
            if !back {
                tracing::info!(table = %table.name, "a shape with subqueries is dropped: rows were on their way to it");
                self.drop_shape(shape);
            }
        }
        // Nobody needs these any more.
        inner.into_iter().filter(|shape| shape.lock().slot.is_none()).for_each(|shape| drop(self.drop_shape(shape)));
        Ok(())
    }

    fn restore(
        self: &Arc<Self>,
        tables: &HashMap<u32, Arc<Table>>,
        schemas: &mut HashMap<(u32, Vec<usize>), Arc<str>>,
        kept: Kept,
    ) -> Option<Arc<Shape>> {
        let Kept { handle, log, stored, .. } = kept;
        let table = tables.get(&stored.table)?;
        let snapshot = stored.snapshot.filter(|_| stored.complete)?;
        let selected = selected(table, &stored.definition, true).ok()?;
        let inner = stored.identity.starts_with("inner ");
        let dependent = inner
            || stored.definition.where_sql.as_ref().is_some_and(|sql| {
                predicate::inner_tables(sql, &stored.definition.params).is_ok_and(|named| !named.is_empty())
            });
        let predicate = match &stored.definition.where_sql {
            None => None,
            Some(_) if dependent => None,
            Some(sql) => Some(Arc::new(predicate::parse(sql, &stored.definition.params, table).ok()?)),
        };
        let schema = schemas
            .entry((table.oid, selected.clone()))
            .or_insert_with(|| crate::format::schema::header(table, &selected).into());
        let mut state = State::default();
        (state.phase, state.log, state.chunks) = (Phase::Live, Some(log), stored.chunks);
        state.snapshot_taken(snapshot, self.config.http.chunk_bytes);
        let schema = Arc::clone(schema);
        let shape = Shape::new(stored.number, &handle, stored.definition, &stored.identity, table.oid, schema, state);
        let shape = Arc::new(shape);
        if !dependent {
            let slot = self.router.lock().insert(Arc::clone(&shape), table, &selected, predicate);
            shape.lock().slot = Some(slot);
        }
        self.registry.write().insert(Arc::clone(&shape));
        Some(shape)
    }
}
