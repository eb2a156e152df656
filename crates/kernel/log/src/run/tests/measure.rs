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
    let stats = merge(&runs, &|_| Some(Live::all()), &mut out).unwrap();
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
