//! Segments: made ahead, recycled, held, and refused without space.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use thalweg_base::Lsn;
use thalweg_disk::{Disk, File};
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
    let last = (0..20).map(|_| journal.append(Class::User, &[&[7; 1000]]).unwrap()).last().unwrap();
    // Others take the space that was there when the frames were accepted.
    disk.capacity(16 << 10);
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

/// With the sizes that ship: the first segment has 64 KiB.
fn open_growing(disk: impl Disk, reserve_segments: usize) -> FileJournal {
    let options = Options { reserve_segments, ..Options::default() };
    FileJournal::open(Arc::new(disk), options, Bounds::default(), &mut |_, _| Ok::<(), Infallible>(())).unwrap()
}

fn used(disk: &SimDisk) -> u64 {
    disk.cached().values().map(|bytes| bytes.len() as u64).sum()
}

/// Makes a frame durable, and with it the journal one that is used.
fn append_durably(journal: &FileJournal, class: Class, len: usize) {
    let appended = journal.append(class, &[&vec![7; len]]).unwrap();
    journal.wait(appended.end).unwrap();
}

#[test]
fn a_large_frame_is_accepted_as_soon_as_the_disk_has_space_for_it() {
    const LARGE: usize = 3 << 19;
    let disk = SimDisk::new(1);
    disk.capacity(1 << 20);
    let journal = open_growing(disk.clone(), 1);
    assert_eq!(journal.append(Class::User, &[&vec![7; LARGE]]), Err(AppendError::NoSpace));
    disk.capacity(u64::MAX);
    append_durably(&journal, Class::User, LARGE);
    assert!(journal.poisoned().is_none());
}

#[test]
fn a_large_frame_is_refused_once_others_have_taken_the_space_and_the_reserve_stays() {
    let disk = SimDisk::new(1);
    let journal = open_growing(disk.clone(), 1);
    append_durably(&journal, Class::User, 10);
    journal.prepare().unwrap();
    disk.capacity(used(&disk));
    for class in [Class::User, Class::Upkeep] {
        assert_eq!(journal.append(class, &[&vec![7; 2 << 20]]), Err(AppendError::NoSpace));
    }
    let (accepted, refused) = fill(&journal, Class::Upkeep);
    assert!(accepted > 110, "the rest of a segment and the reserve are for deletes: {accepted}");
    assert_eq!(refused, AppendError::NoSpace);
}

#[test]
fn the_reserve_stays_until_the_file_for_a_large_frame_is_there() {
    let disk = SimDisk::new(1);
    let journal = open_growing(disk.clone(), 1);
    append_durably(&journal, Class::User, 10);
    journal.prepare().unwrap();
    let large = journal.append(Class::User, &[&vec![7; 2 << 20]]).unwrap();
    // Others take the space between the acceptance and the write.
    disk.capacity(used(&disk));
    let files = disk.files();
    while journal.step().unwrap() {}
    assert!(journal.durable() < large.end && journal.poisoned().is_none());
    assert_eq!(disk.files(), files, "nothing is removed for a file that cannot be made");
    disk.capacity(u64::MAX);
    journal.wait(large.end).unwrap();
    journal.close().unwrap();
    drop(journal);
    disk.crash_power();
    assert!(open_growing(disk, 1).opened().end >= large.end);
}

#[test]
fn a_small_blank_does_not_count_for_a_large_frame() {
    const LARGE: usize = 7 << 19;
    let disk = SimDisk::new(1);
    let journal = open_growing(disk.clone(), 1);
    append_durably(&journal, Class::User, 10);
    journal.prepare().unwrap();
    // Room for one segment of 4 MiB.
    disk.capacity(used(&disk) + (5 << 20));
    let first = journal.append(Class::Upkeep, &[&vec![7; LARGE]]).unwrap();
    journal.prepare().unwrap();
    assert_eq!(journal.append(Class::Upkeep, &[&vec![7; LARGE]]), Err(AppendError::NoSpace));
    journal.wait(first.end).unwrap();
}

/// Does not remove files while it is told not to.
struct Stubborn {
    disk: SimDisk,
    keeps: Arc<AtomicBool>,
}

