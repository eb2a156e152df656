//! Why a record was not taken, or a page cannot be given.

use std::io;
use std::path::PathBuf;
use thalweg_lakebase_redo::RedoError;
use thalweg_lakebase_wal::{ImageError, RecordError};
use thalweg_pg::PgLsn;
use thiserror::Error;

/// Why a record was not taken. The timeline is as before it.
#[derive(Debug, Error)]
pub enum IngestError {
    /// The record cannot be decoded.
    #[error("the record at {at}: {error}")]
    Record { at: PgLsn, error: RecordError },
    /// The timeline has this position already, or a later one.
    #[error("the record at {at} is not behind {last}, which the timeline has")]
    Order { at: PgLsn, last: PgLsn },
    /// The base could not be read.
    #[error("the pages before the log cannot be read: {0}")]
    Base(#[from] io::Error),
}

/// Why a page cannot be given.
#[derive(Debug, Error)]
pub enum PageError {
    /// The timeline does not have the position yet.
    #[error("the position {at} is not here yet: the timeline ends at {last}")]
    NotYet { at: PgLsn, last: PgLsn },
    /// The fork has no such block at that position.
    #[error("there is no such block")]
    Missing,
    /// The base could not be read.
    #[error("the pages before the log cannot be read: {0}")]
    Base(#[from] io::Error),
    /// The image in a record is damaged.
    #[error("the image of the record that ends at {at}: {error}")]
    Image { at: PgLsn, error: ImageError },
    /// The records cannot be replayed.
    #[error(transparent)]
    Redo(#[from] RedoError),
}

/// Why a data folder cannot be written.
#[derive(Debug, Error)]
pub enum BackupError {
    /// A page, or other state, cannot be given.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A file cannot be written.
    #[error("{path} cannot be written: {error}")]
    Io { path: PathBuf, error: io::Error },
    /// The control file is damaged, or of a version with another form.
    #[error("the control file has no checksum that fits")]
    Control,
    /// The log of the segment has another length than the position says.
    #[error("the segment's log up to the position has {expected} bytes, and {found} were given")]
    Segment { expected: u64, found: usize },
    /// Tablespaces of one's own are not supported.
    #[error("a relation is in tablespace {0}: only the default ones can be written")]
    Tablespace(u32),
}
