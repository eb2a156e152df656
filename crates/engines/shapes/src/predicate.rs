//! Where clauses, on tables as the catalog describes them.

use crate::table::{Table, TableName};
use std::sync::Arc;
use thalweg_filter::{Column, Condition, InnerTable, Named, ParseError, Schema};

pub(crate) use thalweg_filter::Predicate;

/// No type has this oid.
const UNKNOWN: u32 = 0;

/// Where a table is looked for that is named without a schema.
const SCHEMA: &str = "public";

/// Reads a where clause without subqueries about rows of `table`. `params`: the values of `$1`, `$2`, ….
pub(crate) fn parse(sql: &str, params: &[(u32, String)], table: &Table) -> Result<Predicate, ParseError> {
    Predicate::parse(sql, params, &schema(table))
}

/// Whether it is worth a look: a clause with subqueries has this word. (So may others.)
pub(crate) fn may_have_subqueries(sql: &str) -> bool {
    const WORD: &[u8] = b"select";
    sql.as_bytes().windows(WORD.len()).any(|window| window.eq_ignore_ascii_case(WORD))
}

/// The tables that a where clause's subqueries select from; none if it has no subqueries.
pub(crate) fn inner_tables(sql: &str, params: &[(u32, String)]) -> Result<Vec<TableName>, ParseError> {
    Ok(thalweg_filter::inner_tables(sql, params)?.iter().map(name).collect())
}

/// Reads a where clause with subqueries; `tables`: those of [`inner_tables`].
pub(crate) fn condition(
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

pub(crate) fn name(named: &Named) -> TableName {
    TableName { schema: named.schema.clone().unwrap_or_else(|| SCHEMA.to_owned()), name: named.name.clone() }
}

/// What of a table where clauses may name: one for all that are read for the same table at a time.
pub(crate) fn schema(table: &Table) -> Schema {
    let column = |column: &crate::table::Column| {
        let ty = &column.ty;
        // To compare such arrays, constants would have to be of their type.
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
