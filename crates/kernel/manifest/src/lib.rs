//! The one root of a unit, changed only by compare-and-swap.
//!
//! Every stored body carries a version that only grows, the owner's epoch and a writer's nonce, so that two bodies are never
//! equal by accident (an object store's ETag is a content hash: without these, compare-and-swap would have an ABA hole).

mod file;
mod frame;
mod memory;

pub use file::FileManifest;
#[doc(hidden)]
pub use frame::fuzz_manifest;
pub use memory::MemoryManifest;

use bytes::Bytes;
use thiserror::Error;

/// The manifest's content at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Grows by one with every commit; the first is 1.
    pub version: u64,
    /// The content, opaque here.
    pub body: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ManifestError {
    #[error("the manifest is at version {found}, not at {expected}: another writer owns it now")]
    Conflict { expected: u64, found: u64 },
    #[error("the manifest belongs to an owner of epoch {found}; this one has epoch {epoch}")]
    Fenced { epoch: u64, found: u64 },
    #[error("the manifest has format {found}; this program reads up to {known}")]
    Newer { found: u32, known: u32 },
    #[error("the manifest is damaged: {0}")]
    Corrupt(String),
    #[error("no space left for the manifest")]
    NoSpace,
    #[error("{operation} of the manifest failed: {cause}")]
    Io { operation: &'static str, cause: String },
}

/// One versioned root.
pub trait Manifest: Send + Sync + 'static {
    /// The root that is there, for a reader that changes nothing: a power failure may still take it back to the one before.
    fn read(&self) -> Result<Option<Root>, ManifestError>;

    /// The newest durable root, for its owner; `None` before the first commit. May write: a root that was found but is not known to
    /// be durable is made so first, and so is the one that it knows if what is stored has rotted since.
    fn load(&self) -> Result<Option<Root>, ManifestError>;

    /// Replaces the root if it is still at `expected` (0: none yet); the new version. Durable when it returns. May block.
    ///
    /// After an `Io` error it is unknown which of the two roots a restart will find; [`Manifest::load`] decides it.
    fn commit(&self, expected: u64, body: &[u8]) -> Result<u64, ManifestError>;
}

/// The version after `found`, if that is what the writer expected.
fn next_version(expected: u64, found: u64) -> Result<u64, ManifestError> {
    if expected != found {
        return Err(ManifestError::Conflict { expected, found });
    }
    found.checked_add(1).ok_or_else(|| ManifestError::Corrupt("its version cannot grow".to_owned()))
}
