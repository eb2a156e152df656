//! Errors of queries, by their remedies.

use thalweg_pg::{DbError, Error};

/// The reason why Postgres gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SourceError {
    /// The caller cancelled the query.
    #[error("cancelled")]
    Cancelled,
    /// `statement_timeout` of the server or of the query; also a cancellation that is not ours.
    #[error("the query was interrupted: {0}")]
    Interrupted(Box<DbError>),
    /// Lock timeout. A retry can help.
    #[error("lock timeout: {0}")]
    Locked(Box<DbError>),
    /// SQLSTATE 42501.
    #[error("{0}")]
    Permission(Box<DbError>),
    /// A table, column, type or function no longer exists: shapes that use it must be fetched again.
    #[error("the schema has changed: {0}")]
    SchemaChanged(Box<DbError>),
    /// The table's name now means another table, or none.
    #[error("the table was dropped or renamed")]
    Replaced,
    /// An error of the request: an invalid constant, a division by zero and the like.
    #[error("{0}")]
    Invalid(Box<DbError>),
    /// The network or the server's state is at fault: a retry can help.
    #[error("Postgres cannot be reached: {0}")]
    Unreachable(String),
    /// The queue is full.
    #[error("{waiting} queries wait for Postgres already")]
    Full { waiting: usize },
    /// An answer beyond the bound on memory.
    #[error("{0}")]
    TooLarge(String),
    /// A retry can help.
    #[error("the server that changes come from is not known yet")]
    NotFollowed,
    /// Another server than the source of changes has answered. A retry can help: an address may lead to the old server
    /// for a while.
    #[error("the answering server is not the source of changes: it is {found}, not {followed}")]
    Elsewhere { found: String, followed: String },
    /// The server is a standby, which cannot have the slot.
    #[error("the server is a standby: {0}")]
    Standby(Box<DbError>),
    /// The receiver of the rows stopped.
    #[error("stopped by the receiver of the rows")]
    Stopped,
    /// An answer of the catalog in an unknown form.
    #[error("the catalog's answer cannot be read: {0}")]
    Catalog(String),
    #[error("{0}")]
    Other(String),
}

impl From<Error> for SourceError {
    fn from(error: Error) -> Self {
        if error.is_transient() {
            // Also 40001 and 40P01, which a retry helps against too.
            return Self::Unreachable(error.to_string());
        }
        let db = match error {
            Error::Server(db) | Error::Closed(Some(db)) => db,
            error @ Error::TooLarge { .. } => return Self::TooLarge(error.to_string()),
            error => return Self::Other(error.to_string()),
        };
        match db.code.as_str() {
            "57014" => Self::Interrupted(db),
            "55P03" => Self::Locked(db),
            "42501" => Self::Permission(db),
            // Undefined table, column, function, object, schema; or an oid without a relation.
            "42P01" | "42703" | "42883" | "42704" | "3F000" => Self::SchemaChanged(db),
            // Recovery is in progress; a read-only transaction.
            "55000" | "25006" => Self::Standby(db),
            // The session was ended while a transaction was open or idle for too long.
            "25P03" | "25P04" | "57P05" => Self::Unreachable(db.to_string()),
            code if code.starts_with("22") || code.starts_with("42") => Self::Invalid(db),
            _ => Self::Other(db.to_string()),
        }
    }
}
