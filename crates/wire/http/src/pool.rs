//! A few threads for work that waits for a device. The queue is bounded: when it is full, the read is refused, not
//! delayed.
//!
//! A job may also go in steps: while it waits for something that is far away it holds no thread, and its place in the
//! bound.

use super::Waker;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use thalweg_base::Step;

type Job = Box<dyn FnOnce() + Send>;

/// Dropping the pool finishes queued jobs and joins its threads.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    jobs_max: usize,
    /// It has no threads: its owner does the jobs.
    is_driven: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs in steps that are not done.
    in_steps: usize,
    stopping: bool,
}

impl Pool {
    /// `name`: of the threads, as system tools show it.
    pub fn new(name: &str, threads: usize, jobs_max: usize) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::default(), filled: Condvar::new() });
        let spawn = |n: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("{name}-{n}")).spawn(move || shared.work()).ok()
        };
        let threads = (0..threads.max(1)).filter_map(spawn).collect();
        Self { shared, threads, jobs_max, is_driven: false }
    }

    /// A pool without threads: its owner calls [`Pool::turn`]. For simulations, in which one thread plays all parts.
    #[must_use]
    pub fn driven(jobs_max: usize) -> Self {
        let shared = Arc::new(Shared { queue: Mutex::default(), filled: Condvar::new() });
        Self { shared, threads: Vec::new(), jobs_max, is_driven: true }
    }

    /// Does one queued job, or one step of it, on the calling thread; whether there was one.
    pub fn turn(&self) -> bool {
        let job = self.shared.queue.lock().jobs.pop_front();
        job.map(|job| job()).is_some()
    }

    /// Nobody would do a job.
    fn is_dead(&self) -> bool {
        self.threads.is_empty() && !self.is_driven
    }

    /// Runs `job` on a thread of the pool. `None`: too many wait already.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<Fetch<T>> {
        let (promise, fetch) = Fetch::promise();
        let mut queue = self.shared.queue.lock();
        if queue.jobs.len() >= self.jobs_max || self.is_dead() {
            return None;
        }
        queue.jobs.push_back(Box::new(move || promise.keep(job())));
        drop(queue);
        self.shared.filled.notify_one();
        Some(fetch)
    }

    /// Takes the steps of `job` on threads of the pool until it is done, or until its result is dropped. `None`: too
    /// many jobs wait already, in the queue or for their tickets.
    pub fn steps<T: Send + 'static>(&self, mut job: impl FnMut() -> Step<T> + Send + 'static) -> Option<Fetch<T>> {
        let (promise, fetch) = Fetch::promise();
        let mut promise = Some(promise);
        let step = move || {
            if !promise.as_ref().is_some_and(Promise::is_awaited) {
                return Step::Done(None);
            }
            job().map(|value| promise.take().map(|promise| (promise, value)))
        };
        let end = |kept: Option<(Promise<T>, T)>| kept.into_iter().for_each(|(promise, value)| promise.keep(value));
        self.begin(step, end).then_some(fetch)
    }

    /// Takes the steps of `job` on threads of the pool until it is done; `end` then gets its value, when its place is
    /// free again. `false`: too many jobs wait already, in the queue or for their tickets.
    pub fn begin<T: 'static>(
        &self,
        job: impl FnMut() -> Step<T> + Send + 'static,
        end: impl FnOnce(T) + Send + 'static,
    ) -> bool {
        self.place().map(|place| place.begin(job, end)).is_some()
    }

    /// A place for a job in steps, for a caller that makes the job only if there is a place. `None`: too many jobs wait
    /// already, in the queue or for their tickets.
    pub fn place(&self) -> Option<Place> {
        let mut queue = self.shared.queue.lock();
        let is_full = queue.jobs.len() >= self.jobs_max || queue.in_steps >= self.jobs_max + self.threads.len();
        if is_full || self.is_dead() {
            return None;
        }
        queue.in_steps += 1;
        drop(queue);
        Some(Place(Arc::clone(&self.shared)))
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

/// A job's share of the pool's bound, until it is dropped.
#[must_use]
pub struct Place(Arc<Shared>);

impl Place {
    /// Takes the steps of `job` on threads of the pool until it is done; `end` then gets its value, when this place is
    /// free again.
    pub fn begin<T: 'static>(
        self,
        job: impl FnMut() -> Step<T> + Send + 'static,
        end: impl FnOnce(T) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.0);
        shared.resume(Box::new(move || take_step(self, job, end)));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.queue.lock().in_steps -= 1;
    }
}

