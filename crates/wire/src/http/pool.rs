//! A few threads for work that waits for a device. The queue is bounded: when it is full, the read is refused, not delayed.

use super::Waker;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// Dropped, it finishes what is queued and joins its threads.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    jobs_max: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    stopping: bool,
}

impl Pool {
    /// `name`: of the threads, for who looks at them from outside.
    pub fn new(name: &str, threads: usize, jobs_max: usize) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::default(), filled: Condvar::new() });
        let spawn = |n: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("{name}-{n}")).spawn(move || shared.work()).ok()
        };
        let threads = (0..threads.max(1)).filter_map(spawn).collect();
        Self { shared, threads, jobs_max }
    }

    /// Runs `job` on a thread of the pool. `None`: too many wait already.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<Fetch<T>> {
        let (promise, fetch) = Fetch::promise();
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= self.jobs_max || self.threads.is_empty() {
            return None;
        }
        queue.jobs.push_back(Box::new(move || promise.keep(job())));
        drop(queue);
        self.shared.filled.notify_one();
        Some(fetch)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().stopping = true;
        self.shared.filled.notify_all();
        let me = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // The last reference may go away on one of the pool's own threads.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a thread for reads has panicked");
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.queue.lock();
            } else if queue.stopping {
                return;
            } else {
                self.filled.wait(&mut queue);
            }
        }
    }
}

/// What a job of a pool will give.
pub struct Fetch<T>(Arc<Mutex<Slot<T>>>);

/// The other end of a [`Fetch`].
pub struct Promise<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Promise<T> {
    /// Gives the value to who waits for it.
    pub fn keep(self, value: T) {
        let waker = {
            let mut slot = self.0.lock();
            slot.value = Some(value);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Fetch<T> {
    /// Both ends, for a job that runs elsewhere.
    pub fn promise() -> (Promise<T>, Self) {
        let slot = Arc::new(Mutex::new(Slot { value: None, waker: None }));
        (Promise(Arc::clone(&slot)), Self(slot))
    }

    /// The value if it is there; else `waker` is woken when it is.
    pub fn take(&self, waker: impl FnOnce() -> Waker) -> Option<T> {
        let mut slot = self.0.lock();
        if slot.value.is_none() {
            slot.waker = Some(waker());
        }
        slot.value.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_job_wakes_who_waits_for_it() {
        let pool = Pool::new("test", 1, 4);
        let (go, gate) = mpsc::channel::<()>();
        let (woken, wakes) = mpsc::channel();
        let fetch = pool.run(move || gate.recv().map(|()| 7)).unwrap();
        let waker = || {
            let woken = woken.clone();
            Waker::from_fn(move || woken.send(()).unwrap_or(()))
        };
        assert!(fetch.take(waker).is_none());
        go.send(()).unwrap();
        wakes.recv().unwrap();
        assert_eq!(fetch.take(waker), Some(Ok(7)));
    }

    #[test]
    fn a_full_queue_refuses() {
        let pool = Pool::new("test", 1, 1);
        let (go, gate) = mpsc::channel::<()>();
        let (begun, started) = mpsc::channel();
        let first = pool.run(move || {
            begun.send(()).unwrap_or(());
            gate.recv().is_ok()
        });
        started.recv().unwrap();
        assert!(first.is_some());
        assert!(pool.run(|| ()).is_some());
        assert!(pool.run(|| ()).is_none());
        go.send(()).unwrap();
    }
}
