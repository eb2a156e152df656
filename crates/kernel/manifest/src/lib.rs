//! The one root of a unit, changed only by compare-and-swap, and by its owner alone.
//!
//! An owner begins by acquiring the root, which gives it an epoch above all earlier ones: from then on commits of
//! earlier owners fail. Every stored body carries a version that only grows, the owner's epoch and a writer's nonce, so
//! that two bodies are never equal by accident (an object store's ETag is a content hash: without these,
//! compare-and-swap would have an ABA hole).

#[cfg(feature = "testing")]
pub mod contract;
mod file;
mod frame;
mod memory;

pub use file::FileManifest;
pub use frame::Frame;
#[doc(hidden)]
pub use frame::fuzz_manifest;
pub use memory::MemoryManifest;

use bytes::Bytes;
use thiserror::Error;

/// The manifest's content at one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Grows by one with every commit and every acquisition; the first is 1.
    pub version: u64,
    /// The epoch of the owner that wrote it; 0 if it was written before owners had epochs.
    pub epoch: u64,
    /// The content, opaque here. Empty if an owner has acquired the root and committed nothing yet.
    pub body: Bytes,
}

/// Why a root cannot be read or committed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// The stored version is not the one that the owner has read: a second process writes the same manifest. Final.
    #[error(
        "the manifest has version {found}, and its owner expected {expected}: another process has replaced it; let one server \
         run on this data, and restart it"
    )]
    Conflict { expected: u64, found: u64 },
    /// A later owner has acquired the root: epoch `found` is above `epoch`. Final for this owner.
    #[error(
        "the manifest was taken over by the owner of epoch {found}, and this one has epoch {epoch}: another server has started on \
         this data; let one of them run"
    )]
    Fenced { epoch: u64, found: u64 },
    /// The stored format `found` is above the newest that this program reads, `known`.
    #[error(
        "the manifest has format {found}, and this program reads formats up to {known}: use a newer thalweg, unless the manifest \
         is damaged"
    )]
    Newer { found: u32, known: u32 },
    /// The stored bytes are damaged; the text says how.
    #[error("the manifest is damaged: {0}")]
    Corrupt(String),
    /// The commit was not made: the disk is full. A retry may succeed.
    #[error("no space left for the manifest")]
    NoSpace,
    /// The device failed during `operation`. Whether a commit was made is unknown until the root is read again.
    #[error("{operation} of the manifest failed: {cause}")]
    Io { operation: &'static str, cause: String },
}

/// One versioned root.
pub trait Manifest: Send + Sync + 'static {
    /// The stored root, for a reader that changes nothing: a power failure may still take it back to the root before.
    fn read(&self) -> Result<Option<Root>, ManifestError>;

    /// The newest durable root, for its owner; `None` before the first commit. May write: a root that is found and not
    /// known to be durable is made durable first; if the stored root has rotted, the last durable one is written once
    /// more.
    fn load(&self) -> Result<Option<Root>, ManifestError>;

    /// Makes the caller the owner: commits the root as it is, or an empty one if there is none, with an epoch above
    /// that of the root and above `above`. When it returns, no earlier owner can commit. May block.
    ///
    /// After an error no owner has the epoch that was tried, although a restart may find it in the root.
    fn acquire(&self, above: u64) -> Result<Root, ManifestError>;

    /// Replaces the root if it is still at version `expected` and of this owner's `epoch`; the new version. Durable
    /// when it returns. May block.
    ///
    /// After an `Io` error it is unknown which of the two roots a restart will find; [`Manifest::load`] decides it.
    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError>;
}

/// The version after that of `found`, which is the version and epoch of the stored root, if that is the root which the
/// owner of `epoch` expects.
pub fn next_version(epoch: u64, expected: u64, found: Option<(u64, u64)>) -> Result<u64, ManifestError> {
    let (version, owner) = found.unwrap_or_default();
    if owner != epoch {
        return Err(ManifestError::Fenced { epoch, found: owner });
    }
    if version != expected {
        return Err(ManifestError::Conflict { expected, found: version });
    }
    grown(version)
}

/// The version or epoch after this one.
pub fn grown(version: u64) -> Result<u64, ManifestError> {
    version.checked_add(1).ok_or_else(|| ManifestError::Corrupt("its version or epoch cannot grow".to_owned()))
}
