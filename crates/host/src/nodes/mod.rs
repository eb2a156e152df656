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
//! *Shares.* From the nodes that live each node computes which units it should own (`plan`). It takes those that nobody
//! claims, and gives up those that another live node should have.

mod announcement;
mod forward;
mod plan;

pub use announcement::Announcement;
pub use forward::{Forwarded, Forwarder, Forwarding, OwnedRequest};

use anyhow::Context as _;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use thalweg_object::{Beacon, Bucket};

/// Periods after the beginning of an announcement for which its units may be read.
const LEASE: f64 = 2.0;
/// Periods without a change after which others take a node for dead.
const STALE_AFTER: f64 = 2.3;
/// How often other nodes are asked directly.
const PROBE_EVERY: Duration = Duration::from_millis(200);
const PROBE_WITHIN: Duration = Duration::from_millis(400);
/// How often the bucket is asked which nodes there are.
const LIST_EVERY: Duration = Duration::from_secs(3);
/// An announcement that has not changed for so long is removed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// How long the nodes must be the same before a unit moves to a better place.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// How long a node looks for others before it takes units.
const MEET_WITHIN: Duration = Duration::from_secs(1);
/// How often units are looked after.
const STEP_EVERY: Duration = Duration::from_millis(50);
/// The pause after a unit could not be taken.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Units that are taken or given up at the same time.
const AT_ONCE: usize = 8;

/// The keys of announcements.
const KEYS: &str = "n/";
/// The path at which a node says its announcement to others.
pub const PATH: &str = "/v1/node";
/// The header by which a node shows that it is one of those that share the bucket.
pub const SECRET: &str = "thalweg-node";
/// The header that names the unit which a request is for.
pub const UNIT: &str = "thalweg-unit";
/// The header of a refusal that the node which sent the request should not pass on, but ask again later.
pub const AGAIN: &str = "thalweg-again";

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
    /// How many units the prefix has.
    pub units: u64,
    /// What all nodes of the prefix know.
    pub secret: String,
}

/// Where a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Served by this node, now.
    Here,
    /// Owned by the node at this address; its instance.
    There { address: String, instance: String },
    /// Nobody is known to own it, or its owner is about to serve it.
    Nowhere,
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
    bucket: Bucket,
    keeper: Arc<dyn Keeper>,
    forwarder: Arc<Forwarder>,
    options: NodeOptions,
    began: Instant,
    me: Mutex<Announcement>,
    peers: Mutex<BTreeMap<String, Peer>>,
    /// The lease: until when, and of which units.
    lease: Mutex<Lease>,
    /// The same for the hot path, in milliseconds of [`now_ms`].
    leased_until: AtomicU64,
    units: Mutex<BTreeMap<u64, State>>,
    /// Units that are served, as bits would be: by number.
    served: Box<[AtomicBool]>,
    draining: AtomicBool,
    stopping: Mutex<bool>,
    /// Something is to be announced at once, or the node stops.
    hurry: Condvar,
    is_hurried: AtomicBool,
}

/// What the last announcement that was written allows.
#[derive(Default)]
struct Lease {
    /// In milliseconds of [`now_ms`].
    until: u64,
    /// How often an announcement was written after the lease before had ended.
    gaps: u64,
    /// The units that it names, each with the epoch of its ownership.
    named: BTreeMap<u64, u64>,
}

struct Peer {
    announcement: Announcement,
    /// When this announcement was seen first.
    since: Instant,
    /// When it was asked for last, with an answer. Only what was asked for can be known not to have changed.
    asked: Instant,
}

/// Milliseconds of a clock that goes on while the machine sleeps.
fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// What is done with a unit, on a thread of its own.
enum Work {
    Take,
    Serve,
    Lose,
    GiveUp,
}

