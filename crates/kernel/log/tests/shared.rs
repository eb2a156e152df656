//! Two indexes on one unit: logs, and counters that are there for this test. They share the journal, its syncs, the
//! storage and the root; each settles at its own pace.
//!
//! `SEED=n` replays one history, `SEEDS=n` says how many are run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "shared/counters.rs"]
mod counters;
mod support;
#[path = "shared/unit.rs"]
mod unit;

use counters::{COUNTERS, Counters, Values};
use oorandom::Rand32;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use support::Notes;
use thalweg_base::{Lsn, Millis};
use thalweg_disk::{Disk, RealDisk};
use thalweg_journal::{FileJournal, Journal};
use thalweg_log::{Logs, Loss, MANIFEST, OBJECTS, When};
use thalweg_manifest::FileManifest;
use thalweg_sim::SimDisk;
use thalweg_storage::{FileStorage, Storage};
use thalweg_unit::{Faults, IndexId, OpenError, Opening, ReplayError, Section, own};
use unit::{Shared, journal_options, logs_options};

/// A change that was accepted, by the end of its frame.
enum Change {
    Append { log: &'static str, message: Vec<u8>, add: Option<u64> },
    Add { counter: &'static str, n: u64 },
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct World {
    disk: SimDisk,
    random: Rand32,
    faults: Faults,
    shared: Option<Shared>,
    accepted: BTreeMap<Lsn, Change>,
    /// A durable position: changes below may have been acknowledged.
    durable: Lsn,
    now: u64,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    crashes: u64,
    /// Accepted changes that a crash has taken.
    lost: u64,
    log_rounds: u64,
    counter_rounds: u64,
    /// Openings at which one index needed frames below the floor of the other.
    apart: u64,
    trims: u64,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let (disk, random) = (SimDisk::new(seed), Rand32::new(seed));
        let (accepted, tally) = (BTreeMap::new(), Tally::default());
        let mut world = Self { disk, random, faults, shared: None, accepted, durable: Lsn::ZERO, now: 1, tally };
        world.open();
        world
    }

    fn upto(&mut self, n: u32) -> u32 {
        self.random.rand_range(0..n)
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.upto(4) as usize]
    }

    fn open(&mut self) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let salt = u64::from(self.random.rand_u32());
        let shared =
            Shared::open(&disk, salt, self.faults).unwrap_or_else(|error| panic!("the unit is refused: {error}"));
        let end = shared.journal.opened().end;
        assert!(end >= self.durable, "{end} is found, and {} was durable", self.durable);
        let before = self.accepted.len();
        self.accepted.retain(|at, _| *at <= end);
        self.tally.lost += (before - self.accepted.len()) as u64;
        self.durable = end;
        shared.check_objects();
        let floors = self.floors(&shared);
        self.tally.apart += u64::from(floors[0] != floors[1]);
        self.shared = Some(shared);
        self.check();
    }

    /// Those of the root in force: of the logs, and of the counters.
    fn floors(&self, shared: &Shared) -> [Lsn; 2] {
        let root = thalweg_log::decode_root(&shared.unit.hold().cut.root).unwrap();
        [IndexId::LOG, COUNTERS].map(|index| root.sections[&index].floor)
    }

    /// Both indexes hold the changes that were accepted and not lost, and the journal holds the frames that the slower
    /// index needs.
    fn check(&self) {
        let shared = self.shared.as_ref().unwrap();
        let (mut values, mut contents) = (Values::new(), BTreeMap::<&str, Vec<u8>>::new());
        for change in self.accepted.values() {
            match change {
                Change::Append { log, message, add } => {
                    contents.entry(log).or_default().extend(message);
                    if let Some(n) = add {
                        *values.entry((*log).to_owned()).or_default() += n;
                    }
                }
                Change::Add { counter, n } => *values.entry((*counter).to_owned()).or_default() += n,
            }
        }
        assert_eq!(shared.counters.values(), values, "the counters");
        for name in NAMES {
            let expected = contents.remove(name).unwrap_or_default();
            assert!(shared.content(name) == expected, "log {name} is not as it was accepted");
        }
        let [logs, counters] = self.floors(shared);
        let start = shared.journal.start();
        assert!(start <= logs.min(counters), "trimmed to {start}: logs need {logs}, counters {counters}");
    }

