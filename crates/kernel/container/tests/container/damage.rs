//! No byte is believed that differs, and no bytes make a reader panic.

use super::model::{model, options};
use super::*;
use proptest::prelude::*;
use thalweg_container::{ContentRead, fuzz_container, fuzz_samples, verify};

/// A container with everything: several blocks, partitions if long keys cost little, and content of two pages.
fn sample(compression: Compression) -> (Bytes, Model) {
    let storage = memory();
    let (has_content, long) = (compression == Compression::Lz4, compression != Compression::None);
    let mut out =
        builder(&storage, 1, Options { block_bytes: 400, compression, has_content, has_one_partition: false });
    if has_content {
        out.content(&[9; 16_500]).unwrap();
    }
    let filler = if long { 700 } else { 30 };
    let entry = |n: u8| ([&[n / 8, n][..], &vec![b'k'; filler]].concat(), (Kind::Value, vec![n; 10]));
    let model: Model = (0..40).map(entry).collect();
    for (key, (kind, value)) in &model {
        out.push(&Entry { key, kind: *kind, value }).unwrap();
    }
    out.set_note(Bytes::from_static(b"a note")).unwrap();
    let object = out.finish().unwrap().object;
    (all_bytes(&storage, object), model)
}

#[test]
fn every_flipped_byte_is_noticed() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let (bytes, model) = sample(compression);
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << (at % 8);
            let storage = stored(&damaged);
            let object = Object::find(&storage, ObjectId(1)).unwrap();
            assert!(verify::<Pairs>(&storage, object).is_err(), "byte {at}");
            if at % 37 == 0 {
                read_all(&storage, object, &model);
            }
        }
    }
}

/// Reads everything: each read gives the bytes that were written, or an error.
fn read_all(storage: &Arc<dyn Storage>, object: Object, model: &Model) {
    for (key, (kind, value)) in model {
        match look_up(storage, &NoCache, object, Lookup::exact(object, key)) {
            Ok(found) => {
                assert_eq!(found.map(|found| (found.kind, found.value.to_vec())), Some((*kind, value.clone())))
            }
            Err(error) => assert!(matches!(error, ContainerError::Corrupt { .. } | ContainerError::Newer { .. })),
        }
    }
    let mut content = ContentRead::new(object, Pairs::ID, 100..16_500).unwrap();
    if let Ok(content) = wait(storage, object, |fed| content.step(&NoCache, fed)) {
        assert!(content.iter().all(|byte| *byte == 9));
    }
}

#[test]
fn every_truncation_is_noticed() {
    let (bytes, _) = sample(Compression::Lz4);
    for len in (0..bytes.len()).step_by(7) {
        let storage = stored(&bytes[..len]);
        let object = Object::find(&storage, ObjectId(1)).unwrap();
        assert!(verify::<Pairs>(&storage, object).is_err(), "{len} bytes");
    }
}

#[test]
fn a_container_under_another_name_is_refused() {
    let (bytes, _) = sample(Compression::None);
    let storage = memory();
    let mut writer = storage.create(ObjectId(2)).unwrap();
    writer.write(&bytes).unwrap();
    writer.finish().unwrap();
    let object = Object::find(&storage, ObjectId(2)).unwrap();
    assert!(matches!(scan(&storage, object), Err(ContainerError::Corrupt { .. })));
}

/// Where the blocks behind the header stand, of a container without content.
fn blocks(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut all = Vec::new();
    let mut at = 28;
    while at + 48 < bytes.len() {
        let stored = u32::from_le_bytes(bytes[at + 6..at + 10].try_into().unwrap()) as usize;
        all.push(at..at + stored + 14);
        at += stored + 14;
    }
    all
}

/// Blocks of one length, not compressed.
fn even() -> (Bytes, Model) {
    let storage = memory();
    let model: Model = (0..64u8).map(|n| (vec![n, n], (Kind::Value, vec![n; 20]))).collect();
    let options =
        Options { block_bytes: 100, compression: Compression::None, has_content: false, has_one_partition: false };
    let object = write(&storage, 1, options, &model).object;
    (all_bytes(&storage, object), model)
}

#[test]
fn a_block_in_the_place_of_another_is_not_believed() {
    let (bytes, model) = even();
    let blocks = blocks(&bytes);
    let mut swapped = bytes.to_vec();
    assert_eq!(blocks[1].len(), blocks[2].len());
    swapped[blocks[1].clone()].copy_from_slice(&bytes[blocks[2].clone()]);
    swapped[blocks[2].clone()].copy_from_slice(&bytes[blocks[1].clone()]);
    let storage = stored(&swapped);
    let object = Object::find(&storage, ObjectId(1)).unwrap();
    let found = model.keys().map(|key| look_up(&storage, &NoCache, object, Lookup::exact(object, key)));
    let refused = found.filter(|found| match found {
        Ok(found) => {
            assert!(found.is_some(), "nothing that was written is denied");
            false
        }
        Err(ContainerError::Corrupt { what, .. }) => what.contains("checksum"),
        Err(_) => false,
    });
    assert_eq!(refused.count(), 10, "those of two blocks");
}

#[test]
fn a_block_of_another_object_is_not_believed() {
    let (bytes, _) = even();
    let storage = memory();
    let model: Model = (0..64u8).map(|n| (vec![n, n], (Kind::Value, vec![255 - n; 20]))).collect();
    let options =
        Options { block_bytes: 100, compression: Compression::None, has_content: false, has_one_partition: false };
    let object = write(&storage, 2, options, &model).object;
    let mut mixed = all_bytes(&storage, object).to_vec();
    let block = blocks(&bytes)[3].clone();
    mixed[block.clone()].copy_from_slice(&bytes[block]);
    let storage = memory();
    let mut writer = storage.create(ObjectId(2)).unwrap();
    writer.write(&mixed).unwrap();
    writer.finish().unwrap();
    assert!(matches!(scan(&storage, object), Err(ContainerError::Corrupt { .. })));
}

#[test]
fn a_container_of_another_codec_is_refused() {
    struct Other;
    impl Codec for Other {
        const ID: u32 = 78;
    }
    let (bytes, _) = sample(Compression::None);
    let storage = stored(&bytes);
    let object = Object::find(&storage, ObjectId(1)).unwrap();
    assert!(matches!(Scan::<Other>::open(&storage, object), Err(ContainerError::Corrupt { .. })));
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let (bytes, _) = sample(Compression::None);
    for at in [8, bytes.len() - 40] {
        let mut newer = bytes.to_vec();
        newer[at] = 2;
        let storage = stored(&newer);
        let object = Object::find(&storage, ObjectId(1)).unwrap();
        let refused = scan(&storage, object);
        assert_eq!(refused, Err(ContainerError::Newer { object: ObjectId(1), found: 2, known: 1 }), "byte {at}");
    }
}

fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::sample::select(fuzz_samples()), changes, 0..60usize).prop_map(|(mut bytes, changes, cut)| {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn containers_never_panic(data in nearly(), garbage: Vec<u8>) {
        fuzz_container(&data);
        fuzz_container(&garbage);
    }
}

proptest! {
    #[test]
    fn any_flipped_bit_of_any_container_is_noticed(model in model(), options in options(), at: prop::sample::Index, bit in 0..8u8) {
        let storage = memory();
        let object = write(&storage, 1, options, &model).object;
        let mut damaged = all_bytes(&storage, object).to_vec();
        let at = at.index(damaged.len());
        damaged[at] ^= 1 << bit;
        prop_assert!(verify::<Pairs>(&stored(&damaged), object).is_err());
    }
}
