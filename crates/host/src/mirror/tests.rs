//! A folder and its mirror, under every failure of either: seeded histories.
//!
//! A machine appends, settles, merges and copies. Its process is killed, its power is cut, or it is lost: then a new
//! machine is filled from the bucket while the old one may live on. Requests to the bucket are late, lost, repeated, or
//! not answered.
//!
//! What must hold: a restart has everything that was durable; a filled machine has everything that was durable when the
//! bucket last had all of the folder, and nothing that was never appended; whoever was replaced learns it at its next
//! commit, and removes nothing that the new machine needs.

use super::copying::{Copying, Parts, TurnError};
use super::stats::Counters;
use super::{FOLDERS, UNIT, fill};
use crate::UnitLogs;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{LogId, Millis, Offset};
use thalweg_disk::Disk;
use thalweg_journal::{Class, Options};
use thalweg_log::{Append, FileUnit, Lengths, LogsOptions, Loss, Op, ReadFrom, UnitError, When};
use thalweg_object::{Bucket, BucketOptions, Mirror, SimulatedBucket};
use thalweg_sim::{Rand64, SimDisk};
use thalweg_storage::{Remote, Storage, TieredStorage};

/// What stays when a process ends.
#[derive(Clone)]
struct Disked {
    disk: SimDisk,
    lineage: String,
    /// Owners of the mirror, as the folder notes them.
    owners: Arc<Mutex<Vec<u64>>>,
}

impl Disked {
    fn new(disk: SimDisk, lineage: &str) -> Self {
        Self { disk, lineage: lineage.to_owned(), owners: Arc::default() }
    }
}

struct Machine {
    folder: Disked,
    unit: FileUnit<()>,
    copying: Copying,
    tiers: TieredStorage,
}

/// What is known of one log.
#[derive(Clone, Debug, Default)]
struct Content {
    appended: Vec<u8>,
    /// Its length when the journal was last synced.
    durable: usize,
    /// Its durable length when the bucket last had all of the folder.
    mirrored: usize,
}

