//! Counts the memory behind payloads: a payload is a slice of the batch or of the read that it came with, and keeps all
//! of it.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes of buffers of which a slice is still held.
#[derive(Clone, Default)]
pub(crate) struct Pinned(Arc<Buffers>);

#[derive(Default)]
struct Buffers {
    bytes: AtomicU64,
    /// The length of each buffer, by the address of its first byte.
    lengths: Mutex<BTreeMap<usize, usize>>,
}

/// The buffer that a slice keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinnedBuffer {
    /// Two slices with the same `id`, both still held, keep the same buffer.
    pub id: usize,
    /// The buffer's length in bytes.
    pub bytes: usize,
}

struct Buffer<B: AsRef<[u8]>> {
    bytes: B,
    counter: Pinned,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Buffer<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl<B: AsRef<[u8]>> Drop for Buffer<B> {
    fn drop(&mut self) {
        let (buffers, bytes) = (&self.counter.0, self.bytes.as_ref());
        buffers.lengths.lock().remove(&address(bytes));
        buffers.bytes.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
    }
}

fn address(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

impl Pinned {
    /// Counts `bytes` until their last slice is dropped. The caller has no other slice of them.
    pub(crate) fn count(&self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        let slice = bytes.as_ref();
        if slice.is_empty() {
            return Bytes::new();
        }
        self.0.bytes.fetch_add(slice.len() as u64, Ordering::Relaxed);
        // The bytes stay where they are when their owner moves: it is a vector or shared.
        self.0.lengths.lock().insert(address(slice), slice.len());
        Bytes::from_owner(Buffer { bytes, counter: self.clone() })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// The buffer that a slice lies in, if it is one of those that are counted.
    pub(crate) fn buffer_of(&self, slice: &[u8]) -> Option<PinnedBuffer> {
        let lengths = self.0.lengths.lock();
        let (id, bytes) = lengths.range(..=address(slice)).next_back().map(|(id, bytes)| (*id, *bytes))?;
        (address(slice) < id + bytes).then_some(PinnedBuffer { id, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_found_in_its_buffer_while_somebody_holds_it() {
        let pinned = Pinned::default();
        let (one, two) = (pinned.count(vec![1; 100]), pinned.count(vec![2; 50]));
        let part = one.slice(99..);
        assert_eq!(pinned.buffer_of(&part), pinned.buffer_of(&one));
        assert_eq!(pinned.buffer_of(&part).map(|buffer| buffer.bytes), Some(100));
        assert_eq!(pinned.buffer_of(&two).map(|buffer| buffer.bytes), Some(50));
        assert_eq!(pinned.buffer_of(&[3; 10]), None);
        drop((one, two));
        assert_eq!((pinned.bytes(), pinned.0.lengths.lock().len()), (100, 1));
        drop(part);
        assert_eq!((pinned.bytes(), pinned.0.lengths.lock().len()), (0, 0));
    }
}
