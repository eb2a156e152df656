//! Written extents are read back, within the limits of entries and objects.

use super::super::*;
use super::model::*;
use crate::lengths::Lengths;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use thalweg_base::{Decoder, LogId, ObjectId, Offset};
use thalweg_storage::Storage;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_run_reads_back_as_what_was_pushed(batch in arrivals(), object_bytes in 1..4000u64) {
        let storage = memory();
        let extents = runs_of(&[batch]).remove(0);
        let run = write(&storage, 1, object_bytes, &extents);
        prop_assert_eq!(Model::of(&read(&storage, &run)), Model::of(&extents));
        for pair in run.windows(2) {
            prop_assert!((pair[0].last, pair[0].end) <= pair[1].first);
        }
        for meta in &run {
            prop_assert_eq!(verify(&storage, meta.id), Ok(*meta));
            prop_assert_eq!(storage.len(meta.id), Ok(meta.bytes()));
            let mut out = Vec::new();
            meta.encode(&mut out);
            prop_assert_eq!(ObjectMeta::decode(&mut Decoder::new(&out)), Ok(*meta));
        }
        let covered: u64 = extents.iter().map(|extent| extent.lengths().bytes()).sum();
        prop_assert_eq!(run.iter().map(ObjectMeta::covered_bytes).sum::<u64>(), covered);
    }
}

#[test]
fn entries_are_bounded_and_small_neighbours_joined() {
    let storage = memory();
    let many = bytes_extent(1, 0, &vec![3; 2000]);
    let large = bytes_extent(2, 0, &[300_000, 5, 100_000, 100_000, 100_000]);
    let small: Vec<_> = (0..100).map(|n| bytes_extent(3, n * 7, &[7])).collect();
    let refers: Vec<_> = (0..100).map(|n| reference(4, n * 7, 1, n * 7, &[7])).collect();
    let mut extents = vec![many, large];
    extents.extend(small);
    extents.extend(refers);
    // Refers elsewhere, so it stays apart.
    extents.push(reference(4, 700, 1, 1400, &[7]));
    let run = write(&storage, 1, 64 << 20, &extents);
    let mut scan = ObjectScan::open(&storage, run[0].id).unwrap();
    let entries: Vec<_> = std::iter::from_fn(|| scan.next_entry().unwrap()).collect();
    for entry in &entries {
        assert!(entry.lengths.count() <= ENTRY_MESSAGES_MAX);
        assert!(entry.lengths.bytes() <= ENTRY_BYTES_MAX || entry.lengths.count() == 1);
    }
    let counts: Vec<_> = entries.iter().map(|entry| (entry.log.0, entry.lengths.count())).collect();
    let expected = [(1, 512), (1, 512), (1, 512), (1, 464), (2, 1), (2, 3), (2, 1), (3, 100), (4, 100), (4, 1)];
    assert_eq!(counts, expected);
    assert_eq!(Model::of(&read(&storage, &run)), Model::of(&extents));
}

#[test]
fn a_list_of_a_million_lengths_is_split_in_linear_time() {
    let storage = memory();
    let lengths: Lengths = (0..1_000_000u32).map(|n| 1 + n % 3).collect();
    let parts = vec![Bytes::from(vec![9; lengths.bytes() as usize])];
    let extent = Extent { log: LogId(1), start: Offset(5), content: Content::Bytes { parts, lengths } };
    let run = write(&storage, 1, 64 << 20, &[extent]);
    assert_eq!((run[0].messages, run[0].entries), (1_000_000, 1_000_000u64.div_ceil(512)));
}

#[test]
fn extents_out_of_order_or_with_wrong_lengths_are_refused() {
    let storage = memory();
    let mut out = builder(&storage, 1, 1);
    out.push(&bytes_extent(2, 10, &[5])).unwrap();
    let order = |log, start| Err(RunError::Order { log: LogId(log), start: Offset(start) });
    assert_eq!(out.push(&bytes_extent(2, 14, &[5])), order(2, 14));
    assert_eq!(out.push(&bytes_extent(1, 99, &[5])), order(1, 99));
    out.push(&bytes_extent(2, 15, &[5])).unwrap();
    let mut wrong = bytes_extent(3, 0, &[5]);
    if let Content::Bytes { lengths, .. } = &mut wrong.content {
        lengths.push(1);
    }
    assert!(matches!(out.push(&wrong), Err(RunError::Lengths { bytes: 5, lengths: 6, .. })));
    let beyond = reference(3, u64::MAX - 2, 1, 0, &[5]);
    assert!(matches!(out.push(&beyond), Err(RunError::Lengths { .. })));
}

#[test]
fn a_run_that_is_not_finished_leaves_no_objects() {
    let storage = memory();
    let mut out = builder(&storage, 1, 10);
    for n in 0..50 {
        out.push(&bytes_extent(1, n * 4, &[4])).unwrap();
    }
    assert!(storage.list().unwrap().len() > 3);
    drop(out);
    assert_eq!(storage.list(), Ok(vec![]));
}

#[test]
fn an_adopted_object_takes_its_place_in_key_order() {
    let storage = memory();
    let run = write(&storage, 1, 100, &[bytes_extent(1, 0, &[50])]);
    let mut out = builder(&storage, 2, 100);
    out.adopt(run[0]).unwrap();
    assert_eq!(out.adopt(run[0]), Err(RunError::Order { log: LogId(1), start: Offset(0) }));
    out.push(&bytes_extent(1, 50, &[50])).unwrap();
    let objects: Vec<_> = out.finish().unwrap().iter().map(|meta| meta.id).collect();
    assert_eq!(objects, [ObjectId(1), ObjectId(2)]);
}

#[test]
fn an_empty_run_has_no_objects() {
    let storage = memory();
    assert!(write(&storage, 1, 100, &[]).is_empty());
    assert!(write(&storage, 1, 100, &[bytes_extent(1, 0, &[])]).is_empty());
}

#[test]
fn a_damaged_write_is_found_before_the_run_is_handed_out() {
    for at in [3, 99, 120, 200] {
        let storage: Arc<dyn Storage> = Arc::new(Bent { inner: memory(), at });
        let mut out = builder(&storage, 1, 1 << 20);
        out.push(&bytes_extent(1, 0, &[100])).unwrap();
        let finished = out.finish();
        assert!(matches!(finished, Err(RunError::Corrupt { object: ObjectId(1), .. })), "byte {at}: {finished:?}");
        assert_eq!(storage.list(), Ok(vec![]), "the damaged object is gone");
    }
}
