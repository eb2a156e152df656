//! Threads that run one at a time, in an order that a seed decides, on a clock that stands still while any of them can
//! run.
//!
//! A thread gives way where it would wait: when it sleeps, and when it asks Postgres. Locks that it holds then stay
//! held for others. A thread that waits outside of the scheduler stops the history, which is reported.

use parking_lot::{Mutex, MutexGuard};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Once};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use thalweg_shapes_source::clock::Clock;
use thalweg_sim::Rand64;

/// The panic payload of a thread whose process is killed.
struct Killed;

/// A switch takes microseconds; a thread that runs for longer waits for an event that never comes.
const STUCK_AFTER: Duration = Duration::from_secs(20);

#[derive(Debug)]
struct Task {
    name: &'static str,
    thread: Option<Thread>,
    /// When it goes on at the latest.
    ready_at: Duration,
    /// The process that it belongs to.
    life: u64,
    ended: bool,
}

#[derive(Debug)]
struct State {
    random: Rand64,
    now: Duration,
    tasks: Vec<Task>,
    running: usize,
    /// Tasks of earlier lives are dead.
    life: u64,
    joins: Vec<JoinHandle<()>>,
    /// The panic of a task, for the thread that plays the world.
    failed: Option<String>,
    /// A task waits outside of the scheduler: the others cannot be ended.
    stuck: bool,
    /// A sum over all switches.
    seen: u64,
}

/// The scheduler of one history. Its first task is the thread that plays the world.
#[derive(Clone, Debug)]
pub(super) struct Scheduler {
    state: Arc<Mutex<State>>,
    began: Instant,
    is_replayed: bool,
}

thread_local! {
    static ME: RefCell<Option<(Scheduler, usize)>> = const { RefCell::new(None) };
    /// Panics of this thread are expected: they are not printed.
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a history that may panic, and prints nothing of it. Panics of other tests beside it are printed.
pub(super) fn silently<T>(history: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_SILENT.get() {
                print(info);
            }
        }));
    });
    IS_SILENT.set(true);
    let done = history();
    IS_SILENT.set(false);
    done
}

const WORLD: usize = 0;

impl Scheduler {
    pub(super) fn new(seed: u64) -> Self {
        thalweg_sim::stay_on_this_core();
        let world = Task {
            name: "world",
            thread: Some(std::thread::current()),
            ready_at: Duration::ZERO,
            life: u64::MAX,
            ended: false,
        };
        let state = State {
            random: Rand64::new(u128::from(seed) ^ 0x5eed),
            now: Duration::ZERO,
            tasks: vec![world],
            running: WORLD,
            life: 0,
            joins: Vec::new(),
            failed: None,
            stuck: false,
            seen: 0,
        };
        let scheduler =
            Self { state: Arc::new(Mutex::new(state)), began: Instant::now(), is_replayed: thalweg_sim::is_replay() };
        ME.with_borrow_mut(|me| *me = Some((scheduler.clone(), WORLD)));
        scheduler
    }

