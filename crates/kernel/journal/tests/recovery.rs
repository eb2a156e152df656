//! Opening a journal in folders of every kind: torn, damaged, incomplete, or from another version.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use std::convert::Infallible;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::Disk;
use thalweg_journal::{
    Appended, Bounds, Class, FileJournal, FrameRef, Inspection, Journal, JournalDamage, OpenError, Options, ReadError,
    verify,
};
use thalweg_sim::SimDisk;

const HEADER: u64 = 4096;

fn options() -> Options {
    Options { segment_bytes: 16 << 10, max_payload: 4 << 10, ..Options::default() }
}

type Frames = Vec<(FrameRef, Bytes)>;

fn open_at(disk: &SimDisk, floor: Lsn, known: Lsn) -> Result<(FileJournal, Frames), OpenError<Infallible>> {
    let mut frames = Vec::new();
    let journal = FileJournal::open(
        Arc::new(disk.clone()),
        options(),
        Bounds { floor, known_durable: known, term: 0 },
        &mut |frame, payload| {
            frames.push((frame, payload));
            Ok(())
        },
    )?;
    Ok((journal, frames))
}

fn open(disk: &SimDisk) -> (FileJournal, Frames) {
    open_at(disk, Lsn::ZERO, Lsn::ZERO).unwrap()
}

fn append(journal: &FileJournal, payload: &[u8]) -> Appended {
    let appended = journal.append(Class::User, &[payload]).unwrap();
    journal.wait(appended.end).unwrap();
    appended
}

fn newest(disk: &SimDisk) -> String {
    disk.files().into_iter().filter(|f| disk.cached()[f].starts_with(b"THALWEGJ")).max().unwrap()
}

/// Flips a bit of the byte that `lsn` stands at, in the segment `path` with this base.
fn damage(disk: &SimDisk, path: &str, at: u64) {
    let file = disk.open(path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 4], at).unwrap();
    file.sync().unwrap();
}

fn corrupt_at(disk: &SimDisk) -> Lsn {
    let report = verify(disk, Bounds::default());
    match open_at(disk, Lsn::ZERO, Lsn::ZERO) {
        Err(OpenError::Corrupt { at, .. }) => {
            assert!(report.problem.is_some(), "the checker agrees");
            at
        }
        Ok((_, frames)) => panic!("opened with {} frames", frames.len()),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_new_journal_is_empty_and_reopens() {
    let disk = SimDisk::new(1);
    for _ in 0..5 {
        let (journal, frames) = open(&disk);
        assert!(frames.is_empty());
        assert_eq!((journal.end(), journal.durable(), journal.start()), (Lsn::ZERO, Lsn::ZERO, Lsn::ZERO));
        disk.crash_power();
    }
    assert!(disk.files().len() <= 5, "restarts leave no files behind: {:?}", disk.files());
}

#[test]
fn frames_come_back_from_the_floor_on() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let appended: Vec<_> = (0..60u8).map(|n| append(&journal, &[n; 900])).collect();
    journal.close().unwrap();
    let (_, frames) = open(&disk);
    assert_eq!(frames.len(), 60);
    assert!(frames.iter().zip(&appended).enumerate().all(|(n, (f, a))| f.0 == a.frame && f.1 == [n as u8; 900][..]));
    let (_, frames) = open_at(&disk, appended[40].frame.lsn, appended[59].end).unwrap();
    assert_eq!(frames.len(), 20);
    assert_eq!(frames[0].0, appended[40].frame);
}

#[test]
fn recovered_frames_are_durable_even_after_a_failed_sync() {
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        let (journal, _) = open(&disk);
        journal.append(Class::User, &[&[7; 3000]]).unwrap();
        disk.fail_next_sync();
        journal.step().unwrap_err();
        disk.crash_kill();
        let (_, frames) = open(&disk);
        assert_eq!(frames.len(), 1, "the page cache shows it");
        disk.crash_power();
        assert_eq!(open(&disk).1.len(), 1, "and recovery wrote it again");
    }
}

