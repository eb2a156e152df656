//! A pool of threads with a connection each, which run jobs from a bounded queue.
//!
//! Threads and connections are made on demand and end after an idle time, except one: a new server process must read
//! the catalog before it can answer, which takes longer than most queries. While Postgres is unreachable jobs fail at
//! once, except for an occasional one that tries again, so the queue does not grow.
//!
//! Jobs whose cost depends on clients ([`Pool::run_beside`]) get half of the connections at most; the other half serves
//! all other jobs.

mod health;
mod worker;

pub use health::Health;

use super::cancel::Cancel;
use super::error::SourceError;
use super::session::{Endpoint, Session};
use health::Attempts;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_http::Fetch;

/// The most jobs in the queue.
const JOBS_MAX: usize = 20_000;
/// The most jobs that wait for their half of the connections, and their longest wait: after it the client has gone or
/// asks again.
const BESIDE_MAX: usize = 1000;
const BESIDE_WAIT: Duration = Duration::from_secs(10);
/// Connections that stay open while idle.
pub const KEPT: usize = 1;

/// Work that needs a connection; it gets one, or the reason why there is none.
pub type Job = Box<dyn FnOnce(Result<&mut Session, SourceError>) + Send>;

/// Runs jobs with a connection each.
pub trait Jobs: Send + Sync {
    /// Begins `job` as soon as there is a connection for it, and never waits. The returned handle cancels it.
    fn submit(&self, job: Job) -> Result<Arc<Cancel>, SourceError>;
}

impl Jobs for Pool {
    fn submit(&self, job: Job) -> Result<Arc<Cancel>, SourceError> {
        Self::submit(self, job)
    }
}

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct Options {
    pub endpoint: Endpoint,
    pub connections: usize,
    pub jobs_max: usize,
    pub idle: Duration,
    /// Connections that stay open while idle.
    pub kept: usize,
}

/// Drop cancels running jobs and ends queued ones with [`SourceError::Stopped`].
pub struct Pool {
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
    /// Jobs that wait for their half of the connections, with the time of their arrival.
    beside: VecDeque<(Instant, Queued)>,
    /// The number of such jobs that are in `jobs` or run.
    beside_now: usize,
    threads: Vec<JoinHandle<()>>,
    /// Threads that run or wait for jobs.
    workers: usize,
    /// Number of these jobs that wait.
    waiting: usize,
    /// Number of these jobs that have a connection.
    connected: usize,
    /// The cancellations of running jobs.
    running: Vec<Arc<Cancel>>,
    attempts: Attempts,
    stopping: bool,
}

struct Queued {
    job: Job,
    cancel: Arc<Cancel>,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub connections: usize,
    /// Jobs that wait.
    pub waiting: usize,
}

impl Pool {
    /// `kept`: connections that stay however long they are idle.
    pub fn new(endpoint: Endpoint, connections: usize, kept: usize) -> Self {
        let idle = endpoint.unused_for;
        Self::with(Options { endpoint, connections, jobs_max: JOBS_MAX, idle, kept })
    }

    pub fn with(options: Options) -> Self {
        Self { shared: Arc::new(Shared { options, state: Mutex::default(), filled: Condvar::new() }) }
    }

    /// Runs `job` on a thread of the pool, with a connection or with the reason why there is none. The returned handle
    /// cancels it.
    pub fn submit(
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

    /// [`Pool::submit`] for a job with a result.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(Result<&mut Session, SourceError>) -> T + Send + 'static,
    ) -> Result<Fetch<T>, SourceError> {
        let (promise, fetch) = Fetch::promise();
        self.submit(move |session| promise.keep(job(session)))?;
        Ok(fetch)
    }

    /// [`Pool::run`] for a job whose cost depends on a client: such jobs share half of the connections, and wait for
    /// those. [`SourceError::Full`]: too many jobs wait, or this one has waited for too long.
    pub fn run_beside<T: Send + 'static>(
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
            state.beside.push_back((self.shared.options.endpoint.clock.now(), queued));
        }
        Ok(fetch)
    }

    pub fn health(&self) -> Health {
        self.shared.state.lock().attempts.health()
    }

    pub fn stats(&self) -> PoolStats {
        let state = self.shared.state.lock();
        PoolStats { connections: state.connected, waiting: state.jobs.len() + state.beside.len() }
    }

    fn workers_max(&self, state: &State) -> usize {
        state.attempts.connections_max(self.shared.options.connections.max(1), self.shared.options.endpoint.clock.now())
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
    /// A job of [`Pool::run_beside`] has ended: the next one may run.
    fn beside_done(&self) {
        let clock = &*self.options.endpoint.clock;
        let mut late = Vec::new();
        let mut state = self.state.lock();
        let waiting = state.beside.len();
        let next = loop {
            match state.beside.pop_front() {
                Some((since, queued)) if clock.since(since) > BESIDE_WAIT => late.push(queued),
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
        // Each cancellation takes a connection of its own.
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
