//! Sessions with Postgres: the one place that opens them, and the settings of each transaction.
//!
//! A role or a database may have settings of its own, and a transaction pooler lends server processes that other
//! clients have changed and will use again. So sessions assume no settings and leave none behind: every query is a
//! transaction that begins with `settings::local`.

mod endpoint;
mod settings;

pub use endpoint::{Endpoint, Followed, Place};
pub use settings::Limits;

use super::cancel::Cancel;
use super::clock::Clock;
use super::error::SourceError;
use settings::Has;
use std::sync::Arc;
use std::time::Duration;
use thalweg_wire::pg::{CancelToken, Conn, CopyOut, Error, ResultSet, ServerVersion, Statement, TransactionStatus};

/// How long a snapshot waits until it is known which server is followed: a start and a failover take that long.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);

/// A connection for queries, and the cancellation of the current one.
#[derive(Debug)]
pub struct Session {
    conn: Conn,
    pub cancel: Arc<Cancel>,
    followed: Arc<Followed>,
    pub(crate) clock: Arc<dyn Clock>,
    has: Has,
    /// The server reveals its system and timeline; some providers hide them from users.
    tells_place: bool,
    /// The server is not the source of changes.
    is_elsewhere: bool,
    /// The number of lost sources when this session was opened.
    left: u64,
}

impl Session {
    /// Runs statements that change nothing, in a transaction of their own and one message; returns the rows of the last
    /// one.
    pub fn ask(&mut self, sql: &str) -> Result<ResultSet, Error> {
        self.run("READ ONLY", Limits::SHORT, sql)
    }

    /// Runs statements in a transaction of their own and one message: all of them, or none.
    pub fn change(&mut self, lock: Duration, sql: &str) -> Result<ResultSet, Error> {
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
    pub(super) fn begin(&mut self, limits: Limits, first: &str) -> Result<ResultSet, Error> {
        let settings = settings::local(self.has, limits);
        let sql = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {settings}{first}");
        Ok(self.conn.simple(&sql)?.pop().unwrap_or_default())
    }

    /// The last query within the transaction that [`Session::begin`] began; the transaction is rolled back. As a
    /// separate statement after the transaction it would run with the role's settings.
    pub(super) fn end(&mut self, sql: &str) -> Result<ResultSet, Error> {
        let mut answers = self.conn.simple(&format!("{sql}; ROLLBACK"))?;
        answers.pop();
        Ok(answers.pop().unwrap_or_default())
    }

    /// Rows within the transaction that [`Session::begin`] began.
    pub(super) fn copy_out(&mut self, sql: &str) -> Result<CopyOut<'_>, Error> {
        self.conn.copy_out(sql)
    }

    /// Has the server read a statement; nothing runs. `types`: of the first parameters.
    pub(super) fn describe(&mut self, sql: &str, types: &[u32]) -> Result<Statement, Error> {
        self.begin(Limits::SHORT, "")?;
        let described = self.conn.describe(sql, types);
        self.roll_back();
        described
    }

    /// Ends a transaction that is still open.
    pub fn roll_back(&mut self) {
        if !self.conn.is_poisoned() && self.conn.transaction_status() != TransactionStatus::Idle {
            // If it fails the connection is poisoned, or still in a transaction, and its owner does not use it again.
            let _ = self.conn.simple("ROLLBACK");
        }
    }

    /// Whether the session can run another query, on the server that changes come from.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.is_elsewhere
            && self.left == self.followed.left()
            && !self.conn.is_poisoned()
            && self.conn.transaction_status() == TransactionStatus::Idle
    }

    /// Whether the server sent something unasked, as it does when it ends the session.
    pub(super) fn has_unread(&self) -> bool {
        self.conn.has_unread()
    }

    /// Whether the server answers.
    pub(super) fn is_alive(&mut self) -> bool {
        self.conn.simple("").is_ok()
    }

    pub fn server_version(&self) -> ServerVersion {
        self.conn.server_version()
    }

    /// The token with which another thread interrupts a query.
    pub(super) fn cancel_token(&self) -> Option<CancelToken> {
        self.conn.cancel_token()
    }

    /// How long each later call waits for a byte from the server; `None`: for ever.
    pub(super) fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.conn.set_read_timeout(timeout);
    }

    /// The columns of a `SELECT` that hold the server's system and timeline, for [`Session::check_place`].
    pub(super) fn place_columns(&self) -> &'static str {
        if self.tells_place { endpoint::PLACE } else { "NULL, NULL" }
    }

    /// Refuses the answer of a server that changes do not come from: after a failover an address may lead to the old
    /// primary for a while. The session is not used again.
    pub(super) fn check_place(&mut self, system: Option<&str>, timeline: Option<&str>) -> Result<(), SourceError> {
        let checked = self.followed.check(Place::read(system, timeline).as_ref(), FOLLOWED_WITHIN);
        self.is_elsewhere = matches!(checked, Err(SourceError::Elsewhere { .. }));
        checked
    }

    #[cfg(test)]
    pub fn conn(&mut self) -> &mut Conn {
        &mut self.conn
    }
}
