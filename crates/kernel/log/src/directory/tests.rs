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
    DirectoryBuilder::new(ObjectId(id), storage.create(ObjectId(id)).unwrap()).unwrap()
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
    reader.for_each(|log, record| {
        records.insert(log.0, record.map(<[u8]>::to_vec));
    })?;
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
        merge_newest_wins(&storage, &ids, drop_tombstones, &mut out).unwrap();
        let meta = out.finish().unwrap();
        prop_assert_eq!(meta.records + meta.tombstones, expected.len() as u64);
        prop_assert_eq!(read(&storage, 100), Ok(expected));
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(verify(&stored(&bytes), ObjectId(1)).is_err());
        fuzz_parts(ObjectId(1), &bytes);
    }
}

#[test]
fn any_damaged_or_missing_byte_is_found() {
    let storage = memory();
    let records = (0..40).map(|log| (log * 3, (log % 5 > 0).then(|| vec![log as u8; log as usize]))).collect();
    let meta = write(&storage, 1, &records);
    let bytes = storage.read(ObjectId(1), 0..meta.bytes).wait().unwrap();
    any_damage_is_found(&bytes, ObjectId(1));
    any_damage_is_found(&earlier(), EARLIER);
}

fn any_damage_is_found(bytes: &[u8], id: ObjectId) {
    let stored = |bytes: &[u8]| {
        let storage = memory();
        let mut writer = storage.create(id).unwrap();
        writer.write(bytes).unwrap();
        writer.finish().unwrap();
        storage
    };
    verify(&stored(bytes), id).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(&stored(&damaged), id).is_err(), "bit {bit}");
        assert!(read(&stored(&damaged), id.0).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(verify(&stored(&bytes[..len]), id).is_err(), "{len} bytes");
    }
}

#[test]
fn records_out_of_order_are_refused() {
    let storage = memory();
    let mut out = builder(&storage, 1);
    out.push(LogId(5), None).unwrap();
    for log in [LogId(5), LogId(4)] {
        assert!(matches!(out.push(log, Some(b"x")), Err(DirectoryError::Order { .. })));
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
    "54485747434f4e540100000001000000",
    "020100000000000009505b3501001b00",
    "00001b000000080c0000000000000003",
    "6162637101c87100c900000000010000",
    "0015cec5db02000c0000000c00000000",
    "010800000000000000c9294ce7783a04",
    "001f0000001f000000010201001b2901",
    "00000800000000000000030001080000",
    "0000000000c9291a6f75239b54485747",
    "43454e44010000000000000002010000",
    "00000000bc000000000000005f000000",
    "000000002d000000679a5274",
];

/// The bytes of versions before containers, as those versions pinned them.
const EARLIER: ObjectId = ObjectId(258);
const EARLIER_GOLDEN: &[&str] = &[
    "0a0000000304616263c501000101c7b5",
    "ef385448574744495253010000000000",
    "00000201000000000000560000000000",
    "00000200000000000000010000000000",
    "00000300000000000000c90000000000",
    "0000356e351b",
];

fn earlier() -> Vec<u8> {
    let hex = EARLIER_GOLDEN.concat();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn objects_of_the_earlier_form_are_read_and_merging_converts_them() {
    let storage = memory();
    let mut writer = storage.create(EARLIER).unwrap();
    writer.write(&earlier()).unwrap();
    writer.finish().unwrap();
    let records = Records::from([(3, Some(b"abc".to_vec())), (200, None), (201, Some(vec![]))]);
    assert_eq!(read(&storage, EARLIER.0), Ok(records));
    let meta = verify(&storage, EARLIER).unwrap();
    assert_eq!((meta.records, meta.tombstones, meta.bytes), (2, 1, 86));
    write(&storage, 1, &Records::from([(2, Some(vec![2])), (200, Some(vec![1])), (201, None)]));
    // An older object of the earlier form under a container, and a newer one above it.
    for (inputs, expected) in [
        ([EARLIER, ObjectId(1)], [(2, Some(vec![2])), (3, Some(b"abc".to_vec())), (200, Some(vec![1]))].to_vec()),
        ([ObjectId(1), EARLIER], [(2, Some(vec![2])), (3, Some(b"abc".to_vec())), (201, Some(vec![]))].to_vec()),
    ] {
        let mut out = builder(&storage, 9);
        merge_newest_wins(&storage, &inputs, true, &mut out).unwrap();
        let meta = out.finish().unwrap();
        let bytes = storage.read(ObjectId(9), 0..meta.bytes).wait().unwrap();
        assert!(bytes.starts_with(b"THWGCONT"));
        assert_eq!(read(&storage, 9), Ok(Records::from_iter(expected)));
        storage.remove(ObjectId(9)).unwrap();
    }
}

/// `cargo test --release -p thalweg-log a_million -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn a_million_records_load_quickly() {
    let folder = std::env::temp_dir().join(format!("thalweg-directory-{}", std::process::id()));
    let disk = Arc::new(thalweg_disk::RealDisk::open(&folder).unwrap());
    let storage: Arc<dyn Storage> = Arc::new(thalweg_storage::FileStorage::open(disk, "objects").unwrap());
    let mut noise = oorandom::Rand64::new(7);
    let mut record = |log: u64| {
        let mut record = format!("{log:02}tenants/{}/sessions/{log:08}", log % 97).into_bytes();
        (0..3).for_each(|_| record.extend_from_slice(&noise.rand_u64().to_le_bytes()[..4]));
        record.extend_from_slice(b"\x01\x00application/json\x00\x00\x01");
        record
    };
    let records: Vec<_> = (0..1_000_000u64).map(&mut record).collect();
    let raw: usize = records.iter().map(Vec::len).sum();
    let start = std::time::Instant::now();
    let mut out = builder(&storage, 1);
    for (log, record) in records.iter().enumerate() {
        out.push(LogId(log as u64 * 64), Some(record)).unwrap();
    }
    let bytes = out.finish().unwrap().bytes;
    println!("written in {:?}: {} bytes a record of {}", start.elapsed(), bytes / 1_000_000, raw / 1_000_000);
    for _ in 0..3 {
        let start = std::time::Instant::now();
        let mut reader = DirectoryReader::open(&storage, ObjectId(1)).unwrap();
        let mut read = 0;
        reader.for_each(|_, record| read += record.map_or(0, <[u8]>::len)).unwrap();
        assert_eq!(read, raw);
        println!("read in {:?}", start.elapsed());
    }
    let start = std::time::Instant::now();
    let mut out = builder(&storage, 2);
    merge_newest_wins(&storage, &[ObjectId(1)], true, &mut out).unwrap();
    out.finish().unwrap();
    println!("merged in {:?}", start.elapsed());
    std::fs::remove_dir_all(folder).unwrap();
}

/// An object of each form, and of the earlier one a block's records, and its footer without magic and checksum.
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let storage = memory();
    let meta = write(&storage, 1, &Records::from([(3, Some(vec![1, 2, 3])), (9, None), (700, Some(vec![]))]));
    let container = storage.read(ObjectId(1), 0..meta.bytes).wait().unwrap().to_vec();
    let object = earlier();
    let footer = object.len() - 68;
    vec![object[8..footer].to_vec(), object[footer + 8..object.len() - 4].to_vec(), object, container]
}