#[test]
fn damage_to_the_last_batch_is_a_torn_tail_until_a_mark_says_otherwise() {
    for marked in [false, true] {
        let disk = SimDisk::new(1);
        let (journal, _) = open(&disk);
        append(&journal, b"one");
        let last = append(&journal, b"two").frame.lsn;
        if marked {
            assert!(journal.mark().unwrap());
            assert!(!journal.mark().unwrap(), "once per pause");
        }
        disk.crash_kill();
        damage(&disk, &newest(&disk), HEADER + last.0 + 9);
        if marked {
            assert_eq!(corrupt_at(&disk), last);
        } else {
            assert_eq!(open(&disk).1.len(), 1);
        }
    }
}

#[test]
fn who_knows_better_is_believed() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let one = append(&journal, b"one");
    let two = append(&journal, b"two");
    disk.crash_kill();
    damage(&disk, &newest(&disk), HEADER + two.frame.lsn.0 + 9);
    let at = |floor, known| match open_at(&disk, floor, known) {
        Err(OpenError::Corrupt { at, .. }) => Some(at),
        _ => None,
    };
    assert_eq!(at(Lsn::ZERO, two.end), Some(two.frame.lsn));
    assert_eq!(at(two.end, Lsn::ZERO), Some(two.frame.lsn));
    assert_eq!(at(Lsn::ZERO, one.end), None);
}

#[test]
fn damage_below_the_floor_is_passed_over_and_named() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let frames: Vec<_> = (0..9u8).map(|n| append(&journal, &[n; 400])).collect();
    journal.close().unwrap();
    let path = newest(&disk);
    for (damaged, floor) in [(1, 4), (2, 4), (1, 8), (3, 9)] {
        let (bad, end) = (frames[damaged].frame, frames[8].end);
        // In the frame, and in the header of its batch.
        for place in [100, -20_i64] {
            let fork = disk.fork();
            damage(&fork, &path, (HEADER + bad.lsn.0).strict_add_signed(place));
            let floor = frames.get(floor).map_or(end, |appended| appended.frame.lsn);
            // The floor may lie anywhere.
            for floor in [floor, floor.plus(3)].into_iter().filter(|floor| *floor <= end) {
                let bounds = Bounds { floor, known_durable: end, term: 1 };
                let report = verify(&fork, bounds);
                assert!(report.problem.is_none() && !report.damage.is_empty(), "{report:?}");
                let (journal, replayed) = open_at(&fork.fork(), floor, end).unwrap();
                let expected: Vec<_> = frames.iter().map(|a| a.frame).filter(|frame| frame.lsn >= floor).collect();
                assert_eq!(replayed.iter().map(|(frame, _)| *frame).collect::<Vec<_>>(), expected);
                let more = append(&journal, b"more");
                assert_eq!(journal.read(&[more.frame]).wait().unwrap(), ["more"]);
            }
            // Damage of a frame that is needed is refused as before.
            assert!(matches!(open_at(&fork, bad.lsn, end), Err(OpenError::Corrupt { .. })));
        }
    }
}

#[test]
fn a_floor_beyond_the_end_is_corruption() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    append(&journal, b"one");
    journal.close().unwrap();
    assert!(matches!(open_at(&disk, Lsn(5000), Lsn::ZERO), Err(OpenError::Corrupt { .. })));
    assert!(matches!(open_at(&SimDisk::new(1), Lsn(1), Lsn::ZERO), Err(OpenError::Corrupt { .. })));
    assert!(matches!(open_at(&SimDisk::new(1), Lsn::ZERO, Lsn(1)), Err(OpenError::Corrupt { .. })));
}

