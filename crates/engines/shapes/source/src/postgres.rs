//! Postgres as this crate asks it: typed questions, behind which stands a server ([`Server`]) or a simulated one.
//!
//! The other modules decide from the answers, so that a simulation runs their decisions. Errors are those of the
//! protocol: callers tell them apart by SQLSTATE.

use super::catalog::{Found, Which};
use super::pool::{self, Jobs, Pool};
use super::publish::Lacking;
use super::session::{Limits, Place, Sql};
use super::setup::{Options, Publication, ServerFacts, SetupError, Slot};
use std::any::Any;
use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use thalweg_pg::replication::{Event, StartOptions, System};
use thalweg_pg::{CancelToken, Config, Error, PgLsn, ServerVersion, replication};
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::{Table, TableName};

/// Opens connections.
pub trait Postgres: Debug + Send + Sync {
    /// A connection for queries.
    fn connect(&self, config: &Config) -> Result<Box<dyn Connection>, Error>;

    /// A connection for replication.
    fn replicate(&self, config: &Config) -> Result<Box<dyn Walsender>, Error>;

    /// The runner of jobs that need connections for queries.
    fn jobs(&self, options: pool::Options) -> Box<dyn Jobs> {
        Box::new(Pool::with(options))
    }
}

/// The answer to the first statements of a snapshot's transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// With the LSN at which WAL was inserted right after the snapshot was taken.
    pub snapshot: PgSnapshot,
    /// The oid that the table's name has in this snapshot.
    pub oid: Option<u32>,
    /// `None`: the server does not tell.
    pub place: Option<Place>,
}

/// One connection for queries. Each question is a transaction of its own, except [`Connection::rows`].
pub trait Connection: Any + Debug + Send {
    fn version(&self) -> ServerVersion;

    /// The server's place; `None`: the server does not tell.
    fn place(&mut self) -> Result<Option<Place>, Error>;

