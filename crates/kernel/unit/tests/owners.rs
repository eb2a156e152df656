//! Owners that follow each other on one unit, and deposed ones that do not know it yet.
//!
//! One thread plays every process. A process opens the unit in steps, so that others act in between; makes objects, and
//! finishes some of them late; edits its index's section with outcomes that it does not always learn; cleans up; dies;
//! or sleeps while another process deposes it, and goes on. After every step a new process would find the root of the
//! last successful edit, and every object that it names holds the bytes that its maker wrote.
//!
//! `SEED=n` replays one history, `SEEDS=n` says how many are run.
#![allow(clippy::unwrap_used, reason = "a test that fails should say where")]

mod support;

use bytes::Bytes;
use oorandom::Rand32;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use support::{Names, One, Two};
use thalweg_base::{ObjectId, Ticket};
use thalweg_manifest::{self as manifest, Manifest, ManifestError, MemoryManifest};
use thalweg_storage::{MemoryStorage, ObjectWriter, Storage, StorageError};
use thalweg_unit::{Index, OpenError, Opening, Root, Section, Unit, epoch_of};

/// Which fault is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Orphans are removed before the unit is owned.
    cleans_first: bool,
    /// Ids do not hold the epoch of their maker.
    ids_without_epoch: bool,
    /// Commits are compared by version alone.
    epochs_ignored: bool,
}

/// A storage like a bucket: the last put under a name stands, also over one of another process.
#[derive(Default)]
struct Bucket {
    inner: Mutex<MemoryStorage>,
    masks_epochs: bool,
}

impl Bucket {
    fn name(&self, object: ObjectId) -> ObjectId {
        if self.masks_epochs { ObjectId(object.0 & 0xffff_ffff) } else { object }
    }
}

impl Storage for Bucket {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        let name = self.name(object);
        let inner = self.inner.lock();
        inner.remove(name)?;
        inner.create(name)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.inner.lock().try_read(self.name(object), range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.inner.lock().read(self.name(object), range)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.inner.lock().len(self.name(object))
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.inner.lock().remove(self.name(object))
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.inner.lock().list()
    }
}

/// A manifest that does not always report the outcome of a change.
#[derive(Default)]
struct Doubtful {
    inner: MemoryManifest,
    /// The next change fails, and was made or not.
    next: Mutex<Option<bool>>,
    epochs_ignored: bool,
}

impl Doubtful {
    fn changed<T>(&self, change: impl FnOnce() -> Result<T, ManifestError>) -> Result<T, ManifestError> {
        let fate = self.next.lock().take();
        if fate != Some(false) {
            let done = change();
            if fate.is_none() || done.is_err() {
                return done;
            }
        }
        Err(ManifestError::Io { operation: "writing", cause: "no answer".into() })
    }
}

impl Manifest for Doubtful {
    fn read(&self) -> Result<Option<manifest::Root>, ManifestError> {
        self.inner.read()
    }

    fn load(&self) -> Result<Option<manifest::Root>, ManifestError> {
        self.inner.load()
    }

    fn acquire(&self, above: u64) -> Result<manifest::Root, ManifestError> {
        self.changed(|| self.inner.acquire(above))
    }

    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        let there = self.inner.read()?.unwrap_or_default();
        match self.epochs_ignored {
            true => self.changed(|| self.inner.commit(there.epoch, there.version.max(expected), body)),
            false => self.changed(|| self.inner.commit(epoch, expected, body)),
        }
    }
}

/// An object that is being made, and the bytes that it will hold.
struct Making {
    id: ObjectId,
    writer: Box<dyn ObjectWriter>,
    content: Vec<u8>,
}

/// A process: it opens the unit, or has it (or believes so).
#[allow(clippy::large_enum_variant, reason = "a world has a handful of processes")]
enum Process {
    Opening(Opening, One, Two),
    Owner { one: Index<One>, two: Index<Two>, unit: Arc<Unit>, making: Vec<Making>, made: Vec<(ObjectId, u64)> },
}

