//! The engines of a server's kernel units, and the unit that a stream is in.
//!
//! Beside a data folder: streams of the level `replicated` are in a unit of their own, whose authority is the bucket;
//! all others are in the unit of the data folder. A name is in one unit at most: a stream is made under a lock of its
//! name, after the other unit was found without it. A unit whose stream of that name was deleted answers for the name
//! until the delete is durable, so that nobody hears of it before.
//!
//! The replicated unit is joined once its bucket has answered. Before that nobody knows which names are in it: streams
//! of the data folder are served, and other names are refused.
//!
//! On nodes: all streams are in a fixed number of units in the bucket, each owned by one node. Units come and go here.
//! The caller asks the unit that is a name's home (`home`), and `Streams::handle_in` answers for it.

use super::config::StreamsConfig;
use super::engine::{Engine, Kind};
use super::fields::Fields;
use super::home::first_unit;
use super::remove::Why;
use super::turn::Answer;
use crate::error::{Refusal, Refused};
use crate::state::StreamState;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use thalweg_base::{Level, Lsn, Millis};
use thalweg_http::{Method, Request};
use thalweg_log::{Logs, SweepCursor};

const LOCKS: usize = 64;
/// Names that are looked at under one lock.
const SWEPT_AT_ONCE: usize = 256;

