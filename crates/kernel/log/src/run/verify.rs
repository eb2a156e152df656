//! Reads every byte of an object and checks it: after writing, in the scrub, and for `thalweg check`.

use super::codec::{self, Extents, Head};
use super::earlier;
use super::error::RunError;
use super::extent::Place;
use super::map::{Map, PAGE_BYTES, load_map};
use super::meta::ObjectMeta;
use super::scan::ObjectScan;
use crate::lengths::Lengths;
use std::sync::Arc;
use thalweg_base::{DecodeError, LogId, ObjectId};
use thalweg_container::{Object, Scan, Source as _};
use thalweg_storage::Storage;

/// Data is read in pieces of this size: a multiple of the page.
const PIECE_BYTES: u64 = 1 << 20;
const _: () = assert!(PIECE_BYTES.is_multiple_of(PAGE_BYTES));

/// Verifies every checksum, the order of the entries, and the object's totals of them.
pub(crate) fn verify(storage: &Arc<dyn Storage>, object: ObjectId) -> Result<ObjectMeta, RunError> {
    let map = load_map(storage, object)?;
    let data = map.data();
    let mut at = data.start;
    while at < data.end {
        let end = (at + PIECE_BYTES).min(data.end);
        map.check_pages(at, &storage.read(object, at..end).wait()?)?;
        at = end;
    }
    let meta = map.meta;
    let mut seen = Seen::new(&map);
    match map.earlier() {
        None => seen.container(storage, &meta)?,
        Some(map) => {
            let logs = seen.earlier(ObjectScan::open(storage, object)?)?;
            if map.filter != earlier::filter_of(&logs) {
                return Err(RunError::corrupt(object, meta.bytes(), "its filter is not that of its logs"));
            }
        }
    }
    if seen.meta == meta {
        return Ok(meta);
    }
    let what = format!("it tells of {meta:?}, its entries of {:?}", seen.meta);
    Err(RunError::corrupt(object, meta.bytes(), what))
}

/// The totals of the entries so far.
struct Seen {
    meta: ObjectMeta,
    /// The required place of the data of the next entry that has any.
    data_at: u64,
}

impl Seen {
    fn new(map: &Map) -> Self {
        let ObjectMeta { id, index_bytes, .. } = map.meta;
        Self { meta: ObjectMeta { id, index_bytes, ..ObjectMeta::default() }, data_at: map.data().start }
    }

    fn container(&mut self, storage: &Arc<dyn Storage>, meta: &ObjectMeta) -> Result<(), RunError> {
        let mut scan = Scan::<Extents>::open(storage, Object::new(meta.id, meta.bytes()))?.thorough();
        while scan.advance()? {
            // The scan has checked this entry by itself.
            let damaged = |error| RunError::corrupt(meta.id, meta.bytes(), error);
            let (head, mut lengths) = codec::head(meta.id, &scan.entry()).map_err(damaged)?;
            let (_, messages) = Lengths::skip(&mut lengths).map_err(damaged)?;
            self.see(&head, messages).map_err(damaged)?;
        }
        Ok(())
    }

    /// The logs, too.
    fn earlier(&mut self, mut scan: ObjectScan) -> Result<Vec<LogId>, RunError> {
        let (of, mut logs) = (*scan.meta(), Vec::new());
        while let Some(entry) = scan.next_entry()? {
            if logs.last() != Some(&entry.log) {
                logs.push(entry.log);
            }
            let head = Head { log: entry.log, start: entry.start, end: entry.end(), place: entry.place };
            let damaged = |error| RunError::corrupt(of.id, of.bytes(), error);
            self.see(&head, entry.lengths.count()).map_err(damaged)?;
        }
        Ok(logs)
    }

    fn see(&mut self, head: &Head, messages: u64) -> Result<(), DecodeError> {
        let (meta, bytes) = (&mut self.meta, head.end.since(head.start));
        if meta.entries == 0 {
            meta.first = (head.log, head.start);
        } else if (head.log, head.start) < (meta.last, meta.end) {
            return Err(DecodeError::Range("order of entries"));
        }
        meta.logs += u64::from(meta.entries == 0 || meta.last != head.log);
        match head.place {
            Place::Data { at, .. } if at != self.data_at => return Err(DecodeError::Range("data of an entry")),
            Place::Data { .. } => {
                self.data_at += bytes;
                meta.data_bytes += bytes;
            }
            Place::Reference { .. } => meta.reference_bytes = meta.reference_bytes.saturating_add(bytes),
        }
        meta.entries += 1;
        meta.messages = meta.messages.saturating_add(messages);
        (meta.last, meta.end) = (head.log, head.end);
        Ok(())
    }
}
