//! Errors of the client, by their cause.

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorField, ErrorFields};
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a call failed. After anything but [`Error::Server`] and [`Error::Refused`] the connection is poisoned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered with an error; the connection stays usable.
    #[error("{0}")]
    Server(Box<DbError>),
    /// The caller's request was not sent: the connection stays usable.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// The host's name has no address.
    #[error("host {host:?} has no address: {source}")]
    Resolve { host: String, source: io::Error },
    /// The address refused the connection, or did not answer in time.
    #[error("{address} does not accept a connection: {source}")]
    Connect { address: String, source: io::Error },
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The server refused the login.
    #[error("authentication: {0}")]
    Auth(#[from] AuthError),
    /// Connected, but to a server that does not take writes, which `target_session_attrs` asks for.
    #[error("{address} refuses writes: it is a standby or read-only")]
    ReadOnly { address: String },
    /// No byte was received or sent for this long.
    #[error("no progress for {0:?}")]
    Timeout(Duration),
    /// The server ended the session: its last error, if any.
    #[error("the server closed the connection{}", .0.as_ref().map(|e| format!(": {e}")).unwrap_or_default())]
    Closed(Option<Box<DbError>>),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(io::Error),
    /// The server breaks the protocol as we know it.
    #[error("unexpected message of the server: {0}")]
    Protocol(&'static str),
    /// A message, or a result that is held in memory, is beyond its bound (bytes).
    #[error("{what} of more than {max} bytes")]
    TooLarge { what: &'static str, max: usize },
    /// An earlier call failed in the middle of something.
    #[error("the connection failed before")]
    Poisoned,
}

/// Why TLS could not be established.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("the server does not offer TLS, which sslmode requires")]
    NotOffered,
    #[error("{file}: {why}")]
    File { file: String, why: String },
    #[error("the system has no certificates to trust: name some with sslrootcert")]
    NoSystemRoots,
    #[error("{0:?} is not a valid name for a certificate")]
    Name(String),
    #[error("{0}")]
    Session(#[from] rustls::Error),
}

/// Why authentication failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    #[error("the server asks for a password, and the address has none")]
    PasswordMissing,
    #[error("the server asks for {0}, which is not supported")]
    Unsupported(String),
    #[error("SCRAM: {0}")]
    Scram(io::Error),
    #[error("the server accepted the login without proving that it knows the password")]
    NotProved,
    #[error("channel_binding=require, but the server does not support it")]
    NotBound,
}

/// An error or notice of the server, with its fields as the protocol has them (Postgres documentation, section "Error
/// and Notice Message Fields").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DbError {
    /// The severity.
    pub severity: Severity,
    /// SQLSTATE, five characters.
    pub code: String,
    /// The primary message, in the server's language.
    pub message: String,
    /// A second message with more detail.
    pub detail: Option<String>,
    /// A suggestion.
    pub hint: Option<String>,
    /// Position of the error in the query, in characters, from 1.
    pub position: Option<u32>,
    /// Position of the error in `internal_query`.
    pub internal_position: Option<u32>,
    /// The text of a query that the server ran itself.
    pub internal_query: Option<String>,
    /// The call stack of the failing code, one entry per line.
    pub context: Option<String>,
    /// The schema that the error is about.
    pub schema: Option<String>,
    /// The table that the error is about.
    pub table: Option<String>,
    /// The column that the error is about.
    pub column: Option<String>,
    /// The type that the error is about.
    pub data_type: Option<String>,
    /// The constraint that the error is about.
    pub constraint: Option<String>,
    /// File of the server's source.
    pub file: Option<String>,
    /// The line in `file`.
    pub line: Option<u32>,
    /// The function of the server's source.
    pub routine: Option<String>,
}

/// Severity; from `Fatal` on the server ends the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `DEBUG`.
    Debug,
    /// `LOG`.
    Log,
    /// `INFO`.
    Info,
    /// `NOTICE`.
    Notice,
    /// `WARNING`.
    Warning,
    /// `ERROR`: the statement failed.
    #[default]
    Error,
    /// `FATAL`: the session ends.
    Fatal,
    /// `PANIC`: all sessions end.
    Panic,
}

impl Severity {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "DEBUG" => Self::Debug,
            "LOG" => Self::Log,
            "INFO" => Self::Info,
            "NOTICE" => Self::Notice,
            "WARNING" => Self::Warning,
            "ERROR" => Self::Error,
            "FATAL" => Self::Fatal,
            "PANIC" => Self::Panic,
            _ => return None,
        })
    }
}

impl DbError {
    /// Reads the fields; one of unknown kind is passed over, as the protocol demands.
    pub(super) fn read(mut fields: ErrorFields<'_>) -> Result<Self, Error> {
        let mut error = Self::default();
        let mut next = || fields.next().map_err(|_| Error::Protocol("the fields of an error do not end"));
        let text = |field: &ErrorField<'_>| String::from_utf8_lossy(field.value_bytes()).into_owned();
        let mut localized = None;
        while let Some(field) = next()? {
            match field.type_() {
                // `S` may be translated; `V` is not, and comes since 9.6.
                b'S' => localized = Severity::parse(&text(&field)),
                b'V' => error.severity = Severity::parse(&text(&field)).unwrap_or_default(),
                b'C' => error.code = text(&field),
                b'M' => error.message = text(&field),
                b'D' => error.detail = Some(text(&field)),
                b'H' => error.hint = Some(text(&field)),
                b'P' => error.position = text(&field).parse().ok(),
                b'p' => error.internal_position = text(&field).parse().ok(),
                b'q' => error.internal_query = Some(text(&field)),
                b'W' => error.context = Some(text(&field)),
                b's' => error.schema = Some(text(&field)),
                b't' => error.table = Some(text(&field)),
                b'c' => error.column = Some(text(&field)),
                b'd' => error.data_type = Some(text(&field)),
                b'n' => error.constraint = Some(text(&field)),
                b'F' => error.file = Some(text(&field)),
                b'L' => error.line = text(&field).parse().ok(),
                b'R' => error.routine = Some(text(&field)),
                _ => {}
            }
        }
        if let Some(severity) = localized {
            error.severity = severity.max(error.severity);
        }
        Ok(error)
    }

    /// The server ends the session with this.
    pub fn is_fatal(&self) -> bool {
        self.severity >= Severity::Fatal
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        for more in [&self.detail, &self.hint].into_iter().flatten() {
            write!(f, "; {more}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DbError {}

impl Error {
    /// The server's error, if the server sent one.
    pub fn db(&self) -> Option<&DbError> {
        match self {
            Self::Server(error) | Self::Closed(Some(error)) => Some(error),
            _ => None,
        }
    }

    /// The SQLSTATE, if the server gave one.
    pub fn code(&self) -> Option<&str> {
        self.db().map(|error| error.code.as_str())
    }

    /// Whether a retry on a new connection may succeed: the network or the server's state is the cause, not the
    /// request.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::ReadOnly { .. }
            | Self::Timeout(_)
            | Self::Closed(None)
            | Self::Io(_)
            | Self::Poisoned => true,
            Self::Server(error) | Self::Closed(Some(error)) => {
                // Connection exceptions, resources, operator intervention (but not a cancelled query), in use,
                // deadlock, serialization.
                let code = error.code.as_str();
                ["08", "53", "58"].iter().any(|class| code.starts_with(class))
                    || code.starts_with("57P")
                    || matches!(code, "55006" | "40001" | "40P01")
            }
            Self::Refused(_) | Self::Tls(_) | Self::Auth(_) | Self::Protocol(_) | Self::TooLarge { .. } => false,
        }
    }
}
