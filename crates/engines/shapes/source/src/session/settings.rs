//! The settings of every session, whatever the role, the database or another client of a pooler has set.
//!
//! Names are looked up in `pg_catalog` only: a function, operator, cast or type of the same name in another schema
//! would otherwise run with our rights. `pg_temp` stands last, because a path that does not name it begins with it.

use std::fmt::Write;
use std::time::Duration;
use thalweg_pg::ResultSet;

/// Each is a name and a value as SQL.
type Setting = (&'static str, &'static str);

/// Output formats of values, in snapshots and in the replication stream alike.
const DISPLAY: [Setting; 6] = [
    ("bytea_output", "hex"),
    ("DateStyle", "'ISO, DMY'"),
    ("TimeZone", "'UTC'"),
    ("extra_float_digits", "1"),
    ("IntervalStyle", "iso_8601"),
    ("lc_monetary", "'C'"),
];

/// Settings that change the meaning of statements. Without `row_security` a policy that hides rows is an error: the
/// replication stream knows no policies, so a shape would begin with fewer rows than its changes imply, and the
/// functions of a policy would run with our rights.
const MEANING: [Setting; 10] = [
    ("search_path", "pg_catalog, pg_temp"),
    ("client_encoding", "'UTF8'"),
    ("standard_conforming_strings", "on"),
    ("transform_null_equals", "off"),
    ("array_nulls", "on"),
    ("gin_fuzzy_search_limit", "0"),
    ("row_security", "off"),
    ("quote_all_identifiers", "off"),
    ("client_min_messages", "warning"),
    // Compiled plans take longer to make than most snapshots to run.
    ("jit", "off"),
];

/// Only where the server has them, as versions and minor versions differ: no limit on a whole transaction, and a table
/// whose name later means a view or a foreign table is refused.
const OPTIONAL: [Setting; 2] =
    [("transaction_timeout", "0"), ("restrict_nonsystem_relation_kind", "'view, foreign-table'")];

/// Settings of the replication connection, whose transactions do not begin by naming their mode.
const SESSION: [Setting; 4] = [
    ("default_transaction_isolation", "'read committed'"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_deferrable", "off"),
    ("wal_sender_timeout", "'60s'"),
];

/// How long a transaction of ours may be idle on the server: longer than any wait of ours between two of its
/// statements.
const IDLE_MS: u32 = 600_000;

/// Timeouts of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time limit of each statement; `None`: none.
    pub statement: Option<Duration>,
    /// Time limit of each lock.
    pub lock: Duration,
}

impl Limits {
    /// Limits of catalog queries.
    pub(crate) const SHORT: Self = Self { statement: Some(Duration::from_secs(50)), lock: Duration::from_secs(20) };
}

/// The optional settings that a server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Has([bool; OPTIONAL.len()]);

/// The query for the optional settings that the server has.
pub(crate) fn optional_sql() -> String {
    let names: Vec<&str> = OPTIONAL.iter().map(|(name, _)| *name).collect();
    format!(
        "SELECT s.name FROM pg_catalog.pg_settings s \
         WHERE s.name OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.text[])",
        names.join(",")
    )
}

impl Has {
    fn of<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Self {
        Self(OPTIONAL.map(|(name, _)| names.clone().any(|found| found == name)))
    }

    fn settings(self) -> impl Iterator<Item = &'static Setting> {
        OPTIONAL.iter().zip(self.0).filter(|(_, has)| *has).map(|(setting, _)| setting)
    }
}

/// `SET LOCAL …; ` for a transaction that has just begun: nothing stays on the server's process, which may be lent to
/// others.
pub(super) fn local(has: Has, limits: Limits) -> String {
    let mut sql = String::with_capacity(1024);
    let timeouts = [
        ("statement_timeout", limits.statement.map_or(0, millis)),
        ("lock_timeout", millis(limits.lock)),
        ("idle_in_transaction_session_timeout", IDLE_MS),
    ];
    for (name, value) in timeouts {
        let _ = write!(sql, "SET LOCAL {name} = {value}; ");
    }
    for (name, value) in MEANING.iter().chain(&DISPLAY).chain(has.settings()) {
        let _ = write!(sql, "SET LOCAL {name} = {value}; ");
    }
    sql
}

/// `SET …; ` for a connection that is ours alone, to its end.
pub(crate) fn session(has: Has) -> String {
    let mut sql = String::from("SET statement_timeout = 0; SET lock_timeout = 0; ");
    let _ = write!(sql, "SET idle_in_transaction_session_timeout = {IDLE_MS}; ");
    for (name, value) in MEANING.iter().chain(&DISPLAY).chain(&SESSION).chain(has.settings()) {
        let _ = write!(sql, "SET {name} = {value}; ");
    }
    sql
}

/// A limit of zero would be none.
fn millis(limit: Duration) -> u32 {
    u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).clamp(1, i32::MAX as u32)
}

/// The optional settings that the answer to [`optional_sql`] names.
pub(crate) fn has(answer: &ResultSet) -> Has {
    Has::of(answer.rows().filter_map(|row| row.get(0)))
}
