//! Errors of runs.

use super::read::Lack;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_container::ContainerError;
use thalweg_storage::StorageError;
use thiserror::Error;

/// Why a run cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RunError {
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Bytes of the object from `at` on are damaged. Final.
    #[error("object {object} is damaged at byte {at}: {what}")]
    Corrupt { object: ObjectId, at: u64, what: String },
    /// The object's format `found` is above the newest that this program reads, `known`.
    #[error(
        "object {object} has format {found}, and this program reads formats up to {known}: use a newer thalweg, unless the object \
         is damaged"
    )]
    Newer { object: ObjectId, found: u32, known: u32 },
    /// Two inputs of a merge hold the same position of a log.
    #[error("two runs both hold log {log} at {at}")]
    Overlap { log: LogId, at: Offset },
    /// Our own bug: extents must come in key order.
    #[error("an extent of log {log} at {start} does not come after the one before it")]
    Order { log: LogId, start: Offset },
    /// Our own bug: the lengths of an extent must add up to its bytes, and its end must be a position.
    #[error("an extent of log {log} at {start} has {bytes} bytes, but lengths for {lengths}")]
    Lengths { log: LogId, start: Offset, bytes: u64, lengths: u64 },
    /// A bug of the writer: no container may hold such an entry.
    #[error(transparent)]
    Container(ContainerError),
}

impl From<ContainerError> for RunError {
    fn from(error: ContainerError) -> Self {
        match error {
            ContainerError::Storage(error) => Self::Storage(error),
            ContainerError::Corrupt { object, at, what } => Self::Corrupt { object, at, what },
            ContainerError::Newer { object, found, known } => Self::Newer { object, found, known },
            error => Self::Container(error),
        }
    }
}

impl RunError {
    pub(crate) fn corrupt(object: ObjectId, at: u64, what: impl ToString) -> Self {
        Self::Corrupt { object, at, what: what.to_string() }
    }
}

/// Why a lookup gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Fetch {
    #[error("bytes {}..{} of object {} must be read first", .0.range.start, .0.range.end, .0.object)]
    Lacks(Lack),
    #[error(transparent)]
    Failed(#[from] RunError),
}

impl From<Lack> for Fetch {
    fn from(lack: Lack) -> Self {
        Self::Lacks(lack)
    }
}
