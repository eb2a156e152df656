//! The decisions of a node, as functions of what it has learnt and of the time: no clock, no thread, no IO.
//!
//! Inputs: an announcement was written ([`Core::said`]), another node's was read ([`Core::heard`]), another node was asked
//! ([`Core::answered`], [`Core::unanswered`]), the bucket was listed ([`Core::listed`]), work on a unit has ended ([`Core::taken`], [`Core::opened`], [`Core::given_up`]), the node
//! drains. Outputs: what to announce ([`Core::say`]), what to do with which unit ([`Core::step`]), where requests go
//! ([`Core::place`]), and which units are served with a lease ([`Open`]).
//!
//! A unit is in one state at a time. While it is [`State::Busy`] the caller works on it, and the core gives no other
//! work for it.

mod lease;
mod peers;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use lease::Open;
pub(crate) use peers::Peer;

use super::announcement::Announcement;
use super::faults::Faults;
use lease::Lease;
use peers::Peers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Periods after the beginning of an announcement for which its units may be read.
const LEASE: f64 = 2.0;
/// Periods without a change after which others take a node for dead.
const STALE_AFTER: f64 = 2.3;
/// Periods without a change after which a node's units are taken that does not answer either. They are served when it is
/// taken for dead, see [`STALE_AFTER`]: acquiring them takes about as long.
const SUSPECT_AFTER: f64 = 1.5;
/// An announcement that has not changed for so long is retired.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(20);
/// Periods for which a node is new, if another one has come at least [`NEWER_BY`] periods before it. It learns of a death
/// that others have seen [`STALE_AFTER`] periods after its start.
const NEW_FOR: f64 = 4.0;
const NEWER_BY: f64 = 2.0;
/// How long the nodes must be the same before a unit moves to a better place.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// How long a node looks for others before it takes units.
const MEET_WITHIN: Duration = Duration::from_secs(1);
/// The pause after a unit could not be taken. It doubles with each failure after [`REFUSED_AFTER`], up to the second one.
const RETRY_AFTER: Duration = Duration::from_millis(500);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// Failures in a row after which a node leaves a unit to others, and how long after the last one.
const REFUSED_AFTER: u32 = 3;
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Announcements in a row without a lease after which a node gets no units. It is alive, and cannot serve.
const LAPSED_AFTER: u64 = 2;
/// The pause after a unit that was taken could not be served.
const SERVE_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Units that are taken or given up at the same time.
const AT_ONCE: usize = 8;

/// A moment by the two clocks of one machine. Moments of two machines are never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// By a clock that stands still while the machine sleeps: for how long others were silent.
    pub(crate) steady: Duration,
    /// By a clock that goes on then, in milliseconds: for leases.
    pub(crate) boot_ms: u64,
}

impl Moment {
    /// How long ago `earlier` was, by the clock that stands still while the machine sleeps.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.steady.saturating_sub(earlier.steady)
    }
}

/// What is done with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// To be taken: [`Core::taken`] or [`Core::failed`].
    Take,
    /// To be served, if its root says that it is this node's, and if nobody in the bucket claims it then:
    /// [`Core::may_open`] and [`Core::opened`], or [`Core::not_opened`]. The number is that of the lease's gap.
    Serve(u64),
    /// To be given up, because another node has it or its journal has stopped: [`Core::given_up`].
    Lose,
    /// To be given up, because another node should have it: [`Core::given_up`].
    GiveUp,
}

/// A unit that this node has, or works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Busy,
    /// Owned, and not served yet: leases of owners before may run.
    Taken,
    Served,
    /// It could not be taken.
    Failed,
}

/// Failures in a row to take a unit.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Moment,
}

impl Failures {
    fn pause(self) -> Duration {
        let doublings = self.count.saturating_sub(REFUSED_AFTER).min(16);
        RETRY_AFTER.saturating_mul(1 << doublings).min(RETRY_AFTER_MAX)
    }

    /// Whether others should try.
    fn is_refusal(self, now: Moment) -> bool {
        self.count >= REFUSED_AFTER && now.since(self.last) < REFUSED_FOR
    }
}

/// An announcement that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Saying {
    pub(crate) announcement: Announcement,
    began: Moment,
}

/// Where a unit is, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Served by this node, now.
    Here,
    /// Owned by the node at this address; its instance.
    There {
        /// The URL at which it is reached.
        address: String,
        /// Its instance.
        instance: String,
    },
    /// Nobody is known to own it, or its owner is about to serve it.
    Nowhere,
}

