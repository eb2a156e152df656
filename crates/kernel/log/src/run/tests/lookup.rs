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
    fn every_position_is_found_with_its_bytes(batch in arrivals(), object_bytes in 1..4000u64) {
        let storage = memory();
        let extents = runs_of(&[batch]).remove(0);
        let run = write(&storage, 1, object_bytes, &extents);
        let model = Model::of(&extents);
        let reader = RunReader::new(Arc::clone(&storage), 1 << 20);
        for log in 0..8u64 {
            let end = model.cells.keys().rfind(|(l, _)| *l == log).map_or(3, |(_, at)| at + 3);
            for at in 0..end {
                let found = reader.find_in_run(&run, LogId(log), Offset(at), Mode::Wait).unwrap();
                let next = model.cells.range((log, at)..(log + 1, 0)).next();
                prop_assert_eq!(found.is_some(), next.is_some());
                let (Some(entry), Some(((_, next), cell))) = (found, next) else { continue };
                prop_assert_eq!(entry.log, LogId(log));
                prop_assert!(entry.end() > Offset(at));
                prop_assert_eq!(entry.start.max(Offset(at)), Offset(*next));
                let from = next - entry.start.0;
                match (*cell, entry.place) {
                    (Cell::Byte(byte), Place::Data { object, at }) => {
                        let data = reader.data(object, at + from..at + from + 1, Mode::NoWait).unwrap();
                        prop_assert_eq!(&data[..], &[byte]);
                        let whole = reader.entry_data(&entry, 0..u64::MAX, Mode::NoWait).unwrap();
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

#[test]
fn nothing_waits_unless_it_may() {
    let inner = memory();
    let extents: Vec<_> = (0..3000).map(|log| bytes_extent(log, 0, &[20])).collect();
    let run = write(&inner, 1, 64 << 20, &extents);
    let (cold, _) = Counted::around(&inner, false);
    let reader = RunReader::new(cold, 1 << 20);
    let find = |log, mode| reader.find(run[0].id, LogId(log), Offset(7), mode);
    assert_eq!(find(5, Mode::NoWait), Err(Fetch::WouldWait));
    let entry = find(5, Mode::Wait).unwrap().unwrap();
    assert_eq!(find(5, Mode::NoWait), Ok(Some(entry.clone())), "footer and block are cached now");
    assert_eq!(find(2900, Mode::NoWait), Err(Fetch::WouldWait), "another block");
    assert_eq!(reader.entry_data(&entry, 0..20, Mode::NoWait), Err(Fetch::WouldWait));
    assert_eq!(reader.entry_data(&entry, 3..20, Mode::Wait).unwrap().len(), 17);
    reader.forget(run[0].id);
    assert_eq!(find(5, Mode::NoWait), Err(Fetch::WouldWait));
}

#[test]
fn a_log_that_is_not_there_costs_no_block_read() {
    let inner = memory();
    let extents: Vec<_> = (0..5000).map(|n| bytes_extent(n * 2, 0, &[20])).collect();
    let run = write(&inner, 1, 64 << 20, &extents);
    let (storage, reads) = Counted::around(&inner, true);
    let reader = RunReader::new(storage, 0);
    let mut missed = 0;
    for n in 0..1000 {
        reader.find(run[0].id, LogId(0), Offset(0), Mode::Wait).unwrap();
        let before = reads.load(Ordering::Relaxed);
        assert_eq!(reader.find(run[0].id, LogId(n * 2 + 1), Offset(0), Mode::Wait), Ok(None));
        // Footer and map, since this reader caches nothing.
        missed += usize::from(reads.load(Ordering::Relaxed) - before > 2);
    }
    assert!(missed < 30, "{missed}");
    let (storage, reads) = Counted::around(&inner, true);
    let reader = RunReader::new(storage, 4 << 20);
    for n in 0..1000 {
        reader.find(run[0].id, LogId(n * 2 + 1), Offset(0), Mode::Wait).unwrap();
    }
    assert!(reads.load(Ordering::Relaxed) < 2 + 30);
}

#[test]
fn a_log_over_many_blocks_is_found_across_their_edges() {
    let storage = memory();
    // Unequal lengths make long entries; gaps keep them apart.
    let extents: Vec<_> = (0..400u64)
        .map(|n| bytes_extent(7, n * 1000, &(0..100).map(|i| 1 + (i + n as u32) % 9).collect::<Vec<_>>()))
        .collect();
    let run = write(&storage, 1, 64 << 20, &extents);
    let reader = RunReader::new(Arc::clone(&storage), 1 << 20);
    for extent in &extents {
        for at in [extent.end().0, extent.end().0 + 1, extent.start.0 + 999] {
            let found = reader.find(run[0].id, LogId(7), Offset(at), Mode::Wait).unwrap();
            assert_eq!(found.map(|entry| entry.start.0), (at < 399_000).then_some(extent.start.0 + 1000), "{at}");
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
    let reader = RunReader::new(Arc::clone(&storage), 1 << 20);
    let missing = reader.find(ObjectId(99), LogId(1), Offset(0), Mode::Wait);
    assert!(matches!(missing, Err(Fetch::Failed(RunError::Storage(_)))));
}
