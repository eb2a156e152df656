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
