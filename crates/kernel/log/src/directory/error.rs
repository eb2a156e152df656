//! What can go wrong with directory objects.

use thalweg_base::{LogId, ObjectId};
use thalweg_storage::StorageError;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DirectoryError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("directory object {object} is damaged at byte {at}: {what}")]
    Corrupt { object: ObjectId, at: u64, what: String },
    #[error("directory object {object} has format {found}; this program reads up to {known}")]
    Newer { object: ObjectId, found: u32, known: u32 },
    /// Our own bug: records must come in order of their logs.
    #[error("the record of log {log} does not come after the one before it")]
    Order { log: LogId },
    #[error("the record of log {log} has {len} bytes; at most {max} are possible")]
    TooLarge { log: LogId, len: usize, max: usize },
}

impl DirectoryError {
    pub(crate) fn corrupt(object: ObjectId, at: u64, what: impl ToString) -> Self {
        Self::Corrupt { object, at, what: what.to_string() }
    }
}
