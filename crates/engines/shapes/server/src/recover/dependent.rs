//! Shapes with subqueries after a restart.
//!
//! The values of an inner query are those of its shape's log: its first rows and all changes since. A shape whose
//! move-in was pending when the server ended is not restored: the changes that its clients have seen are unknown.

use crate::read::split;
use crate::server::ShapesServer;
use crate::shape::Shape;
use crate::store::{StoreError, joined};
use crate::subquery::{Dependence, identity, inner_identity, inner_node, outer_node};
use hashbrown::{HashMap, HashSet};
use std::collections::HashMap as StdHashMap;
use std::sync::Arc;
use thalweg_filter::{Condition, Filter, Position, Query};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::definition::Identity;
use thalweg_shapes_model::predicate;
use thalweg_shapes_model::row::Cells;
use thalweg_shapes_model::table::Table;

/// The state that the restoration of shapes with subqueries needs.
pub(crate) struct Restoring<'a> {
    pub(crate) tables: &'a StdHashMap<u32, Arc<Table>>,
    pub(crate) inner: StdHashMap<Identity, Arc<Shape>>,
    /// Numbers of shapes whose move-in was pending.
    pub(crate) waiting: HashSet<u64>,
}

impl Restoring<'_> {
    /// The dependence of a definition's predicate on other tables; `None`: there is none, or the predicate no longer
    /// parses.
    pub(crate) fn dependence(&self, shape: &Shape, table: &Table) -> Option<Dependence> {
        let definition = shape.definition();
        let (sql, params) = (definition.where_sql.as_deref()?, &definition.params);
        let named = predicate::inner_tables(sql, params).ok()?;
        let tables: Option<Vec<Arc<Table>>> =
            named.iter().map(|name| self.tables.values().find(|table| table.name == *name).cloned()).collect();
        let tables = tables?;
        let condition = Arc::new(predicate::condition(sql, params, table, &tables).ok()?);
        Some(Dependence { condition, tables: tables.into_iter().map(|table| (table.oid, table)).collect() })
    }
}

impl ShapesServer {
    /// Brings a shape back, and the inner shapes that it needs; whether that was possible.
    pub(crate) fn restore_outer(
        &self,
        restoring: &Restoring<'_>,
        shape: &Arc<Shape>,
        table: &Arc<Table>,
        selected: &[usize],
        dependence: &Dependence,
    ) -> Result<bool, StoreError> {
        if restoring.waiting.contains(&shape.number) {
            return Ok(false);
        }
        let Some(sets) = self.restore_sets(restoring, &dependence.condition, &dependence.tables)? else {
            return Ok(false);
        };
        let projection = Projection::new(table, selected, shape.family.replica);
        let condition = Arc::clone(&dependence.condition);
        self.feed.lock().restore(shape, table, |route_id, contained| {
            outer_node(shape, route_id, table, projection, condition, sets, contained)
        });
        Ok(true)
    }

