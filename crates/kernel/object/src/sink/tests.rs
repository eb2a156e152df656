//! What owners find that follow each other with days between them, or in a bucket that has lost an object.

use super::*;
use crate::bucket::BucketOptions;
use thalweg_journal::{Bounds, Options, Sequencer, Sink as _, read_through};

/// Long beside what the steps of a test take on a busy machine.
const STAY: Duration = Duration::from_secs(2);

fn term(number: u64) -> Term {
    Term { number, salt: number }
}

fn bucket() -> Bucket {
    Bucket::open(&"memory:".parse().unwrap(), BucketOptions::default()).unwrap()
}

fn sink(bucket: &Bucket) -> ObjectSink {
    ObjectSink::new(bucket.clone(), "unit", SinkOptions { stay: STAY, ..SinkOptions::default() })
}

/// A batch of ten bytes behind its header, which says that everything before `known` was durable.
fn batch(known: u64) -> Bytes {
    let mut bytes = vec![0; 34];
    bytes[16..24].copy_from_slice(&known.to_le_bytes());
    bytes.into()
}

/// Writes an object as the owner of this term would.
fn write(bucket: &Bucket, number: u64, by: Term, what: What, body: Bytes) {
    let bytes = Record::new(number, 0, by, what, body).encode();
    let key = format!("j/unit/{}", key(number));
    assert_eq!(bucket.settle_once(&key, bytes.clone()).unwrap(), bytes);
}

fn has(bucket: &Bucket, number: u64) -> bool {
    bucket.read(&format!("j/unit/{}", key(number))).unwrap().is_some()
}

/// Whether an object is removed, by what runs in the background.
fn goes(bucket: &Bucket, number: u64) -> bool {
    (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !has(bucket, number)
    })
}

/// Takes the journal over, as one that is what its owner needs.
fn own(sink: &ObjectSink, number: u64) {
    sink.fence(term(number)).wait().unwrap();
    sink.accept(term(number)).wait().unwrap();
}

fn append(sink: &ObjectSink, at: u64, by: Term) {
    let batch = SinkBatch { at: Lsn(at), term: by, bytes: batch(0) };
    assert_eq!(sink.append(batch).wait(), Ok(Kept::Durable));
}

#[test]
fn an_old_object_stays_while_an_owner_that_was_deposed_lately_could_write_its_number() {
    let bucket = bucket();
    let first = sink(&bucket);
    own(&first, 1);
    append(&first, 0, term(1));
    append(&first, 34, term(1));
    // Behind the number 3, which never came, two objects that came late.
    for number in [5, 6] {
        write(&bucket, number, term(1), What::Batch(Lsn(34 * number)), batch(0));
    }
    let idle = sink(&bucket);
    own(&idle, 2);
    assert!(has(&bucket, 3) && !has(&bucket, 4), "its fence");
    std::thread::sleep(STAY + Duration::from_millis(100));
    // Days later the owner writes again. It has 4, is about to write 5, and 7 and 8 are written.
    for (number, at) in [(4, 68), (7, 136), (8, 170)] {
        write(&bucket, number, term(2), What::Batch(Lsn(at)), batch(0));
    }
    // It is deposed, and its successor settles.
    let third = sink(&bucket);
    own(&third, 3);
    third.truncate(Lsn(102), term(3)).wait().unwrap();
    append(&third, 102, term(3));
    append(&third, 136, term(3));
    third.trim(Lsn(136), Lsn(170));
    append(&third, 170, term(3));
    let fourth = sink(&bucket);
    own(&fourth, 4);
    std::thread::sleep(Duration::from_millis(200));
    assert!(has(&bucket, 5), "the owner could write 5 now, and acknowledge what stands at 7 and 8");
    assert!(goes(&bucket, 4) && goes(&bucket, 7), "what is not needed is removed");
    // Once the third has written something so long ago, nobody comes back to numbers before its fence.
    std::thread::sleep(STAY);
    own(&sink(&bucket), 5);
    assert!(goes(&bucket, 5) && goes(&bucket, 3), "what holds numbers of owners that are long deposed is removed");
}

