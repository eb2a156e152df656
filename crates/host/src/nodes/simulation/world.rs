//! One history: machines, network, bucket, clients, and what goes wrong.

use super::super::core::Moment;
use super::client::Client;
use super::conditions::{Conditions, Focus, Plan};
use super::machine::{Answer, Asked, Call, Clock, Life, Slot};
use super::oracle::Oracle;
use crate::nodes::Announcement;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::UpkeepError;
use thalweg_manifest::ManifestError;
use thalweg_object::SimulatedBucket;
use thalweg_sim::{Process, Rand64, Scheduler};

/// How many machines there are: their numbers are those of their processes.
pub(super) const MACHINES: usize = 3;
/// The processes of the bucket and of all clients.
const BUCKET: Process = MACHINES;
pub(super) const CLIENTS: Process = MACHINES + 1;
const CLIENT_COUNT: u64 = 4;
const UNITS: u64 = 2;
const STREAMS: usize = 3;
const FOREVER: Duration = Duration::from_secs(1 << 20);

/// How often each event came in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally(pub(super) BTreeMap<&'static str, u64>);

impl Tally {
    fn note(&mut self, event: &'static str) {
        *self.0.entry(event).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (event, count) in &other.0 {
            *self.0.entry(event).or_default() += count;
        }
    }
}

/// What came of a history.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Played {
    pub(super) tally: Tally,
    /// A sum over all switches of tasks.
    pub(super) seen: u64,
    /// What was said, if it was to be kept.
    pub(super) trace: Vec<String>,
}

pub(super) struct Machine {
    pub(super) clock: Mutex<Clock>,
    life: Mutex<Option<Arc<Life>>>,
}

/// What is put right again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mend {
    Start(usize),
    Bucket(usize),
    Network(usize, usize),
    Undrain(usize),
    /// A node that gets late answers is cut off, which is mended later.
    CutOff(usize),
}

pub(super) struct World {
    pub(super) scheduler: Scheduler,
    pub(super) bucket: SimulatedBucket,
    pub(super) conditions: Conditions,
    pub(super) units: u64,
    pub(super) machines: Vec<Machine>,
    pub(super) oracle: Mutex<Oracle>,
    random: Mutex<Rand64>,
    state: Mutex<State>,
    trace: Option<Mutex<Vec<String>>>,
}

#[derive(Default)]
struct State {
    /// Until when the process of each machine is stopped.
    stopped_until: [Duration; MACHINES],
    /// Pairs of machines that do not reach each other.
    cut: BTreeSet<(usize, usize)>,
    /// Machines whose node has ended by itself.
    dead: BTreeSet<usize>,
    mends: Vec<(Duration, Mend)>,
    starts: u64,
    is_healing: bool,
    /// Everything works, and all nodes have been started again.
    is_fresh: bool,
    done: u64,
    tally: Tally,
    /// The last error of each unit.
    errors: BTreeMap<u64, String>,
}

/// Ends everything, whatever came of the history.
struct Ending(Arc<World>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.scheduler.kill_all();
        for machine in &self.0.machines {
            let life = machine.life.lock().take();
            life.iter().for_each(|life| life.bucket.end_process());
        }
    }
}

/// Plays one history.
pub(super) fn play(seed: u64, plan: Plan, is_traced: bool) -> Played {
    let conditions = Conditions::of(seed, plan);
    let scheduler = Scheduler::new(seed);
    let bucket = {
        let (clock, expect) = (scheduler.clone(), scheduler.clone());
        SimulatedBucket::on_a_clock(seed, conditions.weather, move || clock.now(), move |due| expect.wake(BUCKET, due))
    };
    let mut random = Rand64::new(u128::from(seed) << 2 | 3);
    let machine = |random: &mut Rand64| Machine {
        // Clocks run alike to a tenth.
        clock: Mutex::new(Clock::new(random.rand_range(955_000..1_050_000) as u32)),
        life: Mutex::default(),
    };
    let machines = (0..MACHINES).map(|_| machine(&mut random)).collect();
    let world = Arc::new(World {
        scheduler,
        bucket,
        conditions,
        units: UNITS,
        machines,
        oracle: Mutex::default(),
        random: Mutex::new(random),
        state: Mutex::default(),
        trace: is_traced.then(Mutex::default),
    });
    let ending = Ending(Arc::clone(&world));
    world.begin();
    world.run();
    let played = world.end();
    drop(ending);
    played
}

impl World {
    // ---- for everybody

