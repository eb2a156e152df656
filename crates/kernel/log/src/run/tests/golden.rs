//! The bytes of an object, as `docs/format/objects.md` shows them.

use super::super::*;
use super::model::*;
use crate::lengths::Lengths;
use bytes::Bytes;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_storage::Storage;

#[test]
fn the_form_is_pinned() {
    let storage = memory();
    let bytes = |log, start, parts: &[&'static [u8]], lengths: &[u32]| Extent {
        log: LogId(log),
        start: Offset(start),
        content: Content::Bytes {
            parts: parts.iter().map(|part| Bytes::from_static(part)).collect(),
            lengths: lengths.iter().copied().collect::<Lengths>(),
        },
    };
    let extents =
        [bytes(3, 16, &[b"hel", b"lo"], &[5]), reference(3, 21, 9, 300, &[4, 4]), bytes(7, 0, &[b"abcd"], &[1, 3])];
    let meta = write(&storage, 258, 1 << 20, &extents).remove(0);
    let object = storage.read(ObjectId(258), 0..meta.bytes()).wait().unwrap();
    let hex: Vec<String> = object.chunks(16).map(|line| line.iter().map(|b| format!("{b:02x}")).collect()).collect();
    assert_eq!(hex, GOLDEN, "\n{}", hex.join("\n"));
    // The same extents as versions before containers wrote them.
    assert_eq!(super::super::earlier::write(ObjectId(258), &extents), earlier());
    let mut writer = storage.create(ObjectId(259)).unwrap();
    writer.write(&earlier()).unwrap();
    writer.finish().unwrap();
    let mut storage: Arc<dyn Storage> = storage;
    assert!(load_meta(&storage, ObjectId(259)).is_err(), "it says that it is object 258");
    storage = memory();
    let mut writer = storage.create(ObjectId(258)).unwrap();
    writer.write(&earlier()).unwrap();
    writer.finish().unwrap();
    let meta = verify(&storage, ObjectId(258)).unwrap();
    assert_eq!((meta.data_bytes, meta.reference_bytes, meta.entries, meta.logs, meta.messages), (9, 8, 3, 2, 5));
    assert_eq!(Model::of(&read(&storage, &[meta])), Model::of(&extents));
}

fn earlier() -> Vec<u8> {
    let hex = EARLIER_GOLDEN.concat();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

const GOLDEN: &[&str] = &[
    "54485747434f4e540100000002000000",
    "0201000000000000592cc96668656c6c",
    "6f616263640100210000002100000002",
    "0c031501010a111c1d0009ac02010902",
    "02100704060202060000000001000000",
    "8e421d7302000e0000000e0000000801",
    "0c000328000650010207042f97475c17",
    "03000400000004000000779007290132",
    "a24b0400170000001700000002030000",
    "142f0109000203150410080205010207",
    "042f1c53e9ce565448574743454e4401",
    "000000000000000201000000000000d7",
    "00000000000000820000000000000025",
    "0000006235e1b3",
];

/// The bytes of versions before containers, as those versions pinned them.
const EARLIER_GOLDEN: &[&str] = &[
    "68656c6c6f6162636400031000010a00",
    "000109ac020109020400000202065cd1",
    "157b0300000000000000100000000000",
    "00000900000000000000190000007790",
    "07298020084100054510edcd8fa85448",
    "574752554e5301000000000000000201",
    "0000000000000900000000000000c100",
    "00000000000001000000004000000800",
    "00000000000003000000000000000200",
    "00000000000005000000000000000800",
    "00000000000003000000000000001000",
    "00000000000007000000000000000400",
    "000000000000f340bbc6",
];