#[test]
fn damage_in_the_middle_is_corruption_wherever_it_is() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let frames: Vec<_> = (0..40u8).map(|n| append(&journal, &[n; 900]).frame).collect();
    journal.close().unwrap();
    let segments: Vec<_> = disk.files().into_iter().filter(|f| open_base(&disk, f).is_some()).collect();
    assert!(segments.len() >= 3);
    for frame in &frames {
        let fork = disk.fork();
        let path = segments.iter().rfind(|f| open_base(&disk, f).unwrap() <= frame.lsn.0).unwrap();
        damage(&fork, path, HEADER + frame.lsn.0 - open_base(&disk, path).unwrap() + 100);
        assert_eq!(corrupt_at(&fork), frame.lsn);
    }
    for path in &segments {
        let fork = disk.fork();
        damage(&fork, path, 30);
        // Before it is opened, since that writes the last segment's header again.
        let both = fork.fork();
        assert_eq!(open(&fork).1.len(), frames.len(), "the other copy of its header is whole");
        damage(&both, path, 2048 + 30);
        corrupt_at(&both);
    }
}

/// The base of a segment whose name agrees with its header.
fn open_base(disk: &SimDisk, path: &str) -> Option<u64> {
    let bytes = &disk.cached()[path];
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (bytes.starts_with(b"THALWEGJ") && path.contains(&format!("{:016}", field(16)))).then(|| field(24))
}

#[test]
fn a_torn_tail_is_discarded_even_if_whole_frames_follow() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    append(&journal, b"one");
    // A batch that was not acknowledged: its first frame is damaged, the second one is whole.
    let torn = journal.append(Class::User, &[&[1; 600]]).unwrap().frame;
    let whole = journal.append(Class::User, &[&[2; 600]]).unwrap().frame;
    assert!(journal.begin().unwrap());
    disk.crash_kill();
    damage(&disk, &newest(&disk), HEADER + torn.lsn.0 + 20);
    let report = verify(&disk, Bounds::default());
    assert!(report.problem.is_none() && report.damage.is_empty(), "it is no damage: {report:?}");
    let (journal, frames) = open(&disk);
    assert_eq!(inspect(&journal), [], "nor is it later");
    assert_eq!(frames.len(), 1);
    assert_eq!(journal.end(), torn.lsn);
    assert!(matches!(journal.read(&[whole]).wait(), Err(ReadError::NotWritten(_))));
    let two = append(&journal, b"two");
    assert!(two.frame.lsn >= torn.lsn);
    disk.crash_kill();
    let (_, frames) = open(&disk);
    assert_eq!(frames.iter().map(|f| &f.1[..]).collect::<Vec<_>>(), [&b"one"[..], b"two"]);
}

#[test]
fn a_newer_format_is_refused() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    journal.close().unwrap();
    let path = newest(&disk);
    let mut head = disk.cached()[&path][..56].to_vec();
    head[8] = 9;
    head.extend(thalweg_base::crc(&head).to_le_bytes());
    for copy in [0, 2048] {
        disk.open(&path).unwrap().write_at(&head, copy).unwrap();
    }
    assert!(matches!(open_at(&disk, Lsn::ZERO, Lsn::ZERO), Err(OpenError::Version { found: 9, .. })));
}

#[test]
fn a_refusing_owner_stops_recovery() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let at = append(&journal, b"one").frame.lsn;
    journal.close().unwrap();
    let refused = FileJournal::open(Arc::new(disk), options(), Bounds::default(), &mut |_, _| Err("no"));
    assert!(matches!(refused, Err(OpenError::Replay { at: a, error: "no" }) if a == at));
}

#[test]
fn a_closed_journal_accepts_nothing() {
    let (journal, _) = open(&SimDisk::new(1));
    journal.close().unwrap();
    journal.append(Class::Upkeep, &[b"x"]).unwrap_err();
}

/// Segments whose name agrees with their header, oldest first.
fn segments(disk: &SimDisk) -> Vec<String> {
    disk.files().into_iter().filter(|f| open_base(disk, f).is_some()).collect()
}