    pub(super) fn random(&self) -> u64 {
        self.random.lock().rand_u64()
    }

    fn pick(&self, n: u64) -> u64 {
        self.random.lock().rand_range(0..n)
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if thalweg_sim::is_replay() || self.trace.is_some() {
            let line = format!("{:>10.4} {}", self.scheduler.now().as_secs_f64(), what());
            match &self.trace {
                Some(trace) => trace.lock().push(line),
                None => eprintln!("{line}"),
            }
        }
    }

    pub(super) fn moment(&self, machine: usize) -> Moment {
        self.machines[machine].clock.lock().look(self.scheduler.now())
    }

    pub(super) fn life(&self, machine: usize) -> Option<Arc<Life>> {
        self.machines[machine].life.lock().clone()
    }

    pub(super) fn is_healing(&self) -> bool {
        self.state.lock().is_healing
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.state.lock().is_fresh
    }

    pub(super) fn wake_clients(&self) {
        self.scheduler.wake(CLIENTS, Duration::ZERO);
    }

    fn note(&self, event: &'static str) {
        self.state.lock().tally.note(event);
    }

    pub(super) fn note_done(&self) {
        self.state.lock().done += 1;
    }

    pub(super) fn note_acknowledged(&self, is_double: bool) {
        self.note(if is_double { "an append was acknowledged that had been made before" } else { "appends" });
    }

    pub(super) fn note_read(&self) {
        self.note("reads");
    }

    pub(super) fn note_failed(&self, unit: u64, error: &anyhow::Error) {
        let mut state = self.state.lock();
        state.tally.note("a take-over failed");
        state.errors.insert(unit, format!("{error:#}"));
    }

    pub(super) fn note_upkeep(&self, unit: u64, error: &UpkeepError) {
        // Nobody but the owner commits with its epoch, and it knows what it has committed.
        if let UpkeepError::Manifest(ManifestError::Conflict { expected, found }) = error {
            panic!("the root of unit {unit} has version {found}, where its owner has committed {expected}");
        }
        let mut state = self.state.lock();
        state.tally.note("upkeep failed");
        state.errors.insert(unit, error.to_string());
    }

    pub(super) fn note_fenced(&self) {
        self.note("an owner learnt from its journal that it was deposed");
    }

    pub(super) fn note_dead(&self, machine: usize, instance: &str) {
        if self.life(machine).is_some_and(|life| life.instance == instance) {
            self.state.lock().dead.insert(machine);
        }
    }

    // ---- network

    fn latency(&self) -> Duration {
        Duration::from_micros(300 + self.pick(8_000))
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.state.lock().cut.contains(&(a.min(b), a.max(b)))
    }

    fn is_stopped(&self, machine: usize) -> bool {
        self.state.lock().stopped_until[machine] > self.scheduler.now()
    }

    /// One machine asks the node of another one what it says of itself.
    pub(super) fn ask(&self, from: usize, address: &str, within: Duration) -> Option<Announcement> {
        let to: usize = address.rsplit('/').next()?.parse().ok()?;
        self.scheduler.sleep(self.latency());
        let is_silent = self.is_cut(from, to) || self.is_stopped(to);
        let found = self.life(to).filter(|_| !is_silent).map(|life| life.announcement());
        self.scheduler.sleep(if is_silent { within } else { self.latency() });
        found
    }

    /// One node sends a request on to another one.
    pub(super) fn send_on(&self, from: usize, instance: &str, call: Call, slot: Slot) {
        let to = (0..MACHINES).find_map(|to| self.life(to).filter(|life| life.instance == instance));
        match to {
            Some(life) if self.is_cut(from, life.machine) => {}
            Some(life) => life.ask(Asked { due: self.scheduler.now() + self.latency(), call, slot, is_sent_on: true }),
            None => *slot.lock() = Some(Answer { status: 503, head: String::new(), body: Vec::new(), by: from }),
        }
    }

    /// No unit is served by two nodes at once, each with a lease by its own clock.
    pub(super) fn check_serving(&self) {
        for unit in 0..self.units {
            let serving: Vec<usize> =
                (0..MACHINES).filter(|at| self.life(*at).is_some_and(|life| life.serves(unit))).collect();
            assert!(serving.len() < 2, "unit {unit} is served by the machines {serving:?} at once");
        }
    }

    // ---- the history

