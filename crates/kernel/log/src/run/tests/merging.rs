//! Merging equals filtering a plain map.

use super::super::*;
use super::model::*;
use proptest::prelude::*;
use thalweg_base::{LogId, ObjectId, Offset};

fn everything(_: LogId) -> Option<Live> {
    Some(all_positions())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_merge_equals_its_model(
        batches in prop::collection::vec(arrivals(), 1..5),
        input_bytes in 1..2000u64,
        output_bytes in 1..4000u64,
        ranges in prop::collection::vec(prop::option::of(prop::collection::vec((0..400u64, 0..300u64), 0..3)), 6),
        earlier in prop::collection::vec(any::<bool>(), 5),
    ) {
        let storage = memory();
        let runs = runs_of(&batches);
        let written = |(n, run): (usize, &Vec<Extent>)| match earlier[n] && !run.is_empty() {
            true => vec![write_earlier(&storage, 1 + n as u64 * 1000, run)],
            false => write(&storage, 1 + n as u64 * 1000, input_bytes, run),
        };
        let inputs: Vec<_> = runs.iter().enumerate().map(written).collect();
        let live = |log: LogId| {
            let ranges = ranges.get(log.0 as usize)?.as_ref()?;
            // The last logs live wholly, so that some objects are adopted.
            if log.0 >= 4 { return Some(all_positions()); }
            Some(Live::new(ranges.iter().map(|(start, len)| Offset(*start)..Offset(start + len))))
        };
        let mut out = builder(&storage, 100_000, output_bytes);
        let stats = merge_uncounted(&inputs, &live, &mut out).unwrap();
        let merged = out.finish().unwrap();
        let expected = Model::of(runs.iter().flatten()).live(&live);
        prop_assert_eq!(Model::of(&read(&storage, &merged)), expected);
        for meta in &merged {
            prop_assert_eq!(live_bytes(&storage, meta, &live), Ok(meta.covered_bytes()), "all of it is live");
        }
        prop_assert_eq!(stats.input_bytes, stats.copied_bytes + stats.adopted_bytes + stats.dropped_bytes);
        let out_bytes: u64 = merged.iter().map(|meta| meta.data_bytes).sum();
        prop_assert_eq!(out_bytes, stats.copied_bytes + stats.adopted_bytes);
    }

    #[test]
    fn a_change_of_live_bytes_is_what_counting_twice_says(
        batch in arrivals(),
        before in prop::collection::vec((0..150u64, 0..300u64), 6),
        after in prop::collection::vec(prop::option::of((0..150u64, 0..300u64)), 6),
        is_earlier: bool,
    ) {
        let (storage, extents) = (memory(), runs_of(&[batch]).remove(0));
        prop_assume!(!extents.is_empty());
        let meta = if is_earlier { write_earlier(&storage, 1, &extents) } else { write_one(&storage, 1, &extents) };
        let live = |(start, len): (u64, u64)| Live::new([Offset(start)..Offset(start + len)]);
        let was = |log: LogId| before.get(log.0 as usize).map(|range| live(*range));
        let is = |log: LogId| match after.get(log.0 as usize) {
            Some(Some(range)) => Some(live(*range)),
            _ => was(log),
        };
        let changes: Vec<_> = (0..6)
            .filter(|log| after[*log as usize].is_some())
            .map(|log| {
                let (before, after) = (was(LogId(log)).unwrap(), is(LogId(log)).unwrap());
                let ends = before.ranges().iter().chain(after.ranges()).map(|range| (range.start, range.end));
                let within = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).map_or(Offset(0)..Offset(0), |(a, b)| a..b);
                LiveChange { log: LogId(log), before, after, within }
            })
            .collect();
        let (counted, then) = (live_bytes(&storage, &meta, &was).unwrap(), live_bytes(&storage, &meta, &is).unwrap());
        let reader = RunReader::new(1 << 16);
        let change = live_change(&reader, storage.as_ref(), &meta, counted, &changes);
        prop_assert_eq!(change, Ok(then as i64 - counted as i64));
    }
}

