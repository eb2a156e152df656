//! Random histories against a model: logs of every durability, appends, forks, references, trims, deletes, rounds that
//! are interrupted by writers, merges, reclaiming, death of the process, and crashes of the machine anywhere between
//! the durable and the written position. Bytes that were read under a position are never read as other bytes there.
//! `SEED=n` replays one history; `SEEDS=n` says how many are run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod late;
#[path = "../support/mod.rs"]
mod support;

use late::{Far, Late, Seen};
use oorandom::Rand32;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use support::{Doubtful, Fate, Notes, ScriptedJournal, Unit};
use thalweg_base::{Durability, LogId, Lsn, Millis, Offset, Step};
use thalweg_journal::{Class, Journal};
use thalweg_log::{
    Append, EndRead, Faults, Lengths, ListOptions, Logs, LogsOptions, Loss, Moment, Op, Origin, PieceRead, ReadError,
    ReadFrom, UpkeepError, When,
};
use thalweg_manifest::ManifestError;

const CHUNK: u64 = 100;

#[derive(Clone, Debug, Default)]
struct Modelled {
    name: String,
    bytes: Vec<u8>,
    /// Positions where messages end, 0 included.
    boundaries: Vec<u64>,
    start: u64,
    notes: Vec<Vec<u8>>,
    /// Logs whose content this one needs.
    needs: Vec<LogId>,
    kind: Kind,
}

/// The durability that a log says it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unsaid,
    Durable,
    Buffered,
}

impl Kind {
    fn note(self) -> &'static [u8] {
        match self {
            Kind::Unsaid => b"-",
            Kind::Durable => b"durable",
            Kind::Buffered => b"buffered",
        }
    }
}

/// Content that a reader saw under a position.
struct Shown {
    log: LogId,
    incarnation: u64,
    content: Vec<u8>,
}

/// A planted fault, and the seed whose history shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// Crashes of the machine are taken for deaths of the process.
    MarkNotApplied,
    /// The mark is applied to those that say that they are buffered alone.
    MarkOfUnsaidForgotten,
    /// Faults of the kernel itself.
    RoundMissesDeletes,
    MergeIgnoresUndurableDeaths,
    RoundCountsAllAsLive,
    PassForgetsLaterDeaths,
    /// Seen by late reads alone.
    ReadsBelieveTheirRoot,
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::MarkNotApplied,
        Self::MarkOfUnsaidForgotten,
        Self::RoundMissesDeletes,
        Self::MergeIgnoresUndurableDeaths,
        Self::RoundCountsAllAsLive,
        Self::PassForgetsLaterDeaths,
    ];

    fn planted(self) -> Faults {
        Faults {
            round_misses_deletes: self == Self::RoundMissesDeletes,
            merge_ignores_undurable_deaths: self == Self::MergeIgnoresUndurableDeaths,
            round_counts_all_as_live: self == Self::RoundCountsAllAsLive,
            pass_forgets_later_deaths: self == Self::PassForgetsLaterDeaths,
            reads_believe_their_root: self == Self::ReadsBelieveTheirRoot,
            ..Faults::default()
        }
    }
}

type Model = BTreeMap<LogId, Modelled>;
type Change = Arc<dyn Fn(&mut Model) + Send + Sync>;

struct World {
    random: Rand32,
    logs: Arc<Logs<Notes>>,
    /// All that was committed, and the parts of it that are written, and durable, for certain.
    now: Model,
    written: Model,
    durable: Model,
    unwritten: Vec<(Lsn, Change)>,
    undurable: Vec<(Lsn, Change)>,
    names: u32,
    unsaid: Durability,
    shown: Vec<Shown>,
    /// Crashes of the machine that took something which was written.
    losses: u64,
    /// The process died inside of background work: nothing happens until the crash that follows.
    dead: bool,
    /// At which moments it died.
    deaths: Vec<Moment>,
}

impl World {
    fn upto(&mut self, n: usize) -> usize {
        self.random.rand_range(0..n.max(1) as u32) as usize
    }

    fn pick(&mut self) -> Option<LogId> {
        let at = self.upto(self.now.len());
        self.now.keys().nth(at).copied()
    }

