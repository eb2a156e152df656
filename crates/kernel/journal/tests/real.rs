//! The journal on the operating system's files, with its thread.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_base::Lsn;
use thalweg_disk::RealDisk;
use thalweg_journal::{Class, Durability, FileJournal, Journal, Options, verify};

fn options() -> Options {
    Options { segment_bytes: 256 << 10, max_payload: 16 << 10, window_bytes: 64 << 10, ..Options::default() }
}

#[test]
fn many_writers_share_syncs_and_everything_comes_back() {
    let buffered = Durability::Buffered { sync_bytes: 32 << 10, sync_after: Duration::from_millis(2) };
    for durability in [Durability::Durable, buffered] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::open(dir.path()).unwrap());
        let options = Options { durability, ..options() };
        let nothing = &mut |_, _| Ok::<(), Infallible>(());
        let journal = Arc::new(FileJournal::open(disk.clone(), options, Lsn::ZERO, Lsn::ZERO, nothing).unwrap());
        journal.start_writer().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let background = {
            let (journal, done) = (Arc::clone(&journal), Arc::clone(&done));
            std::thread::spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    if journal.wants_prepare() {
                        journal.prepare().unwrap();
                    }
                    std::thread::yield_now();
                }
            })
        };
        let writers: Vec<_> = (0..4u8)
            .map(|writer| {
                let journal = Arc::clone(&journal);
                std::thread::spawn(move || {
                    let mut frames = Vec::new();
                    for n in 0..60u8 {
                        let round: Vec<_> = (0..5u8)
                            .map(|k| journal.append(Class::User, &[&[writer, n, k], &[n; 997]]).unwrap())
                            .collect();
                        journal.kick();
                        journal.wait(round[4].end).unwrap();
                        frames.extend(round.iter().map(|a| a.frame));
                    }
                    let read = journal.read(&frames).wait().unwrap();
                    assert!(read.iter().enumerate().all(|(i, p)| p[..3] == [writer, (i / 5) as u8, (i % 5) as u8]));
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::SeqCst);
        background.join().unwrap();
        journal.close().unwrap();
        let stats = journal.stats();
        assert_eq!(stats.frames, 1200);
        assert!(stats.batches <= 1200 && stats.syncs <= stats.batches + 20, "{stats:?}");
        let report = verify(disk.as_ref(), Lsn::ZERO, Lsn::ZERO);
        assert_eq!((report.frames, report.problem), (1200, None));
        let mut frames = 0;
        let known = journal.durable();
        FileJournal::open(disk, options, Lsn::ZERO, known, &mut |_, _| {
            frames += 1;
            Ok::<(), Infallible>(())
        })
        .unwrap();
        assert_eq!(frames, 1200);
    }
}

#[test]
fn an_idle_writer_says_that_all_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(dir.path()).unwrap());
    let nothing = &mut |_, _| Ok::<(), Infallible>(());
    let journal = Arc::new(FileJournal::open(disk, options(), Lsn::ZERO, Lsn::ZERO, nothing).unwrap());
    journal.start_writer().unwrap();
    let before = journal.stats().written_bytes;
    let appended = journal.append(Class::User, &[b"x"]).unwrap();
    journal.wait(appended.end).unwrap();
    // A batch of one frame, then a mark.
    while journal.stats().written_bytes < before + (24 + 8 + 1) + 24 {
        std::thread::yield_now();
    }
    journal.close().unwrap();
}