    fn begin(self: &Arc<Self>) {
        let world = Arc::clone(self);
        self.scheduler.spawn(BUCKET, "bucket", move || {
            loop {
                for process in world.bucket.arrive() {
                    world.scheduler.wake(process, Duration::ZERO);
                }
                let next = world.bucket.next_arrival();
                let time = next.map_or(FOREVER, |next| next.saturating_sub(world.scheduler.now()));
                world.scheduler.wait(time);
            }
        });
        for machine in 0..MACHINES {
            self.start(machine);
        }
        let streams = self.streams();
        for number in 0..CLIENT_COUNT {
            Client::begin(self, number, &streams);
        }
    }

    /// The streams' names and units: each unit has one.
    fn streams(&self) -> Vec<(String, u64)> {
        let unit_of = |name: &str| {
            let life = self.life(0).unwrap_or_else(|| panic!("no node was started"));
            life.streams.first_unit(&format!("/v1/stream/{name}")).unwrap_or_else(|| panic!("{name} has no unit"))
        };
        let all: Vec<(String, u64)> =
            (0..100).map(|n| format!("s{n}")).map(|name| (name.clone(), unit_of(&name))).collect();
        let first = (0..UNITS).filter_map(|unit| all.iter().find(|(_, of)| *of == unit));
        let mut chosen: Vec<(String, u64)> = first.cloned().collect();
        let more: Vec<_> = all.into_iter().filter(|one| !chosen.contains(one)).take(STREAMS - chosen.len()).collect();
        chosen.extend(more);
        chosen
    }

    fn start(self: &Arc<Self>, machine: usize) {
        let number = {
            let mut state = self.state.lock();
            state.starts += 1;
            state.dead.remove(&machine);
            state.starts
        };
        if self.life(machine).is_none() {
            let life = Life::start(self, machine, number);
            self.say(|| format!("{} starts", life.instance));
            *self.machines[machine].life.lock() = Some(life);
        }
    }

    fn kill(&self, machine: usize) {
        self.scheduler.kill(machine);
        let life = self.machines[machine].life.lock().take();
        let mut state = self.state.lock();
        state.dead.remove(&machine);
        state.stopped_until[machine] = Duration::ZERO;
        state.mends.retain(|(_, mend)| *mend != Mend::Undrain(machine));
        drop(state);
        if let Some(life) = life {
            self.say(|| format!("{} is dead", life.instance));
            life.bucket.end_process();
        }
    }

    fn later(&self, time: Duration, mend: Mend) {
        let due = self.scheduler.now() + time;
        self.state.lock().mends.push((due, mend));
    }

    fn mend(self: &Arc<Self>, mend: Mend) {
        self.say(|| format!("{mend:?}"));
        match mend {
            Mend::Start(machine) => self.start(machine),
            Mend::Bucket(machine) => self.bucket.cut(machine, false),
            Mend::Network(a, b) => drop(self.state.lock().cut.remove(&(a, b))),
            Mend::Undrain(machine) => self.life(machine).iter().for_each(|life| life.drain(false)),
            Mend::CutOff(machine) => {
                self.bucket.slow(machine, None);
                if !self.is_healing() {
                    self.bucket.cut(machine, true);
                    self.later(self.some_time(), Mend::Bucket(machine));
                }
            }
        }
    }

