//! Damage is told, never handed out; garbage is refused, never a panic.

use super::super::block::{self, Entries};
use super::super::footer::{FOOTER_BYTES, Footer, MAGIC};
use super::super::*;
use super::model::*;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use thalweg_base::{ObjectId, crc};
use thalweg_storage::Storage;

fn stored(bytes: &[u8]) -> Arc<dyn Storage> {
    let storage = memory();
    let mut writer = storage.create(ObjectId(1)).unwrap();
    writer.write(bytes).unwrap();
    writer.finish().unwrap();
    storage
}

fn sample() -> (Vec<Extent>, Bytes, ObjectMeta) {
    let mut extents: Vec<_> = (0..300).map(|log| bytes_extent(log * 2, log, &[50, 9])).collect();
    extents.push(reference(601, 5, 3, 9, &[7, 8, 9]));
    extents.push(bytes_extent(602, 0, &[40, 30, 20, 9000]));
    let storage = memory();
    let meta = write(&storage, 1, 64 << 20, &extents).remove(0);
    let bytes = storage.read(meta.id, 0..meta.bytes()).wait().unwrap();
    (extents, bytes, meta)
}

#[test]
fn any_damaged_byte_is_found_by_verify_and_never_read_as_data() {
    let (_, bytes, meta) = sample();
    assert!(meta.data_bytes > 16 << 10, "more than a page");
    assert_eq!(verify(&stored(&bytes), ObjectId(1)), Ok(meta));
    let asked = [(0, 0), (4, 2), (5, 0), (598, 300), (601, 5), (602, 40), (603, 0)];
    let answers = |storage: &Arc<dyn Storage>| -> Vec<_> {
        let reader = Waiting::new(storage, 1 << 20);
        let answer = |(log, at)| {
            let hit = reader.find(&meta, log, at)?;
            let data = hit.as_ref().map(|hit| reader.data(hit, 0..u64::MAX)).transpose()?;
            Ok::<_, RunError>((hit.map(|hit| hit.entry), data))
        };
        asked.map(answer).to_vec()
    };
    let right = answers(&stored(&bytes));
    let places = (0..bytes.len()).filter(|at| *at as u64 >= meta.data_bytes || at % 101 == 0);
    for at in places {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at % 8);
        let storage = stored(&damaged);
        assert!(verify(&storage, ObjectId(1)).is_err(), "byte {at}");
        if at % 7 == 0 {
            for (answer, right) in answers(&storage).into_iter().zip(&right) {
                assert!(answer.is_err() || answer == *right, "byte {at}");
            }
        }
    }
}

#[test]
fn a_cut_or_grown_object_is_refused() {
    let (_, bytes, _) = sample();
    for len in (0..bytes.len()).step_by(97).chain(bytes.len() - 200..bytes.len()) {
        assert!(verify(&stored(&bytes[..len]), ObjectId(1)).is_err(), "{len}");
    }
    let mut grown = bytes.to_vec();
    grown.insert(0, 7);
    assert!(verify(&stored(&grown), ObjectId(1)).is_err());
}

#[test]
fn a_newer_format_and_another_object_are_refused_as_such() {
    let (_, bytes, _) = sample();
    let footer = bytes.len() - FOOTER_BYTES as usize;
    let mut newer = bytes.to_vec();
    newer[footer + MAGIC.len()] = 2;
    let refused = RunError::Newer { object: ObjectId(1), found: 2, known: 1 };
    assert_eq!(verify(&stored(&newer), ObjectId(1)), Err(refused));
    let mut other = bytes.to_vec();
    other[footer + 16] = 9;
    let end = other.len() - 4;
    let sum = crc(&other[footer..end]);
    other[end..].copy_from_slice(&sum.to_le_bytes());
    assert!(verify(&stored(&other), ObjectId(1)).unwrap_err().to_string().contains("it is object 9"));
}

#[test]
fn damaged_data_stops_a_merge() {
    let (_, bytes, meta) = sample();
    let mut damaged = bytes.to_vec();
    damaged[17_000] ^= 1;
    let storage = stored(&damaged);
    let mut out = builder(&storage, 10, 64 << 20);
    let stopped = merge(&[vec![meta]], &|_| Some(Live::all()), &mut out);
    assert!(matches!(stopped, Err(RunError::Corrupt { object: ObjectId(1), at: 16384, .. })), "{stopped:?}");
}

proptest! {
    #[test]
    fn garbage_entries_never_panic(bytes: Vec<u8>) {
        if let Ok(mut entries) = Entries::new(ObjectId(1), &bytes) {
            while let Ok(Some(_)) = entries.next_entry() {}
        }
        block::check(&bytes);
    }

    #[test]
    fn garbage_footers_and_maps_never_panic(
        mut garbage in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 124),
        len: u64, sealed: bool, map: Vec<u8>,
    ) {
        if sealed {
            // As a forger would: right magic, format, id and checksum.
            garbage[..24].copy_from_slice(b"THWGRUNS\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
            garbage[44..48].copy_from_slice(&(16384u32).to_le_bytes());
            let sum = crc(&garbage[..120]);
            garbage[120..].copy_from_slice(&sum.to_le_bytes());
        }
        let data = u64::from_le_bytes(garbage[24..32].try_into().unwrap());
        let index = u64::from_le_bytes(garbage[32..40].try_into().unwrap());
        for len in [len, data.wrapping_add(index)] {
            if let Ok(footer) = Footer::decode(ObjectId(1), len, &garbage) {
                let _ = footer.map_range();
                let mut map = map.clone();
                map.extend_from_slice(&crc(&map).to_le_bytes());
                prop_assert!(footer.decode_map(&map).is_err() || map.len() as u64 == footer.map_range().end - footer.map_range().start);
            }
        }
    }
}