    fn restore_sets(
        &self,
        restoring: &Restoring<'_>,
        condition: &Condition,
        tables: &HashMap<u32, Arc<Table>>,
    ) -> Result<Option<Vec<Option<u64>>>, StoreError> {
        let mut sets = Vec::new();
        for position in condition.positions() {
            match position {
                Position::Row(_) => sets.push(None),
                Position::In(membership) => match self.restore_inner(restoring, &membership.query, tables)? {
                    Some(number) => sets.push(Some(number)),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(sets))
    }

    fn restore_inner(
        &self,
        restoring: &Restoring<'_>,
        query: &Arc<Query>,
        tables: &HashMap<u32, Arc<Table>>,
    ) -> Result<Option<u64>, StoreError> {
        let identity = identity(query);
        let known = self.feed.lock().graph.inner(&identity).map(|(number, _)| number);
        if known.is_some() {
            return Ok(known);
        }
        let sets = match &query.filter {
            Filter::Nested(condition) => match self.restore_sets(restoring, condition, tables)? {
                Some(sets) => sets,
                None => return Ok(None),
            },
            Filter::All | Filter::Row(_) => Vec::new(),
        };
        let (Some(shape), Some(table)) = (restoring.inner.get(&inner_identity(query)), tables.get(&query.table.oid))
        else {
            return Ok(None);
        };
        if restoring.waiting.contains(&shape.number) {
            return Ok(None);
        }
        let Some(rows) = self.rows_of(shape, table)? else { return Ok(None) };
        let mut feed = self.feed.lock();
        feed.restore(shape, table, |route_id, contained| inner_node(shape, route_id, table, query, sets, contained));
        Ok(feed.graph.loaded(shape.number, rows).is_ok().then_some(shape.number))
    }

    /// The rows that an inner shape's log comes to; `None`: it cannot be read.
    fn rows_of(&self, shape: &Shape, table: &Table) -> Result<Option<Vec<Cells>>, StoreError> {
        let (log, upto, entries): (_, _, Vec<Entry>) = {
            let state = shape.lock();
            let Some(rows) = state.rows(state.newest()) else { return Ok(None) };
            let Some(log) = rows.log else { return Ok(None) };
            let entries = state.entries.iter().filter(|entry| rows.end.is_snapshot() || entry.offset() > rows.end);
            (log, rows.chunks.last().copied().unwrap_or(0), entries.copied().collect())
        };
        let mut rows = Replay { table, rows: HashMap::new(), broken: false };
        self.changes.store.each_rows(log, upto, &mut |messages| -> Result<(), StoreError> {
            rows.take(messages);
            Ok(())
        })?;
        for entry in entries {
            let mut from = entry.at;
            let upto = entry.at + u64::from(entry.len);
            let mut messages = Vec::new();
            while from < upto {
                let chunk = self.changes.store.chunk(self.changes.store.bodies(from..upto))?;
                from = chunk.end.0;
                messages.extend_from_slice(&joined(chunk));
            }
            rows.take(&messages);
        }
        Ok((!rows.broken).then(|| rows.rows.into_values().flat_map(|(cells, n)| vec![cells; n]).collect()))
    }
}

/// Rows by their keys as clients know them, with how often they are there.
struct Replay<'a> {
    table: &'a Table,
    rows: HashMap<String, (Cells, usize)>,
    broken: bool,
}

#[derive(serde::Deserialize)]
struct Message {
    key: String,
    value: StdHashMap<String, Option<String>>,
    headers: Headers,
}

#[derive(serde::Deserialize)]
struct Headers {
    operation: String,
}

impl Replay<'_> {
    fn take(&mut self, messages: &[u8]) {
        for message in split(messages) {
            match serde_json::from_slice::<Message>(message) {
                Ok(message) => self.message(message),
                Err(error) => {
                    tracing::warn!(%error, "a row of a subquery cannot be read");
                    self.broken = true;
                }
            }
        }
    }

    fn message(&mut self, message: Message) {
        let cells = self.cells(message.value);
        match message.headers.operation.as_str() {
            "insert" => self.rows.entry(message.key).or_insert_with(|| (cells, 0)).1 += 1,
            "update" => {
                if let Some((known, _)) = self.rows.get_mut(&message.key) {
                    *known = cells;
                }
            }
            _ => {
                if let hashbrown::hash_map::Entry::Occupied(mut entry) = self.rows.entry(message.key) {
                    entry.get_mut().1 -= 1;
                    if entry.get().1 == 0 {
                        entry.remove();
                    }
                }
            }
        }
    }

    /// As the stream would bring them: booleans have one letter there.
    fn cells(&self, mut value: StdHashMap<String, Option<String>>) -> Cells {
        let columns = self.table.columns.iter();
        columns
            .map(|column| {
                let text = value.remove(&column.name).flatten()?;
                Some(match (column.ty.oid, text.as_str()) {
                    (BOOL, "true") => b"t".as_slice().into(),
                    (BOOL, "false") => b"f".as_slice().into(),
                    (_, text) => text.as_bytes().into(),
                })
            })
            .collect()
    }
}

const BOOL: u32 = 16;
