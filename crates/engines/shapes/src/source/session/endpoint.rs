//! Ways to the database, and that all of them lead to the same server.

use super::Session;
use super::settings::{self, Has};
use crate::source::error::SourceError;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_wire::pg::{Config, Conn, Error, ResultSet, replication};

/// What sessions are called on the server, unless the address says otherwise.
const APPLICATION: &str = "thalweg";

/// Two columns: the number of the system, and the timeline in hexadecimal.
pub(super) const PLACE: &str = "(SELECT s.system_identifier FROM pg_catalog.pg_control_system() s), \
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8)";

/// Where a server stands: which system, and which branch of its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) system: String,
    pub(crate) timeline: u32,
}

impl Place {
    /// `None`: the server does not say.
    pub(super) fn read(system: Option<&str>, timeline: Option<&str>) -> Option<Self> {
        Some(Self { system: system?.to_owned(), timeline: u32::from_str_radix(timeline?, 16).ok()? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "system {}, timeline {}", self.system, self.timeline)
    }
}

/// The server that changes come from: what others say means nothing beside these changes.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    state: Mutex<State>,
    changed: Condvar,
    left: AtomicU64,
}

#[derive(Debug, Default)]
enum State {
    /// Nobody follows changes.
    #[default]
    Anywhere,
    /// It is being found out.
    Unknown,
    At(Place),
}

impl Followed {
    /// It is not known yet.
    pub(crate) fn unknown() -> Self {
        Self { state: Mutex::new(State::Unknown), ..Self::default() }
    }

    /// It is no longer known: what snapshots of now say counts for nothing, and sessions of before are of no use.
    pub(crate) fn lost(&self) {
        *self.state.lock() = State::Unknown;
        self.left.fetch_add(1, Ordering::AcqRel);
    }

    /// How often that was so.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, place: Place) {
        *self.state.lock() = State::At(place);
        self.changed.notify_all();
    }

    /// Refuses another server than the one that is followed. `patience`: how long to wait until it is known which one that is.
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

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Postgres(#[from] Error),
    /// It was another server.
    #[error(transparent)]
    Place(SourceError),
}

impl ConnectError {
    /// The server, the database or the role has as many connections as it may (`too_many_connections`).
    pub(crate) fn is_full(&self) -> bool {
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

/// One way to the database.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) config: Config,
    followed: Arc<Followed>,
    /// A pool closes a session that nobody has used for so long.
    pub(crate) unused_for: Duration,
}

impl Endpoint {
    pub(crate) fn new(config: Config, followed: Arc<Followed>) -> Self {
        Self { config, followed, unused_for: Duration::from_secs(60) }
    }

    /// For a database that may sleep when nobody has needed it for `idle`, unless that is zero: pools keep sessions no longer than that.
    #[must_use]
    pub(crate) fn sleeping_after(mut self, idle: Duration) -> Self {
        if !idle.is_zero() {
            self.unused_for = self.unused_for.min(idle);
        }
        self
    }

    /// With another limit on the silence of the server.
    #[must_use]
    pub(crate) fn patient(&self, read_timeout: Duration) -> Self {
        let mut endpoint = self.clone();
        endpoint.config.read_timeout = Some(read_timeout);
        endpoint
    }

    /// A session for questions.
    pub(crate) fn connect(&self) -> Result<Session, ConnectError> {
        let left = self.followed.left();
        let mut session = Session {
            conn: Conn::connect(&self.named())?,
            cancel: Arc::default(),
            followed: Arc::clone(&self.followed),
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

    /// A connection for replication, which no pooler lends to others: what is set stays to its end.
    pub(crate) fn replicate(&self) -> Result<replication::Conn, Error> {
        let mut conn = replication::Conn::connect(&self.named())?;
        // A limit of the role has no time to matter, and what is asked does not depend on a path that somebody has set.
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
