//! A machine with its clocks, and the node that runs on it: the shell of `nodes`, with tasks of the scheduler in place of
//! threads, and a simulated network in place of HTTP.

use super::super::board::Board;
use super::super::core::{Core, Moment, Open, Place, Work};
use super::super::{LIST_EVERY, PROBE_EVERY, PROBE_WITHIN, UNIT};
use super::conditions::Conditions;
use super::owned::Owned;
use super::world::World;
use crate::nodes::{Announcement, Proofs};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_base::Millis;
use thalweg_http::{Body, Context, Headers, Method, Pending, Poll, Reply, Request, Waker};
use thalweg_journal::{Journal, MemoryJournal};
use thalweg_log::{Logs, LogsOptions, Loss};
use thalweg_manifest::MemoryManifest;
use thalweg_object::{Bucket, BucketOptions};
use thalweg_sim::Scheduler;
use thalweg_storage::MemoryStorage;
use thalweg_streams::{StreamState, Streams, StreamsConfig};

/// How long giving up a unit waits for the bucket, in periods of announcements.
const CLOSE_WITHIN: f64 = 3.0;
/// How long a task sleeps at most before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The clocks of one machine.
#[derive(Debug)]
pub(super) struct Clock {
    /// In millionths.
    rate: u32,
    /// The simulation's time of the last look, and how much of it the machine was awake.
    seen: Duration,
    awake: Duration,
    /// The machine sleeps until then: one of its clocks stands.
    asleep_until: Duration,
    /// How far the wall clock is set forward or back.
    wall_ms: i64,
}

impl Clock {
    pub(super) fn new(rate: u32) -> Self {
        let none = Duration::ZERO;
        Self { rate, seen: none, awake: none, asleep_until: none, wall_ms: 0 }
    }

    pub(super) fn look(&mut self, now: Duration) -> Moment {
        self.awake += now - self.seen.max(self.asleep_until.min(now));
        self.seen = now;
        // A machine has run for a while when the history begins.
        let by_rate = |time: Duration| time * self.rate / 1_000_000;
        Moment { steady: by_rate(self.awake), boot_ms: 1_000 + by_rate(now).as_millis() as u64 }
    }

    /// By people's clock, in milliseconds since 1970.
    fn wall(&mut self, now: Duration) -> u64 {
        let boot_ms = self.look(now).boot_ms;
        (1_800_000_000_000 + boot_ms).saturating_add_signed(self.wall_ms)
    }

    /// The machine sleeps from `now` to `until`.
    pub(super) fn sleep(&mut self, now: Duration, until: Duration) {
        self.look(now);
        self.asleep_until = until;
    }

    pub(super) fn set_wall(&mut self, by_ms: i64) {
        self.wall_ms += by_ms;
    }
}

/// Waiting, for a thread of a node.
#[derive(Clone)]
pub(super) struct Waits(pub(super) Scheduler);

impl Waits {
    /// Until the node gets an answer of the bucket, or the time has passed.
    pub(super) fn wait(&self, time: Duration) {
        self.0.wait(time);
    }

    pub(super) fn now(&self) -> Duration {
        self.0.now()
    }
}

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) unit: u64,
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// What a client gets.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
    /// The machine that answers.
    pub(super) by: usize,
}