    /// The tables that exist, as the catalog and `publication` have them.
    fn tables(&mut self, publication: &str, which: Which<'_>) -> Result<Vec<Found>, super::error::SourceError>;

    /// The transactions that wrote the table's rows in the catalog; `None`: there is no such table.
    fn marks(&mut self, name: &TableName) -> Result<Option<String>, Error>;

    /// Adds relations to the publication and gives them `REPLICA IDENTITY FULL`, after the transactions that write to
    /// them have ended. `lock`: how long to wait for those.
    fn publish(&mut self, lock: Duration, publication: &str, found: &Found, lacking: &Lacking) -> Result<(), Error>;

    /// The tables that the publication names.
    fn members(&mut self, publication: &str) -> Result<Vec<(u32, TableName)>, Error>;

    /// Removes a table from the publication. `lock`: how long to wait for a lock.
    fn unpublish(&mut self, lock: Duration, publication: &str, table: &TableName) -> Result<(), Error>;

    /// Drops the publication. `lock`: how long to wait for a lock.
    fn drop_publication(&mut self, lock: Duration, publication: &str) -> Result<(), Error>;

    /// The transactions that write to these tables, as pairs of a table's oid and a transaction.
    fn writers(&mut self, tables: &[u32]) -> Result<HashSet<(u32, String)>, Error>;

    /// Has the server read a statement; nothing runs. `types`: of the first parameters.
    fn read(&mut self, sql: &str, types: &[u32]) -> Result<(), Error>;

    /// Begins a transaction that sees one moment and changes nothing. `lock`: the table is locked first, against being
    /// altered.
    fn begin(&mut self, table: &Table, limits: Limits, lock: bool) -> Result<Begun, Error>;

    /// The rows of `select` within the transaction that [`Connection::begin`] began, each in the text format of `COPY`
    /// without its line feed.
    /// `take` may break it off; then the connection is not used again.
    fn rows(&mut self, select: &str, take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<ControlFlow<()>, Error>;

    /// Ends that transaction. How far the server's WAL was on its disk.
    fn end(&mut self) -> Result<PgLsn, Error>;

    /// Ends a transaction that is still open.
    fn roll_back(&mut self);

    /// How far the server's WAL is on its disk.
    fn flushed(&mut self) -> Result<PgLsn, Error>;

    /// Has the server write all of its WAL to its disk soon. `lock`: how long to wait for a lock.
    fn flush(&mut self, lock: Duration) -> Result<(), Error>;

    /// The end of the server's WAL, and the bytes of it that the server keeps for `slot`.
    fn wal_end(&mut self, slot: &str) -> Result<(PgLsn, u64), Error>;

    /// Whether no transaction is open and the connection has not failed.
    fn is_idle(&self) -> bool;

    /// Whether the server sent something unasked, as it does when it ends the session.
    fn has_unread(&self) -> bool;

    /// Whether the server answers.
    fn is_alive(&mut self) -> bool;

    /// The token with which another thread interrupts a question.
    fn cancel_token(&self) -> Option<CancelToken>;

    /// How long each later question waits for the server to say anything; `None`: for ever.
    fn set_read_timeout(&mut self, timeout: Option<Duration>);
}

/// A connection for replication, before the stream starts.
pub trait Walsender: Debug + Send {
    fn system(&mut self) -> Result<System, Error>;

    /// The server's facts, if it meets the requirements.
    fn facts(&mut self) -> Result<ServerFacts, SetupError>;

    /// Takes the advisory lock `key` for this session, unless another session has it.
    fn try_lock(&mut self, key: i64) -> Result<bool, Error>;

    /// Ends the sessions that have the lock `key` or read the slot, and returns the processes that served them.
    fn depose(&mut self, key: i64, slot: &str) -> Result<Vec<u32>, Error>;

    /// The publication, made if it does not exist.
    fn publication(&mut self, options: &Options, version: ServerVersion) -> Result<Publication, SetupError>;

    /// The timelines before `timeline`, oldest first, each with the LSN at which the next one branched off.
    fn branches(&mut self, timeline: u32) -> Result<Vec<(u32, u64)>, SetupError>;

    /// The replication slot of that name.
    fn slot(&mut self, name: &str, database: &str) -> Result<Option<Slot>, SetupError>;

    /// Creates the slot, which is ready when every transaction that runs now has ended. The LSN after which it has
    /// everything.
    fn create_slot(
        &mut self,
        options: &Options,
        facts: &ServerFacts,
        stopping: &(dyn Fn() -> bool + Sync),
    ) -> Result<PgLsn, SetupError>;

    /// Has standbys keep a copy of the slot.
    fn keep_on_standbys(&mut self, slot: &str) -> Result<(), Error>;

    fn drop_slot(&mut self, slot: &str) -> Result<(), Error>;

    /// Starts the stream of everything that the slot has.
    fn start(self: Box<Self>, slot: &str, options: &StartOptions) -> Result<Box<dyn Changes>, Error>;
}

/// A replication stream.
pub trait Changes: Send {
    /// The next event; [`Event::Idle`] after `deadline`.
    fn next(&mut self, deadline: Instant) -> Result<Event<'_>, Error>;

    /// Tells the server that everything before `flushed` is durable here. `reply`: the server answers with a keepalive.
    fn ack(&mut self, flushed: PgLsn, reply: bool) -> Result<(), Error>;
}

/// The server at the address of the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server;

impl Postgres for Server {
    fn connect(&self, config: &Config) -> Result<Box<dyn Connection>, Error> {
        Ok(Box::new(Sql::connect(config)?))
    }

    fn replicate(&self, config: &Config) -> Result<Box<dyn Walsender>, Error> {
        Ok(Box::new(super::setup::connect(config)?))
    }
}

impl Changes for replication::Stream {
    fn next(&mut self, deadline: Instant) -> Result<Event<'_>, Error> {
        Self::next(self, Some(deadline))
    }

    fn ack(&mut self, flushed: PgLsn, reply: bool) -> Result<(), Error> {
        Self::ack(self, flushed, flushed, flushed, reply)
    }
}
