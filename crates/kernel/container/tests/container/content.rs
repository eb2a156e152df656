//! The section of content: one piece, in front of the entries, checked by pages.

use super::*;
use proptest::prelude::*;
use thalweg_container::{CONTENT_READ_MAX, ContentRead, SharedCache};

fn content(storage: &Arc<dyn Storage>, object: Object, range: std::ops::Range<u64>) -> Result<Bytes, ContainerError> {
    let mut read = ContentRead::new(object, Pairs::ID, range)?;
    wait(storage, object, |fed| read.step(&NoCache, fed))
}

/// A container with content in pieces and one entry for each.
fn written(pieces: &[Vec<u8>]) -> (Arc<dyn Storage>, Object, Vec<u8>) {
    let storage = memory();
    let mut out = builder(&storage, 1, Options { has_content: true, block_bytes: 50, ..Options::default() });
    for (n, piece) in pieces.iter().enumerate() {
        let at = out.content(piece).unwrap();
        out.push(&Entry { key: &(n as u32).to_be_bytes(), kind: Kind::Value, value: &at.to_be_bytes() }).unwrap();
    }
    let object = out.finish().unwrap().object;
    (storage, object, pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_range_is_what_was_written(
        lens in prop::collection::vec(0..40_000usize, 0..6), a: prop::sample::Index, b: prop::sample::Index,
    ) {
        let pieces: Vec<_> = lens.iter().enumerate().map(|(n, len)| (0..*len).map(|at| (at * 31 + n) as u8).collect()).collect();
        let (storage, object, all) = written(&pieces);
        let (a, b) = (a.index(all.len() + 1), b.index(all.len() + 1));
        let (from, to) = (a.min(b), a.max(b));
        prop_assert_eq!(content(&storage, object, from as u64..to as u64).unwrap(), &all[from..to]);
        prop_assert!(content(&storage, object, 0..all.len() as u64 + 1).is_err());
        // Content stands in one piece right behind the header.
        let bytes = all_bytes(&storage, object);
        prop_assert_eq!(&bytes[28..28 + all.len()], &all[..]);
        let mut at = 0;
        for (key, (_, value)) in scan(&storage, object).unwrap() {
            prop_assert_eq!(value, (at as u64).to_be_bytes().to_vec());
            at += pieces[u32::from_be_bytes(key.try_into().unwrap()) as usize].len();
        }
    }
}

#[test]
fn content_over_several_blocks_of_checksums_is_read() {
    let piece: Vec<u8> = (0..(1 << 20)).map(|n: u32| (n / 7) as u8).collect();
    let (storage, object, all) = written(&vec![piece; 18]);
    let from = (16 << 20) - 100_000;
    assert_eq!(content(&storage, object, from..from + 200_000).unwrap(), &all[from as usize..from as usize + 200_000]);
    assert!(matches!(content(&storage, object, 0..CONTENT_READ_MAX + 1), Err(ContainerError::TooLarge { .. })));
}

#[test]
fn checksums_that_are_cached_are_not_read_again() {
    let (storage, object, _) = written(&[vec![1; 50_000]]);
    let cache = SharedCache::new(1 << 20);
    let mut reads = Vec::new();
    for _ in 0..2 {
        let mut read = ContentRead::new(object, Pairs::ID, 20_000..30_000).unwrap();
        let mut wanted = 0;
        wait(&storage, object, |fed| read.step(&cache, fed).inspect(|_| wanted += 1)).unwrap();
        reads.push(wanted - 1);
    }
    assert_eq!(reads, [3, 1], "tail, checksums, pages; then pages alone");
}

#[test]
fn content_needs_a_section() {
    let mut out = builder(&memory(), 1, Options::default());
    assert_eq!(out.content(b"x"), Err(ContainerError::NoContent));
}
