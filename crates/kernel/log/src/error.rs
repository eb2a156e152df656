//! Errors, one enum per public operation.

use thalweg_base::{DecodeError, LogId, Offset};
use thalweg_journal::AppendError;
use thalweg_unit::{ReplayError, StartError};
use thiserror::Error;

/// Why a transaction was not committed. Nothing of it has happened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// The journal refused; nothing has changed.
    #[error(transparent)]
    Refused(#[from] AppendError),
    /// An operation names a log that does not exist.
    #[error("log {0} does not exist")]
    Missing(LogId),
    /// The name of a new log belongs to this one.
    #[error("a log of that name exists: {0}")]
    Exists(LogId),
    /// A trim, fork or reference lies outside of the log's `start..=tail`.
    #[error("offset {offset} of log {log} is outside {start}..={tail}")]
    Range { log: LogId, offset: Offset, start: Offset, tail: Offset },
    /// The name has `len` bytes, more than [`crate::NAME_BYTES_MAX`].
    #[error("a name of {len} bytes is over the limit of {max}")]
    Name { len: usize, max: usize },
    /// This many logs were created since the last round, as many as its ceiling of ids allows. A retry after the round
    /// succeeds.
    #[error("{0} logs were created since the last round of settling; retry when it has ended")]
    Ids(u64),
    /// A fork asks for another durability than that of its source.
    #[error("the source of the fork, log {0}, has another durability than the fork asks for: a fork has its source's")]
    Durability(LogId),
    /// A bug of the engine: its note is not one that it can read back.
    #[error("note of log {log} cannot be applied: {error}")]
    Note { log: LogId, error: DecodeError },
}

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The log does not exist.
    #[error("log {0} does not exist")]
    Missing(LogId),
    /// The offset is no message boundary; the next one is `next`.
    #[error("offset {offset} is inside a message; the next message starts at {next}")]
    InsideMessage { offset: Offset, next: Offset },
    /// The offset is above the published `tail`.
    #[error("offset {offset} is beyond the tail {tail}")]
    BeyondTail { offset: Offset, tail: Offset },
    /// The offset is below the earliest retained position `start`.
    #[error("offset {offset} is before the earliest retained position {start}")]
    Trimmed { offset: Offset, start: Offset },
    /// Content from `offset` to `end`, at most, is not as it was written.
    #[error("log {log} is damaged from {offset} to {end}: {what}")]
    Corrupt { log: LogId, offset: Offset, end: Offset, what: String },
    /// The device or the journal failed. A retry may succeed.
    #[error("reading log {log} at {offset} failed: {cause}; a retry may help")]
    Io { log: LogId, offset: Offset, cause: String },
    /// A bug: neither stored data nor a device is the cause.
    #[error("a bug of the program: reading log {log} at {offset} {what}; report it, a retry does not help")]
    Bug { log: LogId, offset: Offset, what: &'static str },
}

/// Why logs cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The root cannot be read or acquired.
    #[error(transparent)]
    Unit(#[from] thalweg_unit::OpenError),
    /// A journal frame cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The start cannot be committed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The directory's records cannot be read.
    #[error("the directory of logs cannot be recovered: {0}")]
    Directory(String),
    /// The list names objects, as the manifest does: without it an opening would take them for orphans.
    #[error("a list of objects cannot be read: {0}. Remove nothing, and restore a backup into a new folder")]
    List(crate::run::RunError),
    /// The storage failed.
    #[error("storage: {0}")]
    Storage(#[from] thalweg_storage::StorageError),
}

/// Why a unit of files does not open.
#[derive(Debug, Error)]
pub enum UnitError {
    /// The folder of objects cannot be opened.
    #[error("cannot open the objects: {0}")]
    Objects(thalweg_storage::StorageError),
    /// The manifest cannot be opened.
    #[error("cannot open the manifest: {0}")]
    Manifest(thalweg_manifest::ManifestError),
    /// The journal cannot be opened.
    #[error("cannot recover the data folder: journal: {0}")]
    Journal(thalweg_journal::OpenError<OpenError>),
    /// The logs cannot be recovered.
    #[error("cannot recover the data folder: {0}")]
    Logs(OpenError),
}
