//! The promises of many logs over one journal.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use support::{Fate, ScriptedJournal, Unit};
use thalweg_base::DecodeError;
use thalweg_base::{Durability, LogId, Lsn, Millis, ObjectId, Offset, Until};
use thalweg_journal::{Class, FrameRef, Journal};
use thalweg_log::{
    Append, CommitError, Committed, Damage, Lengths, Logs, LogsOptions, Loss, Moment, Op, OpenError, Origin, Place,
    ReadError, ReadFrom, Scrub, Seek, SeekError, UpkeepError, When,
};
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_storage::Storage;
use thalweg_unit::{ReplayError, StartError};

type Unlocked = Logs<support::Notes>;

fn options() -> LogsOptions {
    LogsOptions { chunk_bytes: 64, object_bytes: 4096, fan_in: 3, settle_after_ms: 0, ..LogsOptions::default() }
}

fn create(logs: &Unlocked, name: &str) -> LogId {
    let op = Op::Create { name, note: b"new", origin: None, append: None };
    logs.lock(&[name]).commit(Class::User, &[op]).unwrap().created.unwrap()
}

fn append(logs: &Unlocked, log: LogId, message: &[u8]) -> Lsn {
    let lengths = Lengths::one(message.len() as u32);
    let parts = [message];
    let append = Append::Bytes { parts: &parts, lengths: &lengths };
    let op = Op::Write { log, note: b"", append: Some(append) };
    logs.lock_logs(&[log], &[]).commit(Class::User, &[op]).unwrap().end
}

fn fork(logs: &Unlocked, name: &str, source: LogId, at: u64) -> LogId {
    let op = Op::Create { name, note: b"fork", origin: Some(Origin { source, at: Offset(at) }), append: None };
    logs.lock_logs(&[source], &[name]).commit(Class::User, &[op]).unwrap().created.unwrap()
}

fn tail(logs: &Unlocked, log: LogId) -> Offset {
    logs.lock_logs(&[log], &[]).view(log).unwrap().tail
}

/// Everything from `from` on, chunk by chunk; and where the chunks ended.
fn read_from(logs: &Unlocked, log: LogId, from: u64) -> Result<(Vec<u8>, Vec<u64>), ReadError> {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let upto = tail(logs, log);
    let mut from = Offset(from);
    loop {
        let chunk = logs.read(ReadFrom { log, from, upto })?;
        bytes.extend(chunk.parts.concat());
        if chunk.end == from || chunk.end == upto {
            ends.push(chunk.end.0);
            return Ok((bytes, ends));
        }
        ends.push(chunk.end.0);
        from = chunk.end;
    }
}

fn read(logs: &Unlocked, log: LogId) -> Vec<u8> {
    read_from(logs, log, 0).unwrap().0
}

fn settle_all(logs: &Unlocked) {
    while logs.settle(Millis(1), When::Now).unwrap() {}
    while logs.merge().unwrap() {}
}

#[test]
fn what_was_appended_is_read_back_before_and_after_settling_and_reopening() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    let expected: Vec<u8> = (0..50u8).flat_map(|n| vec![n; usize::from(n) + 1]).collect();
    for n in 0..50u8 {
        append(&logs, log, &vec![n; usize::from(n) + 1]);
        if n % 7 == 0 {
            logs.settle(Millis(1), When::Now).unwrap();
        }
    }
    let (bytes, ends) = read_from(&logs, log, 0).unwrap();
    assert_eq!(bytes, expected);
    settle_all(&logs);
    assert_eq!(read_from(&logs, log, 0).unwrap(), (bytes.clone(), ends.clone()), "chunks end where they did");
    let logs = unit.open();
    assert_eq!(read_from(&logs, log, 0).unwrap(), (bytes, ends));
    assert_eq!(logs.lock(&["a"]).find("a"), Some(log));
}

#[test]
fn only_durable_content_is_published() {
    let journal = ScriptedJournal::lazy();
    let unit = Unit::new(journal.clone(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    journal.sync();
    append(&logs, log, b"one");
    let published = || logs.lock_logs(&[log], &[]).view(log).unwrap().published;
    assert_eq!(published(), Offset(0));
    journal.sync();
    append(&logs, log, b"two");
    assert_eq!(published(), Offset(3));
    let chunk = logs.read(ReadFrom { log, from: Offset(0), upto: published() }).unwrap();
    assert_eq!((chunk.parts.concat(), chunk.end), (b"one".to_vec(), Offset(3)));
    journal.crash();
    let logs = unit.open();
    assert_eq!(read(&logs, log), b"one");
}

#[test]
fn a_message_cannot_be_entered_and_the_tail_cannot_be_passed() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"hello");
    append(&logs, log, b"world");
    for settled in [false, true] {
        if settled {
            settle_all(&logs);
        }
        assert_eq!(read_from(&logs, log, 5).unwrap().0, b"world");
        let inside = read_from(&logs, log, 3).unwrap_err();
        assert_eq!(inside, ReadError::InsideMessage { offset: Offset(3), next: Offset(5) });
        let beyond = logs.read(ReadFrom { log, from: Offset(11), upto: Offset(10) }).unwrap_err();
        assert!(matches!(beyond, ReadError::BeyondTail { .. }));
        let seek = |by| logs.seek(log, Offset(0), Offset(10), by);
        assert_eq!(seek(Seek::Messages(2)), Ok(Offset(10)));
        assert_eq!(seek(Seek::Messages(3)), Err(SeekError::Overshoot));
        assert_eq!(seek(Seek::Bytes(5)), Ok(Offset(5)));
        assert_eq!(seek(Seek::Bytes(6)), Err(SeekError::Overshoot));
    }
}

#[test]
fn forks_share_what_they_inherit_and_outlive_trimming() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let a = create(&logs, "a");
    append(&logs, a, b"abc");
    append(&logs, a, b"def");
    let b = fork(&logs, "b", a, 3);
    append(&logs, b, b"B1");
    let c = fork(&logs, "c", b, 5);
    append(&logs, c, b"C1");
    let cut = fork(&logs, "cut", c, 2);
    append(&logs, cut, b"Z");
    append(&logs, a, b"ghi");
    let check = |logs: &Unlocked| {
        assert_eq!(read(logs, a), b"abcdefghi");
        assert_eq!(read(logs, b), b"abcB1");
        assert_eq!(read(logs, c), b"abcB1C1");
        assert_eq!(read(logs, cut), b"abZ");
        let mut guard = logs.lock_logs(&[c], &[]);
        let view = guard.view(c).unwrap();
        assert_eq!([0, 3, 4, 5, 6].map(|at| view.incarnation(Offset(at))), [a.0, a.0, b.0, b.0, c.0]);
        assert_eq!(view.origin(), Some(Origin { source: b, at: Offset(5) }));
    };
    check(&logs);
    settle_all(&logs);
    check(&logs);
    let logs = unit.open();
    check(&logs);
    // The source forgets everything: what forks need stays.
    let at = tail(&logs, a);
    logs.lock(&["a"]).commit(Class::Upkeep, &[Op::Trim { log: a, start: at }]).unwrap();
    settle_all(&logs);
    while logs.reclaim(Millis(1_000_000_000)).unwrap() {}
    assert!(matches!(read_from(&logs, a, 0), Err(ReadError::Trimmed { .. })));
    for (log, content) in [(b, &b"abcB1"[..]), (c, b"abcB1C1"), (cut, b"abZ")] {
        assert_eq!(read(&logs, log), content);
    }
}

