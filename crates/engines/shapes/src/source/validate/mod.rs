//! What Postgres says of a shape's predicate, before anything runs.

mod scan;

use super::error::SourceError;
use super::session::Session;
use crate::table::Table;
use thalweg_wire::pg::DbError;

/// What stands before the predicate where Electric reads it.
const ELECTRIC_BEFORE: &str = "SELECT 1 WHERE ";

/// Why a predicate is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValidateError {
    /// 400, field `where`.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Has Postgres read the predicate as it stands, with `$1`, `$2`, … for `params`; nothing runs. Gives the types of the parameters (oid).
pub(crate) fn filter(
    session: &mut Session,
    table: &Table,
    sql: &str,
    params: &[(u32, String)],
) -> Result<Vec<u32>, ValidateError> {
    scan::one_expression(sql).map_err(|error| ValidateError::Invalid(error.to_string()))?;
    let before = format!("SELECT FROM {} WHERE (", table.name);
    // A comment may end the predicate: the parenthesis is on a line of its own.
    let whole = format!("{before}{sql}\n)");
    let statement = session.conn.describe(&whole, &[]).map_err(|error| explain(error.into(), &before, sql))?;
    let needed = u32::try_from(statement.parameters.len()).unwrap_or(u32::MAX);
    if let Some(missing) = (1..=needed).find(|n| params.iter().all(|(given, _)| given != n)) {
        return Err(ValidateError::Invalid(format!("parameter ${missing} was not provided")));
    }
    Ok(statement.parameters)
}

fn explain(error: SourceError, before: &str, sql: &str) -> ValidateError {
    match error {
        // A name that is not there is the request's fault: the table itself was looked up a moment ago.
        SourceError::Invalid(db) | SourceError::SchemaChanged(db)
            if db.code != "42P01" || !names_nothing(&db, before) =>
        {
            ValidateError::Invalid(words(&db, before, sql))
        }
        error => ValidateError::Source(error),
    }
}

/// Whether the error is about what stands before the predicate.
fn names_nothing(db: &DbError, before: &str) -> bool {
    db.position.is_some_and(|at| at as usize <= before.chars().count())
}

fn words(db: &DbError, before: &str, sql: &str) -> String {
    let skipped = before.chars().count() as u32;
    let at = db.position.and_then(|at| at.checked_sub(skipped)).filter(|at| *at >= 1);
    match at {
        // Beyond the predicate's end stands only our own parenthesis.
        Some(at) if at as usize > sql.chars().count() => {
            format!("{} at the end", db.message.replace(" at or near \")\"", ""))
        }
        // Clients of Electric know places that are counted from the beginning of its own query, from 0.
        Some(at) => format!("At location {}: {}", at as usize - 1 + ELECTRIC_BEFORE.len(), db.message),
        None => db.message.clone(),
    }
}
