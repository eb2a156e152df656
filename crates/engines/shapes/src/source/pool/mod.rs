//! Who asks Postgres, and how many at once: jobs in a bounded queue, threads with a connection each.
//!
//! Threads and connections are made when they are needed and go when they were idle for a while, but for one that stays: a new server process
//! has to read the catalog before it can answer, which takes longer than most of what it is asked. While Postgres cannot be reached jobs
//! fail at once, except one now and then that tries again; nothing piles up.
//!
//! Jobs whose cost clients decide ([`Pool::run_beside`]) get half of the connections at most: the others stay for all else.

mod health;
mod worker;

pub(crate) use health::Health;

use super::cancel::Cancel;
use super::error::SourceError;
use super::session::{Endpoint, Session};
use health::Way;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_wire::http::Fetch;

/// Jobs that wait, at most.
const JOBS_MAX: usize = 20_000;
/// Jobs that wait for the half of the connections that is theirs, at most, and how long: whoever waited longer has gone, or asks again.
const BESIDE_MAX: usize = 1000;
const BESIDE_WAIT: Duration = Duration::from_secs(10);
/// Connections that stay although nobody has used them for long.
pub(crate) const KEPT: usize = 1;

type Job = Box<dyn FnOnce(Result<&mut Session, SourceError>) + Send>;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) endpoint: Endpoint,
    pub(crate) connections: usize,
    pub(crate) jobs_max: usize,
    pub(crate) idle: Duration,
    /// How many stay however long they are idle.
    pub(crate) kept: usize,
}

/// Dropped, it cancels what runs and answers what waits with [`SourceError::Stopped`].
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Queued>,
    /// What may take half of the connections, and waits for one of them, with the time since when.
    beside: VecDeque<(Instant, Queued)>,
    /// How many of those are in `jobs` or run.
    beside_now: usize,
    threads: Vec<JoinHandle<()>>,
    /// Threads that run or wait for jobs.
    workers: usize,
    /// Those of them that wait.
    waiting: usize,
    /// Those of them that have a connection.
    connected: usize,
    /// What runs.
    running: Vec<Arc<Cancel>>,
    way: Way,
    stopping: bool,
}

struct Queued {
    job: Job,
    cancel: Arc<Cancel>,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolStats {
    pub(crate) connections: usize,
    /// Jobs that wait.
    pub(crate) waiting: usize,
}

impl Pool {
    /// `kept`: connections that stay however long they are idle.
    pub(crate) fn new(endpoint: Endpoint, connections: usize, kept: usize) -> Self {
        let idle = endpoint.unused_for;
        Self::with(Options { endpoint, connections, jobs_max: JOBS_MAX, idle, kept })
    }

    pub(crate) fn with(options: Options) -> Self {
        Self { shared: Arc::new(Shared { options, state: Mutex::default(), filled: Condvar::new() }) }
    }

    /// Runs `job` on a thread of the pool, with a connection or with the reason why there is none. What is given back cancels it.
    pub(crate) fn submit(
        &self,
        job: impl FnOnce(Result<&mut Session, SourceError>) + Send + 'static,
    ) -> Result<Arc<Cancel>, SourceError> {
        let cancel = Arc::new(Cancel::new());
        let queued = Queued { job: Box::new(job), cancel: Arc::clone(&cancel) };
        self.queue(self.shared.state.lock(), queued)?;
        Ok(cancel)
    }

    fn queue(&self, mut state: MutexGuard<'_, State>, queued: Queued) -> Result<(), SourceError> {
        let waiting = state.jobs.len();
        if state.stopping || waiting >= self.shared.options.jobs_max {
            return Err(SourceError::Full { waiting });
        }
        state.jobs.push_back(queued);
        if state.waiting < state.jobs.len()
            && state.workers < self.workers_max(&state)
            && !self.spawn(&mut state)
            && state.workers == 0
        {
            state.jobs.pop_back();
            return Err(SourceError::Other("no thread can be started".to_owned()));
        }
        drop(state);
        self.shared.filled.notify_one();
        Ok(())
    }

