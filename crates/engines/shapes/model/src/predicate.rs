//! Where clauses over tables as the catalog describes them.

use crate::table::{Table, TableName};
use std::sync::Arc;
use thalweg_filter::{Column, Condition, InnerTable, Named, ParseError, Schema};

pub use thalweg_filter::Predicate;

/// No type has this oid.
const UNKNOWN: u32 = 0;

/// The schema of a table that is named without one.
const SCHEMA: &str = "public";

/// Reads a where clause without subqueries about rows of `table`. `params`: the values of `$1`, `$2`, ….
pub fn parse(sql: &str, params: &[(u32, String)], table: &Table) -> Result<Predicate, ParseError> {
    Predicate::parse(sql, params, &schema(table))
}

/// A cheap test that every clause with subqueries passes: it contains the word `SELECT`. Clauses without subqueries may
/// pass too.
pub fn may_have_subqueries(sql: &str) -> bool {
    const WORD: &[u8] = b"select";
    sql.as_bytes().windows(WORD.len()).any(|window| window.eq_ignore_ascii_case(WORD))
}

/// The tables that a where clause's subqueries select from; none if it has no subqueries.
pub fn inner_tables(sql: &str, params: &[(u32, String)]) -> Result<Vec<TableName>, ParseError> {
    Ok(thalweg_filter::inner_tables(sql, params)?.iter().map(name).collect())
}

/// Reads a where clause with subqueries; `tables`: those of [`inner_tables`].
pub fn condition(
    sql: &str,
    params: &[(u32, String)],
    table: &Table,
    tables: &[Arc<Table>],
) -> Result<Condition, ParseError> {
    Condition::parse(sql, params, &schema(table), &|named| {
        let name = name(named);
        let found = tables.iter().find(|table| table.name == name)?;
        Some(InnerTable { oid: found.oid, sql: found.name.to_string(), columns: schema(found) })
    })
}

/// The table that a clause names; without a schema it is in `public`.
pub fn name(named: &Named) -> TableName {
    TableName { schema: named.schema.clone().unwrap_or_else(|| SCHEMA.to_owned()), name: named.name.clone() }
}

/// The columns that where clauses of a table may name. One schema serves all clauses that are parsed for the table.
pub fn schema(table: &Table) -> Schema {
    let column = |column: &crate::table::Column| {
        let ty = &column.ty;
        // An array of a checked domain compares with constants of its own type only, and reading one runs the checks.
        let is_checked = ty.made.as_ref().is_some_and(|made| made.checked);
        Column {
            name: column.name.clone(),
            type_oid: if is_checked { UNKNOWN } else { ty.oid },
            element_oid: if is_checked { 0 } else { ty.element },
            labels: if is_checked { Vec::new() } else { ty.labels.clone() },
            type_sql: ty.made.as_ref().map(|made| made.name.to_string()).unwrap_or_default(),
        }
    };
    Schema::new(&table.name.name, table.columns.iter().map(column).collect())
}
