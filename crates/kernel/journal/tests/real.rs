//! The journal on the operating system's files, with its thread.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_base::Durability;
use thalweg_disk::RealDisk;
use thalweg_journal::{Bounds, Class, FileJournal, Journal, Options, verify};

fn options() -> Options {
    Options { segment_bytes: 256 << 10, max_payload: 16 << 10, window_bytes: 64 << 10, ..Options::default() }
}

#[test]
fn many_writers_share_syncs_and_everything_comes_back() {
    // Which of five frames are durable.
    for durable in [0..5, 0..0, 2..3] {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::open(dir.path()).unwrap());
        let options = Options { sync_bytes: 32 << 10, sync_after: Duration::from_millis(2), ..options() };
        let nothing = &mut |_, _| Ok::<(), Infallible>(());
        let journal = Arc::new(FileJournal::open(disk.clone(), options, Bounds::default(), nothing).unwrap());
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
                let (journal, durable) = (Arc::clone(&journal), durable.clone());
                std::thread::spawn(move || {
                    let mut frames = Vec::new();
                    for n in 0..60u8 {
                        let round: Vec<_> = (0..5u8)
                            .map(|k| {
                                let buffered = !durable.contains(&k);
                                let durability = if buffered { Durability::Buffered } else { Durability::Durable };
                                journal.append_as(durability, Class::User, &[&[writer, n, k], &[n; 997]]).unwrap()
                            })
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
        let report = verify(disk.as_ref(), Bounds::default());
        assert_eq!((report.frames, report.problem), (1200, None));
        let mut frames = 0;
        let known = journal.durable();
        FileJournal::open(disk, options, Bounds { known_durable: known, ..Bounds::default() }, &mut |_, _| {
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
    let journal = Arc::new(FileJournal::open(disk, options(), Bounds::default(), nothing).unwrap());
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

#[test]
fn a_copy_of_held_files_recovers_exactly_what_was_synced_when_they_were_held() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(dir.path()).unwrap());
    let mut frames = Vec::new();
    let nothing = &mut |_, _| Ok::<(), Infallible>(());
    let journal = FileJournal::open(disk.clone(), options(), Bounds::default(), nothing).unwrap();
    let write = |n: u8| {
        let appended = journal.append(Class::User, &[&[n; 9_000]]).unwrap();
        journal.wait(appended.end).unwrap();
        journal.prepare().unwrap();
        appended
    };
    for n in 0..100 {
        frames.push(write(n).frame.lsn);
    }
    let floor = frames[40];
    journal.trim(floor);
    assert!(journal.hold_from(frames[0]).is_none(), "it is trimmed");
    let held = journal.hold_from(floor).unwrap();
    assert_eq!(held.end(), journal.durable());
    let files: Vec<_> = held.files().cloned().collect();
    assert!(files.len() > 2, "{files:?}");
    // All of it is trimmed and would be reused.
    let last = (100..250).map(write).last().unwrap();
    journal.trim(last.end);
    journal.prepare().unwrap();

    let copied = tempfile::tempdir().unwrap();
    std::fs::create_dir(copied.path().join("journal")).unwrap();
    for file in &files {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < file.bytes {
            bytes.extend_from_slice(&held.read(&file.path, bytes.len() as u64, 10_000).unwrap());
        }
        assert_eq!(bytes.len() as u64, file.bytes);
        assert!(held.read(&file.path, file.bytes, 10).unwrap().is_empty());
        std::fs::write(copied.path().join(&file.path), bytes).unwrap();
    }
    let copy = Arc::new(RealDisk::open(copied.path()).unwrap());
    let report = verify(&*copy, Bounds { floor, known_durable: held.end(), ..Bounds::default() });
    assert_eq!((report.problem, report.end, report.frames), (None, held.end(), 60));
    assert_eq!(
        report.files.iter().map(|f| &f.path).collect::<Vec<_>>(),
        files.iter().map(|f| &f.path).collect::<Vec<_>>()
    );
    let mut replayed = Vec::new();
    let journal = FileJournal::open(
        copy,
        options(),
        Bounds { floor, known_durable: held.end(), ..Bounds::default() },
        &mut |frame, payload| {
            assert!(payload.iter().all(|b| *b == payload[0]));
            replayed.push(frame.lsn);
            Ok::<(), Infallible>(())
        },
    );
    assert_eq!(journal.unwrap().durable(), held.end());
    assert_eq!(replayed, frames[40..]);
}

#[test]
fn a_buffered_frame_is_written_by_who_kicks_and_synced_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::open(dir.path()).unwrap());
    let options = Options { sync_after: Duration::from_millis(300), ..options() };
    let nothing = &mut |_, _| Ok::<(), Infallible>(());
    let journal = Arc::new(FileJournal::open(disk, options, Bounds::default(), nothing).unwrap());
    journal.prepare().unwrap();
    let first = journal.append(Class::User, &[b"the segment is open"]).unwrap();
    journal.start_writer().unwrap();
    journal.wait(first.end).unwrap();
    let before = journal.stats().syncs;
    let frame = journal.append_as(Durability::Buffered, Class::User, &[b"x"]).unwrap();
    let began = std::time::Instant::now();
    journal.kick();
    while journal.written() < frame.end {
        assert!(began.elapsed() < Duration::from_secs(5), "it is written by whoever has the lock");
    }
    assert!(began.elapsed() > Duration::from_millis(250) || journal.stats().syncs == before, "nobody asked for a sync");
    while journal.durable() < frame.end {
        assert!(began.elapsed() < Duration::from_secs(5), "it is synced after a while");
        std::thread::sleep(Duration::from_millis(5));
    }
    // A durable frame behind it is not kept waiting.
    journal.append_as(Durability::Buffered, Class::User, &[b"y"]).unwrap();
    let durable = journal.append(Class::User, &[b"z"]).unwrap();
    let began = std::time::Instant::now();
    journal.kick();
    journal.wait(durable.end).unwrap();
    assert!(began.elapsed() < Duration::from_millis(250), "{:?}", began.elapsed());
    journal.close().unwrap();
}