/// A journal of several segments, with blanks behind the last, whose process was killed.
fn killed(frames: u8) -> SimDisk {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    for n in 0..frames {
        append(&journal, &[n; 900]);
        journal.prepare().unwrap();
    }
    disk.crash_kill();
    assert!(segments(&disk).len() >= 3 && segments(&disk).len() < disk.files().len());
    disk
}

fn proof(disk: &SimDisk, bounds: Bounds) -> String {
    match FileJournal::open(Arc::new(disk.fork()), options(), bounds, &mut |_, _| Ok::<(), Infallible>(())) {
        Err(OpenError::Corrupt { proof, .. }) => {
            assert_eq!(verify(disk, bounds).problem.map(|problem| problem.contains(&proof)), Some(true));
            proof
        }
        Ok(journal) => panic!("opened, up to {}", journal.end()),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_segment_that_is_lost_shows_by_the_hole_that_it_leaves() {
    let disk = killed(40);
    for path in segments(&disk) {
        let fork = disk.fork();
        fork.lose(&path);
        let said = proof(&fork, Bounds { floor: Lsn::ZERO, ..Bounds::default() });
        assert!(said.contains("missing") || said.contains("is there") || said.contains("needed position"), "{said}");
    }
}

#[test]
fn a_segment_that_was_emptied_shows_by_the_whole_one_behind_it() {
    let disk = killed(40);
    let last = segments(&disk).pop().unwrap();
    for len in [0, 100, HEADER + 10] {
        let fork = disk.fork();
        let file = fork.open(&last).unwrap();
        file.set_len(0).unwrap();
        file.set_len(len).unwrap();
        assert!(proof(&fork, Bounds::default()).contains("is cut short"));
    }
}

#[test]
fn an_owner_that_knows_the_term_misses_all_segments_of_it() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    append(&journal, b"one");
    assert_eq!(journal.term(), 1);
    disk.crash_kill();
    let (journal, _) = open(&disk);
    append(&journal, b"two");
    let bounds = Bounds { term: journal.term(), ..Bounds::default() };
    disk.crash_kill();
    let whole = FileJournal::open(Arc::new(disk.fork()), options(), bounds, &mut |_, _| Ok::<(), Infallible>(()));
    assert_eq!(whole.unwrap().term(), 3);
    // An older copy of the folder equals this state, too.
    disk.lose(&segments(&disk)[1]);
    assert!(proof(&disk, bounds).contains("later ones are missing"));
}

#[test]
fn an_owner_whose_term_is_not_above_all_on_the_disk_is_refused_and_changes_nothing() {
    let disk = SimDisk::new(1);
    let open = |disk: &SimDisk, term: u64, known: u64| {
        let options = Options { term, ..options() };
        let bounds = Bounds { term: known, ..Bounds::default() };
        FileJournal::open(Arc::new(disk.clone()), options, bounds, &mut |_, _| Ok::<(), Infallible>(()))
    };
    let journal = open(&disk, 7, 0).unwrap();
    append(&journal, b"one");
    assert_eq!(journal.term(), 7);
    drop(journal);
    let before = disk.cached();
    for (term, known, by) in [(7, 0, 7), (3, 0, 7), (7, 7, 7)] {
        let refused = open(&disk, term, known);
        assert!(matches!(refused, Err(OpenError::Fenced(fenced)) if (fenced.term, fenced.by) == (term, by)));
    }
    assert_eq!(disk.cached(), before);
    assert_eq!(FileJournal::newest_term::<Infallible>(&disk).unwrap(), 7);
    assert_eq!(open(&disk, 8, 7).unwrap().term(), 8);
}

#[test]
fn an_owner_of_a_folder_that_another_has_opened_stops_at_its_next_segment_at_the_latest() {
    let disk = SimDisk::new(1);
    let (old, _) = open(&disk);
    append(&old, b"one");
    // As if no lock had kept them apart.
    let (new, _) = open(&disk);
    let stopped = (0..100u8).find_map(|n| {
        let appended = old.append(Class::User, &[&[n; 900]]).ok()?;
        old.wait(appended.end).err()
    });
    let fenced = stopped.unwrap().fenced.unwrap();
    assert_eq!((fenced.term, fenced.by), (old.term(), new.term()));
    assert!(old.append(Class::Upkeep, &[b"more"]).is_err());
}

#[test]
fn what_is_discarded_is_said_with_its_place_and_size() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    append(&journal, b"one");
    let last = append(&journal, &[7; 500]).frame;
    disk.crash_kill();
    assert_eq!(open_at(&disk.fork(), Lsn::ZERO, Lsn::ZERO).unwrap().0.opened().discarded, None);
    let path = newest(&disk);
    // The batch's first bytes, its header, the frame's header, its payload.
    for at in [last.lsn.0 - 24, last.lsn.0 - 10, last.lsn.0 + 1, last.lsn.0 + 400] {
        let fork = disk.fork();
        damage(&fork, &path, HEADER + at);
        let told = verify(&fork, Bounds::default()).discarded;
        let (journal, frames) = open(&fork);
        assert_eq!(frames.len(), 1);
        let discarded = journal.opened().discarded.unwrap();
        assert_eq!(told, Some(discarded), "the checker says the same");
        assert_eq!(discarded.at, journal.opened().end);
        let from = discarded.at.0;
        assert_eq!(from + discarded.bytes, last.end().0, "damage at {at}");
    }
}

