//! The object that a container is: its id, its length, and how much of its end a reader takes first.

use crate::error::ContainerError;
use crate::footer::FOOTER_BYTES;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_storage::Storage;

/// Enough for footer and root of a container of some hundred megabytes.
const TAIL_BYTES: u64 = 32 << 10;

/// The object of a container, as its reader must know it to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The object's id in its storage.
    pub id: ObjectId,
    /// The object's length in bytes.
    pub bytes: u64,
    /// How many bytes at the end hold its root and footer. If it is less than that, opening takes one read more.
    pub tail_bytes: u64,
}

impl Object {
    /// An object of which only the length is known.
    #[must_use]
    pub fn new(id: ObjectId, bytes: u64) -> Self {
        Self { id, bytes, tail_bytes: TAIL_BYTES }
    }

    /// An object of which only the name is known.
    pub fn find(storage: &Arc<dyn Storage>, id: ObjectId) -> Result<Self, ContainerError> {
        Ok(Self::new(id, storage.len(id)?))
    }

    pub(crate) fn tail(&self) -> Range<u64> {
        self.bytes.saturating_sub(self.tail_bytes.max(FOOTER_BYTES))..self.bytes
    }

    pub(crate) fn footer_at(&self) -> u64 {
        self.bytes.saturating_sub(FOOTER_BYTES)
    }
}
