//! The end of a journal, kept elsewhere as one run of bytes, is the same journal again.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::Disk;
use thalweg_journal::{Bounds, Class, FileJournal, FrameRef, Journal, Options, TailFiles};
use thalweg_sim::{Rand64, SimDisk};

fn options(salt: u64) -> Options {
    Options { segment_bytes: 64 << 10, max_payload: 8 << 10, batch_bytes: 4 << 10, salt, ..Options::default() }
}

struct Filled {
    disk: SimDisk,
    journal: FileJournal,
    frames: Vec<(FrameRef, Vec<u8>)>,
}

/// A journal of several openings, segments and batches; the last frame is not synced.
fn filled(seed: u64) -> Filled {
    let mut random = Rand64::new(u128::from(seed));
    let disk = SimDisk::new(seed);
    let mut frames = Vec::new();
    let mut known = Lsn::ZERO;
    for opening in 0..4 {
        let bounds = Bounds { known_durable: known, ..Bounds::default() };
        let nothing = &mut |_, _| Ok::<(), Infallible>(());
        let journal = FileJournal::open(Arc::new(disk.clone()), options(opening + 7), bounds, nothing).unwrap();
        for _ in 0..random.rand_range(1..60) {
            for _ in 0..random.rand_range(1..4) {
                let payload = vec![frames.len() as u8; random.rand_range(0..6_000) as usize];
                let appended = journal.append(Class::User, &[&payload]).unwrap();
                frames.push((appended.frame, payload));
            }
            journal.sync().unwrap();
            journal.prepare().unwrap();
        }
        known = journal.durable();
        if opening == 3 {
            journal.append(Class::User, &[b"not synced"]).unwrap();
            return Filled { disk, journal, frames };
        }
        if random.rand_range(0..2) == 0 {
            journal.close().unwrap();
        }
        drop(journal);
        disk.crash_power();
    }
    unreachable!("the last opening returns")
}

fn packed(journal: &FileJournal, floor: Lsn) -> (Vec<u8>, Lsn) {
    let tail = journal.hold_tail(floor).unwrap().unwrap();
    let mut bytes = Vec::new();
    tail.read::<io::Error>(&mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    assert_eq!(bytes.len() as u64, tail.bytes());
    (bytes, tail.end())
}

fn unpack(disk: &SimDisk, bytes: &[u8], random: &mut Rand64) -> io::Result<()> {
    let mut files = TailFiles::new(disk);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at((random.rand_range(1..20_000) as usize).min(rest.len()));
        files.write(piece)?;
        rest = later;
    }
    files.finish()
}

#[test]
fn a_tail_recovers_every_frame_from_its_floor_on_and_goes_on() {
    for seed in 0..20 {
        let Filled { journal, frames, .. } = filled(seed);
        let mut random = Rand64::new(u128::from(seed));
        let durable = journal.durable();
        for at in [0, 1, frames.len() / 2, frames.len() - 1] {
            let frame = frames[at].0;
            for floor in [frame.lsn, frame.lsn.plus(1), frame.end()] {
                let (bytes, end) = packed(&journal, floor);
                assert_eq!(end, durable);
                assert!(floor > frames[frames.len() / 2].0.lsn || bytes.len() > 4096);
                let disk = SimDisk::new(seed);
                unpack(&disk, &bytes, &mut random).unwrap();
                // Whatever was unpacked is durable.
                disk.crash_power();
                let bounds = Bounds { floor, known_durable: end, term: journal.term() };
                let mut replayed = Vec::new();
                let copy = FileJournal::open(Arc::new(disk), options(99), bounds, &mut |frame, payload| {
                    replayed.push((frame, payload.to_vec()));
                    Ok::<(), Infallible>(())
                });
                let copy = copy.unwrap_or_else(|error| panic!("seed {seed}, floor {floor}: {error}"));
                let expected: Vec<_> = frames.iter().filter(|(frame, _)| frame.lsn >= floor).cloned().collect();
                assert_eq!(replayed, expected, "seed {seed}, floor {floor}");
                assert_eq!(copy.durable(), durable);
                assert!(copy.term() > journal.term());
                copy.append(Class::User, &[b"goes on"]).unwrap();
                copy.sync().unwrap();
            }
        }
    }
}

#[test]
fn a_tail_has_what_its_floor_needs_and_not_the_whole_segment() {
    let Filled { journal, frames, .. } = filled(3);
    let last = frames[frames.len() - 1].0;
    let (bytes, _) = packed(&journal, last.lsn);
    assert!(bytes.len() < 4096 + 3 * 6_100 + 100, "{} bytes for one batch", bytes.len());
    let (nothing, _) = packed(&journal, journal.durable());
    assert_eq!(nothing.len(), 4096, "the header of a segment that goes on there");
}

#[test]
fn a_tail_that_is_trimmed_meanwhile_stays_readable_and_one_below_the_trim_point_is_none() {
    let Filled { journal, frames, .. } = filled(4);
    let (expected, _) = packed(&journal, frames[0].0.lsn);
    let tail = journal.hold_tail(frames[0].0.lsn).unwrap().unwrap();
    journal.trim(journal.durable());
    for _ in 0..200 {
        journal.append(Class::User, &[&[9; 5_000]]).unwrap();
        journal.sync().unwrap();
        journal.prepare().unwrap();
        journal.trim(journal.durable());
    }
    let mut bytes = Vec::new();
    tail.read::<io::Error>(&mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    assert_eq!(bytes, expected);
    assert!(journal.hold_tail(frames[0].0.lsn).unwrap().is_none());
}

#[test]
fn bytes_that_are_no_tail_are_refused() {
    let Filled { journal, frames, disk } = filled(5);
    let (bytes, _) = packed(&journal, frames[0].0.lsn);
    let mut random = Rand64::new(5);
    for _ in 0..200 {
        let cut = random.rand_range(0..bytes.len() as u64) as usize;
        let refused = unpack(&SimDisk::new(1), &bytes[..cut], &mut random);
        // A cut between two segments cannot be seen here: the opening sees it.
        if refused.is_ok() {
            assert!(disk.list("journal").unwrap().len() > 1);
        }
    }
    for _ in 0..500 {
        let garbage: Vec<u8> = (0..random.rand_range(0..9_000)).map(|_| random.rand_u64() as u8).collect();
        assert!(unpack(&SimDisk::new(1), &garbage, &mut random).is_err());
        let mut damaged = bytes[..bytes.len().min(20_000)].to_vec();
        let at = random.rand_range(0..4096) as usize;
        damaged[at] ^= 1 << random.rand_range(0..8);
        drop(unpack(&SimDisk::new(1), &damaged, &mut random));
    }
}
