//! The threads that take the turns.

use crate::kind::{Behind, Kind};
use crate::plan::{Done, JobId, KindStats, Options, Pick, Plan};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Why a turn failed.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
type Work = Box<dyn FnMut() -> Result<Done, Error> + Send>;

/// Takes the turns of all jobs. Dropping it leaves the threads alone: call [`Rounds::stop`].
pub struct Rounds {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// Something may have become due.
    changed: Condvar,
    /// Notified when a turn has ended, for a thread that retires the job.
    ended: Condvar,
    began: Instant,
}

struct State {
    plan: Plan,
    work: HashMap<JobId, Owned>,
    stopping: bool,
    /// When a thread wakes up by itself: those that wait beside it need not.
    kept: Option<Duration>,
    wakes: u64,
}

struct Owned {
    /// `None` in its turn.
    work: Option<Work>,
    /// The name of the job's unit, for log lines about failures.
    unit: Arc<str>,
    kind: Kind,
    nudged: Arc<AtomicBool>,
}

/// Nudges one job. Clones are of the same job.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    id: JobId,
    /// Whether nudges take the job for due already.
    nudged: Arc<AtomicBool>,
}

/// Figures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [KindStats; Kind::ALL.len()],
    /// How often a waiting thread woke up and searched for work.
    pub wakes: u64,
    /// Threads that take turns.
    pub threads: usize,
}

impl Rounds {
    /// Starts the threads.
    pub fn start(options: Options) -> std::io::Result<Self> {
        let plan = Plan::new(options);
        let count = plan.options().threads;
        let state = State { plan, work: HashMap::new(), stopping: false, kept: None, wakes: 0 };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            ended: Condvar::new(),
            began: Instant::now(),
        });
        let rounds = Self { shared, threads: Mutex::default() };
        for number in 0..count {
            let shared = Arc::clone(&rounds.shared);
            let thread = std::thread::Builder::new().name(format!("rounds-{number}")).spawn(move || shared.serve());
            rounds.threads.lock().push(thread.inspect_err(|_| rounds.stop())?);
        }
        Ok(rounds)
    }

    /// Adds a job of a unit. Its first turn is due at once; turns of one job never overlap.
    pub fn add(&self, unit: &str, kind: Kind, work: impl FnMut() -> Result<Done, Error> + Send + 'static) -> Handle {
        let nudged = Arc::new(AtomicBool::new(true));
        let mut state = self.shared.state.lock();
        let id = state.plan.add(kind, self.shared.now());
        let owned = Owned { work: Some(Box::new(work)), unit: unit.into(), kind, nudged: Arc::clone(&nudged) };
        state.work.insert(id, owned);
        drop(state);
        self.shared.changed.notify_one();
        Handle { shared: Arc::clone(&self.shared), id, nudged }
    }

    /// Figures since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let state = self.shared.state.lock();
        Stats { kinds: state.plan.stats(), wakes: state.wakes, threads: state.plan.options().threads }
    }

    /// Ends the threads after the turns that they are in. No turn begins after this has returned.
    pub fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of background work panicked");
            }
        }
        // Drops the jobs' references to their units.
        let work = std::mem::take(&mut self.shared.state.lock().work);
        drop(work);
    }
}

impl Handle {
    /// Nudges the job: it has work. Cheap while the job is due already; never waits for a turn.
    pub fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::AcqRel) {
            self.wake(None);
        }
    }

    /// Nudges the job, and says how far it is behind: a job that is due already may become more urgent.
    pub fn nudge_behind(&self, behind: Behind) {
        self.nudged.store(true, Ordering::Release);
        self.wake(Some(behind));
    }

    fn wake(&self, behind: Option<Behind>) {
        self.shared.state.lock().plan.nudge(self.id, behind, self.shared.now());
        self.shared.changed.notify_one();
    }

    /// Takes the job away, after the turn that it is in. For a unit that is closed while others go on: no server does
    /// that yet, tests do.
    pub fn retire(&self) {
        let mut state = self.shared.state.lock();
        while !state.plan.remove(self.id) {
            self.shared.ended.wait(&mut state);
        }
        let work = state.work.remove(&self.id);
        drop(state);
        drop(work);
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return;
            }
            match state.plan.next(self.now()) {
                Pick::Run(id) => state = self.turn(state, id),
                Pick::Wait(until) => self.rest(&mut state, until),
            }
        }
    }

    fn turn<'a>(&'a self, mut state: MutexGuard<'a, State>, id: JobId) -> MutexGuard<'a, State> {
        // During this turn another thread keeps the time, and takes the other turns that are due.
        if state.plan.has_more() {
            self.changed.notify_one();
        }
        let taken = state.work.get_mut(&id).and_then(|owned| {
            // An event from here on needs another turn.
            owned.nudged.store(false, Ordering::Release);
            Some((owned.work.take()?, Arc::clone(&owned.unit), owned.kind))
        });
        let Some((mut work, unit, kind)) = taken else {
            state.plan.done(id, Some(Done::IDLE), self.now());
            return state;
        };
        drop(state);
        let done = work();
        if let Err(error) = &done {
            tracing::warn!(%unit, work = kind.name(), %error, "background work failed and is tried again");
        }
        let mut state = self.state.lock();
        if let Some(owned) = state.work.get_mut(&id) {
            owned.work = Some(work);
        }
        state.plan.done(id, done.ok(), self.now());
        self.ended.notify_all();
        state
    }

    /// Waits for a change; until then at most, unless another thread wakes up before.
    fn rest(&self, state: &mut MutexGuard<'_, State>, until: Option<Duration>) {
        match until {
            Some(until) if state.kept.is_none_or(|kept| until < kept) => {
                state.kept = Some(until);
                self.changed.wait_until(state, self.began + until);
                if state.kept == Some(until) {
                    state.kept = None;
                }
            }
            _ => self.changed.wait(state),
        }
        state.wakes += 1;
    }
}
