//! Directory objects: checkpoints of the state of each log.
//!
//! A directory object is a container (`thalweg_container`) of records and tombstones, sorted by log. Records are opaque
//! here. Objects are written from front to back and read from front to back, in large pieces: at recovery, newest
//! first, and to merge several into one. `docs/format/objects.md` has the bytes, also of the form that earlier versions
//! wrote: [`DirectoryReader`] reads both, so that merging converts.

mod build;
mod codec;
mod earlier;
mod merge;
mod read;

pub(crate) use build::{DirectoryBuilder, DirectoryMeta};
pub(crate) use merge::merge_newest_wins;
pub(crate) use read::{DirectoryReader, verify};

/// Errors of directory objects of every format.
pub type DirectoryError = thalweg_container::ContainerError;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

/// Takes `data` for the parts of an object of the earlier form. Those of containers have a target of their own.
pub(crate) fn fuzz_parts(object: thalweg_base::ObjectId, data: &[u8]) {
    earlier::fuzz_parts(object, data);
}

#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    tests::samples()
}
