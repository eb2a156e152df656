//! How much memory answers hold beside the journal's: every large buffer that a read made is counted once, from when it
//! was made until the last answer that uses it is sent. Buffers of the journal that an answer keeps are counted by the
//! journal ([`thalweg_journal::Journal::pinned_bytes`]).

use crate::read::Chunk;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_journal::PinnedBuffer;

/// A buffer below this is not counted: bounds on connections are enough for it.
const COUNTED_MIN: usize = 4 << 10;
/// Smaller parts of a chunk are copied and joined: each may be a slice of a whole batch, and would keep it.
const JOINED_MAX: usize = 1 << 10;
/// Parts are also copied if the chunk uses less than this fraction of their buffer: a chunk keeps at most so many times
/// its own size in memory.
const PINNED_PER_USED_MAX: usize = 8;

/// The count.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes(Arc<AtomicU64>);

/// A buffer that is counted.
struct Counted {
    bytes: Bytes,
    by: HeldBytes,
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

/// Room for a buffer that a read waits for.
pub(crate) struct Expected {
    bytes: u64,
    by: HeldBytes,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.by.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl HeldBytes {
    /// Counts a buffer of `bytes` bytes before it is allocated.
    pub(crate) fn expect(&self, bytes: u64) -> Expected {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Expected { bytes, by: self.clone() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until their last user drops them, unless they are few.
    pub(crate) fn count(&self, bytes: Bytes) -> Bytes {
        if bytes.len() < COUNTED_MIN {
            return bytes;
        }
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, by: self.clone() })
    }

    /// Copies the parts of a chunk that are small slices of large buffers, so that those buffers can be freed.
    /// `buffer_of` gives the buffer that a part keeps in memory, if that is more than the part itself.
    pub(crate) fn join_chunk(&self, mut chunk: Chunk, buffer_of: impl Fn(&[u8]) -> Option<PinnedBuffer>) -> Chunk {
        let small = if chunk.bytes() < COUNTED_MIN { COUNTED_MIN } else { JOINED_MAX };
        let mut used: HashMap<PinnedBuffer, usize> = HashMap::new();
        let mut buffers = Vec::with_capacity(chunk.parts.len());
        for part in &chunk.parts {
            let buffer = if part.len() < small { None } else { buffer_of(part) };
            if let Some(buffer) = buffer {
                *used.entry(buffer).or_default() += part.len();
            }
            buffers.push(buffer);
        }
        used.retain(|buffer, used| *used < buffer.bytes / PINNED_PER_USED_MAX);
        let is_copied = |part: &Bytes, buffer: Option<PinnedBuffer>| {
            part.len() < small || buffer.is_some_and(|b| used.contains_key(&b))
        };
        if chunk.parts.iter().zip(&buffers).all(|(part, buffer)| !is_copied(part, *buffer)) {
            return chunk;
        }
        let mut parts = Vec::with_capacity(chunk.parts.len().min(64));
        let mut joined = Vec::new();
        for (part, buffer) in chunk.parts.drain(..).zip(buffers) {
            if is_copied(&part, buffer) {
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
        let held = HeldBytes::default();
        for lens in [[4_000, 0, 0], [1_500, 1_500, 1_000]] {
            let before = chunk(&lens);
            let after = held.join_chunk(before.clone(), |_| None);
            assert_eq!((after.parts.len(), after.parts.concat()), (1, before.parts.concat()));
            assert_ne!(after.parts[0].as_ptr(), before.parts[0].as_ptr(), "it keeps nothing else");
        }
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn small_parts_are_copied_and_counted_until_their_last_user_is_gone() {
        let held = HeldBytes::default();
        let before = chunk(&[10, 100, 50_000, 7, 1_000, 1_000, 9_000, 900, 900, 900, 900, 900]);
        let after = held.join_chunk(before.clone(), |_| None);
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

    #[test]
    fn a_part_that_is_small_against_its_buffer_is_copied() {
        let held = HeldBytes::default();
        let before = chunk(&[8_000, 2_000, 50_000, 9_000, 9_000]);
        let address = |n: usize| before.parts[n].as_ptr();
        // Two parts of one large batch, one that is most of its batch, and two of a batch that they use together.
        let buffer_of = |part: &[u8]| {
            let n = (0..5).find(|n| address(*n) == part.as_ptr());
            n.map(|n| [(1, 1 << 20), (1, 1 << 20), (2, 60_000), (3, 100_000), (3, 100_000)][n])
                .map(|(id, bytes)| PinnedBuffer { id, bytes })
        };
        let after = held.join_chunk(before.clone(), buffer_of);
        assert_eq!(after.parts.concat(), before.parts.concat());
        assert_eq!(after.parts.iter().map(Bytes::len).collect::<Vec<_>>(), [10_000, 50_000, 9_000, 9_000]);
        assert_ne!(after.parts[0].as_ptr(), address(0), "its batch can go");
        assert_eq!((1..4).map(|n| after.parts[n].as_ptr()).collect::<Vec<_>>(), [2, 3, 4].map(address));
        assert_eq!(held.bytes(), 10_000);
    }
}