    fn step(&mut self) {
        // An append, a round, or the last things that a process does.
        let what = self.upto(40);
        if what == 0 {
            self.crash();
            return self.open();
        }
        self.act(what);
        if self.disk.is_stopped() {
            self.crash();
            return self.open();
        }
        let shared = self.shared.as_ref().unwrap();
        self.durable = self.durable.max(shared.journal.durable());
        // Reading is no change of the disk, so the process does not die of it.
        if what == 1 && shared.journal.durable() == shared.journal.end() {
            self.check();
        }
    }

    /// Operations fail because the process is dying.
    fn must<T, E: std::fmt::Display>(&self, done: Result<T, E>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(_) if self.disk.is_stopped() => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn act(&mut self, what: u32) {
        let shared = self.shared.take().unwrap();
        match what {
            2..16 => {
                let (log, len) = (self.name(), 1 + self.upto(600));
                let message = vec![b'a' + self.upto(26) as u8; len as usize];
                let add = (self.upto(3) == 0).then(|| u64::from(1 + self.upto(1000)));
                let done = match add {
                    None => shared.append(log, &message),
                    Some(n) => shared.append_and_add(log, &message, n),
                };
                if let Some(end) = self.must(done) {
                    self.accepted.insert(end, Change::Append { log, message, add });
                }
            }
            16..24 => {
                let (counter, n) = (self.name(), u64::from(1 + self.upto(1000)));
                if let Some(end) = self.must(shared.counters.add(counter, n)) {
                    self.accepted.insert(end, Change::Add { counter, n });
                }
            }
            1 | 24..28 => {
                let _ = self.must(shared.sync());
            }
            28..31 => {
                self.now += 1;
                let before = shared.journal.start();
                let done = self.must(shared.logs.settle(Millis(self.now), When::Now));
                self.tally.log_rounds += u64::from(done == Some(true));
                self.tally.trims += u64::from(shared.journal.start() > before);
            }
            31 => {
                let before = shared.journal.start();
                self.tally.counter_rounds += u64::from(self.must(shared.counters.settle()).is_some());
                self.tally.trims += u64::from(shared.journal.start() > before);
            }
            32 => {
                let _ = self.must(shared.logs.merge());
            }
            33..36 => {
                let _ = self.must(shared.journal.prepare());
            }
            // The process dies soon, in the middle of its next work.
            36 => {
                let changes = u64::from(self.upto(25));
                self.disk.stop_after(changes);
            }
            _ => {}
        }
        self.shared = Some(shared);
    }

    fn crash(&mut self) {
        let shared = self.shared.take().unwrap();
        self.durable = self.durable.max(shared.journal.durable());
        drop(shared);
        if self.upto(4) == 0 {
            self.disk.crash_kill();
        } else {
            self.disk.crash_power();
        }
        self.tally.crashes += 1;
    }
}

fn run(seed: u64, faults: Faults) -> Tally {
    let mut world = World::new(seed, faults);
    for _ in 0..300 {
        world.step();
    }
    world.crash();
    world.open();
    world.tally
}

#[test]
fn simulation_of_two_indexes_on_one_journal_loses_neither() {
    thalweg_sim::histories(60, "thalweg-log", |seed| {
        run(seed, Faults::default());
    });
}

#[test]
fn histories_of_two_indexes_reach_what_they_are_for() {
    let mut sum = [0; 6];
    for seed in 0..20 {
        let Tally { crashes, lost, log_rounds, counter_rounds, apart, trims } = run(seed, Faults::default());
        for (sum, n) in sum.iter_mut().zip([crashes, lost, log_rounds, counter_rounds, apart, trims]) {
            *sum += n;
        }
    }
    eprintln!("crashes, lost, rounds of logs, rounds of counters, floors apart, trims: {sum:?}");
    for (n, least) in sum.into_iter().zip([150, 100, 200, 80, 80, 60]) {
        assert!(n >= least, "{sum:?}");
    }
}

#[test]
fn faults_planted_in_a_shared_unit_are_caught() {
    let none = Faults::default();
    for faults in
        [Faults { trims_to_the_fastest_index: true, ..none }, Faults { routes_to_the_first_index: true, ..none }]
    {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let seen = (0..100).find(|seed| catch_unwind(AssertUnwindSafe(|| run(*seed, faults))).is_err());
        std::panic::set_hook(hook);
        eprintln!("{faults:?} is seen by seed {seen:?}");
        assert!(seen.is_some(), "no history shows the planted fault {faults:?}");
    }
}

fn folder() -> (tempfile::TempDir, Arc<dyn Disk>) {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir.path()).unwrap());
    (dir, disk)
}