    /// Virtual time since the history began.
    pub(super) fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Prints an event, when one history is replayed.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.is_replayed {
            eprintln!("{:>12.6} {:>6} {}", self.now().as_secs_f64(), self.name(), what());
        }
    }

    /// A number below `n`, which must not be 0.
    pub(super) fn below(&self, n: u64) -> u64 {
        self.state.lock().random.rand_range(0..n)
    }

    pub(super) fn seen(&self) -> u64 {
        self.state.lock().seen
    }

    /// Begins a task of the process that lives now. It runs when a task gives way.
    pub(super) fn spawn(&self, name: &'static str, work: impl FnOnce() + Send + 'static) {
        let scheduler = self.clone();
        let number = {
            let mut state = self.state.lock();
            let (ready_at, life) = (state.now, state.life);
            state.tasks.push(Task { name, thread: None, ready_at, life, ended: false });
            state.tasks.len() - 1
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
        let join = join.expect("a thread is started");
        let mut state = self.state.lock();
        state.tasks[number].thread = Some(join.thread().clone());
        state.joins.push(join);
    }

    /// The task of the calling thread; `None`: it is none.
    fn me(&self) -> Option<usize> {
        ME.with_borrow(|me| {
            me.as_ref().filter(|(of, _)| Arc::ptr_eq(&of.state, &self.state)).map(|(_, number)| *number)
        })
    }

    /// The calling task's name.
    pub(super) fn name(&self) -> &'static str {
        self.me().map_or("", |me| self.state.lock().tasks[me].name)
    }

    /// Lets others run.
    pub(super) fn give_way(&self) {
        self.sleep(Duration::ZERO);
    }

    /// Lets others run until `time` has passed, or until it is woken.
    pub(super) fn sleep(&self, time: Duration) {
        let Some(me) = self.me() else { return };
        {
            let mut state = self.state.lock();
            state.tasks[me].ready_at = state.now + time;
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

    /// The tasks of that name go on now.
    pub(super) fn wake(&self, name: &str) {
        let mut state = self.state.lock();
        let now = state.now;
        state.tasks.iter_mut().filter(|task| task.name == name).for_each(|task| task.ready_at = task.ready_at.min(now));
    }

    /// Whether a task of that name exists.
    pub(super) fn is_running(&self, name: &str) -> bool {
        let state = self.state.lock();
        state.tasks.iter().any(|task| task.name == name && !task.ended && task.life == state.life)
    }

    /// Ends the process: every task of it unwinds at the place where it gave way.
    pub(super) fn kill(&self) {
        self.state.lock().life += 1;
        while !self.state.lock().stuck {
            let mut state = self.state.lock();
            let life = state.life;
            let Some(next) = state.tasks.iter().position(|task| !task.ended && task.life < life) else { break };
            state.tasks[WORLD].ready_at = Duration::MAX;
            state.running = next;
            hand_over(state);
            self.wait_for_turn(WORLD);
        }
        let joins = std::mem::take(&mut self.state.lock().joins);
        joins.into_iter().for_each(|join| drop(join.join()));
        let mut state = self.state.lock();
        state.tasks.truncate(1);
        state.tasks[WORLD].ready_at = state.now;
    }

    /// Panics if a task did.
    pub(super) fn check(&self) {
        if let Some(why) = self.state.lock().failed.take() {
            panic!("{why}");
        }
    }

    fn die_if_killed(&self, me: usize) {
        let is_dead = {
            let state = self.state.lock();
            state.tasks[me].life < state.life
        };
        if is_dead && !std::thread::panicking() {
            resume_unwind(Box::new(Killed));
        }
    }

    fn end(&self, me: usize, failed: Option<String>) {
        let mut state = self.state.lock();
        state.tasks[me].ended = true;
        if let Some(why) = failed {
            let name = state.tasks[me].name;
            state.failed.get_or_insert(format!("{name}: {why}"));
            state.running = WORLD;
        } else if state.tasks[me].life < state.life {
            state.running = WORLD;
        } else {
            state.next();
        }
        hand_over(state);
    }

    fn wait_for_turn(&self, me: usize) {
        let since = Instant::now();
        loop {
            {
                let mut state = self.state.lock();
                if state.running == me {
                    return;
                }
                if me == WORLD && since.elapsed() > STUCK_AFTER {
                    state.stuck = true;
                    let name = state.tasks[state.running].name;
                    panic!("the task {name} waits for something besides the scheduler");
                }
            }
            std::thread::park_timeout(STUCK_AFTER);
        }
    }
}

impl State {
    /// Chooses the task that runs next.
    fn next(&mut self) {
        if self.failed.is_some() {
            self.running = WORLD;
            return;
        }
        let alive = |task: &Task, life: u64| !task.ended && task.life >= life;
        let first = self.tasks.iter().filter(|task| alive(task, self.life)).map(|task| task.ready_at).min();
        self.now = self.now.max(first.unwrap_or_default());
        let ready = |task: &Task, now: Duration, life: u64| alive(task, life) && task.ready_at <= now;
        let count = self.tasks.iter().filter(|task| ready(task, self.now, self.life)).count();
        let chosen = if count > 1 { self.random.rand_range(0..count as u64) as usize } else { 0 };
        let (now, life) = (self.now, self.life);
        let mut all = self.tasks.iter().enumerate().filter(|(_, task)| ready(task, now, life));
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

impl Clock for Scheduler {
    fn now(&self) -> Instant {
        self.began + self.state.lock().now
    }

    fn sleep(&self, time: Duration) {
        Scheduler::sleep(self, time);
    }

    fn unix_us(&self) -> u64 {
        1_800_000_000_000_000 + u64::try_from(self.state.lock().now.as_micros()).unwrap_or_default()
    }
}
