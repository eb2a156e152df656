//! What the server itself must be like.

use super::{SetupError, row};
use thalweg_wire::pg::replication::Conn;
use thalweg_wire::pg::{Config, Error, ServerVersion};

pub(super) struct Facts {
    pub(super) version: ServerVersion,
    pub(super) slots_max: String,
}

const FACTS: &str = "SELECT pg_catalog.current_setting('server_version_num') AS version, \
    pg_catalog.current_setting('wal_level') AS wal_level, pg_catalog.current_setting('max_replication_slots') AS slots, \
    pg_catalog.pg_is_in_recovery() AS standby";

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
    match fact("wal_level") {
        Some("logical") => {}
        level => return Err(SetupError::WalLevel(level.unwrap_or_default().to_owned())),
    }
    Ok(Facts { version, slots_max: fact("slots").unwrap_or_default().to_owned() })
}

/// What a refused connection means.
pub(super) fn not_let_in(config: &Config, error: Error) -> SetupError {
    let Some(db) = error.db().cloned().map(Box::new) else { return SetupError::Postgres(error) };
    match db.code.as_str() {
        "42501" => SetupError::Privilege { role: config.user.clone(), error: db },
        "53300" if db.message.contains("max_wal_senders") => SetupError::NoSenderFree(db),
        _ => SetupError::Postgres(error),
    }
}