#[test]
fn one_frame_appends_to_many_logs_by_bytes_and_by_reference() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let (bodies, x, y) = (create(&logs, "bodies"), create(&logs, "x"), create(&logs, "y"));
    append(&logs, bodies, b"zero;");
    let lengths: Lengths = {
        let mut lengths = Lengths::one(4);
        lengths.push(4);
        lengths
    };
    let parts: [&[u8]; 2] = [b"one;", b"two;"];
    let bytes = Append::Bytes { parts: &parts, lengths: &lengths };
    let reference = Append::Reference { source: bodies, from: Offset(5), lengths: &lengths };
    let write = |log, append| Op::Write { log, note: b"n", append: Some(append) };
    let ops = [write(bodies, bytes), write(x, reference), write(y, reference), write(y, bytes)];
    logs.lock_logs(&[bodies, x, y], &[]).commit(Class::User, &ops).unwrap();
    let check = |logs: &Unlocked| {
        assert_eq!(read(logs, bodies), b"zero;one;two;");
        assert_eq!(read(logs, x), b"one;two;");
        assert_eq!(read(logs, y), b"one;two;one;two;");
        assert_eq!(read_from(logs, x, 4).unwrap().0, b"two;");
        assert!(matches!(read_from(logs, x, 3), Err(ReadError::InsideMessage { .. })));
    };
    check(&logs);
    settle_all(&logs);
    check(&logs);
    check(&unit.open());
}

#[test]
fn a_log_may_begin_with_a_reference_but_not_to_nothing() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let bodies = create(&logs, "bodies");
    append(&logs, bodies, b"zero;one;");
    let lengths = Lengths::one(4);
    let begin_at = |source, from| {
        let append = Some(Append::Reference { source, from: Offset(from), lengths: &lengths });
        let ops = [Op::Create { name: "x", note: b"", origin: None, append }];
        logs.lock_logs(&[source], &["x"]).commit(Class::User, &ops)
    };
    let begin = |source| begin_at(source, 5);
    for outside in [6, 9, u64::MAX] {
        let refused = begin_at(bodies, outside).unwrap_err();
        let (start, tail) = (Offset::ZERO, Offset(9));
        assert_eq!(refused, CommitError::Range { log: bodies, offset: Offset(outside), start, tail });
    }
    assert_eq!(begin(LogId(bodies.0 + 64_000)).unwrap_err(), CommitError::Missing(LogId(bodies.0 + 64_000)));
    let lengths = Lengths::one(4);
    let append = Some(Append::Reference { source: bodies, from: Offset(5), lengths: &lengths });
    let refer = Op::Create { name: "x", note: b"", origin: None, append };
    for (before, refused) in [
        (Op::Delete { log: bodies }, CommitError::Missing(bodies)),
        (
            Op::Trim { log: bodies, start: Offset(9) },
            CommitError::Range { log: bodies, offset: Offset(5), start: Offset(9), tail: Offset(9) },
        ),
    ] {
        let ops = [before, refer];
        assert_eq!(logs.lock_logs(&[bodies], &["x"]).commit(Class::User, &ops).unwrap_err(), refused);
    }
    let x = begin(bodies).unwrap().created.unwrap();
    assert_eq!(read(&logs, x), b"one;");
    settle_all(&logs);
    assert_eq!(read(&logs, x), b"one;");
    assert_eq!(read(&unit.open(), x), b"one;");
}

#[test]
fn a_refused_transaction_changes_nothing() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let a = create(&logs, "a");
    append(&logs, a, b"abc");
    let lengths = Lengths::one(1);
    let parts: [&[u8]; 1] = [b"x"];
    let write = Op::Write { log: a, note: b"n", append: Some(Append::Bytes { parts: &parts, lengths: &lengths }) };
    let twice = Op::Create { name: "a", note: b"", origin: None, append: None };
    let refused = logs.lock(&["a"]).commit(Class::User, &[write, twice]);
    assert_eq!(refused, Err(CommitError::Exists(a)));
    let beyond = Op::Create { name: "f", note: b"", origin: Some(Origin { source: a, at: Offset(4) }), append: None };
    assert!(matches!(logs.lock(&["a", "f"]).commit(Class::User, &[beyond]), Err(CommitError::Range { .. })));
    assert_eq!(read(&logs, a), b"abc");
    assert_eq!(unit.open().len(), 1);
}

#[test]
fn a_name_is_free_again_after_its_delete_and_incarnations_never_repeat() {
    let journal = ScriptedJournal::lazy();
    let unit = Unit::new(journal.clone(), options());
    let logs = unit.open();
    let mut last = 0;
    for _ in 0..3 {
        let log = create(&logs, "a");
        assert!(log.0 > last);
        last = log.0;
        append(&logs, log, b"abc");
        journal.sync();
        let mut guard = logs.lock(&["a"]);
        let end = guard.commit(Class::Upkeep, &[Op::Delete { log }]).unwrap().end;
        assert_eq!(guard.find("a"), None);
        assert_eq!(guard.absent_since("a"), end);
        drop(guard);
        settle_all(&logs);
        assert_eq!(logs.lock(&["a"]).absent_since("a"), Lsn::ZERO);
    }
    // An id that was given out but never durable is not given out again.
    let lost = create(&logs, "lost");
    journal.crash();
    let logs = unit.open();
    assert!(logs.is_empty());
    assert!(create(&logs, "b") > lost);
}

#[test]
fn after_a_lossy_crash_no_old_incarnation_is_left() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let a = create(&logs, "a");
    append(&logs, a, b"abc");
    let incarnation = |logs: &Unlocked| logs.lock(&["a"]).view(a).unwrap().incarnation(Offset(3));
    assert_eq!(incarnation(&logs), a.0);
    let logs = unit.open_after(Loss::Everything);
    let after = incarnation(&logs);
    assert!(after > a.0 + 1000);
    assert!(create(&logs, "b").0 > after);
    assert_eq!(incarnation(&unit.open()), after);
}

