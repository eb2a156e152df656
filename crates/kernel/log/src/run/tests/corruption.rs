//! Damage is told, never handed out; garbage is refused, never a panic.

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

/// An object of each form with the same extents.
fn samples() -> [(Bytes, ObjectMeta); 2] {
    let mut extents: Vec<_> = (0..300).map(|log| bytes_extent(log * 2, log, &[50, 9])).collect();
    extents.push(reference(601, 5, 3, 9, &[7, 8, 9]));
    extents.push(bytes_extent(602, 0, &[40, 30, 20, 9000]));
    [write_one, write_earlier].map(|write| {
        let storage = memory();
        let meta = write(&storage, 1, &extents);
        (storage.read(meta.id, 0..meta.bytes()).wait().unwrap(), meta)
    })
}

#[test]
fn any_damaged_byte_is_found_by_verify_and_never_read_as_data() {
    for (bytes, meta) in samples() {
        any_damaged_byte_is_found(&bytes, &meta);
    }
}

fn any_damaged_byte_is_found(bytes: &Bytes, meta: &ObjectMeta) {
    assert!(meta.data_bytes > 16 << 10, "more than a page");
    assert_eq!(verify(&stored(bytes), ObjectId(1)), Ok(*meta));
    let asked = [(0, 0), (4, 2), (5, 0), (598, 300), (601, 5), (602, 40), (603, 0)];
    let answers = |storage: &Arc<dyn Storage>| -> Vec<_> {
        let reader = Waiting::new(storage, 1 << 20);
        let answer = |(log, at)| {
            let hit = reader.find(meta, log, at)?;
            let data = hit.as_ref().map(|hit| reader.data(hit, 0..u64::MAX)).transpose()?;
            Ok::<_, RunError>((hit.map(|hit| hit.entry), data))
        };
        asked.map(answer).to_vec()
    };
    let right = answers(&stored(bytes));
    let places = (0..bytes.len()).filter(|at| *at as u64 >= meta.data_bytes || at % 101 == 0 || *at < 28);
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
    for (bytes, _) in samples() {
        for len in (0..bytes.len()).step_by(97).chain(bytes.len() - 200..bytes.len()) {
            assert!(verify(&stored(&bytes[..len]), ObjectId(1)).is_err(), "{len}");
        }
        let mut grown = bytes.to_vec();
        grown.insert(0, 7);
        assert!(verify(&stored(&grown), ObjectId(1)).is_err());
    }
}

#[test]
fn a_newer_format_and_another_object_are_refused_as_such() {
    // Of each form: how long the footer is, and where its checksum ends.
    for ((bytes, _), len) in samples().into_iter().zip([48, 124]) {
        let footer = bytes.len() - len;
        let mut newer = bytes.to_vec();
        newer[footer + 8] = 2;
        let refused = RunError::Newer { object: ObjectId(1), found: 2, known: 1 };
        assert_eq!(verify(&stored(&newer), ObjectId(1)), Err(refused));
        let mut other = bytes.to_vec();
        other[footer + 16] = 9;
        let end = other.len() - 4;
        let sum = crc(&other[footer..end]);
        other[end..].copy_from_slice(&sum.to_le_bytes());
        let told = verify(&stored(&other), ObjectId(1)).unwrap_err().to_string();
        assert!(told.contains("it is object 9") || told.contains("that of another object"), "{told}");
    }
}

#[test]
fn the_object_of_another_codec_is_refused() {
    let storage = memory();
    let mut out = crate::directory::DirectoryBuilder::new(ObjectId(1), storage.create(ObjectId(1)).unwrap()).unwrap();
    out.push(thalweg_base::LogId(3), Some(b"a record")).unwrap();
    out.finish().unwrap();
    let told = verify(&storage, ObjectId(1)).unwrap_err().to_string();
    assert!(told.contains("of codec 1, not of codec 2"), "{told}");
}

#[test]
fn entries_that_say_other_things_than_their_object_are_refused() {
    use super::super::codec::{self, Extents};
    use thalweg_base::{LogId, Offset};
    use thalweg_container::{Builder, Entry as Stored, Kind, Options};
    let checked = |second: (u64, u8), note: [u8; 4]| {
        let storage = memory();
        let options = Options { has_content: true, has_one_partition: true, ..Options::default() };
        let mut out = Builder::<Extents>::new(ObjectId(1), storage.create(ObjectId(1)).unwrap(), options).unwrap();
        out.content(b"helloabcd").unwrap();
        out.set_note(note.to_vec().into()).unwrap();
        for (end, at, length) in [(21, 0, 5), (second.0, second.1, 4)] {
            let (key, value) = (codec::key(LogId(3), Offset(end)), [at + 1, 1, length << 1]);
            out.push(&Stored { key: &key, kind: Kind::Value, value: &value }).unwrap();
        }
        out.finish().unwrap();
        verify(&storage, ObjectId(1)).map_err(|error| error.to_string())
    };
    // From 16 on, no references, one log, two messages.
    let right = [16, 0, 1, 2];
    assert!(checked((25, 5), right).is_ok());
    assert!(checked((25, 0), right).unwrap_err().contains("data of an entry"));
    assert!(checked((24, 5), right).unwrap_err().contains("order of entries"));
    for n in 0..4 {
        let mut wrong = right;
        wrong[n] += 1;
        assert!(checked((25, 5), wrong).unwrap_err().contains("it tells of"), "number {n} of the note");
    }
}

