//! A connection to a server: each question as SQL, in a transaction with settings of its own.

use super::endpoint::{PLACE, Place};
use super::settings::{self, Has, Limits};
use crate::catalog::{self, Found, Which};
use crate::error::SourceError;
use crate::postgres::{Begun, Connection};
use crate::publish::{self, Lacking};
use crate::snapshot;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;
use thalweg_pg::{CancelToken, Config, Conn, Error, PgLsn, ResultSet, ServerVersion, TransactionStatus};
use thalweg_shapes_model::table::{Table, TableName};

/// A connection for queries.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) conn: Conn,
    has: Has,
    /// The server reveals its system and timeline; some providers hide them from users.
    tells_place: bool,
}

impl Sql {
    pub(crate) fn connect(config: &Config) -> Result<Self, Error> {
        let mut sql = Self { conn: Conn::connect(config)?, has: Has::default(), tells_place: true };
        sql.has = settings::has(&sql.ask(&settings::optional_sql())?);
        Ok(sql)
    }

    /// Runs statements that change nothing, in a transaction of their own and one message; the rows of the last one.
    pub(crate) fn ask(&mut self, sql: &str) -> Result<ResultSet, Error> {
        self.run("READ ONLY", Limits::SHORT, sql)
    }

    /// Runs statements in a transaction of their own and one message: all of them, or none.
    pub(crate) fn change(&mut self, lock: Duration, sql: &str) -> Result<ResultSet, Error> {
        self.run("READ WRITE", Limits { lock, ..Limits::SHORT }, sql)
    }

    /// Several statements in one message are one transaction, which an error rolls back: also through a pooler.
    fn run(&mut self, mode: &str, limits: Limits, sql: &str) -> Result<ResultSet, Error> {
        let settings = settings::local(self.has, limits);
        let sql = format!("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, {mode}; {settings}{sql}");
        Ok(self.conn.simple(&sql)?.pop().unwrap_or_default())
    }

    /// Begins a transaction that sees one moment and changes nothing. `first` may take locks before its last statement,
    /// whose rows these are, takes the snapshot.
    fn begin_with(&mut self, limits: Limits, first: &str) -> Result<ResultSet, Error> {
        let settings = settings::local(self.has, limits);
        let sql = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {settings}{first}");
        Ok(self.conn.simple(&sql)?.pop().unwrap_or_default())
    }

    /// The columns of a `SELECT` that hold the server's system and timeline.
    fn place_columns(&self) -> &'static str {
        if self.tells_place { PLACE } else { "NULL, NULL" }
    }
}

impl Connection for Sql {
    fn version(&self) -> ServerVersion {
        self.conn.server_version()
    }

    fn place(&mut self) -> Result<Option<Place>, Error> {
        match self.ask(&format!("SELECT {PLACE}")) {
            Ok(place) => {
                let value = |at| place.row(0).and_then(|row| row.get(at));
                Ok(Place::read(value(0), value(1)))
            }
            // Functions that some providers keep from users, or do not have.
            Err(error) if matches!(error.code(), Some("42501" | "42883" | "0A000")) => {
                self.tells_place = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn tables(&mut self, publication: &str, which: Which<'_>) -> Result<Vec<Found>, SourceError> {
        catalog::ask(self, publication, which)
    }

    fn marks(&mut self, name: &TableName) -> Result<Option<String>, Error> {
        catalog::marks(self, name)
    }

    fn publish(&mut self, lock: Duration, publication: &str, found: &Found, lacking: &Lacking) -> Result<(), Error> {
        self.change(lock, &publish::sql(publication, found, lacking)).map(drop)
    }

    fn members(&mut self, publication: &str) -> Result<Vec<(u32, TableName)>, Error> {
        publish::members(self, publication)
    }

    fn unpublish(&mut self, lock: Duration, publication: &str, table: &TableName) -> Result<(), Error> {
        publish::drop_table(self, lock, publication, table)
    }

    fn drop_publication(&mut self, lock: Duration, publication: &str) -> Result<(), Error> {
        let name = thalweg_shapes_model::table::quoted(publication);
        self.change(lock, &format!("DROP PUBLICATION IF EXISTS {name}")).map(drop)
    }

    fn writers(&mut self, tables: &[u32]) -> Result<HashSet<(u32, String)>, Error> {
        publish::writers(self, tables)
    }

    fn read(&mut self, sql: &str, types: &[u32]) -> Result<(), Error> {
        self.begin_with(Limits::SHORT, "")?;
        let described = self.conn.describe(sql, types);
        self.roll_back();
        described.map(drop)
    }

    fn begin(&mut self, table: &Table, limits: Limits, lock: bool) -> Result<Begun, Error> {
        let first = snapshot::first(table, lock, self.place_columns());
        snapshot::begun(&self.begin_with(limits, &first)?)
    }

    fn rows(&mut self, select: &str, take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<ControlFlow<()>, Error> {
        let mut rows = self.conn.copy_out(&format!("COPY ({select}) TO STDOUT"))?;
        // Each message is one row (Postgres documentation, section "COPY Operations").
        while let Some(row) = rows.next()? {
            if take(row.strip_suffix(b"\n").unwrap_or(row)).is_break() {
                // The connection is given up: the remaining rows could be of any size.
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(&mut self) -> Result<PgLsn, Error> {
        // Asked within the transaction: a statement of its own after it would run with the role's settings.
        let mut answers = self.conn.simple(&format!("{}; ROLLBACK", snapshot::FLUSHED))?;
        answers.pop();
        snapshot::position(answers.pop().unwrap_or_default().value())
    }

    fn roll_back(&mut self) {
        if !self.conn.is_poisoned() && self.conn.transaction_status() != TransactionStatus::Idle {
            // If it fails the connection is poisoned, or still in a transaction, and its owner does not use it again.
            let _ = self.conn.simple("ROLLBACK");
        }
    }

    fn flushed(&mut self) -> Result<PgLsn, Error> {
        snapshot::position(self.ask(snapshot::FLUSHED)?.value())
    }

    fn flush(&mut self, lock: Duration) -> Result<(), Error> {
        self.change(lock, snapshot::FLUSH).map(drop)
    }

    fn wal_end(&mut self, slot: &str) -> Result<(PgLsn, u64), Error> {
        snapshot::wal_end(self, slot)
    }

    fn is_idle(&self) -> bool {
        !self.conn.is_poisoned() && self.conn.transaction_status() == TransactionStatus::Idle
    }

    fn has_unread(&self) -> bool {
        self.conn.has_unread()
    }

    fn is_alive(&mut self) -> bool {
        self.conn.simple("").is_ok()
    }

    fn cancel_token(&self) -> Option<CancelToken> {
        self.conn.cancel_token()
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.conn.set_read_timeout(timeout);
    }
}
