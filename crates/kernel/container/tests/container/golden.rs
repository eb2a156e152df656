//! The bytes are pinned: see `docs/format/container.md`.

use super::*;

#[test]
fn the_bytes_are_pinned() {
    let storage = memory();
    let mut out = builder(
        &storage,
        258,
        Options { compression: Compression::None, block_bytes: 16, has_content: true, has_one_partition: false },
    );
    out.content(b"content").unwrap();
    for (key, kind, value) in
        [("apple", Kind::Value, "red"), ("apricot", Kind::Tombstone, ""), ("banana", Kind::Operand, "+1")]
    {
        out.push(&Entry { key: key.as_bytes(), kind, value: value.as_bytes() }).unwrap();
    }
    out.set_note(Bytes::from_static(b"note")).unwrap();
    let object = out.finish().unwrap().object;
    let hex: Vec<String> = all_bytes(&storage, object)
        .chunks(16)
        .map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    assert_eq!(hex, GOLDEN, "\n{}", hex.join("\n"));
}

const GOLDEN: &[&str] = &[
    "54485747434f4e54010000004d000000",
    "0201000000000000f4b7591a636f6e74",
    "656e7401001900000019000000050c61",
    "70706c6572656425017269636f740000",
    "000001000000417966d8010012000000",
    "12000000060a62616e616e612b310000",
    "000001000000c464b89902001b000000",
    "1b0000000811112a0004200012020761",
    "707269636f74270662616e616e612027",
    "193c38030004000000040000003375af",
    "6141b7df5e040020000000200000004d",
    "01010117470207012b72056170706c65",
    "046e6f7465010662616e616e614729ee",
    "d5ac865448574743454e440100000000",
    "00000002010000000000000301000000",
    "000000a5000000000000002e0000002d",
    "5916ae",
];
