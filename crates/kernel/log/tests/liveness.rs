//! The promises of the ledger: freeing costs in proportion to dead content, and no dead content is forgotten.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use support::{HeldCommit, Notes, ScriptedJournal, Unit};
use thalweg_base::{LogId, Millis, Offset};
use thalweg_journal::Class;
use thalweg_log::{
    Append, Damage, Lengths, ListOptions, Logs, LogsOptions, Loss, Op, OpenError, Place, ReadFrom, Scrub, When,
};
use thalweg_storage::Storage;

fn options() -> LogsOptions {
    LogsOptions { object_bytes: 16 << 10, reclaim_every_ms: 0, purge_after_ms: 60_000, ..LogsOptions::default() }
}

fn create(logs: &Logs<Notes>, name: &str) -> LogId {
    let op = Op::Create { name, note: b"new", origin: None, append: None };
    logs.lock(&[name]).commit(Class::User, &[op]).unwrap().created.unwrap()
}

fn append(logs: &Logs<Notes>, log: LogId, message: &[u8]) {
    let (lengths, parts) = (Lengths::one(message.len() as u32), [message]);
    let append = Append::Bytes { parts: &parts, lengths: &lengths };
    logs.lock_logs(&[log], &[]).commit(Class::User, &[Op::Write { log, note: b"", append: Some(append) }]).unwrap();
}

fn change(logs: &Logs<Notes>, log: LogId, op: Op<'_>) {
    logs.lock_logs(&[log], &[]).commit(Class::Upkeep, &[op]).unwrap();
}

fn delete(logs: &Logs<Notes>, log: LogId) {
    change(logs, log, Op::Delete { log });
}

fn trim(logs: &Logs<Notes>, log: LogId, start: u64) {
    change(logs, log, Op::Trim { log, start: Offset(start) });
}

fn settle(logs: &Logs<Notes>) {
    while logs.settle(Millis(1), When::Now).unwrap() {}
}

/// Everything is counted, and as its indexes say.
fn is_counted(logs: &Logs<Notes>) {
    assert_eq!(logs.miscounted().unwrap(), (Vec::new(), 0));
}

/// So many logs in one run.
fn many(unit: &Unit, logs: &Logs<Notes>, count: usize) -> Vec<LogId> {
    let ids: Vec<LogId> = (0..count).map(|n| create(logs, &format!("log {n}"))).collect();
    ids.iter().for_each(|log| append(logs, *log, &[7; 320]));
    settle(logs);
    unit.storage.take_read();
    ids
}

#[test]
fn deleting_one_log_reads_the_objects_that_hold_it_however_many_there_are() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let ids = many(&unit, &logs, 100_000);
    let objects = logs.stats().objects;
    assert!(objects > 1_500, "{objects} objects");
    logs.reclaim(Millis(1)).unwrap();
    assert_eq!(unit.storage.take_read().len(), 0, "a round counts what it makes");
    delete(&logs, ids[50_000]);
    let began = Instant::now();
    logs.reclaim(Millis(2)).unwrap();
    let (took, read) = (began.elapsed(), unit.storage.take_read());
    assert_eq!(read.len(), 1, "objects that were read");
    println!("of {objects} objects 1 was read, {} bytes, in {took:?}", read.values().sum::<u64>());
    assert_eq!(logs.stats().live_bytes, (100_000 - 1) * 320);
    drop(logs);
    // The background count of a start reads what each pass read before: the index of every object.
    let logs = unit.open();
    let indexes = |read: std::collections::BTreeMap<_, u64>| read.values().sum::<u64>();
    let (opening, began) = (indexes(unit.storage.take_read()), Instant::now());
    logs.reclaim(Millis(3)).unwrap();
    let (took, read) = (began.elapsed(), unit.storage.take_read());
    println!(
        "opening read {opening} bytes; counting read {} objects, {} bytes, in {took:?}",
        read.len(),
        indexes(read.clone())
    );
    assert!(read.len() as u64 > objects - 50);
    is_counted(&logs);
    assert_eq!(logs.stats().live_bytes, (100_000 - 1) * 320);
}

#[test]
fn trimming_a_hot_log_reads_what_is_trimmed_and_not_what_is_kept() {
    // About 250 objects of one log, and as many of others.
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let others = many(&unit, &logs, 12_000);
    let hot = create(&logs, "hot");
    for _ in 0..4_000 {
        append(&logs, hot, &[8; 1_000]);
    }
    settle(&logs);
    while logs.merge().unwrap() {}
    unit.storage.take_read();
    for step in 1..=40u64 {
        trim(&logs, hot, step * 50_000);
        logs.reclaim(Millis(step)).unwrap();
        let read = unit.storage.take_read();
        // 50,000 bytes lie in four objects; one is at the edge, and one is written once more.
        assert!(read.len() <= 7, "{} objects in step {step}", read.len());
    }
    is_counted(&logs);
    while logs.reclaim(Millis(1_000_000)).unwrap() {}
    is_counted(&logs);
    let stats = logs.stats();
    assert_eq!((stats.live_bytes, stats.data_bytes), (others.len() as u64 * 320 + 2_000_000, stats.live_bytes));
}