#[test]
fn space_of_deleted_logs_comes_back() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let ids: Vec<_> = (0..40).map(|n| create(&logs, &format!("log {n}"))).collect();
    for log in &ids {
        append(&logs, *log, &[7; 500]);
    }
    settle_all(&logs);
    let full = logs.stats();
    assert!(full.data_bytes >= 20_000, "{full:?}");
    for log in ids.iter().step_by(2) {
        logs.lock_logs(&[*log], &[]).commit(Class::Upkeep, &[Op::Delete { log: *log }]).unwrap();
    }
    settle_all(&logs);
    while logs.reclaim(Millis(10_000)).unwrap() {}
    // Half dead objects wait for their time, and go then.
    while logs.reclaim(Millis(10_000_000)).unwrap() {}
    let half = logs.stats();
    assert_eq!((half.data_bytes, half.live_bytes), (10_000, 10_000), "{half:?}");
    for log in ids.iter().skip(1).step_by(2) {
        assert_eq!(read(&logs, *log), [7; 500]);
    }
    let objects = thalweg_storage::Storage::list(&*unit.storage).unwrap();
    assert_eq!(objects.len() as u64, half.objects, "no object is left behind");
    assert_eq!(unit.open().len(), 20);
}

#[test]
fn runs_stay_few_however_often_logs_are_settled() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    for n in 0..200u8 {
        append(&logs, log, &[n; 100]);
        logs.settle(Millis(1), When::Now).unwrap();
        while logs.merge().unwrap() {}
        assert!(logs.stats().runs < 8, "{:?}", logs.stats());
    }
    assert_eq!(read(&logs, log).len(), 20_000);
}

#[test]
fn logs_at_rest_are_found_swept_and_woken() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    for n in 0..500 {
        let log = create(&logs, &format!("log {n}"));
        append(&logs, log, b"content");
    }
    settle_all(&logs);
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = Some(Default::default());
    while let Some(at) = cursor {
        cursor = logs.sweep(at, 64, &mut |_, name, notes| {
            assert_eq!(notes.0, [b"new"]);
            seen.insert(name.to_owned());
        });
    }
    assert_eq!(seen.len(), 500);
    let id = logs.lock(&["log 77"]).find("log 77").unwrap();
    append(&logs, id, b"!");
    assert_eq!(read(&logs, id), b"content!");
}

#[test]
fn boundaries_are_found_wherever_content_lies() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let a = create(&logs, "a");
    for _ in 0..10 {
        append(&logs, a, b"0123456");
    }
    let look = |logs: &Unlocked| {
        for at in 0..70u64 {
            assert_eq!(logs.boundary(a, Offset(at), Offset(70)), Ok(Offset(at / 7 * 7)), "{at}");
        }
    };
    look(&logs);
    settle_all(&logs);
    look(&logs);
    logs.lock_logs(&[a], &[]).commit(Class::Upkeep, &[Op::Trim { log: a, start: Offset(21) }]).unwrap();
    assert!(logs.boundary(a, Offset(20), Offset(70)).is_err(), "it is trimmed");
    assert_eq!(logs.boundary(a, Offset(27), Offset(70)), Ok(Offset(21)));
    assert_eq!(logs.boundary(a, Offset(70), Offset(70)), Ok(Offset(70)));
}

#[test]
fn what_a_cut_holds_stays_until_its_last_hold_is_gone() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, &[7; 500]);
    settle_all(&logs);
    let (one, other) = (logs.hold_sealed(), logs.hold_sealed());
    assert!(!one.cut.objects.is_empty());
    let there = || thalweg_storage::Storage::list(&*unit.storage).unwrap();
    let all_there = |held: &thalweg_log::HeldCut| held.cut.objects.iter().all(|(object, _)| there().contains(object));
    logs.lock_logs(&[log], &[]).commit(Class::Upkeep, &[Op::Delete { log }]).unwrap();
    settle_all(&logs);
    while logs.reclaim(Millis(10_000_000)).unwrap() || logs.merge().unwrap() {}
    assert_eq!(logs.stats().data_bytes, 0, "the root names none of it any more");
    assert!(all_there(&one));
    for (object, bytes) in &one.cut.objects {
        assert_eq!(one.read(*object, 0..*bytes).unwrap().len() as u64, *bytes, "a length is the object's");
    }
    drop(one);
    assert!(all_there(&other), "another one holds it");
    drop(other);
    assert_eq!(there().len() as u64, logs.stats().objects, "no object is left behind");
}

#[test]
fn ids_start_where_another_history_cannot_have_been() {
    let mut unit = Unit::new(ScriptedJournal::eager(), options());
    let old = create(&unit.open(), "a");
    unit.options.ids_from = 1 << 44;
    let logs = unit.open_after(Loss::Everything);
    let incarnation = logs.lock(&["a"]).view(old).unwrap().incarnation(Offset(0));
    assert!(incarnation >= (1 << 44) * 64);
    assert!(create(&logs, "b").0 > incarnation);
    unit.options.ids_from = 0;
    assert!(create(&unit.open(), "c").0 > incarnation, "ids only grow");
}

/// Creates a log whose note says its durability.
fn create_as(logs: &Unlocked, name: &str, note: &[u8]) -> Committed {
    let op = Op::Create { name, note, origin: None, append: None };
    logs.lock(&[name]).commit(Class::User, &[op]).unwrap()
}

fn write(logs: &Unlocked, log: LogId, message: &[u8]) -> Committed {
    let (lengths, parts) = (Lengths::one(message.len() as u32), [message]);
    let append = Some(Append::Bytes { parts: &parts, lengths: &lengths });
    logs.lock_logs(&[log], &[]).commit(Class::User, &[Op::Write { log, note: b"", append }]).unwrap()
}

#[test]
fn a_buffered_log_shows_what_is_written_and_a_durable_one_what_is_durable() {
    for unsaid in [Durability::Durable, Durability::Buffered] {
        let journal = ScriptedJournal::lazy();
        let unit = Unit::new(journal.clone(), LogsOptions { durability: unsaid, ..options() });
        let logs = unit.open();
        let ids = [b"buffered".as_slice(), b"durable", b"-"].map(|kind| {
            let made = create_as(&logs, std::str::from_utf8(kind).unwrap(), kind);
            journal.sync();
            made.created.unwrap()
        });
        let waits = ids.map(|log| write(&logs, log, b"abc").until);
        let end = |n: usize| waits[n].position();
        assert_eq!(waits[0], Until::Written(end(0)));
        assert_eq!(waits[1], Until::Durable(end(1)));
        assert_eq!(waits[2], Until::of(unsaid, end(2)));
        let published = || ids.map(|log| logs.lock_logs(&[log], &[]).view(log).unwrap().published.0);
        let when = || {
            ids.map(|log| {
                let mut guard = logs.lock_logs(&[log], &[]);
                let view = guard.view(log).unwrap();
                view.when(view.changed)
            })
        };
        assert_eq!((published(), when()), ([0, 0, 0], waits));
        journal.write();
        let unsaid_sees = if unsaid == Durability::Buffered { 3 } else { 0 };
        assert_eq!(published(), [3, 0, unsaid_sees]);
        journal.sync();
        assert_eq!(published(), [3, 3, 3]);
    }
}