struct World {
    seed: u64,
    bucket: SimulatedBucket,
    random: Rand64,
    logs: BTreeMap<String, Content>,
    machine: Option<Machine>,
    /// Machines that were replaced, and have not learnt it.
    deposed: Vec<Machine>,
    clients: u64,
    cold_reads: u64,
    filled: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Rand64::new(u128::from(seed));
        let (lost, unanswered, repeated) = match random.rand_range(0..3) {
            0 => (0, 0, 0),
            _ => (random.rand_range(0..8), random.rand_range(0..8), random.rand_range(0..8)),
        };
        let bucket = SimulatedBucket::new(seed, lost, unanswered, repeated);
        let logs = BTreeMap::new();
        let (machine, deposed, clients, cold_reads, filled) = (None, Vec::new(), 0, 0, 0);
        let mut world = Self { seed, bucket, random, logs, machine, deposed, clients, cold_reads, filled };
        world.machine = Some(world.open(&Disked::new(SimDisk::new(seed), "first"), None, Loss::Nothing));
        world
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.random.rand_range(0..n)
    }

    fn client(&mut self) -> Arc<Mirror> {
        self.clients += 1;
        let options =
            BucketOptions { deadline: Duration::from_secs(60), part_bytes: 8 << 10, ..BucketOptions::default() };
        let bucket = Bucket::simulated(&self.bucket, options, self.seed ^ self.clients << 32);
        Arc::new(Mirror::new(bucket, UNIT, self.clients << 40))
    }

    fn open(&mut self, folder: &Disked, expected: Option<&str>, loss: Loss) -> Machine {
        let mirror = self.client();
        self.open_with(mirror, folder, expected, loss).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed))
    }

    fn open_with(
        &mut self,
        mirror: Arc<Mirror>,
        folder: &Disked,
        expected: Option<&str>,
        loss: Loss,
    ) -> Result<Machine, UnitError> {
        let Disked { disk, lineage, owners } = folder.clone();
        let noted = Arc::clone(&owners);
        let copies: Arc<dyn Storage> = Arc::clone(mirror.objects()) as _;
        let remote = Remote { reads: Arc::clone(&copies), copies };
        let tiers = TieredStorage::open(Arc::new(disk.clone()), FOLDERS, remote).unwrap();
        let above = until(|| mirror.read()).map_or(0, |(epoch, _)| epoch);
        let logs = LogsOptions {
            object_bytes: 2048,
            fan_in: 3,
            settle_after_ms: 0,
            purge_after_ms: 0,
            ids_from: self.clients << 20,
            ..LogsOptions::default()
        };
        let journal =
            Options { segment_bytes: 64 << 10, max_payload: 16 << 10, salt: self.clients, ..Options::default() };
        let open = || FileUnit::open_over(Arc::new(disk.clone()), Arc::new(tiers.clone()), above, journal, logs, loss);
        // A cold object may be needed, and the bucket not answer.
        let unit = (0..20).find_map(|_| open().ok()).map_or_else(open, Ok)?;
        let parts = Parts {
            lineage: lineage.clone(),
            logs: Arc::clone(&unit.logs) as _,
            journal: Arc::clone(&unit.journal),
            tiers: tiers.clone(),
            mirror,
            files: Box::new(|| Ok(Vec::new())),
            owner: self.clients,
            note_owners: Box::new(move |known| {
                known.clone_into(&mut noted.lock());
                Ok(())
            }),
            note_closed: Box::new(|| Ok(())),
            local_bytes: 4096,
            copies_at_once: 1,
            counters: Arc::<Counters>::default(),
        };
        let mut copying = Copying::new(parts, owners.lock().clone());
        expected.into_iter().for_each(|lineage| copying.expect(lineage));
        Ok(Machine { folder: folder.clone(), unit, copying, tiers })
    }

    fn live(&self) -> &Machine {
        self.machine.as_ref().unwrap()
    }

    fn act(&mut self) {
        match self.pick(20) {
            0..=9 => self.append(),
            10 => self.sync(),
            11 | 12 => self.settle(),
            13..=15 => drop(self.turn(false)),
            16 => self.read_one(),
            17 => self.restart(),
            18 => self.lose_machine(),
            _ => self.wake_deposed(),
        }
    }

    fn append(&mut self) {
        let name = format!("log {}", self.pick(5));
        let message = vec![self.pick(256) as u8; 1 + self.pick(600) as usize];
        let Machine { unit, .. } = self.machine.as_ref().unwrap();
        let lengths = Lengths::one(message.len() as u32);
        let parts = [&message[..]];
        let append = Some(Append::Bytes { parts: &parts, lengths: &lengths });
        let known = find(unit, &name);
        assert_eq!(known.is_some(), self.logs.contains_key(&name), "seed {}: {name}", self.seed);
        let done = match known {
            Some(log) => {
                let op = Op::Write { log, note: b"", append };
                unit.logs.lock_logs(&[log], &[]).commit(Class::User, &[op]).map(|_| ())
            }
            None => {
                let op = Op::Create { name: &name, note: b"", origin: None, append };
                unit.logs.lock(&[&name]).commit(Class::User, &[op]).map(|_| ())
            }
        };
        done.unwrap();
        self.logs.entry(name).or_default().appended.extend(message);
    }

    fn sync(&mut self) {
        self.live().unit.journal.sync().unwrap();
        self.logs.values_mut().for_each(|content| content.durable = content.appended.len());
    }

    fn settle(&mut self) {
        self.sync();
        let Machine { unit, .. } = self.live();
        // A merge may need a cold object, and the bucket not answer.
        while unit.logs.settle(Millis(1), When::Now).unwrap_or_default() {}
        while unit.logs.merge().unwrap_or_default() {}
        unit.journal.prepare().unwrap();
    }

    fn turn(&mut self, is_closed: bool) -> Result<(), TurnError> {
        // The end of the journal is what is synced: at least what the model knows to be durable.
        let done = self.machine.as_mut().unwrap().copying.turn(is_closed, &|| false);
        match &done {
            Ok(()) => self.logs.values_mut().for_each(|content| content.mirrored = content.durable),
            Err(error) => assert!(!error.is_deposed(), "seed {}: the only owner is deposed: {error}", self.seed),
        }
        done
    }

    fn read_one(&mut self) {
        let name = format!("log {}", self.pick(5));
        let Some(content) = self.logs.get(&name) else { return };
        let before = self.live().tiers.stats().unwrap().cold_reads;
        if let Some(found) = read(&self.live().unit, &name) {
            assert_eq!(found, content.appended, "seed {}: {name}", self.seed);
        }
        self.cold_reads += self.live().tiers.stats().unwrap().cold_reads - before;
    }

    /// Compares every log with the model, and takes over what is found: what was not certain is decided now.
    fn check(&mut self, least: impl Fn(&Content) -> usize) {
        let names: Vec<String> = self.logs.keys().cloned().collect();
        for name in names {
            let content = &self.logs[&name];
            let is_there = find(&self.live().unit, &name).is_some();
            assert!(is_there || least(content) == 0, "seed {}: {name} is gone", self.seed);
            if !is_there {
                self.logs.remove(&name);
                continue;
            }
            let found = (0..50).find_map(|_| read(&self.live().unit, &name)).expect("the bucket answers some time");
            let what = format!("seed {}: {name} has {} bytes: {content:?}", self.seed, found.len());
            assert!(content.appended.starts_with(&found) && found.len() >= least(content), "{what}");
            let len = found.len();
            self.logs.insert(name, Content { appended: found, durable: len, mirrored: content.mirrored.min(len) });
        }
    }

    /// The process or the power goes, and the machine starts again.
    fn restart(&mut self) {
        let Machine { folder, .. } = self.machine.take().unwrap();
        match self.pick(2) {
            0 => folder.disk.crash_kill(),
            _ => folder.disk.crash_power(),
        }
        self.machine = Some(self.open(&folder, None, Loss::Nothing));
        self.check(|content| content.durable);
    }

    /// The machine is lost, or taken for lost; another one is filled from the bucket.
    fn lose_machine(&mut self) {
        let mirror = self.client();
        let Some((_, Some(mirrored))) = until(|| mirror.read()) else { return };
        if mirrored.root.is_empty() {
            return;
        }
        let lost = self.machine.take().unwrap();
        let disk = SimDisk::new(self.seed ^ self.clients);
        let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let mirrored = until(|| mirror.acquire(0)).unwrap();
        let loss = (0..50).find_map(|n| {
            for dir in ["journal", "copies", "manifest"] {
                disk.list(dir).unwrap().iter().for_each(|name| disk.remove(&format!("{dir}/{name}")).unwrap());
            }
            fill::copy(&as_disk, &mirror, &mirrored, n).ok()
        });
        let loss = loss.expect("the bucket answers some time");
        disk.crash_power();
        let folder = Disked::new(disk, &format!("filled {}", self.clients));
        if self.pick(4) == 0 {
            return self.come_back(lost, mirror, &folder, loss);
        }
        let mut machine = self.open_with(mirror, &folder, Some(&mirrored.lineage), loss).unwrap();
        until(|| machine.copying.attach());
        self.machine = Some(machine);
        self.filled += 1;
        self.check(|content| content.mirrored);
        self.deposed.push(lost);
    }

    /// The machine that was taken for lost starts again before the filled one has the mirror: that one must give up.
    fn come_back(&mut self, lost: Machine, mirror: Arc<Mirror>, filled: &Disked, loss: Loss) {
        let old = lost.folder.clone();
        drop(lost);
        old.disk.crash_kill();
        let mut back = self.open(&old, None, Loss::Nothing);
        until(|| back.copying.attach());
        self.machine = Some(back);
        self.check(|content| content.durable);
        if self.pick(2) == 0 {
            self.settle();
            drop(self.turn(false));
        }
        // Objects that it needs may be gone by now.
        let Ok(mut machine) = self.open_with(mirror, filled, Some(&old.lineage), loss) else { return };
        let refused = (0..50).find_map(|_| match machine.copying.attach() {
            Ok(()) => panic!("seed {}: two machines have the mirror", self.seed),
            Err(error) => error.is_deposed().then_some(()),
        });
        assert!(refused.is_some(), "seed {}: the bucket never answers", self.seed);
    }

    /// A machine that was replaced goes on as if it were not.
    fn wake_deposed(&mut self) {
        if self.deposed.is_empty() {
            return;
        }
        let at = self.pick(self.deposed.len() as u64) as usize;
        let mut machine = self.deposed.swap_remove(at);
        if self.pick(2) == 0 {
            machine.unit.journal.sync().unwrap();
            while machine.unit.logs.settle(Millis(1), When::Now).unwrap_or_default() {}
        }
        for _ in 0..50 {
            match machine.copying.turn(false, &|| false) {
                Ok(()) => {
                    // Nothing is new there, so nothing is committed: the beacon's thread tells it.
                    assert!(until(|| machine.copying.is_deposed()), "seed {}: a replaced machine goes on", self.seed);
                    break;
                }
                Err(error) if error.is_deposed() => break,
                Err(_) => {}
            }
        }
        // Whatever it has done, the new machine lacks nothing.
        self.check(|content| content.durable);
    }
}

