//! Reasons why a shape cannot be made or read, as messages for clients.

use crate::invalid::Invalid;
use crate::table::TableName;

/// The reason why a shape was not made, as a message for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// 400: the request can never succeed as it is.
    Invalid(Invalid),
    /// 503: it may succeed later.
    Unavailable { code: &'static str, message: String, retry_after_s: u32 },
    /// 409: the table changed while its shape was made.
    Rotated,
    /// 403: a clause beside a grant's may fail on rows that are not granted.
    Beyond(Beyond),
}

impl Failure {
    /// The failure without the row values that Postgres repeats in its error messages.
    #[must_use]
    pub fn without_values(&self) -> Self {
        match self {
            Self::Invalid(invalid) => Self::Invalid(invalid.clone().without_values()),
            other => other.clone(),
        }
    }

    /// A failure that may pass after `retry_after_s` seconds.
    pub fn unavailable(code: &'static str, message: impl ToString, retry_after_s: u32) -> Self {
        Failure::Unavailable { code, message: message.to_string(), retry_after_s }
    }
}

/// The part of a request that its grant does not cover.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Beyond {
    /// The table is not granted.
    #[error("the token does not allow to read the table {0}")]
    Table(TableName),
    /// The column is not granted.
    #[error("the token does not allow to read the column {column:?} of the table {table}")]
    Column { column: String, table: TableName },
    #[error(
        "the token allows some rows of the table {table} only, so a where clause under it may hold nothing that could fail on others: \
         {what} is not known to succeed on every row"
    )]
    MayFail { what: String, table: TableName },
    /// The subquery's table is not granted as a whole.
    #[error("a subquery needs a token that allows to read all of its table, {0}")]
    Subquery(TableName),
    /// The token reads, and the request deletes.
    #[error("a token reads shapes and does not delete them")]
    Delete,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
}

impl Beyond {
    /// The HTTP status, and the code for programs.
    #[must_use]
    pub fn mapping(&self) -> (u16, &'static str) {
        match self {
            Self::Table(_) | Self::Delete => (403, "scope_missing"),
            Self::Column { .. } => (403, "column_not_granted"),
            Self::MayFail { .. } | Self::Subquery(_) => (403, "where_not_granted"),
            Self::Expired => (401, "expired_token"),
        }
    }
}
