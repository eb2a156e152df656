//! All subscriptions, owned by one thread: requests, news of streams, results of deliveries and the time go in; answers
//! and deliveries come out, each with the position that must be durable first.

use crate::config::SubscriptionsConfig;
use crate::error::Refusal;
use crate::glob;
use crate::keys::Keys;
use crate::routes::{Acks, Body, Command, Control};
use crate::state::{Config, Event, Kind, Subscription, Want, offset, order};
use crate::store::{Store, Stored, WakeEvent, Wrote};
use crate::watched::{Interest, Watched};
use crate::webhook::{self, Delivery, Outcome, Target};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{LogId, Lsn, Millis};
use thalweg_streams::Changes;
use thalweg_streams::format::offset::Position;

/// Longest stored reason of a failure.
const WHY_CHARS_MAX: usize = 300;
/// The most streams that one wake names. The others are still work, and get the next wake.
const WAKE_STREAMS_MAX: usize = 1_000;
/// How many logs without any subscription are remembered as such.
const UNLINKED_LOGS_MAX: usize = 1 << 16;
/// After the journal has refused something, background work rests for this long.
const REST: u64 = 1_000;
/// So many wishes for streams may be out of date beside those of all subscriptions.
const WISHES_MIN: usize = 64;
/// Every subscription is checked at least this often.
const LOOK_EVERY: u64 = 1_000;

/// An answer, sent once `after` is durable in the journal of its subscription's unit.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) after: Lsn,
    pub(crate) status: u16,
    pub(crate) body: Option<Value>,
}

/// A refusal, and the state that it follows from.
pub(crate) struct Refused(Refusal, Lsn);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal, Lsn::ZERO)
    }
}

impl From<thalweg_log::CommitError> for Refused {
    fn from(error: thalweg_log::CommitError) -> Self {
        Refusal::from(error).into()
    }
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Subscriptions that exist.
    pub subscriptions: u64,
    /// Streams that they are linked to.
    pub links: u64,
    /// Deliveries that the receiver took, since the start.
    pub delivered: u64,
    /// Deliveries that failed, since the start.
    pub failed: u64,
    /// Subscriptions that wait to try again.
    pub retries: u64,
    /// Wakes in flight that a lease bounds.
    pub leases: u64,
    /// Subscriptions whose logs cannot be read.
    pub damaged: u64,
    /// Streams that matched a pattern but were not linked, because the subscription was at its limit, since the start.
    pub unlinked: u64,
}

/// The subscriptions of a kernel unit that this core owns now.
struct Home {
    store: Arc<Store>,
    /// Subscriptions whose logs cannot be read.
    damaged: BTreeSet<String>,
    /// The end of the last delete, which must be durable before a client learns that a subscription does not exist.
    deleted: Lsn,
}

pub(crate) struct Core {
    homes: BTreeMap<u64, Home>,
    streams: Arc<dyn Watched>,
    config: SubscriptionsConfig,
    keys: Arc<Keys>,
    random: Box<dyn FnMut() -> u64 + Send>,
    subs: BTreeMap<String, Stored>,
    /// Names of logs and the subscriptions that follow them. Emptied whenever links may change.
    interest: HashMap<LogId, Option<Followed>>,
    /// Deliveries under way, by subscription, with the id of their wake.
    in_flight: HashMap<String, String>,
    /// Why the last wake of a subscription did not arrive, until one does.
    failures: HashMap<String, String>,
    /// Wakes from before the start without a recorded delivery.
    resend: BTreeSet<String>,
    /// Names without a stream, as long as nobody knows whether that is for good.
    unsettled: BTreeSet<Box<str>>,
    /// When to check all streams.
    rescan_at: Option<u64>,
    rest_until: u64,
    /// How many streams and patterns were asked for since they were counted last.
    wishes: usize,
    /// Deliveries to be made once the journal of their unit is durable so far.
    pub(crate) deliveries: Vec<(Arc<Store>, Lsn, Delivery)>,
    pub(crate) stats: Stats,
}

struct Followed {
    name: Box<str>,
    subs: Vec<String>,
}

