//! Units on a full disk: appends are refused, deletes make space, and appends are accepted again, also while other
//! units' long jobs run.

use crate::background::now;
use crate::reserve::Reserve;
use crate::{Keeping, Unit, keep};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use thalweg_base::LogId;
use thalweg_journal::{Class, Journal, Options};
use thalweg_log::{Append, FileUnit, Lengths, LogsOptions, Loss, Op, When};
use thalweg_rounds::{Behind, Done, Kind, KindStats, Rounds};
use thalweg_sim::SimDisk;

/// How long the test waits for each event, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(15);
const RESERVE_BYTES: u64 = 256 << 10;
const DEAD_BYTES: usize = 1 << 20;

/// A kept unit, in a process without free threads: its budget is in debt, and both threads are in merges of other units
/// that end with the test.
struct World {
    disk: SimDisk,
    unit: FileUnit<()>,
    rounds: Rounds,
    merges: Vec<Sender<()>>,
}

impl World {
    /// Makes a world with one log that is settled in an object of its own.
    fn new() -> (Self, LogId) {
        let disk = SimDisk::new(1);
        let logs = LogsOptions { settle_after_ms: 0, reclaim_every_ms: 0, purge_after_ms: 0, ..LogsOptions::default() };
        let unit = FileUnit::open(Arc::new(disk.clone()), Options::default(), logs, Loss::Nothing).unwrap();
        unit.journal.start_writer().unwrap();
        let options = thalweg_rounds::Options { threads: 4, bytes_per_second: 1 };
        let rounds = Rounds::start(options).unwrap();
        let mut world = Self { disk, unit, rounds, merges: Vec::new() };
        let dead = world.create("dead", &vec![1; DEAD_BYTES]).unwrap();
        world.unit.journal.wait(world.unit.journal.end()).unwrap();
        world.unit.logs.settle(now(), When::Now).unwrap();
        world.occupy();
        let kept = Unit::main("full", &world.unit, RESERVE_BYTES);
        let reserve = Reserve::open(&world.disk, RESERVE_BYTES).unwrap();
        keep(&world.rounds, &kept, Keeping { reserve, settles: true, bound_bytes: Options::default().bound_bytes });
        world.until("the jobs have looked", || world.of(Kind::Settle).turns > 0 && world.of(Kind::Settle).due == 0);
        (world, dead)
    }

    fn occupy(&mut self) {
        self.rounds.add("another", Kind::Scrub, || Ok(Done { bytes: 1 << 40, ..Done::IDLE }));
        self.until("the budget is in debt", || self.of(Kind::Scrub).bytes > 0);
        let (began, begins) = channel();
        for _ in 0..2 {
            let began = began.clone();
            let (end, ends) = channel();
            let merge = self.rounds.add("another", Kind::Merge, move || {
                let _ = (began.send(()), ends.recv());
                Ok(Done::IDLE)
            });
            merge.nudge_behind(Behind::BOUND);
            self.merges.push(end);
        }
        self.merges.iter().for_each(|_| begins.recv_timeout(PATIENCE).unwrap());
    }

    fn of(&self, kind: Kind) -> KindStats {
        self.rounds.stats().kinds[kind as usize]
    }

    /// Whether users may.
    fn create(&self, name: &str, message: &[u8]) -> Option<LogId> {
        let (lengths, parts) = (Lengths::one(message.len() as u32), [message]);
        let append = Some(Append::Bytes { parts: &parts, lengths: &lengths });
        let op = Op::Create { name, note: b"", origin: None, append };
        let committed = self.unit.logs.lock(&[name]).commit(Class::User, &[op]).ok()?;
        self.unit.journal.kick();
        committed.created
    }

    fn delete(&self, log: LogId) {
        self.unit.logs.lock_logs(&[log], &[]).commit(Class::Upkeep, &[Op::Delete { log }]).unwrap();
        self.unit.journal.wait(self.unit.journal.end()).unwrap();
    }

    /// Sets the disk's capacity to the bytes in use.
    fn fill(&self) {
        let is_at_rest = || !self.unit.journal.wants_prepare() && self.of(Kind::Segments).turns > 0;
        self.until("segments are made", is_at_rest);
        self.disk.capacity(self.disk.cached().values().map(|bytes| bytes.len() as u64).sum());
        assert!(self.create("unsettled", b"nothing is settled on a full disk").is_some());
        self.until("users are refused", || self.unit.logs.is_low_on_space());
        assert!(self.create("refused", b"").is_none());
    }

    fn until(&self, what: &str, is_done: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_done() {
            assert!(began.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}; {:?}", self.rounds.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asserts that no turn of merging has ended or failed.
    fn end(self) {
        assert_eq!(self.of(Kind::Merge).turns, 0, "the merges of other units still run");
        assert_eq!(
            self.of(Kind::Settle).failed,
            0,
            "a full disk is no failure, which would be tried again later and later"
        );
        self.merges.iter().for_each(|merge| merge.send(()).unwrap());
        self.rounds.stop();
        self.unit.journal.close().unwrap();
    }
}

#[test]
fn a_delete_on_a_full_disk_lets_users_in_while_the_budget_is_in_debt_and_merges_run() {
    let (world, dead) = World::new();
    world.fill();
    world.delete(dead);
    world.until("appends are accepted", || world.create("accepted", b"there is space").is_some());
    world.end();
}

#[test]
fn users_are_let_in_when_there_is_space_that_neither_the_reserve_nor_reclaiming_had() {
    let (world, dead) = World::new();
    world.fill();
    // Another user of the disk has taken the space that the reserve released.
    world.disk.capacity(0);
    world.delete(dead);
    let before = world.of(Kind::Settle).turns;
    world.until("relief is tried", || world.of(Kind::Settle).turns > before + 3);
    assert!(world.create("refused", b"").is_none());
    world.disk.capacity(u64::MAX);
    world.until("appends are accepted", || world.create("accepted", b"there is space").is_some());
    world.end();
}
