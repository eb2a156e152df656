//! Images of pages within records.

use crate::error::ImageError;
use crate::pglz;
use bytes::Bytes;

/// Bytes of a page of a relation (`BLCKSZ`), and of one of the log.
pub const PAGE_BYTES: usize = 8192;

/// How the bytes of an image are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Pglz,
    Lz4,
    Zstd,
}

/// The image of a page, as a record holds it: without its hole, and perhaps compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Replay takes the image for the page. One that is not applied is there for a check (`wal_consistency_checking`).
    pub is_applied: bool,
    pub(crate) hole_offset: u16,
    pub(crate) hole_len: u16,
    pub(crate) compression: Compression,
    pub(crate) stored: Bytes,
}

impl Image {
    /// Bytes of it in the record.
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        self.stored.len()
    }

    /// Writes the page: all of its bytes, its hole with zeros. The position of the last change in the page (`pd_lsn`) is
    /// that of the image, not that of its record.
    pub fn restore(&self, page: &mut [u8; PAGE_BYTES]) -> Result<(), ImageError> {
        let (hole, end) = (usize::from(self.hole_offset), usize::from(self.hole_offset) + usize::from(self.hole_len));
        let len = PAGE_BYTES - usize::from(self.hole_len);
        let mut unpacked = [0; PAGE_BYTES];
        let unpacked = &mut unpacked[..len];
        match self.compression {
            Compression::None if self.stored.len() == len => unpacked.copy_from_slice(&self.stored),
            Compression::None => return Err(ImageError::Compression("none")),
            Compression::Pglz => {
                if !pglz::decompress(&self.stored, unpacked) {
                    return Err(ImageError::Compression("pglz"));
                }
            }
            Compression::Lz4 => match lz4_flex::block::decompress_into(&self.stored, unpacked) {
                Ok(found) if found == len => {}
                _ => return Err(ImageError::Compression("lz4")),
            },
            Compression::Zstd => match zstd::bulk::decompress_to_buffer(&self.stored, unpacked) {
                Ok(found) if found == len => {}
                _ => return Err(ImageError::Compression("zstd")),
            },
        }
        page[..hole].copy_from_slice(&unpacked[..hole]);
        page[hole..end].fill(0);
        page[end..].copy_from_slice(&unpacked[hole..]);
        Ok(())
    }
}
