//! The bytes of an object, as `docs/format/objects.md` shows them.

use super::super::*;
use super::model::*;
use crate::lengths::Lengths;
use bytes::Bytes;
use thalweg_base::{LogId, ObjectId, Offset};

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
}

const GOLDEN: &[&str] = &[
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