    fn commit(&mut self, locked: &[LogId], names: &[&str], ops: &[Op<'_>]) -> (Lsn, Option<LogId>) {
        let done = self.logs.lock_logs(locked, names).commit(Class::User, ops).expect("the commit is valid");
        (done.end, done.created)
    }

    fn changed(&mut self, end: Lsn, change: impl Fn(&mut Model) + Send + Sync + 'static) {
        change(&mut self.now);
        let change: Change = Arc::new(change);
        self.unwritten.push((end, Arc::clone(&change)));
        self.undurable.push((end, change));
    }

    fn advance(&mut self) {
        let reached = self.logs.reached();
        while self.unwritten.first().is_some_and(|(end, _)| *end <= reached.written) {
            let (_, change) = self.unwritten.remove(0);
            change(&mut self.written);
        }
        while self.undurable.first().is_some_and(|(end, _)| *end <= reached.durable) {
            let (_, change) = self.undurable.remove(0);
            change(&mut self.durable);
        }
    }

    fn durability(&self, kind: Kind) -> Durability {
        match kind {
            Kind::Unsaid => self.unsaid,
            Kind::Durable => Durability::Durable,
            Kind::Buffered => Durability::Buffered,
        }
    }

    /// Reads a log as a client does, and remembers the content that it saw.
    fn look(&mut self, log: LogId) {
        let kind = self.now[&log].kind;
        let visible = match self.durability(kind) {
            Durability::Durable => &self.durable,
            Durability::Buffered => &self.written,
        };
        // A reader of a log waits until the log's creation may be seen.
        let Some(seen) = visible.get(&log).cloned() else { return };
        let (published, incarnation) = {
            let mut guard = self.logs.lock_logs(&[log], &[]);
            let view = guard.view(log).expect("the log is there");
            (view.published, view.incarnation(view.published))
        };
        assert_eq!(published.0, seen.bytes.len() as u64, "what readers may see of log {log}");
        self.shown.push(Shown { log, incarnation, content: seen.bytes });
    }

    /// Content that was seen under a position is seen there again, or the position is refused; content of a durable log
    /// is seen again.
    fn check_shown(&self) {
        for Shown { log, incarnation, content } in &self.shown {
            let Some(model) = self.now.get(log) else { continue };
            let mut guard = self.logs.lock_logs(&[*log], &[]);
            let view = guard.view(*log).expect("the log is there");
            let at = Offset(content.len() as u64);
            let named = view.incarnation(at) == *incarnation && at <= view.tail;
            assert!(
                named || self.durability(model.kind) == Durability::Buffered,
                "a position of durable log {log} at {at}"
            );
            assert!(!named || model.bytes.starts_with(content), "log {log} has other bytes below {at}");
        }
    }

    /// The machine or only the process goes down.
    fn crash(&mut self, journal: &ScriptedJournal, machine: bool, fault: Fault) -> Loss {
        let loose = journal.loose();
        if !machine {
            journal.crash_at(journal.written());
            return Loss::Nothing;
        }
        let kept = self.upto(loose.len() + 1);
        self.losses += u64::from(kept < loose.len());
        journal.crash_at(kept.checked_sub(1).map_or(journal.durable(), |last| loose[last]));
        match (fault, self.unsaid) {
            (Fault::MarkNotApplied, _) => Loss::Nothing,
            (Fault::MarkOfUnsaidForgotten, _) | (_, Durability::Durable) => Loss::Buffered,
            _ => Loss::Unsaid,
        }
    }

    /// Other threads, while background work is under way: they write, the journal goes on by itself, the process dies.
    fn meanwhile(&mut self, journal: &ScriptedJournal, manifest: &Doubtful, moment: Moment) {
        if self.dead {
            return;
        }
        // A round visits many shards, and has every other moment once.
        let often = matches!(moment, Moment::ShardListed | Moment::ShardHalfTaken);
        match self.upto(if often { 800 } else { 40 }) {
            0 => {
                (self.dead, self.deaths) = (true, [&self.deaths[..], &[moment]].concat());
                journal.die();
                manifest.die();
                return;
            }
            1 => journal.sync(),
            2..4 => journal.write(),
            _ => {}
        }
        match self.upto(if often { 24 } else { 4 }) {
            0 => self.delete(),
            1 | 2 => self.write(),
            _ => {}
        }
    }

    fn write(&mut self) {
        match self.upto(14) {
            0..2 => self.create(),
            2 => self.fork(),
            3 => self.delete(),
            4 => self.trim(),
            5 => self.refer(),
            6 => self.note(),
            _ => self.append(),
        }
    }

    fn create(&mut self) {
        // Names come back, so that a log can take the place of a deleted one.
        let name = format!("log {}", self.names % 13);
        self.names += 1;
        if self.now.values().any(|log| log.name == name) {
            return;
        }
        let kind = [Kind::Unsaid, Kind::Durable, Kind::Buffered][self.upto(3)];
        let note = kind.note().to_vec();
        let op = Op::Create { name: &name, note: &note, origin: None, append: None };
        let (end, id) = self.commit(&[], &[&name], &[op]);
        let id = id.unwrap();
        self.changed(end, move |model| {
            let (name, notes) = (name.clone(), vec![note.clone()]);
            model.insert(id, Modelled { name, notes, kind, boundaries: vec![0], ..Modelled::default() });
        });
    }

    fn fork(&mut self) {
        let Some(source) = self.pick() else { return };
        let name = format!("fork {}", self.names);
        self.names += 1;
        let (start, tail) = (self.now[&source].start, self.now[&source].bytes.len() as u64);
        let at = start + self.upto((tail - start) as usize + 1) as u64;
        let origin = Some(Origin { source, at: Offset(at) });
        let note = self.now[&source].kind.note();
        let op = Op::Create { name: &name, note, origin, append: None };
        let (end, id) = self.commit(&[source], &[&name], &[op]);
        let id = id.unwrap();
        self.changed(end, move |model| {
            let mut log = model[&source].clone();
            log.name = name.clone();
            log.bytes.truncate(at as usize);
            log.boundaries.retain(|b| *b < at);
            log.boundaries.push(at);
            log.notes = vec![note.to_vec()];
            log.needs.push(source);
            model.insert(id, log);
        });
    }

    fn delete(&mut self) {
        let Some(log) = self.pick() else { return };
        if self.now.values().any(|other| other.needs.contains(&log)) {
            return;
        }
        let (end, _) = self.commit(&[log], &[], &[Op::Delete { log }]);
        self.changed(end, move |model| {
            model.remove(&log);
        });
    }

    fn trim(&mut self) {
        let Some(log) = self.pick() else { return };
        let Modelled { start, boundaries, .. } = &self.now[&log];
        let later: Vec<u64> = boundaries.iter().copied().filter(|b| b >= start).collect();
        let start = later[self.upto(later.len())];
        let (end, _) = self.commit(&[log], &[], &[Op::Trim { log, start: Offset(start) }]);
        self.changed(end, move |model| {
            if let Some(log) = model.get_mut(&log) {
                log.start = log.start.max(start);
            }
        });
    }

    fn messages(&mut self) -> (Vec<u8>, Lengths) {
        let (mut bytes, mut lengths) = (Vec::new(), Lengths::new());
        for _ in 0..=self.upto(4) {
            let len = match self.upto(12) {
                0 => 300,
                n => n + self.upto(20),
            };
            let byte = self.random.rand_u32() as u8;
            bytes.extend((0..len).map(|i| byte.wrapping_add(i as u8)));
            lengths.push(len as u32);
        }
        (bytes, lengths)
    }

    fn append(&mut self) {
        let Some(log) = self.pick() else { return };
        let (bytes, lengths) = self.messages();
        let parts = [&bytes[..]];
        let append = Append::Bytes { parts: &parts, lengths: &lengths };
        let (end, _) = self.commit(&[log], &[], &[Op::Write { log, note: b"", append: Some(append) }]);
        self.changed(end, move |model| extend(model, log, &bytes, &lengths));
    }

    /// One frame: bytes into one log, a reference to them from another.
    fn refer(&mut self) {
        let (Some(source), Some(log)) = (self.pick(), self.pick()) else { return };
        if source == log {
            return;
        }
        let from = Offset(self.now[&source].bytes.len() as u64);
        let (bytes, lengths) = self.messages();
        let parts = [&bytes[..]];
        let ops = [
            Op::Write { log: source, note: b"", append: Some(Append::Bytes { parts: &parts, lengths: &lengths }) },
            Op::Write { log, note: b"r", append: Some(Append::Reference { source, from, lengths: &lengths }) },
        ];
        let (end, _) = self.commit(&[source, log], &[], &ops);
        self.changed(end, move |model| {
            extend(model, source, &bytes, &lengths);
            extend(model, log, &bytes, &lengths);
            if let Some(log) = model.get_mut(&log) {
                log.notes.push(b"r".to_vec());
                log.needs.push(source);
            }
        });
    }

    fn note(&mut self) {
        let Some(log) = self.pick() else { return };
        let note = self.random.rand_u32().to_le_bytes().to_vec();
        let (end, _) = self.commit(&[log], &[], &[Op::Write { log, note: &note, append: None }]);
        self.changed(end, move |model| {
            if let Some(log) = model.get_mut(&log) {
                log.notes.push(note.clone());
            }
        });
    }

    fn check(&mut self, log: LogId) {
        let model = self.now[&log].clone();
        let tail = model.bytes.len() as u64;
        {
            let mut guard = self.logs.lock(&[&model.name]);
            assert_eq!(guard.find(&model.name), Some(log));
            let view = guard.view(log).expect("the log is there");
            assert_eq!((view.start.0, view.tail.0), (model.start, tail), "log {log}");
            assert_eq!(view.attachment.0, model.notes, "log {log}");
        }
        // Often from the start, as many readers do: the cached part of that chunk grows with the log.
        let from = match self.upto(3) {
            0 => model.start,
            _ if tail == 0 => 0,
            _ => self.upto(tail as usize) as u64,
        };
        let want = ReadFrom { log, from: Offset(from), upto: Offset(tail) };
        // A chunk that is read twice is cached.
        (0..2).for_each(|_| self.check_read(want, &model));
    }

    fn check_read(&self, want: ReadFrom, model: &Modelled) {
        let ReadFrom { log, from: Offset(from), upto: Offset(tail) } = want;
        let kept = if from < model.start { None } else { self.logs.recall(want) };
        let got = kept.map_or_else(|| self.logs.read(want), Ok);
        if from < model.start {
            assert!(matches!(got, Err(ReadError::Trimmed { .. })), "{got:?}");
        } else if !model.boundaries.contains(&from) {
            assert!(matches!(got, Err(ReadError::InsideMessage { .. })), "log {log} at {from}: {got:?}");
        } else {
            let target = (from / CHUNK + 1) * CHUNK;
            let end = model.boundaries.iter().copied().find(|b| *b >= target).unwrap_or(tail);
            let chunk = got.expect("a read at a boundary gives content");
            assert_eq!(chunk.end.0, end, "the chunk of log {log} from {from}");
            assert!(chunk.parts.concat() == model.bytes[from as usize..end as usize], "log {log} from {from}");
            let mut read = EndRead::new(want);
            assert_eq!(done(|| read.step(&self.logs)).expect("the chunk is there").0, end, "log {log} from {from}");
            let (mut at, mut pieces) = (from, Vec::new());
            while at < end {
                let upto = end.min(at + 1 + (at * 7 + tail) % 90);
                let piece = ReadFrom { log, from: Offset(at), upto: Offset(upto) };
                let mut read = if at == from { PieceRead::first(piece) } else { PieceRead::later(piece) };
                let read = done(|| read.step(&self.logs)).expect("the chunk is there");
                assert_eq!(read.end.0, upto, "a piece of log {log} from {at}");
                pieces.extend(read.parts);
                at = upto;
            }
            assert!(pieces.concat() == chunk.parts.concat(), "the pieces of log {log} from {from}");
        }
    }
}

/// The results of steps whose answers are awaited.
fn done<T>(mut step: impl FnMut() -> Step<T>) -> T {
    loop {
        match step() {
            Step::Done(value) => return value,
            Step::Wants(ticket) => ticket.wait(),
        }
    }
}

/// Compares the ledger's live bytes with the indexes of all objects.
fn check_counts(logs: &Logs<Notes>) -> usize {
    let (wrong, uncounted) = logs.miscounted().expect("every index is read");
    assert!(wrong.is_empty(), "objects with their kept and their real number of live bytes: {wrong:?}");
    uncounted
}

fn extend(model: &mut Model, log: LogId, bytes: &[u8], lengths: &Lengths) {
    let Some(log) = model.get_mut(&log) else { return };
    for length in lengths.iter() {
        let last = *log.boundaries.last().unwrap();
        log.boundaries.push(last + u64::from(length));
    }
    log.bytes.extend(bytes);
}

fn run(seed: u64) -> u64 {
    play(seed, Fault::None).0
}

/// Plays a history: a hash of what readers saw, how often it lost something, and where in background work the process
/// died.
fn play(seed: u64, fault: Fault) -> (u64, u64, Vec<Moment>) {
    let (hash, losses, deaths, _) = play_with(seed, fault, false);
    (hash, losses, deaths)
}

/// Plays a history as [`play`] does; if `late`, with reads whose storage is far away.
fn play_with(seed: u64, fault: Fault, late: bool) -> (u64, u64, Vec<Moment>, Seen) {
    let unsaid = if seed.is_multiple_of(2) { Durability::Durable } else { Durability::Buffered };
    let journal = ScriptedJournal::lazy();
    let options = LogsOptions {
        chunk_bytes: CHUNK,
        kept_bytes_min: 1,
        settle_bytes: 2_000,
        object_bytes: 1_500,
        fan_in: 2 + (seed % 3) as usize,
        reclaim_every_ms: 0,
        // Some histories keep nearly all lists in objects, count little in one pass, or remember few of the logs that
        // have moved.
        lists: match seed % 5 {
            0..3 => ListOptions { root_bytes: seed % 5 * 150, page_objects: 1 + (seed % 7) as usize },
            _ => ListOptions::default(),
        },
        count_bytes: if seed.is_multiple_of(3) { 600 } else { 64 << 20 },
        moved_logs: if seed.is_multiple_of(11) { 64 } else { 1 << 17 },
        durability: unsaid,
        faults: fault.planted(),
        ..LogsOptions::default()
    };
    let far = Far::new(seed);
    let unit = Unit::over(far.clone(), journal.clone(), options);
    let late = late.then(|| Arc::new(Mutex::new(Late::new(seed, far))));
    let world = Arc::new(Mutex::new(World {
        random: Rand32::new(seed),
        logs: unit.open(),
        now: Model::new(),
        written: Model::new(),
        durable: Model::new(),
        unwritten: Vec::new(),
        undurable: Vec::new(),
        names: 0,
        unsaid,
        shown: Vec::new(),
        losses: 0,
        dead: false,
        deaths: Vec::new(),
    }));
    // Writers go on while a round or a merge is under way.
    let interrupted = |logs: &Logs<Notes>| {
        let (inside, journal, manifest) = (Arc::clone(&world), Arc::clone(&journal), Arc::clone(&unit.manifest));
        let late = late.clone();
        logs.interrupt(Some(Arc::new(move |moment| {
            let mut world = inside.lock();
            world.meanwhile(&journal, &manifest, moment);
            if let Some(late) = late.as_ref().filter(|_| !world.dead) {
                late.lock().meanwhile(&world);
            }
        })));
    };
    interrupted(&world.lock().logs);
    let mut hash = 0u64;
    for step in 0..400u64 {
        let action = world.lock().upto(40);
        let logs = Arc::clone(&world.lock().logs);
        if world.lock().upto(60) == 0 {
            unit.manifest.fail_next(if step % 2 == 0 { Fate::Made } else { Fate::NotMade });
        }
        let fails = |what: &str, done: Result<bool, UpkeepError>| {
            let may = matches!(done, Ok(_) | Err(UpkeepError::Manifest(ManifestError::Io { .. })));
            assert!(may || world.lock().dead, "{what}: {done:?}");
        };
        match action {
            0..2 => fails("a round", logs.settle(Millis(step), When::Now)),
            2 => fails("a merge", logs.merge()),
            3 => {
                fails("reclaiming", logs.reclaim(Millis(step * 10_000)));
                check_counts(&logs);
            }
            4 => journal.sync(),
            5..7 => journal.write(),
            7 if step % 3 == 0 => world.lock().dead = true,
            8..14 => {
                let mut world = world.lock();
                journal.write();
                world.advance();
                if let Some(log) = world.pick() {
                    world.check(log);
                    world.look(log);
                }
                world.check_shown();
            }
            _ => world.lock().write(),
        }
        if let Some(late) = late.as_ref().filter(|_| !world.lock().dead) {
            late.lock().turn(&world.lock());
        }
        if world.lock().dead {
            drop(logs);
            let mut world = world.lock();
            let machine = world.upto(3) > 0;
            let loss = world.crash(&journal, machine, fault);
            if let Some(late) = &late {
                late.lock().die();
            }
            world.advance();
            (world.now, world.written, world.dead) = (world.durable.clone(), world.durable.clone(), false);
            world.unwritten.clear();
            world.undurable.clear();
            // One that is opened while its manifest fails is opened again.
            world.logs = unit.try_open(loss).unwrap_or_else(|_| unit.open_after(loss));
            interrupted(&world.logs);
            world.check_shown();
            assert_eq!(world.logs.len(), world.now.len(), "logs after a crash");
            for log in world.now.keys().copied().collect::<Vec<_>>() {
                world.check(log);
            }
        }
        let mut world = world.lock();
        world.advance();
        hash = hash.wrapping_mul(31).wrapping_add(world.logs.journal().end().0 + world.logs.stats().objects);
    }
    let mut world = world.lock();
    world.logs.interrupt(None);
    let seen = late.map(|late| {
        journal.sync();
        late.lock().finish(&world)
    });
    // Left alone, passes count everything.
    for pass in 0.. {
        let done = world.logs.reclaim(Millis(10_000_000 + pass));
        if check_counts(&world.logs) == 0 && done.is_ok() {
            break;
        }
        assert!(pass < 1_000, "objects are never counted");
    }
    (hash, world.losses, std::mem::take(&mut world.deaths), seen.unwrap_or_default())
}

#[test]
fn simulation_of_random_histories_equals_the_model() {
    thalweg_sim::histories(300, "thalweg-log", |seed| {
        run(seed);
    });
}

#[test]
fn simulation_of_late_reads_equals_the_model() {
    thalweg_sim::histories(200, "thalweg-log", |seed| {
        play_with(seed, Fault::None, true);
    });
}

#[test]
fn late_reads_meet_what_they_are_for() {
    let mut all = Seen::default();
    for seed in 0..60 {
        all.add(play_with(seed, Fault::None, true).3);
    }
    println!("{all:?}");
    assert!(all.whole > 1_000 && all.late > 1_000, "{all:?}");
    assert!(all.trimmed > 10 && all.deleted > 10, "{all:?}");
    assert!(all.vanished > 10, "no object was removed under a read: {all:?}");
}

#[test]
fn a_read_that_believes_its_old_root_is_caught() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let fault = Fault::ReadsBelieveTheirRoot;
    let seen = (0..400).find(|seed| std::panic::catch_unwind(|| play_with(*seed, fault, true)).is_err());
    std::panic::set_hook(hook);
    assert!(seen.is_some(), "no history shows it");
    println!("{fault:?} is seen by seed {}", seen.unwrap_or_default());
}