#[test]
fn an_object_that_was_acknowledged_and_is_missing_is_told_from_one_that_never_came() {
    let bucket = bucket();
    let owner = sink(&bucket);
    own(&owner, 1);
    for number in 1..=5 {
        // Each is sent when all before it are durable, but for the last two: they are under way together.
        let known = 34 * (number - 1).min(3);
        write(&bucket, number, term(1), What::Batch(Lsn(34 * (number - 1))), batch(known));
    }
    bucket.remove(&format!("j/unit/{}", key(4))).unwrap();
    own(&sink(&bucket), 2);
    assert!(has(&bucket, 4), "4 was under way, and nobody was told of 5: the fence takes its place");

    let bucket = self::bucket();
    own(&sink(&bucket), 1);
    for number in 1..=5 {
        write(&bucket, number, term(1), What::Batch(Lsn(34 * (number - 1))), batch(34 * (number - 1)));
    }
    bucket.remove(&format!("j/unit/{}", key(3))).unwrap();
    let refused = sink(&bucket).fence(term(2)).wait().unwrap_err();
    assert!(refused.to_string().contains("it is missing"), "{refused}");
    assert!(!has(&bucket, 3), "nothing takes its place: it may be put back");
    assert_eq!(sink(&bucket).see().unwrap().damaged.len(), 1);
    write(&bucket, 3, term(1), What::Batch(Lsn(68)), batch(68));
    own(&sink(&bucket), 2);
    assert!(sink(&bucket).see().unwrap().damaged.is_empty());
}

#[test]
fn evidence_that_was_removed_itself_frees_no_number() {
    let bucket = bucket();
    let far = 1_030;
    // An owner with late objects ahead and a far fence; its successor, which has written; both long ago.
    write(&bucket, 10, term(1), What::Fence, Bytes::new());
    for number in 24..=27 {
        write(&bucket, number, term(1), What::Batch(Lsn(34 * number)), batch(0));
    }
    write(&bucket, far, term(1), What::Fence, Bytes::new());
    let settled = |number, by, floor, at| {
        let bytes = Record::new(number, floor, by, What::Batch(Lsn(at)), batch(0)).encode();
        bucket.settle_once(&format!("j/unit/{}", key(number)), bytes).unwrap();
    };
    write(&bucket, 20, term(2), What::Fence, Bytes::new());
    settled(21, term(2), 21, 0);
    settled(22, term(2), 21, 34);
    settled(23, term(2), 21, 68);
    write(&bucket, 33, term(2), What::Fence, Bytes::new());
    std::thread::sleep(STAY + Duration::from_millis(50));
    // The third fences at 28; days later it has everything from 29 on but 33, which is under way, and is deposed.
    let third = sink(&bucket);
    own(&third, 3);
    assert!(goes(&bucket, 10) && has(&bucket, 28) && has(&bucket, 20), "what is before the second's fence is free");
    std::thread::sleep(STAY);
    for number in [29, 30, 31, 32, 34, 35, 36] {
        settled(number, term(3), 21, 34 * (number - 26));
    }
    let fourth = sink(&bucket);
    own(&fourth, 4);
    fourth.truncate(Lsn(34 * 7), term(4)).wait().unwrap();
    append(&fourth, 34 * 7, term(4));
    append(&fourth, 34 * 8, term(4));
    fourth.trim(Lsn(34 * 8), Lsn(34 * 9));
    append(&fourth, 34 * 9, term(4));
    std::thread::sleep(Duration::from_millis(100));
    own(&sink(&bucket), 5);
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        has(&bucket, 28) && has(&bucket, 33),
        "the third could write 33 now, and acknowledge what stands behind it"
    );
}

