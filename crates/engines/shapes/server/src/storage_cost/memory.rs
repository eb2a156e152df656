//! Chunks that lie ready in memory: the least cost of reading, which is the checksum and the threads. It keeps nothing.

use super::{CHUNK_BYTES, Keeper, Reader, body};
use bytes::Bytes;

#[derive(Default)]
pub(super) struct Memory {
    chunks: Vec<Bytes>,
    open: Vec<u8>,
}

impl Keeper for Memory {
    const NAME: &'static str = "memory";
    type Reader = MemoryReader;

    fn open(_: u32) -> Self {
        Self::default()
    }

    fn append(&mut self, lsn: u64, changes: u64) {
        for op in 0..changes {
            self.open.extend_from_slice(&body(lsn, op * 2, op + 1 == changes));
            if self.open.len() as u64 >= CHUNK_BYTES {
                self.chunks.push(std::mem::take(&mut self.open).into());
            }
        }
    }

    fn sync(&mut self) {}

    fn bytes_on_disk(&self) -> u64 {
        0
    }

    fn reader(&self) -> MemoryReader {
        MemoryReader(self.chunks.clone())
    }
}

pub(super) struct MemoryReader(Vec<Bytes>);

impl Reader for MemoryReader {
    fn read(&mut self, chunks: usize, sink: &mut dyn FnMut(&[u8])) {
        self.0[..chunks].iter().for_each(|chunk| sink(chunk));
    }
}
