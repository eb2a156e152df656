//! The promises of directory objects.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId};
use thalweg_storage::{MemoryStorage, Storage};

type Records = BTreeMap<u64, Option<Vec<u8>>>;

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn builder(storage: &Arc<dyn Storage>, id: u64) -> DirectoryBuilder {
    DirectoryBuilder::new(ObjectId(id), storage.create(ObjectId(id)).unwrap())
}

fn write(storage: &Arc<dyn Storage>, id: u64, records: &Records) -> DirectoryMeta {
    let mut out = builder(storage, id);
    for (log, record) in records {
        out.push(LogId(*log), record.as_deref()).unwrap();
    }
    out.finish().unwrap()
}

fn read(storage: &Arc<dyn Storage>, id: u64) -> Result<Records, DirectoryError> {
    let mut reader = DirectoryReader::open(storage, ObjectId(id))?;
    let mut records = Records::new();
    while let Some((log, record)) = reader.next_record()? {
        records.insert(log.0, record.map(|record| record.to_vec()));
    }
    Ok(records)
}

fn stored(bytes: &[u8]) -> Arc<dyn Storage> {
    let storage = memory();
    let mut writer = storage.create(ObjectId(1)).unwrap();
    writer.write(bytes).unwrap();
    writer.finish().unwrap();
    storage
}

fn records() -> impl Strategy<Value = Records> {
    prop::collection::btree_map(0..60u64, prop::option::of(prop::collection::vec(any::<u8>(), 0..20)), 0..40)
}

proptest! {
    #[test]
    fn records_round_trip(records in records(), large in 0..200_000usize) {
        let storage = memory();
        let mut records = records;
        records.insert(u64::MAX, Some(vec![7; large]));
        let meta = write(&storage, 1, &records);
        prop_assert_eq!(read(&storage, 1), Ok(records.clone()));
        prop_assert_eq!(verify(&storage, ObjectId(1)), Ok(meta));
        prop_assert_eq!(storage.len(ObjectId(1)), Ok(meta.bytes));
        prop_assert_eq!(meta.records + meta.tombstones, records.len() as u64);
    }

    #[test]
    fn of_several_records_the_newest_counts(inputs in prop::collection::vec(records(), 0..5), drop_tombstones: bool) {
        let storage = memory();
        let mut expected = Records::new();
        for (id, input) in inputs.iter().enumerate() {
            write(&storage, id as u64, input);
            expected.extend(input.clone());
        }
        if drop_tombstones {
            expected.retain(|_, record| record.is_some());
        }
        let ids: Vec<_> = (0..inputs.len() as u64).map(ObjectId).collect();
        let mut out = builder(&storage, 100);
        let stats = merge_newest_wins(&storage, &ids, drop_tombstones, &mut out).unwrap();
        out.finish().unwrap();
        prop_assert_eq!(stats.written, expected.len() as u64);
        prop_assert_eq!(read(&storage, 100), Ok(expected));
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(verify(&stored(&bytes), ObjectId(1)).is_err());
        let mut from = thalweg_base::Decoder::new(&bytes);
        while block::record(&mut from, LogId(u64::MAX / 2)).is_ok() {}
    }
}

#[test]
fn any_damaged_or_missing_byte_is_found() {
    let storage = memory();
    let records = (0..40).map(|log| (log * 3, (log % 5 > 0).then(|| vec![log as u8; log as usize]))).collect();
    let meta = write(&storage, 1, &records);
    let bytes = storage.read(ObjectId(1), 0..meta.bytes).wait().unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(&stored(&damaged), ObjectId(1)).is_err(), "bit {bit}");
        assert!(read(&stored(&damaged), 1).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(verify(&stored(&bytes[..len]), ObjectId(1)).is_err(), "{len} bytes");
    }
}

#[test]
fn records_out_of_order_are_refused() {
    let storage = memory();
    let mut out = builder(&storage, 1);
    out.push(LogId(5), None).unwrap();
    for log in [LogId(5), LogId(4)] {
        assert_eq!(out.push(log, Some(b"x")), Err(DirectoryError::Order { log }));
    }
}

#[test]
fn an_empty_object_is_an_object() {
    let storage = memory();
    write(&storage, 1, &Records::new());
    assert_eq!(read(&storage, 1), Ok(Records::new()));
}

#[test]
fn the_form_is_pinned() {
    let storage = memory();
    let records = [(3, Some(b"abc".to_vec())), (200, None), (201, Some(vec![]))].into();
    let meta = write(&storage, 258, &records);
    let object = storage.read(ObjectId(258), 0..meta.bytes).wait().unwrap();
    let hex: Vec<String> = object.chunks(16).map(|line| line.iter().map(|b| format!("{b:02x}")).collect()).collect();
    assert_eq!(hex, GOLDEN, "\n{}", hex.join("\n"));
}

const GOLDEN: &[&str] = &[
    "0a0000000304616263c501000101c7b5",
    "ef385448574744495253010000000000",
    "00000201000000000000560000000000",
    "00000200000000000000010000000000",
    "00000300000000000000c90000000000",
    "0000356e351b",
];

/// `cargo test --release -p thalweg-log a_million -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn a_million_records_load_quickly() {
    let folder = std::env::temp_dir().join(format!("thalweg-directory-{}", std::process::id()));
    let disk = Arc::new(thalweg_disk::RealDisk::open(&folder).unwrap());
    let storage: Arc<dyn Storage> = Arc::new(thalweg_storage::FileStorage::open(disk, "objects").unwrap());
    let mut out = builder(&storage, 1);
    for log in 0..1_000_000u64 {
        out.push(LogId(log * 16), Some(&[log as u8; 120])).unwrap();
    }
    out.finish().unwrap();
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let mut reader = DirectoryReader::open(&storage, ObjectId(1)).unwrap();
        let mut bytes = 0;
        reader.for_each(|_, record| bytes += record.map_or(0, <[u8]>::len)).unwrap();
        let borrowed = start.elapsed();
        let start = std::time::Instant::now();
        let mut reader = DirectoryReader::open(&storage, ObjectId(1)).unwrap();
        while let Some((_, record)) = reader.next_record().unwrap() {
            bytes -= record.map_or(0, |record| record.len());
        }
        assert_eq!(bytes, 0);
        println!("borrowed {borrowed:?}, owned {:?}", start.elapsed());
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// An object, a block's records, and its footer without magic and checksum.
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let storage = memory();
    let meta = write(&storage, 1, &Records::from([(3, Some(vec![1, 2, 3])), (9, None), (700, Some(vec![]))]));
    let object = storage.read(ObjectId(1), 0..meta.bytes).wait().unwrap().to_vec();
    let footer = object.len() - super::footer::FOOTER_BYTES as usize;
    vec![object[8..footer].to_vec(), object[footer + 8..object.len() - 4].to_vec(), object]
}
