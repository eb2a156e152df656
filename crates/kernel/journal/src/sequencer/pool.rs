//! Threads that take the writer's steps of many journals.
//!
//! A journal with work takes a thread and keeps it while it is busy; one that has paused gives it back. So an idle
//! journal has none. If all threads are taken and journals wait, each thread goes on to the next journal after every
//! step.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(2);

/// Work that a pool's thread takes.
pub(crate) trait Work: Send + Sync + 'static {
    /// Takes steps until there is nothing to do, or until others wait. `true` if there is more: then it is called
    /// again.
    fn work(&self) -> bool;

    /// Called after a panic of `work`, before `leave`. The step that panicked is not done.
    fn fail(&self);

    /// The work has ended by itself or by a panic.
    fn leave(self: Arc<Self>);
}

/// Threads that the writers of journals share. A clone is the same pool; its threads end when the last clone is dropped
/// and nothing is left to do.
#[derive(Clone)]
pub struct WriterPool {
    life: Arc<Life>,
}

struct Life(Arc<Shared>);

/// Starts a thread of the pool.
type Spawn = fn(&Arc<Shared>) -> io::Result<()>;

struct Shared {
    threads_max: usize,
    spawn: Spawn,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<dyn Work>>,
    threads: usize,
    idle: usize,
    /// The last attempt to start a thread failed.
    is_short: bool,
    stopped: bool,
}

impl WriterPool {
    /// A pool of at most `threads_max` threads, at least one. The first is started here, and stays.
    pub fn start(threads_max: usize) -> io::Result<Self> {
        let pool = Self::without_threads(threads_max, Shared::start_thread);
        pool.life.0.state.lock().threads = 1;
        Shared::start_thread(&pool.life.0)?;
        Ok(pool)
    }

    fn without_threads(threads_max: usize, spawn: Spawn) -> Self {
        let threads_max = threads_max.max(1);
        let shared = Shared { threads_max, spawn, state: Mutex::default(), changed: Condvar::new() };
        Self { life: Arc::new(Life(Arc::new(shared))) }
    }

    /// How many threads there are now.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.life.0.state.lock().threads
    }

    pub(crate) fn submit(&self, work: Arc<dyn Work>) {
        let shared = &self.life.0;
        let mut state = shared.state.lock();
        state.waiting.push_back(work);
        if state.waiting.len() <= state.idle {
            shared.changed.notify_one();
        } else if state.threads < shared.threads_max {
            state.threads += 1;
            drop(state);
            let spawned = (shared.spawn)(shared);
            let mut state = shared.state.lock();
            state.is_short = spawned.is_err();
            if let Err(error) = spawned {
                // The running threads take the work: the first one never ends.
                state.threads -= 1;
                tracing::warn!(%error, "another writer thread for journals could not be started");
            }
        }
    }

    /// Whether journals wait, no thread is free for them, and no further thread can be started.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.life.0.state.lock();
        state.waiting.len() > state.idle && (state.is_short || state.threads >= self.life.0.threads_max)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.state.lock().stopped = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn start_thread(shared: &Arc<Self>) -> io::Result<()> {
        let run = Arc::clone(shared);
        std::thread::Builder::new().name("journal".into()).spawn(move || run.run()).map(|_| ())
    }

    fn run(&self) {
        while let Some(work) = self.next() {
            let again = catch_unwind(AssertUnwindSafe(|| work.work())).unwrap_or_else(|_| {
                tracing::error!("the journal's writer panicked");
                // The panic may come from a subscriber, and `fail` calls subscribers, too.
                let _ = catch_unwind(AssertUnwindSafe(|| work.fail()));
                false
            });
            if again {
                self.state.lock().waiting.push_back(work);
            } else {
                work.leave();
            }
        }
    }

    /// The work that has waited longest; `None` if this thread is to end.
    fn next(&self) -> Option<Arc<dyn Work>> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                return Some(work);
            }
            if state.stopped {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let timed_out = self.changed.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.waiting.is_empty() && state.threads > 1 {
                state.threads -= 1;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Idle;

    impl Work for Idle {
        fn work(&self) -> bool {
            false
        }
        fn fail(&self) {}
        fn leave(self: Arc<Self>) {}
    }

    #[test]
    fn a_pool_that_can_start_no_further_thread_is_crowded() {
        let pool = WriterPool::without_threads(8, |_| Err(io::ErrorKind::WouldBlock.into()));
        // The one thread that there is has work.
        pool.life.0.state.lock().threads = 1;
        assert!(!pool.is_crowded());
        pool.submit(Arc::new(Idle));
        assert!(pool.is_crowded(), "a busy journal lets the others have its thread");
        assert_eq!(pool.threads(), 1);
    }
}