/// A node that takes units.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    instance: String,
    /// It may own the unit of shapes.
    has_shapes: bool,
    is_new: bool,
    is_suspect: bool,
    /// Units that it could not take.
    refuses: Vec<u64>,
}

impl Candidate {
    /// `oldest_ms`: the age of the oldest node.
    fn of(node: &Announcement, is_suspect: bool, oldest_ms: u64) -> Self {
        let periods = |ms: u64| ms as f64 / node.every_ms.max(1) as f64;
        let is_new = periods(node.age_ms) < NEW_FOR && periods(oldest_ms - node.age_ms) >= NEWER_BY;
        Self {
            instance: node.instance.clone(),
            has_shapes: node.has_shapes,
            is_new,
            is_suspect,
            refuses: node.refuses.clone(),
        }
    }

    /// What must stay the same before a unit moves to a better place.
    fn who(&self) -> (&str, bool, bool) {
        (&self.instance, self.has_shapes, self.is_suspect)
    }
}

/// What a node should do with a unit, by the nodes that live.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// It takes the unit if it is free.
    takes: bool,
    /// Another node should have it, and would take it.
    leaves: bool,
}

/// An object that should be an announcement, and cannot be read as one.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    /// When it was seen first.
    since: Moment,
    /// When it was asked for last, with an answer.
    asked: Moment,
    /// When it was written, by the bucket's clock.
    modified_ms: i64,
}

/// One node's decisions.
pub(crate) struct Core {
    me: Announcement,
    /// The number of the last announcement that was begun.
    begun: u64,
    /// How many units of streams there are.
    units_of_streams: u64,
    began: Moment,
    peers: Peers,
    /// Objects that should be announcements, by key.
    strangers: BTreeMap<String, Stranger>,
    lease: Lease,
    units: BTreeMap<u64, State>,
    failures: BTreeMap<u64, Failures>,
    /// When it was last tried in vain to serve a unit.
    not_opened: BTreeMap<u64, Moment>,
    open: Arc<Open>,
    /// The nodes that take units, and since when they are the same.
    candidates: Vec<Candidate>,
    settled: Moment,
    faults: Faults,
}

impl Core {
    /// A node that has announced nothing yet. `me` has its words.
    pub(crate) fn new(me: Announcement, units_of_streams: u64, now: Moment) -> Self {
        Self {
            begun: me.seq,
            me,
            units_of_streams,
            began: now,
            peers: Peers::default(),
            strangers: BTreeMap::new(),
            lease: Lease::default(),
            units: BTreeMap::new(),
            failures: BTreeMap::new(),
            not_opened: BTreeMap::new(),
            open: Arc::new(Open::new(units_of_streams + 1)),
            candidates: Vec::new(),
            settled: now,
            faults: Faults::default(),
        }
    }

    /// The same with planted faults.
    #[cfg(all(test, feature = "faults"))]
    pub(crate) fn plant(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// What is served, for the hot path.
    pub(crate) fn open(&self) -> Arc<Open> {
        Arc::clone(&self.open)
    }

    /// What this node says of itself.
    pub(crate) fn me(&self) -> &Announcement {
        &self.me
    }

    /// All other nodes that are known.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.all()
    }

