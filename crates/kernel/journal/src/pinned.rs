//! Counts the memory behind payloads: a payload is a slice of the batch or of the read that it came with, and keeps all of it.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of buffers that somebody still holds a slice of.
#[derive(Clone, Default)]
pub(crate) struct Pinned(Arc<AtomicU64>);

struct Buffer {
    bytes: Vec<u8>,
    counter: Pinned,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.counter.0.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

impl Pinned {
    /// The same bytes, counted until their last slice is gone.
    pub(crate) fn count(&self, bytes: Vec<u8>) -> Bytes {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Buffer { bytes, counter: self.clone() })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
