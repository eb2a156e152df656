//! Segments: made ahead, recycled, held, and what happens when there is no space for more.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::Disk;
use thalweg_journal::{AppendError, Bounds, Class, FileJournal, Journal, Options};
use thalweg_sim::SimDisk;

fn options() -> Options {
    Options { segment_bytes: 16 << 10, max_payload: 4 << 10, spare_segments: 1, ..Options::default() }
}

fn open(disk: &SimDisk, floor: Lsn) -> FileJournal {
    FileJournal::open(Arc::new(disk.clone()), options(), Bounds { floor, ..Bounds::default() }, &mut |_, _| {
        Ok::<(), Infallible>(())
    })
    .unwrap()
}

fn fill(journal: &FileJournal, class: Class) -> (usize, AppendError) {
    for n in 0.. {
        match journal.append(class, &[&[7; 1000]]) {
            Ok(appended) => journal.wait(appended.end).unwrap(),
            Err(e) => return (n, e),
        }
    }
    unreachable!()
}

#[test]
fn on_a_full_disk_upkeep_goes_on_and_a_trim_helps_users() {
    let disk = SimDisk::new(1);
    let journal = open(&disk, Lsn::ZERO);
    disk.capacity(5 * (16 << 10));
    journal.prepare().unwrap();
    loop {
        match journal.append(Class::User, &[&[7; 1000]]) {
            Ok(appended) => journal.wait(appended.end).unwrap(),
            Err(e) => break assert_eq!(e, AppendError::NoSpace),
        }
        let _ = journal.prepare();
    }
    let (accepted, refused) = fill(&journal, Class::Upkeep);
    assert!(accepted >= 10, "a whole segment is held back for upkeep: {accepted}");
    assert_eq!(refused, AppendError::NoSpace);
    // The second try starts on what the reserve left over.
    assert_eq!(fill(&journal, Class::User), (0, AppendError::NoSpace));
    assert!(journal.poisoned().is_none());
    journal.trim(journal.end());
    journal.prepare().unwrap();
    assert!(fill(&journal, Class::User).0 >= 10);
}

#[test]
fn a_journal_restarts_on_a_full_disk() {
    let disk = SimDisk::new(1);
    let journal = open(&disk, Lsn::ZERO);
    journal.prepare().unwrap();
    let floor = journal.append(Class::User, &[b"x"]).unwrap().end;
    journal.close().unwrap();
    let used: usize = disk.cached().values().map(Vec::len).sum();
    disk.capacity(used as u64);
    for _ in 0..5 {
        disk.crash_power();
        let journal = open(&disk, floor);
        journal.append(Class::Upkeep, &[b"a delete"]).unwrap();
    }
}

#[test]
fn trimmed_segments_are_recycled_and_files_stay_few() {
    let disk = SimDisk::new(1);
    let journal = open(&disk, Lsn::ZERO);
    for n in 0..500u32 {
        let appended = journal.append(Class::User, &[&n.to_le_bytes(), &[7; 1000]]).unwrap();
        journal.wait(appended.end).unwrap();
        journal.trim(appended.frame.lsn);
        journal.prepare().unwrap();
        assert!(disk.files().len() <= 6, "{:?}", disk.files());
    }
    let syncs = journal.stats().syncs;
    assert!((500..600).contains(&syncs), "{syncs}");
    disk.crash_power();
    let mut seen = 0;
    let start = journal.start();
    let again = FileJournal::open(
        Arc::new(disk),
        options(),
        Bounds { floor: start, ..Bounds::default() },
        &mut |_, payload| {
            seen = u32::from_le_bytes(payload[..4].try_into().unwrap());
            Ok::<(), Infallible>(())
        },
    );
    assert_eq!((seen, again.unwrap().start()), (499, start));
}

#[test]
fn a_held_segment_outlives_its_trim() {
    let disk = SimDisk::new(1);
    let journal = open(&disk, Lsn::ZERO);
    let first = journal.append(Class::User, &[b"held"]).unwrap().frame;
    fill_one_segment(&journal);
    let held = journal.hold(first.lsn).unwrap();
    journal.trim(journal.end());
    for _ in 0..10 {
        journal.prepare().unwrap();
        fill_one_segment(&journal);
        journal.trim(journal.end());
        assert_eq!(held.read(&[first]).unwrap(), [b"held".as_slice()]);
    }
    assert!(journal.hold(first.lsn).is_none());
    let files = disk.files().len();
    drop(held);
    journal.prepare().unwrap();
    assert!(disk.files().len() < files, "the last reader lets it go");
}

fn fill_one_segment(journal: &FileJournal) {
    for _ in 0..14 {
        let appended = journal.append(Class::User, &[&[7; 1000]]).unwrap();
        journal.wait(appended.end).unwrap();
    }
}

#[test]
fn a_batch_without_space_waits_and_is_written_later() {
    let disk = SimDisk::new(1);
    let options = Options { reserve_segments: 0, ..options() };
    let journal =
        FileJournal::open(Arc::new(disk.clone()), options, Bounds::default(), &mut |_, _| Ok::<(), Infallible>(()));
    let journal = journal.unwrap();
    disk.capacity(16 << 10);
    let last = (0..20).map(|_| journal.append(Class::User, &[&[7; 1000]]).unwrap()).last().unwrap();
    while journal.step().unwrap() {}
    assert!(journal.durable() < last.end && journal.poisoned().is_none());
    assert_eq!(journal.close().unwrap_err().operation, "close");
    disk.capacity(u64::MAX);
    journal.wait(last.end).unwrap();
    assert!(disk.free().unwrap() > 0);
}

#[test]
fn a_limit_that_a_new_segment_meets_makes_appends_wait_and_breaks_nothing() {
    const EMFILE: i32 = 24;
    const EDQUOT: i32 = 122;
    for errno in [EMFILE, EDQUOT] {
        let disk = SimDisk::new(1);
        let journal = open(&disk, Lsn::ZERO);
        disk.no_new_files(Some(errno));
        let mut last = None;
        // Past the segment that is there, into one that only the disk has room for.
        for n in 0..20u8 {
            last = Some(journal.append(Class::User, &[&[n; 900]]).unwrap());
            while journal.step().unwrap() {}
        }
        let last = last.unwrap();
        assert!(journal.durable() < last.end && journal.poisoned().is_none());
        journal.prepare().unwrap_err();
        disk.no_new_files(None);
        journal.prepare().unwrap();
        journal.wait(last.end).unwrap();
        assert!(journal.durable() >= last.end);
    }
}