impl Core {
    /// Has no subscriptions yet.
    pub(crate) fn new(
        streams: Arc<dyn Watched>,
        config: SubscriptionsConfig,
        keys: Arc<Keys>,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Self {
        Self {
            homes: BTreeMap::new(),
            streams,
            config,
            keys,
            random,
            subs: BTreeMap::new(),
            interest: HashMap::new(),
            in_flight: HashMap::new(),
            failures: HashMap::new(),
            resend: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            rescan_at: None,
            rest_until: 0,
            wishes: 0,
            deliveries: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Owns the subscriptions of a unit from now on: `stored`, as its store has them, but for those that are damaged.
    pub(crate) fn join(&mut self, store: Arc<Store>, stored: Vec<Stored>, damaged: BTreeSet<String>, now: Millis) {
        self.leave(store.unit);
        for stored in stored {
            // An event for a wake stream of another journal may not have reached it.
            let is_unsent = stored.state.wake.as_ref().is_some_and(|wake| match stored.state.config.kind {
                Kind::Webhook => !wake.delivered,
                Kind::PullWake => wake.holder.is_none() && !wake.delivered,
            });
            if is_unsent {
                self.resend.insert(stored.id.clone());
            }
            self.want(stored.wish());
            self.subs.insert(stored.id.clone(), stored);
        }
        self.homes.insert(store.unit, Home { store, damaged, deleted: Lsn::ZERO });
        self.interest.clear();
        self.streams.turn_observing(!self.subs.is_empty());
        if !self.subs.is_empty() {
            self.rescan_at = Some(now.0);
        }
    }

    /// Owns the subscriptions of a unit no longer.
    pub(crate) fn leave(&mut self, unit: u64) {
        if self.homes.remove(&unit).is_none() {
            return;
        }
        let gone = self.subs.extract_if(.., |_, stored| stored.store.unit == unit);
        for (id, _) in gone {
            self.in_flight.remove(&id);
            self.failures.remove(&id);
            self.resend.remove(&id);
        }
        self.interest.clear();
        self.deliveries.retain(|(store, ..)| store.unit != unit);
        self.streams.turn_observing(!self.subs.is_empty());
        self.prune();
    }

    /// Asks for streams beyond those that are asked for already.
    pub(crate) fn want(&mut self, interest: Interest) -> u64 {
        self.wishes += 1;
        self.streams.want(interest)
    }

    /// Asks for the streams of subscriptions that there are only, once many of others have gathered.
    fn prune(&mut self) {
        if self.wishes <= 2 * self.subs.len() + WISHES_MIN {
            return;
        }
        let mut all = Interest::default();
        for Interest { patterns, names } in self.subs.values().map(Stored::wish) {
            all.patterns.extend(patterns);
            all.names.extend(names);
        }
        self.wishes = self.subs.len();
        self.streams.keep(all);
    }

    /// The store of a unit that this core owns.
    pub(crate) fn store(&self, unit: u64) -> Option<&Arc<Store>> {
        Some(&self.homes.get(&unit)?.store)
    }

    pub(crate) fn units(&self) -> impl Iterator<Item = u64> + '_ {
        self.homes.keys().copied()
    }

    pub(crate) fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    pub(crate) fn kick(&self) {
        self.homes.values().for_each(|home| home.store.kick());
    }

    // ---- requests

    /// Whether the answer follows from where streams end now, so that all of them are to be asked before.
    pub(crate) fn needs_news(&self, control: &Control) -> bool {
        match &control.command {
            Command::Create(_) | Command::Get | Command::Link(_) => true,
            Command::Claim(_) => self.subs.get(&control.id).is_some_and(|stored| stored.state.pending.is_empty()),
            // Content that a worker has read is visible, but may not be known here yet.
            Command::Callback(_, body) | Command::Ack(_, body) => {
                let links = self.subs.get(&control.id).map(|stored| &stored.state.links);
                body.acks.iter().any(|ack| {
                    let link = links.zip(thalweg_streams::normal_name(&ack.stream));
                    let link = link.and_then(|(links, path)| links.get(path.as_str()));
                    let at = offset::parse(&ack.offset);
                    link.zip(at).is_some_and(|(link, at)| order(at) > order(link.tail) && order(at) > order(link.acked))
                })
            }
            _ => false,
        }
    }

    /// The streams that a request asks for beyond those that are wanted already.
    pub(crate) fn wish_of(control: &Control) -> Option<Interest> {
        match &control.command {
            Command::Create(config) => Some(wish_of(config)),
            Command::Link(paths) => Some(Interest { names: paths.clone(), ..Interest::default() }),
            _ => None,
        }
    }

    pub(crate) fn answer(&mut self, control: &Control, now: Millis) -> Answer {
        if self.homes.get(&control.unit).is_some_and(|home| home.damaged.contains(&control.id)) {
            let refusal = Refusal::Unavailable("the log of the subscription cannot be read".into());
            let (status, body) = refused(&refusal);
            return Answer { after: Lsn::ZERO, status, body: Some(body) };
        }
        let answer = match &control.command {
            Command::Create(config) => self.create((&control.id, control.unit), config, &control.base, now),
            Command::Get => self.get(&control.id),
            Command::Delete => self.delete((&control.id, control.unit)),
            Command::Link(paths) => self.link(&control.id, paths),
            Command::Unlink(path) => self.unlink(&control.id, path),
            Command::Claim(worker) => self.claim(&control.id, worker, now),
            Command::Callback(token, body) => self.acknowledge(&control.id, Kind::Webhook, token, body, now),
            Command::Ack(token, body) => self.acknowledge(&control.id, Kind::PullWake, token, body, now),
            Command::Release(token, body) => self.release(&control.id, token, body, now),
        };
        answer.unwrap_or_else(|Refused(refusal, after)| {
            // That there is no such subscription may follow from a delete.
            let after = if refusal == Refusal::NotFound { self.deleted(control.unit) } else { after };
            let (status, body) = refused(&refusal);
            Answer { after, status, body: Some(body) }
        })
    }

    fn find(&mut self, id: &str) -> Result<&mut Stored, Refused> {
        self.subs.get_mut(id).ok_or(Refusal::NotFound.into())
    }

    /// What must be durable before a client learns that a subscription of this unit does not exist.
    fn deleted(&self, unit: u64) -> Lsn {
        self.homes.get(&unit).map(|home| home.deleted).unwrap_or_default()
    }

    fn create(&mut self, (id, unit): (&str, u64), config: &Config, base: &str, now: Millis) -> Result<Answer, Refused> {
        if let Some(stored) = self.subs.get(id) {
            if stored.state.config != *config {
                return Err(Refused(Refusal::Exists, stored.changed));
            }
            return Ok(Answer { after: stored.changed, status: 200, body: Some(self.show(stored)) });
        }
        if let Some(url) = &config.url {
            webhook::check_url(url, self.config.targets).map_err(Refusal::Url)?;
        }
        if self.subs.len() >= self.config.subscriptions_max {
            return Err(Refused(Refusal::TooManySubscriptions(self.config.subscriptions_max), self.deleted(unit)));
        }
        let store = Arc::clone(self.store(unit).ok_or(Refusal::NotHere)?);
        // Changes are recorded from here on, so none is missed between reading the streams and the first report.
        self.streams.turn_observing(true);
        let stored = self.link_all(config, base, now).and_then(|state| Ok(store.create(id, state, now)?));
        let stored = match stored {
            Ok(stored) => stored,
            Err(refused) => {
                self.streams.turn_observing(!self.subs.is_empty());
                return Err(refused);
            }
        };
        let answer = Answer { after: stored.changed, status: 201, body: Some(self.show(&stored)) };
        self.interest.clear();
        self.subs.insert(id.into(), stored);
        Ok(answer)
    }

    /// A new subscription, linked to existing streams at their ends.
    fn link_all(&self, config: &Config, base: &str, now: Millis) -> Result<Subscription, Refused> {
        let mut state = Subscription::new(config.clone(), base.into(), now);
        let mut matching: Vec<Box<str>> = Vec::new();
        let most = self.config.streams_max;
        if !self.streams.is_complete() {
            return Err(store_away());
        }
        self.streams.sweep(&mut |name| {
            if matching.len() <= most && wants(config, name) {
                matching.push(name.into());
            }
        });
        if matching.len() + config.streams.len() > most {
            return Err(Refusal::TooManyStreams(most).into());
        }
        let end = |path: &str| self.streams.end_to_note(path);
        for path in &config.streams {
            let at = end(path).unwrap_or_default();
            state.apply(&Event::Link { path: path.as_str().into(), explicit: true, at });
        }
        for path in matching {
            if let Some(at) = end(&path) {
                state.apply(&Event::Link { path, explicit: false, at });
            }
        }
        Ok(state)
    }

    fn get(&mut self, id: &str) -> Result<Answer, Refused> {
        self.find(id)?;
        let stored = &self.subs[id];
        Ok(Answer { after: stored.changed, status: 200, body: Some(self.show(stored)) })
    }

    fn delete(&mut self, (id, unit): (&str, u64)) -> Result<Answer, Refused> {
        if let Some(stored) = self.subs.get(id) {
            let end = stored.delete()?;
            if let Some(home) = self.homes.get_mut(&stored.store.unit) {
                home.deleted = end;
            }
            self.subs.remove(id);
            self.failures.remove(id);
            // A delivery that is under way is nobody's: one that is made again under the id need not wait for it.
            self.in_flight.remove(id);
            self.interest.clear();
            self.resend.remove(id);
            if self.subs.is_empty() {
                self.streams.turn_observing(false);
            }
            self.prune();
        }
        Ok(Answer { after: self.deleted(unit), status: 204, body: None })
    }

    fn link(&mut self, id: &str, paths: &[String]) -> Result<Answer, Refused> {
        let (streams, most) = (&self.streams, self.config.streams_max);
        let stored = self.subs.get_mut(id).ok_or(Refusal::NotFound)?;
        if !streams.is_complete() {
            return Err(store_away());
        }
        let new = |path: &&String| stored.state.links.get(path.as_str()).is_none_or(|link| !link.explicit);
        let events: Vec<Event> = paths
            .iter()
            .filter(new)
            .map(|path| {
                let at = streams.end_to_note(path).unwrap_or_default();
                Event::Link { path: path.as_str().into(), explicit: true, at }
            })
            .collect();
        if stored.state.links.len() + events.len() > most {
            return Err(Refused(Refusal::TooManyStreams(most), stored.changed));
        }
        if !events.is_empty() {
            stored.write(&events)?;
            self.interest.clear();
        }
        Ok(Answer { after: self.subs[id].changed, status: 204, body: None })
    }

    fn unlink(&mut self, id: &str, path: &str) -> Result<Answer, Refused> {
        let stored = self.subs.get_mut(id).ok_or(Refusal::NotFound)?;
        if stored.state.links.get(path).is_some_and(|link| link.explicit) {
            stored.write(&[Event::Unlink { path: path.into(), explicit: true }])?;
            self.interest.clear();
        }
        Ok(Answer { after: self.subs[id].changed, status: 204, body: None })
    }

    fn claim(&mut self, id: &str, worker: &str, now: Millis) -> Result<Answer, Refused> {
        let random = (self.random)();
        let stored = self.subs.get_mut(id).ok_or(Refusal::NotFound)?;
        of_kind(&stored.state, Kind::PullWake)?;
        let mut events = Vec::new();
        let mut free = stored.state.wake.is_none();
        if let Some(wake) = &stored.state.wake
            && let Some(holder) = &wake.holder
        {
            if wake.lease_until.is_some_and(|until| until > now.0) {
                let claimed = Refusal::Claimed { holder: holder.clone(), generation: stored.state.generation };
                return Err(Refused(claimed, stored.changed));
            }
            events.push(Event::Over);
            free = true;
        }
        if stored.state.pending.is_empty() {
            return Err(Refused(Refusal::NoWork, stored.changed));
        }
        if free {
            let generation = stored.state.generation + 1;
            events.push(Event::Wake { generation, id: wake_id(random), lease_until: None });
        }
        events.push(Event::Claim { holder: worker.into(), lease_until: stored.state.lease_until(now) });
        stored.write(&events)?;
        let state = &stored.state;
        let wake = state.wake.as_ref().map(|wake| wake.id.as_str()).unwrap_or_default();
        let body = json!({
            "wake_id": wake,
            "generation": state.generation,
            "token": self.keys.token(id, state.generation, wake),
            "streams": infos(state),
            "lease_ttl_ms": state.config.lease_ttl_ms,
        });
        Ok(Answer { after: stored.changed, status: 200, body: Some(body) })
    }

    /// The subscription whose present wake matches both the token and the request.
    fn unfenced(
        &mut self,
        id: &str,
        kind: Kind,
        token: &str,
        body: &Body,
        now: Millis,
    ) -> Result<&mut Stored, Refused> {
        let keys = Arc::clone(&self.keys);
        let stored = self.find(id)?;
        of_kind(&stored.state, kind)?;
        let (generation, wake_id) = keys.read_token(id, token).ok_or(Refusal::Token)?;
        let state = &stored.state;
        let live = state.wake.as_ref().is_some_and(|wake| {
            let held = kind == Kind::Webhook || wake.holder.is_some();
            held && wake.id == wake_id && wake.id == body.wake_id && wake.lease_until.is_some_and(|until| until > now.0)
        });
        if live && state.generation == generation && state.generation == body.generation {
            Ok(stored)
        } else {
            Err(Refused(Refusal::Fenced, stored.changed))
        }
    }

    fn acknowledge(&mut self, id: &str, kind: Kind, token: &str, body: &Body, now: Millis) -> Result<Answer, Refused> {
        let streams = Arc::clone(&self.streams);
        let stored = self.unfenced(id, kind, token, body, now)?;
        let mut events = Vec::new();
        for Acks { stream, offset: text } in &body.acks {
            let refused = || Refused(Refusal::Offset(stream.clone()), stored.changed);
            let path = thalweg_streams::normal_name(stream).ok_or_else(refused)?;
            let link = stored.state.links.get(path.as_str()).ok_or_else(refused)?;
            let at = offset::parse(text).ok_or_else(refused)?;
            // Content that a worker has read is durable, but its report may not have reached the driver.
            let known = |tail| order(at) <= order(tail);
            if !known(link.tail) && !streams.published(&path).is_some_and(known) && !known(link.acked) {
                return Err(refused());
            }
            if order(at) > order(link.acked) {
                events.push(Event::Ack { path: path.into(), offset: at });
            }
        }
        if body.done {
            events.push(Event::Done);
        } else {
            if kind == Kind::Webhook && stored.state.wake.as_ref().is_some_and(|wake| !wake.delivered) {
                events.push(Event::Delivered);
            }
            events.push(Event::Extend { lease_until: stored.state.lease_until(now) });
        }
        self.write(id, &events)?;
        self.resend.remove(id);
        let stored = &self.subs[id];
        let next = body.done && !stored.state.pending.is_empty();
        Ok(Answer { after: stored.changed, status: 200, body: Some(json!({ "ok": true, "next_wake": next })) })
    }

    fn release(&mut self, id: &str, token: &str, body: &Body, now: Millis) -> Result<Answer, Refused> {
        self.unfenced(id, Kind::PullWake, token, body, now)?;
        self.write(id, &[Event::Over])?;
        Ok(Answer { after: self.subs[id].changed, status: 204, body: None })
    }

    fn write(&mut self, id: &str, events: &[Event]) -> Result<(), Refused> {
        let stored = self.subs.get_mut(id).ok_or(Refusal::NotFound)?;
        Ok(stored.write(events)?)
    }

    // ---- news of streams

    pub(crate) fn learn(&mut self, changes: &Changes, now: Millis) {
        if changes.overflowed {
            self.rescan_at = Some(now.0);
        }
        for log in &changes.logs {
            if let Some((name, subs)) = self.interest_in(*log) {
                self.refresh(&name, &subs, now);
            }
        }
        for (log, name) in &changes.gone {
            let subs = match self.interest.remove(log) {
                Some(Some(followed)) => followed.subs,
                Some(None) => continue,
                None => self.who_wants(name),
            };
            self.refresh(name, &subs, now);
        }
        // What nobody could say before may be known by now.
        if !self.unsettled.is_empty() && self.streams.is_complete() {
            for name in std::mem::take(&mut self.unsettled) {
                let subs = self.who_wants(&name);
                self.refresh(&name, &subs, now);
            }
        }
    }

    fn interest_in(&mut self, log: LogId) -> Option<(Box<str>, Vec<String>)> {
        if let Some(known) = self.interest.get(&log) {
            return known.as_ref().map(|interest| (interest.name.clone(), interest.subs.clone()));
        }
        let name = self.streams.name_of(log)?;
        let subs = self.who_wants(&name);
        if self.interest.len() >= UNLINKED_LOGS_MAX {
            self.interest.retain(|_, interest| interest.is_some());
        }
        let found = (!subs.is_empty()).then(|| Followed { name: name.clone(), subs: subs.clone() });
        let wanted = found.is_some();
        self.interest.insert(log, found);
        wanted.then_some((name, subs))
    }

    fn who_wants(&self, name: &str) -> Vec<String> {
        let wants = |stored: &Stored| stored.state.links.contains_key(name) || wants(&stored.state.config, name);
        self.subs.values().filter(|stored| wants(stored)).map(|stored| stored.id.clone()).collect()
    }

    /// Reads where a stream ends now, and links or unlinks it by the patterns.
    fn refresh(&mut self, name: &str, subs: &[String], now: Millis) {
        // While a delete is not durable, or not all streams can be found, nobody knows that the stream is gone. Asked
        // first: what comes meanwhile is found below.
        let is_known = self.streams.is_settled(name);
        let tail = self.streams.published(name);
        for id in subs {
            let Some(stored) = self.subs.get_mut(id) else { continue };
            let (links, config) = (&stored.state.links, &stored.state.config);
            let link = links.get(name);
            let linked = link.is_some_and(|link| link.glob);
            let events = match tail {
                // Its stream was deleted, and made again in another unit, whose log ids are lower.
                Some(tail) if let Some(link) = link.filter(|link| tail.incarnation < link.acked.incarnation) => {
                    begun_anew(name, link)
                }
                Some(_) if !linked && wants(config, name) => {
                    if !links.contains_key(name) && links.len() >= self.config.streams_max {
                        self.stats.unlinked += 1;
                        tracing::warn!(id, stream = name, "the subscription is at its limit of streams: not linked");
                        continue;
                    }
                    vec![Event::Link { path: name.into(), explicit: false, at: Default::default() }]
                }
                None if !is_known => {
                    self.unsettled.insert(name.into());
                    continue;
                }
                None if linked => vec![Event::Unlink { path: name.into(), explicit: false }],
                _ => Vec::new(),
            };
            if !events.is_empty()
                && let Err(error) = stored.write(&events)
            {
                tracing::warn!(id, stream = name, %error, "a stream could not be linked and is retried");
                self.rescan_at = Some(now.0 + REST);
                continue;
            }
            stored.state.learn(name, tail.unwrap_or_default());
        }
    }

    /// Checks every stream that a subscription is linked to, or should be.
    fn rescan(&mut self, now: Millis) {
        self.rescan_at = None;
        self.interest.clear();
        let mut names: BTreeSet<Box<str>> = BTreeSet::new();
        self.subs.values().for_each(|stored| names.extend(stored.state.links.keys().cloned()));
        let patterns: Vec<&Config> =
            self.subs.values().map(|stored| &stored.state.config).filter(|c| c.pattern.is_some()).collect();
        if !patterns.is_empty() {
            self.streams.sweep(&mut |name| {
                if patterns.iter().any(|config| wants(config, name)) {
                    names.insert(name.into());
                }
            });
        }
        for name in names {
            let subs = self.who_wants(&name);
            self.refresh(&name, &subs, now);
        }
    }

    // ---- time and deliveries

    /// Does the work that is due; returns when to call it again at the latest.
    pub(crate) fn step(&mut self, now: Millis) -> Millis {
        if self.rescan_at.is_some_and(|at| at <= now.0) {
            self.rescan(now);
        }
        if self.rest_until <= now.0 {
            let due = |stored: &&Stored| stored.state.want(now).is_some() || self.resend.contains(&stored.id);
            let due: Vec<String> = self.subs.values().filter(due).map(|stored| stored.id.clone()).collect();
            for id in due {
                // The others go on: what one waits for, such as the bucket of its wake stream, need not concern them.
                if let Err(Refused(error, _)) = self.advance(&id, now) {
                    if self.rest_until <= now.0 {
                        tracing::warn!(id, %error, "a subscription could not advance, and tries again");
                    }
                    self.rest_until = now.0 + REST;
                }
            }
        }
        self.measure();
        self.next(now)
    }

    fn next(&self, now: Millis) -> Millis {
        let of = |stored: &Stored| match (&stored.state.wake, stored.state.retry) {
            (Some(wake), _) => wake.lease_until,
            (None, Some(retry)) if !stored.state.pending.is_empty() => Some(retry.next_attempt_at),
            _ => None,
        };
        let soonest = self.subs.values().filter_map(of).chain(self.rescan_at).min().unwrap_or(u64::MAX);
        Millis(soonest.max(self.rest_until).clamp(now.0 + 1, now.0 + LOOK_EVERY))
    }

    fn measure(&mut self) {
        let subs = || self.subs.values().map(|stored| &stored.state);
        self.stats.subscriptions = self.subs.len() as u64;
        self.stats.links = subs().map(|state| state.links.len() as u64).sum();
        self.stats.retries = subs().filter(|state| state.retry.is_some()).count() as u64;
        let leased = |state: &&Subscription| state.wake.as_ref().is_some_and(|wake| wake.lease_until.is_some());
        self.stats.damaged = self.homes.values().map(|home| home.damaged.len() as u64).sum();
        self.stats.leases = subs().filter(leased).count() as u64;
    }

    /// Steps one subscription until it has no need left.
    fn advance(&mut self, id: &str, now: Millis) -> Result<(), Refused> {
        if self.resend.contains(id) && !self.streams.is_complete() {
            return Ok(());
        }
        let again = self.resend.remove(id);
        if self.find(id)?.state.want(now) == Some(Want::Expire) {
            self.write(id, &[Event::Over])?;
        } else if again && self.find(id)?.state.wake.is_some() {
            self.deliver(id, now);
            return self.tell_again(id, now);
        }
        // A subscription has one delivery at a time, even if it outlives its wake.
        if self.find(id)?.state.want(now) == Some(Want::Wake) && !self.in_flight.contains_key(id) {
            self.wake(id, now)?;
        }
        Ok(())
    }

    fn wake(&mut self, id: &str, now: Millis) -> Result<(), Refused> {
        let (wake, jitter) = (wake_id((self.random)()), (self.random)());
        let stored = self.subs.get_mut(id).ok_or(Refusal::NotFound)?;
        let state = &stored.state;
        let generation = state.generation + 1;
        let is_told_here = stored.store.streams().is_some();
        match (state.config.kind, &state.config.wake_stream) {
            // Its wake stream is in another journal: the event goes once the wake is durable.
            (Kind::PullWake, Some(_)) if !is_told_here => {
                stored.write(&[Event::Wake { generation, id: wake, lease_until: None }])?;
                self.deliver(id, now);
            }
            // Its wake stream may be among those that cannot be found yet.
            (Kind::PullWake, Some(stream))
                if !self.streams.is_complete() && self.streams.published(stream).is_none() => {}
            (Kind::PullWake, Some(stream)) => {
                let stream = stream.clone();
                let event = WakeEvent { stream: &stream, json: wake_event(id, state, generation, now) };
                let events = [Event::Wake { generation, id: wake, lease_until: None }];
                if let Wrote::NoWakeStream = stored.write_and_wake(&events, Some(&event), now)? {
                    let failure = stored.state.failure(now, jitter);
                    stored.write(&[failure])?;
                    self.stats.failed += 1;
                    self.explain(id, &format!("there is no stream `{stream}` that takes JSON, to be woken by"));
                }
            }
            _ => {
                let lease_until = Some(state.lease_until(now));
                stored.write(&[Event::Wake { generation, id: wake, lease_until }])?;
                self.deliver(id, now);
            }
        }
        Ok(())
    }

    /// Repeats the event of a wake that nobody has claimed, if its wake stream is a replicated one. The others have it
    /// in the frame that began the wake.
    fn tell_again(&mut self, id: &str, now: Millis) -> Result<(), Refused> {
        let stored = self.find(id)?;
        let state = &stored.state;
        let (Some(stream), Some(streams)) = (state.config.wake_stream.clone(), stored.store.streams()) else {
            return Ok(());
        };
        let event = wake_event(id, state, state.generation, now);
        if streams.is_replicated(&stream)
            && let Err(error) = streams.append_replicated(&stream, &event, now)
        {
            self.resend.insert(id.into());
            return Err(error.into());
        }
        Ok(())
    }

    /// Delivers the present wake to the webhook, or its event to a wake stream of another journal, once it is durable.
    fn deliver(&mut self, id: &str, now: Millis) {
        let Some(stored) = self.subs.get(id) else { return };
        let state = &stored.state;
        let Some(wake) = &state.wake else { return };
        let (target, body) = match (&state.config.url, &state.config.wake_stream) {
            (Some(url), _) => {
                let body = json!({
                    "subscription_id": id,
                    "wake_id": wake.id,
                    "generation": state.generation,
                    "streams": infos(state),
                    "callback_url": format!("{}__ds/subscriptions/{}/callback", state.base, percent_encoded(id)),
                    "callback_token": self.keys.token(id, state.generation, &wake.id),
                });
                (Target::Url(url.clone()), body.to_string())
            }
            (None, Some(stream)) if stored.store.streams().is_none() => {
                (Target::Stream(stream.clone()), wake_event(id, state, state.generation, now))
            }
            _ => return,
        };
        let tails = state.pending.iter().take(WAKE_STREAMS_MAX).map(|path| (path.clone(), state.links[path].tail));
        let delivery = Delivery {
            subscription: id.into(),
            generation: state.generation,
            wake: wake.id.clone(),
            target,
            body: body.into_bytes(),
            tails: tails.collect(),
            timeout: self.config.delivery_timeout.min(Duration::from_millis(state.config.lease_ttl_ms)),
        };
        self.in_flight.insert(id.into(), wake.id.clone());
        self.deliveries.push((Arc::clone(&stored.store), stored.changed, delivery));
    }

    /// A delivery has come to its end.
    pub(crate) fn delivered(&mut self, delivery: &Delivery, outcome: &Outcome, now: Millis) {
        let id = delivery.subscription.as_str();
        if self.in_flight.get(id) == Some(&delivery.wake) {
            self.in_flight.remove(id);
        }
        let counter = match outcome {
            Outcome::Failed(_) => &mut self.stats.failed,
            _ => &mut self.stats.delivered,
        };
        *counter += 1;
        let jitter = (self.random)();
        if !matches!(outcome, Outcome::Failed(_)) {
            self.failures.remove(id);
        }
        let streams = Arc::clone(&self.streams);
        let Some(stored) = self.subs.get(id) else { return };
        let present = stored.state.wake.as_ref().filter(|wake| wake.id == delivery.wake);
        let Some(wake) = present else { return };
        let events = match outcome {
            Outcome::Done => {
                // A stream that was made again while the delivery was under way has ends of its own, which may be lower.
                let is_of_now = |(path, offset): &&(Box<str>, Position)| {
                    let known = |tail| order(*offset) <= order(tail);
                    let link = stored.state.links.get(path);
                    link.is_some_and(|link| known(link.tail) || streams.published(path).is_some_and(known))
                };
                let ack = |(path, offset): &(Box<str>, _)| Event::Ack { path: path.clone(), offset: *offset };
                delivery.tails.iter().filter(is_of_now).map(ack).chain([Event::Done]).collect()
            }
            // A receiver that has called back has received the wake, whatever happened to its answer.
            _ if wake.delivered || wake.holder.is_some() => return,
            Outcome::Taken => vec![Event::Delivered],
            Outcome::Failed(why) => {
                let events = vec![stored.state.failure(now, jitter)];
                self.explain(id, why);
                events
            }
        };
        if let Err(Refused(error, _)) = self.write(id, &events) {
            tracing::warn!(id, %error, "the end of a delivery is not stored: its lease ends it, or it is repeated");
            // The wake of a pull-wake has no lease before it is claimed: nothing else would end it.
            if matches!(delivery.target, Target::Stream(_)) {
                self.resend.insert(id.into());
                self.rest_until = now.0 + REST;
            }
        }
    }

    /// Records why a wake was not delivered, for operators; in memory only, and logged once while it stays the same.
    fn explain(&mut self, id: &str, why: &str) {
        let why: String = why.chars().take(WHY_CHARS_MAX).collect();
        if self.failures.get(id) != Some(&why) {
            tracing::warn!(id, why, "a webhook delivery failed: it is retried until the receiver accepts it");
            self.failures.insert(id.into(), why);
        }
    }

    // ---- answers to clients

    fn show(&self, stored: &Stored) -> Value {
        let Stored { id, state, .. } = stored;
        let config = &state.config;
        let link = |path: &str, link: &crate::state::Link| json!({ "path": path, "link_type": kind_of(link), "acked_offset": offset::text(link.acked) });
        let webhook = config.url.as_ref().map(|url| {
            let jwks = format!("{}__ds/jwks.json", state.base);
            json!({ "url": url, "signing": { "alg": "ed25519", "kid": self.keys.kid(), "jwks_url": jwks } })
        });
        let created = i64::try_from(state.created_at).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        json!({
            "id": id,
            "subscription_id": id,
            "type": config.kind,
            "pattern": config.pattern,
            "streams": state.links.iter().map(|(path, found)| link(path, found)).collect::<Vec<_>>(),
            "webhook": webhook,
            "wake_stream": config.wake_stream,
            "lease_ttl_ms": config.lease_ttl_ms,
            "created_at": created.map(|at| at.to_string()),
            "status": if state.retry.is_some() { "failed" } else { "active" },
            "last_error": state.retry.and(self.failures.get(id)),
            "next_attempt_at": state.retry.map(|retry| retry.next_attempt_at),
            "generation": state.generation,
            "description": config.description,
        })
    }
}

fn of_kind(state: &Subscription, kind: Kind) -> Result<(), Refusal> {
    if state.config.kind == kind {
        return Ok(());
    }
    Err(Refusal::Invalid(match kind {
        Kind::Webhook => "the subscription is no webhook: it takes claim, ack and release".into(),
        Kind::PullWake => "the subscription is not pull-wake: it takes callbacks".into(),
    }))
}

/// Whether a pattern asks for this stream. A wake about the wake stream would wake for ever.
fn wants(config: &Config, name: &str) -> bool {
    config.pattern.as_ref().is_some_and(|pattern| glob::matches(pattern, name))
        && config.wake_stream.as_deref() != Some(name)
        && !name.starts_with("__ds/")
}

/// The refusal while not all streams can be found.
fn store_away() -> Refused {
    let why = "not all streams can be found just now, and some may be among those that the subscription wants";
    Refusal::Unavailable(why.into()).into()
}

impl Stored {
    /// The streams that it asks for.
    fn wish(&self) -> Interest {
        let mut wish = wish_of(&self.state.config);
        wish.names.extend(self.state.links.keys().map(|name| String::from(&**name)));
        wish
    }
}

/// The streams that a subscription asks for by its configuration.
fn wish_of(config: &Config) -> Interest {
    Interest { patterns: config.pattern.iter().cloned().collect(), names: config.streams.clone() }
}

/// Takes a link away, and makes it again at the beginning of the stream.
fn begun_anew(name: &str, link: &crate::state::Link) -> Vec<Event> {
    let kinds = [(true, link.explicit), (false, link.glob)];
    let kinds: Vec<bool> = kinds.into_iter().filter_map(|(explicit, is_set)| is_set.then_some(explicit)).collect();
    let unlinked = kinds.iter().map(|explicit| Event::Unlink { path: name.into(), explicit: *explicit });
    let linked = kinds.iter().map(|explicit| {
        let at = Default::default();
        Event::Link { path: name.into(), explicit: *explicit, at }
    });
    unlinked.chain(linked).collect()
}

fn kind_of(link: &crate::state::Link) -> &'static str {
    if link.explicit { "explicit" } else { "glob" }
}

/// The entries of a wake for streams with new content.
fn infos(state: &Subscription) -> Vec<Value> {
    let info = |path: &str| {
        let link = &state.links[path];
        json!({
            "path": path,
            "link_type": kind_of(link),
            "acked_offset": offset::text(link.acked),
            "tail_offset": offset::text(link.tail),
            "has_pending": true,
        })
    };
    state.pending.iter().take(WAKE_STREAMS_MAX).map(|path| info(path)).collect()
}

/// The message to a wake stream.
fn wake_event(id: &str, state: &Subscription, generation: u64, now: Millis) -> String {
    let first = state.pending.first().cloned().unwrap_or_default();
    let event = json!({
        "type": "wake", "subscription_id": id, "stream": first, "generation": generation, "ts": now.0,
    });
    event.to_string()
}

fn wake_id(random: u64) -> String {
    format!("w_{random:016x}")
}

fn percent_encoded(id: &str) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Status and body of a refusal.
pub(crate) fn refused(refusal: &Refusal) -> (u16, Value) {
    let mut error = json!({ "code": refusal.code(), "message": refusal.to_string() });
    if let Refusal::Claimed { holder, generation } = refusal {
        error["current_holder"] = json!(holder);
        error["generation"] = json!(generation);
    }
    (refusal.status(), json!({ "error": error }))
}
