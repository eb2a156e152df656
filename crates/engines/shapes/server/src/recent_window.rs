//! The recent end of the change log, in memory: live readers ask for it, often before it is durable.

use crate::store::{Store, StoreError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use thalweg_base::Lsn;

/// Blocks of bodies, oldest first. Blocks leave at the front when there is too much, but not before they are durable:
/// until then they are nowhere else.
pub(crate) struct RecentWindow {
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

impl RecentWindow {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { blocks: Mutex::default(), bytes_max }
    }

    /// Adds the bytes that were just written at `at`, by a frame that ends at `end`; waits for the disk while too many
    /// bytes are not durable.
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

    /// Where the oldest body lies that is here: all before it are durable.
    pub(crate) fn first(&self) -> u64 {
        self.blocks.lock().list.front().map_or(u64::MAX, |block| block.at)
    }

    /// Bodies, if all of them are here.
    pub(crate) fn range(&self, range: Range<u64>) -> Option<Vec<Bytes>> {
        let mut parts = Vec::new();
        if range.is_empty() {
            return Some(parts);
        }
        let blocks = self.blocks.lock();
        let first = blocks.list.partition_point(|block| block.at <= range.start).checked_sub(1)?;
        let mut at = range.start;
        for block in blocks.list.range(first..) {
            let end = block.at + block.bytes.len() as u64;
            if block.at > at || end <= at {
                return None;
            }
            let upto = end.min(range.end);
            parts.push(block.bytes.slice((at - block.at) as usize..(upto - block.at) as usize));
            at = upto;
            if at == range.end {
                return Some(parts);
            }
        }
        None
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hot(blocks: &[(u64, &'static [u8])]) -> RecentWindow {
        let hot = RecentWindow::new(100);
        let block =
            |(at, bytes): &(u64, &'static [u8])| Block { at: *at, bytes: Bytes::from_static(bytes), end: Lsn::ZERO };
        hot.blocks.lock().list.extend(blocks.iter().map(block));
        hot
    }

    #[test]
    fn a_range_may_lie_in_several_blocks() {
        let hot = hot(&[(10, b"abc"), (13, b"de"), (15, b"fgh")]);
        assert_eq!(hot.first(), 10);
        let read = |range| hot.range(range).map(|parts| parts.concat());
        assert_eq!(read(10..18).as_deref(), Some(&b"abcdefgh"[..]));
        assert_eq!(read(12..16).as_deref(), Some(&b"cdef"[..]));
        assert_eq!(read(13..13).as_deref(), Some(&b""[..]));
        assert_eq!((read(9..11), read(17..19), read(18..19)), (None, None, None));
    }

    #[test]
    fn nothing_is_recent_where_there_is_nothing() {
        let hot = hot(&[]);
        assert_eq!((hot.first(), hot.range(0..1)), (u64::MAX, None));
    }
}
