//! The cost of an idle journal: many of them fit into one process.
#![allow(clippy::unwrap_used)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_disk::{Disk, RealDisk};
use thalweg_journal::{Bounds, Class, FileJournal, Journal, Options, WriterPool};

const JOURNALS: usize = 1000;

/// A number of `/proc/self/status`: kilobytes, or threads.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn disk_bytes(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.map(|e| if e.path().is_dir() { disk_bytes(&e.path()) } else { e.metadata().unwrap().blocks() * 512 }).sum()
}

/// Where files need no device: the test is about memory, threads and sizes.
fn folder() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

#[test]
fn a_thousand_journals_that_are_written_to_once_cost_kilobytes_each_and_no_thread() {
    const THREADS_MAX: usize = 8;
    // Each keeps its folder and two files open.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let dir = folder();
    let pool = WriterPool::start(THREADS_MAX).unwrap();
    let (memory, threads) = (status("VmRSS"), status("Threads"));
    let began = Instant::now();
    let journals: Vec<_> = (0..JOURNALS)
        .map(|n| {
            let path = dir.path().join(n.to_string());
            std::fs::create_dir(&path).unwrap();
            let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&path).unwrap());
            let nothing = &mut |_, _| Ok::<(), Infallible>(());
            let journal = Arc::new(FileJournal::open(disk, Options::default(), Bounds::default(), nothing).unwrap());
            journal.start_writer_on(&pool);
            journal
        })
        .collect();
    let opened = began.elapsed();
    assert!(journals.iter().all(|journal| !journal.wants_prepare()), "nothing was written yet");
    let ends: Vec<_> = journals
        .iter()
        .map(|journal| {
            let appended = journal.append(Class::User, &[b"one frame"]).unwrap();
            journal.kick();
            appended.end
        })
        .collect();
    journals.iter().zip(&ends).for_each(|(journal, end)| journal.wait(*end).unwrap());
    let durable = began.elapsed();
    for journal in &journals {
        assert!(journal.wants_prepare(), "the reserve of a journal in use is made ahead");
        journal.prepare().unwrap();
        assert!(!journal.wants_prepare());
    }
    assert!(status("Threads") <= threads + THREADS_MAX as u64, "{} threads", status("Threads"));
    // Threads without work end.
    while pool.threads() > 1 {
        assert!(began.elapsed() < Duration::from_secs(120), "{} threads have no work and stay", pool.threads());
        std::thread::sleep(Duration::from_millis(20));
    }
    let kilobytes = status("VmRSS").saturating_sub(memory) / JOURNALS as u64;
    let on_disk = disk_bytes(dir.path()) / JOURNALS as u64;
    println!(
        "opened in {opened:?}, durable after {durable:?}; each {kilobytes} KiB of memory, {on_disk} bytes on the disk"
    );
    assert!(kilobytes <= 8, "a journal that is idle takes {kilobytes} KiB");
    assert!(on_disk <= 160 << 10, "a journal that is idle takes {on_disk} bytes on the disk");
    assert!(opened < Duration::from_secs(30), "{opened:?}");
    journals.iter().for_each(|journal| journal.close().unwrap());
}

#[test]
fn segments_grow_with_use_and_a_large_frame_needs_no_small_ones_before() {
    let dir = folder();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir.path()).unwrap());
    let options = Options { segment_bytes: 1 << 20, max_payload: 1 << 20, ..Options::default() };
    let open = || {
        let nothing = &mut |_, _| Ok::<(), Infallible>(());
        FileJournal::open(Arc::clone(&disk), options, Bounds::default(), nothing).unwrap()
    };
    let sizes = || {
        let files = disk.list("journal").unwrap().into_iter();
        files.map(|name| disk.open(&format!("journal/{name}")).unwrap().len().unwrap() >> 10).collect::<Vec<_>>()
    };
    let journal = open();
    assert_eq!(sizes(), [64]);
    let append = |journal: &FileJournal, len: usize| {
        let appended = journal.append(Class::User, &[&vec![7; len]]).unwrap();
        journal.wait(appended.end).unwrap();
        journal.prepare().unwrap();
        appended.frame
    };
    let mut frames = vec![append(&journal, 10)];
    assert_eq!(sizes(), [64, 64], "the reserve of a little used journal is small");
    frames.extend((0..400).map(|_| append(&journal, 10_000)));
    let grown = sizes();
    assert_eq!(grown[..2], [64, 512], "{grown:?}");
    assert!(grown[2..].iter().all(|size| *size == 1024), "{grown:?}");
    journal.close().unwrap();
    // Recovery and another opening know what to do with all of them.
    let again = open();
    let want: Vec<_> = frames.iter().map(|frame| frame.len as usize).collect();
    let read = again.read(&frames).wait().unwrap();
    assert_eq!(read.iter().map(bytes::Bytes::len).collect::<Vec<_>>(), want);

    let dir = folder();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir.path()).unwrap());
    let nothing = &mut |_, _| Ok::<(), Infallible>(());
    let journal = FileJournal::open(disk, options, Bounds::default(), nothing).unwrap();
    append(&journal, 10);
    let large = append(&journal, 900_000);
    assert_eq!(journal.read(&[large]).wait().unwrap()[0].len(), 900_000);
    journal.close().unwrap();
}
