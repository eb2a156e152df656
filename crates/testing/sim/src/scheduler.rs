//! Threads of several simulated processes that run one at a time, in an order that a seed decides, on a clock that stands
//! still while any of them can run.
//!
//! A thread gives way where it would wait. Locks that it holds then stay held for others. A thread that waits outside of
//! the scheduler stops the history, which is reported. A process can be stopped for a time, and killed: then its threads
//! unwind at the places where they gave way.

use oorandom::Rand64;
use parking_lot::{Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Once};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// The panic payload of a thread whose process is killed.
struct Killed;

/// A switch takes microseconds; a thread that runs for longer waits for an event that never comes.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// The number of a simulated process.
pub type Process = usize;

#[derive(Debug)]
struct Task {
    name: &'static str,
    thread: Option<Thread>,
    process: Process,
    /// When it goes on at the latest.
    ready_at: Duration,
    /// It goes on before that if its process is woken.
    is_waiting: bool,
    ended: bool,
    killed: bool,
}

#[derive(Debug)]
struct State {
    random: Rand64,
    now: Duration,
    tasks: Vec<Task>,
    running: usize,
    /// Until when each process is stopped.
    stopped_until: Vec<Duration>,
    joins: Vec<JoinHandle<()>>,
    /// The panic of a task, for the thread that plays the world.
    failed: Option<String>,
    /// A task waits outside of the scheduler: the others cannot be ended.
    stuck: bool,
    /// The task that ends others just now.
    killer: Option<usize>,
    /// A sum over all switches.
    seen: u64,
}

/// The scheduler of one history. Its first task is the thread that plays the world, which is in no process that can be
/// stopped or killed.
#[derive(Clone, Debug)]
pub struct Scheduler(Arc<Mutex<State>>);

thread_local! {
    static ME: RefCell<Option<(Scheduler, usize)>> = const { RefCell::new(None) };
    /// Panics of this thread are expected: they are not printed.
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a history that may panic, and prints nothing of it. Panics of other tests beside it are printed.
pub fn silently<T>(history: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_SILENT.get() {
                print(info);
            }
        }));
    });
    let was_silent = IS_SILENT.replace(true);
    let done = history();
    IS_SILENT.set(was_silent);
    done
}

const WORLD: usize = 0;