fn open(disk: &Arc<dyn Disk>, salt: u64) -> Shared {
    Shared::open(disk, salt, Faults::default()).unwrap()
}

#[test]
fn commits_to_both_indexes_share_batches_and_syncs() {
    let (_dir, disk) = folder();
    let shared = open(&disk, 1);
    let before = shared.journal.stats();
    for n in 0..50 {
        shared.append("log", b"message").unwrap();
        shared.counters.add("counter", n).unwrap();
    }
    shared.sync().unwrap();
    let after = shared.journal.stats();
    assert_eq!((after.frames - before.frames, after.batches - before.batches), (100, 1));
    assert_eq!(after.syncs - before.syncs, 1, "one sync makes the frames of both durable");
    // One frame holds what belongs together.
    shared.append_and_add("log", b"message", 1000).unwrap();
    shared.sync().unwrap();
    assert_eq!(shared.journal.stats().frames - after.frames, 1);
    shared.journal.close().unwrap();
    shared.unit.close().unwrap();
    drop(shared);
    let shared = open(&disk, 2);
    assert_eq!(shared.content("log"), b"message".repeat(51));
    assert_eq!(shared.counters.values(), Values::from([("counter".into(), 50 * 49 / 2), ("log".into(), 1000)]));
}

#[test]
fn the_journal_is_trimmed_to_the_floor_of_the_slower_index_and_no_further() {
    let (_dir, disk) = folder();
    let mut shared = open(&disk, 1);
    let write = |shared: &Shared| {
        shared.append("log", &[7; 500]).unwrap();
        shared.counters.add("counter", 1).unwrap();
        shared.sync().unwrap();
    };
    write(&shared);
    while shared.logs.settle(Millis(1), When::Now).unwrap() {}
    assert_eq!(shared.journal.start(), Lsn::ZERO, "the counters have settled nothing");
    write(&shared);
    let slower = shared.journal.end();
    shared.counters.settle().unwrap();
    assert_eq!(shared.journal.start(), shared.unit.bounds().floor);
    assert!(shared.journal.start() < slower, "the logs need what came since their round");
    while shared.logs.settle(Millis(2), When::Now).unwrap() {}
    assert_eq!(shared.journal.start(), slower, "what both have settled is let go, with the round of the slower one");
    write(&shared);
    drop(shared);
    shared = open(&disk, 2);
    assert_eq!(shared.content("log"), [7; 1500]);
    assert_eq!(shared.counters.values(), Values::from([("counter".into(), 3)]));
}