    /// The same for a job with a value.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(Result<&mut Session, SourceError>) -> T + Send + 'static,
    ) -> Result<Fetch<T>, SourceError> {
        let (promise, fetch) = Fetch::promise();
        self.submit(move |session| promise.keep(job(session)))?;
        Ok(fetch)
    }

    /// The same for a job whose cost a client decides: such jobs have half of the connections at a time, and wait for those.
    /// [`SourceError::Full`]: too many wait, or the job has waited for too long.
    pub(crate) fn run_beside<T: Send + 'static>(
        &self,
        job: impl FnOnce(Result<&mut Session, SourceError>) -> T + Send + 'static,
    ) -> Result<Fetch<T>, SourceError> {
        let (promise, fetch) = Fetch::promise();
        let shared = Arc::clone(&self.shared);
        let job: Job = Box::new(move |session| {
            promise.keep(job(session));
            shared.beside_done();
        });
        let queued = Queued { job, cancel: Arc::new(Cancel::new()) };
        let mut state = self.shared.state.lock();
        let waiting = state.beside.len();
        if state.beside_now < (self.workers_max(&state) / 2).max(1) {
            state.beside_now += 1;
            if let Err(error) = self.queue(state, queued) {
                self.shared.state.lock().beside_now -= 1;
                return Err(error);
            }
        } else if state.stopping || waiting >= BESIDE_MAX {
            return Err(SourceError::Full { waiting });
        } else {
            state.beside.push_back((Instant::now(), queued));
        }
        Ok(fetch)
    }

    pub(crate) fn health(&self) -> Health {
        self.shared.state.lock().way.health()
    }

    pub(crate) fn stats(&self) -> PoolStats {
        let state = self.shared.state.lock();
        PoolStats { connections: state.connected, waiting: state.jobs.len() + state.beside.len() }
    }

    fn workers_max(&self, state: &State) -> usize {
        state.way.connections_max(self.shared.options.connections.max(1), Instant::now())
    }

    fn spawn(&self, state: &mut State) -> bool {
        state.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new().name("shapes-database".into()).spawn(move || worker::work(&shared)) {
            Ok(thread) => {
                state.threads.push(thread);
                state.workers += 1;
                true
            }
            Err(error) => {
                tracing::error!("a thread for queries cannot be started: {error}");
                false
            }
        }
    }
}

impl Shared {
    /// A job of those that have half of the connections has ended: the next of them may run.
    fn beside_done(&self) {
        let mut late = Vec::new();
        let mut state = self.state.lock();
        let waiting = state.beside.len();
        let next = loop {
            match state.beside.pop_front() {
                Some((since, queued)) if since.elapsed() > BESIDE_WAIT => late.push(queued),
                next => break next,
            }
        };
        // Each of them gives its place back, as this one does.
        state.beside_now += late.len();
        match next {
            Some((_, queued)) => state.jobs.push_back(queued),
            None => state.beside_now -= 1,
        }
        drop(state);
        self.filled.notify_one();
        late.into_iter().for_each(|queued| (queued.job)(Err(SourceError::Full { waiting })));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let (jobs, running, threads) = {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            let mut jobs = std::mem::take(&mut state.jobs);
            let beside = std::mem::take(&mut state.beside);
            state.beside_now += beside.len();
            jobs.extend(beside.into_iter().map(|(_, queued)| queued));
            (jobs, state.running.clone(), std::mem::take(&mut state.threads))
        };
        self.shared.filled.notify_all();
        // Each takes a connection of its own.
        std::thread::scope(|scope| running.iter().for_each(|cancel| drop(scope.spawn(|| cancel.cancel()))));
        jobs.into_iter().for_each(|queued| (queued.job)(Err(SourceError::Stopped)));
        let me = std::thread::current().id();
        for thread in threads {
            // The last reference may go away on one of the pool's own threads.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a thread for queries has panicked");
            }
        }
    }
}
