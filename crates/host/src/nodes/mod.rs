//! Nodes: servers that share a bucket and own its units between them.
//!
//! *Who owns a unit* is decided in the bucket alone: the root's epoch and the journal's fence ([ADR
//! 22](../../../../docs/adr/0022-owners-in-a-bucket-meet-at-numbers.md)). Everything here only decides when to try,
//! where to send a request, and how long reads may be served.
//!
//! *Announcements.* Each node writes one object, again and again: it says which units it owns. A node whose
//! announcement has not changed for `STALE_AFTER` periods, as far as another one has seen, is taken for dead, and its
//! units are free.
//!
//! *Leases.* Acknowledgements need none: the journal gives them. A read that must be current does, because an owner
//! that was deposed learns of it later. An announcement that was written gives its units a lease of `LEASE` periods
//! from the moment in which writing it began. After a gap between leases, and for a new unit, the owner reads the
//! unit's root once more before it counts. A new owner serves a unit only when no other announcement that names it has
//! changed for `STALE_AFTER` periods, asked of the bucket after it has acquired the root: then every lease before has
//! ended, by the owner's own clock, if clocks run alike to a tenth. No two clocks are compared.
//!
//! *Suspects.* The units of a node that does not answer others, and whose announcement is late, are acquired before it is
//! taken for dead, so that they can be served as soon as its leases have ended. If it lives, it loses them without need.
//!
//! *Shares.* From the nodes that live each node computes which units it should own (`core/plan`). It takes those that nobody
//! claims, and gives up those that another live node should have. A node that has just come takes nothing that others
//! would take: it learns of deaths later than they. The unit of shapes has the number after those of
//! streams. It counts towards no share, and only nodes that reach its database may own it.
//!
//! `core` decides, and knows no clock, no thread and no IO. What is here performs: threads, the bucket, requests to other
//! nodes. `simulation` plays histories of three nodes, with the same core and the real kernel units, from a seed.

mod announcement;
mod board;
mod core;
mod faults;
mod forward;
mod proofs;
#[cfg(all(test, feature = "faults"))]
mod simulation;

pub use self::core::Place;
pub use announcement::Announcement;
pub(crate) use board::KEYS;
pub use forward::{Asked, Budget, Forwarded, Forwarder, Forwarding, Interrupt, OwnedRequest};
pub use proofs::{Proofs, announced};

use self::board::Board;
use self::core::{Core, Moment, Open, Work};
use anyhow::Context as _;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_object::Bucket;

/// How often other nodes are asked directly.
const PROBE_EVERY: Duration = Duration::from_millis(200);
const PROBE_WITHIN: Duration = Duration::from_millis(400);
/// How often the bucket is asked which nodes there are.
const LIST_EVERY: Duration = Duration::from_secs(3);
/// How often units are looked after.
const STEP_EVERY: Duration = Duration::from_millis(50);

/// The path at which a node says its announcement to others.
pub const PATH: &str = "/v1/node";
/// The header by which a node shows that it is one of those that share the bucket.
pub const SECRET: &str = "thalweg-node";
/// The header that names the unit which a request is for.
pub const UNIT: &str = "thalweg-unit";
/// The header that has a question's number, in requests between nodes.
pub const QUESTION: &str = "thalweg-question";
/// The header that has the signature of the answer to it.
pub const SIGNATURE: &str = "thalweg-signature";
/// The header of a refusal that the node which sent the request should not pass on, but ask again later.
pub const AGAIN: &str = "thalweg-again";

/// The refusal of a request that does not show the proof of this process. A node which meets it looks for the owner
/// again: nothing was done.
#[must_use]
pub fn not_a_node() -> thalweg_http::Response {
    let why =
        "the header thalweg-node is for nodes of the same bucket and prefix, and names the process that it is for";
    let body = serde_json::json!({ "error": { "code": "not_a_node", "message": why } }).to_string();
    crate::response::plain(403, "application/json").header(AGAIN, "1").body(body)
}

/// Opens, serves and closes units: the engine's part of owning them. Each function may wait for the bucket.
pub trait Keeper: Send + Sync + 'static {
    /// Takes a unit over; the epoch of its new owner.
    fn take(&self, unit: u64) -> anyhow::Result<u64>;
    /// Whether the root of a unit that was taken says that it is still this owner's.
    fn still_owns(&self, unit: u64) -> anyhow::Result<bool>;
    /// Serves a unit that was taken.
    fn serve(&self, unit: u64);
    /// Whether a unit that was taken accepts nothing any more.
    fn is_lost(&self, unit: u64) -> bool;
    /// Serves a unit no longer, and closes it.
    fn give_up(&self, unit: u64);
}