/// A unit that this node has, or works on.
enum State {
    /// A thread takes it or gives it up.
    Busy,
    /// Owned, and not served yet: leases of owners before may run.
    Taken,
    Served,
    /// It could not be taken.
    Failed(Instant),
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
            instance: format!("{}-{:016x}", options.name, crate::folder::random()?),
            address: options.address.clone(),
            seq: 0,
            every_ms: u64::try_from(options.every.as_millis()).unwrap_or(u64::MAX),
            is_draining: false,
            units: Vec::new(),
            started_ms: crate::background::now().0,
        };
        let served = (0..options.units).map(|_| AtomicBool::new(false)).collect();
        let shared = Arc::new(Shared {
            bucket,
            keeper,
            forwarder,
            options,
            began: Instant::now(),
            me: Mutex::new(me),
            peers: Mutex::default(),
            lease: Mutex::default(),
            leased_until: AtomicU64::new(0),
            units: Mutex::default(),
            served,
            draining: AtomicBool::new(false),
            stopping: Mutex::new(false),
            hurry: Condvar::new(),
            is_hurried: AtomicBool::new(false),
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
        let peers = self.shared.peers.lock();
        let live = peers.values().filter(|peer| !self.shared.is_stale(peer));
        let owners = live.filter_map(|peer| Some((peer.announcement.epoch_of(unit)?, &peer.announcement)));
        match owners.max_by_key(|(epoch, _)| *epoch) {
            Some((epoch, owner)) if self.shared.epoch_of(unit).is_none_or(|own| own < epoch) => {
                Place::There { address: owner.address.clone(), instance: owner.instance.clone() }
            }
            _ => Place::Nowhere,
        }
    }

    /// Whether this node serves the unit, with a lease.
    #[must_use]
    pub fn serves(&self, unit: u64) -> bool {
        let is_served = self.shared.served.get(unit as usize).is_some_and(|served| served.load(Ordering::Acquire));
        is_served && now_ms() < self.shared.leased_until.load(Ordering::Acquire)
    }

    /// The live nodes beside this one.
    #[must_use]
    pub fn peers(&self) -> Vec<Announcement> {
        let peers = self.shared.peers.lock();
        peers.values().filter(|peer| !self.shared.is_stale(peer)).map(|peer| peer.announcement.clone()).collect()
    }

    /// All nodes that are known, this one first.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        let me = Seen { announcement: self.announcement(), is_live: true, age: Duration::ZERO };
        let peers = self.shared.peers.lock();
        let others = peers.values().map(|peer| Seen {
            announcement: peer.announcement.clone(),
            is_live: !self.shared.is_stale(peer),
            age: peer.since.elapsed(),
        });
        std::iter::once(me).chain(others).collect()
    }

    /// What this node says of itself.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        self.shared.me.lock().clone()
    }

    /// How many units there are.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.shared.options.units
    }

    /// What all nodes of the prefix know.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.shared.options.secret
    }

    /// Whether a request that shows this was sent by a node of the prefix.
    #[must_use]
    pub fn is_secret(&self, given: &[u8]) -> bool {
        given.ct_eq(self.shared.options.secret.as_bytes()).into()
    }

    /// The requests to other nodes.
    #[must_use]
    pub fn forwarder(&self) -> &Forwarder {
        &self.shared.forwarder
    }

    /// Gives all units to the other nodes, and takes none any more; `false` takes it back.
    pub fn drain(&self, is_draining: bool) {
        self.shared.draining.store(is_draining, Ordering::SeqCst);
        self.shared.me.lock().is_draining = is_draining;
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
        let all: Vec<u64> = self.shared.units.lock().keys().copied().collect();
        std::thread::scope(|scope| {
            for unit in all {
                let shared = &self.shared;
                scope.spawn(move || shared.give_up(unit));
            }
        });
        let key = self.shared.key();
        if let Err(error) = self.shared.bucket.remove(&key) {
            tracing::warn!(%error, "the node's announcement stays in the bucket: others wait until it is stale");
        }
    }
}

impl Shared {
    fn key(&self) -> String {
        format!("{KEYS}{}", self.me.lock().instance)
    }

    fn stale_after(&self, every_ms: u64) -> Duration {
        Duration::from_millis(every_ms.max(1)).mul_f64(STALE_AFTER)
    }

