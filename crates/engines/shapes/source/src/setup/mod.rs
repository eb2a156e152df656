//! Preparation before changes can be followed: the server, the lock, the publication, the slot.
//!
//! Everything happens on the connection that will replicate, so that the lock is held for exactly as long as it does.

mod judge;
mod publication;
mod server;
mod slot;

pub use publication::Publication;
pub use server::{Facts as ServerFacts, Server};
pub use slot::Found as Slot;

use super::clock::Clock;
use super::error::SourceError;
use super::ownership::Ownership;
use super::postgres::{Changes, Walsender};
use super::session::{Endpoint, has, optional_sql, session_settings};
use std::time::Duration;
use thalweg_pg::replication::{self, Conn, StartOptions, System};
use thalweg_pg::{Config, DbError, Error, PgLsn, ResultSet, ServerVersion};
use thalweg_shapes_model::history::SourceIdentity;

/// Between two attempts to get the lock.
const LOCK_EVERY: Duration = Duration::from_millis(250);
/// The longest silence of the server; a new slot waits for every transaction that writes.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long an engine that stops waits for Postgres.
const FORGET_MAX: Duration = Duration::from_secs(5);

/// The first version whose standbys can keep a copy of a slot.
const FAILOVER_SINCE: u32 = 17;

/// Settings of the preparation.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub slot: String,
    pub publication: String,
    /// The administrator maintains the publication: it is checked and never altered.
    pub manual: bool,
    /// The slot goes when the connection does, and with it every shape.
    pub temporary: bool,
    /// Standbys keep a copy of the slot.
    pub failover: bool,
    /// The engine leaves nothing behind: a publication that it makes goes when it ends.
    pub ephemeral: bool,
    /// Whether this process may still follow. If others may follow in its place, it ends their sessions.
    pub ownership: Ownership,
    /// The source of the changes so far.
    pub known: Option<Known>,
}

/// Knowledge of the source from earlier connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub identity: SourceIdentity,
    /// The LSN up to which the server's WAL was read, in changes or in snapshots.
    pub seen: u64,
    /// The last run ended without a clean stop, and nothing was followed since: clients may have been shown changes
    /// beyond `seen`, which were not stored yet.
    pub unclean: bool,
    /// The last LSN that was acknowledged to Postgres. `None`: unknown.
    pub acknowledged: Option<u64>,
    /// The reason why the history is broken, if the stream has proved it.
    pub broken: Option<String>,
}

/// Everything is in order.
#[derive(Debug)]
pub struct Ready {
    pub conn: Box<dyn Walsender>,
    /// To be kept, and given as `known` the next time.
    pub identity: SourceIdentity,
    pub resume: Resume,
    pub server: Server,
    /// Made for this run, or for a killed one.
    pub publication_passing: bool,
    /// The slot has everything after it.
    pub confirmed: PgLsn,
    /// The end of the server's log.
    pub end: PgLsn,
}

/// Whether the slot has every change since the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    Continue,
    /// Changes were lost; existing shapes are invalid.
    Restart {
        why: String,
    },
}

/// The reason why changes cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("Postgres {0} is too old: 14 is the first version that can be followed")]
    Version(ServerVersion),
    #[error("wal_level is {0}: set wal_level = logical in postgresql.conf and restart Postgres")]
    WalLevel(String),
    #[error(
        "the database has no encoding (SQL_ASCII), so its texts may hold bytes that Postgres cannot send: the first of them would end \
         replication for good; move the data to a database WITH ENCODING 'UTF8'"
    )]
    NoEncoding,
    #[error("the server is a standby: set database_url to the primary's address")]
    Standby,
    #[error(
        "Postgres {0} cannot keep a failover slot: 17 is the first version that can; unset replication_failover_slot"
    )]
    Failover(ServerVersion),
    #[error("the role {role} may not replicate ({error}): ALTER ROLE {role} REPLICATION, or use one that may")]
    Privilege { role: String, error: Box<DbError> },
    #[error("Postgres has no replication connection free (max_wal_senders): {0}")]
    NoSenderFree(Box<DbError>),
    #[error("all {max} replication slots are in use: raise max_replication_slots, or drop an unused one")]
    NoSlotFree { max: String },
    #[error("the replication slot {slot} is not ours: {what}; drop it, or set another replication_stream_id")]
    ForeignSlot { slot: String, what: String },
    #[error("the replication slot {slot} is in use by process {pid}")]
    SlotInUse { slot: String, pid: String },
    #[error("Publication {0:?} not found in the database")]
    PublicationMissing(String),
    #[error("Publication {0:?} does not publish all required operations: INSERT, UPDATE, DELETE, TRUNCATE")]
    PublicationOperations(String),
    #[error("Publication {name:?} cannot be created ({error}): grant CREATE on the database, or create it")]
    PublicationPrivilege { name: String, error: Box<DbError> },
    #[error("stopped")]
    Stopped,
    #[error("the bucket does not say that the shapes are still this node's: it does not follow Postgres")]
    Deposed,
    #[error(transparent)]
    Postgres(Error),
    #[error("an answer of the server cannot be read: {0}")]
    Answer(&'static str),
}

