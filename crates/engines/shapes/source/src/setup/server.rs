//! Requirements on the server.

use super::{SetupError, row};
use thalweg_pg::replication::Conn;
use thalweg_pg::{Config, Error, ServerVersion};

/// The facts of the server that the preparation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub version: ServerVersion,
    pub slots_max: String,
    pub database_oid: u32,
    pub server: Server,
}

/// Facts of the followed server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// A commit may wait for a standby: Postgres sends it to us before any snapshot contains it.
    pub waits_for_standbys: bool,
    /// The role's name, if it has every right.
    pub superuser: Option<String>,
}

const FACTS: &str = "SELECT pg_catalog.current_setting('server_version_num') AS version, \
    pg_catalog.current_setting('server_encoding') AS encoding, pg_catalog.current_setting('wal_level') AS wal_level, pg_catalog.current_setting('max_replication_slots') AS slots, \
    pg_catalog.pg_is_in_recovery() AS standby, pg_catalog.current_setting('synchronous_standby_names') AS standbys, \
    (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) AS database, \
    (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) CURRENT_USER AND r.rolsuper) AS superuser";

pub(super) fn check(conn: &mut Conn) -> Result<Facts, SetupError> {
    let answers = conn.simple(FACTS)?;
    let fact = row(&answers);
    let number = fact("version").and_then(|text| text.parse::<u32>().ok()).ok_or(SetupError::Answer("version"))?;
    let version = ServerVersion { major: number / 10_000, minor: number % 10_000 };
    if version.major < 14 {
        return Err(SetupError::Version(version));
    }
    if fact("standby") != Some("f") {
        return Err(SetupError::Standby);
    }
    if fact("encoding") == Some("SQL_ASCII") {
        return Err(SetupError::NoEncoding);
    }
    match fact("wal_level") {
        Some("logical") => {}
        level => return Err(SetupError::WalLevel(level.unwrap_or_default().to_owned())),
    }
    let database_oid = fact("database").and_then(|text| text.parse().ok()).ok_or(SetupError::Answer("oid"))?;
    let server = Server {
        waits_for_standbys: fact("standbys").is_some_and(|names| !names.is_empty()),
        superuser: fact("superuser").map(str::to_owned),
    };
    Ok(Facts { version, slots_max: fact("slots").unwrap_or_default().to_owned(), database_oid, server })
}

/// The ancestors of this timeline. A server that does not report them counts as one without.
pub(super) fn branches(conn: &mut Conn, timeline: u32) -> Result<Vec<(u32, u64)>, SetupError> {
    match conn.timeline_history(timeline) {
        Ok(branches) => Ok(branches.into_iter().map(|branch| (branch.timeline, branch.end.0)).collect()),
        Err(Error::Server(error)) if !error.is_fatal() => {
            tracing::warn!(timeline, %error, "the history of the server's timeline cannot be read");
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}

/// The meaning of a refused connection.
pub(super) fn not_let_in(config: &Config, error: Error) -> SetupError {
    let Some(db) = error.db().cloned().map(Box::new) else { return SetupError::Postgres(error) };
    match db.code.as_str() {
        "42501" => SetupError::Privilege { role: config.user.clone(), error: db },
        "53300" if db.message.contains("max_wal_senders") => SetupError::NoSenderFree(db),
        _ => SetupError::Postgres(error),
    }
}