#[test]
fn what_is_durable_about_a_buffered_log_is_waited_for() {
    let journal = ScriptedJournal::lazy();
    let unit = Unit::new(journal.clone(), options());
    let logs = unit.open();
    let made = create_as(&logs, "a", b"buffered");
    assert_eq!(made.until, Until::Written(made.end));
    let log = made.created.unwrap();
    // Such as a close.
    let note = Op::Write { log, note: b"n", append: None };
    let closed = logs.lock(&["a"]).commit_durably(Class::User, &[note]).unwrap();
    assert_eq!(closed.until, Until::Durable(closed.end));
    journal.write();
    let after = write(&logs, log, b"x");
    assert_eq!(after.until, Until::Durable(after.end), "it tells of the frame before");
    journal.sync();
    let later = write(&logs, log, b"x");
    assert_eq!(later.until, Until::Written(later.end));
    // A delete is durable, and so is whatever tells of it.
    let gone = logs.lock(&["a"]).commit(Class::Upkeep, &[Op::Delete { log }]).unwrap();
    assert_eq!(gone.until, Until::Durable(gone.end));
    let again = create_as(&logs, "a", b"buffered");
    assert_eq!(again.until, Until::Durable(again.end));
    journal.sync();
    let one = create_as(&logs, "b", b"buffered");
    assert_eq!(one.until, Until::Written(one.end));
    // A frame of several kinds is of the strongest.
    let other = create_as(&logs, "c", b"durable").created.unwrap();
    journal.sync();
    let one = one.created.unwrap();
    let ops = [Op::Write { log: one, note: b"n", append: None }, Op::Write { log: other, note: b"n", append: None }];
    let both = logs.lock(&["b", "c"]).commit(Class::User, &ops).unwrap();
    assert_eq!(both.until, Until::Durable(both.end));
}

#[test]
fn a_fork_promises_what_its_source_does() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let source = create_as(&logs, "a", b"buffered").created.unwrap();
    let fork = |name, note| {
        let op = Op::Create { name, note, origin: Some(Origin { source, at: Offset(0) }), append: None };
        logs.lock(&["a", name]).commit(Class::User, &[op])
    };
    for note in [b"durable".as_slice(), b"-"] {
        assert_eq!(fork("b", note), Err(CommitError::Durability(source)));
    }
    assert!(fork("b", b"buffered").is_ok());
}

#[test]
fn a_crash_of_the_machine_gives_buffered_logs_and_only_those_a_new_incarnation() {
    for (unsaid, loss) in [(Durability::Durable, Loss::Buffered), (Durability::Buffered, Loss::Unsaid)] {
        let unit = Unit::new(ScriptedJournal::eager(), LogsOptions { durability: unsaid, ..options() });
        let logs = unit.open();
        let kinds = [b"buffered".as_slice(), b"durable", b"-"];
        let names = ["a", "b", "c"];
        let ids = [0, 1, 2].map(|n| create_as(&logs, names[n], kinds[n]).created.unwrap());
        for log in ids {
            write(&logs, log, b"abc");
        }
        let forks = [0, 1, 2].map(|n| {
            let origin = Some(Origin { source: ids[n], at: Offset(2) });
            let op = Op::Create { name: ["x", "y", "z"][n], note: kinds[n], origin, append: None };
            logs.lock_logs(&[ids[n]], &[["x", "y", "z"][n]]).commit(Class::User, &[op]).unwrap().created.unwrap()
        });
        settle_all(&logs);
        let incarnations = |logs: &Unlocked| {
            [0, 1, 2].map(|n| {
                let of = |log: LogId, at| logs.lock_logs(&[log], &[]).view(log).unwrap().incarnation(Offset(at));
                [of(ids[n], 3), of(forks[n], 2), of(forks[n], 3)]
            })
        };
        let before = incarnations(&logs);
        assert_eq!(incarnations(&unit.open()), before, "after death of the process");
        let logs = unit.open_after(loss);
        let after = incarnations(&logs);
        let changes = [true, false, unsaid == Durability::Buffered];
        for n in 0..3 {
            assert_eq!(after[n][0] > forks[2].0, changes[n], "kind {n}");
            assert_eq!(after[n] != before[n], changes[n], "kind {n}");
            assert_eq!(after[n][0], after[n][1], "positions of a fork are its source's");
        }
        assert_eq!(incarnations(&unit.open()), after);
    }
}

#[test]
fn a_fork_is_published_with_what_it_inherits_and_read_before_it_is_written() {
    let journal = ScriptedJournal::lazy();
    let unit = Unit::new(journal.clone(), options());
    let logs = unit.open();
    let source = create(&logs, "source");
    append(&logs, source, b"hello");
    let fork = fork(&logs, "fork", source, 5);
    let published = |log| logs.lock_logs(&[log], &[]).view(log).unwrap().published;
    assert_eq!(
        (published(source), published(fork)),
        (Offset(0), Offset(5)),
        "every answer about the fork waits for it"
    );
    let wanted = ReadFrom { log: fork, from: Offset(0), upto: Offset(5) };
    assert!(logs.try_read(wanted).is_none(), "it would have to wait");
    assert_eq!(logs.read(wanted).unwrap().parts.concat(), b"hello");
    assert!(journal.durable() > Lsn::ZERO, "the read has waited for what it read");
}

#[test]
fn a_note_that_cannot_be_applied_is_refused_before_it_is_in_the_journal() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    let before = logs.journal().end();
    let lengths = Lengths::one(3);
    let parts = [&b"abc"[..]];
    let append = Some(Append::Bytes { parts: &parts, lengths: &lengths });
    let refused = logs.lock(&["a"]).commit(Class::User, &[Op::Write { log, note: b"bad", append }]);
    assert_eq!(refused, Err(CommitError::Note { log, error: DecodeError::Range("note") }));
    assert_eq!((logs.journal().end(), tail(&logs, log)), (before, Offset(0)), "nothing has changed");
    drop(logs);
    assert_eq!(tail(&unit.open(), log), Offset(0), "and the unit opens");
}

