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
    #[error("key \"{key}\" does not come after the key before it, \"{before}\"")]
    Order { before: String, key: String },
    #[error("{what} of {len} bytes is too large for a container; the largest has {max}")]
    TooLarge { what: &'static str, len: usize, max: usize },
    /// A bug of the writer: only a container that is made for content can take some.
    #[error("this container was begun without a section of content")]
    NoContent,
    #[error("a key is none of its index: {0}")]
    Key(DecodeError),
    /// Two inputs of a merge hold the same place, although they must be disjoint; or an entry ends before it starts. Places are
    /// encoded as the rule encodes them.
    #[error(
        "entries of containers that are merged overlap: one ends at \"{before}\", the next spans \"{start}\" to \"{end}\""
    )]
    Overlap { before: String, start: String, end: String },
}

impl ContainerError {
    /// `key` comes after `before`, although it must be above it.
    pub(crate) fn order(before: &[u8], key: &[u8]) -> Self {
        Self::Order { before: readable(before), key: readable(key) }
    }

    /// What spans `start` to `end` follows on what ends at `before`.
    pub(crate) fn overlap(before: &[u8], start: &[u8], end: &[u8]) -> Self {
        Self::Overlap { before: readable(before), start: readable(start), end: readable(end) }
    }

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
