//! Measurements: `cargo test --release -p thalweg-log measure -- --ignored --nocapture --test-threads 1`.

use super::super::*;
use super::model::*;
use crate::lengths::Lengths;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use thalweg_base::{LogId, Offset};
use thalweg_storage::{FileStorage, Storage};

#[test]
#[ignore = "a measurement"]
fn writing_merging_and_finding() {
    let folder = std::env::temp_dir().join(format!("thalweg-run-{}", std::process::id()));
    let disk = Arc::new(thalweg_disk::RealDisk::open(&folder).unwrap());
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::open(disk, "objects").unwrap());
    let body = Bytes::from(vec![7u8; 1000]);
    let lengths: Lengths = (0..10u32).map(|n| 90 + n % 3).collect();
    let extent = |log: u64, start: u64| {
        let parts = vec![body.slice(..lengths.bytes() as usize)];
        Extent { log: LogId(log), start: Offset(start), content: Content::Bytes { parts, lengths: lengths.clone() } }
    };
    let mut runs = Vec::new();
    for n in 0..4u64 {
        let start = Instant::now();
        let mut out = builder(&storage, 1 + n * 100, 64 << 20);
        for log in 0..64_000 {
            out.push(&extent(log, n * 2000)).unwrap();
        }
        runs.push(out.finish().unwrap());
        let (data, index) = runs[n as usize].iter().fold((0, 0), |(d, i), m| (d + m.data_bytes, i + m.index_bytes));
        println!("write and verify {data} bytes ({index} of index): {:?}", start.elapsed());
    }
    let start = Instant::now();
    let mut out = builder(&storage, 1000, 64 << 20);
    let stats = merge_uncounted(&runs, &|_| Some(all_positions()), &mut out).unwrap();
    let merged = out.finish().unwrap();
    println!("merge of {} bytes: {:?}", stats.copied_bytes, start.elapsed());
    let start = Instant::now();
    for meta in &merged {
        verify(&storage, meta.id).unwrap();
    }
    println!("verify: {:?}", start.elapsed());
    let reader = Waiting::new(&storage, 64 << 20);
    for round in ["cold index", "warm index"] {
        let start = Instant::now();
        for n in 0..64_000u64 {
            let log = n.wrapping_mul(48_271) % 64_000;
            assert!(reader.find_in_run(&merged, log, 4100).unwrap().is_some());
        }
        println!("find, {round}: {:?} each", start.elapsed() / 64_000);
    }
    let hit = reader.find_in_run(&merged, 77, 0).unwrap().unwrap();
    let start = Instant::now();
    for _ in 0..10_000 {
        reader.data(&hit, 0..900).unwrap();
    }
    println!("data of 900 bytes: {:?} each", start.elapsed() / 10_000);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Lookups of both forms by turns, in nanoseconds: the best of seven rounds.
#[test]
#[ignore = "a measurement"]
fn finding_in_both_forms() {
    let shapes: [(&str, u64, u64, Vec<u32>); 4] = [
        ("a message of 1 KB for each of 64,000 logs", 64_000, 1, vec![1000]),
        ("10 messages of other lengths for each of 64,000 logs", 64_000, 1, (0..10).map(|n| 90 + n % 3).collect()),
        ("200 entries of 256 messages of 1 KB", 4, 50, vec![1000; 256]),
        ("40,000 entries of one log, one message of 1 KB in each", 1, 40_000, vec![1000]),
    ];
    for (name, logs, entries, lengths) in shapes {
        let storage = memory();
        // Entries with a gap between them are not joined.
        let step = 1 + lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
        let starts = (0..logs).flat_map(|log| (0..entries).map(move |n| (log * 3, 5000 + n * step)));
        let extents: Vec<_> = starts.map(|(log, start)| bytes_extent(log, start, &lengths)).collect();
        let metas = [write_earlier(&storage, 1, &extents), write(&storage, 2, 1 << 30, &extents)[0]];
        let mut best = [[f64::MAX; 4]; 2];
        for _ in 0..7 {
            for (meta, best) in metas.iter().zip(&mut best) {
                let took = lookups(&storage, meta, &extents);
                best.iter_mut().zip(took).for_each(|(best, took)| *best = best.min(took));
            }
        }
        println!(
            "{name}: bytes of index per entry; found, not there, found in a block to open, with map and block cold"
        );
        for ((form, meta), took) in ["earlier", "container"].iter().zip(metas).zip(best) {
            let took = took.map(f64::round);
            println!("  {form:9}: {:5.2} {took:?}", meta.index_bytes as f64 / meta.entries as f64);
        }
    }
}

/// The time of lookups: warm, warm of a log that is not there, with a block that must be opened, and with nothing
/// cached.
fn lookups(storage: &Arc<dyn Storage>, meta: &ObjectMeta, extents: &[Extent]) -> [f64; 4] {
    let (warm, cold) = (Waiting::new(storage, 256 << 20), Waiting::new(storage, 0));
    let map = super::super::map::load_map(storage, meta.id).unwrap();
    let read = |n| storage.read(meta.id, map.block_range(n)).wait().unwrap();
    let blocks: Vec<_> = (0..map.blocks()).map(read).collect();
    let asked = |n: u64| &extents[(n.wrapping_mul(48_271) % extents.len() as u64) as usize];
    let find = |reader: &Waiting, n: u64| {
        let hit = reader.find(meta, asked(n).log.0, asked(n).start.0 + 1).unwrap().unwrap();
        assert_eq!(hit.entry.start, asked(n).start);
    };
    let miss = |n| assert!(warm.find(meta, asked(n).log.0 + 1, 0).unwrap().is_none());
    let open = |n: u64| {
        let (log, start) = (asked(n).log, asked(n).start);
        let number = map.blocks_from(log, start).start;
        let block = map.open_block(number, &blocks[number]).unwrap();
        assert!(block.find(meta.id, log, start).unwrap().is_some());
    };
    (0..100_000).for_each(|n| find(&warm, n));
    [time(100_000, &|n| find(&warm, n)), time(100_000, &miss), time(50_000, &open), time(20, &|n| find(&cold, n))]
}

fn time(count: u64, f: &dyn Fn(u64)) -> f64 {
    let start = Instant::now();
    (0..count).for_each(f);
    start.elapsed().as_nanos() as f64 / count as f64
}
