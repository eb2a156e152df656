//! The engines of a server's kernel units, and the unit that a stream is in.
//!
//! Streams of the level `replicated` are in a unit of their own, whose authority is the bucket; all others are in the
//! unit of the data folder. A name is in one unit at most: a stream is made under a lock of its name, after the other
//! unit was found without it. A unit whose stream of that name was deleted answers for the name until the delete is
//! durable, so that nobody hears of it before.
//!
//! The replicated unit is joined once its bucket has answered. Before that nobody knows which names are in it: streams
//! of the data folder are served, and other names are refused.

use super::config::StreamsConfig;
use super::engine::Engine;
use super::fields::Fields;
use super::turn::Answer;
use crate::error::{Refusal, Refused};
use crate::state::StreamState;
use parking_lot::{Mutex, MutexGuard};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use thalweg_base::{Level, Lsn, Millis};
use thalweg_http::{Method, Request};
use thalweg_log::Logs;

const LOCKS: usize = 64;

pub(crate) struct Units {
    pub(crate) local: Arc<Engine>,
    replicated: OnceLock<Arc<Engine>>,
    /// There is a replicated unit, joined or not.
    has_store: bool,
    /// The level of streams that do not say theirs.
    level: Level,
    creating: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl Units {
    pub(crate) fn new(logs: Arc<Logs<StreamState>>, config: StreamsConfig) -> Arc<Self> {
        let (has_store, level) = (config.has_store, config.level);
        Arc::new_cyclic(|units| Self {
            local: Engine::new(logs, config, units.clone()),
            replicated: OnceLock::new(),
            has_store,
            level,
            creating: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
        })
    }

    /// Serves the streams of the replicated unit from now on. Once.
    pub(crate) fn join(self: &Arc<Self>, logs: Arc<Logs<StreamState>>) -> Arc<Engine> {
        Arc::clone(self.replicated.get_or_init(|| self.local.beside(logs, Arc::downgrade(self))))
    }

    /// The engines that serve now.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Engine>> {
        std::iter::once(&self.local).chain(self.replicated.get())
    }

    /// The engine of the replicated unit, once it is joined.
    pub(crate) fn replicated(&self) -> Option<&Arc<Engine>> {
        self.replicated.get()
    }

    /// Every stream that there is can be found.
    pub(crate) fn is_complete(&self) -> bool {
        !self.has_store || self.replicated.get().is_some()
    }

    /// How many streams there are, about.
    pub(crate) fn population(&self) -> u64 {
        self.all().map(|engine| engine.population.get()).sum()
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
            self.all().try_for_each(|engine| engine.expire_if_due(&name, now))?;
        }
        if let Some(engine) = self.engine_of(&name) {
            return Ok(engine);
        }
        let replicated = self.replicated.get().ok_or(Refusal::StoreAway)?;
        if !matches!(request.method, Method::Put) {
            return Ok(&self.local);
        }
        let fields = Fields::find(request.headers)?;
        let source = fields.forked_from.map(|path| self.local.source_name(path)).transpose()?;
        let level = match &source {
            Some(source) => self.engine_of(source).map(|engine| engine.level()),
            None => fields.durability()?,
        };
        Ok(if level.unwrap_or(self.level) == Level::Replicated { replicated } else { &self.local })
    }

    /// The engine that answers for this name: that of its stream, or of a delete that is not durable.
    pub(crate) fn engine_of(&self, name: &str) -> Option<&Arc<Engine>> {
        let replicated = self.replicated.get().filter(|engine| !engine.is_settled_absent(name));
        replicated.or_else(|| Some(&self.local).filter(|engine| !engine.is_settled_absent(name)))
    }

    /// Locks the name for the making of a stream in the unit of `by`, and says whether the other unit is without it.
    pub(crate) fn reserve(&self, by: &Engine, name: &str) -> (Option<MutexGuard<'_, ()>>, Result<(), Refusal>) {
        if !self.has_store {
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
        match (said.unwrap_or(self.level), by.is_gated) {
            (Level::Replicated, true) if !self.has_store => Err(Refusal::NoStore),
            (Level::Replicated, false) | (Level::Durable | Level::Buffered, true) => Ok(()),
            // Its source was deleted, or made again in the other unit, since the engine was chosen.
            _ => Err(Refusal::Contended),
        }
    }
}

impl Engine {
    fn is_settled_absent(&self, name: &str) -> bool {
        let guard = self.logs.lock(&[name]);
        guard.find(name).is_none() && guard.absent_since(name) <= self.logs.durable()
    }

    fn expire_if_due(&self, name: &str, now: Millis) -> Result<(), Refused> {
        let mut is_due = false;
        self.logs.peek(name, &mut |seen| {
            is_due = !seen.attachment.soft_deleted && self.expired(seen.attachment, now);
        });
        if is_due {
            let _: Lsn = self.expire(name, now)?;
        }
        Ok(())
    }
}
