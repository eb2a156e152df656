//! A way in for fuzz targets: entries of runs, and objects whose checksums fit whatever their entries say.

use super::codec::{self, Extents};
use super::{Inspection, ObjectMeta, ObjectScan, RunReader, earlier, find_waiting, keys_at, load_meta, verify};
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_container::{Builder, Compression, ContainerError, Entry, Kind, Options, Stats};
use thalweg_storage::{MemoryStorage, Storage};

/// Entries of an object that is made of a fuzz target's bytes, and bytes of its content.
const ENTRIES_MAX: u64 = 64;
const CONTENT_BYTES: usize = 100;

/// Decodes `data` as an entry, as the note in a container's root, as the entries of an object, and as the parts of an
/// object of the earlier format. The parts of containers have a target of their own.
pub(crate) fn fuzz_parts(object: ObjectId, data: &[u8]) {
    let (key, value) = data.split_at(data.len().min(5));
    for key in [key, &codec::key(LogId(7), Offset(u64::MAX))] {
        let Ok((head, lengths)) = codec::head(object, &Entry { key, kind: Kind::Value, value }) else { continue };
        assert!(head.start < head.end);
        assert!(head.entry(lengths).is_ok_and(|entry| entry.end() == head.end), "what was added up is there");
    }
    let _ = codec::decode_meta(object, data.len() as u64, &Stats::default(), data);
    earlier::fuzz_parts(object, data);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    if write(&storage, object, data).is_ok() {
        read(&storage, object);
    }
}

/// An object of which the note and the entries are cut from `data`.
fn write(storage: &Arc<dyn Storage>, object: ObjectId, data: &[u8]) -> Result<(), ContainerError> {
    let options = Options {
        block_bytes: 40,
        compression: Compression::None,
        has_content: true,
        has_one_partition: data.first() != Some(&0),
    };
    let mut out = Builder::<Extents>::new(object, storage.create(object)?, options)?;
    out.content(&data[..data.len().min(CONTENT_BYTES)])?;
    let mut rest = data;
    let mut cut = || {
        let (len, after) = rest.split_first()?;
        let (value, after) = after.split_at_checked(usize::from(*len % 16)).unwrap_or((after, &[]));
        rest = after;
        Some(value)
    };
    out.set_note(cut().unwrap_or_default().to_vec().into())?;
    for (n, value) in (0..ENTRIES_MAX).zip(std::iter::from_fn(cut)) {
        let key = codec::key(LogId(n / 4 * 8), Offset(n * 30 + value.len() as u64));
        out.push(&Entry { key: &key, kind: Kind::Value, value })?;
    }
    out.finish().map(|_| ())
}

/// Reads an object of arbitrary entries: no reader panics, and a walk ends.
fn read(storage: &Arc<dyn Storage>, object: ObjectId) {
    let is_whole = verify(storage, object).is_ok();
    let Ok(meta) = load_meta(storage, object) else { return };
    let reader = RunReader::new(1 << 16);
    let wide = ObjectMeta { first: (LogId::ZERO, Offset::ZERO), last: LogId::MAX, end: Offset::MAX, ..meta };
    for (log, at) in [(LogId::ZERO, Offset::ZERO), (LogId(8), Offset(130)), (LogId::MAX, Offset::MAX)] {
        let _ = find_waiting(&reader, storage.as_ref(), &meta, log, at);
        let _ = find_waiting(&reader, storage.as_ref(), &wide, log, at);
    }
    let mut scan = ObjectScan::open(storage, object);
    while let Ok(scan) = &mut scan
        && let Ok(Some(_)) = scan.next_extent()
    {}
    let mut found = Vec::new();
    let mut inspection = Inspection::open(storage, &meta);
    while let Ok(inspection) = &mut inspection
        && let Ok(Some(_)) = inspection.step(&mut found)
    {}
    assert!(found.is_empty(), "its checksums fit");
    for at in (0..meta.bytes()).step_by(7) {
        let (len, keys) = keys_at(storage, &meta, at);
        assert!(!is_whole || (len <= meta.bytes() && keys.iter().all(|keys| keys.start <= keys.end)));
    }
}
