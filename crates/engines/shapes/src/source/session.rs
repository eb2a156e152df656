//! A connection that prints values the way clients get them.

use super::cancel::Cancel;
use std::sync::Arc;
use thalweg_wire::pg::{Config, Conn, Error, TransactionStatus};

/// How values are printed, in snapshots and in the replication stream alike.
pub(crate) const DISPLAY: [(&str, &str); 5] = [
    ("bytea_output", "hex"),
    ("DateStyle", "ISO, DMY"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "1"),
    ("IntervalStyle", "iso_8601"),
];

/// For who selects rows. Without row security a policy that hides rows is an error: the replication stream knows no policies, so a
/// shape would begin with fewer rows than it goes on with. Compiled plans take longer to make than most snapshots to run.
/// A backslash in `'…'` is only a backslash.
const SELECTS: [(&str, &str); 3] = [("row_security", "off"), ("jit", "off"), ("standard_conforming_strings", "on")];

/// `SET name = 'value'; …`
#[must_use]
pub(crate) fn set(settings: &[(&str, &str)]) -> String {
    settings.iter().fold(String::new(), |sql, (name, value)| format!("{sql}SET {name} = '{value}'; "))
}

/// A connection for questions, and whether the present one is still wanted.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conn: Conn,
    pub(crate) cancel: Arc<Cancel>,
}

impl Session {
    pub(crate) fn connect(config: &Config) -> Result<Self, Error> {
        let mut config = config.clone();
        config.application_name.get_or_insert_with(|| "thalweg".to_owned());
        let mut conn = Conn::connect(&config)?;
        conn.simple(&(set(&DISPLAY) + &set(&SELECTS)))?;
        Ok(Self { conn, cancel: Arc::default() })
    }

    /// Columns of a `SELECT` that set the same for the transaction: a pooler may lend it a server process that nobody has told.
    pub(super) fn set_local() -> String {
        let all = DISPLAY.iter().chain(&SELECTS);
        all.fold(String::new(), |sql, (name, value)| format!("{sql}, set_config('{name}', '{value}', true)"))
    }

    /// Ends a transaction that is still open.
    pub(crate) fn roll_back(&mut self) {
        if !self.conn.is_poisoned() && self.conn.transaction_status() != TransactionStatus::Idle {
            // If it fails the connection is poisoned, or still in a transaction, and its owner does not use it again.
            let _ = self.conn.simple("ROLLBACK");
        }
    }

    /// Whether another question can be asked.
    #[must_use]
    pub(crate) fn is_usable(&self) -> bool {
        !self.conn.is_poisoned() && self.conn.transaction_status() == TransactionStatus::Idle
    }
}