    /// What is due is mended, and nodes that have ended are cleared away.
    fn tend(self: &Arc<Self>) {
        let now = self.scheduler.now();
        let (due, dead) = {
            let mut state = self.state.lock();
            let (due, later): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.mends).into_iter().partition(|(at, _)| *at <= now);
            state.mends = later;
            (due, std::mem::take(&mut state.dead))
        };
        due.into_iter().for_each(|(_, mend)| self.mend(mend));
        for machine in dead {
            self.kill(machine);
            self.later(self.some_time(), Mend::Start(machine));
        }
    }

    fn run(self: &Arc<Self>) {
        while self.scheduler.now() < self.conditions.trouble {
            self.scheduler.sleep(self.conditions.every * self.pick(self.conditions.calm_max) as u32 / 100);
            self.scheduler.check();
            self.tend();
            self.trouble();
        }
        self.heal();
    }

    /// How long something lasts: often about as long as leases and silences count.
    fn some_time(&self) -> Duration {
        let periods = [0.2, 0.8, 1.5, 2.0, 2.2, 2.4, 2.7, 3.5, 6.0][self.pick(9) as usize];
        self.conditions.every.mul_f64(periods) + self.conditions.every * self.pick(100) as u32 / 300
    }

    /// Something goes wrong, or somebody does something.
    fn trouble(self: &Arc<Self>) {
        let (now, machine, time) = (self.scheduler.now(), self.pick(MACHINES as u64) as usize, self.some_time());
        let Some(life) = self.life(machine) else { return };
        let kind = match (self.conditions.focus, self.pick(3)) {
            // Half of those that are stopped are stopped for about as long as silences count.
            (Focus::Holes, 0 | 1) => 0,
            (Focus::LateAnswers, 0 | 1) => 92,
            _ => self.pick(100),
        };
        let what = match kind {
            0..22 => {
                self.pause(machine, now + time);
                "a process was stopped"
            }
            22..32 => {
                self.pause(machine, now + time);
                self.machines[machine].clock.lock().sleep(now, now + time);
                "a machine slept"
            }
            32..47 => {
                drop(life);
                self.kill(machine);
                self.later(time, Mend::Start(machine));
                self.note("a process was killed");
                return;
            }
            47..65 => {
                self.bucket.cut(machine, true);
                self.later(time, Mend::Bucket(machine));
                "a node was cut off from the bucket"
            }
            65..77 => {
                let other = (machine + 1 + self.pick(2) as usize) % MACHINES;
                let pair = (machine.min(other), machine.max(other));
                self.state.lock().cut.insert(pair);
                self.later(time, Mend::Network(pair.0, pair.1));
                "two nodes were cut off from each other"
            }
            77..83 => {
                life.drain(true);
                self.later(time, Mend::Undrain(machine));
                "a node drained"
            }
            83..88 => {
                life.stop();
                "a node stopped"
            }
            88..92 => {
                let by = self.pick(20_000) as i64 - 10_000;
                self.machines[machine].clock.lock().set_wall(by);
                "a clock was set"
            }
            92..96 => {
                self.bucket.slow(machine, Some(self.conditions.every.mul_f64(1.4)));
                self.later(self.conditions.every * (50 + self.pick(200)) as u32 / 100, Mend::CutOff(machine));
                "a node got answers late, and was cut off"
            }
            _ => return,
        };
        self.say(|| format!("{what}: {} for {time:?}", life.instance));
        self.note(what);
    }

    fn pause(&self, machine: usize, until: Duration) {
        self.scheduler.stop(machine, until);
        self.state.lock().stopped_until[machine] = until;
    }

    /// Everything works again: every unit gets an owner, and everything that was acknowledged is there.
    fn heal(self: &Arc<Self>) {
        self.say(|| "everything works again".into());
        self.bucket.change(self.conditions.calm());
        self.state.lock().is_healing = true;
        let mends = std::mem::take(&mut self.state.lock().mends);
        mends.into_iter().for_each(|(_, mend)| self.mend(mend));
        self.wait_for_clients();
        // What they have seen is in the bucket, and nowhere else.
        (0..MACHINES).for_each(|machine| self.kill(machine));
        self.state.lock().done = 0;
        (0..MACHINES).for_each(|machine| self.start(machine));
        self.state.lock().is_fresh = true;
        self.wait_for_clients();
    }

    /// Waits until all clients have all that they wait for. Machines that sleep wake up, nodes that stop end, and what is
    /// late arrives meanwhile.
    fn wait_for_clients(self: &Arc<Self>) {
        let until = self.scheduler.now() + 40 * self.conditions.every + Duration::from_secs(20);
        while self.state.lock().done < CLIENT_COUNT {
            self.scheduler.sleep(self.conditions.every / 4);
            self.scheduler.check();
            self.tend();
            if self.scheduler.now() >= until {
                let owners: Vec<_> = (0..MACHINES).map(|at| self.life(at).map(|life| life.announcement())).collect();
                let state = self.state.lock();
                let (done, errors) = (state.done, state.errors.clone());
                drop(state);
                panic!(
                    "{done} of {CLIENT_COUNT} clients have all that they wait for; errors: {errors:?}; nodes: {owners:#?}"
                );
            }
        }
    }

    fn end(&self) -> Played {
        let mut oracle = self.oracle.lock();
        for name in oracle.names() {
            oracle.stream(&name).check_all(&name);
        }
        let mut tally = std::mem::take(&mut self.state.lock().tally);
        tally.0.insert("take-overs", oracle.take_overs() as u64);
        let trace = self.trace.as_ref().map(|trace| std::mem::take(&mut *trace.lock())).unwrap_or_default();
        Played { tally, seen: self.scheduler.seen(), trace }
    }
}
