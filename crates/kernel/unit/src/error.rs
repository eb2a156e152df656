//! Why a unit cannot be opened.

use thalweg_base::{DecodeError, Lsn, ObjectId};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(
        "{}: {objects} objects exist that no manifest names. Remove nothing, and restore a backup into a new folder",
        Self::ROOT_IS_MISSING
    )]
    RootMissing { objects: usize },
    #[error(
        "the manifest is an older copy: it knows owners up to epoch {epoch}, and object {object} was made by that of epoch {maker}. \
         Restore a backup into a new folder; or start again, if another server has just started on this unit"
    )]
    OlderRoot { object: ObjectId, maker: u64, epoch: u64 },
    #[error("the manifest cannot be read: {0}")]
    Manifest(#[from] thalweg_manifest::ManifestError),
    #[error("the manifest's body is damaged: {0}")]
    Root(DecodeError),
    /// The unit holds data of an index that this program does not know.
    #[error("the manifest names data of an unknown index (number {0}): use a newer thalweg")]
    UnknownIndex(u8),
    #[error("another owner has changed the manifest while it was read: start again")]
    Changed,
    #[error("all {0} epochs are used: restore a backup into a new folder")]
    Epochs(u64),
    #[error("storage: {0}")]
    Storage(#[from] thalweg_storage::StorageError),
}

impl OpenError {
    pub const ROOT_IS_MISSING: &str = "the manifest is missing, but not the data that it named";
}

/// Why an opened unit cannot be put to work.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("the journal frame at {at} could not be replayed, and its refusal was passed over")]
    Refused { at: Lsn },
    #[error("the manifest cannot be written: {0}")]
    Manifest(#[from] thalweg_manifest::ManifestError),
    #[error("storage: {0}")]
    Storage(#[from] thalweg_storage::StorageError),
}
