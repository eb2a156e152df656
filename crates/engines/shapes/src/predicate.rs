//! Where clauses, on tables as the catalog describes them.

use crate::table::Table;
use thalweg_filter::{Column, ParseError, Schema};

pub(crate) use thalweg_filter::Predicate;

/// What of a table where clauses may name: one for all that are read for the same table at a time.
pub(crate) fn schema(table: &Table) -> Schema {
    let column = |column: &crate::table::Column| Column {
        name: column.name.clone(),
        type_oid: column.ty.oid,
        element_oid: column.ty.element,
        labels: column.ty.labels.clone(),
    };
    Schema::new(&table.name.name, table.columns.iter().map(column).collect())
}

/// Reads a where clause about rows of `table`. `params`: the values of `$1`, `$2`, ….
pub(crate) fn parse(sql: &str, params: &[(u32, String)], table: &Table) -> Result<Predicate, ParseError> {
    Predicate::parse(sql, params, &schema(table))
}