#[test]
fn an_index_that_joins_a_unit_begins_where_its_journal_does() {
    let (_dir, disk) = folder();
    let alone = |salt| {
        let unit =
            thalweg_log::FileUnit::<Notes>::open(disk.clone(), journal_options(salt), logs_options(), Loss::Nothing);
        unit.map_err(|error| error.to_string())
    };
    // Logs that had the unit to themselves, and have let some of the journal go.
    {
        let unit = alone(1).unwrap();
        let lengths = thalweg_log::Lengths::one(7);
        let append = Some(thalweg_log::Append::Bytes { parts: &[b"message"], lengths: &lengths });
        let op = thalweg_log::Op::Create { name: "log", note: b"durable", origin: None, append };
        let end = unit.logs.lock(&["log"]).commit(thalweg_journal::Class::User, &[op]).unwrap().end;
        unit.journal.wait(end).unwrap();
        while unit.logs.settle(Millis(1), When::Now).unwrap() {}
        assert!(unit.journal.start() > Lsn::ZERO);
    }
    for salt in 2..4 {
        let shared = open(&disk, salt);
        assert_eq!(shared.content("log"), b"message");
        shared.counters.add("counter", 1).unwrap();
        shared.sync().unwrap();
    }
    assert_eq!(open(&disk, 4).counters.values(), Values::from([("counter".into(), 2)]));
    // A program that does not know the counters leaves the unit as it is.
    let refused = alone(5).err().unwrap();
    assert!(refused.contains("an unknown index (number 200)"), "{refused}");
    assert_eq!(open(&disk, 6).counters.values(), Values::from([("counter".into(), 2)]));
}

#[test]
fn a_frame_of_an_index_that_is_not_known_keeps_the_unit_closed() {
    let (_dir, disk) = folder();
    {
        let shared = open(&disk, 1);
        let head = thalweg_unit::frame_head(IndexId(7));
        shared.journal.append(thalweg_journal::Class::User, &[&head, b"of another"]).unwrap();
        shared.sync().unwrap();
    }
    let refused = Shared::open(&disk, 2, Faults::default()).err().unwrap();
    assert!(refused.contains("an unknown index (number 7)"), "{refused}");
    // A caller that passes over the refusal cannot start the unit.
    let storage = Arc::new(FileStorage::open(Arc::clone(&disk), OBJECTS).unwrap());
    let manifest = Arc::new(FileManifest::open(Arc::clone(&disk), MANIFEST, 3).unwrap());
    let read = || Opening::read(storage.clone(), manifest.clone(), thalweg_log::decode_root);
    let (unit, loaded) = own(0, read, |opening| {
        let logs = Logs::<Notes>::load(logs_options(), opening, Loss::Nothing).map_err(|_| OpenError::Changed)?;
        Ok::<_, OpenError>((logs, Counters::load(opening)?))
    })
    .unwrap();
    let (mut logs, mut counters) = (loaded.0.replay_on(&unit), loaded.1.replay_on(&unit));
    let mut refused = None;
    let mut replay = |at, frame| {
        refused = unit.replay(at, &frame, &mut [&mut logs, &mut counters]).err().or(refused.take());
        Ok::<(), ReplayError>(())
    };
    let journal = FileJournal::open(Arc::clone(&disk), journal_options(3), unit.bounds(), &mut replay).unwrap();
    assert!(matches!(refused, Some(ReplayError::UnknownIndex { index: 7, .. })), "{refused:?}");
    assert!(matches!(unit.start(Arc::new(journal)), Err(thalweg_unit::StartError::Refused { .. })));
}

#[test]
fn orphans_of_both_indexes_are_told_from_what_either_names() {
    let (_dir, disk) = folder();
    let shared = open(&disk, 1);
    for _ in 0..3 {
        shared.append_and_add("log", b"message", 1).unwrap();
        shared.sync().unwrap();
        while shared.logs.settle(Millis(1), When::Now).unwrap() {}
        shared.counters.settle().unwrap();
    }
    let named = shared.storage.list().unwrap();
    assert!(!shared.counters.index.section().objects().is_empty() && named.len() > 3, "{named:?}");
    // Work of either index that did not come to its commit.
    for _ in 0..2 {
        let mut writer = shared.unit.storage().create(shared.unit.new_object()).unwrap();
        writer.write(b"orphan").unwrap();
        writer.finish().unwrap();
    }
    assert_eq!(shared.storage.list().unwrap().len(), named.len() + 2);
    drop(shared);
    let shared = open(&disk, 2);
    assert_eq!(shared.storage.list().unwrap(), named);
    shared.check_objects();
    assert_eq!(shared.content("log"), b"message".repeat(3));
    assert_eq!(shared.counters.values(), Values::from([("log".into(), 3)]));
}