#[test]
fn histories_lose_what_was_written() {
    let losses: u64 = (0..40).map(|seed| play(seed, Fault::None).1).sum();
    assert!(losses > 20, "only {losses} crashes took something that was written");
}

#[test]
fn histories_die_at_every_moment_of_background_work() {
    let deaths: Vec<Moment> = (0..150).flat_map(|seed| play(seed, Fault::None).2).collect();
    use Moment::{Durable, Edited, Looked, RunWritten, ShardHalfTaken, ShardListed, Taken, Unnamed};
    for moment in [ShardListed, ShardHalfTaken, Taken, RunWritten, Durable, Unnamed, Edited, Looked] {
        assert!(deaths.contains(&moment), "no history died at {moment:?}");
    }
}

#[test]
fn planted_faults_are_caught() {
    for fault in Fault::ALL {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let seen = (0..1_500).find(|seed| std::panic::catch_unwind(|| play(*seed, fault)).is_err());
        std::panic::set_hook(hook);
        assert!(seen.is_some(), "no history shows {fault:?}");
        println!("{fault:?} is seen by seed {}", seen.unwrap_or_default());
    }
}

#[test]
fn one_seed_gives_one_history() {
    assert_eq!(run(7), run(7));
    assert_eq!(play_with(7, Fault::None, true), play_with(7, Fault::None, true));
}