impl From<Error> for SetupError {
    fn from(error: Error) -> Self {
        Self::Postgres(error)
    }
}

/// Connects and prepares. Waits for the lock for as long as another server has it, and calls `waiting` after each
/// attempt. `stopping` ends the wait. On nodes the lock is taken from the follower before this one, whose session ends.
pub fn prepare(
    endpoint: &Endpoint,
    options: &Options,
    waiting: &dyn Fn(),
    stopping: &(dyn Fn() -> bool + Sync),
) -> Result<Ready, SetupError> {
    let connected = endpoint.patient(PATIENCE).replicate();
    let mut conn = connected.map_err(|error| server::not_let_in(&endpoint.config, error))?;
    let facts = conn.facts()?;
    lock(&mut *conn, options, waiting, stopping, &*endpoint.clock)?;
    // Asked with the lock: whoever owns the shapes from now on ends this session first.
    if !options.ownership.is_held() {
        return Err(SetupError::Deposed);
    }
    // After the server was found to be no standby: a promotion that ends in between would otherwise be read under the
    // timeline before it.
    let system = conn.system()?;
    if options.failover && facts.version.major < FAILOVER_SINCE {
        return Err(SetupError::Failover(facts.version));
    }
    let publication = conn.publication(options, facts.version)?;
    let identity = SourceIdentity {
        branches: conn.branches(system.timeline)?,
        system: system.id,
        timeline: system.timeline,
        database: system.database.unwrap_or_default(),
        database_oid: Some(facts.database_oid),
        slot: options.slot.clone(),
        publication: format!("{}/{}", options.publication, publication.oid),
        publication_version: publication.version,
    };
    let broken = match &options.known {
        None => Some("nothing is known of an earlier connection".to_owned()),
        Some(known) => judge::broken(known, &identity, system.end),
    };
    let slot = slot::prepare(&mut *conn, options, &facts, &identity, broken, stopping)?;
    let (resume, publication_passing) = (slot.resume, publication.passing);
    Ok(Ready {
        conn,
        identity,
        resume,
        server: facts.server,
        publication_passing,
        confirmed: slot.confirmed,
        end: system.end,
    })
}

/// Opens a connection for replication. No pooler shares it, so its settings last to its end.
pub(crate) fn connect(config: &Config) -> Result<Conn, Error> {
    let mut conn = Conn::connect(config)?;
    // The timeout of the role is lifted first; the query names its schema, so the role's `search_path` does not matter.
    let answers = conn.simple(&format!("SET statement_timeout = 0; {}", optional_sql()))?;
    let has = answers.last().map(has).unwrap_or_default();
    conn.simple(&session_settings(has))?;
    Ok(conn)
}

impl Walsender for Conn {
    fn system(&mut self) -> Result<System, Error> {
        self.identify_system()
    }

    fn facts(&mut self) -> Result<ServerFacts, SetupError> {
        server::check(self)
    }

    fn try_lock(&mut self, key: i64) -> Result<bool, Error> {
        let answers = self.simple(&format!("SELECT pg_catalog.pg_try_advisory_lock({key}::pg_catalog.int8)"))?;
        Ok(value(&answers) == Some("t"))
    }

    fn depose(&mut self, key: i64, slot: &str) -> Result<Vec<u32>, Error> {
        let answers = self.simple(&holders(key, slot))?;
        let found = answers.last().into_iter().flat_map(ResultSet::rows);
        let held: Vec<u32> = found.filter_map(|row| row.get(0)?.parse().ok()).collect();
        for process in &held {
            self.simple(&format!("SELECT pg_catalog.pg_terminate_backend({process})"))?;
        }
        Ok(held)
    }

    fn publication(&mut self, options: &Options, version: ServerVersion) -> Result<Publication, SetupError> {
        publication::prepare(self, options, version)
    }