pub(crate) struct Units {
    pub(crate) local: Arc<Engine>,
    replicated: OnceLock<Arc<Engine>>,
    /// The units of nodes that are served here, by number; empty beside a data folder.
    nodes: Box<[RwLock<Option<Arc<Engine>>>]>,
    /// There is a replicated unit, joined or not.
    has_store: bool,
    /// The level of streams that do not say theirs.
    level: Level,
    creating: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl Units {
    pub(crate) fn new(logs: Arc<Logs<StreamState>>, config: StreamsConfig) -> Arc<Self> {
        let (has_store, level, units_of_nodes) = (config.has_store, config.level, config.units_of_nodes);
        Arc::new_cyclic(|units| Self {
            local: Engine::new(logs, config, units.clone()),
            replicated: OnceLock::new(),
            nodes: (0..units_of_nodes).map(|_| RwLock::default()).collect(),
            has_store,
            level,
            creating: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
        })
    }

    /// Serves the streams of the replicated unit from now on. Once.
    pub(crate) fn join(&self, logs: Arc<Logs<StreamState>>, now: Millis) -> &Arc<Engine> {
        self.replicated.get_or_init(|| {
            let engine = self.local.beside(logs, Kind::Replicated);
            self.local.yield_to(&engine, now);
            engine
        })
    }

    /// Serves a unit of nodes from now on.
    pub(crate) fn join_unit(&self, unit: u64, logs: Arc<Logs<StreamState>>) -> Option<Arc<Engine>> {
        let mut served = self.nodes.get(unit as usize)?.write();
        if served.as_ref().is_some_and(|engine| Arc::ptr_eq(&engine.logs, &logs)) {
            return None;
        }
        let engine = self.local.beside(logs, Kind::Node(unit));
        *served = Some(Arc::clone(&engine));
        Some(engine)
    }

    /// Serves it no longer. What is under way goes on.
    pub(crate) fn leave_unit(&self, unit: u64) -> Option<Arc<Engine>> {
        self.nodes.get(unit as usize)?.write().take()
    }

    /// The engine of a unit of nodes, if it is served here.
    pub(crate) fn unit(&self, unit: u64) -> Option<Arc<Engine>> {
        self.nodes.get(unit as usize)?.read().clone()
    }

    /// How many units nodes have.
    pub(crate) fn count(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub(crate) fn first_unit(&self, name: &str) -> u64 {
        first_unit(name, self.count())
    }

    /// Calls `f` with each engine that serves now.
    pub(crate) fn each(&self, mut f: impl FnMut(&Arc<Engine>)) {
        f(&self.local);
        self.each_beside(f);
    }

    /// The same, without that of the data folder.
    pub(crate) fn each_beside(&self, mut f: impl FnMut(&Arc<Engine>)) {
        self.replicated.get().into_iter().for_each(&mut f);
        self.nodes.iter().for_each(|unit| unit.read().iter().for_each(&mut f));
    }

    /// The engines that serve now.
    pub(crate) fn all(&self) -> Vec<Arc<Engine>> {
        let mut all = Vec::new();
        self.each(|engine| all.push(Arc::clone(engine)));
        all
    }

    /// The engine of the replicated unit, once it is joined.
    pub(crate) fn replicated(&self) -> Option<&Arc<Engine>> {
        self.replicated.get()
    }

    /// Every stream that there is can be found.
    pub(crate) fn is_complete(&self) -> bool {
        !self.has_store || self.replicated.get().is_some() || !self.nodes.is_empty()
    }

    /// How many streams there are, about.
    pub(crate) fn population(&self) -> u64 {
        let mut sum = 0;
        self.each(|engine| sum += engine.population.get());
        sum
    }

    pub(crate) fn answer(&self, request: &Request<'_>, now: Millis) -> (&Arc<Engine>, Answer) {
        match self.serving(request, now) {
            Ok(engine) => (engine, engine.answer(request, now)),
            Err(refused) => (&self.local, self.local.refuse(&refused)),
        }
    }

    fn serving(&self, request: &Request<'_>, now: Millis) -> Result<&Arc<Engine>, Refused> {
        if !self.has_store || matches!(request.method, Method::Options | Method::Other(_)) {
            return Ok(&self.local);
        }
        if self.local.is_list(request) {
            return if self.is_complete() { Ok(&self.local) } else { Err(Refusal::StoreAway.into()) };
        }
        let name = self.local.name(request)?;
        if matches!(request.method, Method::Put) {
            // A stream that is past its time must not decide for its successor.
            self.all().iter().try_for_each(|engine| engine.expire_if_due(&name, now))?;
        }
        // Read before the names are looked for: a unit that is joined meanwhile is not passed over.
        let replicated = self.replicated.get();
        let is_put = matches!(request.method, Method::Put);
        // A delete that is not durable has an answer of its unit's; what is to be made has its own unit.
        let found = if is_put { self.engine_with(&name) } else { self.engine_of(&name) };
        if let Some(engine) = found {
            return Ok(engine);
        }
        let replicated = replicated.ok_or(Refusal::StoreAway)?;
        if !is_put {
            return Ok(&self.local);
        }
        let fields = Fields::find(request.headers)?;
        let source = fields.forked_from.map(|path| self.local.source_name(path)).transpose()?;
        let level = match &source {
            Some(source) => self.engine_with(source).map(|engine| engine.level()),
            None => fields.durability()?,
        };
        Ok(if level.unwrap_or(self.level) == Level::Replicated { replicated } else { &self.local })
    }

    /// The engine that has a stream of this name.
    fn engine_with(&self, name: &str) -> Option<&Arc<Engine>> {
        let replicated = self.replicated.get().filter(|engine| engine.has(name));
        replicated.or_else(|| Some(&self.local).filter(|engine| engine.has(name)))
    }

    /// The engine that answers for this name: that of its stream, or of a delete that is not durable.
    pub(crate) fn engine_of(&self, name: &str) -> Option<&Arc<Engine>> {
        let replicated = self.replicated.get().filter(|engine| !engine.is_settled_absent(name));
        replicated.or_else(|| Some(&self.local).filter(|engine| !engine.is_settled_absent(name)))
    }

    /// Whether there is a stream of this name, or every delete of one is durable.
    pub(crate) fn is_settled(&self, name: &str) -> bool {
        self.is_complete() && (self.engine_of(name).is_none() || self.engine_with(name).is_some())
    }

    /// Locks the name for the making of a stream in the unit of `by`, and says whether the other unit is without it.
    pub(crate) fn reserve(&self, by: &Engine, name: &str) -> (Option<MutexGuard<'_, ()>>, Result<(), Refusal>) {
        if !self.has_store || by.unit.is_some() {
            return (None, Ok(()));
        }
        let lock = self.creating[self.hasher.hash_one(name) as usize % LOCKS].lock();
        let other = if by.is_gated { self.replicated.get() } else { Some(&self.local) };
        let is_free = match other.map(|engine| engine.is_settled_absent(name)) {
            Some(true) => Ok(()),
            Some(false) => Err(Refusal::Contended),
            None => Err(Refusal::StoreAway),
        };
        (Some(lock), is_free)
    }

    /// Whether streams can be made with this level in the unit of `by`.
    pub(crate) fn check_level(&self, by: &Engine, said: Option<Level>) -> Result<(), Refusal> {
        if by.unit.is_some() {
            return Ok(());
        }
        match (said.unwrap_or(self.level), by.is_gated) {
            (Level::Replicated, true) if !self.has_store => Err(Refusal::NoStore),
            (Level::Replicated, false) | (Level::Durable | Level::Buffered, true) => Ok(()),
            // Its source was deleted, or made again in the other unit, since the engine was chosen.
            _ => Err(Refusal::Contended),
        }
    }
}

impl Engine {
    fn has(&self, name: &str) -> bool {
        self.logs.peek(name, &mut |_| {})
    }

    /// Whether there is a stream of this name, or every delete of one is durable.
    pub(crate) fn is_settled(&self, name: &str) -> bool {
        let guard = self.logs.lock(&[name]);
        guard.find(name).is_some() || guard.absent_since(name) <= self.logs.durable()
    }

    fn is_settled_absent(&self, name: &str) -> bool {
        let guard = self.logs.lock(&[name]);
        guard.find(name).is_none() && guard.absent_since(name) <= self.logs.durable()
    }

    fn expire_if_due(&self, name: &str, now: Millis) -> Result<(), Refused> {
        let mut is_due = false;
        self.logs.peek(name, &mut |seen| {
            is_due = !seen.attachment.soft_deleted && self.expired(seen.attachment, now);
        });
        match if is_due { self.expire(name, now) } else { Ok(Lsn::ZERO) } {
            // Somebody else was quicker.
            Err(Refused { refusal: Refusal::NotFound | Refusal::Gone, .. }) | Ok(_) => Ok(()),
            // What it waits for is a position of this unit's journal, and the answer may be another's.
            Err(refused) => Err(refused.refusal.into()),
        }
    }

    /// Deletes the streams whose names the other unit has, too. A name goes there only when its delete here is durable:
    /// a folder that was filled from a mirror may be from before that.
    fn yield_to(&self, other: &Self, now: Millis) {
        let mut doubled: Vec<Box<str>> = Vec::new();
        let mut cursor = Some(SweepCursor::default());
        while let Some(at) = cursor {
            cursor = other.logs.sweep_names(at, SWEPT_AT_ONCE, &mut |name| {
                if self.has(name) {
                    doubled.push(name.into());
                }
            });
        }
        for name in doubled {
            tracing::warn!(%name, "a stream that was deleted, and made again as a replicated one, had come back with the folder");
            if let Err(refused) = self.remove(&name, Why::Request, now)
                && !matches!(refused.refusal, Refusal::NotFound | Refusal::Gone)
            {
                tracing::error!(%name, error = %refused.refusal, "the old stream could not be deleted again");
            }
        }
    }
}
