//! One read that waits for its blocks: they arrive in any order and from any thread; the last one resolves the ticket.

use super::format::BlockKey;
use crate::StorageError;
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Range;
use thalweg_base::{Completer, ObjectId, Ticket};

/// Puts the bytes of one range together from the blocks that it touches.
pub(crate) struct Assembly {
    object: ObjectId,
    range: Range<u64>,
    block_bytes: u64,
    /// Empty until the first block is there: a read that waits takes no memory for its bytes.
    bytes: Vec<u8>,
}

impl Assembly {
    /// The caller has bounded the range.
    pub(crate) fn new(object: ObjectId, range: Range<u64>, block_bytes: u64) -> Self {
        Self { object, range, block_bytes, bytes: Vec::new() }
    }

    /// Copies the part of one block that the range needs. A block that ends too early is the last one: then the range
    /// is outside of the object.
    pub(crate) fn put(&mut self, block: u32, bytes: &[u8]) -> Result<(), StorageError> {
        let block_start = u64::from(block) * self.block_bytes;
        let block_end = block_start + bytes.len() as u64;
        let from = self.range.start.max(block_start);
        let to = self.range.end.min(block_start + self.block_bytes);
        if to > block_end {
            return Err(self.outside(block_end));
        }
        if self.bytes.is_empty() {
            self.bytes = vec![0; (self.range.end - self.range.start) as usize];
        }
        let part = &bytes[(from - block_start) as usize..(to - block_start) as usize];
        self.bytes[(from - self.range.start) as usize..(to - self.range.start) as usize].copy_from_slice(part);
        Ok(())
    }

    pub(crate) fn outside(&self, len: u64) -> StorageError {
        StorageError::Range { object: self.object, start: self.range.start, end: self.range.end, len }
    }

    pub(crate) fn finish(self) -> Bytes {
        Bytes::from(self.bytes)
    }
}

pub(crate) struct Gather(Mutex<Option<Waiting>>);

struct Waiting {
    assembly: Assembly,
    missing: usize,
    completer: Completer<Result<Bytes, StorageError>>,
}

impl Gather {
    pub(crate) fn new(assembly: Assembly, blocks: usize) -> (Self, Ticket<Result<Bytes, StorageError>>) {
        let (ticket, completer) = Ticket::pending();
        (Self(Mutex::new(Some(Waiting { assembly, missing: blocks, completer }))), ticket)
    }

    /// Takes one block. Blocks after an error are ignored.
    pub(crate) fn deliver(&self, key: BlockKey, bytes: &[u8]) {
        self.step(|waiting| waiting.assembly.put(key.block, bytes));
    }

    pub(crate) fn fail(&self, error: StorageError) {
        self.step(|_| Err(error));
    }

    /// The object turned out to have `len` bytes, and one of the blocks is not among them.
    pub(crate) fn fail_outside(&self, len: u64) {
        self.step(|waiting| Err(waiting.assembly.outside(len)));
    }

    fn step(&self, step: impl FnOnce(&mut Waiting) -> Result<(), StorageError>) {
        let mut slot = self.0.lock();
        let Some(waiting) = slot.as_mut() else { return };
        let outcome = step(waiting);
        waiting.missing -= usize::from(outcome.is_ok());
        if outcome.is_ok() && waiting.missing > 0 {
            return;
        }
        let done = slot.take();
        // The ticket's callback may do anything, also read again.
        drop(slot);
        if let Some(Waiting { assembly, completer, .. }) = done {
            completer.complete(outcome.map(|()| assembly.finish()));
        }
    }
}
