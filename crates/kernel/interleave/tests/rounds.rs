//! Writers, a reader, rounds of settling, merges, reclaiming and a crash, in orders that the checker chooses: in every
//! order a restart finds the changes that were committed up to the position that survived, and no others.
//!
//! `INTERLEAVINGS=n` says how many orders are tried. A failure prints the schedule, which `SCHEDULE=...` runs again.
#![allow(clippy::unwrap_used)]

mod mortal;

use bytes::Bytes;
use mortal::{Disk, MortalJournal};
use shuttle::Runner;
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use thalweg_base::{DecodeError, Decoder, Encoder, LogId, Lsn, Millis, Offset};
use thalweg_interleave::{
    Append, Attachment, CommitError, Faults, Lengths, Logs, LogsOptions, Loss, Op, Origin, ReadFrom, When,
};
use thalweg_journal::{Class, FrameRef, Journal};

/// An attachment that remembers every note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Notes(Vec<Vec<u8>>);

impl Attachment for Notes {
    fn create(note: &[u8], _: Lsn) -> Result<Self, DecodeError> {
        Ok(Self(vec![note.to_vec()]))
    }

    fn check(&self, _: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn apply(&mut self, note: &[u8], _: Lsn) -> Result<(), DecodeError> {
        self.0.push(note.to_vec());
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|note| out.put_bytes(note));
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (mut d, mut notes) = (Decoder::new(bytes), Vec::new());
        while !d.is_empty() {
            notes.push(d.bytes()?.to_vec());
        }
        Ok(Self(notes))
    }

    fn may_rest(&self, _: Lsn) -> bool {
        true
    }
}

type Unit = Logs<Notes>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Modelled {
    id: LogId,
    start: u64,
    bytes: Vec<u8>,
    notes: usize,
}

type Model = BTreeMap<String, Modelled>;
type Change = Box<dyn Fn(&mut Model) + Send>;

/// The committed changes, by the ends of their frames: the checker's threads add to them in any order.
#[derive(Clone, Default)]
struct Committed(Arc<Mutex<BTreeMap<Lsn, Change>>>);

impl Committed {
    fn add(&self, end: Lsn, change: impl Fn(&mut Model) + Send + 'static) {
        self.0.lock().unwrap().insert(end, Box::new(change));
    }

    fn upto(&self, cut: Lsn) -> Model {
        let mut model = Model::new();
        self.0.lock().unwrap().range(..=cut).for_each(|(_, change)| change(&mut model));
        model
    }
}

fn options(faults: Faults) -> LogsOptions {
    LogsOptions {
        chunk_bytes: 64,
        settle_bytes: 1 << 20,
        object_bytes: 400,
        fan_in: 2,
        reclaim_every_ms: 0,
        purge_after_ms: 0,
        faults,
        ..LogsOptions::default()
    }
}

fn open(disk: &Disk, journal: &Arc<MortalJournal>, frames: &[(Lsn, Bytes)], faults: Faults) -> Result<Unit, String> {
    let (storage, manifest) = (disk.storage(), disk.manifest());
    let opening = Logs::begin(options(faults), storage, manifest, Loss::Nothing);
    let mut opening = opening.map_err(|error| error.to_string())?;
    let floor = opening.bounds().floor;
    for (lsn, bytes) in frames.iter().filter(|(lsn, _)| *lsn >= floor) {
        let frame = FrameRef { lsn: *lsn, len: bytes.len() as u32 };
        opening.replay(frame, bytes).map_err(|error| error.to_string())?;
    }
    opening.finish(Arc::clone(journal) as Arc<dyn Journal>).map_err(|error| error.to_string())
}

/// Names that share a shard, so that a round works on one beside another.
fn names() -> Vec<String> {
    let all = (0..).map(|n| format!("n{n}"));
    all.filter(|name| thalweg_base::crc(name.as_bytes()) % 2 == 1).take(3).collect()
}

struct Writer {
    logs: Arc<Unit>,
    committed: Committed,
    names: Vec<String>,
}

impl Writer {
    /// `None`: the process is dead.
    fn step(&self) -> Option<()> {
        let mut random = shuttle::rand::thread_rng();
        let name = &self.names[random.gen_range(0..self.names.len())];
        match random.gen_range(0..8) {
            0 | 1 => self.delete(name),
            2 => self.trim(name),
            3 => self.fork(name),
            _ => self.append(name, random.gen_range(1..40)),
        }
    }