    fn is_stale(&self, peer: &Peer) -> bool {
        peer.asked.saturating_duration_since(peer.since) >= self.stale_after(peer.announcement.every_ms)
    }

    fn epoch_of(&self, unit: u64) -> Option<u64> {
        self.me.lock().epoch_of(unit)
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
        let beacon = Beacon::new(self.bucket.clone(), &self.key());
        let mut next = Instant::now();
        loop {
            next += self.options.every;
            self.announce_once(&beacon);
            let now = Instant::now();
            next = next.max(now);
            if self.sleep(next - now, true) {
                return;
            }
            next = next.min(Instant::now());
        }
    }

    fn announce_once(&self, beacon: &Beacon) {
        // Others see the number only when the bucket has it: by it they know that this node can write.
        let mut announcement = self.me.lock().clone();
        announcement.seq += 1;
        let began = now_ms();
        if let Err(error) = beacon.show(announcement.text()) {
            tracing::warn!(%error, "the node's announcement could not be written: its reads stop when its lease ends");
            return;
        }
        self.me.lock().seq = announcement.seq;
        let mut lease = self.lease.lock();
        if now_ms() >= lease.until {
            // Others may have taken the units meanwhile: each is looked at again before it is served.
            lease.gaps += 1;
            let mut units = self.units.lock();
            for (unit, state) in units.iter_mut() {
                self.served[*unit as usize].store(false, Ordering::Release);
                if matches!(state, State::Served) {
                    *state = State::Taken;
                }
            }
        }
        lease.until = began + self.options.every.mul_f64(LEASE).as_millis() as u64;
        lease.named = announcement.units.iter().copied().collect();
        self.leased_until.store(lease.until, Ordering::Release);
    }