/// Parameters of a node.
pub struct NodeOptions {
    /// Its name.
    pub name: String,
    /// The URL at which other nodes reach it.
    pub address: String,
    /// How often it writes its announcement.
    pub every: Duration,
    /// How many units of streams the prefix has.
    pub units: u64,
    /// Whether the node may own the unit of shapes.
    pub has_shapes: bool,
    /// By which it knows the other nodes of the prefix, and they it; they name its process.
    pub proofs: Arc<Proofs>,
}

/// A node as operators see it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its own words.
    pub announcement: Announcement,
    /// Whether it lives.
    pub is_live: bool,
    /// How long ago it was heard of last.
    pub age: Duration,
}

/// This server as one of several.
pub struct Node {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    board: Board,
    keeper: Arc<dyn Keeper>,
    forwarder: Arc<Forwarder>,
    options: NodeOptions,
    began: Instant,
    /// Never held over IO, nor over a call of the keeper.
    core: Mutex<Core>,
    /// What the core says of served units, for the hot path.
    open: Arc<Open>,
    stopping: Mutex<bool>,
    /// Something is to be announced at once, or the node stops.
    hurry: Condvar,
    is_hurried: AtomicBool,
    /// The nodes that are being asked how they are.
    asking: Mutex<BTreeSet<String>>,
}

/// Milliseconds of a clock that goes on while the machine sleeps.
fn boot_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// Now, by both clocks.
fn moment(began: Instant) -> Moment {
    Moment { steady: began.elapsed(), boot_ms: boot_ms() }
}

impl Node {
    /// Announces the node, and begins to take its share of the units.
    pub fn start(
        bucket: Bucket,
        keeper: Arc<dyn Keeper>,
        forwarder: Arc<Forwarder>,
        options: NodeOptions,
    ) -> anyhow::Result<Self> {
        let me = Announcement {
            name: options.name.clone(),
            instance: options.proofs.instance().to_owned(),
            address: options.address.clone(),
            object: 0,
            seq: 0,
            every_ms: u64::try_from(options.every.as_millis()).unwrap_or(u64::MAX),
            is_draining: false,
            age_ms: 0,
            has_shapes: options.has_shapes,
            refuses: Vec::new(),
            lapses: 0,
            units: Vec::new(),
            started_ms: crate::background::now().0,
        };
        let core = Core::new(me, options.units, Moment { steady: Duration::ZERO, boot_ms: boot_ms() });
        let began = Instant::now();
        let shared = Arc::new(Shared {
            board: Board::new(&bucket, Arc::clone(&options.proofs), options.every, move || moment(began)),
            keeper,
            forwarder,
            options,
            began,
            open: core.open(),
            core: Mutex::new(core),
            stopping: Mutex::new(false),
            hurry: Condvar::new(),
            is_hurried: AtomicBool::new(false),
            asking: Mutex::default(),
        });
        shared.list().context("asking the bucket which nodes there are")?;
        let spawn = |name: &str, run: fn(&Arc<Shared>)| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(name.into()).spawn(move || run(&shared))
        };
        let threads = vec![
            spawn("announce", Shared::announce)?,
            spawn("look", Shared::look)?,
            spawn("units", Shared::keep_units)?,
        ];
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Where requests for a unit go.
    #[must_use]
    pub fn place(&self, unit: u64) -> Place {
        if self.serves(unit) {
            return Place::Here;
        }
        self.shared.core.lock().place(unit, self.shared.now())
    }

    /// Whether this node serves the unit, with a lease.
    #[must_use]
    pub fn serves(&self, unit: u64) -> bool {
        self.shared.open.serves(unit, boot_ms)
    }

    /// The live nodes beside this one.
    #[must_use]
    pub fn peers(&self) -> Vec<Announcement> {
        self.shared.core.lock().live().cloned().collect()
    }

