//! The thread that owns the core, and the ways in to it.

pub use crate::core::Stats;

use crate::config::SubscriptionsConfig;
use crate::core::{Answer, Core};
use crate::error::{OpenError, Refusal};
use crate::keys::Keys;
use crate::routes::{self, Command, Control, ControlRoute};
use crate::store::{Store, Stored};
use crate::watched::Watched;
use crate::webhook::{Client, Delivery, Outcome, Pool, Teller};
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_base::{Lsn, Millis};
use thalweg_http::{Context, Pending, Poll, Reply, Request, Waker};
use thalweg_log::Logs;
use thalweg_streams::{StreamState, Streams};

/// The unit of subscriptions beside a data folder.
pub const MAIN: u64 = 0;
/// How many requests may wait for news of their streams, see [`NEWS_WITHIN`].
const ASKED_MAX: usize = 4_096;
/// How long a request waits until all streams were asked where they end, in milliseconds.
const NEWS_WITHIN: u64 = 8_000;
/// How often logs that cannot be read are tried again when a unit is taken, and the pause before each time.
const READ_AGAIN: u32 = 10;
const READ_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait of the driver while something waits for a journal.
const HELD_LOOK_EVERY: u64 = 5;

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
    /// Units whose subscriptions are owned, or are about to be.
    units: BTreeSet<u64>,
    moves: VecDeque<Move>,
    requests: VecDeque<(Control, Arc<Slot>)>,
    results: VecDeque<(Delivery, Outcome)>,
    /// Something may have become durable, or known.
    news: bool,
    stopping: bool,
}

/// A unit that comes or goes.
enum Move {
    Join(Prepared),
    Leave(u64),
}

/// The subscriptions of a unit of nodes, read before it is served.
pub struct Prepared {
    store: Arc<Store>,
    stored: Vec<Stored>,
    damaged: BTreeSet<String>,
}

#[derive(Default)]
struct Slot(Mutex<(Option<Reply>, Option<Waker>)>);

impl Slot {
    fn fill(&self, reply: Reply) {
        let waker = {
            let mut slot = self.0.lock();
            slot.0 = Some(reply);
            slot.1.take()
        };
        waker.into_iter().for_each(|waker| waker.wake());
    }

    fn refuse(&self, refusal: &Refusal) {
        self.fill(Reply::Now(routes::refusal(refusal)));
    }
}

