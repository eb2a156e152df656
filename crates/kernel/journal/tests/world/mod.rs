//! One history: random steps on one journal, checked against a model at each of them.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{Durability, Lsn};
use thalweg_disk::Disk;
use thalweg_journal::{
    AppendError, Bounds, Class, Faults, FileJournal, FrameRef, Held, Journal, OpenError, Options, ReadError, verify,
};
use thalweg_sim::{Rand64, SimDisk};

pub(crate) struct Plan {
    seed: u64,
    steps: u64,
    /// Of so many crashes only one happens: longer lives fill more segments.
    calm: u64,
    options: Options,
    /// Of ten frames so many are buffered.
    buffered: u64,
}

#[derive(Default)]
pub(crate) struct History {
    pub(crate) trace: Vec<String>,
    pub(crate) events: BTreeMap<&'static str, u64>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

impl Plan {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Rand64::new(u128::from(seed) << 1 | 1);
        let mut pick = |n: u64| rng.rand_range(0..n);
        // Some journals grow, and take frames that are larger than their first segment.
        let grows = seed.is_multiple_of(3);
        let steps = pick(3);
        let options = Options {
            segment_bytes: if grows { 32 << 10 } else { 8192 + 4096 * steps },
            first_segment_bytes: if grows { 8192 } else { 1 << 20 },
            max_payload: if grows { 20_000 } else { 3000 },
            batch_bytes: [200, 2000, 100_000][pick(3) as usize],
            bound_bytes: [15_000, 30_000, 200_000][pick(3) as usize],
            reserve_segments: pick(2) as usize,
            spare_segments: pick(3) as usize,
            window_bytes: [0, 3000, 1 << 20][pick(3) as usize],
            window_batches: 1 + pick(50) as usize,
            sync_bytes: 500 + pick(8000),
            sync_after: Duration::ZERO,
            commit_interval: Duration::ZERO,
            term: 0,
            salt: rng_salt(seed),
            faults,
        };
        let buffered = [0, 5, 10][pick(3) as usize];
        Self { seed, steps: 60 + pick(200), calm: [1, 1, 5][pick(3) as usize], options, buffered }
    }
}

/// Another for each opening: see `World::recover`.
fn rng_salt(seed: u64) -> u64 {
    Rand64::new(u128::from(seed) << 8 | 7).rand_u64()
}

struct Entry {
    frame: FrameRef,
    end: Lsn,
    payload: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum Crash {
    Power,
    Kill,
    /// Closed before; nothing may be missing.
    Clean,
}

struct World {
    rng: Rand64,
    disk: SimDisk,
    options: Options,
    calm: u64,
    journal: Arc<FileJournal>,
    /// Every frame accepted and not known to be lost, from the floor on.
    model: Vec<Entry>,
    /// The positions that must survive loss of power, and death of the process.
    durable: Lsn,
    written: Lsn,
    buffered: u64,
    floor: Lsn,
    /// The journal's term in the owner's root.
    term: u64,
    held: Vec<(Held, Vec<usize>)>,
    /// The number of entries that were dropped from the model's front.
    dropped: usize,
    /// A fault was injected that may poison; space was limited; a bit was flipped.
    sick: bool,
    tight: bool,
    flipped: bool,
    /// A segment file is gone.
    lost: bool,
    /// Where batches start, up to the end.
    batches: Vec<Lsn>,
    /// The end of the last frame that this opening accepted.
    accepted: Option<Lsn>,
    /// Where bits were flipped; `Lsn::MAX` for those that are not in frames or batch headers.
    rot: Vec<Lsn>,
    counter: u64,
    /// Every step is printed: `TRACE=1`.
    traced: bool,
    history: History,
}

type Check = Result<(), String>;

const SEGMENT_HEADER: u64 = 4096;
const BATCH_HEADER: u64 = 24;

/// The number and the base of a segment, as its header says.
fn segment_header(bytes: &[u8]) -> Option<(u64, Lsn)> {
    let field = |at: usize| bytes.get(at..at + 8).map(|field| u64::from_le_bytes(field.try_into().unwrap()));
    if bytes.starts_with(b"THALWEGJ") { Some((field(16)?, Lsn(field(24)?))) } else { None }
}

pub(crate) fn run(plan: &Plan) -> Result<History, String> {
    let disk = SimDisk::new(plan.seed);
    let rng = Rand64::new(u128::from(plan.seed));
    let nothing = &mut |_: FrameRef, _: Bytes| Ok::<(), Infallible>(());
    let journal = FileJournal::open(Arc::new(disk.clone()), plan.options, Bounds::default(), nothing);
    let mut world = World {
        rng,
        disk,
        options: plan.options,
        calm: plan.calm,
        journal: Arc::new(journal.map_err(|e| e.to_string())?),
        model: Vec::new(),
        durable: Lsn::ZERO,
        written: Lsn::ZERO,
        buffered: plan.buffered,
        floor: Lsn::ZERO,
        term: 0,
        held: Vec::new(),
        dropped: 0,
        sick: false,
        tight: false,
        flipped: false,
        lost: false,
        batches: Vec::new(),
        accepted: None,
        rot: Vec::new(),
        counter: 0,
        traced: std::env::var_os("TRACE").is_some(),
        history: History::default(),
    };
    for step in 0..plan.steps {
        let goes_on = world.step().map_err(|why| format!("step {step}: {why}"))?;
        world.acknowledge();
        if !goes_on {
            break;
        }
    }
    world.history.files = world.disk.cached();
    Ok(world.history)
}

impl World {
    fn pick(&mut self, n: u64) -> u64 {
        self.rng.rand_range(0..n)
    }