#[test]
fn ids_beyond_those_that_the_root_reserves_are_not_given_out() {
    let journal = ScriptedJournal::lazy();
    let unit = Unit::new(journal.clone(), LogsOptions { id_reserve: 5, ..options() });
    let logs = unit.open();
    let named = |n: usize| format!("log {n}");
    let create = |logs: &Unlocked, n: usize| {
        let name = named(n);
        let op = Op::Create { name: &name, note: b"", origin: None, append: None };
        logs.lock(&[&name]).commit(Class::User, &[op]).map(|done| done.created.unwrap())
    };
    let given: Vec<LogId> = (0..).map_while(|n| create(&logs, n).ok()).collect();
    assert!((1..=5).contains(&given.len()), "{given:?}");
    assert_eq!(create(&logs, given.len()), Err(CommitError::Ids(5)));
    // A crash that loses all of them does not give one out again.
    journal.crash();
    let logs = unit.open();
    let again = create(&logs, 0).unwrap();
    assert!(given.iter().all(|id| id.0 >> 6 < again.0 >> 6), "{again} after {given:?}");
    // A round reserves more.
    while create(&logs, logs.len()).is_ok() {}
    journal.sync();
    assert!(logs.settle(Millis(1), When::Now).unwrap());
    create(&logs, 100).unwrap();
}

#[test]
fn an_edit_whose_outcome_is_not_known_counts_as_not_made_and_loses_nothing() {
    for fate in [Fate::Made, Fate::NotMade] {
        for restart in [false, true] {
            let unit = Unit::new(ScriptedJournal::eager(), options());
            let logs = unit.open();
            let log = create(&logs, "a");
            append(&logs, log, b"one");
            unit.manifest.fail_next(fate);
            let failed = logs.settle(Millis(1), When::Now);
            assert!(matches!(failed, Err(UpkeepError::Manifest(ManifestError::Io { .. }))), "{failed:?}");
            assert_eq!(unit.journal.start(), Lsn::ZERO, "the journal keeps what a restart may need");
            append(&logs, log, b"two");
            let logs = if restart {
                drop(logs);
                unit.open()
            } else {
                logs
            };
            assert_eq!(read(&logs, log), b"onetwo", "{fate:?}");
            settle_all(&logs);
            assert!(unit.journal.start() > Lsn::ZERO);
            assert_eq!(read(&logs, log), b"onetwo");
            let named = logs.stats().objects as usize;
            assert_eq!(unit.storage.list().unwrap().len(), named, "objects of the edit that was in doubt are gone");
            assert_eq!(read(&unit.open(), log), b"onetwo");
        }
    }
}

#[test]
fn an_owner_that_was_replaced_while_its_edit_was_in_doubt_stops() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    unit.manifest.fail_next(Fate::NotMade);
    logs.settle(Millis(1), When::Now).unwrap_err();
    let root = unit.manifest.acquire(0).unwrap();
    unit.manifest.commit(root.epoch, root.version, b"of another owner").unwrap();
    let refused = logs.settle(Millis(1), When::Now);
    let fenced = ManifestError::Fenced { epoch: root.epoch - 1, found: root.epoch };
    assert_eq!(refused, Err(UpkeepError::Manifest(fenced)));
}

#[test]
fn objects_or_frames_without_a_root_are_refused_and_left_alone() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    drop(logs);
    // Frames alone.
    let mut lost = Unit::new(unit.journal.clone(), unit.options);
    let refused = lost.try_open(Loss::Nothing).err().unwrap();
    assert!(matches!(&refused, OpenError::Replay(ReplayError::RootMissing { .. })), "{refused}");
    assert!(refused.to_string().contains("the manifest is missing"), "{refused}");
    settle_all(&unit.open());
    // Objects alone.
    let objects = unit.storage.list().unwrap();
    lost = Unit { storage: unit.storage.clone(), ..Unit::new(ScriptedJournal::eager(), unit.options) };
    let refused = lost.try_open(Loss::Nothing).err().unwrap();
    assert!(
        matches!(refused, OpenError::Unit(thalweg_unit::OpenError::RootMissing { objects: n }) if n == objects.len()),
        "{refused}"
    );
    assert_eq!(unit.storage.list().unwrap(), objects, "they are there still");
    assert_eq!(read(&unit.open(), log), b"one");
}

#[test]
fn objects_are_removed_only_once_the_root_that_does_not_name_them_is_this_owners() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    drop(logs);
    let orphan = thalweg_base::ObjectId(77);
    unit.storage.create(orphan).unwrap().finish().unwrap();
    // An opening does not become the owner.
    unit.manifest.fail_next(Fate::NotMade);
    assert!(unit.try_open(Loss::Nothing).is_err());
    assert!(unit.storage.list().unwrap().contains(&orphan));
    let logs = unit.open();
    assert!(!unit.storage.list().unwrap().contains(&orphan));
    append(&logs, log, b"two");
    settle_all(&logs);
    assert!(unit.storage.list().unwrap().iter().all(|id| id.0 > 77), "its id is not given out again");
}

#[test]
fn an_opening_that_never_gets_a_journal_removes_nothing() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let orphan = ObjectId(77);
    let begin =
        || Logs::<support::Notes>::begin(unit.options, unit.storage.clone(), unit.manifest.clone(), Loss::Nothing);
    drop(begin().unwrap());
    let root = unit.manifest.load().unwrap().unwrap();
    assert!(root.body.is_empty(), "a new unit has an owner, and gets its root when it has a journal");
    drop(unit.open());
    unit.storage.create(orphan).unwrap().finish().unwrap();
    let before = unit.manifest.load().unwrap().unwrap().version;
    drop(begin().unwrap());
    assert!(unit.manifest.load().unwrap().unwrap().version > before, "the unit is owned before the journal is opened");
    assert_eq!(unit.storage.list().unwrap(), [orphan]);
    drop(unit.open());
    assert_eq!(unit.storage.list().unwrap(), []);
}

#[test]
fn a_start_that_fails_on_its_directory_deposes_nobody() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    settle_all(&logs);
    let before = unit.manifest.load().unwrap();
    let spoil = |bytes: &mut Vec<u8>| bytes.iter_mut().for_each(|byte| *byte ^= 16);
    let whole: Vec<_> =
        unit.storage.list().unwrap().into_iter().map(|object| (object, replace(&unit, object, spoil))).collect();
    assert!(matches!(unit.try_open(Loss::Nothing), Err(OpenError::Directory(_))));
    assert_eq!(unit.manifest.load().unwrap(), before);
    for (object, bytes) in whole {
        replace(&unit, object, |spoilt| *spoilt = bytes);
    }
    append(&logs, log, b"two");
    settle_all(&logs);
    assert_eq!(read(&logs, log), b"onetwo", "the owner goes on");
}

#[test]
fn frames_below_the_logs_own_floor_are_passed_over() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    let frame = FrameRef { lsn: Lsn(0), len: 3 };
    settle_all(&logs);
    drop(logs);
    // Another index of the unit needs more of the journal than the logs do.
    let begun = Logs::<support::Notes>::begin(unit.options, unit.storage.clone(), unit.manifest.clone(), Loss::Nothing);
    let mut opening = begun.unwrap();
    assert!(opening.bounds().floor > frame.lsn);
    opening.replay(frame, &Bytes::from_static(b"\x01of settled content")).unwrap();
    let logs = Arc::new(opening.finish(unit.journal.clone()).unwrap());
    assert_eq!(read(&logs, log), b"one");
}