#[test]
fn a_death_before_a_crash_is_counted_after_it_and_opening_reads_no_index() {
    let unit = Unit::new(ScriptedJournal::eager(), LogsOptions { count_bytes: 20_000, ..options() });
    let logs = unit.open();
    let ids = many(&unit, &logs, 10_000);
    logs.reclaim(Millis(1)).unwrap();
    for log in ids.iter().step_by(2) {
        delete(&logs, *log);
    }
    trim(&logs, ids[1], 320);
    // The tombstones are in the directory, and no frame of the journal says that anything has died.
    append(&logs, ids[3], b"more");
    settle(&logs);
    drop(logs);
    unit.storage.take_read();
    let logs = unit.open();
    let read = unit.storage.take_read();
    assert!(read.len() < 5, "opening reads the directory: {} objects", read.len());
    // A pass reads so much and no more; in the end all is counted.
    let mut passes = 0;
    for now in 10_000.. {
        logs.reclaim(Millis(now)).unwrap();
        passes += 1;
        if logs.miscounted().unwrap().1 == 0 {
            break;
        }
    }
    assert!(passes > 5, "{passes} passes");
    is_counted(&logs);
    assert_eq!(logs.stats().live_bytes, 4_999 * 320 + 4);
    while logs.reclaim(Millis(10_000_000)).unwrap() {}
    assert_eq!(logs.stats().data_bytes, 4_999 * 320 + 4);
}

#[test]
fn what_dies_before_it_is_settled_is_freed_without_another_death() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    (0..100).for_each(|_| append(&logs, log, &[1; 1_000]));
    trim(&logs, log, 99_000);
    logs.reclaim(Millis(1)).unwrap();
    settle(&logs);
    is_counted(&logs);
    while logs.reclaim(Millis(100_000)).unwrap() {}
    while logs.reclaim(Millis(200_000)).unwrap() {}
    assert_eq!((logs.stats().live_bytes, logs.stats().data_bytes), (1_000, 1_000));
}

/// Whether numbers are given while background work waits for the manifest, which it does until this ends.
fn stats_answer_during(held: HeldCommit, logs: &Arc<Logs<Notes>>, work: impl FnOnce(&Logs<Notes>) + Send) {
    std::thread::scope(|scope| {
        let working = scope.spawn(|| work(logs));
        held.wait();
        let (tell, told) = mpsc::channel();
        let asked = Arc::clone(logs);
        std::thread::spawn(move || tell.send(asked.stats().live_bytes));
        let answer = told.recv_timeout(Duration::from_secs(10));
        drop(held);
        working.join().unwrap();
        answer.expect("numbers come while an edit is under way");
    });
}

#[test]
fn stats_do_not_wait_for_an_edit_of_the_root() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let log = create(&logs, "a");
    (0..100).for_each(|_| append(&logs, log, &[1; 1_000]));
    stats_answer_during(unit.manifest.hold_next(), &logs, settle);
    trim(&logs, log, 50_500);
    let pass = |logs: &Logs<Notes>| assert!(logs.reclaim(Millis(2)).unwrap(), "objects are dead");
    stats_answer_during(unit.manifest.hold_next(), &logs, pass);
    is_counted(&logs);
}

#[test]
fn more_deaths_than_are_remembered_are_found_by_counting_all() {
    let unit = Unit::new(ScriptedJournal::eager(), LogsOptions { moved_logs: 640, ..options() });
    let logs = unit.open();
    let ids = many(&unit, &logs, 10_000);
    logs.reclaim(Millis(1)).unwrap();
    ids.iter().take(9_000).for_each(|log| delete(&logs, *log));
    assert_eq!(logs.miscounted().unwrap().1, usize::MAX, "nothing is known for sure");
    logs.reclaim(Millis(2)).unwrap();
    is_counted(&logs);
    assert_eq!(logs.stats().live_bytes, 1_000 * 320);
    while logs.reclaim(Millis(100_000)).unwrap() {}
    assert_eq!(logs.stats().data_bytes, 1_000 * 320);
}

fn scrub(logs: &Logs<Notes>) -> Vec<Damage> {
    let mut pass = Scrub::default();
    while logs.scrub(&mut pass).unwrap().is_some() {}
    logs.refresh_damage(Millis(5));
    logs.damages()
}

