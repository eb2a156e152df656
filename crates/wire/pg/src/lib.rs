//! A Postgres client: connections, queries, `COPY … TO STDOUT` and logical replication, over blocking sockets.
//!
//! It knows the protocol (versions 3.0 of the frontend/backend protocol, 1 and 2 of pgoutput) and no engine. A call
//! waits at most as long as the timeouts of its [`Config`]. A server's messages are never trusted: every malformed one
//! is a typed error, messages have a bound, and memory grows with received bytes, not with announced ones.
//!
//! A connection that failed in the middle of an operation is *poisoned*: every later call gives [`Error::Poisoned`], so
//! that an answer to one query is never taken for an answer to the next.

mod address;
mod auth;
mod cancel;
mod certificate;
mod config;
mod conn;
mod connect;
mod copy;
mod error;
mod frame;
mod link;
mod lsn;
pub mod pgoutput;
mod query;
pub mod replication;
mod rows;
mod tls;

pub use cancel::CancelToken;
pub use config::{ChannelBinding, Config, ConfigError, Host, Password, RootCert, SslMode, TargetSession, TrustError};
pub use conn::{Conn, ServerVersion, TransactionStatus};
pub use copy::CopyOut;
pub use error::{AuthError, DbError, Error, Severity, TlsError};
pub use lsn::{PgLsn, PgLsnError};
pub use query::Statement;
pub use rows::{Column, ResultSet, Row};

/// Writes `name` as a quoted identifier.
pub fn quote_identifier(name: &str) -> String {
    postgres_protocol::escape::escape_identifier(name)
}

/// Writes `text` as a string literal.
pub fn quote_literal(text: &str) -> String {
    postgres_protocol::escape::escape_literal(text)
}
