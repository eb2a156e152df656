//! Who asks Postgres, and how many at once: jobs in a bounded queue, threads with a connection each.
//!
//! Threads and connections are made when they are needed and go when they were idle for a while, but for one that stays: a new server process
//! has to read the catalog before it can answer, which takes longer than most of what it is asked. While Postgres cannot be reached jobs
//! fail at once, except one now and then that tries again; nothing piles up.

mod health;
mod worker;

pub(crate) use health::Health;

use super::cancel::Cancel;
use super::error::SourceError;
use super::session::{Endpoint, Session};
use health::Way;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_wire::http::Fetch;

/// Jobs that wait, at most.
const JOBS_MAX: usize = 20_000;
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
        let mut state = self.shared.state.lock();
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
        Ok(cancel)
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

    pub(crate) fn health(&self) -> Health {
        self.shared.state.lock().way.health()
    }

    pub(crate) fn stats(&self) -> PoolStats {
        let state = self.shared.state.lock();
        PoolStats { connections: state.connected, waiting: state.jobs.len() }
    }

    fn workers_max(&self, state: &State) -> usize {
        state.way.connections_max(self.shared.options.connections.max(1), std::time::Instant::now())
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

impl Drop for Pool {
    fn drop(&mut self) {
        let (jobs, running, threads) = {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            (std::mem::take(&mut state.jobs), state.running.clone(), std::mem::take(&mut state.threads))
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