    fn branches(&mut self, timeline: u32) -> Result<Vec<(u32, u64)>, SetupError> {
        server::branches(self, timeline)
    }

    fn slot(&mut self, name: &str, database: &str) -> Result<Option<Slot>, SetupError> {
        slot::find(self, name, database)
    }

    fn create_slot(
        &mut self,
        options: &Options,
        facts: &ServerFacts,
        stopping: &(dyn Fn() -> bool + Sync),
    ) -> Result<PgLsn, SetupError> {
        slot::create(self, options, facts, stopping)
    }

    fn keep_on_standbys(&mut self, slot: &str) -> Result<(), Error> {
        self.alter_slot(slot, true)
    }

    fn drop_slot(&mut self, slot: &str) -> Result<(), Error> {
        Self::drop_slot(self, slot, false)
    }

    fn start(self: Box<Self>, slot: &str, options: &StartOptions) -> Result<Box<dyn Changes>, Error> {
        Ok(Box::new(Self::start(*self, slot, PgLsn::ZERO, options)?))
    }
}

/// Drops the publication, for an engine that leaves nothing behind.
pub fn forget(endpoint: &Endpoint, publication: &str) -> Result<(), SourceError> {
    let mut endpoint = endpoint.patient(FORGET_MAX);
    endpoint.config.connect_timeout = Some(FORGET_MAX);
    endpoint.connect()?.connection.drop_publication(FORGET_MAX, publication)?;
    Ok(())
}

/// The processes whose sessions have the lock or read the slot, except this one's. The statement must end none of them:
/// Postgres may evaluate parts of a condition in any order, and would end sessions that others exclude.
fn holders(key: i64, slot: &str) -> String {
    let (high, low) = (key.cast_unsigned() >> 32, key.cast_unsigned() & u64::from(u32::MAX));
    format!(
        "SELECT l.pid FROM pg_catalog.pg_locks l \
         JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) l.database \
         WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() \
         AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted \
         AND l.classid::pg_catalog.int8 OPERATOR(pg_catalog.=) {high} \
         AND l.objid::pg_catalog.int8 OPERATOR(pg_catalog.=) {low} \
         AND l.objsubid OPERATOR(pg_catalog.=) 1 AND l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid() \
         UNION SELECT s.active_pid FROM pg_catalog.pg_replication_slots s \
         WHERE s.slot_name OPERATOR(pg_catalog.=) {} AND s.active_pid IS NOT NULL \
         AND s.active_pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()",
        literal(slot)
    )
}

/// One server owns a slot. The lock is bound to this session.
fn lock(
    conn: &mut dyn Walsender,
    options: &Options,
    waiting: &dyn Fn(),
    stopping: &dyn Fn() -> bool,
    clock: &dyn Clock,
) -> Result<(), SetupError> {
    let slot = &options.slot;
    let key = i64::from(u32::from_be_bytes(*b"thal")) << 32 | i64::from(thalweg_base::crc(slot.as_bytes()));
    let mut told = false;
    loop {
        if conn.try_lock(key)? {
            return Ok(());
        }
        waiting();
        if options.ownership.is_shared() {
            if !options.ownership.is_held() {
                return Err(SetupError::Deposed);
            }
            match conn.depose(key, slot) {
                Ok(ended) => {
                    tracing::info!(
                        slot,
                        processes = ?ended,
                        "this node follows Postgres now: the session of the follower before it is ended"
                    );
                }
                // A session that has failed is found so by the next attempt.
                Err(error) => tracing::warn!(
                    slot, %error,
                    "the session of the follower before this node cannot be ended: nodes need the same role; waiting for it to end"
                ),
            }
        } else if !std::mem::replace(&mut told, true) {
            tracing::info!(slot, "another server follows Postgres with this slot: waiting for it to end");
        }
        clock.sleep(LOCK_EVERY);
        if stopping() {
            return Err(SetupError::Stopped);
        }
    }
}

fn value(answers: &[ResultSet]) -> Option<&str> {
    answers.last().and_then(ResultSet::value)
}

/// The values of the only row, with their columns' names.
fn row<'a>(answers: &'a [ResultSet]) -> impl Fn(&str) -> Option<&'a str> {
    let answer = answers.last();
    move |name| answer.and_then(|answer| answer.row(0)?.get(answer.column(name)?))
}

fn literal(text: &str) -> String {
    thalweg_pg::quote_literal(text)
}

type SlotOptions = replication::SlotOptions;
