//! Endpoints: addresses of the database, and the check that all of them lead to the same server.

use super::Session;
use super::settings::{self, Has};
use crate::clock::Clock;
use crate::error::SourceError;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_wire::pg::{Config, Conn, Error, ResultSet, replication};

/// The `application_name` of sessions, unless the address sets another one.
const APPLICATION: &str = "thalweg";

/// Two columns: the system identifier, and the timeline in hexadecimal.
pub(super) const PLACE: &str = "(SELECT s.system_identifier FROM pg_catalog.pg_control_system() s), \
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)";

/// The place of a server: its system and the timeline of its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub system: String,
    pub timeline: u32,
}

impl Place {
    /// `None`: the server does not report it.
    pub(super) fn read(system: Option<&str>, timeline: Option<&str>) -> Option<Self> {
        Some(Self { system: system?.to_owned(), timeline: u32::from_str_radix(timeline?, 16).ok()? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system {}, timeline {}", self.system, self.timeline)
    }
}

/// The server that changes come from. Answers of other servers must not be combined with these changes.
#[derive(Debug, Default)]
pub struct Followed {
    state: Mutex<State>,
    changed: Condvar,
    left: AtomicU64,
}

#[derive(Debug, Default)]
enum State {
    /// No changes are followed: any server is accepted.
    #[default]
    Anywhere,
    /// The replication connection is not established yet.
    Unknown,
    At(Place),
}

impl Followed {
    /// The server is not known until [`Followed::set`].
    pub fn unknown() -> Self {
        Self { state: Mutex::new(State::Unknown), ..Self::default() }
    }

    /// The server is no longer known: snapshots wait for the next one, and earlier sessions are not reused.
    pub fn lost(&self) {
        *self.state.lock() = State::Unknown;
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of calls of [`Followed::lost`].
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    pub fn set(&self, place: Place) {
        *self.state.lock() = State::At(place);
        self.changed.notify_all();
    }

    /// Refuses another server than the followed one. `patience`: how long to wait until the followed server is known.
    pub(super) fn check(&self, found: Option<&Place>, patience: Duration) -> Result<(), SourceError> {
        let mut state = self.state.lock();
        if matches!(*state, State::Unknown) && !patience.is_zero() {
            let unknown = |state: &mut State| matches!(state, State::Unknown);
            if self.changed.wait_while_for(&mut state, unknown, patience).timed_out() {
                return Err(SourceError::NotFollowed);
            }
        }
        match (&*state, found) {
            (State::At(followed), Some(found)) if followed != found => {
                Err(SourceError::Elsewhere { found: found.to_string(), followed: followed.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// The reason why no session was opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Postgres(#[from] Error),
    /// The address leads to another server.
    #[error(transparent)]
    Place(SourceError),
}

impl ConnectError {
    /// The server, the database or the role has as many connections as it may (`too_many_connections`).
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Postgres(error) if error.code() == Some("53300"))
    }
}

impl From<ConnectError> for SourceError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Postgres(error) => error.into(),
            ConnectError::Place(error) => error,
        }
    }
}

/// One address of the database.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub config: Config,
    followed: Arc<Followed>,
    pub clock: Arc<dyn Clock>,
    /// The idle time after which a pool closes a session.
    pub unused_for: Duration,
}

impl Endpoint {
    pub fn new(config: Config, followed: Arc<Followed>, clock: Arc<dyn Clock>) -> Self {
        Self { config, followed, clock, unused_for: Duration::from_secs(60) }
    }

    /// An endpoint for a database that may sleep after `idle`, unless that is zero: pools keep idle sessions no longer
    /// than that.
    #[must_use]
    pub fn sleeping_after(mut self, idle: Duration) -> Self {
        if !idle.is_zero() {
            self.unused_for = self.unused_for.min(idle);
        }
        self
    }

    /// The endpoint with another read timeout.
    #[must_use]
    pub fn patient(&self, read_timeout: Duration) -> Self {
        let mut endpoint = self.clone();
        endpoint.config.read_timeout = Some(read_timeout);
        endpoint
    }

    /// Opens a session for queries.
    pub fn connect(&self) -> Result<Session, ConnectError> {
        let left = self.followed.left();
        let mut session = Session {
            conn: Conn::connect(&self.named())?,
            cancel: Arc::default(),
            followed: Arc::clone(&self.followed),
            clock: Arc::clone(&self.clock),
            has: Has::default(),
            tells_place: true,
            is_elsewhere: false,
            left,
        };
        session.has = has(&session.ask(&settings::optional_sql())?);
        let place = match session.ask(&format!("SELECT {PLACE}")) {
            Ok(place) => place,
            // Functions that some providers keep from users, or do not have.
            Err(error) if matches!(error.code(), Some("42501" | "42883" | "0A000")) => {
                session.tells_place = false;
                return Ok(session);
            }
            Err(error) => return Err(error.into()),
        };
        let value = |at| place.row(0).and_then(|row| row.get(at));
        let place = Place::read(value(0), value(1));
        session.followed.check(place.as_ref(), Duration::ZERO).map_err(ConnectError::Place)?;
        Ok(session)
    }

    /// Opens a connection for replication. No pooler shares it, so its settings last to its end.
    pub fn replicate(&self) -> Result<replication::Conn, Error> {
        let mut conn = replication::Conn::connect(&self.named())?;
        // The timeout of the role is lifted first; the query names its schema, so the role's `search_path` does not
        // matter.
        let answers = conn.simple(&format!("SET statement_timeout = 0; {}", settings::optional_sql()))?;
        let has = answers.last().map(has).unwrap_or_default();
        conn.simple(&settings::session(has))?;
        Ok(conn)
    }

    fn named(&self) -> Config {
        let mut config = self.config.clone();
        config.application_name.get_or_insert_with(|| APPLICATION.to_owned());
        config
    }
}

fn has(answer: &ResultSet) -> Has {
    Has::of(answer.rows().filter_map(|row| row.get(0)))
}
