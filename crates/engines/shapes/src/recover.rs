//! What a start finds in the kernel unit, and makes shapes of.

use crate::engine::Engine;
use crate::format::note::SourceIdentity;
use crate::marks::Mark;
use crate::predicate;
use crate::serve::columns::selected;
use crate::shape::{Phase, Shape, State};
use crate::state::bases::{Base, Bases};
use crate::state::entries::Entry;
use crate::store::{Kept, KeptBase, StoreError};
use crate::table::Table;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_base::LogId;

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
        let mut bases: HashMap<u64, Vec<KeptBase>> = HashMap::new();
        for base in found.bases {
            bases.entry(base.stored.shape).or_default().push(base);
        }
        let mut schemas = HashMap::new();
        let mut shapes: HashMap<u64, Arc<Shape>> = HashMap::with_capacity(found.shapes.len());
        for kept in found.shapes {
            self.know_number(kept.stored.number);
            self.know_handle(&kept.handle);
            let log = kept.log;
            let its_bases = bases.remove(&kept.stored.number).unwrap_or_default();
            let base_logs: Vec<LogId> = its_bases.iter().map(|base| base.log).collect();
            let gone = match self.restore(&tables, &mut schemas, kept, its_bases) {
                Some(shape) => {
                    let taken: Vec<LogId> = shape.lock().bases.iter().flat_map(|bases| bases.logs()).collect();
                    shapes.insert(shape.number, shape);
                    base_logs.into_iter().filter(|log| !taken.contains(log)).collect()
                }
                None => [vec![log], base_logs].concat(),
            };
            if !gone.is_empty() {
                self.store.delete_shape(&gone)?;
            }
        }
        // Their shapes are gone.
        for base in bases.into_values().flatten() {
            self.store.delete_shape(&[base.log])?;
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
            self.set_applied(references.lsn);
            self.processed(references.lsn);
        })?;
        Ok(recovered)
    }

    fn restore(
        self: &Arc<Self>,
        tables: &HashMap<u32, Arc<Table>>,
        schemas: &mut HashMap<(u32, Vec<usize>), Arc<str>>,
        kept: Kept,
        bases: Vec<KeptBase>,
    ) -> Option<Arc<Shape>> {
        let Kept { handle, log, stored, .. } = kept;
        let table = tables.get(&stored.table)?;
        let snapshot = stored.snapshot.filter(|_| stored.complete)?;
        let bases = whole(bases, stored.rows_gone);
        if stored.rows_gone && bases.is_none() {
            tracing::error!(handle, "a shape has neither its first rows nor later ones: it is dropped");
            return None;
        }
        let selected = selected(table, &stored.definition, true).ok()?;
        let predicate = match &stored.definition.where_sql {
            None => None,
            Some(sql) => Some(Arc::new(predicate::parse(sql, &stored.definition.params, table).ok()?)),
        };
        let schema = schemas
            .entry((table.oid, selected.clone()))
            .or_insert_with(|| crate::format::schema::header(table, &selected).into());
        let mut state = State::default();
        (state.phase, state.log, state.chunks) = (Phase::Live, Some(log), stored.chunks);
        state.bases = bases.map(Box::new);
        state.snapshot_taken(snapshot, self.config.http.chunk_bytes);
        let schema = Arc::clone(schema);
        let shape = Shape::new(stored.number, &handle, stored.definition, &stored.identity, table.oid, schema, state);
        let shape = Arc::new(shape);
        let slot = self.router.lock().insert(Arc::clone(&shape), table, &selected, predicate);
        shape.lock().slot = Some(slot);
        self.registry.write().insert(Arc::clone(&shape));
        Some(shape)
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
