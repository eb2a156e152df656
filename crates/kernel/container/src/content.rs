//! The section of content: opaque bytes that lie in one piece, so that a range of them can be sent as it is, with a
//! checksum for each page of 16 KiB. Entries point into it; the container does not know how.

use crate::error::ContainerError;
use crate::footer::HEADER_BYTES;
use crate::frame::{self, BlockType, FRAME_BYTES, Place};
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{Encoder, ObjectId, crc};

/// A page of content, in bytes: each has a checksum of its own.
pub const PAGE_BYTES: u64 = 16 << 10;
const SUM_BYTES: u64 = 4;
/// Checksums of so many pages stand in one block: of 16 MiB of content.
pub(crate) const SUMS_EACH: u64 = 1024;

/// The bytes that all blocks of checksums take. They are never compressed.
pub(crate) fn sums_bytes(content_bytes: u64) -> u64 {
    let pages = content_bytes.div_ceil(PAGE_BYTES);
    pages * SUM_BYTES + pages.div_ceil(SUMS_EACH) * FRAME_BYTES as u64
}

/// Takes content and counts its checksums.
#[derive(Default)]
pub(crate) struct Sums {
    bytes: u64,
    page: thalweg_base::Crc,
    done: Vec<u32>,
}

impl Sums {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = PAGE_BYTES - self.bytes % PAGE_BYTES;
            let (head, rest) = bytes.split_at(bytes.len().min(room as usize));
            self.page = self.page.bytes(head);
            self.bytes += head.len() as u64;
            if self.bytes.is_multiple_of(PAGE_BYTES) {
                self.done.push(std::mem::take(&mut self.page).finish());
            }
            bytes = rest;
        }
    }

    /// The contents of the blocks of checksums.
    pub(crate) fn blocks(mut self) -> Vec<Vec<u8>> {
        if !self.bytes.is_multiple_of(PAGE_BYTES) {
            self.done.push(self.page.finish());
        }
        let block = |sums: &[u32]| {
            let mut out = Vec::new();
            sums.iter().for_each(|sum| out.put_u32(*sum));
            out
        };
        self.done.chunks(SUMS_EACH as usize).map(block).collect()
    }
}

/// The places of content and of its checksums in a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) object: ObjectId,
    pub(crate) content_bytes: u64,
    pub(crate) sums_at: u64,
}

impl Layout {
    /// The bytes of the content in the object.
    pub(crate) fn range(&self) -> Range<u64> {
        HEADER_BYTES..HEADER_BYTES + self.content_bytes
    }

    /// How many pages there are.
    pub(crate) fn pages(&self) -> u64 {
        self.content_bytes.div_ceil(PAGE_BYTES)
    }

    /// The whole pages around a range of content.
    pub(crate) fn pages_of(&self, content: &Range<u64>) -> Range<u64> {
        content.start / PAGE_BYTES..content.end.div_ceil(PAGE_BYTES).min(self.pages())
    }

    /// The bytes of pages in the object.
    pub(crate) fn range_of(&self, pages: &Range<u64>) -> Range<u64> {
        let end = (pages.end * PAGE_BYTES).min(self.content_bytes);
        HEADER_BYTES + pages.start * PAGE_BYTES..HEADER_BYTES + end
    }

    /// The block of checksums that holds that of `page`: the pages of the block, and where it stands.
    pub(crate) fn sums_of(&self, page: u64) -> (Range<u64>, Range<u64>) {
        let block = page / SUMS_EACH;
        let pages = block * SUMS_EACH..((block + 1) * SUMS_EACH).min(self.pages());
        let at = self.sums_at + block * (SUMS_EACH * SUM_BYTES + FRAME_BYTES as u64);
        let len = (pages.end - pages.start) * SUM_BYTES + FRAME_BYTES as u64;
        (pages, at..at + len)
    }

    pub(crate) fn open_sums(&self, at: u64, framed: &Bytes) -> Result<Bytes, ContainerError> {
        frame::open(Place { object: self.object, at }, BlockType::Sums, framed)
    }

    /// Checks a page against the block of checksums of `pages`.
    pub(crate) fn check(&self, pages: &Range<u64>, sums: &[u8], page: u64, bytes: &[u8]) -> Result<(), ContainerError> {
        let at = ((page - pages.start) * SUM_BYTES) as usize;
        if sums.get(at..at + SUM_BYTES as usize) == Some(&crc(bytes).to_le_bytes()) {
            return Ok(());
        }
        let place = HEADER_BYTES + page * PAGE_BYTES;
        Err(ContainerError::corrupt(self.object, place, format!("the checksum of page {page} differs")))
    }
}