struct World {
    plan: Plan,
    random: Rand32,
    storage: Arc<Bucket>,
    manifest: Arc<Doubtful>,
    processes: Vec<Process>,
    /// The content of objects whose writer has reported them as finished.
    contents: BTreeMap<ObjectId, Vec<u8>>,
    /// The epoch of the newest owner.
    epoch: u64,
    /// Edits that their owner knows to be made, of either section.
    edits: [u64; 2],
    /// Edits whose owner has had no answer.
    doubts: u64,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    owners: u64,
    edits: u64,
    doubts: u64,
    /// Edits of owners that were deposed.
    refused: u64,
    late: u64,
    orphans: u64,
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        Self {
            plan,
            random: Rand32::new(seed),
            storage: Arc::new(Bucket { masks_epochs: plan.ids_without_epoch, ..Bucket::default() }),
            manifest: Arc::new(Doubtful { epochs_ignored: plan.epochs_ignored, ..Doubtful::default() }),
            processes: Vec::new(),
            contents: BTreeMap::new(),
            epoch: 0,
            edits: [0, 0],
            doubts: 0,
            tally: Tally::default(),
        }
    }

    fn upto(&mut self, n: usize) -> usize {
        self.random.rand_range(0..n.max(1) as u32) as usize
    }

    fn step(&mut self) {
        if self.processes.is_empty() || (self.processes.len() < 4 && self.upto(20) == 0) {
            self.begin();
        } else {
            let at = self.upto(self.processes.len());
            match self.processes.swap_remove(at) {
                Process::Opening(opening, one, two) => self.own(opening, one, two),
                owner => self.work(owner),
            }
        }
        self.check();
    }

    fn begin(&mut self) {
        let mut opening = Opening::read(self.storage.clone() as _, self.manifest.clone() as _, Root::decode)
            .unwrap_or_else(|error| panic!("the unit is refused: {error}"));
        let sections = opening.section::<One>().and_then(|one| Ok((one, opening.section::<Two>()?)));
        match sections {
            Ok((one, two)) => {
                self.processes.push(Process::Opening(opening, one.unwrap_or_default(), two.unwrap_or_default()));
            }
            Err(error) => panic!("what the root names is not there: {error}"),
        }
    }

    fn own(&mut self, opening: Opening, one: One, two: Two) {
        if self.plan.cleans_first {
            let named = [one.objects(), two.objects()].concat();
            opening.remove_orphans_before_owning(&named).unwrap();
        }
        self.doubt();
        let doubted = self.manifest.next.lock().is_some();
        let acquired = opening.acquire();
        let before = std::mem::replace(&mut self.epoch, self.manifest.read().unwrap().map_or(0, |root| root.epoch));
        if self.epoch > before {
            // Edits of the earlier owner without an answer are decided from here on.
            (self.edits, self.doubts) = (self.found().map_or([0, 0], |(one, two)| [one.edits, two.edits]), 0);
        }
        let unit = match acquired {
            Ok(unit) => unit,
            // Another process was quicker, or the outcome is unknown: in both cases this process is no owner.
            Err(OpenError::Changed) => return,
            Err(OpenError::Manifest(ManifestError::Io { .. })) if doubted => return,
            Err(error) => panic!("{error}"),
        };
        assert!(unit.epoch() > before, "an epoch is given out twice");
        self.tally.owners += 1;
        let (one, two) = (Index::new(unit.clone(), one), Index::new(unit.clone(), two));
        self.processes.push(Process::Owner { one, two, unit, making: Vec::new(), made: Vec::new() });
    }

    /// Now and then the next change of the manifest gets no answer.
    fn doubt(&mut self) {
        let fate = match self.upto(12) {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        };
        *self.manifest.next.lock() = fate;
    }

    fn work(&mut self, owner: Process) {
        let Process::Owner { one, two, unit, mut making, mut made } = owner else { return };
        match self.upto(16) {
            // Objects are made only when there is a root.
            0..4 if self.found().is_some() => {
                let id = unit.new_object();
                let content = vec![self.upto(250) as u8; 1 + self.upto(20)];
                if let Ok(writer) = unit.storage().create(id) {
                    making.push(Making { id, writer, content });
                }
            }
            4..8 if !making.is_empty() => {
                let Making { id, mut writer, content } = making.swap_remove(self.upto(making.len()));
                let late = unit.epoch() != self.epoch;
                if writer.write(&content).and_then(|()| writer.finish()).is_ok() {
                    self.tally.late += u64::from(late);
                    made.push((id, content.len() as u64));
                    self.contents.insert(id, content);
                }
            }
            8..11 => self.edit(0, &one, &mut made),
            11..14 => self.edit(1, &two, &mut made),
            14 => {
                let before = self.storage.list().unwrap().len();
                unit.remove_orphans().unwrap();
                self.tally.orphans += (before - self.storage.list().unwrap().len()) as u64;
            }
            // It dies, and nothing that it has begun is ever finished.
            15 if self.upto(3) == 0 => return,
            _ => {}
        }
        self.processes.push(Process::Owner { one, two, unit, making, made });
    }

    fn edit<const N: u8>(&mut self, at: usize, index: &Index<Names<N>>, made: &mut Vec<(ObjectId, u64)>) {
        self.doubt();
        let named = std::mem::take(made);
        let forgets = self.upto(3) == 0;
        let new = named.iter().map(|(id, _)| *id).collect();
        let edited = index.edit(new, |section, claim| {
            if forgets && !section.objects.is_empty() {
                section.objects.remove(0);
            }
            section.objects.extend(named);
            section.edits += 1;
            claim.durable = claim.durable.plus(1);
        });
        let deposed = index.unit().epoch() != self.epoch;
        match edited {
            Ok(dropped) => {
                assert!(!deposed, "an owner of epoch {} edits in epoch {}", index.unit().epoch(), self.epoch);
                self.edits[at] = index.section().edits;
                self.doubts = 0;
                self.tally.edits += 1;
                index.unit().discard(&dropped);
            }
            Err(ManifestError::Io { .. }) => {
                self.tally.doubts += 1;
                self.doubts += 1;
            }
            Err(ManifestError::Fenced { .. } | ManifestError::Conflict { .. }) if deposed => self.tally.refused += 1,
            Err(error) => panic!("an owner is refused: {error}"),
        }
    }

    /// The unit as a process would find it that opens it now.
    fn found(&self) -> Option<(One, Two)> {
        let body = self.manifest.read().unwrap().unwrap_or_default().body;
        let root = (!body.is_empty()).then(|| Root::decode(&body).expect("the root is whole"))?;
        Some((root.section().unwrap().unwrap_or_default(), root.section().unwrap().unwrap_or_default()))
    }

    fn check(&self) {
        let (one, two) = self.found().unwrap_or_default();
        for (found, known) in [one.edits, two.edits].into_iter().zip(self.edits) {
            assert!(found == known || (self.doubts > 0 && found == known + 1), "{found} edits, {known} are known");
        }
        for (id, len) in one.objects.iter().chain(&two.objects) {
            let content = &self.contents[id];
            assert_eq!(content.len() as u64, *len);
            let read = self.storage.read(*id, 0..*len).wait();
            assert_eq!(read.as_deref(), Ok(&content[..]), "object {id}, which the root names");
        }
    }
}

