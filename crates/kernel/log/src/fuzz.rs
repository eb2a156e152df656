//! Entry points of fuzz targets: every decoder of objects, records and roots. None may panic, or take memory that its
//! input does not justify; a decoded value is equal after it was encoded and decoded again.
//!
//! Checksums stop nearly every input before it gets anywhere, so inner decoders are called with checksums that fit,
//! too.

use crate::attachment::Attachment;
use crate::log::Log;
use crate::root::Root;
use crate::{directory, lists, run};
use std::sync::Arc;
use thalweg_base::{DecodeError, LogId, Lsn, ObjectId, Offset, crc};
use thalweg_storage::{MemoryStorage, Storage};
use thalweg_unit::Section as _;

/// The object that inputs are taken for.
const OBJECT: ObjectId = ObjectId(1);

/// An engine's state that takes any bytes.
struct Opaque(Vec<u8>);

impl Attachment for Opaque {
    fn create(note: &[u8], _: Lsn) -> Result<Self, DecodeError> {
        Ok(Self(note.to_vec()))
    }

    fn check(&self, _: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn apply(&mut self, _: &[u8], _: Lsn) -> Result<(), DecodeError> {
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(bytes.to_vec()))
    }

    fn may_rest(&self, _: Lsn) -> bool {
        true
    }
}

/// `data` with the checksum that fits it.
pub(crate) fn sealed(data: &[u8]) -> Vec<u8> {
    [data, &crc(data).to_le_bytes()].concat()
}

/// Takes `data` for a whole object of either kind, and for the parts of one.
#[doc(hidden)]
pub fn fuzz_object(data: &[u8]) {
    let storage = MemoryStorage::new();
    let written = storage.create(OBJECT).and_then(|mut writer| {
        writer.write(data)?;
        writer.finish()
    });
    assert_eq!(written, Ok(data.len() as u64));
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let _ = run::verify(&storage, OBJECT);
    if let Ok(meta) = run::load_meta(&storage, OBJECT) {
        let reader = run::RunReader::new(1 << 16);
        for (log, at) in [(LogId::ZERO, Offset::ZERO), (LogId(64), Offset(7)), (LogId::MAX, Offset::MAX)] {
            let _ = run::find_waiting(&reader, storage.as_ref(), &meta, log, at);
        }
    }
    let _ = directory::verify(&storage, OBJECT);
    run::fuzz_parts(OBJECT, data);
    let _ = lists::decode_page(OBJECT, data);
    let _ = lists::decode_page(OBJECT, &sealed(data));
    directory::fuzz_parts(OBJECT, data);
}

/// Takes `data` for the record of a log.
#[doc(hidden)]
pub fn fuzz_record(data: &[u8]) {
    let Ok(log) = Log::<Opaque>::from_record(LogId(64), data) else { return };
    let again = log.record(Lsn::MAX);
    let decoded = Log::<Opaque>::from_record(LogId(64), &again).map(|log| (log.tail, log.start, log.record(Lsn::MAX)));
    assert_eq!(decoded, Ok((log.tail, log.start, again)));
    let _ = crate::log::record_name(data);
}

/// Takes `data` for the manifest's body.
#[doc(hidden)]
pub fn fuzz_root(data: &[u8]) {
    if let Ok(Some((unit, section))) = Root::of_body(data) {
        assert_eq!(Root::of_body(&unit.encode()), Ok(Some((unit, section.clone()))));
        assert_eq!(Root::decode(section.floor, &section.encode()), Ok(section));
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that begin like a part of an object, and are damaged somewhere.
    fn nearly(parts: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
        let part = proptest::sample::select(parts);
        (part, proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4), 0..400usize).prop_map(
            |(mut bytes, changes, cut)| {
                for (at, byte) in changes {
                    if !bytes.is_empty() {
                        let at = at.index(bytes.len());
                        bytes[at] = byte;
                    }
                }
                bytes.truncate(bytes.len().saturating_sub(cut));
                bytes
            },
        )
    }

    fn objects() -> Vec<Vec<u8>> {
        run::samples().into_iter().chain(directory::samples()).chain(lists::samples()).collect()
    }

    fn records() -> Vec<Vec<u8>> {
        vec![vec![1, b'a', 9, 3, 2, 5, 77, 1, 9, 64, 1, 2, 3], vec![0, 0, 0, 0, 0, 0, 0]]
    }

    fn roots() -> Vec<Vec<u8>> {
        let mut root = Root::new(4096);
        root.directory.push(crate::root::DirectoryObject { id: ObjectId(1), records: 2, bytes: 3 });
        let earlier = vec![3, 0x80, 0x20, 0xac, 0x02, 0xad, 0x02, 5, 6, 7, 0x40, 0x80, 1, 0xc8, 1, 9, 0, 1, 1, 2, 3];
        let mut unit = thalweg_unit::Root::default();
        unit.put(&root);
        let mut listed = thalweg_unit::Root::default();
        listed.put(&lists::sample_root());
        vec![unit.encode(), root.encode(), earlier, listed.encode()]
    }

    proptest! {
        #[test]
        fn objects_never_panic(data in nearly(objects()), garbage: Vec<u8>) {
            fuzz_object(&data);
            fuzz_object(&garbage);
        }

        #[test]
        fn records_never_panic(data in nearly(records()), garbage: Vec<u8>) {
            fuzz_record(&data);
            fuzz_record(&garbage);
        }

        #[test]
        fn roots_never_panic(data in nearly(roots()), garbage: Vec<u8>) {
            fuzz_root(&data);
            fuzz_root(&garbage);
        }
    }
}
