//! Sealed runs: the settled data of many logs, sorted by (log, offset), in immutable objects.
//!
//! Vocabulary. An *extent* is a contiguous piece of one log, with its bytes or with a reference to another log. An
//! *entry* is an extent's place in the index: the place of its data and the lengths of its messages. An *object* holds
//! extents in key order: it is a container (`thalweg_container`) with their data as its content. A *run* is a list of
//! objects in key order that do not overlap. Runs are ordered by time; two runs never hold the same position of a log.
//! Objects of the form that earlier versions wrote (`earlier`) are read through the same `Map` and blocks; merging
//! converts them.
//!
//! Every byte of an object is under a checksum, and none is believed before its checksum was verified. Objects are read
//! back in full before a run that names them is handed out. `docs/format/objects.md` has the bytes; `plan` decides
//! which objects are merged or rewritten, and when.
//!
//! Nothing here knows the journal, the manifest, or the meaning of a log's bytes.

mod block;
mod build;
mod codec;
mod earlier;
mod error;
mod extent;
mod fuzz;
mod inspect;
mod live;
mod map;
mod merge;
mod meta;
pub(crate) mod plan;
mod read;
mod scan;
mod verify;

pub(crate) use build::{RunBuilder, RunOptions};
pub(crate) use error::Fetch;
pub use error::RunError;
pub(crate) use extent::{Content, Extent, Place};
pub(crate) use fuzz::fuzz_parts;
pub(crate) use inspect::{Inspection, Key, keys_at};
pub(crate) use live::{Live, LiveChange, live_bytes, live_change};
pub(crate) use map::{Map, PAGE_BYTES};
pub(crate) use merge::merge;
pub(crate) use meta::ObjectMeta;
pub(crate) use read::{Hit, Known, Lack, Pages, RunReader, find_waiting, load_meta};
pub(crate) use scan::ObjectScan;
pub(crate) use verify::verify;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

/// A few objects, and the form of their parts.
#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    tests::samples()
}