    /// The number of the gap after which a unit has its lease, if the last announcement names it as it is owned now.
    fn leased(&self, lease: &Lease, unit: u64) -> Option<u64> {
        let is_named = lease.named.get(&unit).is_some_and(|epoch| self.epoch_of(unit) == Some(*epoch));
        (is_named && now_ms() < lease.until).then_some(lease.gaps)
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
                self.forget();
            }
        }
    }

    /// Asks the other nodes themselves: it is quick, and costs nothing. A node that does not answer is read in the
    /// bucket.
    fn probe(self: &Arc<Self>) {
        let peers: Vec<Announcement> = self.peers.lock().values().map(|peer| peer.announcement.clone()).collect();
        std::thread::scope(|scope| {
            for peer in &peers {
                scope.spawn(move || {
                    let secret = [(SECRET, self.options.secret.clone())];
                    let asked = Instant::now();
                    let answer = self.forwarder.ask(&peer.address, PATH, &secret, PROBE_WITHIN);
                    let found = answer.and_then(|text| serde_json::from_slice::<Announcement>(&text).ok());
                    match found {
                        Some(found) if found.instance == peer.instance => self.note(found, asked),
                        // Another process is at its address, or nobody.
                        _ => drop(self.read(&format!("{KEYS}{}", peer.instance))),
                    }
                });
            }
        });
    }

    /// `asked`: the moment in which it was asked for.
    fn note(&self, found: Announcement, asked: Instant) {
        if found.instance == self.me.lock().instance {
            return;
        }
        let mut peers = self.peers.lock();
        match peers.get_mut(&found.instance) {
            Some(peer) if peer.announcement.seq >= found.seq => {
                // An answer between two announcements may know of a unit more, or less.
                if peer.announcement.seq == found.seq {
                    peer.announcement = found;
                }
                peer.asked = peer.asked.max(asked);
            }
            _ => {
                let instance = found.instance.clone();
                if peers.insert(instance, Peer { announcement: found.clone(), since: Instant::now(), asked }).is_none()
                {
                    tracing::info!(node = found.name, address = found.address, "a node has come");
                }
            }
        }
    }

    /// Reads an announcement in the bucket; whether it is there.
    fn read(&self, key: &str) -> anyhow::Result<bool> {
        let asked = Instant::now();
        match Beacon::new(self.bucket.clone(), key).look()? {
            None => {
                let instance = key.strip_prefix(KEYS).unwrap_or_default();
                if let Some(gone) = self.peers.lock().remove(instance) {
                    tracing::info!(node = gone.announcement.name, "a node has gone");
                }
                Ok(false)
            }
            Some(seen) => {
                match serde_json::from_slice(&seen.text) {
                    Ok(found) => self.note(found, asked),
                    Err(error) => tracing::error!(key, %error, "an object of the bucket is no announcement of a node"),
                }
                Ok(true)
            }
        }
    }

    /// Reads all announcements in the bucket.
    fn list(&self) -> anyhow::Result<()> {
        let keys = self.bucket.keys(KEYS)?;
        let own = self.key();
        self.peers.lock().retain(|instance, _| keys.iter().any(|key| key == instance));
        for key in keys.iter().map(|key| format!("{KEYS}{key}")).filter(|key| *key != own) {
            if let Err(error) = self.read(&key) {
                tracing::warn!(key, error = format!("{error:#}"), "an announcement could not be read");
                anyhow::bail!(error);
            }
        }
        Ok(())
    }

    /// Removes announcements of nodes that are gone for long.
    fn forget(&self) {
        let is_gone = |peer: &&Peer| {
            peer.since.elapsed() >= FORGOTTEN_AFTER.max(4 * self.stale_after(peer.announcement.every_ms))
        };
        let gone: Vec<String> =
            self.peers.lock().values().filter(is_gone).map(|peer| peer.announcement.instance.clone()).collect();
        for instance in gone {
            if self.bucket.remove(&format!("{KEYS}{instance}")).is_ok() {
                self.peers.lock().remove(&instance);
            }
        }
    }

    /// Whether a live node, as far as is known, claims a unit.
    fn is_claimed(&self, unit: u64) -> bool {
        let peers = self.peers.lock();
        peers.values().any(|peer| !self.is_stale(peer) && peer.announcement.epoch_of(unit).is_some())
    }

    /// Whether another node claims a unit of this one with a later epoch.
    fn is_claimed_above(&self, unit: u64) -> bool {
        let own = self.epoch_of(unit);
        let peers = self.peers.lock();
        let mut claims =
            peers.values().filter(|peer| !self.is_stale(peer)).map(|peer| peer.announcement.epoch_of(unit));
        claims.any(|claim| claim.is_some() && claim > own)
    }

    // ---- units

    fn keep_units(self: &Arc<Self>) {
        let (mut live, mut settled) = (Vec::new(), Instant::now());
        let mut workers: Vec<JoinHandle<()>> = Vec::new();
        // Nodes that start at the same time find each other first.
        if self.sleep(MEET_WITHIN, false) {
            return;
        }
        while !self.sleep(STEP_EVERY, false) {
            workers.retain(|worker| !worker.is_finished());
            let now_live = self.live();
            if now_live != live {
                (live, settled) = (now_live, Instant::now());
            }
            let names: Vec<&str> = live.iter().map(String::as_str).collect();
            let owners = plan::owners(self.options.units, &names);
            let instance = self.me.lock().instance.clone();
            for unit in 0..self.options.units {
                let owner = owners[unit as usize];
                let (is_mine, has_owner) = (owner == Some(&*instance), owner.is_some());
                let Some(work) = self.work(unit, (is_mine, has_owner), settled, workers.len() < AT_ONCE) else {
                    continue;
                };
                let shared = Arc::clone(self);
                match std::thread::Builder::new().name("unit".into()).spawn(move || shared.do_work(unit, work)) {
                    Ok(worker) => workers.push(worker),
                    Err(error) => {
                        tracing::error!(%error, "no thread for a unit");
                        self.units.lock().insert(unit, State::Failed(Instant::now()));
                    }
                }
            }
        }
        for worker in workers {
            let _ = worker.join();
        }
    }

    /// What is to be done with a unit now; it is busy then. `has_room`: for work that can wait.
    fn work(&self, unit: u64, (is_mine, has_owner): (bool, bool), settled: Instant, has_room: bool) -> Option<Work> {
        let mut units = self.units.lock();
        let is_free = || is_mine && has_room && !self.is_claimed(unit);
        let work = match units.get(&unit) {
            None => is_free().then_some(Work::Take),
            Some(State::Failed(when)) if is_mine => (when.elapsed() >= RETRY_AFTER && is_free()).then_some(Work::Take),
            Some(State::Failed(_)) => {
                units.remove(&unit);
                None
            }
            Some(State::Taken | State::Served) if self.keeper.is_lost(unit) || self.is_claimed_above(unit) => {
                Some(Work::Lose)
            }
            Some(State::Taken) if !is_mine && has_owner => Some(Work::GiveUp),
            // What is known without asking comes first: each attempt costs requests.
            Some(State::Taken) => {
                // Locked after the units here, and before them where both are held: so only tried.
                let is_leased = self.lease.try_lock().is_some_and(|lease| self.leased(&lease, unit).is_some());
                (is_leased && has_room && !self.is_claimed(unit)).then_some(Work::Serve)
            }
            Some(State::Served) if !is_mine && has_owner => {
                let is_settled = settled.elapsed() >= SETTLED_AFTER || self.draining.load(Ordering::SeqCst);
                is_settled.then_some(Work::GiveUp)
            }
            _ => None,
        };
        if work.is_some() {
            units.insert(unit, State::Busy);
        }
        work
    }

    fn do_work(&self, unit: u64, work: Work) {
        match work {
            Work::Take => self.take(unit),
            Work::Serve => self.try_serve(unit),
            Work::Lose => {
                tracing::warn!(unit, "a unit is lost to another node, or its journal has stopped");
                self.give_up(unit);
            }
            Work::GiveUp => self.give_up(unit),
        }
    }

    /// The instances that take units.
    fn live(&self) -> Vec<String> {
        let peers = self.peers.lock();
        let others = peers.values().filter(|peer| !self.is_stale(peer) && !peer.announcement.is_draining);
        let mut live: Vec<String> = others.map(|peer| peer.announcement.instance.clone()).collect();
        drop(peers);
        if !self.draining.load(Ordering::SeqCst) {
            live.push(self.me.lock().instance.clone());
        }
        live.sort_unstable();
        live
    }

    fn take(&self, unit: u64) {
        match self.keeper.take(unit) {
            Ok(epoch) => {
                let mut me = self.me.lock();
                me.units.retain(|(own, _)| *own != unit);
                me.units.push((unit, epoch));
                me.units.sort_unstable();
                drop(me);
                self.units.lock().insert(unit, State::Taken);
                self.hurry();
            }
            Err(error) => {
                tracing::warn!(unit, error = format!("{error:#}"), "a unit could not be taken; it is tried again");
                self.units.lock().insert(unit, State::Failed(Instant::now()));
            }
        }
    }

    /// Serves a unit if its root says, after an announcement that names it, that it is this node's, and if every lease
    /// before has ended.
    fn try_serve(&self, unit: u64) {
        let gaps = self.leased(&self.lease.lock(), unit);
        let is_own = match self.keeper.still_owns(unit) {
            Ok(false) => return self.do_work(unit, Work::Lose),
            Ok(true) => true,
            Err(error) => {
                tracing::warn!(unit, error = format!("{error:#}"), "the root of a unit could not be read");
                false
            }
        };
        let is_free = is_own && self.list().is_ok() && !self.is_claimed(unit);
        let lease = self.lease.lock();
        let mut units = self.units.lock();
        if is_free && gaps.is_some() && self.leased(&lease, unit) == gaps {
            self.keeper.serve(unit);
            self.served[unit as usize].store(true, Ordering::Release);
            units.insert(unit, State::Served);
        } else {
            units.insert(unit, State::Taken);
        }
    }

    fn give_up(&self, unit: u64) {
        self.served[unit as usize].store(false, Ordering::Release);
        self.keeper.give_up(unit);
        self.me.lock().units.retain(|(own, _)| *own != unit);
        self.units.lock().remove(&unit);
        self.hurry();
    }
}
