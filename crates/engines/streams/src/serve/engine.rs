//! State that all requests share, and their dispatch.

use super::config::StreamsConfig;
use super::flights::Flights;
use super::frames::FrameCache;
use super::gate::OwnGate;
use super::gzip::Compressions;
use super::head;
use super::home::Hop;
use super::list::Lists;
use super::name::of_path;
use super::observe::Observed;
use super::population::Population;
use super::stats::{Counters, add};
use super::turn::Answer;
use super::units::Units;
use super::upkeep::Upkeep;
use super::watch::{WatchKey, Watchers};
use crate::error::{Refusal, Refused};
use crate::format::offset::Position;
use crate::state::StreamState;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use thalweg_base::{Level, LogId, Lsn, Millis, Offset, Until};
use thalweg_http::Pool;
use thalweg_http::{Method, Request, Waker};
use thalweg_log::{Guard, LogView, Logs};

/// How often a request retries on a stream that changed under it.
pub(crate) const TRIES: usize = 8;

pub(crate) struct Engine {
    pub(crate) logs: Arc<Logs<StreamState>>,
    pub(crate) config: StreamsConfig,
    pub(crate) watchers: Watchers,
    pub(crate) observed: Observed,
    pub(crate) pool: Arc<Pool>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) frames: FrameCache,
    pub(crate) counters: Arc<Counters>,
    pub(crate) upkeep: Upkeep,
    pub(crate) population: Population,
    pub(crate) lists: Lists,
    pub(crate) compressions: Compressions,
    /// The event loop's gate counts the positions of this unit's journal. Otherwise the unit is the replicated one.
    pub(crate) is_gated: bool,
    /// Where answers wait otherwise.
    pub(crate) gate: OwnGate,
    pub(crate) units: Weak<Units>,
    /// The unit goes to another node: nothing is answered any more, and live readers leave.
    pub(crate) is_over: AtomicBool,
    /// The unit's number, if it is one of nodes.
    pub(crate) unit: Option<u64>,
    /// The journal's end at the start: everything before it was replayed.
    recovered: Lsn,
}

/// The kind of an engine's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// That of the data folder.
    Folder,
    /// That of replicated streams, beside a data folder.
    Replicated,
    /// The unit of nodes with this number.
    Node(u64),
}

impl Engine {
    /// The engine of the unit whose journal the event loop's gate counts.
    pub(crate) fn new(logs: Arc<Logs<StreamState>>, config: StreamsConfig, units: Weak<Units>) -> Arc<Self> {
        let pool = Arc::new(match config.io_threads {
            0 => Pool::driven(config.io_queue_max),
            threads => Pool::new("streams-io", threads, config.io_queue_max),
        });
        Self::of(logs, config, units, pool, Arc::default(), Observed::default(), Kind::Folder)
    }

    /// The engine of another unit: it shares threads and counters with this one.
    pub(crate) fn beside(&self, logs: Arc<Logs<StreamState>>, kind: Kind) -> Arc<Self> {
        let (pool, counters) = (Arc::clone(&self.pool), Arc::clone(&self.counters));
        Self::of(logs, self.config.clone(), self.units.clone(), pool, counters, self.observed.beside(), kind)
    }

    fn of(
        logs: Arc<Logs<StreamState>>,
        config: StreamsConfig,
        units: Weak<Units>,
        pool: Arc<Pool>,
        counters: Arc<Counters>,
        observed: Observed,
        kind: Kind,
    ) -> Arc<Self> {
        let population = Population::default();
        population.counted(logs.len());
        Arc::new(Self {
            recovered: logs.journal().end(),
            logs,
            watchers: Watchers::default(),
            observed,
            pool,
            flights: Arc::default(),
            frames: FrameCache::default(),
            counters,
            upkeep: Upkeep::default(),
            population,
            lists: Lists::default(),
            compressions: Compressions::default(),
            is_gated: kind == Kind::Folder,
            unit: if let Kind::Node(unit) = kind { Some(unit) } else { None },
            gate: OwnGate::default(),
            is_over: AtomicBool::new(false),
            units,
            config,
        })
    }

    pub(crate) fn answer(self: &Arc<Self>, request: &Request<'_>, now: Millis) -> Answer {
        let answer = match request.method {
            _ if self.is_over() => Err(Refusal::UnitLeft.into()),
            Method::Post => self.append(request, now),
            Method::Get if self.is_list(request) => self.list(request, now),
            Method::Get => self.get(request, now),
            Method::Head => self.metadata(request, now),
            Method::Put => self.create(request, now),
            Method::Delete => self.delete(request, now),
            Method::Options => Ok(Answer::Response(Until::NOW, head::preflight())),
            Method::Other(_) => Err(Refusal::Method.into()),
        };
        answer.unwrap_or_else(|refused| self.refuse(&refused))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The unit goes to another node.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.watchers.wake_all();
        self.wake();
    }

    pub(crate) fn refuse(&self, refused: &Refused) -> Answer {
        let counters = &self.counters;
        add(if refused.refusal.status() < 500 { &counters.refused_4xx } else { &counters.refused_5xx }, 1);
        if let Refusal::Corrupt { .. } | Refusal::Internal(_) = &refused.refusal {
            tracing::error!(what = %refused.refusal, "a request failed");
        }
        Answer::Response(refused.after, head::refusal(&refused.refusal))
    }

