//! What can go wrong with containers.

use thalweg_base::{DecodeError, ObjectId};
use thalweg_storage::StorageError;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContainerError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("container {object} is damaged at byte {at}: {what}")]
    Corrupt { object: ObjectId, at: u64, what: String },
    #[error("container {object} has format {found}; this program reads up to {known}: use a newer program")]
    Newer { object: ObjectId, found: u32, known: u32 },
    /// A bug of the writer: keys must rise.
    #[error("a key of {len} bytes does not come after the key before it")]
    Order { len: usize },
    #[error("{what} of {len} bytes is too large for a container; the largest has {max}")]
    TooLarge { what: &'static str, len: usize, max: usize },
    /// A bug of the writer: only a container that is made for content can take some.
    #[error("this container was begun without a section of content")]
    NoContent,
    #[error("a key is none of its index: {0}")]
    Key(DecodeError),
    /// Two inputs of a merge hold the same place, although they must be disjoint.
    #[error("two containers hold the same stretch: the one ends after the other begins")]
    Overlap,
}

impl ContainerError {
    pub fn corrupt(object: ObjectId, at: u64, what: impl ToString) -> Self {
        Self::Corrupt { object, at, what: what.to_string() }
    }
}