#[test]
fn an_object_apart_and_wholly_live_is_adopted() {
    let storage = memory();
    let old = write(&storage, 1, 1000, &[bytes_extent(1, 0, &[600; 4]), bytes_extent(5, 0, &[600; 4])]);
    let new = write(&storage, 11, 1000, &[bytes_extent(3, 0, &[900; 2]), bytes_extent(5, 2400, &[5])]);
    assert_eq!((old.len(), new.len()), (2, 2));
    let mut out = builder(&storage, 21, 1000);
    let stats = merge_uncounted(&[old.clone(), new.clone()], &everything, &mut out).unwrap();
    let merged: Vec<_> = out.finish().unwrap();
    assert_eq!(stats.adopted_objects, 3);
    // The last one is too small to be left alone.
    assert_eq!(merged.iter().map(|meta| meta.id.0).collect::<Vec<_>>(), [1, 11, 2, 21]);
    let partly = |log: LogId| (log.0 != 1).then(|| Live::new([Offset(0)..Offset(1800)]));
    let mut out = builder(&storage, 31, 1000);
    let stats = merge_uncounted(&[old, new], &partly, &mut out).unwrap();
    assert_eq!((stats.adopted_objects, stats.dropped_bytes), (1, 2400 + 600 + 5));
    assert_eq!(out.finish().unwrap().iter().map(|meta| meta.id.0).collect::<Vec<_>>(), [11, 31]);
}

#[test]
fn positions_in_two_runs_are_reported() {
    let storage = memory();
    let one = write(&storage, 1, 1000, &[bytes_extent(1, 0, &[10, 10])]);
    for (id, start) in [(2, 0), (3, 5), (4, 19)] {
        let two = write(&storage, id, 1000, &[bytes_extent(1, start, &[10, 10])]);
        for live in [&everything as &dyn Fn(LogId) -> Option<Live>, &|_| None] {
            for inputs in [[one.clone(), two.clone()], [two.clone(), one.clone()]] {
                let mut out = builder(&storage, 100, 10);
                let merged = merge_uncounted(&inputs, live, &mut out);
                assert!(matches!(merged, Err(RunError::Overlap { log: LogId(1), .. })), "{merged:?}");
            }
        }
    }
    assert_eq!(storage.list().unwrap().last(), Some(&ObjectId(4)), "what a failed merge wrote is gone");
}

#[test]
fn the_data_of_dead_extents_is_not_read() {
    let inner = memory();
    let run = write(&inner, 1, 64 << 20, &[bytes_extent(1, 0, &[4 << 20]), bytes_extent(2, 0, &[100])]);
    let (storage, reads) = Counted::around(&inner, true);
    let mut out = builder(&storage, 10, 64 << 20);
    merge_uncounted(&[run], &|log| (log.0 == 2).then(all_positions), &mut out).unwrap();
    // Footer, map, index, one page of data: nothing of the four megabytes.
    assert!(reads.load(std::sync::atomic::Ordering::Relaxed) <= 4);
}

#[test]
fn what_a_merge_writes_is_a_container_whatever_form_it_read() {
    let storage = memory();
    let extents: Vec<_> = (0..900).map(|n| bytes_extent(n / 3, n % 3 * 30, &[30])).collect();
    let (old, new) = extents.iter().cloned().partition::<Vec<_>, _>(|extent| extent.start < Offset(60));
    let inputs = [vec![write_earlier(&storage, 1, &old)], vec![write_one(&storage, 2, &new)]];
    let mut out = builder(&storage, 3, 64 << 20);
    merge_uncounted(&inputs, &everything, &mut out).unwrap();
    let merged = out.finish().unwrap();
    assert_eq!(Model::of(&read(&storage, &merged)), Model::of(&extents));
    assert!(storage.read(merged[0].id, 0..8).wait().unwrap().starts_with(b"THWGCONT"));
}
