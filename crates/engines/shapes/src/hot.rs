//! The recent end of the change log, in memory: what live readers ask for, often before it is durable.

use crate::store::{Store, StoreError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use thalweg_base::Lsn;

/// Blocks of bodies, oldest first. Blocks leave at the front when there is too much, but not before they are durable: until then
/// they are nowhere else.
pub(crate) struct Hot {
    blocks: Mutex<Blocks>,
    bytes_max: usize,
}

#[derive(Default)]
struct Blocks {
    list: VecDeque<Block>,
    bytes: usize,
}

struct Block {
    at: u64,
    bytes: Bytes,
    end: Lsn,
}

impl Hot {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { blocks: Mutex::default(), bytes_max }
    }

    /// Adds what was just written at `at`, by a frame that ends at `end`; waits for the disk if there is too much that is not durable.
    pub(crate) fn push(&self, store: &Store, at: u64, bytes: Bytes, end: Lsn) -> Result<(), StoreError> {
        loop {
            let oldest = {
                let mut blocks = self.blocks.lock();
                let durable = store.durable();
                while blocks.bytes + bytes.len() > self.bytes_max
                    && blocks.list.front().is_some_and(|front| front.end <= durable)
                {
                    let gone = blocks.list.pop_front().map_or(0, |block| block.bytes.len());
                    blocks.bytes -= gone;
                }
                match blocks.list.front() {
                    Some(front) if blocks.bytes + bytes.len() > self.bytes_max => front.end,
                    _ => {
                        blocks.bytes += bytes.len();
                        blocks.list.push_back(Block { at, bytes, end });
                        return Ok(());
                    }
                }
            };
            store.wait(oldest)?;
        }
    }

    /// Bodies, if they are here. A range never lies in two blocks: it was written at once.
    pub(crate) fn get(&self, at: u64, len: u32) -> Option<Bytes> {
        let blocks = self.blocks.lock();
        let found = blocks.list.partition_point(|block| block.at <= at).checked_sub(1)?;
        let block = blocks.list.get(found)?;
        let from = usize::try_from(at - block.at).ok()?;
        let upto = from.checked_add(len as usize)?;
        (upto <= block.bytes.len()).then(|| block.bytes.slice(from..upto))
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.lock().bytes
    }
}