#[test]
fn damaged_data_stops_a_merge() {
    for ((bytes, meta), page) in samples().into_iter().zip([28 + 16384, 16384]) {
        let mut damaged = bytes.to_vec();
        damaged[17_000] ^= 1;
        let storage = stored(&damaged);
        let mut out = builder(&storage, 10, 64 << 20);
        let stopped = merge_uncounted(&[vec![meta]], &|_| Some(all_positions()), &mut out);
        assert!(matches!(stopped, Err(RunError::Corrupt { object: ObjectId(1), at, .. }) if at == page), "{stopped:?}");
    }
}

/// The verdict on each byte of a reader that continues behind damage.
#[test]
fn an_inspection_meets_each_damaged_byte_once_and_keys_are_named_around_it() {
    for (bytes, meta) in samples() {
        let storage = stored(&bytes);
        let whole = all_damage(&storage, &meta);
        assert_eq!(whole, Ok(vec![]));
        let entries: Vec<_> = {
            let mut scan = ObjectScan::open(&storage, meta.id).unwrap();
            std::iter::from_fn(|| scan.next_entry().unwrap()).collect()
        };
        for at in (0..bytes.len()).step_by(89).chain(bytes.len() - 300..bytes.len()) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            let storage = stored(&damaged);
            let (at, found) = (at as u64, all_damage(&storage, &meta));
            let (len, keys) = match found.as_deref() {
                Ok([RunError::Corrupt { at: from, .. }]) => {
                    let (len, keys) = keys_at(&storage, &meta, *from);
                    assert!((*from..*from + len).contains(&at), "byte {at}: {from} and {len}");
                    assert_eq!(keys_at(&storage, &meta, at), (len, keys.clone()));
                    (len, keys)
                }
                Ok(found) => panic!("byte {at}: {found:?}"),
                Err(_) => keys_at(&storage, &meta, at),
            };
            // Data that lies at the byte belongs to the keys that are named.
            let hit = entries.iter().find(|entry| match entry.place {
                Place::Data { at: from, .. } => (from..from + entry.lengths.bytes()).contains(&at),
                Place::Reference { .. } => false,
            });
            if let Some((entry, Place::Data { at: from, .. })) = hit.map(|entry| (entry, entry.place)) {
                assert_eq!(len, (16 << 10).min(meta.data_bytes % (16 << 10)).max(len), "a page at most");
                let key = (entry.log, entry.start.plus(at - from));
                assert!(keys.iter().any(|keys| keys.contains(&key)), "byte {at}: {key:?} in {keys:?}");
                let covered: u64 = keys.iter().map(|keys| keys.end.1.since(keys.start.1)).sum();
                assert_eq!(covered, len, "byte {at}: no more than the page");
            }
        }
    }
}

/// All damage, unless the map is damaged.
fn all_damage(storage: &Arc<dyn Storage>, meta: &ObjectMeta) -> Result<Vec<RunError>, RunError> {
    let mut inspection = Inspection::open(storage, meta)?;
    let mut found = Vec::new();
    while inspection.step(&mut found)?.is_some() {}
    Ok(found)
}

#[test]
fn the_keys_of_a_damaged_block_are_those_between_its_neighbours() {
    let extents: Vec<_> = (0..2000).map(|n| bytes_extent(n / 4, n % 4 * 11, &[10])).collect();
    for write in [write_one, write_earlier] {
        let storage = memory();
        let meta = write(&storage, 1, &extents);
        let map = super::super::map::load_map(&storage, meta.id).unwrap();
        assert!(map.blocks() > 2);
        for block in 0..map.blocks() {
            let (len, keys) = keys_at(&storage, &meta, map.block_range(block).start);
            assert_eq!(len, map.block_range(block).end - map.block_range(block).start);
            let stored = storage.read(meta.id, map.block_range(block)).wait().unwrap();
            let opened = map.open_block(block, &stored).unwrap();
            let mut entries = opened.entries(meta.id).unwrap();
            let all: Vec<_> = std::iter::from_fn(|| entries.next_entry().unwrap()).collect();
            let (first, last) = (all.first().unwrap(), all.last().unwrap());
            let (first, end) = ((first.log, first.start), (last.log, last.end()));
            assert!(keys[0].start <= first && end <= keys[0].end, "block {block}");
            // Each form knows one of the ends of its blocks.
            assert!(keys[0].start == first || keys[0].end == end, "block {block}");
        }
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes: Vec<u8>) {
        super::super::fuzz_parts(ObjectId(1), &bytes);
    }

    /// Entries that differ a little from those of a writer.
    #[test]
    fn entries_that_no_writer_makes_never_panic(
        note in prop::collection::vec(0..40u8, 4), values in prop::collection::vec((0..60u8, prop::collection::vec(0..9u8, 1..6)), 0..40),
    ) {
        let values = values.iter().map(|(at, lengths)| [&[*at, lengths.len() as u8 / 2], &lengths[..]].concat());
        let cut = |value: Vec<u8>| [&[value.len() as u8], &value[..]].concat();
        let data: Vec<u8> = std::iter::once(note).chain(values).flat_map(cut).collect();
        super::super::fuzz_parts(ObjectId(1), &data);
    }
}
