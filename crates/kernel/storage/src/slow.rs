//! A storage far away, for tests and simulations: it answers reads late, out of order or with errors, without a thread
//! per read.
//!
//! Only `read` is late. Objects are created, measured, listed and removed at once, and `read_device` waits for nothing.

use crate::{ObjectWriter, Storage, StorageError};
use bytes::Bytes;
use oorandom::Rand64;
use parking_lot::{Condvar, Mutex};
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thalweg_base::{Completer, ObjectId, Ticket};

/// A storage whose reads are answered by one timer thread, or when a test says so.
pub struct SlowStorage {
    shared: Arc<Shared>,
    timer: Option<JoinHandle<()>>,
}

struct Shared {
    inner: Arc<dyn Storage>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    pace: Pace,
    /// Reads that wait for their answer, the one that is due first on top.
    due: BinaryHeap<Due>,
    /// Every read that was asked for: its place here is its number.
    asked: Vec<(ObjectId, Range<u64>)>,
    in_flight: usize,
    in_flight_max: usize,
    /// Errors of the next answers, in order.
    fail: VecDeque<StorageError>,
    random: Rand64,
    stopped: bool,
}

#[derive(Clone, Copy)]
enum Pace {
    /// Answered by a test.
    Held,
    /// Answered after this time, and up to `spread` later: then answers overtake each other.
    After { delay: Duration, spread: Duration },
}

struct Due {
    at: Option<Instant>,
    number: usize,
    object: ObjectId,
    range: Range<u64>,
    completer: Completer<Result<Bytes, StorageError>>,
}

impl Due {
    /// Reversed: a [`BinaryHeap`] has its greatest on top.
    fn order(&self) -> std::cmp::Reverse<(Option<Instant>, usize)> {
        std::cmp::Reverse((self.at, self.number))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl SlowStorage {
    /// Each read is answered `delay` after it was asked for, or up to `spread` later as `seed` decides.
    ///
    /// # Panics
    ///
    /// If the timer thread cannot be started.
    #[must_use]
    pub fn after(inner: Arc<dyn Storage>, delay: Duration, spread: Duration, seed: u64) -> Self {
        let mut slow = Self::held(inner, seed);
        slow.shared.state.lock().pace = Pace::After { delay, spread };
        let shared = Arc::clone(&slow.shared);
        let timer = thread::Builder::new().name("slow-storage".into()).spawn(move || shared.run_timer());
        slow.timer = Some(timer.unwrap_or_else(|error| panic!("the timer of a slow storage: {error}")));
        slow
    }

    /// Each read waits until [`SlowStorage::answer`] chooses it: no thread and no clock, so that a seed replays a run.
    #[must_use]
    pub fn held(inner: Arc<dyn Storage>, seed: u64) -> Self {
        let state = State {
            pace: Pace::Held,
            due: BinaryHeap::new(),
            asked: Vec::new(),
            in_flight: 0,
            in_flight_max: 0,
            fail: VecDeque::new(),
            random: Rand64::new(u128::from(seed)),
            stopped: false,
        };
        let shared = Shared { inner, state: Mutex::new(state), changed: Condvar::new() };
        Self { shared: Arc::new(shared), timer: None }
    }

    /// Answers one of the held reads, chosen by the seed; whether there was one.
    pub fn answer(&self) -> bool {
        let due = {
            let mut state = self.shared.state.lock();
            let mut all = std::mem::take(&mut state.due).into_vec();
            // The order of a heap's vector depends only on the entries that were pushed, and the seed decides from
            // there.
            let chosen = match all.len() as u64 {
                0 => None,
                n => Some(all.swap_remove(state.random.rand_range(0..n) as usize)),
            };
            state.due = BinaryHeap::from(all);
            chosen
        };
        due.map(|due| self.shared.complete(due)).is_some()
    }

    /// Answers all held reads, and those that their answers lead to.
    pub fn answer_all(&self) {
        while self.answer() {}
    }

    /// The next answer is this error.
    pub fn fail_next(&self, error: StorageError) {
        self.shared.state.lock().fail.push_back(error);
    }

    /// Every read that was asked for, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<(ObjectId, Range<u64>)> {
        self.shared.state.lock().asked.clone()
    }

    /// How many reads wait for their answer now.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.state.lock().in_flight
    }

    /// The most reads that ever waited at once.
    #[must_use]
    pub fn in_flight_max(&self) -> usize {
        self.shared.state.lock().in_flight_max
    }
}

impl Shared {
    fn run_timer(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            match state.due.peek().map(|due| due.at.unwrap_or(now)) {
                Some(at) if at <= now || state.stopped => {
                    if let Some(due) = state.due.pop() {
                        drop(state);
                        self.complete(due);
                        state = self.state.lock();
                    }
                }
                Some(at) => {
                    self.changed.wait_until(&mut state, at);
                }
                None if state.stopped => return,
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Answers from the state at the time of the answer: an object may have been removed since it was asked for.
    fn complete(&self, due: Due) {
        let failed = {
            let mut state = self.state.lock();
            state.in_flight -= 1;
            state.fail.pop_front()
        };
        due.completer.complete(match failed {
            Some(error) => Err(error),
            None => self.inner.read(due.object, due.range).wait(),
        });
    }
}

impl Drop for SlowStorage {
    /// Answers all pending requests at once.
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_all();
        match self.timer.take() {
            Some(timer) if timer.thread().id() != thread::current().id() => {
                let _ = timer.join();
            }
            _ => self.answer_all(),
        }
    }
}

impl Storage for SlowStorage {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.shared.inner.create(object)
    }

    fn try_read(&self, _: ObjectId, _: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        None
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        let (ticket, completer) = Ticket::pending();
        let mut state = self.shared.state.lock();
        let at = match state.pace {
            Pace::Held => None,
            Pace::After { delay, spread } => {
                let late = spread.mul_f64(state.random.rand_float());
                Some(Instant::now() + delay + late)
            }
        };
        let number = state.asked.len();
        state.asked.push((object, range.clone()));
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        state.due.push(Due { at, number, object, range, completer });
        self.shared.changed.notify_all();
        ticket
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.shared.inner.len(object)
    }

    fn read_device(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.shared.inner.read_device(object, range)
    }

    fn len_device(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.shared.inner.len_device(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.shared.inner.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.shared.inner.list()
    }
}
