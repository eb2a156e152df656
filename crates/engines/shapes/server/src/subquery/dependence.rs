//! Where clauses with subqueries as definitions have them, and the nodes that they come to.

use super::inner::Inner;
use super::node::Node;
use crate::shape::Shape;
use hashbrown::HashMap;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use thalweg_filter::{Condition, Filter, Query};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_core::route::ids::RouteId;
use thalweg_shapes_core::subquery::seen::Seen;
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::definition::{Identity, Replica};
use thalweg_shapes_model::row::{Cells, Row as _, borrowed};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;

/// A where clause with subqueries, and the tables that those select from.
#[derive(Clone)]
pub(crate) struct Dependence {
    pub(crate) condition: Arc<Condition>,
    pub(crate) tables: HashMap<u32, Arc<Table>>,
}

/// The select list that makes rows tell which positions are true of them: these columns, and behind them one boolean
/// for each position.
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

/// The identity of an inner shape. No definition of a client looks like this.
pub(crate) fn identity(query: &Query) -> String {
    format!("inner {} {}", query.table.oid, query.canonical())
}

/// The same as shapes have it.
pub(crate) fn inner_identity(query: &Query) -> Identity {
    Identity::of(identity(query).as_bytes())
}

/// The columns of an inner shape: the key, and those that the query uses.
pub(crate) fn inner_columns(table: &Table, query: &Query) -> Vec<usize> {
    let all: BTreeSet<usize> = table.key().into_iter().chain(query.columns()).collect();
    all.into_iter().collect()
}

/// A node for an outer shape.
pub(crate) fn outer_node(
    shape: &Arc<Shape>,
    route_id: RouteId,
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
pub(crate) fn inner_node(
    shape: &Arc<Shape>,
    route_id: RouteId,
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

/// A row by the table's columns, of one that has only some of them, in this order.
pub(crate) fn cells(columns: &[usize], line: &CopyRow, width: usize) -> Cells {
    let mut cells: Vec<Option<Box<[u8]>>> = vec![None; width];
    for (place, at) in columns.iter().enumerate() {
        if let Some(cell) = cells.get_mut(*at) {
            *cell = line.cell(place).map(Into::into);
        }
    }
    cells.into()
}