#[test]
fn a_journal_that_begins_behind_the_root_or_lacks_its_terms_is_refused_before_it_is_changed() {
    let bucket = bucket();
    let owner = sink(&bucket);
    own(&owner, 4);
    for at in [0, 34, 68] {
        append(&owner, at, term(4));
    }
    owner.trim(Lsn(68), Lsn(102));
    append(&owner, 102, term(4));
    let survey = |end| {
        let next = sink(&bucket);
        own(&next, 5);
        next.survey(Lsn(end)).wait().unwrap().unwrap()
    };
    assert_eq!(survey(136), Survey { first: Some(Lsn(68)), end: Lsn(136), known: Lsn::ZERO });
    let take = |floor, newest| {
        let bounds = Bounds { floor: Lsn(floor), known_durable: Lsn::ZERO, term: newest };
        read_through(&owner, bounds, &mut |_, _| Ok::<_, String>(())).map_err(|why| why.to_string())
    };
    let refused = |floor, newest| take(floor, newest).unwrap_err();
    assert!(refused(34, 4).contains("it begins at 68"), "a root of an earlier time");
    let empty = sink(&self::bucket());
    own(&empty, 6);
    let nothing = |bounds| read_through(&empty, bounds, &mut |_, _| Ok::<_, String>(())).map_err(|why| why.to_string());
    let lost = nothing(Bounds { floor: Lsn(34), known_durable: Lsn::ZERO, term: 5 }).unwrap_err();
    assert!(lost.contains("nothing is kept"), "{lost}");
    let shorter = read_through(&owner, Bounds { floor: Lsn(170), known_durable: Lsn::ZERO, term: 4 }, &mut |_, _| {
        Ok::<_, String>(())
    });
    assert!(shorter.unwrap_err().to_string().contains("it ends at 136"), "a root of a later time");
    assert_eq!(nothing(Bounds::default()), Ok(Lsn::ZERO));
}

#[test]
fn what_batches_behind_a_hole_know_counts_although_no_number_is_missing() {
    let bucket = bucket();
    own(&sink(&bucket), 1);
    // The batch at 34 was to get the number that a later one has.
    for (number, at, known) in [(1, 0, 0), (2, 68, 0)] {
        write(&bucket, number, term(1), What::Batch(Lsn(at)), batch(known));
    }
    let next = sink(&bucket);
    own(&next, 2);
    assert_eq!(next.survey(Lsn(34)).wait().unwrap().unwrap().known, Lsn::ZERO, "it was never durable");
    let bucket = self::bucket();
    own(&sink(&bucket), 1);
    for (number, at, known) in [(1, 0, 0), (2, 68, 68)] {
        write(&bucket, number, term(1), What::Batch(Lsn(at)), batch(known));
    }
    let next = sink(&bucket);
    own(&next, 2);
    assert_eq!(next.survey(Lsn(34)).wait().unwrap().unwrap().known, Lsn(68), "it was, and is gone");
}

#[test]
fn a_journal_without_the_term_of_its_root_is_refused_as_often_as_it_is_tried() {
    let bucket = bucket();
    let bounds = Bounds { floor: Lsn::ZERO, known_durable: Lsn::ZERO, term: 4 };
    let take = |number| {
        let mut replay = |_, _| Ok::<_, String>(());
        let taken = Sequencer::take_over(sink(&bucket), Options::default(), bounds, number, &mut replay);
        taken.map(|_| ()).map_err(|why| why.to_string())
    };
    for number in 5..25 {
        let refused = take(number).unwrap_err();
        assert!(refused.contains("open in term 4"), "{refused}");
    }
    assert_eq!(sink(&bucket).see().unwrap().batches, 0);
    assert!(bucket.objects("j/").unwrap().is_empty(), "nothing was written");
    write(&bucket, 0, term(4), What::Fence, Bytes::new());
    assert_eq!(take(25), Ok(()), "its owner had written nothing yet");
}

#[test]
fn who_refuses_a_journal_leaves_its_objects_where_they_are_however_often() {
    let bucket = bucket();
    let owner = sink(&bucket);
    own(&owner, 1);
    [0, 34, 68].into_iter().for_each(|at| append(&owner, at, term(1)));
    let before = bucket.objects("j/unit/").unwrap();
    for number in 2..40 {
        sink(&bucket).fence(term(number)).wait().unwrap();
    }
    let after = bucket.objects("j/unit/").unwrap();
    assert_eq!(before[..], after[..before.len()]);
    assert_eq!(after.len(), before.len() + 38, "a fence for each");
    own(&sink(&bucket), 40);
    assert!(goes(&bucket, 1), "who accepts it carries the batches over the fences");
}
