//! How much memory answers hold beside the journal's: every large buffer that a read made is counted once, from when it was made until
//! the last answer that uses it is sent. What an answer has of the journal is counted there, with all that it keeps
//! ([`thalweg_journal::Journal::pinned_bytes`]).

use crate::read::Chunk;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer below this is not counted: bounds on connections are enough for it.
const COUNTED_MIN: usize = 4 << 10;
/// Smaller parts of a chunk are copied and joined: each may be a slice of a whole batch, and would keep it.
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

    /// The same bytes, counted until nobody uses them any more, unless there are few.
    pub(crate) fn count(&self, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_MIN {
            return bytes;
        }
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, by: self.clone() })
    }

    /// The same content, without small slices of large buffers.
    pub(crate) fn join_chunk(&self, mut chunk: Chunk) -> Chunk {
        let small = if chunk.bytes() < COUNTED_MIN { COUNTED_MIN } else { JOINED_MAX };
        if chunk.parts.iter().all(|part| part.len() >= small) {
            return chunk;
        }
        let mut parts = Vec::with_capacity(chunk.parts.len().min(64));
        let mut joined = Vec::new();
        for part in chunk.parts.drain(..) {
            if part.len() < small {
                joined.extend_from_slice(&part);
                continue;
            }
            if !joined.is_empty() {
                parts.push(self.count(std::mem::take(&mut joined).into()));
            }
            parts.push(part);
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

    fn chunk(lens: &[usize]) -> Chunk {
        let parts: Vec<Bytes> = lens.iter().map(|n| vec![*n as u8; *n].into()).collect();
        let end = Offset(lens.iter().sum::<usize>() as u64);
        Chunk { parts, end }
    }

    #[test]
    fn a_small_chunk_is_a_buffer_of_its_own() {
        let held = Held::default();
        for lens in [[4_000, 0, 0], [1_500, 1_500, 1_000]] {
            let before = chunk(&lens);
            let after = held.join_chunk(before.clone());
            assert_eq!((after.parts.len(), after.parts.concat()), (1, before.parts.concat()));
            assert_ne!(after.parts[0].as_ptr(), before.parts[0].as_ptr(), "it keeps nothing else");
        }
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn small_parts_are_copied_and_counted_until_their_last_user_is_gone() {
        let held = Held::default();
        let before = chunk(&[10, 100, 50_000, 7, 1_000, 1_000, 9_000, 900, 900, 900, 900, 900]);
        let after = held.join_chunk(before.clone());
        assert_eq!(after.parts.concat(), before.parts.concat());
        assert_eq!(after.parts.iter().map(Bytes::len).collect::<Vec<_>>(), [110, 50_000, 2_007, 9_000, 4_500]);
        assert_eq!(after.parts[1].as_ptr(), before.parts[2].as_ptr(), "large parts are not copied");
        assert_eq!(held.bytes(), 4_500, "and counted by those who made them");
        let (shared, rest) = (after.parts[4].slice(5..), after.clone());
        assert_eq!(held.bytes(), 4_500, "sharing costs nothing");
        drop((after, rest));
        assert_eq!(held.bytes(), 4_500);
        drop(shared);
        assert_eq!(held.bytes(), 0);
    }
}
