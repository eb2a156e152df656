//! Sealed runs: the settled data of many logs, sorted by (log, offset), in immutable objects.
//!
//! Vocabulary. An *extent* is a contiguous piece of one log, with its bytes or with a reference to another log. An *entry* is what
//! the index holds of an extent: where it stands and how long its messages are. An *object* holds extents in key order:
//! contiguous data first, its index after. A *run* is a list of objects in key order that do not overlap. Runs are ordered by
//! time; two runs never hold the same position of a log.
//!
//! Every byte of an object is under a checksum, and none is believed before its checksum was looked at. Objects are read back
//! in full before a run that names them is handed out. `docs/format/objects.md` has the bytes; `plan` decides what is merged or
//! rewritten and when, without doing it.
//!
//! Nothing here knows the journal, the manifest, or what a log's bytes mean.

mod block;
mod build;
mod error;
mod extent;
mod filter;
mod footer;
mod inspect;
mod live;
mod merge;
mod meta;
pub mod plan;
mod read;
mod scan;
mod verify;

pub use build::{ENTRY_BYTES_MAX, ENTRY_MESSAGES_MAX, ObjectBuilder, RunBuilder, RunOptions};
pub use error::{Fetch, RunError};
pub use extent::{Content, Entry, Extent, Place};
pub use footer::Map;
pub(crate) use footer::PAGE_BYTES;
pub use inspect::{Inspection, Key, keys_at};
pub use live::{Live, LiveChange, live_bytes, live_change};
pub use merge::{MergeStats, merge, merge_counted};
pub use meta::ObjectMeta;
pub use read::{Hit, Known, Lack, Pages, RunReader};
pub(crate) use read::{find_waiting, load_meta};
pub use scan::{ObjectScan, RunScan};
pub use verify::verify;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

/// Takes `data` for the parts of an object: a block of entries, and a footer with its map, whose checksums fit.
pub(crate) fn fuzz_parts(object: thalweg_base::ObjectId, data: &[u8]) {
    if let Ok(mut entries) = block::Entries::new(object, data) {
        while let Ok(Some(entry)) = entries.next_entry() {
            assert!(entry.start <= entry.end());
        }
    }
    let footer = crate::fuzz::sealed(&[&footer::MAGIC[..], data].concat());
    let len = data.len() as u64 * 4;
    if let Ok(footer) = footer::Footer::decode(object, len, &footer) {
        let _ = footer.decode_map(data);
        let _ = footer.decode_map(&crate::fuzz::sealed(data));
    }
}

/// A few objects, and what parts of them look like.
#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    tests::samples()
}
