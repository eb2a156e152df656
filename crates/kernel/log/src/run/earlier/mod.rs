//! Objects of runs as versions before containers wrote them: data, index blocks, a map, a footer. They are read, never
//! written; merging turns them into containers. `docs/format/objects.md` has the bytes.

mod block;
mod filter;
mod map;
#[cfg(all(test, not(feature = "shuttle")))]
mod write;

pub(super) use block::{Entries, checked, find};
pub(super) use filter::build as filter_of;
pub(super) use map::{Address, FOOTER_BYTES, Map, PAGE_BYTES};
#[cfg(all(test, not(feature = "shuttle")))]
pub(super) use write::write;

/// Takes `data` for the parts of an object: a block of entries, and a footer with its map, whose checksums fit.
pub(super) fn fuzz_parts(object: thalweg_base::ObjectId, data: &[u8]) {
    if let Ok(mut entries) = Entries::new(object, data) {
        while let Ok(Some(entry)) = entries.next_entry() {
            assert!(entry.start <= entry.end());
        }
    }
    let footer = crate::fuzz::sealed(&[&map::MAGIC[..], data].concat());
    let len = data.len() as u64 * 4;
    if let Ok(footer) = map::Footer::decode(object, len, &footer) {
        let _ = footer.decode_map(data);
        let _ = footer.decode_map(&crate::fuzz::sealed(data));
    }
}