    /// All nodes that are known, this one first.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        let (core, now) = (self.shared.core.lock(), self.shared.now());
        let me = Seen { announcement: core.me().clone(), is_live: true, age: Duration::ZERO };
        let others = core.peers().map(|peer| Seen {
            announcement: peer.announcement.clone(),
            is_live: !peer.is_stale(),
            age: now.since(peer.since),
        });
        std::iter::once(me).chain(others).collect()
    }

    /// What this node says of itself.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        self.shared.core.lock().me().clone()
    }

    /// How many units of streams there are.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.shared.options.units
    }

    /// The number of the unit of shapes.
    #[must_use]
    pub fn shapes_unit(&self) -> u64 {
        self.shared.options.units
    }

    /// Whether some live node may own the unit of shapes.
    #[must_use]
    pub fn has_shapes(&self) -> bool {
        self.shared.options.has_shapes || self.shared.core.lock().live().any(|peer| peer.has_shapes)
    }

    /// By which nodes of the prefix know each other.
    #[must_use]
    pub fn proofs(&self) -> &Proofs {
        &self.shared.options.proofs
    }

    /// The requests to other nodes.
    #[must_use]
    pub fn forwarder(&self) -> &Forwarder {
        &self.shared.forwarder
    }

    /// Gives all units to the other nodes, and takes none any more; `false` takes it back.
    pub fn drain(&self, is_draining: bool) {
        self.shared.core.lock().drain(is_draining);
        self.shared.hurry();
    }

    /// Gives all units up, and withdraws the announcement.
    pub fn stop(&self) {
        self.drain(true);
        *self.shared.stopping.lock() = true;
        self.shared.hurry.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the node panicked");
            }
        }
        let all = self.shared.core.lock().held();
        std::thread::scope(|scope| {
            for unit in all {
                let shared = &self.shared;
                scope.spawn(move || shared.give_up(unit));
            }
        });
        if let Err(error) = self.shared.board.withdraw() {
            tracing::warn!(%error, "the node's announcement stays in the bucket: others wait until it is stale");
        }
    }
}

impl Shared {
    fn now(&self) -> Moment {
        moment(self.began)
    }

    fn hurry(&self) {
        self.is_hurried.store(true, Ordering::SeqCst);
        let _stopping = self.stopping.lock();
        self.hurry.notify_all();
    }

    /// Sleeps; whether to stop.
    fn sleep(&self, time: Duration, can_hurry: bool) -> bool {
        let until = Instant::now() + time;
        let mut stopping = self.stopping.lock();
        loop {
            let is_hurried = can_hurry && self.is_hurried.swap(false, Ordering::SeqCst);
            if *stopping || is_hurried || self.hurry.wait_until(&mut stopping, until).timed_out() {
                break;
            }
        }
        *stopping
    }

    // ---- what this node says

    fn announce(self: &Arc<Self>) {
        let mut next = Instant::now();
        loop {
            next += self.options.every;
            if let Err(error) = self.board.say(&self.core) {
                tracing::warn!(%error, "the node's announcement could not be written: its reads stop when its lease ends");
            }
            let now = Instant::now();
            next = next.max(now);
            if self.sleep(next - now, true) {
                return;
            }
            next = next.min(Instant::now());
        }
    }

    // ---- what others say

    fn look(self: &Arc<Self>) {
        let mut listed = Instant::now();
        while !self.sleep(PROBE_EVERY, false) {
            self.probe();
            let is_new = self.began.elapsed() < LIST_EVERY;
            if is_new || listed.elapsed() >= LIST_EVERY {
                listed = Instant::now();
                if let Err(error) = self.list() {
                    tracing::warn!(error = format!("{error:#}"), "the bucket did not say which nodes there are");
                }
                if let Err(error) = self.board.forget(&self.core) {
                    tracing::debug!(%error, "announcements of nodes that are gone stay in the bucket for now");
                }
            }
        }
    }

    /// Asks the other nodes that live themselves: it is quick, and costs nothing. A node that does not answer is read in
    /// the bucket. Nobody waits for the answers: one that does not come must not delay news of the others.
    fn probe(self: &Arc<Self>) {
        let peers: Vec<Announcement> = self.core.lock().live().cloned().collect();
        for peer in peers {
            if !self.asking.lock().insert(peer.instance.clone()) {
                continue;
            }
            let (shared, instance) = (Arc::clone(self), peer.instance.clone());
            let ask = move || {
                shared.ask(&peer);
                shared.asking.lock().remove(&peer.instance);
            };
            if let Err(error) = std::thread::Builder::new().name("probe".into()).spawn(ask) {
                self.asking.lock().remove(&instance);
                tracing::warn!(%error, instance, "no thread to ask a node how it is");
            }
        }
    }