#[test]
fn a_unit_with_a_frame_that_cannot_be_replayed_does_not_open_even_if_its_caller_goes_on() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    drop(unit.open());
    let mut opening =
        Logs::<support::Notes>::begin(unit.options, unit.storage.clone(), unit.manifest.clone(), Loss::Nothing)
            .unwrap();
    let at = FrameRef { lsn: Lsn(0), len: 3 };
    let refused = opening.replay(at, &Bytes::from_static(b"bad")).unwrap_err();
    assert!(matches!(refused, OpenError::Replay(ReplayError::Form { at: Lsn(0), .. })), "{refused}");
    let refused = opening.finish(unit.journal.clone()).err().unwrap();
    assert!(matches!(refused, OpenError::Start(StartError::Refused { at: Lsn(0) })), "{refused}");
}

#[test]
fn the_id_of_an_object_that_an_opening_removed_is_not_given_out_by_a_later_one() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    drop(logs);
    unit.storage.create(ObjectId(77)).unwrap().finish().unwrap();
    // Two openings that crash before any work of their own.
    for _ in 0..2 {
        drop(unit.open());
        assert_eq!(unit.storage.list().unwrap(), []);
    }
    let logs = unit.open();
    settle_all(&logs);
    let objects = unit.storage.list().unwrap();
    assert!(!objects.is_empty() && objects.iter().all(|id| id.0 > 77), "{objects:?}");
}

#[test]
fn a_closed_unit_knows_how_far_its_journal_was_durable() {
    let journal = ScriptedJournal::eager();
    let unit = Unit::new(journal.clone(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    let end = logs.durable();
    logs.close().unwrap();
    let cut = thalweg_log::read_cut(&*unit.manifest, &(unit.storage.clone() as _)).unwrap().unwrap();
    assert_eq!((cut.journal.known_durable, cut.journal.term), (end, journal.term()));
}

#[test]
fn background_work_goes_on_when_the_clock_is_set_back() {
    let options = LogsOptions { settle_after_ms: 1_000, reclaim_every_ms: 1_000, purge_after_ms: 0, ..options() };
    let unit = Unit::new(ScriptedJournal::eager(), options);
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, b"one");
    let hour = 3_600_000;
    assert!(!logs.settle(Millis(10 * hour), When::Due).unwrap(), "seen for the first time");
    assert!(!logs.settle(Millis(hour), When::Due).unwrap(), "the wait begins again");
    assert!(logs.settle(Millis(hour + 1_000), When::Due).unwrap(), "and ends after its time");
    assert!(!logs.reclaim(Millis(10 * hour)).unwrap(), "nothing has died");
    let gone = Op::Delete { log };
    logs.lock_logs(&[log], &[]).commit(Class::Upkeep, &[gone]).unwrap();
    logs.reclaim(Millis(hour)).unwrap();
    logs.reclaim(Millis(hour + 1_000)).unwrap();
    logs.reclaim(Millis(hour + 2_000)).unwrap();
    assert_eq!(logs.stats().data_bytes, 0, "its space is given back");
}

#[test]
fn damage_of_an_object_is_an_error_that_names_the_log_and_never_other_bytes() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    append(&logs, log, &[7; 50]);
    settle_all(&logs);
    drop(logs);
    for object in unit.storage.list().unwrap() {
        let whole = unit.storage.read(object, 0..unit.storage.len(object).unwrap()).wait().unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 16;
            let copy = Unit { manifest: unit.manifest.copy(), ..Unit::new(unit.journal.clone(), unit.options) };
            for other in unit.storage.list().unwrap() {
                let bytes = unit.storage.read(other, 0..unit.storage.len(other).unwrap()).wait().unwrap();
                let bytes = if other == object { Bytes::from(damaged.clone()) } else { bytes };
                let mut writer = copy.storage.create(other).unwrap();
                writer.write(&bytes).unwrap();
                writer.finish().unwrap();
            }
            // The directory is read when the unit is opened, content when it is asked for.
            let Ok(logs) = copy.try_open(Loss::Nothing) else { continue };
            match read_from(&logs, log, 0) {
                Ok((bytes, _)) => assert_eq!(bytes, [7; 50], "byte {at} of object {object}"),
                Err(ReadError::Corrupt { log: of, .. }) => assert_eq!(of, log),
                Err(error) => panic!("byte {at} of object {object}: {error}"),
            }
        }
    }
}

/// Replaces the bytes of an object. Returns the bytes before.
fn replace(unit: &Unit, object: ObjectId, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    replace_in(unit.storage.as_ref(), object, change)
}

fn replace_in(storage: &dyn Storage, object: ObjectId, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let whole = storage.read(object, 0..storage.len(object).unwrap()).wait().unwrap().to_vec();
    let mut changed = whole.clone();
    change(&mut changed);
    storage.remove(object).unwrap();
    let mut writer = storage.create(object).unwrap();
    writer.write(&changed).unwrap();
    writer.finish().unwrap();
    whole
}

/// One pass of the scrub. Returns the damage that is known after it.
fn scrub(logs: &Unlocked) -> Vec<Damage> {
    let mut pass = Scrub::default();
    while logs.scrub(&mut pass).unwrap().is_some() {}
    logs.refresh_damage(Millis(5));
    logs.damages()
}

fn named(damage: &Damage) -> Vec<(&str, u64, u64)> {
    damage.logs.iter().map(|log| (log.name.as_str(), log.start.0, log.end.0)).collect()
}

#[test]
fn the_scrub_finds_every_flipped_byte_in_its_place_and_what_was_mended_is_forgotten() {
    let unit = Unit::new(ScriptedJournal::eager(), LogsOptions { object_bytes: 1 << 20, ..options() });
    let logs = unit.open();
    for name in ["a", "b"] {
        let log = create(&logs, name);
        append(&logs, log, &[7; 20_000]);
    }
    settle_all(&logs);
    assert!(scrub(&logs).is_empty());
    for object in unit.storage.list().unwrap() {
        let len = unit.storage.len(object).unwrap();
        for at in (0..len).step_by(61).chain(len.saturating_sub(124)..len) {
            let whole = replace(&unit, object, |bytes| bytes[at as usize] ^= 16);
            let found = scrub(&logs);
            let [damage] = &found[..] else { panic!("byte {at} of object {object}: {found:?}") };
            let (of, from) = match damage.place {
                Place::Object { object, at } | Place::Directory { object, at } => (object, at),
                other => panic!("{other:?}"),
            };
            assert!(of == object && from <= at, "byte {at} of object {object}: {damage:?}");
            assert!(damage.bytes == 0 || at < from + damage.bytes, "byte {at} of object {object}: {damage:?}");
            assert_eq!(damage.first_seen, Some(Millis(5)));
            // Content begins behind the header of 28 bytes; of that, as of the index, all content is told.
            let of = |start: u64, end: u64| {
                let a = (start < 20_000).then(|| ("a", start, end.min(20_000)));
                let b = (end > 20_000).then(|| ("b", start.max(20_000) - 20_000, end.min(40_000) - 20_000));
                a.into_iter().chain(b).collect::<Vec<_>>()
            };
            match (damage.place, at.checked_sub(28)) {
                (Place::Object { .. }, None) => {
                    assert_eq!((damage.bytes, named(damage)), (28, of(0, 40_000)), "byte {at}");
                }
                (Place::Object { .. }, Some(at @ 0..40_000)) => {
                    let page = at / 16_384 * 16_384;
                    assert_eq!(named(damage), of(page, page + 16_384), "byte {at}");
                }
                _ => {}
            }
            replace(&unit, object, |bytes| *bytes = whole);
            assert!(scrub(&logs).is_empty(), "it was mended");
        }
    }
}

