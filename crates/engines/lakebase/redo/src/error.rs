//! Why a page, or a process, could not be had.

use std::path::PathBuf;
use thiserror::Error;

/// Why a page could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RedoError {
    /// A redo routine refused a record. The same request fails again.
    #[error("Postgres cannot replay the records: {message}")]
    Refused { message: String },
    /// The process ended, or was ended, while it worked on the request. The same request may end the next one.
    #[error("the redo process ended over the records ({ended}): {said}")]
    Died { ended: String, said: String },
    /// No process could be started.
    #[error("there is no redo process: {0}")]
    NoProcess(String),
}

/// Why a process could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("{what} {path}: {error}")]
    File { what: &'static str, path: PathBuf, error: std::io::Error },
    #[error("the redo process ended as it started ({ended}): {said}")]
    Ended { ended: String, said: String },
    #[error("the redo process says that it is {found:?}, and Postgres {expected} was expected")]
    Version { found: String, expected: u32 },
}
