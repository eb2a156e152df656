//! Why a unit cannot be opened.

use thalweg_base::{DecodeError, ObjectId};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{}: {objects} objects are there that nothing names", Self::ROOT_IS_MISSING)]
    RootMissing { objects: usize },
    #[error(
        "object {object} was made by the owner of epoch {maker}, but the manifest knows owners up to epoch {epoch} only: it is an \
         older copy, unless another owner starts at this moment"
    )]
    OlderRoot { object: ObjectId, maker: u64, epoch: u64 },
    #[error("the manifest cannot be read: {0}")]
    Manifest(#[from] thalweg_manifest::ManifestError),
    #[error("the manifest's body is damaged: {0}")]
    Root(DecodeError),
    /// The unit holds data of an index that this program does not know.
    #[error("the manifest names data of an index that is not known here (number {0}): use a newer thalweg")]
    UnknownIndex(u8),
    #[error("the manifest was changed by another owner just now; try again")]
    Changed,
    #[error("no epochs are left: the unit was opened {0} times")]
    Epochs(u64),
    #[error("storage: {0}")]
    Storage(#[from] thalweg_storage::StorageError),
}

impl OpenError {
    pub const ROOT_IS_MISSING: &str = "the manifest is missing, but not the data that it named";
}
