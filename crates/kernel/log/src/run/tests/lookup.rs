//! Finding entries and reading their bytes.

use super::super::*;
use super::model::*;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_disk::Disk;
use thalweg_storage::{FileStorage, Storage};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_position_is_found_with_its_bytes(batch in arrivals(), object_bytes in 1..4000u64, is_earlier: bool) {
        let storage = memory();
        let extents = runs_of(&[batch]).remove(0);
        let run = match is_earlier && !extents.is_empty() {
            true => vec![write_earlier(&storage, 1, &extents)],
            false => write(&storage, 1, object_bytes, &extents),
        };
        let model = Model::of(&extents);
        let reader = Waiting::new(&storage, 1 << 20);
        for log in 0..8u64 {
            let end = model.cells.keys().rfind(|(l, _)| *l == log).map_or(3, |(_, at)| at + 3);
            for at in 0..end {
                let found = reader.find_in_run(&run, log, at).unwrap();
                let next = model.cells.range((log, at)..(log + 1, 0)).next();
                prop_assert_eq!(found.is_some(), next.is_some());
                let (Some(hit), Some(((_, next), cell))) = (found, next) else { continue };
                let entry = &hit.entry;
                prop_assert_eq!(entry.log, LogId(log));
                prop_assert!(entry.end() > Offset(at));
                prop_assert_eq!(entry.start.max(Offset(at)), Offset(*next));
                let from = next - entry.start.0;
                match (*cell, entry.place) {
                    (Cell::Byte(byte), Place::Data { .. }) => {
                        let data = reader.data(&hit, from..from + 1).unwrap();
                        prop_assert_eq!(&data[..], &[byte]);
                        let whole = reader.data(&hit, 0..u64::MAX).unwrap();
                        prop_assert_eq!(whole[from as usize], byte);
                    }
                    (Cell::At(source, position), Place::Reference { source: found, from: at }) => {
                        prop_assert_eq!((found, at.plus(from)), (LogId(source), Offset(position)));
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}

/// Hands over missing parts until a lookup is done; the number of parts.
fn found(
    reader: &RunReader,
    known: &mut Known,
    storage: &Arc<dyn Storage>,
    meta: &ObjectMeta,
    log: u64,
) -> (Option<Entry>, usize) {
    for reads in 0.. {
        match reader.find(known, meta, LogId(log), Offset(7)) {
            Ok(found) => return (found.map(|hit| hit.entry), reads),
            Err(Fetch::Lacks(lack)) => {
                assert_eq!(lack.has_map(), reads == 0, "the map comes first");
                let read = storage.read(lack.object, lack.range.clone()).wait();
                reader.take(known, &lack, read).unwrap();
            }
            Err(Fetch::Failed(error)) => panic!("{error}"),
        }
    }
    unreachable!()
}

type Write = fn(&Arc<dyn Storage>, u64, &[Extent]) -> ObjectMeta;

#[test]
fn a_lookup_in_a_cold_object_takes_two_reads_and_in_a_small_one_a_single_one() {
    let storage = memory();
    let forms =
        [(12_000, 2, write_one as Write), (30, 1, write_one), (14_000, 2, write_earlier), (31, 1, write_earlier)];
    for (logs, reads, write) in forms {
        let extents: Vec<_> = (0..logs).map(|log| bytes_extent(log, 0, &[20])).collect();
        let run = [write(&storage, logs, &extents)];
        for cache_bytes in [1 << 20, 0] {
            let reader = RunReader::new(cache_bytes);
            let mut known = Known::default();
            let (entry, took) = found(&reader, &mut known, &storage, &run[0], 5);
            assert_eq!((entry.as_ref().map(|entry| entry.log), took), (Some(LogId(5)), reads));
            let again = reader.find(&known, &run[0], LogId(5), Offset(7)).unwrap();
            assert_eq!(again.map(|hit| hit.entry), entry, "what was handed over is held without a cache too");
            let other = reader.find(&Known::default(), &run[0], LogId(5), Offset(7));
            assert_eq!(other.is_ok(), cache_bytes > 0, "and shared by the cache");
            reader.forget(run[0].id);
            assert!(matches!(reader.find(&Known::default(), &run[0], LogId(5), Offset(7)), Err(Fetch::Lacks(_))));
        }
    }
}

#[test]
fn a_map_of_another_shape_than_expected_costs_one_more_read() {
    let storage = memory();
    let extents: Vec<_> = (0..12_000).map(|log| bytes_extent(log, 0, &[20])).collect();
    let meta = write(&storage, 1, 64 << 20, &extents)[0];
    let reader = RunReader::new(1 << 20);
    let Err(Fetch::Lacks(lack)) = reader.find(&Known::default(), &meta, LogId(5), Offset(7)) else { panic!("cold") };
    let mut known = Known::default();
    let short = lack.ending_with(200);
    reader.take(&mut known, &short, storage.read(meta.id, short.range.clone()).wait()).unwrap();
    let Err(Fetch::Lacks(longer)) = reader.find(&known, &meta, LogId(5), Offset(7)) else { panic!("it has no map") };
    assert!(longer.has_map() && longer.range.start < short.range.start);
    reader.take(&mut known, &longer, storage.read(meta.id, longer.range.clone()).wait()).unwrap();
    let next = reader.find(&known, &meta, LogId(5), Offset(7));
    assert!(matches!(next, Err(Fetch::Lacks(block)) if !block.has_map()));
}

#[test]
fn an_object_that_the_run_does_not_name_is_refused() {
    let storage = memory();
    let meta = write(&storage, 1, 64 << 20, &[bytes_extent(5, 0, &[20])])[0];
    let reader = Waiting::new(&storage, 1 << 20);
    let other = ObjectMeta { messages: meta.messages + 1, ..meta };
    assert!(matches!(reader.find(&other, 5, 7), Err(RunError::Corrupt { .. })));
    let longer = ObjectMeta { index_bytes: meta.index_bytes + 1, ..meta };
    assert!(matches!(reader.find(&longer, 5, 7), Err(RunError::Corrupt { .. })), "the object is cut");
}

#[test]
fn a_log_that_is_not_there_costs_no_block_read() {
    let inner = memory();
    let extents: Vec<_> = (0..12_000).map(|n| bytes_extent(n * 2, 0, &[20])).collect();
    let run = write(&inner, 1, 64 << 20, &extents);
    let (storage, reads) = Counted::around(&inner, true);
    let reader = Waiting::new(&storage, 0);
    let mut missed = 0;
    for n in 0..1000 {
        reader.find(&run[0], 0, 0).unwrap();
        let before = reads.load(Ordering::Relaxed);
        assert!(reader.find(&run[0], n * 2 + 1, 0).unwrap().is_none());
        // The map, since this reader caches nothing.
        missed += usize::from(reads.load(Ordering::Relaxed) - before > 1);
    }
    assert!(missed < 30, "{missed}");
    let (storage, reads) = Counted::around(&inner, true);
    let reader = Waiting::new(&storage, 4 << 20);
    for n in 0..1000 {
        reader.find(&run[0], n * 2 + 1, 0).unwrap();
    }
    assert!(reads.load(Ordering::Relaxed) < 1 + 30);
}

#[test]
fn a_log_over_many_blocks_is_found_across_their_edges() {
    let storage = memory();
    // Unequal lengths make long entries; gaps keep them apart.
    let extents: Vec<_> = (0..400u64)
        .map(|n| bytes_extent(7, n * 1000, &(0..100).map(|i| 1 + (i + n as u32) % 9).collect::<Vec<_>>()))
        .collect();
    for (id, write) in [(1, write_one as Write), (2, write_earlier)] {
        let meta = write(&storage, id, &extents);
        let reader = Waiting::new(&storage, 1 << 20);
        for extent in &extents {
            for at in [extent.end().0, extent.end().0 + 1, extent.start.0 + 999] {
                let found = reader.find(&meta, 7, at).unwrap();
                assert_eq!(found.map(|hit| hit.entry.start.0), (at < 399_000).then_some(extent.start.0 + 1000), "{at}");
            }
        }
    }
}

#[test]
fn an_object_in_files_reads_the_same() {
    let disk: Arc<dyn Disk> = Arc::new(thalweg_sim::SimDisk::new(7));
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::open(disk, "objects").unwrap());
    let extents: Vec<_> = (0..500).map(|n| bytes_extent(n, n, &[1000, 500])).collect();
    let run = write(&storage, 1, 100_000, &extents);
    assert_eq!(Model::of(&read(&storage, &run)), Model::of(&extents));
    let reader = Waiting::new(&storage, 1 << 20);
    let missing = reader.find(&ObjectMeta { id: ObjectId(99), ..run[0] }, 1, 1);
    assert!(matches!(missing, Err(RunError::Storage(_))));
}