    fn event(&mut self, name: &'static str) {
        *self.history.events.entry(name).or_default() += 1;
    }

    fn note(&mut self, what: String) {
        if self.traced {
            let files = self.disk.cached();
            let sizes: Vec<_> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.len())).collect();
            println!("{what}; {sizes:?}");
        }
        self.history.trace.push(what);
    }

    fn acknowledge(&mut self) {
        let reached = self.journal.reached();
        assert!(reached.durable <= reached.written, "{reached:?}");
        self.durable = self.durable.max(reached.durable);
        self.written = self.written.max(reached.written);
        if self.model.iter().any(|e| e.end > self.durable && e.end <= self.written) {
            self.event("written only");
        }
        self.note(format!("durable {} written {} end {}", self.durable, self.written, self.journal.end()));
    }

    /// `false` where the history ends early, as it should.
    fn step(&mut self) -> Result<bool, String> {
        if self.disk.is_stopped() {
            self.event("crash inside a step");
            let crash = if self.pick(2) == 0 { Crash::Power } else { Crash::Kill };
            return self.crash(crash);
        }
        match self.pick(102) {
            100..102 => self.arm(),
            95..100 if self.pick(self.calm) != 0 => self.append()?,
            0..34 => self.append()?,
            34..46 => self.drive(|j| j.begin())?,
            46..56 => self.drive(|j| j.finish())?,
            56..62 => self.drive(|j| j.step())?,
            62..64 => self.drive(|j| j.mark())?,
            64..66 => self.kick()?,
            66..68 => self.drive(|j| j.sync().map(|_| true))?,
            68..76 => self.read()?,
            76..79 => self.hold(),
            79..82 => self.read_held()?,
            82..83 => self.held.clear(),
            83..87 => self.trim(),
            87..92 => self.prepare()?,
            92 => self.spoil(),
            93 => self.squeeze(),
            94 => self.flip(),
            95..97 => return self.crash(Crash::Power),
            97..99 => return self.crash(Crash::Kill),
            _ => return self.close(),
        }
        Ok(true)
    }

    fn append(&mut self) -> Check {
        let sizes = [0, 8, 64, 64, 64, 64, 64, 500, 700, 3000];
        for _ in 0..1 + self.pick(3) {
            let mut len = sizes[self.pick(sizes.len() as u64) as usize];
            if self.options.max_payload > 3000 && self.pick(8) == 0 {
                len = 6000 + self.pick(14_000) as usize;
                self.event("larger than a segment");
            }
            self.counter += 1;
            let payload: Vec<u8> = self.counter.to_le_bytes().into_iter().cycle().take(len).collect();
            let class = if self.pick(5) == 0 { Class::Upkeep } else { Class::User };
            let (head, tail) = payload.split_at(len / 2);
            let buffered = self.pick(10) < self.buffered;
            let durability = if buffered { Durability::Buffered } else { Durability::Durable };
            match self.journal.append_as(durability, class, &[head, tail]) {
                Ok(appended) => {
                    self.note(format!("appended {appended:?}"));
                    if self.model.last().is_some_and(|last| last.end > appended.frame.lsn) {
                        return Err(format!("{appended:?} overlaps the frame before"));
                    }
                    if self.accepted.replace(appended.end) != Some(appended.frame.lsn) {
                        self.batches.push(Lsn(appended.frame.lsn.0 - BATCH_HEADER));
                    }
                    self.model.push(Entry { frame: appended.frame, end: appended.end, payload });
                }
                Err(AppendError::NoSpace) if self.tight => self.event("no space"),
                Err(AppendError::Full { .. }) => self.event("full"),
                Err(AppendError::Poisoned(_)) if self.sick => {}
                Err(e) => return Err(format!("append: {e}")),
            }
        }
        Ok(())
    }

    /// Acts as an event loop: writes buffered frames itself.
    fn kick(&mut self) -> Check {
        self.journal.kick();
        match self.journal.poisoned() {
            Some(poisoned) if !self.sick => Err(poisoned.to_string()),
            _ => Ok(()),
        }
    }

    fn drive(&mut self, f: impl Fn(&FileJournal) -> Result<bool, thalweg_journal::Poisoned>) -> Check {
        match f(&self.journal) {
            Ok(worked) => self.note(format!("drove {worked}")),
            Err(_) if self.sick => {
                let what = if self.journal.poisoned().is_some_and(|p| p.operation == "write") {
                    "failed write"
                } else {
                    "failed sync"
                };
                self.event(what);
            }
            Err(e) => return Err(e.to_string()),
        }
        Ok(())
    }

    fn some_frames(&mut self) -> Vec<usize> {
        if self.model.is_empty() {
            return Vec::new();
        }
        let len = self.model.len() as u64;
        let first = self.pick(len) as usize;
        let mut chosen: Vec<usize> = (first..self.model.len()).take(1 + self.rng.rand_range(0..6) as usize).collect();
        if self.pick(4) == 0 {
            chosen.push(self.pick(len) as usize);
        }
        chosen
    }

    fn read(&mut self) -> Check {
        let chosen = self.some_frames();
        let frames: Vec<FrameRef> = chosen.iter().map(|i| self.model[*i].frame).collect();
        let waits = if self.pick(2) == 0 { 0.5 } else { 0.0 };
        self.disk.waits(waits);
        if self.pick(10) == 0 {
            return self.misread(&chosen, &frames);
        }
        let tried = self.journal.try_read(&frames);
        let waited = self.journal.read(&frames).wait();
        if tried.as_ref().is_some_and(|tried| tried.is_ok() != waited.is_ok()) {
            return Err(format!("try_read and read differ for {frames:?}"));
        }
        for answer in tried.into_iter().chain([waited]) {
            let wanted: Vec<&Entry> = chosen.iter().map(|i| &self.model[*i]).collect();
            let (start, written) = (self.journal.start(), self.written);
            match answer {
                Ok(payloads) => {
                    if !payloads.iter().eq(wanted.iter().map(|entry| &entry.payload)) {
                        return Err(format!("{frames:?} were read as other bytes"));
                    }
                }
                Err(ReadError::Trimmed(at)) if at < start => {}
                Err(ReadError::NotWritten(at)) if wanted.iter().any(|e| e.frame.lsn == at && e.end > written) => {}
                Err(ReadError::Corrupt { .. }) if self.flipped => self.event("unreadable"),
                Err(e) => return Err(format!("read: {e}")),
            }
        }
        Ok(())
    }

    /// A device that fails, or gives other bytes than were asked for, is noticed.
    fn misread(&mut self, chosen: &[usize], frames: &[FrameRef]) -> Check {
        self.disk.misreads(0.7);
        let answer = self.journal.read(frames).wait();
        self.disk.misreads(0.0);
        match answer {
            Ok(payloads) if payloads.iter().eq(chosen.iter().map(|i| &self.model[*i].payload)) => {}
            Ok(_) => return Err(format!("{frames:?} were misread and believed")),
            Err(ReadError::Corrupt { .. } | ReadError::Io { .. }) => self.event("misread"),
            Err(_) => {}
        }
        Ok(())
    }

    fn hold(&mut self) {
        let Some(i) = self.some_frames().first().copied() else { return };
        if let Some(held) = self.journal.hold(self.model[i].frame.lsn) {
            let inside = |e: &Entry| e.frame.lsn >= held.start() && e.end <= held.end();
            let ids = (0..self.model.len()).filter(|i| inside(&self.model[*i])).map(|i| i + self.dropped).collect();
            self.held.push((held, ids));
        }
    }

    /// Compares the bytes that readers hold: they never change, trimmed or not. Entries that left the model are not
    /// compared.
    fn read_held(&mut self) -> Check {
        for n in 0..self.held.len() {
            let (held, ids) = &self.held[n];
            let entries: Vec<&Entry> =
                ids.iter().filter_map(|id| id.checked_sub(self.dropped)).map(|i| &self.model[i]).collect();
            let frames: Vec<FrameRef> = entries.iter().map(|e| e.frame).collect();
            match held.read(&frames) {
                Ok(payloads) if payloads.iter().eq(entries.iter().map(|e| &e.payload)) => self.event("held"),
                Err(_) if self.flipped => {}
                Ok(_) => return Err("a held segment has other bytes".into()),
                Err(e) => return Err(format!("a held segment: {e}")),
            }
        }
        Ok(())
    }

    /// The floor is committed elsewhere before the journal is trimmed.
    fn trim(&mut self) {
        let far = self.pick(3) == 0;
        let synced: Vec<Lsn> = self.model.iter().map(|e| e.end).filter(|end| *end <= self.durable).collect();
        if synced.is_empty() {
            return;
        }
        let at = if far { synced.len() - 1 } else { self.pick(synced.len() as u64) as usize };
        self.floor = self.floor.max(synced[at]);
        self.journal.trim(self.floor);
        self.note(format!("trim {}", self.floor));
        if self.held.is_empty() {
            let gone = self.model.partition_point(|e| e.frame.lsn < self.floor);
            self.model.drain(..gone);
            self.dropped += gone;
        }
    }

    fn prepare(&mut self) -> Check {
        let before = self.disk.files();
        let answer = self.journal.prepare();
        let after = self.disk.files();
        let first = self.options.first_segment_bytes;
        if self.disk.cached().values().any(|bytes| bytes.len() as u64 > first) {
            self.event("grown");
        }
        if before.iter().any(|f| !after.contains(f)) && after.iter().any(|f| !before.contains(f)) {
            self.event("recycled");
        }
        match answer {
            Err(e) if !self.sick && !self.tight && !self.lost => Err(format!("prepare: {e}")),
            answer => {
                self.note(format!("prepare {}", answer.is_ok()));
                Ok(())
            }
        }
    }

    fn spoil(&mut self) {
        self.sick = true;
        match self.pick(3) {
            0 => self.disk.fail_next_sync(),
            1 => self.disk.fail_next_write(),
            _ => self.disk.fail_next_dir_sync(),
        }
    }

    /// The process dies at one of the next changes of the disk, wherever that is.
    fn arm(&mut self) {
        if self.pick(self.calm) == 0 {
            self.sick = true;
            let changes = self.pick(8);
            self.disk.stop_after(changes);
        }
    }

    /// The last segment files are what a directory loses most easily: they were made last.
    fn lose(&mut self) {
        let files = self.disk.files();
        let Some(last) = files.len().checked_sub(1) else { return };
        let back = self.pick(1 + last.min(3) as u64) as usize;
        let file = files[last - back].clone();
        self.disk.lose(&file);
        (self.flipped, self.lost) = (true, true);
        self.event("lost file");
        self.note(format!("lost {file}"));
    }

    fn squeeze(&mut self) {
        self.tight = true;
        let used: usize = self.disk.cached().values().map(Vec::len).sum();
        let more = self.pick(3) * self.options.segment_bytes;
        let capacity = if self.pick(3) == 0 { u64::MAX } else { used as u64 + more };
        self.disk.capacity(capacity);
    }

    fn flip(&mut self) {
        if self.pick(3) != 0 {
            return;
        }
        let files = self.disk.files();
        if files.is_empty() {
            return;
        }
        let file = files[self.pick(files.len() as u64) as usize].clone();
        if let Some(at) = self.disk.flip_bit(&file, &mut self.rng) {
            self.note_rot(&file, at);
            self.event("flip");
            self.note(format!("flip {file} {at}"));
        }
    }

    fn note_rot(&mut self, file: &str, at: u64) {
        self.flipped = true;
        let is_live = |number: u64| file.ends_with(&format!("/{number:016}.seg"));
        let header = self.disk.cached().get(file).and_then(|bytes| segment_header(bytes));
        let base = header.filter(|(number, _)| is_live(*number)).map(|(_, base)| base);
        let lsn = base.filter(|_| at >= SEGMENT_HEADER).map(|base| base.plus(at - SEGMENT_HEADER));
        self.rot.push(lsn.unwrap_or(Lsn::MAX));
    }

    /// All damage lies before a whole batch below the floor: nothing of it is needed, and a start must not refuse.
    fn is_damage_settled(&self) -> bool {
        let whole = self.batches.iter().rev().find(|start| **start < self.floor);
        !self.lost && whole.is_some_and(|whole| self.rot.iter().all(|at| at < whole))
    }

    /// Damages the last frames: what looks most like a torn write.
    fn flip_last(&mut self) {
        let Some(last) = self.model.last().map(|entry| entry.frame) else { return };
        let segments = self.disk.cached().into_iter();
        let found = segments
            .filter_map(|(path, bytes)| Some((segment_header(&bytes)?.1, path)))
            .filter(|(base, _)| *base <= last.lsn);
        let Some((base, path)) = found.max() else { return };
        let at = SEGMENT_HEADER + last.lsn.since(base);
        let within = at.saturating_sub(BATCH_HEADER)..at + 8 + u64::from(last.len);
        if let Some(at) = self.disk.flip_bit_within(&path, within, &mut self.rng) {
            self.note_rot(&path, at);
            self.event("flip of the last frame");
            self.note(format!("flip {path} at {last:?}"));
        }
    }

    fn close(&mut self) -> Result<bool, String> {
        self.disk.capacity(u64::MAX);
        let closed = self.journal.close();
        self.acknowledge();
        if closed.is_err() {
            return if self.sick { self.crash(Crash::Kill) } else { Err("close failed".into()) };
        }
        if self.durable < self.journal.end() {
            return Err("a closed journal is not durable".into());
        }
        self.event("clean");
        if self.pick(2) == 0 {
            self.flip();
        }
        if self.pick(2) == 0 {
            self.disk.crash_power();
        }
        self.crash(Crash::Clean)
    }

    fn crash(&mut self, crash: Crash) -> Result<bool, String> {
        self.held.clear();
        self.event(match crash {
            Crash::Power => "power",
            Crash::Kill => "kill",
            Crash::Clean => "reopen",
        });
        match crash {
            Crash::Power => self.disk.crash_power(),
            Crash::Kill | Crash::Clean => self.disk.crash_kill(),
        }
        match self.pick(12) {
            0 => self.lose(),
            1 => self.flip_last(),
            _ => {}
        }
        let survives = if crash == Crash::Kill { self.written } else { self.durable };
        self.recover(survives, crash == Crash::Clean)
    }

    fn recover(&mut self, survives: Lsn, clean: bool) -> Result<bool, String> {
        let tight = self.disk.free().unwrap_or(0) < u64::MAX >> 1;
        self.disk.heal();
        if tight && self.pick(2) == 0 {
            let used: usize = self.disk.cached().values().map(Vec::len).sum();
            self.disk.capacity(used as u64);
        }
        let known = if self.pick(2) == 0 { self.durable } else { Lsn::ZERO };
        let term = if known > Lsn::ZERO { self.term } else { 0 };
        let bounds = Bounds { floor: self.floor, known_durable: known, term };
        let mut report = verify(&self.disk, bounds);
        let is_settled = self.is_damage_settled();
        loop {
            let broken = self.pick(4) == 0;
            match self.pick(5) {
                _ if !broken => {}
                0 => self.disk.fail_next_sync(),
                1 => self.disk.fail_next_write(),
                2 => self.disk.fail_next_dir_sync(),
                3 => self.disk.fail_next_read(),
                _ => self.disk.stop_after(self.rng.rand_range(0..6)),
            }
            self.options.salt = self.rng.rand_u64();
            let mut replayed = Vec::new();
            let opened = FileJournal::open(Arc::new(self.disk.clone()), self.options, bounds, &mut |frame, payload| {
                replayed.push((frame, payload));
                Ok::<(), Infallible>(())
            });
            match opened {
                Ok(journal) => {
                    self.disk.heal();
                    if self.flipped && is_settled {
                        self.event("settled damage");
                    }
                    self.journal = Arc::new(journal);
                    self.term = self.journal.term();
                    self.compare(&replayed, survives, known, clean)?;
                    // The disk was healed: there is space.
                    self.tight = false;
                    return Ok(true);
                }
                Err(OpenError::Corrupt { at, proof }) if self.flipped => {
                    if is_settled {
                        let (floor, rot) = (self.floor, &self.rot);
                        return Err(format!("refused at {at}: {proof}; the floor is {floor}, damage is at {rot:?}"));
                    }
                    self.event("corrupt");
                    self.note(format!("corrupt at {at}: {proof}"));
                    let planted = self.options.faults != Faults::default();
                    if report.problem.is_none() && !planted {
                        return Err("open found corruption that verify had not".into());
                    }
                    return Ok(false);
                }
                Err(OpenError::Io { .. }) if broken || tight => {
                    self.event("crash in recovery");
                    self.disk.heal();
                    if self.pick(2) == 0 && survives == self.durable {
                        self.disk.crash_power();
                    } else {
                        self.disk.crash_kill();
                    }
                    // Files that the opening has made may prove what nothing proved before: that the segment before
                    // them is lost.
                    report = verify(&self.disk, bounds);
                }
                Err(e) => return Err(format!("open: {e}")),
            }
        }
    }

    fn compare(&mut self, replayed: &[(FrameRef, Bytes)], survives: Lsn, known: Lsn, clean: bool) -> Check {
        let below = self.model.partition_point(|e| e.frame.lsn < self.floor);
        self.model.drain(..below);
        self.dropped = 0;
        for (n, (frame, payload)) in replayed.iter().enumerate() {
            match self.model.get(n) {
                None => return Err(format!("recovery invented {frame:?}")),
                Some(e) if e.frame != *frame => {
                    return Err(format!("recovery gave {frame:?} in place of {:?}", e.frame));
                }
                Some(e) if e.payload != *payload => return Err(format!("recovery gave other bytes at {}", frame.lsn)),
                Some(_) => {}
            }
        }
        let end = self.journal.opened().end;
        // A flipped bit in the last batch cannot always be told from a torn tail; but it can after a close, or by an
        // owner that knows a later durable position.
        let provable = !self.flipped || (clean && !self.lost) || known >= survives;
        let gone = self.model.get(replayed.len()).filter(|gone| gone.end <= survives).map(|gone| gone.frame);
        if let Some(frame) = gone {
            if provable {
                return Err(format!("{frame:?} was acknowledged and is gone (durable {survives})"));
            }
            self.event("unprovable loss");
            // A bit flip is noticed and said, although it may be a torn tail. A file that is gone leaves nothing.
            let said = self.journal.opened().discarded.is_some_and(|discarded| discarded.at == end);
            if !self.lost && !said {
                return Err(format!("{frame:?} was acknowledged and is gone, and nothing was said"));
            }
            if said {
                self.event("discarded");
            }
        }
        self.model.truncate(replayed.len());
        self.note(format!("recovered {} frames, end {}", replayed.len(), self.journal.end()));
        let end = self.journal.durable();
        if self.model.last().is_some_and(|last| last.end > end) {
            return Err("what was recovered is not durable".into());
        }
        (self.durable, self.written) = (end, end);
        self.batches.retain(|start| *start < end);
        self.rot.retain(|at| *at != Lsn::MAX);
        self.accepted = None;
        (self.sick, self.tight, self.flipped, self.lost) = (false, false, false, false);
        Ok(())
    }
}
