//! State that all requests share, and their dispatch.

use super::config::StreamsConfig;
use super::flights::Flights;
use super::frames::FrameCache;
use super::gzip::Compressions;
use super::head;
use super::list::Lists;
use super::name::of_path;
use super::observe::Observed;
use super::population::Population;
use super::stats::{Counters, add};
use super::turn::Answer;
use super::upkeep::Upkeep;
use super::watch::{WatchKey, Watchers};
use crate::error::{Refusal, Refused};
use crate::format::offset::Position;
use crate::state::StreamState;
use std::sync::Arc;
use thalweg_base::{Durability, LogId, Lsn, Millis, Offset, Until};
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
    pub(crate) pool: Pool,
    pub(crate) flights: Arc<Flights>,
    pub(crate) frames: FrameCache,
    pub(crate) counters: Counters,
    pub(crate) upkeep: Upkeep,
    pub(crate) population: Population,
    pub(crate) lists: Lists,
    pub(crate) compressions: Compressions,
    /// The journal's end at the start: everything before it was replayed.
    recovered: Lsn,
}

impl Engine {
    pub(crate) fn new(logs: Arc<Logs<StreamState>>, config: StreamsConfig) -> Arc<Self> {
        let population = Population::default();
        population.counted(logs.len());
        Arc::new(Self {
            recovered: logs.journal().end(),
            logs,
            watchers: Watchers::default(),
            observed: Observed::default(),
            pool: Pool::new("streams-io", config.io_threads, config.io_queue_max),
            flights: Arc::default(),
            frames: FrameCache::default(),
            counters: Counters::default(),
            upkeep: Upkeep::default(),
            population,
            lists: Lists::default(),
            compressions: Compressions::default(),
            config,
        })
    }

    pub(crate) fn answer(self: &Arc<Self>, request: &Request<'_>, now: Millis) -> Answer {
        let answer = match request.method {
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

    pub(crate) fn refuse(&self, refused: &Refused) -> Answer {
        let counters = &self.counters;
        add(if refused.refusal.status() < 500 { &counters.refused_4xx } else { &counters.refused_5xx }, 1);
        if let Refusal::Corrupt { .. } | Refusal::Internal(_) = &refused.refusal {
            tracing::error!(what = %refused.refusal, "a request failed");
        }
        Answer::Response(refused.after, head::refusal(&refused.refusal))
    }

    pub(crate) fn name<'a>(&self, request: &Request<'a>) -> Result<std::borrow::Cow<'a, str>, Refusal> {
        of_path(request.path, &self.config.prefix)
    }

    /// The live stream of that name; its shard stays locked. An expired one is deleted first.
    pub(crate) fn find_live(&self, name: &str, now: Millis) -> Result<(Guard<'_, StreamState>, LogId), Refused> {
        for _ in 0..TRIES {
            let mut guard = self.logs.lock(&[name]);
            let log = guard.find(name);
            let Some(view) = log.and_then(|log| guard.view(log)) else {
                return Err(Refusal::NotFound.after(guard.absent_since(name)));
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

    /// The durability of a stream, from the request or the default.
    pub(crate) fn durability(&self, said: Option<Durability>) -> Durability {
        said.unwrap_or(self.logs.options().durability)
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

    /// Wakes the watchers of changes that are visible now.
    pub(crate) fn wake(&self) {
        self.watchers.wake(self.logs.reached());
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
