//! Sessions with Postgres: the one place that opens them, and the settings of each transaction.
//!
//! A role or a database may have settings of its own, and a transaction pooler lends server processes that other
//! clients have changed and will use again. So sessions assume no settings and leave none behind: every query is a
//! transaction that begins with `settings::local`.

mod endpoint;
mod settings;
mod sql;

pub use endpoint::{Endpoint, Followed, Place};
pub use settings::Limits;
pub(crate) use settings::session as session_settings;
pub(crate) use settings::{has, optional_sql};
pub(crate) use sql::Sql;

use super::cancel::Cancel;
use super::clock::Clock;
use super::error::SourceError;
use super::postgres::Connection;
use std::sync::Arc;
use std::time::Duration;
use thalweg_pg::{CancelToken, Error, ServerVersion};

/// How long a snapshot waits until it is known which server is followed: a start and a failover take that long.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);

/// A connection for queries, and the cancellation of the current one.
#[derive(Debug)]
pub struct Session {
    pub(crate) connection: Box<dyn Connection>,
    pub cancel: Arc<Cancel>,
    followed: Arc<Followed>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The server is not the one that changes come from.
    is_elsewhere: bool,
    /// The number of lost sources when this session was opened.
    left: u64,
}

impl Session {
    /// The meaning of an error of the current question.
    pub(crate) fn explain(&self, error: Error) -> SourceError {
        self.cancel.explain(error)
    }

    /// Ends a transaction that is still open.
    pub fn roll_back(&mut self) {
        self.connection.roll_back();
    }

    /// Whether the session can run another query, on the server that changes come from.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.is_elsewhere && self.left == self.followed.left() && self.connection.is_idle()
    }

    /// Whether the server sent something unasked, as it does when it ends the session.
    pub(super) fn has_unread(&self) -> bool {
        self.connection.has_unread()
    }

    /// Whether the server answers.
    pub(super) fn is_alive(&mut self) -> bool {
        self.connection.is_alive()
    }

    pub fn server_version(&self) -> ServerVersion {
        self.connection.version()
    }

    /// The end of the server's WAL, and the bytes of it that the server keeps for `slot`.
    pub fn wal_end(&mut self, slot: &str) -> Result<(u64, u64), SourceError> {
        let (end, kept) = self.connection.wal_end(slot)?;
        Ok((end.0, kept))
    }

    /// The token with which another thread interrupts a query.
    pub(super) fn cancel_token(&self) -> Option<CancelToken> {
        self.connection.cancel_token()
    }

    /// Refuses the answer of a server that changes do not come from: after a failover an address may lead to the old
    /// primary for a while. The session is not used again.
    pub(super) fn check_place(&mut self, place: Option<&Place>) -> Result<(), SourceError> {
        let checked = self.followed.check(place, FOLLOWED_WITHIN, &*self.clock);
        self.is_elsewhere = matches!(checked, Err(SourceError::Elsewhere { .. }));
        checked
    }

    #[cfg(test)]
    pub(crate) fn sql(&mut self) -> &mut Sql {
        let connection: &mut dyn std::any::Any = self.connection.as_mut();
        connection.downcast_mut().expect("a connection to a server")
    }

    #[cfg(test)]
    pub(crate) fn conn(&mut self) -> &mut thalweg_pg::Conn {
        &mut self.sql().conn
    }
}