    fn commit(
        &self,
        done: Result<thalweg_interleave::Committed, CommitError>,
    ) -> Option<thalweg_interleave::Committed> {
        match done {
            Ok(committed) => Some(committed),
            Err(CommitError::Refused(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn append(&self, name: &str, len: usize) -> Option<()> {
        let mut guard = self.logs.lock(&[name]);
        let Some(log) = guard.find(name) else {
            drop(guard);
            return self.create(name);
        };
        let bytes = vec![b'a' + len as u8 % 26; len];
        let (lengths, parts) = (Lengths::one(len as u32), [&bytes[..]]);
        let append = Append::Bytes { parts: &parts, lengths: &lengths };
        let done = self.commit(guard.commit(Class::User, &[Op::Write { log, note: b"w", append: Some(append) }]))?;
        drop(guard);
        let name = name.to_owned();
        self.committed.add(done.end, move |model| {
            let log = model.get_mut(&name).expect("it was there");
            log.bytes.extend(&bytes);
            log.notes += 1;
        });
        Some(())
    }

    fn create(&self, name: &str) -> Option<()> {
        let mut guard = self.logs.lock(&[name]);
        if guard.find(name).is_some() {
            return Some(());
        }
        let done =
            self.commit(guard.commit(Class::User, &[Op::Create { name, note: b"c", origin: None, append: None }]))?;
        drop(guard);
        let (id, name) = (done.created.unwrap(), name.to_owned());
        self.committed.add(done.end, move |model| {
            model.insert(name.clone(), Modelled { id, notes: 1, ..Modelled::default() });
        });
        Some(())
    }

    fn delete(&self, name: &str) -> Option<()> {
        let mut guard = self.logs.lock(&[name]);
        let Some(log) = guard.find(name) else { return Some(()) };
        let done = self.commit(guard.commit(Class::Upkeep, &[Op::Delete { log }]))?;
        drop(guard);
        let name = name.to_owned();
        self.committed.add(done.end, move |model| {
            model.remove(&name);
        });
        Some(())
    }

    fn trim(&self, name: &str) -> Option<()> {
        let mut guard = self.logs.lock(&[name]);
        let Some(log) = guard.find(name) else { return Some(()) };
        let tail = guard.view(log).unwrap().tail;
        let done = self.commit(guard.commit(Class::Upkeep, &[Op::Trim { log, start: tail }]))?;
        drop(guard);
        let name = name.to_owned();
        self.committed.add(done.end, move |model| {
            let log = model.get_mut(&name).expect("it was there");
            log.start = tail.0;
        });
        Some(())
    }

    /// A fork that is gone at once: it pins its source for a moment.
    fn fork(&self, source: &str) -> Option<()> {
        let name = format!("fork of {source}");
        let mut guard = self.logs.lock(&[source, &name]);
        let Some(log) = guard.find(source) else { return Some(()) };
        if guard.find(&name).is_some() {
            return Some(());
        }
        let at = guard.view(log).unwrap().tail;
        let origin = Some(Origin { source: log, at });
        let create = Op::Create { name: &name, note: b"f", origin, append: None };
        let done = self.commit(guard.commit(Class::User, &[create]))?;
        let gone = self.commit(guard.commit(Class::User, &[Op::Delete { log: done.created.unwrap() }]))?;
        drop(guard);
        self.committed.add(gone.end, |_| {});
        Some(())
    }
}

/// The state that a restart after the crash must find.
fn check(logs: &Unit, expected: &Model) {
    let mut found = Vec::new();
    let mut cursor = Some(thalweg_interleave::SweepCursor::default());
    while let Some(at) = cursor {
        cursor = logs.sweep(at, 1_000, &mut |_, name, _| found.push(name.to_owned()));
    }
    found.retain(|name| !name.starts_with("fork of"));
    found.sort_unstable();
    assert_eq!(found, expected.keys().cloned().collect::<Vec<_>>(), "the logs that there are");
    for (name, log) in expected {
        let view = {
            let mut guard = logs.lock(&[name]);
            let view = guard.view(log.id).unwrap_or_else(|| panic!("{name} has another id"));
            (view.start.0, view.tail.0, view.attachment.0.len())
        };
        assert_eq!(view, (log.start, log.bytes.len() as u64, log.notes), "start, tail and notes of {name}");
        let (mut at, upto) = (Offset(log.start), Offset(log.bytes.len() as u64));
        let mut content = Vec::new();
        while at < upto {
            let chunk = logs.read(ReadFrom { log: log.id, from: at, upto }).unwrap();
            content.extend(chunk.parts.concat());
            at = chunk.end;
        }
        assert!(content == log.bytes[log.start as usize..], "the content of {name}");
    }
}

/// One run: all threads at once, until the process dies at some moment, and a restart.
fn history(faults: Faults) {
    let disk = Disk::default();
    let journal = MortalJournal::new(disk.clone());
    let logs = Arc::new(open(&disk, &journal, &[], faults).expect("a new unit opens"));
    let (committed, names) = (Committed::default(), names());
    let writer =
        |names: &[String]| Writer { logs: Arc::clone(&logs), committed: committed.clone(), names: names.to_vec() };
    let first = writer(&names);
    for name in &names {
        first.create(name).and_then(|()| first.append(name, 20)).unwrap();
    }
    journal.sync();
    logs.settle(Millis(1), When::Now).unwrap();
    for name in &names {
        first.append(name, 30).unwrap();
    }
    journal.sync();

    let mut threads = Vec::new();
    for part in [&names[..2], &names[1..]] {
        let writer = writer(part);
        threads.push(shuttle::thread::spawn(move || {
            let _ = (0..4).try_for_each(|_| writer.step());
        }));
    }
    let upkeep: [fn(&Unit); 2] = [
        |logs| {
            let _ = (0..2).try_for_each(|n| logs.settle(Millis(10 + n), When::Now).map(|_| ()));
        },
        |logs| {
            let _ = logs.merge().and_then(|_| logs.reclaim(Millis(100_000)));
        },
    ];
    for work in upkeep {
        let logs = Arc::clone(&logs);
        threads.push(shuttle::thread::spawn(move || work(&logs)));
    }
    let (reader, name) = (Arc::clone(&logs), names[1].clone());
    threads.push(shuttle::thread::spawn(move || read(&reader, &name)));
    let (syncing, dying) = (Arc::clone(&journal), disk.clone());
    let until = shuttle::rand::thread_rng().gen_range(1..160);
    threads.push(shuttle::thread::spawn(move || {
        for n in 0..until {
            shuttle::thread::yield_now();
            if n % 41 == 40 {
                syncing.sync();
            }
        }
        dying.die();
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    disk.die();

    drop((logs, first));
    let (frames, cut) = journal.survivors(shuttle::rand::thread_rng().gen_range(0..4) == 0);
    disk.live_again();
    let journal = MortalJournal::at(disk.clone(), &frames, cut);
    let again = open(&disk, &journal, &frames, Faults::default());
    check(&again.unwrap_or_else(|error| panic!("the restart is refused: {error}")), &committed.upto(cut));
}

/// A reader beside all that: it gets bytes of the log, or is told that they are gone.
fn read(logs: &Unit, name: &str) {
    for _ in 0..3 {
        let found = {
            let mut guard = logs.lock(&[name]);
            let Some(log) = guard.find(name) else { continue };
            let view = guard.view(log).unwrap();
            (log, view.start, view.published)
        };
        let (log, mut at, upto) = found;
        while at < upto {
            match logs.read(ReadFrom { log, from: at, upto }) {
                Ok(chunk) => at = chunk.end,
                Err(thalweg_interleave::ReadError::Missing(_) | thalweg_interleave::ReadError::Trimmed { .. }) => break,
                // The process is dead.
                Err(thalweg_interleave::ReadError::Io { .. }) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// A reader that has taken its snapshot, while the content that it is about to read is trimmed and reclaimed.
fn reader_and_trim() {
    let disk = Disk::default();
    let journal = MortalJournal::new(disk.clone());
    let logs = Arc::new(open(&disk, &journal, &[], Faults::default()).expect("a new unit opens"));
    let writer = Writer { logs: Arc::clone(&logs), committed: Committed::default(), names: names() };
    let name = writer.names[0].clone();
    writer.create(&name).and_then(|()| writer.append(&name, 39)).unwrap();
    journal.sync();
    logs.settle(Millis(1), When::Now).unwrap();
    let reading = {
        let (logs, name) = (Arc::clone(&logs), name.clone());
        shuttle::thread::spawn(move || read(&logs, &name))
    };
    writer.trim(&name).unwrap();
    journal.sync();
    assert!(logs.reclaim(Millis(100_000)).unwrap(), "its space is given back");
    reading.join().unwrap();
}

#[test]
fn interleavings_of_a_reader_and_a_trim_never_look_like_damage() {
    Runner::new(PctScheduler::new(2, orders(2_000)), config()).run(reader_and_trim);
}

/// The checker's own stacks, of 32 KiB, are too small for the frames of a build that is not optimised.
fn config() -> shuttle::Config {
    let mut config = shuttle::Config::default();
    config.stack_size = 1 << 20;
    config
}

fn orders(default: usize) -> usize {
    std::env::var("INTERLEAVINGS").ok().map_or(default, |n| n.parse().unwrap())
}

#[test]
fn interleavings_at_random_find_what_was_committed() {
    if let Ok(schedule) = std::env::var("SCHEDULE") {
        let schedule = ReplayScheduler::new_from_encoded(&schedule);
        Runner::new(schedule, config()).run(|| history(Faults::default()));
        return;
    }
    Runner::new(RandomScheduler::new(orders(2_000)), config()).run(|| history(Faults::default()));
}

#[test]
fn interleavings_with_few_switches_find_what_was_committed() {
    Runner::new(PctScheduler::new(3, orders(2_000)), config()).run(|| history(Faults::default()));
}

/// Whether one of the orders that a scheduler gives shows a planted fault.
fn seen(faults: Faults, scheduler: impl shuttle::scheduler::Scheduler + 'static) -> bool {
    let mut config = config();
    config.failure_persistence = shuttle::FailurePersistence::None;
    let runner = Runner::new(scheduler, config);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runner.run(move || history(faults)))).is_err();
    std::panic::set_hook(hook);
    seen
}

#[test]
fn planted_races_are_seen() {
    for faults in [
        Faults { round_misses_deletes: true, ..Faults::default() },
        Faults { merge_ignores_undurable_deaths: true, ..Faults::default() },
    ] {
        let is_seen = (1..=8).any(|seed| {
            seen(faults, RandomScheduler::new_from_seed(seed, 4_000))
                || seen(faults, PctScheduler::new_from_seed(seed, 3, 4_000))
        });
        assert!(is_seen, "no order shows {faults:?}");
    }
}
