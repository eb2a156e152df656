//! What Postgres says, at one moment that has a name.

use crate::client::{Definition, Row};
use anyhow::Context;
use postgres::{Client, SimpleQueryMessage};
use std::sync::Arc;

/// Rows of each shape at one LSN; none where Postgres itself cannot evaluate the condition.
pub(crate) struct Truth {
    pub(crate) lsn: u64,
    pub(crate) rows: Vec<Option<Vec<Row>>>,
}

impl Truth {
    /// One snapshot for all shapes. Writers are at rest: everything that is committed is in it.
    pub(crate) fn read(client: &mut Client, definitions: &[Arc<Definition>]) -> anyhow::Result<Self> {
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        let lsn = one(client, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")?.parse()?;
        let mut rows = Vec::new();
        for definition in definitions {
            client.batch_execute("SAVEPOINT s")?;
            let found = select(client, definition, "", "").ok();
            client.batch_execute("ROLLBACK TO s")?;
            rows.push(found);
        }
        client.batch_execute("COMMIT")?;
        Ok(Self { lsn, rows })
    }
}

/// Rows of a shape, further filtered (`AND (…)`) and ordered (` ORDER BY …`).
pub(crate) fn select(
    client: &mut Client,
    definition: &Definition,
    and: &str,
    order: &str,
) -> Result<Vec<Row>, postgres::Error> {
    let columns = definition.columns.as_ref().map_or_else(
        || "*".to_owned(),
        |names| names.iter().map(|name| crate::schema::identifier(name)).collect::<Vec<_>>().join(", "),
    );
    let filter = definition.clause.as_ref().map_or_else(|| "true".to_owned(), |c| c.inlined());
    let and = if and.is_empty() { String::new() } else { format!(" AND ({and})") };
    let sql = format!("SELECT {columns} FROM {} WHERE ({filter}){and}{order}", definition.name);
    let mut rows = Vec::new();
    for message in client.simple_query(&sql)? {
        if let SimpleQueryMessage::Row(row) = message {
            let values =
                row.columns().iter().enumerate().map(|(at, c)| (c.name().to_owned(), row.get(at).map(str::to_owned)));
            rows.push(values.collect());
        }
    }
    Ok(rows)
}

/// The first value of the first row, as text.
pub(crate) fn one(client: &mut Client, sql: &str) -> anyhow::Result<String> {
    for message in client.simple_query(sql)? {
        if let SimpleQueryMessage::Row(row) = message {
            return row.get(0).map(str::to_owned).context("NULL");
        }
    }
    anyhow::bail!("no row: {sql}")
}

/// A row in one spelling: booleans are `true` in snapshots and `t` in the log, and both are right.
pub(crate) fn normal(row: &Row) -> String {
    let mut out = String::new();
    for (name, value) in row {
        let value = match value.as_deref() {
            Some("true") => "t",
            Some("false") => "f",
            Some(value) => value,
            None => "\u{0}NULL",
        };
        out += &format!("{name}={value:?} ");
    }
    out
}