    /// The other nodes that live.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Announcement> {
        self.peers.live()
    }

    /// Where requests for a unit go.
    pub(crate) fn place(&self, unit: u64, now: Moment) -> Place {
        if self.open.serves(unit, || now.boot_ms) {
            return Place::Here;
        }
        let owners = self.peers.answering().filter_map(|peer| Some((peer.epoch_of(unit)?, peer)));
        match owners.max_by_key(|(epoch, _)| *epoch) {
            Some((epoch, owner)) if self.me.epoch_of(unit).is_none_or(|own| own < epoch) => {
                Place::There { address: owner.address.clone(), instance: owner.instance.clone() }
            }
            _ => Place::Nowhere,
        }
    }

    /// The node gives its units away, and takes none any more; `false` takes it back.
    pub(crate) fn drain(&mut self, is_draining: bool) {
        self.me.is_draining = is_draining;
    }

    // ---- what this node says

    /// What is to be written into the bucket now. Its number is a new one at each attempt: one that failed may have been
    /// written, and the same words would be no change for others, although they give a lease. Others see the number only
    /// when the bucket has it: by it they know that this node can write. `object`: the one that it is written to.
    pub(crate) fn say(&mut self, object: u64, now: Moment) -> Saying {
        let has_lapsed = self.begun > 0 && self.lease.has_ended(now);
        self.me.lapses = if has_lapsed { self.me.lapses + 1 } else { 0 };
        let is_of_unit = |(unit, _): &(u64, u64)| self.units.contains_key(unit);
        assert!(self.me.units.iter().all(is_of_unit), "the node announces a unit that it does not look after");
        self.begun = if self.faults.number_repeated() { self.me.seq } else { self.begun } + 1;
        let age_ms = now.since(self.began).as_millis() as u64;
        let refused = self.failures.iter().filter(|(_, failures)| failures.is_refusal(now));
        self.me.refuses = refused.map(|(unit, _)| *unit).collect();
        Saying { announcement: Announcement { object, seq: self.begun, age_ms, ..self.me.clone() }, began: now }
    }

    /// The bucket has what was said.
    pub(crate) fn said(&mut self, saying: &Saying, now: Moment) {
        let Announcement { object, seq, age_ms, units, .. } = &saying.announcement;
        (self.me.object, self.me.seq, self.me.age_ms) = (*object, *seq, *age_ms);
        if self.lease.has_ended(now) && !self.faults.gap_not_noticed() {
            // Others may have taken the units meanwhile: each is looked at again before it is served.
            self.lease.note_gap();
            for (unit, state) in &mut self.units {
                self.open.set(*unit, false);
                if *state == State::Served {
                    *state = State::Taken;
                }
            }
        }
        let from = if self.faults.lease_from_end() { now } else { saying.began };
        let until = self.lease.renew(from, self.every().mul_f64(LEASE), units);
        self.open.until(until);
    }

    fn every(&self) -> Duration {
        Duration::from_millis(self.me.every_ms)
    }

    fn leased(&self, unit: u64, now: Moment) -> Option<u64> {
        self.lease.of(unit, self.me.epoch_of(unit), now)
    }

    // ---- what others say

    /// Another node's announcement, asked for at the moment `asked`.
    pub(crate) fn heard(&mut self, found: Announcement, asked: Moment, now: Moment) {
        if found.instance == self.me.instance {
            return;
        }
        let (name, address) = (found.name.clone(), found.address.clone());
        if self.peers.note(found, asked, now) {
            tracing::info!(node = name, address, "a node has come");
        }
    }

    /// The same, and the node itself has said so.
    pub(crate) fn answered(&mut self, found: Announcement, asked: Moment, now: Moment) {
        let instance = found.instance.clone();
        self.heard(found, asked, now);
        self.peers.note_answer(&instance, true);
    }

    /// A node that was asked has not answered.
    pub(crate) fn unanswered(&mut self, instance: &str) {
        self.peers.note_answer(instance, false);
    }

    /// The bucket, asked at that moment, has no announcement of that node in its object of this number.
    pub(crate) fn gone(&mut self, instance: &str, object: u64, asked: Moment) {
        if let Some(gone) = self.peers.note_missing(instance, object, asked) {
            tracing::info!(node = gone.name, "a node has gone");
        }
    }

    /// The bucket, asked at that moment, has these objects where announcements are, each written at a time of the bucket's
    /// clock, and nobody can read them as such: each may be that of a node, whose leases may run.
    pub(crate) fn strange(&mut self, keys: &BTreeMap<String, i64>, asked: Moment, now: Moment) {
        self.strangers.retain(|key, seen| keys.contains_key(key) || seen.asked.steady > asked.steady);
        for (key, modified_ms) in keys {
            let seen = self.strangers.entry(key.clone()).or_insert_with(|| {
                tracing::error!(
                    key,
                    "an object of the bucket is no announcement that a node of this prefix has signed"
                );
                Stranger { since: now, asked, modified_ms: *modified_ms }
            });
            if seen.modified_ms < *modified_ms {
                // Somebody writes it: perhaps a node.
                (seen.since, seen.modified_ms) = (now, *modified_ms);
            }
            seen.asked.steady = seen.asked.steady.max(asked.steady);
        }
    }

    /// Whether an object that was written at this time of the bucket's clock is known to be no announcement.
    pub(crate) fn is_strange(&self, key: &str, modified_ms: i64) -> bool {
        self.strangers.get(key).is_some_and(|seen| seen.modified_ms == modified_ms)
    }

    /// A node's object, asked for at that moment, has no announcement that anybody could have heard.
    pub(crate) fn silent(&mut self, instance: &str, object: u64, asked: Moment) {
        self.peers.note_silence(instance, object, asked);
    }

    /// Whether anything is known of a node.
    pub(crate) fn knows(&self, instance: &str) -> bool {
        self.peers.knows(instance)
    }

    /// The bucket, asked at that moment, has announcements of these nodes. Returns those that are to be read.
    pub(crate) fn listed(&mut self, mut instances: Vec<String>, asked: Moment) -> Vec<String> {
        for gone in self.peers.note_list(&instances, asked) {
            tracing::info!(node = gone.name, "a node has gone");
        }
        instances.retain(|instance| *instance != self.me.instance);
        instances
    }

    /// Announcements of nodes that were silent for long: they are to be retired.
    pub(crate) fn forgotten(&self) -> Vec<Announcement> {
        self.peers.forgotten()
    }

    // ---- units

    /// Units that this node owns and does not work on: those whose journals may have stopped.
    pub(crate) fn owned(&self) -> Vec<u64> {
        let owned = self.units.iter().filter(|(_, state)| matches!(state, State::Taken | State::Served));
        owned.map(|(unit, _)| *unit).collect()
    }

    /// Units that this node has or works on.
    pub(crate) fn held(&self) -> Vec<u64> {
        self.units.keys().copied().collect()
    }

    /// What is to be done with which units now; they are busy then. `lost`: those of [`Core::owned`] that accept nothing
    /// any more.
    pub(crate) fn step(&mut self, lost: &BTreeSet<u64>, now: Moment) -> Vec<(u64, Work)> {
        // Nodes that start at the same time find each other first.
        if now.since(self.began) < MEET_WITHIN {
            return Vec::new();
        }
        let candidates = self.candidates();
        if !candidates.iter().map(Candidate::who).eq(self.candidates.iter().map(Candidate::who)) {
            self.settled = now;
        }
        self.candidates.clone_from(&candidates);
        let owners = self.planned(candidates.iter());
        // Free units go to nodes that are neither new nor suspects, if one of them can have them.
        let takers = candidates.iter().filter(|node| !node.is_new && !node.is_suspect);
        let takers = self.planned(takers).into_iter().zip(&owners);
        let takers: Vec<_> = takers.map(|(seasoned, any)| seasoned.or(*any)).collect();
        let mut busy = self.units.values().filter(|state| **state == State::Busy).count();
        let mut all = Vec::new();
        for (unit, (taker, owner)) in (0..).zip(takers.into_iter().zip(owners)) {
            // A unit stays where it is while a node is new that should have it, and while some nodes know of each other
            // only that they are.
            let (is_mine, is_agreed) = (taker == Some(&*self.me.instance), self.me.is_draining || taker == owner);
            let plan = Planned { takes: is_mine, leaves: taker.is_some() && !is_mine && is_agreed };
            let work = self.work(unit, plan, lost.contains(&unit), busy < AT_ONCE, now);
            if let Some(work) = work {
                self.units.insert(unit, State::Busy);
                busy += 1;
                all.push((unit, work));
            }
        }
        all
    }

    /// `has_room`: for work that can wait.
    fn work(&mut self, unit: u64, plan: Planned, is_lost: bool, has_room: bool, now: Moment) -> Option<Work> {
        // Without a lease a node can serve nothing: taking a unit would only take it away from others.
        let is_free = || plan.takes && has_room && !self.lease.has_ended(now) && !self.peers.keeps(unit);
        match self.units.get(&unit).copied() {
            None => is_free().then_some(Work::Take),
            Some(State::Failed) if plan.takes => {
                let is_due = self.failures.get(&unit).is_none_or(|all| now.since(all.last) >= all.pause());
                (is_due && is_free()).then_some(Work::Take)
            }
            Some(State::Failed) => {
                self.units.remove(&unit);
                None
            }
            Some(State::Taken | State::Served) if is_lost || self.peers.claims_above(unit, self.me.epoch_of(unit)) => {
                Some(Work::Lose)
            }
            Some(State::Taken) if plan.leaves => Some(Work::GiveUp),
            // What is known without asking comes first: each attempt costs requests.
            Some(State::Taken) => {
                let gaps = self.leased(unit, now)?;
                let is_due = self.not_opened.get(&unit).is_none_or(|last| now.since(*last) >= SERVE_AGAIN_AFTER);
                (has_room && is_due && self.is_unclaimed(unit)).then_some(Work::Serve(gaps))
            }
            Some(State::Served) if plan.leaves => {
                let is_settled = now.since(self.settled) >= SETTLED_AFTER || self.me.is_draining;
                is_settled.then_some(Work::GiveUp)
            }
            Some(State::Served | State::Busy) => None,
        }
    }

    /// Whether every lease of an owner before has ended, as far as is known.
    fn is_unclaimed(&self, unit: u64) -> bool {
        let may_lease = |stranger: &Stranger| stranger.asked.since(stranger.since) < self.every().mul_f64(STALE_AFTER);
        let is_claimed = self.peers.claims(unit) || self.strangers.values().any(may_lease);
        !is_claimed || self.faults.served_at_once()
    }

    /// The nodes that take units.
    fn candidates(&self) -> Vec<Candidate> {
        let may_take = |node: &&Announcement| !node.is_draining && node.lapses < LAPSED_AFTER;
        let all = || self.live().chain([&self.me]).filter(may_take);
        let oldest_ms = all().map(|node| node.age_ms).max().unwrap_or_default();
        let of = |node: &Announcement| Candidate::of(node, self.peers.suspects(&node.instance), oldest_ms);
        let mut all: Vec<_> = all().map(of).collect();
        all.sort_unstable();
        all
    }

    /// The owner that each unit should have, by number: first those of streams, then that of shapes.
    fn planned<'a>(&self, candidates: impl Iterator<Item = &'a Candidate> + Clone) -> Vec<Option<&'a str>> {
        let name = |node: &'a Candidate| node.instance.as_str();
        let refused = |unit: u64| candidates.clone().filter(move |node| node.refuses.contains(&unit)).map(name);
        let of_shapes: Vec<&str> = candidates.clone().filter(|node| node.has_shapes).map(name).collect();
        let all: Vec<&str> = candidates.clone().map(name).collect();
        let mut owners = plan::owners(self.units_of_streams, &all, |unit| refused(unit).collect());
        let of_shapes_refused: Vec<&str> = refused(self.units_of_streams).collect();
        owners.push(plan::owner(self.units_of_streams, &of_shapes, &of_shapes_refused));
        owners
    }

    /// A unit was taken, with this epoch. It is to be announced at once.
    pub(crate) fn taken(&mut self, unit: u64, epoch: u64) {
        self.me.units.retain(|(own, _)| *own != unit);
        self.me.units.push((unit, epoch));
        self.me.units.sort_unstable();
        self.failures.remove(&unit);
        self.units.insert(unit, State::Taken);
    }

    /// A unit could not be taken.
    pub(crate) fn failed(&mut self, unit: u64, now: Moment) {
        let count = self.failures.get(&unit).map_or(0, |failures| failures.count) + 1;
        self.failures.insert(unit, Failures { count, last: now });
        self.units.insert(unit, State::Failed);
    }

    /// The work could not be begun. The unit is as it was, but not served, until it is tried again.
    pub(crate) fn not_begun(&mut self, unit: u64, work: Work, now: Moment) {
        match work {
            Work::Take => self.failed(unit, now),
            Work::Serve(_) | Work::Lose | Work::GiveUp => {
                self.open.set(unit, false);
                self.not_opened(unit, now);
            }
        }
    }

    /// Whether a unit may be served now, if its root was this node's and the bucket was listed since [`Work::Serve`].
    pub(crate) fn may_open(&self, unit: u64, gaps: u64, now: Moment) -> bool {
        self.is_unclaimed(unit) && self.leased(unit, now) == Some(gaps)
    }

    /// The engine has the unit: it is served, if it still may.
    pub(crate) fn opened(&mut self, unit: u64, gaps: u64, now: Moment) {
        let may_open = self.may_open(unit, gaps, now);
        self.open.set(unit, may_open);
        self.not_opened.remove(&unit);
        self.units.insert(unit, if may_open { State::Served } else { State::Taken });
    }

    /// A unit is not to be served yet.
    pub(crate) fn not_opened(&mut self, unit: u64, now: Moment) {
        self.not_opened.insert(unit, now);
        self.units.insert(unit, State::Taken);
    }

    /// A unit is about to be given up: nothing of it is served from now on.
    pub(crate) fn leave(&mut self, unit: u64) {
        self.open.set(unit, false);
    }

    /// The node says no longer that it owns a unit, which is about to be given up: another node has it, or may have it.
    pub(crate) fn disown(&mut self, unit: u64) {
        self.me.units.retain(|(own, _)| *own != unit);
    }

    /// A unit was given up. That is to be announced at once.
    pub(crate) fn given_up(&mut self, unit: u64) {
        self.disown(unit);
        self.not_opened.remove(&unit);
        self.units.remove(&unit);
    }
}