    fn ask(&self, peer: &Announcement) {
        let proofs = &self.options.proofs;
        let shown = [(SECRET, proofs.to_show(&peer.instance))];
        let asked = self.now();
        let answer = self.forwarder.ask(&peer.address, PATH, &shown, PROBE_WITHIN);
        match answer.and_then(|text| proofs.open(&text, &peer.instance)) {
            Some(found) => self.core.lock().answered(found, asked, self.now()),
            // Another process is at its address, or nobody.
            None => {
                self.core.lock().unanswered(&peer.instance);
                drop(self.board.read(&self.core, &peer.instance, peer.object));
            }
        }
    }

    /// Reads all announcements in the bucket.
    fn list(&self) -> anyhow::Result<()> {
        Ok(self.board.list(&self.core)?)
    }

    // ---- units

    fn keep_units(self: &Arc<Self>) {
        let mut workers: Vec<JoinHandle<()>> = Vec::new();
        while !self.sleep(STEP_EVERY, false) {
            workers.retain(|worker| !worker.is_finished());
            let owned = self.core.lock().owned();
            let lost: BTreeSet<u64> = owned.into_iter().filter(|unit| self.keeper.is_lost(*unit)).collect();
            let all = self.core.lock().step(&lost, self.now());
            for (unit, work) in all {
                if work == Work::Lose {
                    self.disown(unit);
                }
                let shared = Arc::clone(self);
                match std::thread::Builder::new().name("unit".into()).spawn(move || shared.do_work(unit, work)) {
                    Ok(worker) => workers.push(worker),
                    Err(error) => {
                        tracing::error!(%error, "no thread for a unit");
                        self.core.lock().not_begun(unit, work, self.now());
                    }
                }
            }
        }
        for worker in workers {
            let _ = worker.join();
        }
    }

    fn do_work(&self, unit: u64, work: Work) {
        let began = Instant::now();
        self.perform(unit, work);
        tracing::debug!(unit, ?work, took = ?began.elapsed(), "work on a unit has ended");
    }

    fn perform(&self, unit: u64, work: Work) {
        match work {
            Work::Take => self.take(unit),
            Work::Serve(gaps) => self.serve(unit, gaps),
            Work::Lose => {
                tracing::warn!(unit, "a unit is lost to another node, or its journal has stopped");
                self.disown(unit);
                self.give_up(unit);
            }
            Work::GiveUp => self.give_up(unit),
        }
    }

    fn take(&self, unit: u64) {
        match self.keeper.take(unit) {
            Ok(epoch) => {
                self.core.lock().taken(unit, epoch);
                self.hurry();
            }
            Err(error) => {
                tracing::warn!(unit, error = format!("{error:#}"), "a unit could not be taken; it is tried again");
                self.core.lock().failed(unit, self.now());
            }
        }
    }

    /// Serves a unit if its root says, after an announcement that names it, that it is this node's, and if every lease
    /// before has ended.
    fn serve(&self, unit: u64, gaps: u64) {
        let is_own = match self.keeper.still_owns(unit) {
            Ok(false) => return self.perform(unit, Work::Lose),
            Ok(true) => true,
            Err(error) => {
                tracing::warn!(unit, error = format!("{error:#}"), "the root of a unit could not be read");
                false
            }
        };
        let may_open = is_own && self.list().is_ok() && self.core.lock().may_open(unit, gaps, self.now());
        if !may_open {
            return self.core.lock().not_opened(unit, self.now());
        }
        self.keeper.serve(unit);
        self.core.lock().opened(unit, gaps, self.now());
    }

    /// The next owner of a unit waits for this claim to go: not until the unit is closed, which may take seconds, nor until
    /// there is a thread for that.
    fn disown(&self, unit: u64) {
        let mut core = self.core.lock();
        core.leave(unit);
        core.disown(unit);
        drop(core);
        self.hurry();
    }

    fn give_up(&self, unit: u64) {
        self.core.lock().leave(unit);
        self.keeper.give_up(unit);
        self.core.lock().given_up(unit);
        self.hurry();
    }
}