/// A unit whose runs are in list objects.
fn listed() -> (Unit, LogId) {
    let lists = ListOptions { root_bytes: 100, page_objects: 4 };
    let unit = Unit::new(ScriptedJournal::eager(), LogsOptions { lists, ..options() });
    let logs = unit.open();
    let log = create(&logs, "a");
    (0..200).for_each(|_| append(&logs, log, &[1; 1_000]));
    settle(&logs);
    (unit, log)
}

/// The objects that are lists.
fn lists(unit: &Unit) -> Vec<thalweg_base::ObjectId> {
    let magic = |object| unit.storage.read(object, 0..8.min(unit.storage.len(object).unwrap())).wait().unwrap();
    unit.storage.list().unwrap().into_iter().filter(|object| magic(*object).starts_with(b"THWGLIST")).collect()
}

fn rot(unit: &Unit, list: thalweg_base::ObjectId) {
    flip(unit, list, |_| 20);
}

/// Flips a bit of the byte at a place of so many.
fn flip(unit: &Unit, object: thalweg_base::ObjectId, at: impl FnOnce(usize) -> usize) {
    let mut bytes = unit.storage.read(object, 0..unit.storage.len(object).unwrap()).wait().unwrap().to_vec();
    let at = at(bytes.len());
    bytes[at] ^= 1;
    unit.storage.remove(object).unwrap();
    let mut writer = unit.storage.create(object).unwrap();
    writer.write(&bytes).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_number_that_was_guessed_for_want_of_an_index_is_made_good_when_the_index_is_back() {
    let unit = Unit::new(ScriptedJournal::eager(), options());
    let logs = unit.open();
    let (log, other) = (create(&logs, "a"), create(&logs, "b"));
    (0..100).for_each(|_| append(&logs, log, &[1; 100]));
    append(&logs, other, &[2; 100]);
    settle(&logs);
    logs.reclaim(Millis(1)).unwrap();
    // The root is told of the first death alone.
    for start in [100, 2_000] {
        trim(&logs, log, start);
        logs.reclaim(Millis(2)).unwrap();
    }
    settle(&logs);
    drop(logs);
    let object =
        unit.storage.list().unwrap().into_iter().max_by_key(|object| unit.storage.len(*object).unwrap()).unwrap();
    let in_the_footer = |len: usize| len - 10;
    flip(&unit, object, in_the_footer);
    let logs = unit.open();
    logs.reclaim(Millis(3)).unwrap();
    flip(&unit, object, in_the_footer);
    trim(&logs, log, 3_000);
    logs.reclaim(Millis(4)).unwrap();
    is_counted(&logs);
    assert_eq!(logs.stats().live_bytes, 7_100);
}

#[test]
fn a_list_that_rots_under_a_server_is_written_once_more() {
    let (unit, log) = listed();
    let logs = unit.open();
    let list = lists(&unit)[0];
    rot(&unit, list);
    assert_eq!(scrub(&logs), [], "it was mended at once");
    assert!(!unit.storage.list().unwrap().contains(&list), "another one has taken its place");
    drop(logs);
    let logs = unit.open();
    let chunk = logs.read(ReadFrom { log, from: Offset(0), upto: Offset(200_000) }).unwrap();
    assert_eq!(chunk.parts.concat(), vec![1; 200_000]);
    let held: Vec<_> = logs.hold_sealed().cut.objects.iter().map(|(object, _)| *object).collect();
    assert!(lists(&unit).iter().all(|list| held.contains(list)), "a backup copies lists, too");
}

#[test]
fn a_unit_with_a_list_that_cannot_be_read_is_refused_and_left_alone() {
    let (unit, _) = listed();
    let list = lists(&unit)[1];
    rot(&unit, list);
    let objects = unit.storage.list().unwrap();
    let refused = unit.try_open(Loss::Nothing).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::List(_)), "{refused}");
    assert_eq!(unit.storage.list().unwrap(), objects);
    let storage: Arc<dyn Storage> = unit.storage.clone();
    assert!(thalweg_log::check(&storage, unit.manifest.as_ref(), &mut |_| {}).is_err());
    let (_, damages) = thalweg_log::find_damage(&storage, unit.manifest.as_ref(), &mut |_| {}).unwrap();
    assert!(matches!(damages[..], [Damage { place: Place::List { object }, .. }] if object == list), "{damages:?}");
}

#[test]
fn a_copy_of_a_stopped_unit_has_what_its_lists_name() {
    let (unit, _) = listed();
    let logs = unit.open();
    let mut held = logs.hold_sealed().cut.objects.clone();
    logs.close().unwrap();
    let mut cut = thalweg_log::read_cut(&*unit.manifest, &(unit.storage.clone() as _)).unwrap().unwrap().objects;
    held.sort_unstable();
    cut.sort_unstable();
    assert_eq!(cut, held);
    assert!(cut.len() > lists(&unit).len(), "lists alone are no copy");
}