impl Subscriptions {
    /// Loads the subscriptions stored in `logs`, beside the streams of a data folder, and starts. `clock` is the time;
    /// `random` gives random numbers.
    pub fn open(
        logs: Arc<Logs<StreamState>>,
        streams: Arc<Streams>,
        config: SubscriptionsConfig,
        keys: Keys,
        clock: fn() -> Millis,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Arc<Self>, OpenError> {
        let store = Store::new(MAIN, logs, Some(Arc::clone(&streams)));
        let stored = store.recover()?;
        let watched: Arc<dyn Watched> = Arc::clone(&streams) as _;
        let mut core = Core::new(Arc::clone(&watched), config.clone(), Arc::new(keys), random);
        core.join(store, stored, BTreeSet::new(), clock());
        Self::start(core, streams, watched, config, None, clock)
    }

    /// Starts without subscriptions, on a node: those of each unit come with [`Subscriptions::join`]. `watched` are the
    /// streams of all nodes; `teller` appends to wake streams; `streams` are those of this node.
    pub fn on_node(
        streams: Arc<Streams>,
        watched: Arc<dyn Watched>,
        teller: Teller,
        config: SubscriptionsConfig,
        keys: Keys,
        clock: fn() -> Millis,
        random: Box<dyn FnMut() -> u64 + Send>,
    ) -> Result<Arc<Self>, OpenError> {
        let core = Core::new(Arc::clone(&watched), config.clone(), Arc::new(keys), random);
        Self::start(core, streams, watched, config, Some(teller), clock)
    }

    fn start(
        core: Core,
        streams: Arc<Streams>,
        watched: Arc<dyn Watched>,
        config: SubscriptionsConfig,
        teller: Option<Teller>,
        clock: fn() -> Millis,
    ) -> Result<Arc<Self>, OpenError> {
        let inbox = Inbox { units: core.units().collect(), ..Inbox::default() };
        let shared =
            Arc::new(Shared { inbox: Mutex::new(inbox), filled: Condvar::new(), stats: Mutex::new(Stats::default()) });
        let keys = Arc::clone(core.keys());
        let jwks = keys.jwks();
        let news = Arc::downgrade(&shared);
        watched.observe(Arc::new(move || {
            if let Some(shared) = news.upgrade() {
                shared.inbox.lock().news = true;
                shared.filled.notify_one();
            }
        }));
        let results = Arc::downgrade(&shared);
        let report = Arc::new(move |delivery, outcome| {
            if let Some(shared) = results.upgrade() {
                shared.inbox.lock().results.push_back((delivery, outcome));
                shared.filled.notify_one();
            }
        });
        let pool = Pool::new(config.deliveries_max, (Client::new(config.targets), teller), keys, clock, report);
        let shared_too = Arc::clone(&shared);
        let driver = Driver {
            shared: shared_too,
            core,
            pool,
            watched,
            clock,
            asked: VecDeque::new(),
            answers: Vec::new(),
            held: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("subscriptions".into()).spawn(move || driver.run());
        let thread = Mutex::new(Some(thread.map_err(OpenError::Thread)?));
        Ok(Arc::new(Self { shared, streams, config, jwks, thread }))
    }

    /// Reads the subscriptions of a unit of nodes that was taken, and that nobody writes to yet. May wait for the bucket.
    #[must_use]
    pub fn prepare(unit: u64, logs: Arc<Logs<StreamState>>) -> Prepared {
        let store = Store::new(unit, logs, None);
        let left = Cell::new(READ_AGAIN);
        let again = || {
            std::thread::sleep(READ_PAUSE);
            left.replace(left.get().saturating_sub(1)) > 0
        };
        let (stored, unread) = store.recover_each(&again);
        for (id, error) in &unread {
            tracing::error!(unit, id, error = format!("{error:#}"), "a subscription cannot be read, and is not served");
        }
        Prepared { store, stored, damaged: unread.into_iter().map(|(id, _)| id).collect() }
    }

    /// Serves the subscriptions of a unit of nodes from now on.
    pub fn join(&self, prepared: Prepared) {
        let mut inbox = self.shared.inbox.lock();
        inbox.units.insert(prepared.store.unit);
        inbox.moves.push_back(Move::Join(prepared));
        drop(inbox);
        self.shared.filled.notify_one();
    }

    /// Serves the subscriptions of a unit no longer.
    pub fn leave(&self, unit: u64) {
        let mut inbox = self.shared.inbox.lock();
        if inbox.units.remove(&unit) {
            inbox.moves.push_back(Move::Leave(unit));
            drop(inbox);
            self.shared.filled.notify_one();
        }
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

    /// The unit of nodes that has the subscription which a path names; `None` if the path names none.
    #[must_use]
    pub fn unit_of(&self, path: &str) -> Option<u64> {
        let id = routes::id_of(self.rest(path)?)?;
        Some(self.streams.first_unit_of_name(&crate::store::name(&id)))
    }

    /// Answers one request in a unit of nodes; `None` if its subscriptions are not served here. Never waits.
    pub fn handle_in(&self, unit: u64, request: &Request<'_>, _cx: &mut Context<'_>) -> Option<Reply> {
        let is_here = self.shared.inbox.lock().units.contains(&unit);
        is_here.then(|| self.answer(unit, request))
    }

    /// Answers one request beside a data folder, or one that is not about a subscription. Never waits.
    pub fn handle(&self, request: &Request<'_>, _cx: &mut Context<'_>) -> Reply {
        self.answer(MAIN, request)
    }

    fn answer(&self, unit: u64, request: &Request<'_>) -> Reply {
        let rest = self.rest(request.path).unwrap_or_default();
        let read = routes::read(request, rest, unit, &self.config);
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
            Some(reply) => Poll::Ready(reply),
            // The request may still take effect.
            None if cx.stopping() => Poll::Ready(Reply::Now(routes::refusal(&Refusal::Busy))),
            None => {
                slot.1 = Some(cx.waker());
                Poll::Wait
            }
        }
    }
}

/// A request that waits until all streams were asked where they end.
struct Asked {
    mark: u64,
    until: u64,
    control: Control,
    slot: Arc<Slot>,
}

struct Driver {
    shared: Arc<Shared>,
    core: Core,
    pool: Pool,
    watched: Arc<dyn Watched>,
    clock: fn() -> Millis,
    /// In the order of their marks.
    asked: VecDeque<Asked>,
    /// Answers on nodes that wait for the journal of their unit.
    answers: Vec<(Arc<Store>, Answer, Arc<Slot>)>,
    /// Deliveries that wait until their events are durable.
    held: Vec<(Arc<Store>, Lsn, Delivery)>,
}

impl Driver {
    fn run(mut self) {
        let mut next = Millis::ZERO;
        loop {
            let (moves, requests, results) = {
                let mut inbox = self.shared.inbox.lock();
                let is_idle = inbox.requests.is_empty() && inbox.results.is_empty() && inbox.moves.is_empty();
                if is_idle && !inbox.news && !inbox.stopping {
                    let wait = next.since((self.clock)());
                    let is_held = !self.held.is_empty() || !self.answers.is_empty();
                    let wait = if is_held { wait.min(HELD_LOOK_EVERY) } else { wait };
                    self.shared.filled.wait_for(&mut inbox, Duration::from_millis(wait));
                }
                if inbox.stopping {
                    return;
                }
                inbox.news = false;
                let moves = std::mem::take(&mut inbox.moves);
                (moves, std::mem::take(&mut inbox.requests), std::mem::take(&mut inbox.results))
            };
            let now = (self.clock)();
            for moved in moves {
                self.follow(moved, now);
            }
            // Asked before the reports are taken: these hold everything up to the mark.
            let passed = self.watched.passed();
            // Reports of streams first: a client that knows of a durable append finds it here.
            self.core.learn(&self.watched.take_changes(), now);
            for (delivery, outcome) in results {
                self.core.delivered(&delivery, &outcome, now);
            }
            self.answer_asked(passed, now);
            for (control, slot) in requests {
                if passed == u64::MAX || !self.core.needs_news(&control) {
                    self.answer(&control, slot, now);
                } else {
                    self.ask(control, slot, now.plus(NEWS_WITHIN).0);
                }
            }
            next = self.core.step(now);
            self.core.kick();
            self.release();
            *self.shared.stats.lock() = self.core.stats;
        }
    }

    fn follow(&mut self, moved: Move, now: Millis) {
        match moved {
            Move::Join(Prepared { store, stored, damaged }) => self.core.join(store, stored, damaged, now),
            Move::Leave(unit) => {
                self.core.leave(unit);
                // The next owner answers what has not begun.
                self.asked.retain(|asked| {
                    let stays = asked.control.unit != unit;
                    if !stays {
                        asked.slot.refuse(&Refusal::NotHere);
                    }
                    stays
                });
                self.held.retain(|(store, ..)| store.unit != unit);
                for (_, _, slot) in self.answers.extract_if(.., |(store, ..)| store.unit == unit) {
                    slot.refuse(&unconfirmed());
                }
            }
        }
    }

    fn ask(&mut self, control: Control, slot: Arc<Slot>, until: u64) {
        if self.asked.len() >= ASKED_MAX {
            return slot.refuse(&Refusal::Busy);
        }
        if let Some(wish) = Core::wish_of(&control) {
            self.core.want(wish);
        }
        let mark = self.watched.mark();
        self.asked.push_back(Asked { mark, until, control, slot });
    }

    /// Answers the requests that have waited for news long enough.
    fn answer_asked(&mut self, passed: u64, now: Millis) {
        for asked in std::mem::take(&mut self.asked) {
            let Asked { mark, until, control, slot } = asked;
            // Again: when the last subscription goes nothing is wanted any more.
            let wish = Core::wish_of(&control).map_or(0, |wish| self.watched.want(wish));
            let is_known = mark <= passed && self.watched.is_complete() && self.watched.has_answered(wish);
            if is_known {
                self.answer(&control, slot, now);
            } else if now.0 < until {
                // What was passed while a unit had no owner says too little.
                let mark = if mark <= passed { self.watched.mark() } else { mark };
                self.asked.push_back(Asked { mark, until, control, slot });
            } else if matches!(control.command, Command::Get) {
                self.answer(&control, slot, now);
            } else {
                let why = "not all nodes say where their streams end";
                slot.refuse(&Refusal::Unavailable(why.into()));
            }
        }
    }

    fn answer(&mut self, control: &Control, slot: Arc<Slot>, now: Millis) {
        let Some(store) = self.core.store(control.unit).cloned() else {
            return slot.refuse(&Refusal::NotHere);
        };
        let answer = self.core.answer(control, now);
        if store.streams().is_some() {
            // The event loop's gate counts the positions of its journal.
            slot.fill(Reply::Held(answer.after.into(), routes::response(answer)));
        } else {
            self.answers.push((store, answer, slot));
        }
    }

    /// Lets go what is durable.
    fn release(&mut self) {
        self.held.append(&mut self.core.deliveries);
        for (_, _, delivery) in self.held.extract_if(.., |(store, after, _)| *after <= store.durable()) {
            self.pool.send(delivery);
        }
        for (store, answer, slot) in
            self.answers.extract_if(.., |(store, answer, _)| answer.after <= store.durable() || store.is_over())
        {
            if answer.after <= store.durable() {
                slot.fill(Reply::Now(routes::response(answer)));
            } else {
                slot.refuse(&unconfirmed());
            }
        }
    }
}

/// The refusal of a change whose unit another node has taken before it was durable.
fn unconfirmed() -> Refusal {
    let why = "the subscription has moved to another node, and the change may or may not have happened";
    Refusal::Unavailable(why.into())
}