#[test]
fn an_object_of_another_length_is_known_to_be_damaged_from_the_start_on() {
    let options = LogsOptions { object_bytes: 1 << 20, ..options() };
    let cuts: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes.truncate(30_000),
        |bytes| bytes.clear(),
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes.push(0),
    ];
    for (n, cut) in cuts.into_iter().enumerate() {
        let unit = Unit::new(ScriptedJournal::eager(), options);
        let logs = unit.open();
        let log = create(&logs, "a");
        for _ in 0..40 {
            append(&logs, log, &[7; 1_000]);
        }
        settle_all(&logs);
        let object = unit.storage.list().unwrap()[0];
        drop(logs);
        let whole = replace(&unit, object, cut);
        let logs = unit.open();
        assert_eq!(logs.damage_stats().total(), 1, "cut {n}: before anything was read");
        logs.refresh_damage(Millis(3));
        let damages = logs.damages();
        let [damage] = &damages[..] else { panic!("cut {n}: {damages:?}") };
        assert_eq!((damage.place, damage.logs[0].name.as_str()), (Place::Object { object, at: 0 }, "a"), "cut {n}");
        assert!(damage.what.contains("40"), "cut {n}: {}", damage.what);
        // Writing goes on, and a damaged object is not merged away.
        for _ in 0..30 {
            append(&logs, log, &[8; 500]);
            settle_all(&logs);
        }
        assert!(unit.storage.list().unwrap().contains(&object), "cut {n}");
        drop(logs);
        replace(&unit, object, |bytes| *bytes = whole);
        let logs = unit.open();
        assert_eq!(logs.damage_stats().total(), 0, "cut {n}: it was mended");
        assert_eq!(read(&logs, log), [vec![7; 40_000], vec![8; 15_000]].concat(), "cut {n}");
    }
}

#[test]
fn a_read_of_damage_names_its_positions_and_is_known() {
    let unit =
        Unit::new(ScriptedJournal::eager(), LogsOptions { object_bytes: 1 << 20, chunk_bytes: 1 << 20, ..options() });
    let logs = unit.open();
    let log = create(&logs, "a");
    for _ in 0..40 {
        append(&logs, log, &[7; 1_000]);
    }
    settle_all(&logs);
    let object = unit.storage.list().unwrap()[0];
    replace(&unit, object, |bytes| bytes[20_000] ^= 1);
    let Err(ReadError::Corrupt { offset, end, .. }) = read_from(&logs, log, 0) else { panic!("it is damaged") };
    // The page from 16384 to 32768, and the rest of the messages that it cuts.
    assert_eq!((offset, end), (Offset(16_000), Offset(33_000)));
    assert_eq!(logs.damage_stats().total(), 1);
    logs.refresh_damage(Millis(9));
    assert_eq!(named(&logs.damages()[0]), [("a", 16_384, 32_768)]);
    assert_eq!(logs.damages()[0].times, 1);
    assert_eq!(read_from(&logs, log, end.0).unwrap().0.len(), 7_000, "what lies behind is read");
}

#[test]
fn damage_stops_no_other_merge_and_goes_with_its_log() {
    // In the data, and in the footer.
    for at in [100, usize::MAX] {
        let unit = Unit::new(ScriptedJournal::eager(), options());
        let logs = unit.open();
        let rots = create(&logs, "rots");
        append(&logs, rots, &[7; 500]);
        settle_all(&logs);
        let object = unit.storage.list().unwrap()[0];
        replace(&unit, object, |bytes| {
            let at = at.min(bytes.len() - 40);
            bytes[at] ^= 1;
        });
        assert_eq!(scrub(&logs).len(), 1);
        let other = create(&logs, "other");
        for _ in 0..30 {
            append(&logs, other, &[8; 500]);
            settle_all(&logs);
        }
        assert!(logs.stats().runs <= 8, "{} runs", logs.stats().runs);
        assert!(matches!(read_from(&logs, rots, 0), Err(ReadError::Corrupt { .. })));
        assert_eq!(read(&logs, other).len(), 15_000);
        let gone = Op::Delete { log: rots };
        logs.lock_logs(&[rots], &[]).commit(Class::Upkeep, &[gone]).unwrap();
        logs.refresh_damage(Millis(10));
        assert!(logs.damages().is_empty(), "nothing needs it: {:?}", logs.damages());
        for hour in 1..5 {
            logs.reclaim(Millis(hour * 3_600_000)).unwrap();
        }
        assert!(!unit.storage.list().unwrap().contains(&object), "its space is given back");
        assert_eq!(scrub(&logs), []);
        assert_eq!(read(&logs, other).len(), 15_000);
    }
}

#[test]
fn an_object_that_is_gone_stops_neither_reclaiming_nor_merging_of_the_rest() {
    let unit = Unit::new(ScriptedJournal::eager(), LogsOptions { reclaim_every_ms: 0, ..options() });
    let logs = unit.open();
    let [lost, freed, other] = ["lost", "freed", "other"].map(|name| create(&logs, name));
    append(&logs, lost, &[7; 500]);
    append(&logs, lost, &[7; 500]);
    settle_all(&logs);
    let object = unit.storage.list().unwrap()[0];
    append(&logs, freed, &[9; 500]);
    settle_all(&logs);
    logs.reclaim(Millis(1)).unwrap();
    unit.storage.remove(object).unwrap();
    let change = |log, op| logs.lock_logs(&[log], &[]).commit(Class::Upkeep, &[op]).unwrap();
    change(lost, Op::Trim { log: lost, start: Offset(500) });
    change(freed, Op::Delete { log: freed });
    for hour in 1..3 {
        logs.reclaim(Millis(hour * 3_600_000)).expect("a pass goes on with the rest");
    }
    assert_eq!(logs.stats().data_bytes, 1_000, "what else has died is freed");
    logs.refresh_damage(Millis(5));
    let damages = logs.damages();
    let [damage] = &damages[..] else { panic!("{damages:?}") };
    assert_eq!((damage.place, damage.logs[0].name.as_str()), (Place::Object { object, at: 0 }, "lost"));
    for _ in 0..30 {
        append(&logs, other, &[8; 500]);
        settle_all(&logs);
    }
    assert!(logs.stats().runs <= 8, "{} runs", logs.stats().runs);
    change(lost, Op::Delete { log: lost });
    for hour in 3..6 {
        logs.reclaim(Millis(hour * 3_600_000)).unwrap();
    }
    assert_eq!((logs.stats().data_bytes, read(&logs, other).len()), (15_000, 15_000));
    logs.refresh_damage(Millis(6));
    assert_eq!(logs.damages(), []);
}