impl Disk for Stubborn {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.disk.create(path)
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        if self.keeps.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.disk.remove(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn free(&self) -> io::Result<u64> {
        self.disk.free()
    }
}

#[test]
fn a_blank_that_finds_no_space_leaves_no_file() {
    let disk = SimDisk::new(1);
    let journal = open(&disk, Lsn(0));
    append_durably(&journal, Class::User, 1000);
    let before = disk.list("journal").unwrap();
    // Room for the name and half of the zeros.
    disk.capacity(used(&disk) + (8 << 10));
    journal.prepare().unwrap_err();
    assert_eq!(disk.list("journal").unwrap(), before);
    disk.capacity(u64::MAX);
    journal.prepare().unwrap();
    assert_ne!(disk.list("journal").unwrap(), before);
}

#[test]
fn blanks_that_cannot_be_removed_for_larger_ones_are_used() {
    const EMFILE: i32 = 24;
    let (disk, keeps) = (SimDisk::new(1), Arc::new(AtomicBool::new(false)));
    let journal = open_growing(Stubborn { disk: disk.clone(), keeps: Arc::clone(&keeps) }, 2);
    append_durably(&journal, Class::User, 10);
    journal.prepare().unwrap();
    // Half of the segment is used: larger blanks are wanted.
    append_durably(&journal, Class::User, 40_000);
    keeps.store(true, Ordering::SeqCst);
    journal.prepare().unwrap_err();
    disk.no_new_files(Some(EMFILE));
    for _ in 0..2 {
        append_durably(&journal, Class::Upkeep, 40_000);
    }
    assert!(journal.poisoned().is_none());
    keeps.store(false, Ordering::SeqCst);
    disk.no_new_files(None);
    journal.prepare().unwrap();
    append_durably(&journal, Class::User, 40_000);
    let end = journal.end();
    drop(journal);
    disk.crash_power();
    assert_eq!(open_growing(disk, 2).opened().end, end);
}

#[test]
fn subscribers_learn_that_a_batch_waits_for_space_and_one_preparation_lets_it_go_on() {
    let disk = SimDisk::new(1);
    let journal = open_growing(disk.clone(), 0);
    let told = Arc::new(AtomicUsize::new(0));
    let times = Arc::clone(&told);
    journal.subscribe(Arc::new(move || {
        times.fetch_add(1, Ordering::SeqCst);
    }));
    // Nothing was written before: the journal is not in use.
    let large = journal.append(Class::User, &[&vec![7; 1 << 20]]).unwrap();
    disk.capacity(used(&disk));
    assert!(!journal.step().unwrap());
    assert_eq!(told.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        assert!(journal.wants_prepare());
        // No file can be made; where it can, the error is of a spare one.
        let _ = journal.prepare();
        assert!(!journal.step().unwrap());
    }
    assert_eq!(told.load(Ordering::SeqCst), 1, "each attempt is made because of what was told: it tells nothing new");
    disk.capacity(u64::MAX);
    journal.prepare().unwrap();
    while journal.step().unwrap() {}
    assert!(journal.durable() >= large.end);
}

#[test]
fn a_batch_that_waits_for_space_is_written_by_the_pool_after_a_preparation() {
    let disk = SimDisk::new(1);
    let journal = Arc::new(open_growing(disk.clone(), 0));
    let large = journal.append(Class::User, &[&vec![7; 1 << 20]]).unwrap();
    disk.capacity(used(&disk));
    journal.start_writer().unwrap();
    journal.wait_unless_full(large.end).unwrap_err();
    disk.capacity(u64::MAX);
    while journal.wants_prepare() {
        journal.prepare().unwrap();
        std::thread::yield_now();
    }
    journal.wait(large.end).unwrap();
    journal.close().unwrap();
}

/// Appends 1,000 bytes a hundred times or until it is refused, without a kick, then waits until all but the last `open`
/// frames are durable.
fn append_without_a_kick(options: Options, open: usize) {
    let journal = Arc::new(
        FileJournal::open(Arc::new(SimDisk::new(1)), options, Bounds::default(), &mut |_, _| Ok::<(), Infallible>(()))
            .unwrap(),
    );
    journal.start_writer().unwrap();
    // Until the writer has given its thread back: one that pauses looks once more.
    while Arc::strong_count(&journal) > 1 {
        std::thread::yield_now();
    }
    let append = |_| journal.append(Class::User, &[&[7; 1000]]).ok();
    let ends: Vec<Lsn> = (0..100).map_while(append).map(|appended| appended.end).collect();
    let end = ends[ends.len() - 1 - open];
    let began = Instant::now();
    while journal.durable() < end {
        assert!(began.elapsed() < Duration::from_secs(10), "{} of {end} is durable", journal.durable());
        std::thread::yield_now();
    }
    journal.close().unwrap();
}

#[test]
fn what_fills_the_journal_is_written_without_a_kick_when_the_next_append_is_refused() {
    // All of it fits the first segment, and the batch in which it gathers.
    let options = Options { bound_bytes: 10_000, ..Options::default() };
    append_without_a_kick(options, 0);
}

#[test]
fn batches_that_are_whole_are_written_without_a_kick() {
    // The last batch, of four frames at most, waits for a kick.
    append_without_a_kick(Options { batch_bytes: 4_000, ..Options::default() }, 4);
}

#[test]
fn a_panic_of_the_writer_stops_the_journal() {
    let journal = Arc::new(open_growing(SimDisk::new(1), 0));
    let panics = AtomicBool::new(true);
    journal.subscribe(Arc::new(move || assert!(!panics.swap(false, Ordering::SeqCst), "planted")));
    journal.start_writer().unwrap();
    let first = journal.append(Class::User, &[b"first"]).unwrap();
    let _ = journal.wait(first.end);
    // Accepted before the failure is known, or refused.
    let second = journal.append(Class::User, &[b"second"]).map(|appended| journal.wait(appended.end));
    assert!(!matches!(second, Ok(Ok(()))), "{second:?}");
    assert!(journal.poisoned().is_some());
}
