//! Rows as they are at one moment, and which moment that is.
//!
//! All of it is one transaction, `REPEATABLE READ READ ONLY`. Its first statement takes the snapshot and only then asks where the log
//! ends: what commits after that position is not in the snapshot.

use super::error::SourceError;
use super::session::Session;
use crate::state::snapshot::PgSnapshot;
use crate::table::{Table, quoted};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::time::Duration;
use thalweg_wire::pg::{Lsn, quote_literal};

/// Waiting for the server's answer after it should have interrupted the statement itself.
const GRACE: Duration = Duration::from_secs(30);
/// Between two words of the server, when nothing long is asked.
pub(super) const SHORT: Duration = Duration::from_secs(60);

/// What a snapshot gives, in this order.
#[derive(Debug)]
pub(crate) enum Taken<'a> {
    /// Once, before the first row.
    Snapshot(&'a PgSnapshot),
    /// A row in the text format of `COPY`: columns in the order asked for, between tabs, `\N` for NULL, escaped; without its line feed.
    Row(&'a [u8]),
}

/// `SELECT` of these columns, in this order. `filter` is SQL without parameters.
#[must_use]
pub(crate) fn select(table: &Table, columns: &[usize], filter: Option<&str>) -> String {
    let names: Vec<String> = columns.iter().map(|at| quoted(&table.columns[*at].name)).collect();
    let mut sql = format!("SELECT {} FROM {}", names.join(", "), table.name);
    if let Some(filter) = filter {
        let _ = write!(sql, " WHERE ({filter})");
    }
    sql
}

/// Gives the snapshot and then every row of `select`, which is of this table, to `take`, which may break it off. `limit`: how long the
/// query may take.
pub(crate) fn copy(
    session: &mut Session,
    table: &Table,
    select: &str,
    limit: Option<Duration>,
    mut take: impl FnMut(Taken<'_>) -> ControlFlow<()>,
) -> Result<PgSnapshot, SourceError> {
    // The query itself may be silent for long before its first row; a server that is gone is noticed by TCP.
    session.conn.set_read_timeout(limit.map(|limit| limit + GRACE));
    let done = begin(session, table, limit).and_then(|snapshot| {
        if take(Taken::Snapshot(&snapshot)).is_break() {
            return Err(SourceError::Stopped);
        }
        rows(session, select, |row| take(Taken::Row(row)))?;
        session.conn.simple("COMMIT").map_err(|error| session.cancel.explain(error))?;
        Ok(snapshot)
    });
    session.conn.set_read_timeout(Some(SHORT));
    if done.is_err() {
        session.roll_back();
    }
    done
}

/// The rows of `select`, in a transaction that [`begin`] began; see [`Taken::Row`].
pub(crate) fn rows(
    session: &mut Session,
    select: &str,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), SourceError> {
    let Session { conn, cancel } = session;
    let mut rows = conn.copy_out(&format!("COPY ({select}) TO STDOUT")).map_err(|error| cancel.explain(error))?;
    // Each message is one row (Postgres documentation, section "COPY Operations").
    while let Some(row) = rows.next().map_err(|error| cancel.explain(error))? {
        if take(row.strip_suffix(b"\n").unwrap_or(row)).is_break() {
            // The connection is lost with it: what is still to come could be of any size.
            return Err(SourceError::Stopped);
        }
    }
    Ok(())
}

/// Begins the transaction, and sees to it that the table's name still means the same table.
pub(crate) fn begin(session: &mut Session, table: &Table, limit: Option<Duration>) -> Result<PgSnapshot, SourceError> {
    let mut sql = String::from("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ");
    if let Some(limit) = limit {
        let _ = write!(sql, "SET LOCAL statement_timeout = {}; ", limit.as_millis().clamp(1, i32::MAX as u128));
    }
    let name = quote_literal(&table.name.to_string());
    let set = Session::set_local();
    let _ = write!(sql, "SELECT pg_current_snapshot(), pg_current_wal_insert_lsn(), to_regclass({name})::oid{set}");
    let answers = session.conn.simple(&sql).map_err(|error| session.cancel.explain(error))?;
    let row = answers.last().and_then(|answer| answer.row(0));
    let text = |at| row.and_then(|row| row.get(at)).unwrap_or_default();
    if text(2) != table.oid.to_string() {
        return Err(SourceError::Replaced);
    }
    let snapshot: PgSnapshot = text(0).parse().map_err(|error| SourceError::Catalog(format!("{error}")))?;
    let lsn: Lsn = text(1).parse().map_err(|error| SourceError::Catalog(format!("{error}")))?;
    Ok(PgSnapshot { lsn: lsn.0, ..snapshot })
}
