//! Measures the cost of keeping changes and of reading them again: this crate's change log, SQLite, and a file of
//! copies for each shape.
//!
//! `cargo test -p thalweg-shapes --release -- --ignored --nocapture storage_cost`
//!
//! An append is a transaction as `applier` puts it away; none waits for the disk, and the time until all are durable is
//! reported separately. A read goes from chunk to chunk as requests do. Every byte that is read is checksummed and
//! compared.

mod files;
mod memory;
mod ours;
mod sqlite;

use files::Files;
use memory::Memory;
use ours::Ours;
use sqlite::Sqlite;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Chunks of 64 KiB: a client that was away for a while reads a run of ten.
const CHUNK_BYTES: u64 = 64 << 10;
const CHUNKS: [usize; 2] = [5, 10];
/// Readers at once, and how often they read.
const READERS: [(usize, usize); 2] = [(1, 51), (200, 5)];
/// Enough content for the longest read.
const CONTENT_BYTES: usize = 16 * CHUNK_BYTES as usize;

/// A change of one row, about 230 bytes, in the form in which it is sent.
fn body(lsn: u64, op: u64, last: bool) -> Vec<u8> {
    let last = if last { ",\"last\":true" } else { "" };
    format!(
        "{{\"key\":\"\\\"public\\\".\\\"items\\\"/\\\"{lsn}-{op}\\\"\",\"value\":{{\"id\":\"{lsn}-{op}\",\"name\":\"name-{op}\",\"note\":\"{}\"}},\
         \"headers\":{{\"operation\":\"insert\",\"relation\":[\"public\",\"items\"],\"txids\":[{lsn}],\"lsn\":\"{lsn}\",\"op_position\":{op}{last}}}}},",
        "n".repeat(64)
    )
    .into_bytes()
}

/// A store of changes that is measured.
trait Keeper {
    const NAME: &'static str;
    /// The state of one reader.
    type Reader: Reader + Send;

    /// An empty one, for this many shapes which all have all changes.
    fn open(shapes: u32) -> Self;
    /// Puts away a transaction of this many changes.
    fn append(&mut self, lsn: u64, changes: u64);
    /// Makes all changes durable.
    fn sync(&mut self);
    fn bytes_on_disk(&self) -> u64;
    /// A reader of the first shape.
    fn reader(&self) -> Self::Reader;
}

trait Reader {
    /// The first chunks, one after the other.
    fn read(&mut self, chunks: usize, sink: &mut dyn FnMut(&[u8]));
}

fn bytes_in(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(files) = std::fs::read_dir(folder) else { return 0 };
    files
        .flatten()
        .map(|file| match file.metadata() {
            Ok(about) if about.is_dir() => bytes_in(&file.path()),
            Ok(about) => about.len().min(about.blocks() * 512),
            Err(_) => 0,
        })
        .sum()
}

fn appends<K: Keeper>(shapes: u32, changes: u64, transactions: u64) {
    let mut keeper = K::open(shapes);
    let before = keeper.bytes_on_disk();
    let mut times: Vec<Duration> = (1..=transactions)
        .map(|lsn| {
            let began = Instant::now();
            keeper.append(lsn, changes);
            began.elapsed()
        })
        .collect();
    let began = Instant::now();
    keeper.sync();
    let synced = began.elapsed();
    let mean = times.iter().sum::<Duration>() / transactions as u32;
    times.sort_unstable();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let on_disk = (keeper.bytes_on_disk().saturating_sub(before)) / (transactions * changes);
    eprintln!(
        "append {changes:>4} changes to {shapes:>3} shapes, {:<6} mean {mean:>10.2?} median {median:>10.2?} p99 {p99:>10.2?}, then durable in {synced:>8.2?}; {on_disk} B of disk per change",
        K::NAME
    );
}

fn reads<K: Keeper>(changes: u64, readers: &[(usize, usize)]) {
    let mut keeper = K::open(1);
    let (mut expected, mut lsn) = (Vec::new(), 0);
    while expected.len() < CONTENT_BYTES {
        lsn += 1;
        (0..changes).for_each(|op| expected.extend_from_slice(&body(lsn, op * 2, op + 1 == changes)));
        keeper.append(lsn, changes);
    }
    keeper.sync();
    for chunks in CHUNKS {
        // Chunks end where transactions do, so that their sizes differ a little from one keeper to another.
        let mut first = Vec::new();
        keeper.reader().read(chunks, &mut |bytes| first.extend_from_slice(bytes));
        assert!(first.len() as u64 >= chunks as u64 * CHUNK_BYTES, "{} gives {} bytes", K::NAME, first.len());
        assert!(expected.starts_with(&first), "{} gives other bytes", K::NAME);
        let sum = crc32c::crc32c(&first);
        for &(many, rounds) in readers {
            let mut times: Vec<Duration> = (0..rounds).map(|_| read_round(&keeper, many, chunks, sum)).collect();
            times.sort_unstable();
            eprintln!(
                "read {chunks:>2} chunks written {changes} changes at a time, {many:>3} readers, {:<6} median {:>10.2?} max {:>10.2?} ({} bytes each)",
                K::NAME,
                times[times.len() / 2],
                times[times.len() - 1],
                first.len()
            );
        }
    }
}

/// All readers at once: the time from the first one's begin until the last one has all changes.
fn read_round<K: Keeper>(keeper: &K, many: usize, chunks: usize, sum: u32) -> Duration {
    let start = Barrier::new(many);
    let mut readers: Vec<K::Reader> = (0..many).map(|_| keeper.reader()).collect();
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let read = |mut reader: K::Reader| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let (began, mut seen) = (Instant::now(), 0);
                reader.read(chunks, &mut |bytes| seen = crc32c::crc32c_append(seen, bytes));
                assert_eq!(seen, sum, "{} gives other bytes", K::NAME);
                (began, Instant::now())
            })
        };
        let threads: Vec<_> = readers.drain(..).map(read).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let began = times.iter().map(|(began, _)| *began).min().unwrap();
    times.iter().map(|(_, ended)| ended.duration_since(began)).max().unwrap()
}

fn all_appends<K: Keeper>() {
    for (shapes, changes, transactions) in
        [(1, 1, 20_000), (1, 20, 2_000), (1, 1000, 50), (100, 1, 1_000), (100, 20, 100)]
    {
        appends::<K>(shapes, changes, transactions);
    }
}

fn all_reads<K: Keeper>() {
    for changes in [1, 20, 1000] {
        reads::<K>(changes, &READERS);
    }
}

#[test]
#[ignore = "a measurement"]
fn storage_cost() {
    all_appends::<Ours<false, true>>();
    all_appends::<Sqlite>();
    all_appends::<Files>();
    all_reads::<Ours<false, true>>();
    all_reads::<Ours<true, true>>();
    all_reads::<Ours<true, false>>();
    all_reads::<Memory>();
    all_reads::<Sqlite>();
    all_reads::<Files>();
}

/// The same, so small that it is no measurement: it checks that all keepers return the changes that they were given.
#[test]
fn every_keeper_gives_what_it_was_given() {
    fn small<K: Keeper>() {
        appends::<K>(3, 2, 3);
        reads::<K>(20, &[(2, 1)]);
    }
    small::<Ours<false, true>>();
    small::<Ours<true, true>>();
    small::<Ours<true, false>>();
    small::<Memory>();
    small::<Sqlite>();
    small::<Files>();
}