impl Scheduler {
    /// Makes the calling thread the one that plays the world.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        crate::stay_on_this_core();
        let world = Task {
            name: "world",
            thread: Some(std::thread::current()),
            process: usize::MAX,
            ready_at: Duration::ZERO,
            is_waiting: false,
            ended: false,
            killed: false,
        };
        let scheduler = Self(Arc::new(Mutex::new(State {
            random: Rand64::new(u128::from(seed) ^ 0x5eed),
            now: Duration::ZERO,
            tasks: vec![world],
            running: WORLD,
            stopped_until: Vec::new(),
            joins: Vec::new(),
            failed: None,
            stuck: false,
            killer: None,
            seen: 0,
        })));
        ME.with_borrow_mut(|me| *me = Some((scheduler.clone(), WORLD)));
        scheduler
    }

    /// Virtual time since the history began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// A number below `n`, which must not be 0.
    #[must_use]
    pub fn below(&self, n: u64) -> u64 {
        self.0.lock().random.rand_range(0..n)
    }

    /// A sum over all switches: equal histories have equal ones.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.0.lock().seen
    }

    /// Begins a thread of a process. It runs when another one gives way.
    ///
    /// # Panics
    ///
    /// If the system starts no thread.
    pub fn spawn(&self, process: Process, name: &'static str, work: impl FnOnce() + Send + 'static) {
        let scheduler = self.clone();
        let number = {
            let mut state = self.0.lock();
            let ready_at = state.now;
            let task = Task { name, thread: None, process, ready_at, is_waiting: false, ended: false, killed: false };
            let free = state.tasks.iter().position(|task| task.ended && task.thread.is_none());
            match free {
                Some(free) => state.tasks[free] = task,
                None => state.tasks.push(task),
            }
            free.unwrap_or(state.tasks.len() - 1)
        };
        let is_silent = IS_SILENT.get();
        let join = std::thread::Builder::new().name(name.into()).spawn(move || {
            IS_SILENT.set(is_silent);
            ME.with_borrow_mut(|me| *me = Some((scheduler.clone(), number)));
            scheduler.wait_for_turn(number);
            let done = catch_unwind(AssertUnwindSafe(|| {
                scheduler.die_if_killed(number);
                work();
            }));
            let failed = done.err().filter(|cause| !cause.is::<Killed>()).map(|cause| {
                let text = cause.downcast_ref::<String>().cloned();
                text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
            });
            scheduler.end(number, failed);
        });
        let join = join.unwrap_or_else(|error| panic!("a thread of a simulation: {error}"));
        let mut state = self.0.lock();
        state.tasks[number].thread = Some(join.thread().clone());
        state.joins.push(join);
    }

    /// The task of the calling thread; `None`: it is none.
    fn me(&self) -> Option<usize> {
        ME.with_borrow(|me| me.as_ref().filter(|(of, _)| Arc::ptr_eq(&of.0, &self.0)).map(|(_, number)| *number))
    }

    /// Lets others run until `time` has passed.
    pub fn sleep(&self, time: Duration) {
        self.give_way(time, false);
    }

    /// Lets others run until `time` has passed, or until its process is woken.
    pub fn wait(&self, time: Duration) {
        self.give_way(time, true);
    }

    fn give_way(&self, time: Duration, is_waiting: bool) {
        let Some(me) = self.me().filter(|_| !std::thread::panicking()) else { return };
        {
            let mut state = self.0.lock();
            state.tasks[me].ready_at = state.now + time;
            state.tasks[me].is_waiting = is_waiting;
            state.next();
            if state.running == me {
                drop(state);
                self.die_if_killed(me);
                return;
            }
            hand_over(state);
        }
        self.wait_for_turn(me);
        self.die_if_killed(me);
    }

    /// Threads of that process that wait go on at `at`, or now if that is past.
    pub fn wake(&self, process: Process, at: Duration) {
        let mut state = self.0.lock();
        let at = at.max(state.now);
        let waiting = state.tasks.iter_mut().filter(|task| task.is_waiting && task.process == process && !task.ended);
        waiting.for_each(|task| task.ready_at = task.ready_at.min(at));
    }

    /// Whether a thread of that name runs in a process.
    #[must_use]
    pub fn is_running(&self, process: Process, name: &str) -> bool {
        let state = self.0.lock();
        state.tasks.iter().any(|task| task.process == process && task.name == name && !task.ended)
    }

    /// No thread of a process runs before `until`.
    pub fn stop(&self, process: Process, until: Duration) {
        let mut state = self.0.lock();
        if state.stopped_until.len() <= process {
            state.stopped_until.resize(process + 1, Duration::ZERO);
        }
        state.stopped_until[process] = until;
    }

    /// Ends a process: every thread of it unwinds at the place where it gave way.
    pub fn kill(&self, process: Process) {
        self.stop(process, Duration::ZERO);
        self.end_all(|of| of == process);
    }

    /// Ends every process. For the end of a history, also of one that failed.
    pub fn kill_all(&self) {
        self.end_all(|_| true);
        let joins = std::mem::take(&mut self.0.lock().joins);
        if !self.0.lock().stuck {
            joins.into_iter().for_each(|join| drop(join.join()));
        }
    }

    fn end_all(&self, is_of: impl Fn(Process) -> bool) {
        let Some(me) = self.me() else { return };
        loop {
            let mut state = self.0.lock();
            if state.stuck {
                return;
            }
            let dying = |task: &Task| !task.ended && task.process != usize::MAX && is_of(task.process);
            let Some(next) = state.tasks.iter().position(dying) else { break };
            state.tasks[next].killed = true;
            state.killer = Some(me);
            state.running = next;
            hand_over(state);
            self.wait_for_turn(me);
        }
        let mut state = self.0.lock();
        state.killer = None;
        let (ended, going): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.joins).into_iter().partition(JoinHandle::is_finished);
        state.joins = going;
        drop(state);
        ended.into_iter().for_each(|join| drop(join.join()));
    }

    /// Panics if a thread did.
    ///
    /// # Panics
    ///
    /// With the same text.
    pub fn check(&self) {
        let failed = self.0.lock().failed.take();
        if let Some(why) = failed {
            panic!("{why}");
        }
    }

    fn die_if_killed(&self, me: usize) {
        let is_dead = self.0.lock().tasks[me].killed;
        if is_dead && !std::thread::panicking() {
            resume_unwind(Box::new(Killed));
        }
    }

    fn end(&self, me: usize, failed: Option<String>) {
        let mut state = self.0.lock();
        state.tasks[me].ended = true;
        state.tasks[me].thread = None;
        if let Some(why) = failed {
            let name = state.tasks[me].name;
            state.failed.get_or_insert(format!("{name}: {why}"));
        }
        match state.killer {
            Some(killer) => state.running = killer,
            None => state.next(),
        }
        hand_over(state);
    }

    fn wait_for_turn(&self, me: usize) {
        let since = Instant::now();
        loop {
            {
                let mut state = self.0.lock();
                if state.running == me {
                    return;
                }
                if me == WORLD && since.elapsed() > STUCK_AFTER && !std::thread::panicking() {
                    state.stuck = true;
                    let name = state.tasks[state.running].name;
                    drop(state);
                    panic!("the thread {name} waits for something besides the scheduler");
                }
            }
            std::thread::park_timeout(STUCK_AFTER);
        }
    }
}