fn take_step<T: 'static>(
    place: Place,
    mut job: impl FnMut() -> Step<T> + Send + 'static,
    end: impl FnOnce(T) + Send + 'static,
) {
    match job() {
        Step::Done(value) => {
            drop(place);
            end(value);
        }
        Step::Wants(ticket) => {
            let shared = Arc::clone(&place.0);
            ticket.then(move |()| shared.resume(Box::new(move || take_step(place, job, end))));
        }
    }
}

impl Shared {
    /// Queues a step of a job. A stopped pool drops the job.
    fn resume(&self, job: Job) {
        let mut queue = self.queue.lock();
        if queue.stopping {
            // A job gives its place back, which needs the lock.
            drop(queue);
            return;
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.filled.notify_one();
    }

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

/// The future value of a pool's job.
pub struct Fetch<T>(Arc<Mutex<Slot<T>>>);

/// The sender of a [`Fetch`]'s value.
pub struct Promise<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Promise<T> {
    /// Whether the value still has a waiting receiver.
    pub fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Delivers the value to the waiting task.
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

    /// The value, if it has arrived; otherwise `waker` is woken when it arrives.
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
    use thalweg_base::{Completer, Ticket};

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

    /// A job that waits for `count` tickets, one after the other. The channel returns each ticket when its step is
    /// taken.
    fn waiting_job(count: usize) -> (impl FnMut() -> Step<usize> + Send, mpsc::Receiver<Completer<()>>) {
        let (send, tickets) = mpsc::channel();
        let mut steps = 0;
        let job = move || {
            if steps == count {
                return Step::Done(steps);
            }
            steps += 1;
            let (ticket, completer) = Ticket::pending();
            send.send(completer).unwrap_or(());
            Step::Wants(ticket)
        };
        (job, tickets)
    }

    fn wait<T>(fetch: &Fetch<T>) -> T {
        let (woken, wakes) = mpsc::channel();
        loop {
            let woken = woken.clone();
            match fetch.take(|| Waker::from_fn(move || woken.send(()).unwrap_or(()))) {
                Some(value) => return value,
                None => wakes.recv().unwrap(),
            }
        }
    }

    #[test]
    fn jobs_that_wait_for_tickets_hold_no_thread() {
        let pool = Pool::new("test", 1, 100);
        let (fetches, tickets): (Vec<_>, Vec<_>) = (0..100)
            .map(|_| {
                let (job, tickets) = waiting_job(2);
                (pool.steps(job).unwrap(), tickets)
            })
            .unzip();
        for _ in 0..2 {
            let all: Vec<_> = tickets.iter().map(|tickets| tickets.recv().unwrap()).collect();
            assert_eq!(wait(&pool.run(|| 7).unwrap()), 7, "the one thread is free");
            all.into_iter().rev().for_each(|ticket| ticket.complete(()));
        }
        assert!(fetches.iter().all(|fetch| wait(fetch) == 2));
    }

    #[test]
    fn jobs_that_wait_for_tickets_count_as_waiting() {
        let pool = Pool::new("test", 1, 1);
        let (job, tickets) = waiting_job(1);
        let fetch = pool.steps(job).unwrap();
        let ticket = tickets.recv().unwrap();
        let (second, more) = waiting_job(1);
        let second = pool.steps(second).unwrap();
        let last = more.recv().unwrap();
        assert!(pool.steps(waiting_job(0).0).is_none());
        ticket.complete(());
        assert_eq!(wait(&fetch), 1);
        assert_eq!(wait(&pool.steps(waiting_job(0).0).unwrap()), 0, "there is room again");
        last.complete(());
        assert_eq!(wait(&second), 1);
    }

    #[test]
    fn a_job_that_nobody_waits_for_is_given_up() {
        let pool = Pool::new("test", 1, 2);
        let (job, tickets) = waiting_job(2);
        let fetch = pool.steps(job).unwrap();
        let ticket = tickets.recv().unwrap();
        drop(fetch);
        ticket.complete(());
        assert!(tickets.recv().is_err(), "no further step was taken, and the job is gone");
        let (job, tickets) = waiting_job(1);
        let _fetch = pool.steps(job).unwrap();
        let ticket = tickets.recv().unwrap();
        drop(pool);
        ticket.complete(());
        assert!(tickets.recv().is_err(), "a pool that has stopped takes no step");
    }

    #[test]
    fn a_pool_without_threads_does_a_job_in_its_owners_turns() {
        let pool = Pool::driven(4);
        let (job, tickets) = waiting_job(1);
        let fetch = pool.steps(job).unwrap();
        assert!(pool.turn() && !pool.turn(), "the job waits for its ticket");
        tickets.recv().unwrap().complete(());
        assert!(pool.turn() && !pool.turn());
        assert_eq!(wait(&fetch), 1);
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
