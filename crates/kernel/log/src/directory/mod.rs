//! Directory objects: checkpoints of what is known of each log.
//!
//! A directory object is a list of (log, record or tombstone), sorted by log. What a record holds is not known here. Objects are
//! written from front to back and read from front to back, in large pieces: at recovery, newest first, and to merge several into
//! one. `docs/format/objects.md` has the bytes.

mod block;
mod build;
mod error;
mod footer;
mod merge;
mod read;

pub use build::DirectoryBuilder;
pub use error::DirectoryError;
pub use footer::DirectoryMeta;
pub use merge::{DirectoryMergeStats, merge_newest_wins};
pub use read::{DirectoryReader, verify};

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

/// Takes `data` for the parts of an object: records of a block, and a footer whose checksum fits.
pub(crate) fn fuzz_parts(object: thalweg_base::ObjectId, data: &[u8]) {
    let (mut from, mut log) = (thalweg_base::Decoder::new(data), thalweg_base::LogId::ZERO);
    while !from.is_empty() {
        let Ok((next, _)) = block::record(&mut from, log) else { break };
        assert!(next >= log, "records of a block rise");
        log = next;
    }
    let sealed = crate::fuzz::sealed(&[&footer::MAGIC[..], data].concat());
    let _ = DirectoryMeta::decode_footer(object, data.len() as u64, &sealed);
}

#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    tests::samples()
}