    pub(crate) fn name<'a>(&self, request: &Request<'a>) -> Result<std::borrow::Cow<'a, str>, Refusal> {
        self.name_at(request.path)
    }

    /// The name of the stream at a path.
    pub(crate) fn name_at<'a>(&self, path: &'a str) -> Result<std::borrow::Cow<'a, str>, Refusal> {
        of_path(path, &self.config.prefix)
    }

    /// The live stream of that name; its shard stays locked. An expired one is deleted first.
    pub(crate) fn find_live(
        &self,
        name: &str,
        hop: Hop,
        now: Millis,
    ) -> Result<(Guard<'_, StreamState>, LogId), Refused> {
        for _ in 0..TRIES {
            let mut guard = self.logs.lock(&[name]);
            let log = guard.find(name);
            let Some(view) = log.and_then(|log| guard.view(log)) else {
                let absent = guard.absent_since(name);
                drop(guard);
                self.check_home_of(name, hop)?;
                return Err(Refusal::NotFound.after(absent));
            };
            let (state, log) = (view.attachment, view.id);
            if state.soft_deleted {
                return Err(Refusal::Gone.after(state.configured));
            }
            if !self.expired(state, now) {
                return Ok((guard, log));
            }
            drop(guard);
            self.expire(name, now)?;
        }
        Err(Refusal::Contended.into())
    }

    pub(crate) fn expired(&self, state: &StreamState, now: Millis) -> bool {
        state.expired(now, self.recovered)
    }

    /// The level of this unit's streams that do not say theirs.
    pub(crate) fn level(&self) -> Level {
        if self.is_gated { self.logs.options().durability.into() } else { Level::Replicated }
    }

    /// The level of a stream that says so much.
    pub(crate) fn level_of(&self, said: Option<Level>) -> Level {
        said.filter(|_| self.is_gated).unwrap_or_else(|| self.level())
    }

    /// The refusal for a stream that existed a moment ago.
    pub(crate) fn vanished(&self, name: &str) -> Refused {
        Refusal::NotFound.after(self.logs.lock(&[name]).absent_since(name))
    }

    /// Counts a use of a stream whose lifetime slides: at once in memory, in the journal once it has moved far enough.
    pub(crate) fn renew(&self, guard: &mut Guard<'_, StreamState>, log: LogId, now: Millis) {
        let Some(state) = guard.attachment_mut(log) else { return };
        if !state.lifetime.is_sliding() {
            return;
        }
        state.seen = state.seen.max(now);
        if state.touch_is_due() && !state.touch_queued {
            state.touch_queued = self.upkeep.queue_touch(log);
        }
    }

    /// Wakes the watchers of changes that are visible now, and the answers that wait for a journal of the unit's own.
    pub(crate) fn wake(&self) {
        let reached = self.logs.reached();
        self.watchers.wake(reached);
        if !self.is_gated {
            let is_over = self.logs.journal().poisoned().is_some();
            self.gate.open(if is_over { Lsn(u64::MAX - 1) } else { reached.durable });
        }
        self.observed.wake();
    }

    /// Queues a visible change of a watched log: its watchers are woken when `until` is reached, or here if it is
    /// reached already.
    pub(crate) fn announce(&self, until: Until, log: LogId) {
        self.watchers.changed(until, log);
        if self.logs.reached().covers(until) {
            self.wake();
        }
    }

    /// A log was made, appended to or removed, visibly when `until` is reached.
    #[inline]
    pub(crate) fn changed(&self, until: Until, log: LogId) {
        self.observed.note(until, log, || self.logs.reached());
    }

    /// Watches a log whose shard is locked.
    pub(crate) fn watch(
        self: &Arc<Self>,
        guard: &mut Guard<'_, StreamState>,
        log: LogId,
        waker: Waker,
    ) -> Option<Watch> {
        let view = guard.view(log)?;
        let changed = view.when(view.changed);
        guard.attachment_mut(log)?.watched = true;
        let key = self.watchers.add(log, waker);
        // A change that precedes the watch may become visible only after it.
        if !self.logs.reached().covers(changed) {
            self.announce(changed, log);
        }
        Some(Watch { engine: Arc::clone(self), log, key })
    }
}

/// A watcher of one log, for as long as it lives. Must not be dropped under a guard.
pub(crate) struct Watch {
    engine: Arc<Engine>,
    log: LogId,
    key: WatchKey,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut guard = self.engine.logs.lock_logs(&[self.log], &[]);
        let watched = self.engine.watchers.remove(self.log, self.key);
        if !watched && let Some(state) = guard.attachment_mut(self.log) {
            state.watched = false;
        }
    }
}

/// The position as clients see it.
pub(crate) fn position(view: &LogView<'_, StreamState>, offset: Offset) -> Position {
    Position { incarnation: view.incarnation(offset), offset }
}

/// Whether the stream is closed and readers may see it: a close is durable in every stream. Then all content is
/// published too.
pub(crate) fn closed_visibly(view: &LogView<'_, StreamState>, durable: Lsn) -> bool {
    view.attachment.closed.is_some() && view.attachment.configured <= durable && view.published == view.tail
}