#[test]
fn a_payload_cannot_pass_for_a_batch_that_proves_damage() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    append(&journal, b"one");
    // A client that knows the format and guesses number, term and position fills a message with headers that claim a
    // later durable position.
    let base = journal.end().0 + 24 + 8;
    let forged = |n: u64, number: u64| {
        let at = base + n * 24;
        let mut fields = vec![1, 0, 0, 0, 24, 0, 0, 0];
        fields.extend(at.to_le_bytes());
        let crc = [&fields[..], &number.to_le_bytes(), &at.to_le_bytes()].concat();
        [&b"THb1"[..], &thalweg_base::crc(&crc).to_le_bytes(), &fields].concat()
    };
    let payload: Vec<u8> = (0..100).flat_map(|n| forged(n, 1)).collect();
    let torn = journal.append(Class::User, &[&payload]).unwrap().frame;
    assert!(journal.begin().unwrap());
    disk.crash_kill();
    damage(&disk, &newest(&disk), HEADER + torn.lsn.0 + 3);
    let (journal, frames) = open(&disk);
    assert_eq!((frames.len(), journal.end()), (1, torn.lsn));
}

#[test]
fn a_payload_counts_with_the_batch_that_it_keeps() {
    let disk = SimDisk::new(1);
    let small = Options { window_bytes: 2_000, ..options() };
    let journal =
        FileJournal::open(Arc::new(disk), small, Bounds::default(), &mut |_, _| Ok::<(), Infallible>(())).unwrap();
    // One batch: a few bytes and many.
    let little = journal.append(Class::User, &[b"little"]).unwrap().frame;
    let much = journal.append(Class::User, &[&[7; 1_500]]).unwrap();
    journal.wait(much.end).unwrap();
    let payload = journal.try_read(&[little]).unwrap().unwrap().remove(0);
    assert_eq!(journal.pinned_bytes(), 0, "the window has it anyway");
    let next = append(&journal, &[8; 1_500]).frame;
    assert!((1_500..1_700).contains(&journal.pinned_bytes()), "{}", journal.pinned_bytes());
    // A frame that was read from the file keeps the whole buffer of that read.
    let again = journal.read(&[little, much.frame]).wait().unwrap().remove(0);
    assert!(journal.pinned_bytes() > 3_000);
    drop(payload);
    drop(again);
    assert_eq!(journal.pinned_bytes(), 0);
    assert_eq!(journal.try_read(&[next]).unwrap().unwrap()[0], [8; 1_500][..]);
}

