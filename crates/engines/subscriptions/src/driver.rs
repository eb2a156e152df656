//! The thread that owns the core, and the ways in to it.

pub use crate::core::Stats;

use crate::config::SubscriptionsConfig;
use crate::core::{Answer, Core};
use crate::error::{OpenError, Refusal};
use crate::keys::Keys;
use crate::routes::{self, Control, ControlRoute};
use crate::store::Store;
use crate::webhook::{Client, Delivery, Outcome, Pool};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_base::{Lsn, Millis};
use thalweg_http::{Context, Pending, Poll, Reply, Request, Waker};
use thalweg_log::Logs;
use thalweg_streams::{StreamState, Streams};

/// Serves the paths below `__ds/subscriptions/` and `__ds/jwks.json`.
pub struct Subscriptions {
    shared: Arc<Shared>,
    streams: Arc<Streams>,
    config: SubscriptionsConfig,
    jwks: serde_json::Value,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    filled: Condvar,
    stats: Mutex<Stats>,
}

#[derive(Default)]
struct Inbox {
    requests: VecDeque<(Control, Arc<Slot>)>,
    results: VecDeque<(Delivery, Outcome)>,
    /// Something may have become durable.
    news: bool,
    stopping: bool,
}

#[derive(Default)]
struct Slot(Mutex<(Option<Answer>, Option<Waker>)>);

impl Subscriptions {
    /// Loads the subscriptions stored in `logs`, and starts. `clock` is the time; `random` gives random numbers.
    pub fn open(
        logs: Arc<Logs<StreamState>>,
        streams: Arc<Streams>,
        config: SubscriptionsConfig,
        keys: Keys,
        clock: fn() -> Millis,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Arc<Self>, OpenError> {
        let shared =
            Arc::new(Shared { inbox: Mutex::default(), filled: Condvar::new(), stats: Mutex::new(Stats::default()) });
        let keys = Arc::new(keys);
        let jwks = keys.jwks();
        let news = Arc::downgrade(&shared);
        streams.observe(Arc::new(move || {
            if let Some(shared) = news.upgrade() {
                shared.inbox.lock().news = true;
                shared.filled.notify_one();
            }
        }));
        let store = Store::new(logs, Arc::clone(&streams));
        let core = Core::open(store, Arc::clone(&streams), config.clone(), Arc::clone(&keys), random)?;
        let results = Arc::downgrade(&shared);
        let report = Arc::new(move |delivery, outcome| {
            if let Some(shared) = results.upgrade() {
                shared.inbox.lock().results.push_back((delivery, outcome));
                shared.filled.notify_one();
            }
        });
        let pool = Pool::new(config.deliveries_max, Client::new(config.targets), keys, clock, report);
        let driver = Driver { shared: Arc::clone(&shared), core, pool, streams: Arc::clone(&streams), clock };
        let thread = std::thread::Builder::new().name("subscriptions".into()).spawn(move || driver.run());
        let thread = Mutex::new(Some(thread.map_err(OpenError::Thread)?));
        Ok(Arc::new(Self { shared, streams, config, jwks, thread }))
    }

    /// Whether a path is ours.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        self.rest(path)
            .is_some_and(|rest| rest == "jwks.json" || rest == "subscriptions" || rest.starts_with("subscriptions/"))
    }

    fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(self.config.prefix.as_str())?.strip_prefix("__ds/")
    }

    /// Answers one request. Never waits.
    pub fn handle(&self, request: &Request<'_>, _cx: &mut Context<'_>) -> Reply {
        let rest = self.rest(request.path).unwrap_or_default();
        let read = routes::read(request, rest, &self.config, &self.streams);
        match read {
            Err(refusal) => Reply::Now(routes::refusal(&refusal)),
            Ok(ControlRoute::Preflight) => Reply::Now(routes::preflight()),
            Ok(ControlRoute::Jwks) => Reply::Now(routes::jwks(&self.jwks)),
            Ok(ControlRoute::Control(control)) => {
                let slot = Arc::new(Slot::default());
                let mut inbox = self.shared.inbox.lock();
                if inbox.stopping || inbox.requests.len() >= self.config.queue_max {
                    return Reply::Now(routes::refusal(&Refusal::Busy));
                }
                inbox.requests.push_back((control, Arc::clone(&slot)));
                drop(inbox);
                self.shared.filled.notify_one();
                Reply::Later(Box::new(Waiting(slot)))
            }
        }
    }

    /// Figures for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *self.shared.stats.lock()
    }

    /// Stops the driver. Deliveries under way are not waited for: they are made again after the next start.
    pub fn stop(&self) {
        self.shared.inbox.lock().stopping = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the subscriptions has panicked");
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A request that the driver has not answered yet.
struct Waiting(Arc<Slot>);

impl Pending for Waiting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        let mut slot = self.0.0.lock();
        match slot.0.take() {
            Some(answer) => Poll::Ready(Reply::Held(answer.after.into(), routes::response(answer))),
            // The request may still take effect.
            None if cx.stopping() => Poll::Ready(Reply::Now(routes::refusal(&Refusal::Busy))),
            None => {
                slot.1 = Some(cx.waker());
                Poll::Wait
            }
        }
    }
}

struct Driver {
    shared: Arc<Shared>,
    core: Core,
    pool: Pool,
    streams: Arc<Streams>,
    clock: fn() -> Millis,
}

impl Driver {
    fn run(mut self) {
        // Deliveries that wait until their events are durable.
        let mut held: Vec<(Lsn, Delivery)> = Vec::new();
        let mut next = Millis::ZERO;
        loop {
            let (requests, results) = {
                let mut inbox = self.shared.inbox.lock();
                let idle = |inbox: &Inbox| {
                    inbox.requests.is_empty() && inbox.results.is_empty() && !inbox.news && !inbox.stopping
                };
                if idle(&inbox) {
                    let wait = next.since((self.clock)());
                    let wait = if held.is_empty() { wait } else { wait.min(5) };
                    self.shared.filled.wait_for(&mut inbox, Duration::from_millis(wait));
                }
                if inbox.stopping {
                    return;
                }
                inbox.news = false;
                (std::mem::take(&mut inbox.requests), std::mem::take(&mut inbox.results))
            };
            let now = (self.clock)();
            // Reports of streams first: a client that knows of a durable append finds it here.
            self.core.learn(&self.streams.take_changes(), now);
            for (delivery, outcome) in results {
                self.core.delivered(&delivery, &outcome, now);
            }
            for (control, slot) in requests {
                let answer = self.core.answer(&control, now);
                let waker = {
                    let mut slot = slot.0.lock();
                    slot.0 = Some(answer);
                    slot.1.take()
                };
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            next = self.core.step(now);
            self.core.kick();
            held.append(&mut self.core.deliveries);
            let durable = self.core.durable();
            for (_, delivery) in held.extract_if(.., |(after, _)| *after <= durable) {
                self.pool.send(delivery);
            }
            *self.shared.stats.lock() = self.core.stats;
        }
    }
}
