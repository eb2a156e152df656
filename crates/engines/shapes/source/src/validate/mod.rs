//! Postgres's verdict on a shape's predicate, before any query runs.
//!
//! Even parsing runs code: a constant becomes a value of its type, and user-defined types may have a check, or consist
//! of types that have one. So Postgres does not parse a client's predicate against the table, whose columns may have
//! such types, but against a row of parameters of built-in types; and a predicate that names a schema is not sent at
//! all.

mod scan;

use super::error::SourceError;
use super::session::Session;
use std::fmt::Write;
use thalweg_pg::DbError;
use thalweg_shapes_model::table::{ColumnType, FIRST_NORMAL_OID, Table, quoted};

/// The statement before the predicate where Electric reads it.
const ELECTRIC_BEFORE: &str = "SELECT 1 WHERE ";

/// Why a predicate is none.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// 400, field `where`.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Lets Postgres parse the predicate unchanged, with `$1`, `$2`, … for `params`. `false`: the predicate must not be
/// sent to Postgres.
pub fn filter(
    session: &mut Session,
    table: &Table,
    sql: &str,
    params: &[(u32, String)],
) -> Result<bool, ValidateError> {
    let scanned = scan::one_expression(sql).map_err(|error| ValidateError::Invalid(error.to_string()))?;
    if let Some(missing) = (1..=scanned.parameters).find(|n| params.iter().all(|(given, _)| given != n)) {
        return Err(ValidateError::Invalid(format!("parameter ${missing} was not provided")));
    }
    if scanned.qualified {
        return Ok(false);
    }
    let (before, types) = row(table, scanned.parameters);
    // A comment may end the predicate: the parenthesis is on a separate line.
    let whole = format!("{before}{sql}\n)");
    let read = session.connection.read(&whole, &types);
    read.map(|()| true).map_err(|error| explain(error.into(), &before, sql))
}

/// The statement before the predicate: a row with the table's columns as parameters behind those of the predicate, and
/// the types of all.
fn row(table: &Table, parameters: u32) -> (String, Vec<u32>) {
    let mut types = vec![0; parameters as usize];
    let mut sql = String::from("SELECT FROM (SELECT");
    for (at, column) in table.columns.iter().enumerate() {
        types.push(harmless(&column.ty));
        let _ = write!(sql, "{} ${} AS {}", if at == 0 { "" } else { "," }, types.len(), quoted(&column.name));
    }
    let _ = write!(sql, ") AS {} WHERE (", quoted(&table.name.name));
    (sql, types)
}

/// The type itself if it is built in; otherwise text, which takes any constant and has no user-defined cast.
fn harmless(ty: &ColumnType) -> u32 {
    match (ty.element, ty.oid) {
        (0, oid) | (oid, _) if oid < FIRST_NORMAL_OID => ty.oid,
        (0, _) => TEXT,
        _ => TEXT_ARRAY,
    }
}

const TEXT: u32 = 25;
const TEXT_ARRAY: u32 = 1009;

fn explain(error: SourceError, before: &str, sql: &str) -> ValidateError {
    match error {
        // The table was looked up a moment ago, so an unknown name is the request's fault.
        SourceError::Invalid(db) | SourceError::SchemaChanged(db) => ValidateError::Invalid(words(&db, before, sql)),
        error => ValidateError::Source(error),
    }
}

fn words(db: &DbError, before: &str, sql: &str) -> String {
    let skipped = before.chars().count() as u32;
    let at = db.position.and_then(|at| at.checked_sub(skipped)).filter(|at| *at >= 1);
    match at {
        // Only our own parenthesis is beyond the predicate's end.
        Some(at) if at as usize > sql.chars().count() => {
            format!("{} at the end", db.message.replace(" at or near \")\"", ""))
        }
        // Clients of Electric expect positions counted from the beginning of Electric's own query, from 0.
        Some(at) => format!("At location {}: {}", at as usize - 1 + ELECTRIC_BEFORE.len(), db.message),
        None => db.message.clone(),
    }
}