#[test]
fn a_large_frame_that_is_wanted_piece_by_piece_is_read_once() {
    let disk = SimDisk::new(1);
    let large = Options { segment_bytes: 4 << 20, max_payload: 2 << 20, window_bytes: 2_000, ..options() };
    let journal =
        FileJournal::open(Arc::new(disk), large, Bounds::default(), &mut |_, _| Ok::<(), Infallible>(())).unwrap();
    let frame = append(&journal, &vec![7; 2 << 20]).frame;
    let after = append(&journal, &[8; 3_000]);
    let read = || journal.read(&[frame]).wait().unwrap().remove(0);
    let (first, second) = (read(), read());
    assert_eq!(first, vec![7; 2 << 20]);
    assert_eq!(first.as_ptr(), second.as_ptr(), "both are one read's");
    drop((first, second));
    assert_eq!(journal.pinned_bytes(), 0, "nobody reads");
    // With its space it is let go.
    journal.trim(after.end);
    assert!(matches!(journal.read(&[frame]).wait(), Err(ReadError::Trimmed(_))));
}

/// All that an inspection of the open journal finds.
fn inspect(journal: &FileJournal) -> Vec<JournalDamage> {
    let (mut inspection, mut found) = (Inspection::default(), Vec::new());
    while let Some(step) = journal.inspect(&mut inspection).unwrap() {
        found.extend(step.damage);
    }
    found
}

#[test]
fn an_inspection_of_an_open_journal_finds_all_damage_and_where_it_ends() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let frames: Vec<_> = (0..40u8).map(|n| append(&journal, &[n; 900]).frame).collect();
    assert_eq!(inspect(&journal), []);
    let segments: Vec<_> = disk.files().into_iter().filter(|f| open_base(&disk, f).is_some()).collect();
    let mut expected = Vec::new();
    for frame in [frames[3], frames[4], frames[11], frames[30]] {
        let path = segments.iter().rfind(|f| open_base(&disk, f).unwrap() <= frame.lsn.0).unwrap();
        let at = HEADER + frame.lsn.0 - open_base(&disk, path).unwrap();
        damage(&disk, path, at + 100);
        expected.push((path.clone(), at, frame.lsn..frame.end()));
    }
    let found: Vec<_> = inspect(&journal).into_iter().map(|damage| (damage.file, damage.at, damage.range)).collect();
    assert_eq!(found, expected);
    // Nothing else is read with it: the frames around are whole.
    for frame in [frames[2], frames[5], frames[12], frames[31]] {
        assert!(journal.read(&[frame]).wait().is_ok());
    }
    journal.close().unwrap();
    let report = verify(&disk, Bounds { known_durable: journal.durable(), ..Bounds::default() });
    let listed: Vec<_> = report.damage.into_iter().map(|damage| (damage.file, damage.at, damage.range)).collect();
    assert!(report.problem.is_some());
    assert_eq!(listed, expected, "the checker lists the same");
}

#[test]
fn an_inspection_finds_a_damaged_header_and_goes_on_behind_a_lost_batch() {
    let disk = SimDisk::new(1);
    let (journal, _) = open(&disk);
    let frames: Vec<_> = (0..40u8).map(|n| append(&journal, &[n; 900]).frame).collect();
    let segments: Vec<_> = disk.files().into_iter().filter(|f| open_base(&disk, f).is_some()).collect();
    damage(&disk, &segments[1], 30);
    // Each frame has a batch of its own, whose header stands before it.
    let lost = frames[5];
    damage(&disk, &segments[0], HEADER + lost.lsn.0 - 10);
    let found = inspect(&journal);
    let [batch, header] = &found[..] else { panic!("{found:?}") };
    assert!(batch.range.start < lost.lsn && batch.range.end < frames[6].lsn, "{batch:?}");
    assert!(batch.range.end >= lost.end(), "{batch:?}");
    assert_eq!((header.file.as_str(), header.at), (segments[1].as_str(), 0));
}