fn run(seed: u64, plan: Plan) -> Tally {
    let mut world = World::new(seed, plan);
    for _ in 0..300 {
        world.step();
    }
    // A last owner, alone, cleans up: every object that is left is named.
    world.processes.clear();
    *world.manifest.next.lock() = None;
    while !matches!(world.processes.last(), Some(Process::Owner { .. })) {
        if world.processes.is_empty() {
            world.begin();
        }
        if let Some(Process::Opening(opening, one, two)) = world.processes.pop() {
            world.plan = Plan::default();
            world.own(opening, one, two);
        }
    }
    let Some(Process::Owner { unit, one, two, .. }) = world.processes.last() else { unreachable!() };
    unit.remove_orphans().unwrap();
    let named = [one.section().objects(), two.section().objects()].concat();
    let left = world.storage.list().unwrap();
    assert!(left.iter().all(|id| named.iter().any(|(named, _)| named == id)), "{left:?} are left, {named:?} are named");
    assert!(left.iter().all(|id| epoch_of(*id) < unit.epoch()));
    world.tally
}

#[test]
fn simulation_of_owners_and_zombies_names_only_what_its_makers_wrote() {
    thalweg_sim::histories(300, "thalweg-unit", |seed| {
        run(seed, Plan::default());
    });
}

#[test]
fn histories_reach_what_they_are_for() {
    let mut sum = [0; 6];
    for seed in 0..100 {
        let Tally { owners, edits, doubts, refused, late, orphans } = run(seed, Plan::default());
        for (sum, n) in sum.iter_mut().zip([owners, edits, doubts, refused, late, orphans]) {
            *sum += n;
        }
    }
    eprintln!("owners, edits, doubts, refused, late, orphans: {sum:?}");
    for (n, least) in sum.into_iter().zip([200, 1_000, 200, 200, 100, 100]) {
        assert!(n >= least, "{sum:?}");
    }
}

#[test]
fn planted_faults_are_caught() {
    let none = Plan::default();
    for plan in [
        Plan { cleans_first: true, ..none },
        Plan { ids_without_epoch: true, ..none },
        Plan { epochs_ignored: true, ..none },
    ] {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let seen = (0..1_000).find(|seed| catch_unwind(AssertUnwindSafe(|| run(*seed, plan))).is_err());
        std::panic::set_hook(hook);
        eprintln!("{plan:?} is seen by seed {seen:?}");
        assert!(seen.is_some(), "no history shows the planted fault {plan:?}");
    }
}