impl State {
    /// When a task goes on.
    fn due(&self, task: &Task) -> Duration {
        let stopped = self.stopped_until.get(task.process).copied().unwrap_or_default();
        task.ready_at.max(stopped)
    }

    /// Chooses the task that runs next.
    fn next(&mut self) {
        if self.failed.is_some() {
            self.running = WORLD;
            return;
        }
        let first = self.tasks.iter().filter(|task| !task.ended).map(|task| self.due(task)).min();
        self.now = self.now.max(first.unwrap_or_default());
        let is_ready = |task: &&Task| !task.ended && self.due(task) <= self.now;
        let count = self.tasks.iter().filter(is_ready).count() as u64;
        let chosen = if count > 1 { self.random.rand_range(0..count) as usize } else { 0 };
        let mut all = self.tasks.iter().enumerate().filter(|(_, task)| !task.ended && self.due(task) <= self.now);
        self.running = all.nth(chosen).map_or(WORLD, |(number, _)| number);
        self.seen = self.seen.wrapping_mul(0x100_0000_01b3).wrapping_add(self.running as u64);
    }
}

/// Lets the task that was chosen go on. The lock is released first: otherwise that thread would wait for it at once.
fn hand_over(state: MutexGuard<'_, State>) {
    let thread = state.tasks[state.running].thread.clone();
    drop(state);
    if let Some(thread) = thread {
        thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn threads_run_one_at_a_time_in_the_order_of_a_seed() {
        let run = |seed| {
            let scheduler = Scheduler::new(seed);
            let order = Arc::<Mutex<Vec<(usize, Duration)>>>::default();
            for process in 0..3 {
                let (shared, order) = (scheduler.clone(), Arc::clone(&order));
                scheduler.spawn(process, "task", move || {
                    for _ in 0..3 {
                        order.lock().push((process, shared.now()));
                        shared.sleep(SECOND);
                    }
                });
            }
            scheduler.sleep(10 * SECOND);
            scheduler.kill_all();
            let order = std::mem::take(&mut *order.lock());
            (order, scheduler.seen())
        };
        let (order, seen) = run(1);
        assert_eq!((order.len(), order[8].1), (9, 2 * SECOND));
        assert_eq!(run(1), (order.clone(), seen));
        assert!((2..20).any(|seed| run(seed).0 != order));
    }

    #[test]
    fn a_stopped_process_goes_on_later_and_a_killed_one_unwinds() {
        let scheduler = Scheduler::new(1);
        let ended = Arc::<Mutex<Vec<(usize, Duration)>>>::default();
        struct Note(Scheduler, Arc<Mutex<Vec<(usize, Duration)>>>, usize);
        impl Drop for Note {
            fn drop(&mut self) {
                self.1.lock().push((self.2, self.0.now()));
            }
        }
        for process in 0..3 {
            let (shared, note) = (scheduler.clone(), Note(scheduler.clone(), Arc::clone(&ended), process));
            scheduler.spawn(process, "task", move || {
                shared.wait(100 * SECOND);
                drop(note);
            });
        }
        scheduler.sleep(SECOND);
        scheduler.kill(0);
        scheduler.stop(1, 7 * SECOND);
        scheduler.wake(1, Duration::ZERO);
        scheduler.wake(2, 3 * SECOND);
        scheduler.sleep(10 * SECOND);
        assert_eq!(*ended.lock(), [(0, SECOND), (2, 3 * SECOND), (1, 7 * SECOND)]);
        assert!(!scheduler.is_running(1, "task"));
    }

    #[test]
    fn the_panic_of_a_thread_is_the_worlds() {
        let scheduler = Scheduler::new(1);
        let why = silently(|| {
            scheduler.spawn(0, "task", || panic!("a claim is broken"));
            scheduler.sleep(SECOND);
            catch_unwind(AssertUnwindSafe(|| scheduler.check())).unwrap_err()
        });
        assert_eq!(why.downcast_ref::<String>().map(String::as_str), Some("task: a claim is broken"));
    }
}