#[test]
fn an_object_that_is_gone_is_left_out_of_merging_once_a_merge_has_missed_it() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let [lost, other] = ["lost", "other"].map(|name| create(&logs, name));
    append(&logs, lost, &[7; 500]);
    settle_all(&logs);
    unit.storage.remove(unit.storage.list().unwrap()[0]).unwrap();
    for _ in 0..30 {
        append(&logs, other, &[8; 500]);
        while logs.settle(Millis(1), When::Now).unwrap() {}
        (0..9).for_each(|_| drop(logs.merge()));
    }
    assert!(logs.stats().runs <= 8, "{} runs", logs.stats().runs);
    assert_eq!(read(&logs, other).len(), 15_000);
}

#[test]
fn an_object_whose_index_rots_while_its_round_is_under_way_is_not_dropped() {
    let unit =
        Unit::new(ScriptedJournal::eager(), LogsOptions { object_bytes: 1 << 20, reclaim_every_ms: 0, ..options() });
    let logs = unit.open();
    let [dead, a, b] = ["dead", "a", "b"].map(|name| create(&logs, name));
    append(&logs, dead, &[9; 500]);
    settle_all(&logs);
    for log in [a, b] {
        append(&logs, log, &[log.0 as u8; 20_000]);
    }
    let before: Vec<ObjectId> = logs.hold_sealed().cut.objects.iter().map(|(id, _)| *id).collect();
    let rotten = Arc::new(Mutex::new(None));
    let (weak, storage, found) = (Arc::downgrade(&logs), Arc::clone(&unit.storage), Arc::clone(&rotten));
    logs.interrupt(Some(Arc::new(move |moment| {
        let Some(logs) = weak.upgrade() else { return };
        if moment != Moment::Edited || found.lock().is_some() {
            return;
        }
        // The fresh run is in the root, and its logs do not know that yet.
        let object = logs.hold_sealed().cut.objects.iter().map(|(id, _)| *id).find(|id| !before.contains(id)).unwrap();
        // The blocks of the index lie between the data and the footer.
        let whole = replace_in(storage.as_ref(), object, |bytes| bytes[40_000..].fill(0));
        *found.lock() = Some((object, whole));
        logs.lock_logs(&[dead], &[]).commit(Class::Upkeep, &[Op::Delete { log: dead }]).unwrap();
        let _ = logs.reclaim(Millis(1_000));
    })));
    settle_all(&logs);
    logs.interrupt(None);
    let (object, whole) = rotten.lock().take().expect("a round was made");
    assert!(unit.storage.list().unwrap().contains(&object), "live content was dropped");
    replace(&unit, object, |bytes| *bytes = whole);
    logs.reclaim(Millis(9_000)).unwrap();
    append(&logs, a, b"after");
    settle_all(&logs);
    drop(logs);
    let logs = unit.open();
    assert_eq!(read(&logs, a), [&[a.0 as u8; 20_000][..], b"after"].concat());
    assert_eq!(read(&logs, b), [b.0 as u8; 20_000]);
}

#[test]
fn a_directory_that_rots_is_written_once_more_from_memory() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let rests: Vec<LogId> = ["a", "b", "c"].map(|name| create(&logs, name)).into();
    for log in &rests {
        append(&logs, *log, b"one");
    }
    settle_all(&logs);
    let gone = Op::Delete { log: rests[1] };
    logs.lock_logs(&[rests[1]], &[]).commit(Class::Upkeep, &[gone]).unwrap();
    settle_all(&logs);
    append(&logs, rests[0], b"two");
    let later = create(&logs, "b");
    settle_all(&logs);
    let mut logs = logs;
    for round in 0..2 {
        // Objects of the directory come last.
        let (rotten, _) = *logs.hold_sealed().cut.objects.last().unwrap();
        replace(&unit, rotten, |bytes| bytes[9] ^= 1);
        let found = scrub(&logs);
        assert!(matches!(found[..], [Damage { place: Place::Directory { .. }, .. }]), "{found:?}");
        // Nothing waits to be settled, or something does.
        if round == 1 {
            append(&logs, rests[2], b"two");
            append(&logs, later, b"new");
        }
        assert!(logs.settle(Millis(7), When::Due).unwrap(), "it is due at once");
        assert_eq!(scrub(&logs), []);
        assert!(!logs.settle(Millis(7), When::Due).unwrap(), "and once is enough");
        logs = unit.open();
        assert_eq!((read(&logs, rests[0]), read(&logs, later).len()), (b"onetwo".to_vec(), 3 * round));
        assert_eq!((logs.len(), read(&logs, rests[2]).len()), (3, 3 + 3 * round));
        let another = create(&logs, &format!("another {round}"));
        logs.lock_logs(&[another], &[]).commit(Class::Upkeep, &[Op::Delete { log: another }]).unwrap();
        settle_all(&logs);
    }
}

#[test]
fn dead_bytes_that_are_damaged_do_not_keep_their_neighbours_from_being_copied() {
    let unit = Unit::new(ScriptedJournal::eager(), LogsOptions { object_bytes: 1 << 20, ..options() });
    let logs = unit.open();
    // Ids grow, and objects are sorted by them.
    let (other, rots) = (create(&logs, "other"), create(&logs, "rots"));
    append(&logs, rots, &[7; 40_000]);
    append(&logs, other, &[8; 20_000]);
    settle_all(&logs);
    let object = unit.storage.list().unwrap()[0];
    replace(&unit, object, |bytes| bytes[50_000] ^= 1);
    let gone = Op::Delete { log: rots };
    logs.lock_logs(&[rots], &[]).commit(Class::Upkeep, &[gone]).unwrap();
    for hour in 1..5 {
        logs.reclaim(Millis(hour * 3_600_000)).unwrap();
    }
    assert!(!unit.storage.list().unwrap().contains(&object));
    assert_eq!(read(&logs, other), [8; 20_000]);
}
