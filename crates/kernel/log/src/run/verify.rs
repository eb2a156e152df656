//! Reads every byte of an object and checks it: after writing, in the scrub, and for `thalweg check`.

use super::codec::Extents;
use super::earlier;
use super::error::RunError;
use super::extent::Place;
use super::map::PAGE_BYTES;
use super::meta::ObjectMeta;
use super::scan::ObjectScan;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_container::{Object, Scan};
use thalweg_storage::Storage;

/// Data is read in pieces of this size: a multiple of the page.
const PIECE_BYTES: u64 = 1 << 20;
const _: () = assert!(PIECE_BYTES.is_multiple_of(PAGE_BYTES));

/// Checks every checksum, the order of the entries, and that the counts of the footer are those of the content.
pub fn verify(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<ObjectMeta, RunError> {
    let mut scan = ObjectScan::open(storage, object)?;
    let meta = *scan.meta();
    if scan.map().earlier().is_none() {
        let mut blocks = Scan::<Extents>::open(storage, Object::new(object, meta.bytes()))?.thorough();
        while blocks.check_block()?.is_some() {}
    }
    let data = scan.map().data();
    let mut at = data.start;
    while at < data.end {
        let end = (at + PIECE_BYTES).min(data.end);
        scan.map().check_pages(at, &storage.read(object, at..end).wait()?)?;
        at = end;
    }
    let mut seen = ObjectMeta {
        first: (LogId::ZERO, Offset::ZERO),
        last: LogId::ZERO,
        end: Offset::ZERO,
        data_bytes: 0,
        reference_bytes: 0,
        entries: 0,
        logs: 0,
        messages: 0,
        ..meta
    };
    let mut logs = Vec::new();
    while let Some(entry) = scan.next_entry()? {
        if seen.entries == 0 {
            seen.first = (entry.log, entry.start);
        }
        if logs.last() != Some(&entry.log) {
            logs.push(entry.log);
        }
        match entry.place {
            Place::Data { .. } => seen.data_bytes += entry.lengths.bytes(),
            Place::Reference { .. } => seen.reference_bytes += entry.lengths.bytes(),
        }
        seen.entries += 1;
        seen.messages += entry.lengths.count();
        seen.last = entry.log;
        seen.end = entry.end();
    }
    seen.logs = logs.len() as u64;
    if seen != meta {
        let what = format!("its footer tells of {meta:?}, its entries of {seen:?}");
        return Err(RunError::corrupt(object, meta.bytes(), what));
    }
    if scan.map().earlier().is_some_and(|map| map.filter != earlier::filter_of(&logs)) {
        return Err(RunError::corrupt(object, meta.bytes(), "its filter is not that of its logs"));
    }
    Ok(meta)
}