/// Repeats a request that fails for want of an answer.
fn until<T, E: std::fmt::Debug>(mut ask: impl FnMut() -> Result<T, E>) -> T {
    let mut last = None;
    for _ in 0..50 {
        match ask() {
            Ok(answer) => return answer,
            Err(error) => last = Some(error),
        }
    }
    panic!("the bucket never answers: {last:?}")
}

fn find(unit: &FileUnit<()>, name: &str) -> Option<LogId> {
    unit.logs.lock(&[name]).find(name)
}

/// `None` if the bucket does not answer.
fn read(unit: &FileUnit<()>, name: &str) -> Option<Vec<u8>> {
    unit.journal.sync().unwrap();
    let (log, from, upto) = {
        let mut guard = unit.logs.lock(&[name]);
        let log = guard.find(name)?;
        let view = guard.view(log).unwrap();
        (log, view.start, view.tail)
    };
    let (mut bytes, mut from) = (Vec::new(), from);
    while from < upto {
        let chunk = unit.logs.read(ReadFrom { log, from, upto }).ok()?;
        assert!(chunk.end > from);
        bytes.extend(chunk.parts.concat());
        from = chunk.end;
    }
    assert_eq!(from, upto.max(Offset(0)));
    Some(bytes)
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..120 {
        world.act();
    }
    // A clean end: a new machine has everything.
    world.sync();
    while world.live().unit.logs.settle(Millis(1), When::Now).unwrap_or_default() {}
    world.live().unit.journal.close().unwrap();
    until(|| UnitLogs::close(&*world.live().unit.logs));
    assert!((0..100).any(|_| world.turn(true).is_ok()), "seed {seed}: the bucket never has all of the folder");
    world.lose_machine();
    world.check(|content| content.appended.len());
    world
}

#[test]
fn simulation_of_a_folder_and_its_mirror_loses_nothing_that_was_mirrored() {
    thalweg_sim::histories(60, "thalweg-host", |seed| drop(run(seed)));
}

#[test]
fn histories_read_cold_objects_and_fill_machines() {
    let (mut cold_reads, mut filled) = (0, 0);
    for seed in 0..5 {
        let world = run(seed);
        cold_reads += world.cold_reads;
        filled += world.filled;
    }
    assert!(cold_reads > 0 && filled > 10, "{cold_reads} cold reads, {filled} machines were filled");
}
