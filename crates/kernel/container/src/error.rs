//! Errors of containers.

use thalweg_base::{DecodeError, ObjectId};
use thalweg_storage::StorageError;
use thiserror::Error;

/// Why a container cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ContainerError {
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Bytes from `at` on are not those written, or make no container. Final.
    #[error("container {object} is damaged at byte {at}: {what}")]
    Corrupt { object: ObjectId, at: u64, what: String },
    /// The container's format `found` is above the newest that this program reads, `known`.
    #[error(
        "container {object} has format {found}, and this program reads formats up to {known}: use a newer thalweg, unless the \
         container is damaged"
    )]
    Newer { object: ObjectId, found: u32, known: u32 },
    /// A bug of the writer: keys must rise.
    #[error("key \"{key}\" does not come after the key before it, \"{before}\"")]
    Order { before: String, key: String },
    /// A key, value or container of the caller has `len` bytes, more than `max`.
    #[error("{what} of {len} bytes is too large for a container; the largest has {max}")]
    TooLarge { what: &'static str, len: usize, max: usize },
    /// A bug of the writer: only a container that is made for content can take some.
    #[error("this container was begun without a content section")]
    NoContent,
    /// A rule reads keys: those of another codec, or damaged ones.
    #[error("a key cannot be decoded as the merge's rule expects: {0}")]
    Key(DecodeError),
}

impl ContainerError {
    /// A writer gave `key` after `before`, and `key` is not above it.
    pub(crate) fn order(before: &[u8], key: &[u8]) -> Self {
        Self::Order { before: readable(before), key: readable(key) }
    }

    /// Damage of `object` at byte `at`.
    pub fn corrupt(object: ObjectId, at: u64, what: impl ToString) -> Self {
        Self::Corrupt { object, at, what: what.to_string() }
    }
}

/// The first bytes of a key, with escapes where they are no ASCII letters.
fn readable(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 64;
    let shown = key.get(..SHOWN_BYTES_MAX).unwrap_or(key).escape_ascii();
    if key.len() > SHOWN_BYTES_MAX { format!("{shown}… ({} bytes)", key.len()) } else { shown.to_string() }
}
