//! Why a unit cannot be opened.

use thalweg_base::{DecodeError, Lsn, ObjectId};
use thiserror::Error;

/// Why a unit cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no root, but there are objects, which an earlier root must have named.
    #[error(
        "{}: {objects} objects exist that no manifest names. Remove nothing, and restore a backup into a new folder",
        Self::ROOT_IS_MISSING
    )]
    RootMissing { objects: usize },
    /// The root is of owner `epoch`, and an object of the later owner `maker` exists: the root is an old copy.
    #[error(
        "the manifest is an older copy: it knows owners up to epoch {epoch}, and object {object} was made by that of epoch {maker}. \
         Restore a backup into a new folder; or start again, if another server has just started on this unit"
    )]
    OlderRoot { object: ObjectId, maker: u64, epoch: u64 },
    /// The manifest refused or failed.
    #[error("the manifest cannot be read: {0}")]
    Manifest(#[from] thalweg_manifest::ManifestError),
    /// The root's bytes cannot be decoded.
    #[error("the manifest's body is damaged: {0}")]
    Root(DecodeError),
    /// The unit holds data of an index that this program does not know.
    #[error("the manifest names data of an unknown index (number {0}): use a newer thalweg")]
    UnknownIndex(u8),
    /// Another owner acquired the unit between the read of the root and the acquisition. A retry may succeed.
    #[error("another owner has changed the manifest while it was read: start again")]
    Changed,
    /// Every epoch up to this largest one is used.
    #[error("all {0} epochs are used: restore a backup into a new folder")]
    Epochs(u64),
    /// The storage failed.
    #[error("storage: {0}")]
    Storage(#[from] thalweg_storage::StorageError),
}

impl OpenError {
    /// The beginning of the message of a missing root.
    pub const ROOT_IS_MISSING: &str = "the manifest is missing, but not the data that it named";
}

/// Why an opened unit cannot be put to work.
#[derive(Debug, Error)]
pub enum StartError {
    /// An index refused the frame at this position, and the caller went on.
    #[error("the journal frame at {at} could not be replayed, and its refusal was passed over")]
    Refused { at: Lsn },
    /// The manifest refused or failed to commit the start.
    #[error("the manifest cannot be written: {0}")]
    Manifest(#[from] thalweg_manifest::ManifestError),
    /// The storage failed to list or remove orphans.
    #[error("storage: {0}")]
    Storage(#[from] thalweg_storage::StorageError),
}
