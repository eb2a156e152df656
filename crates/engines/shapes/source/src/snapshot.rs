//! The rows of a table as of one snapshot, with that snapshot.
//!
//! All of it is one transaction, `REPEATABLE READ READ ONLY`. It locks the table, then takes the snapshot, and only
//! then asks where the log ends: a transaction that commits after that position is not in the snapshot.

use super::error::SourceError;
use super::postgres::Begun;
use super::session::{Limits, Place, Session, Sql};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::time::Duration;
use thalweg_pg::{Error, PgLsn, ResultSet, quote_literal};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::{Table, quoted};

/// How long to wait for the server's answer after its own timeout should have interrupted the statement.
const GRACE: Duration = Duration::from_secs(30);
/// The lock timeout: how long the snapshot waits for a statement that alters the table.
const LOCK_WITHIN: Duration = Duration::from_secs(30);
/// How long Postgres may take to write its log to its disk, and how often it is asked whether it has.
const FLUSHED_WITHIN: Duration = Duration::from_secs(30);
const FLUSH_LOOK_EVERY: Duration = Duration::from_millis(5);
/// Read timeout for short queries.
pub(super) const SHORT: Duration = Duration::from_secs(60);

/// The parts of a snapshot, in this order.
#[derive(Debug)]
pub enum Taken<'a> {
    /// Once, before the first row.
    Snapshot(&'a PgSnapshot),
    /// A row in the text format of `COPY`: columns in the requested order, between tabs, `\N` for NULL, escaped;
    /// without its line feed.
    Row(&'a [u8]),
}

/// `SELECT` of these columns, in this order. `filter` is SQL without parameters.
#[must_use]
pub fn select(table: &Table, columns: &[usize], filter: Option<&str>) -> String {
    let names: Vec<String> = columns.iter().map(|at| quoted(&table.columns[*at].name)).collect();
    let mut sql = format!("SELECT {} FROM {}", names.join(", "), table.name);
    if let Some(filter) = filter {
        let _ = write!(sql, " WHERE ({filter})");
    }
    sql
}

/// Gives the snapshot and then every row of `select`, which is of this table, to `take`, which may break it off.
/// `limit`: how long the query may take.
pub fn copy(
    session: &mut Session,
    table: &Table,
    select: &str,
    limit: Option<Duration>,
    mut take: impl FnMut(Taken<'_>) -> ControlFlow<()>,
) -> Result<PgSnapshot, SourceError> {
    // The query itself may be silent for long before its first row; a server that is gone is noticed by TCP.
    session.connection.set_read_timeout(limit.map(|limit| limit + GRACE));
    let limits = Limits { statement: limit, lock: LOCK_WITHIN };
    let done = begin(session, table, limits).and_then(|snapshot| {
        if take(Taken::Snapshot(&snapshot)).is_break() {
            return Err(SourceError::Stopped);
        }
        rows(session, select, |row| take(Taken::Row(row)))?;
        let flushed = session.connection.end().map_err(|error| session.explain(error))?;
        if flushed.0 < snapshot.lsn {
            // The receiver discards the rows of a snapshot whose session is lost before this statement.
            flush(session, snapshot.lsn)?;
        }
        Ok(snapshot)
    });
    session.connection.set_read_timeout(Some(SHORT));
    if done.is_err() {
        session.roll_back();
    }
    done
}

/// The rows of `select`, in a transaction that [`begin`] began; see [`Taken::Row`].
fn rows(
    session: &mut Session,
    select: &str,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), SourceError> {
    let read = session.connection.rows(select, &mut take).map_err(|error| session.explain(error))?;
    if read.is_break() { Err(SourceError::Stopped) } else { Ok(()) }
}

/// Like `rows`, for a query that may take this long, including its silence before the first row.
pub fn rows_within(
    session: &mut Session,
    select: &str,
    limit: Duration,
    take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), SourceError> {
    session.connection.set_read_timeout(Some(limit + GRACE));
    let done = rows(session, select, take);
    session.connection.set_read_timeout(Some(SHORT));
    done
}

/// Begins the transaction: locks the table against being altered, renamed or rewritten, takes the snapshot, and checks
/// that the table's name still means the same table and that the server is the source of changes.
pub fn begin(session: &mut Session, table: &Table, limits: Limits) -> Result<PgSnapshot, SourceError> {
    let begun = match session.connection.begin(table, limits, true) {
        // A role that may read some columns only may not lock the table.
        Err(error) if error.code() == Some("42501") => {
            session.roll_back();
            session.connection.begin(table, limits, false)
        }
        begun => begun,
    };
    let begun = begun.map_err(|error| match session.explain(error) {
        // The error of the lock if the table's name no longer exists.
        SourceError::SchemaChanged(_) => SourceError::Replaced,
        error => error,
    })?;
    session.check_place(begun.place.as_ref())?;
    if begun.oid != Some(table.oid) {
        return Err(SourceError::Replaced);
    }
    Ok(begun.snapshot)
}

/// The first statements of the transaction. The lock comes before the snapshot: a snapshot older than a rewrite sees no
/// rows of the rewritten table.
pub(crate) fn first(table: &Table, lock: bool, place_columns: &str) -> String {
    let lock = if lock { format!("LOCK TABLE {} IN ACCESS SHARE MODE; ", table.name) } else { String::new() };
    format!(
        "{lock}SELECT pg_catalog.pg_current_snapshot(), pg_catalog.pg_current_wal_insert_lsn(), \
         pg_catalog.to_regclass({})::pg_catalog.oid, {}",
        quote_literal(&table.name.to_string()),
        place_columns
    )
}

/// The answer to [`first`].
pub(crate) fn begun(answer: &ResultSet) -> Result<Begun, Error> {
    let value = |at| answer.row(0).and_then(|row| row.get(at));
    let snapshot = value(0).and_then(|text| text.parse::<PgSnapshot>().ok());
    let snapshot = snapshot.ok_or(Error::Protocol("a snapshot in an unknown form"))?;
    Ok(Begun {
        snapshot: PgSnapshot { lsn: position(value(1))?.0, ..snapshot },
        oid: value(2).and_then(|text| text.parse().ok()),
        place: Place::read(value(3), value(4)),
    })
}

/// Ensures that the server's WAL is on its disk up to `lsn`; outside of a transaction. A snapshot may contain
/// transactions that are not durable (`synchronous_commit = off`): a crash of the server would undo them, and the
/// stream would never send them.
pub fn flush(session: &mut Session, lsn: u64) -> Result<(), SourceError> {
    let mut asked = false;
    let until = session.clock.now() + FLUSHED_WITHIN;
    loop {
        let flushed = session.connection.flushed().map_err(|error| session.explain(error))?;
        if flushed.0 >= lsn {
            return Ok(());
        }
        if session.clock.now() > until {
            return Err(SourceError::Other("Postgres does not write its log to its disk".to_owned()));
        }
        if std::mem::replace(&mut asked, true) {
            session.clock.sleep(FLUSH_LOOK_EVERY);
        } else {
            // A commit that writes WAL flushes all WAL before it.
            session.connection.flush(LOCK_WITHIN).map_err(|error| session.explain(error))?;
        }
    }
}

pub(crate) const FLUSHED: &str = "SELECT pg_catalog.pg_current_wal_flush_lsn()";
pub(crate) const FLUSH: &str = "SET LOCAL synchronous_commit = local; SELECT pg_catalog.pg_logical_emit_message(true, 'thalweg', ''::pg_catalog.text)";

/// The end of the WAL, and the bytes of it kept for the slot of the name that follows.
const WAL_END: &str = "SELECT pg_catalog.pg_current_wal_flush_lsn(), \
    (SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), s.restart_lsn)::pg_catalog.int8 \
    FROM pg_catalog.pg_replication_slots s WHERE s.slot_name OPERATOR(pg_catalog.=) ";

pub(crate) fn wal_end(sql: &mut Sql, slot: &str) -> Result<(PgLsn, u64), Error> {
    let answer = sql.ask(&format!("{WAL_END}{})", quote_literal(slot)))?;
    let value = |at| answer.row(0).and_then(|row| row.get(at));
    Ok((position(value(0))?, value(1).and_then(|text| text.parse().ok()).unwrap_or(0)))
}

pub(crate) fn position(text: Option<&str>) -> Result<PgLsn, Error> {
    text.and_then(|text| text.parse().ok()).ok_or(Error::Protocol("an LSN in an unknown form"))
}
