//! How much memory readers hold: every large buffer that a read made is counted once, from when it was made until the last answer
//! that uses it is sent. Whoever serves reads makes none while there is too much.

use crate::read::Chunk;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Less than this is not counted: bounds on connections are enough for it.
const COUNTED_MIN: usize = 4 << 10;
/// Smaller parts of a chunk that is counted are joined: they cost more to count than to copy.
const JOINED_MAX: usize = 1 << 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<AtomicU64>);

/// A buffer that is counted.
struct Counted {
    bytes: Bytes,
    by: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.by.0.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The same bytes, counted until nobody uses them any more.
    pub(crate) fn count(&self, bytes: Bytes) -> Bytes {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, by: self.clone() })
    }

    /// The same content, counted.
    pub(crate) fn count_chunk(&self, mut chunk: Chunk) -> Chunk {
        if chunk.bytes() < COUNTED_MIN {
            return chunk;
        }
        let mut parts = Vec::with_capacity(chunk.parts.len().min(64));
        let mut joined = Vec::new();
        for part in chunk.parts.drain(..) {
            if part.len() < JOINED_MAX {
                joined.extend_from_slice(&part);
                continue;
            }
            if !joined.is_empty() {
                parts.push(self.count(std::mem::take(&mut joined).into()));
            }
            parts.push(self.count(part));
        }
        if !joined.is_empty() {
            parts.push(self.count(joined.into()));
        }
        chunk.parts = parts;
        chunk
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use thalweg_base::Offset;

    #[test]
    fn little_is_not_counted() {
        let held = Held::default();
        let chunk = Chunk { parts: vec![vec![1; 4_000].into()], end: Offset(4_000) };
        assert_eq!(held.count_chunk(chunk.clone()), chunk);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn every_buffer_is_counted_once_until_its_last_user_is_gone() {
        let held = Held::default();
        let parts: Vec<Bytes> =
            [10, 100, 50_000, 7, 1_000, 1_000, 9_000].iter().map(|n| vec![*n as u8; *n].into()).collect();
        let content = parts.concat();
        let chunk = held.count_chunk(Chunk { parts, end: Offset(content.len() as u64) });
        assert_eq!(chunk.parts.concat(), content);
        assert_eq!(chunk.parts.iter().map(Bytes::len).collect::<Vec<_>>(), [110, 50_000, 2_007, 9_000]);
        assert_eq!(held.bytes(), 61_117);
        let (shared, rest) = (chunk.parts[1].slice(5..), chunk.clone());
        assert_eq!(held.bytes(), 61_117, "sharing costs nothing");
        drop((chunk, rest));
        assert_eq!(held.bytes(), 50_000);
        drop(shared);
        assert_eq!(held.bytes(), 0);
    }
}
