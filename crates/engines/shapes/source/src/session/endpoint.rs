//! Endpoints: addresses of the database, and the check that all of them lead to the same server.

use super::Session;
use crate::clock::Clock;
use crate::error::SourceError;
use crate::pool::{Jobs, Options};
use crate::postgres::{Postgres, Server, Walsender};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_pg::{Config, Error};

/// How often it is looked whether the followed server is known by now.
const LOOK_EVERY: Duration = Duration::from_millis(2);
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
    /// `None`: the server does not say.
    pub(crate) fn read(system: Option<&str>, timeline: Option<&str>) -> Option<Self> {
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
    }

    /// Refuses another server than the one that is followed. `patience`: how long to wait until it is known which one
    /// that is.
    pub(super) fn check(
        &self,
        found: Option<&Place>,
        patience: Duration,
        clock: &dyn Clock,
    ) -> Result<(), SourceError> {
        let until = clock.now() + patience;
        loop {
            match (&*self.state.lock(), found) {
                (State::Unknown, _) if patience.is_zero() => return Ok(()),
                (State::Unknown, _) if clock.now() >= until => return Err(SourceError::NotFollowed),
                (State::Unknown, _) => {}
                (State::At(followed), Some(found)) if followed != found => {
                    let (found, followed) = (found.to_string(), followed.to_string());
                    return Err(SourceError::Elsewhere { found, followed });
                }
                _ => return Ok(()),
            }
            clock.sleep(LOOK_EVERY);
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
    postgres: Arc<dyn Postgres>,
    followed: Arc<Followed>,
    pub clock: Arc<dyn Clock>,
    /// The idle time after which a pool closes a session.
    pub unused_for: Duration,
}

impl Endpoint {
    /// For the server at the address of `config`.
    pub fn new(config: Config, followed: Arc<Followed>, clock: Arc<dyn Clock>) -> Self {
        Self::of(Arc::new(Server), config, followed, clock)
    }

    pub fn of(postgres: Arc<dyn Postgres>, config: Config, followed: Arc<Followed>, clock: Arc<dyn Clock>) -> Self {
        Self { config, postgres, followed, clock, unused_for: Duration::from_secs(60) }
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
        let mut connection = self.postgres.connect(&self.named())?;
        if let Some(place) = connection.place()? {
            self.followed.check(Some(&place), Duration::ZERO, &*self.clock).map_err(ConnectError::Place)?;
        }
        Ok(Session {
            connection,
            cancel: Arc::default(),
            followed: Arc::clone(&self.followed),
            clock: Arc::clone(&self.clock),
            is_elsewhere: false,
            left,
        })
    }

    /// Opens a connection for replication.
    pub fn replicate(&self) -> Result<Box<dyn Walsender>, Error> {
        self.postgres.replicate(&self.named())
    }

    /// A runner of jobs with sessions of this endpoint: `connections` run at a time, and as many wait.
    pub fn jobs(&self, connections: usize) -> Box<dyn Jobs> {
        let (endpoint, idle) = (self.clone(), self.unused_for);
        self.postgres.jobs(Options { endpoint, connections, jobs_max: connections, idle, kept: 0 })
    }

    fn named(&self) -> Config {
        let mut config = self.config.clone();
        config.application_name.get_or_insert_with(|| APPLICATION.to_owned());
        config
    }
}