impl Answer {
    fn refused(status: u16, by: usize) -> Self {
        Self { status, head: String::new(), body: Vec::new(), by }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Where an answer goes.
pub(super) type Slot = Arc<Mutex<Option<Answer>>>;

/// A request on its way to a node.
pub(super) struct Asked {
    pub(super) due: Duration,
    pub(super) call: Call,
    pub(super) slot: Slot,
    /// Another node has sent it on.
    pub(super) is_sent_on: bool,
}

struct UnderWay {
    pending: Box<dyn Pending>,
    slot: Slot,
}

/// One process of a node, from its start to its end.
pub(super) struct Life {
    pub(super) world: Arc<World>,
    pub(super) machine: usize,
    pub(super) instance: String,
    pub(super) bucket: Bucket,
    board: Board,
    core: Mutex<Core>,
    open: Arc<Open>,
    pub(super) streams: Arc<Streams>,
    units: Mutex<BTreeMap<u64, Arc<Owned>>>,
    inbox: Mutex<Vec<Asked>>,
    is_hurried: AtomicBool,
    is_stopping: AtomicBool,
    /// The machine's time that its futures know.
    passed: Mutex<Duration>,
}

impl Life {
    /// Starts a node on a machine.
    pub(super) fn start(world: &Arc<World>, machine: usize, number: u64) -> Arc<Self> {
        let conditions = world.conditions;
        let now = world.moment(machine);
        let options = BucketOptions {
            deadline: conditions.deadline,
            pause_max: conditions.every / 2,
            ..BucketOptions::default()
        };
        let bucket = {
            let world = Arc::clone(world);
            Bucket::of_process(&world.bucket.clone().seen_by(machine), options, world.random(), move || {
                world.scheduler.wait(LOOK_EVERY);
                world.life(machine).map_or(Duration::ZERO, |life| life.time_passed())
            })
        };
        let name = format!("node{machine}");
        let me = Announcement {
            instance: format!("{name}-{number:04}"),
            name,
            address: format!("http://{machine}"),
            object: 0,
            seq: 0,
            every_ms: conditions.every.as_millis() as u64,
            is_draining: false,
            age_ms: 0,
            has_shapes: false,
            refuses: Vec::new(),
            lapses: 0,
            units: Vec::new(),
            started_ms: 0,
        };
        let instance = me.instance.clone();
        let mut core = Core::new(me, world.units, now);
        core.plant(conditions.plan.nodes);
        let config = StreamsConfig { units_of_nodes: world.units as usize, io_threads: 0, ..StreamsConfig::default() };
        let proofs = Arc::new(Proofs::of("secret", instance.clone()));
        let board = Board::new(&bucket, proofs, conditions.every, {
            let world = Arc::clone(world);
            move || world.moment(machine)
        });
        let life = Arc::new(Self {
            world: Arc::clone(world),
            machine,
            instance,
            bucket,
            board,
            open: core.open(),
            core: Mutex::new(core),
            streams: Streams::new(no_streams(), config),
            units: Mutex::default(),
            inbox: Mutex::default(),
            is_hurried: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            passed: Mutex::new(now.steady),
        });
        life.spawn("start", |life| {
            if let Err(error) = life.board.list(&life.core) {
                life.say(|| format!("did not start: {error:#}"));
                life.world.note_dead(life.machine, &life.instance);
                return;
            }
            life.spawn("announce", |life| life.announce());
            life.spawn("look", |life| life.look());
            life.spawn("units", |life| life.keep_units());
            life.spawn("upkeep", |life| life.upkeep());
        });
        life.spawn("reads", |life| life.read_on());
        life.spawn("drive", |life| life.drive());
        life
    }

    pub(super) fn conditions(&self) -> &Conditions {
        &self.world.conditions
    }

    pub(super) fn waits(&self) -> Waits {
        Waits(self.world.scheduler.clone())
    }

    pub(super) fn random(&self) -> u64 {
        self.world.random()
    }

    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        self.world.say(|| format!("{}: {}", self.instance, what()));
    }

    fn spawn(self: &Arc<Self>, name: &'static str, work: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let life = Arc::clone(self);
        self.world.scheduler.spawn(self.machine, name, move || work(&life));
    }

    fn now(&self) -> Moment {
        self.world.moment(self.machine)
    }

    pub(super) fn wall_ms(&self) -> u64 {
        self.world.machines[self.machine].clock.lock().wall(self.world.scheduler.now())
    }

    pub(super) fn wall(&self) -> Millis {
        Millis(self.wall_ms())
    }

    /// How much time of the machine has passed since the last call.
    fn time_passed(&self) -> Duration {
        let now = self.now().steady;
        let mut passed = self.passed.lock();
        let time = now.saturating_sub(*passed);
        *passed = now;
        time
    }

    /// Sleeps by the machine's clock; whether to stop.
    fn sleep(&self, time: Duration, can_hurry: bool) -> bool {
        let until = self.now().steady + time;
        loop {
            if self.is_stopping.load(Ordering::SeqCst) {
                return true;
            }
            if can_hurry && self.is_hurried.swap(false, Ordering::SeqCst) {
                return false;
            }
            let left = until.saturating_sub(self.now().steady);
            if left.is_zero() {
                return false;
            }
            // By the simulation's clock it may take a little longer.
            let left = left + Duration::from_micros(10);
            if can_hurry {
                self.world.scheduler.wait(left);
            } else {
                self.world.scheduler.sleep(left);
            }
        }
    }

    fn hurry(&self) {
        self.is_hurried.store(true, Ordering::SeqCst);
        self.world.scheduler.wake(self.machine, Duration::ZERO);
    }

    // ---- what a node does: see `Shared` in `nodes`

    fn announce(&self) {
        let every = self.conditions().every;
        let mut next = self.now().steady;
        loop {
            next += every;
            if let Err(error) = self.board.say(&self.core) {
                self.say(|| format!("not announced: {error}"));
            }
            let now = self.now().steady;
            next = next.max(now);
            if self.sleep(next - now, true) {
                return;
            }
            next = next.min(self.now().steady);
        }
    }

    fn look(&self) {
        let began = self.now().steady;
        let mut listed = began;
        while !self.sleep(PROBE_EVERY, false) {
            self.probe();
            let now = self.now().steady;
            if now - began < LIST_EVERY || now - listed >= LIST_EVERY {
                listed = now;
                if let Err(error) = self.board.list(&self.core) {
                    self.say(|| format!("not listed: {error}"));
                }
                if let Err(error) = self.board.forget(&self.core) {
                    self.say(|| format!("not forgotten: {error}"));
                }
            }
        }
    }

    fn probe(&self) {
        let peers: Vec<Announcement> = self.core.lock().live().cloned().collect();
        for peer in peers {
            let asked = self.now();
            match self.world.ask(self.machine, &peer.address, PROBE_WITHIN) {
                Some(found) if found.instance == peer.instance => self.core.lock().answered(found, asked, self.now()),
                _ => {
                    self.core.lock().unanswered(&peer.instance);
                    drop(self.board.read(&self.core, &peer.instance, peer.object));
                }
            }
        }
    }

    fn unit(&self, unit: u64) -> Option<Arc<Owned>> {
        self.units.lock().get(&unit).cloned()
    }

    fn keep_units(self: &Arc<Self>) {
        while !self.sleep(self.conditions().step_every, false) {
            let owned = self.core.lock().owned();
            let is_lost = |unit: &u64| self.unit(*unit).is_none_or(|kept| kept.is_lost());
            let lost: BTreeSet<u64> = owned.into_iter().filter(is_lost).collect();
            let all = self.core.lock().step(&lost, self.now());
            for (unit, work) in all {
                self.spawn("unit", move |life| life.do_work(unit, work));
            }
        }
    }

    fn do_work(&self, unit: u64, work: Work) {
        self.say(|| format!("unit {unit}: {work:?}"));
        match work {
            Work::Take => self.take(unit),
            Work::Serve(gaps) => self.serve(unit, gaps),
            Work::GiveUp => self.give_up(unit),
            Work::Lose => {
                self.core.lock().leave(unit);
                self.core.lock().disown(unit);
                self.hurry();
                self.give_up(unit);
            }
        }
    }

    fn take(&self, unit: u64) {
        match Owned::take(self, unit) {
            Ok(kept) => {
                let (epoch, end) = (kept.epoch, kept.journal.opened().end);
                self.world.oracle.lock().took_over(unit, self.machine, epoch, end);
                self.say(|| format!("unit {unit} is taken with epoch {epoch}, up to {end}"));
                self.units.lock().insert(unit, Arc::new(kept));
                self.core.lock().taken(unit, epoch);
                self.hurry();
            }
            Err(error) => {
                self.say(|| format!("unit {unit} is not taken: {error:#}"));
                self.world.note_failed(unit, &error);
                self.core.lock().failed(unit, self.now());
            }
        }
    }

    fn serve(&self, unit: u64, gaps: u64) {
        let Some(kept) = self.unit(unit) else { return self.give_up(unit) };
        let is_own = match kept.still_owned() {
            Ok(false) => return self.give_up(unit),
            Ok(true) => true,
            Err(_) => false,
        };
        let may_open =
            is_own && self.board.list(&self.core).is_ok() && self.core.lock().may_open(unit, gaps, self.now());
        if !may_open {
            return self.core.lock().not_opened(unit, self.now());
        }
        if let Some(wake) = self.streams.join_unit(unit, Arc::clone(&kept.logs)) {
            wake();
            kept.journal.subscribe(Arc::new(wake));
        }
        self.core.lock().opened(unit, gaps, self.now());
        self.say(|| format!("unit {unit} is served: {}", self.serves(unit)));
    }

    fn give_up(&self, unit: u64) {
        self.core.lock().leave(unit);
        self.streams.leave_unit(unit);
        let kept = self.units.lock().remove(&unit);
        match kept.map(|kept| (kept.journal.poisoned(), kept)) {
            Some((None, kept)) => kept.close(self, self.conditions().every.mul_f64(CLOSE_WITHIN)),
            Some((Some(poisoned), _)) if poisoned.fenced.is_some() => self.world.note_fenced(),
            Some((Some(poisoned), _)) => panic!("the journal of unit {unit} stopped: {poisoned}"),
            None => {}
        }
        self.core.lock().given_up(unit);
        self.say(|| format!("unit {unit} is given up"));
        self.hurry();
    }

    fn upkeep(&self) {
        while !self.sleep(Duration::from_millis(self.conditions().upkeep_ms), false) {
            let all: Vec<Arc<Owned>> = self.units.lock().values().cloned().collect();
            for kept in all {
                if let Err(error) = kept.keep(self) {
                    self.say(|| format!("upkeep of unit {}: {error}", kept.unit));
                    self.world.note_upkeep(kept.unit, &error);
                }
            }
        }
    }

    /// Gives all units up, withdraws the announcement, and ends.
    pub(super) fn stop(self: &Arc<Self>) {
        self.core.lock().drain(true);
        self.is_stopping.store(true, Ordering::SeqCst);
        self.spawn("stop", |life| {
            let is_at_work = |name| life.world.scheduler.is_running(life.machine, name);
            while ["announce", "look", "units", "unit", "upkeep"].into_iter().any(is_at_work) {
                life.world.scheduler.sleep(LOOK_EVERY);
            }
            let all = life.core.lock().held();
            all.into_iter().for_each(|unit| life.give_up(unit));
            let _ = life.board.withdraw();
            life.say(|| "has stopped".into());
            life.world.note_dead(life.machine, &life.instance);
        });
    }

    pub(super) fn drain(&self, is_draining: bool) {
        self.core.lock().drain(is_draining);
        self.hurry();
    }

    // ---- what a node is asked

    pub(super) fn announcement(&self) -> Announcement {
        self.core.lock().me().clone()
    }

    pub(super) fn serves(&self, unit: u64) -> bool {
        self.open.serves(unit, || self.now().boot_ms)
    }

    pub(super) fn ask(&self, asked: Asked) {
        let due = asked.due;
        self.inbox.lock().push(asked);
        self.world.scheduler.wake(self.machine, due);
    }

    /// Takes steps of reads that wait for the bucket.
    fn read_on(&self) {
        loop {
            while self.streams.read_on() {}
            self.world.scheduler.wait(LOOK_EVERY);
        }
    }

    /// Everything of the node that does not wait: the journals' writers, and the event loop.
    fn drive(&self) {
        let mut under_way: Vec<UnderWay> = Vec::new();
        loop {
            let time = self.time_passed();
            self.bucket.pass(time);
            let all: Vec<Arc<Owned>> = self.units.lock().values().cloned().collect();
            for kept in all {
                kept.drive();
                self.world.oracle.lock().durable(kept.unit, kept.epoch, kept.journal.durable());
            }
            self.streams.tick(self.wall());
            while let Some(asked) = self.next_asked() {
                self.answer(asked, &mut under_way);
            }
            let now_ms = self.wall_ms();
            under_way.retain_mut(|one| {
                let waker = || Waker::from_fn(|| ());
                let mut cx = Context::detached(now_ms, &waker);
                match one.pending.poll(&mut cx) {
                    Poll::Ready(Reply::Now(response)) => {
                        *one.slot.lock() = Some(self.answered(response));
                        self.world.wake_clients();
                        false
                    }
                    Poll::Ready(Reply::Later(pending)) => {
                        one.pending = pending;
                        true
                    }
                    Poll::Ready(Reply::Held(..)) => panic!("a unit of nodes has a gate of its own"),
                    Poll::Wait => true,
                }
            });
            self.world.check_serving();
            self.world.scheduler.wait(LOOK_EVERY);
        }
    }

    fn next_asked(&self) -> Option<Asked> {
        let mut inbox = self.inbox.lock();
        let now = self.world.scheduler.now();
        let at = inbox.iter().position(|asked| asked.due <= now)?;
        Some(inbox.remove(at))
    }

    fn answered(&self, response: thalweg_http::Response) -> Answer {
        let body = match response.body {
            Body::Empty => Vec::new(),
            Body::Bytes(bytes) => bytes.to_vec(),
            Body::Parts(parts) => parts.iter().flat_map(|part| part.to_vec()).collect(),
            Body::Stream(_) | Body::Sized(..) => panic!("no request here asks for a stream"),
        };
        let head = String::from_utf8_lossy(&response.head).to_ascii_lowercase();
        Answer { status: response.status, head, body, by: self.machine }
    }

    fn answer(&self, asked: Asked, under_way: &mut Vec<UnderWay>) {
        let Asked { call, slot, is_sent_on, .. } = asked;
        let refuse = |status| {
            *slot.lock() = Some(Answer::refused(status, self.machine));
            self.world.wake_clients();
        };
        if !self.serves(call.unit) {
            let place = self.core.lock().place(call.unit, self.now());
            return match place {
                Place::There { instance, .. } if !is_sent_on => {
                    self.world.send_on(self.machine, &instance, call, Arc::clone(&slot));
                }
                _ => refuse(421),
            };
        }
        let method = match call.method {
            "GET" => Method::Get,
            "PUT" => Method::Put,
            _ => Method::Post,
        };
        let unit = call.unit.to_string();
        let mut headers: Vec<(&str, &[u8])> =
            call.headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        headers.push((UNIT, unit.as_bytes()));
        let request = Request {
            method,
            path: &call.path,
            query: call.query.as_deref(),
            headers: Headers(&headers),
            body: &call.body,
        };
        let waker = || Waker::from_fn(|| ());
        let mut cx = Context::detached(self.wall_ms(), &waker);
        match self.streams.handle_in(call.unit, &request, &mut cx) {
            None => refuse(421),
            Some(Reply::Now(response)) => {
                *slot.lock() = Some(self.answered(response));
                self.world.wake_clients();
            }
            Some(Reply::Later(pending)) => under_way.push(UnderWay { pending, slot: Arc::clone(&slot) }),
            Some(Reply::Held(..)) => panic!("a unit of nodes has a gate of its own"),
        }
    }
}

/// The unit of a node's own folder, which has no streams.
fn no_streams() -> Arc<Logs<StreamState>> {
    let (storage, manifest) = (Arc::<MemoryStorage>::default(), Arc::<MemoryManifest>::default());
    let opening = Logs::begin(LogsOptions::default(), storage, manifest, Loss::Nothing);
    let journal = MemoryJournal::new(thalweg_journal::Options::default());
    let logs = opening.and_then(|opening| opening.finish(Arc::new(journal) as Arc<dyn Journal>));
    Arc::new(logs.unwrap_or_else(|error| panic!("a unit in memory: {error}")))
}
