//! The choice of the job that has the next turn: a function of the jobs' announcements and of the time, both
//! parameters. See the crate's page for the rules.

use crate::budget::Budget;
use crate::kind::{Behind, CLASSES, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One for each class.
pub const THREADS_MIN: usize = CLASSES;
/// The weight of a waiting job that is at its bound; a job that is not behind has weight 1.
pub const WEIGHT_MAX: u64 = 8;
/// How long a job rests after its first failure, and after many.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long settling rests after many failures: less, because writers are refused until it works.
const RETRY_SETTLE_MAX: Duration = Duration::from_secs(2);

/// Parameters of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many turns are taken at the same time. At least [`THREADS_MIN`].
    pub threads: usize,
    /// The bytes that long work may read and write per second; zero: no limit.
    pub bytes_per_second: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 4, bytes_per_second: 0 }
    }
}

/// One job of the plan. Ids are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// When a job wants its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// As soon as it is fair: there is more to do.
    Now,
    /// After this time, or when it is nudged.
    In(Duration),
    /// When it is nudged.
    WhenNudged,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When the job wants its next turn.
    pub next: Next,
    /// How full the thing is that the job empties.
    pub behind: Behind,
    /// The bytes that the turn has read from and written to devices, as far as they count against the budget of long
    /// work.
    pub bytes: u64,
}

impl Done {
    /// A job without work until it is nudged.
    pub const IDLE: Self = Self::then(Next::WhenNudged);

    /// A turn that was free for the budget, with nothing behind.
    #[must_use]
    pub const fn then(next: Next) -> Self {
        Self { next, behind: Behind::ZERO, bytes: 0 }
    }
}

/// The next action of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Take this turn, and tell [`Plan::done`].
    Run(JobId),
    /// Wait until this time, if it is known, or until something changes.
    Wait(Option<Duration>),
}

/// Figures of one kind since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStats {
    /// Turns taken, failed ones included.
    pub turns: u64,
    /// Turns that ended with an error.
    pub failed: u64,
    /// Time spent in turns.
    pub busy: Duration,
    /// Time that turns were due before they began.
    pub waited: Duration,
    /// Bytes that turns have read from and written to devices, as far as they count against the budget.
    pub bytes: u64,
    /// Jobs that are due now and have no thread.
    pub due: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Resting,
    /// Due at this time.
    Timed(Duration),
    /// Since then.
    Due(Duration),
    /// In a turn that began at `since`. Whether the job was nudged during the turn, and whether the budget pays for it.
    Running {
        since: Duration,
        nudged: bool,
        is_charged: bool,
    },
    /// After a failure; nudges do not end it.
    Failed {
        until: Duration,
    },
}

#[derive(Clone, Debug)]
struct Job {
    kind: Kind,
    state: State,
    behind: Behind,
    /// Turns that failed, one after the other.
    failures: u32,
    /// The end of its last turn.
    served: Duration,
    /// The job is removed at the end of its turn.
    leaves: bool,
}

/// All jobs of a process.
#[derive(Clone, Debug)]
pub struct Plan {
    options: Options,
    jobs: BTreeMap<JobId, Job>,
    next_id: u64,
    /// Due jobs by class.
    due: [BTreeSet<JobId>; CLASSES],
    running: [usize; CLASSES],
    timers: BTreeSet<(Duration, JobId)>,
    budget: Budget,
    /// By kind, in the order of [`Kind::ALL`].
    stats: [KindStats; Kind::ALL.len()],
}

impl Plan {
    /// A plan without jobs.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let options = Options { threads: options.threads.max(THREADS_MIN), ..options };
        Self {
            budget: Budget::new(options.bytes_per_second),
            options,
            jobs: BTreeMap::new(),
            next_id: 0,
            due: Default::default(),
            running: [0; CLASSES],
            timers: BTreeSet::new(),
            stats: Default::default(),
        }
    }

    /// The options in force.
    #[must_use]
    pub fn options(&self) -> Options {
        self.options
    }

    /// Adds a job. The job is due at once: its first turn finds out how much work there is.
    pub fn add(&mut self, kind: Kind, now: Duration) -> JobId {
        let id = JobId(self.next_id);
        self.next_id += 1;
        let job = Job { kind, state: State::Resting, behind: Behind::ZERO, failures: 0, served: now, leaves: false };
        self.jobs.insert(id, job);
        self.make_due(id, now);
        id
    }

    /// Takes a job away; whether it is gone. One in its turn goes with the end of that.
    pub fn remove(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return true };
        match job.state {
            State::Running { .. } => {
                job.leaves = true;
                return false;
            }
            State::Timed(at) | State::Failed { until: at } => {
                self.timers.remove(&(at, id));
            }
            State::Due(_) => {
                self.due[job.kind.class()].remove(&id);
            }
            State::Resting => {}
        }
        self.jobs.remove(&id);
        true
    }

    /// Something has happened that gives the job work. `behind`: how far it is behind now, if that is known.
    pub fn nudge(&mut self, id: JobId, behind: Option<Behind>, now: Duration) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.behind = behind.unwrap_or(job.behind);
        match &mut job.state {
            State::Running { nudged, .. } => *nudged = true,
            State::Due(_) | State::Failed { .. } => {}
            State::Timed(at) => {
                self.timers.remove(&(*at, id));
                self.make_due(id, now);
            }
            State::Resting => self.make_due(id, now),
        }
    }

    fn make_due(&mut self, id: JobId, now: Duration) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.state = State::Due(now);
        self.due[job.kind.class()].insert(id);
    }

    /// Whether a job waits for a turn, or for a time.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.timers.is_empty() || self.due.iter().any(|due| !due.is_empty())
    }

    /// The next action of an idle thread.
    pub fn next(&mut self, now: Duration) -> Pick {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            // It has waited since its time, however late this look is.
            self.make_due(id, at);
        }
        for class in 0..CLASSES {
            if self.has_slot(class)
                && let Some(id) = self.best(class, now)
            {
                self.begin(id, now);
                return Pick::Run(id);
            }
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let paid = (self.is_held_by_budget()).then(|| self.budget.free_at());
        Pick::Wait(timer.into_iter().chain(paid).min())
    }

    /// Whether one more turn of the class leaves a thread to every other class that has none.
    fn has_slot(&self, class: usize) -> bool {
        let running: usize = self.running.iter().sum();
        let without = (0..CLASSES).filter(|other| *other != class && self.running[*other] == 0).count();
        running + 1 + without <= self.options.threads
    }

    /// Whether long work is due that has a thread, and waits for the budget alone.
    fn is_held_by_budget(&self) -> bool {
        let class = Kind::Merge.class();
        self.has_slot(class) && !self.due[class].is_empty()
    }

    /// The job that has waited longest, by weight; of equals the one whose last turn is longest ago.
    fn best(&self, class: usize, now: Duration) -> Option<JobId> {
        let is_paid = self.budget.free_at() <= now;
        let due = self.due[class].iter().filter_map(|id| {
            let job = &self.jobs[id];
            let State::Due(since) = job.state else { return None };
            let may_begin = !job.kind.is_long() || is_paid || job.behind.is_urgent();
            let score = now.saturating_sub(since).as_nanos() * u128::from(job.behind.weight(WEIGHT_MAX));
            may_begin.then_some((score, std::cmp::Reverse((job.served, *id))))
        });
        due.max().map(|(_, std::cmp::Reverse((_, id)))| id)
    }

    fn begin(&mut self, id: JobId, now: Duration) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let State::Due(since) = job.state {
            self.stats[job.kind as usize].waited += now.saturating_sub(since);
        }
        let is_charged = job.kind.is_long() && !job.behind.is_urgent();
        job.state = State::Running { since: now, nudged: false, is_charged };
        self.due[job.kind.class()].remove(&id);
        self.running[job.kind.class()] += 1;
    }

    /// A turn has ended; `None`: it failed.
    ///
    /// # Panics
    ///
    /// If the job is in no turn.
    pub fn done(&mut self, id: JobId, done: Option<Done>, now: Duration) {
        let job = self.jobs.get_mut(&id);
        let Some(Job { state: State::Running { since, nudged, is_charged }, .. }) = job.as_deref() else {
            panic!("{id:?} has ended a turn that it did not have: {job:?}")
        };
        let (since, nudged, is_charged) = (*since, *nudged, *is_charged);
        let Some(job) = job else { return };
        self.running[job.kind.class()] -= 1;
        job.served = now;
        let stats = &mut self.stats[job.kind as usize];
        stats.turns += 1;
        stats.busy += now.saturating_sub(since);
        stats.failed += u64::from(done.is_none());
        stats.bytes += done.map_or(0, |done| done.bytes);
        if job.leaves {
            self.jobs.remove(&id);
            return;
        }
        let Some(done) = done else {
            let rest = retry_after(job.kind, job.failures);
            job.failures += 1;
            job.state = State::Failed { until: now + rest };
            self.timers.insert((now + rest, id));
            return;
        };
        if is_charged {
            self.budget.spend(since, now, done.bytes);
        }
        (job.failures, job.behind) = (0, done.behind);
        match done.next {
            _ if nudged => self.make_due(id, now),
            Next::Now => self.make_due(id, now),
            Next::In(rest) => {
                let at = now.saturating_add(rest);
                job.state = State::Timed(at);
                self.timers.insert((at, id));
            }
            Next::WhenNudged => job.state = State::Resting,
        }
    }

    /// By kind, in the order of [`Kind::ALL`].
    #[must_use]
    pub fn stats(&self) -> [KindStats; Kind::ALL.len()] {
        let mut stats = self.stats;
        for id in self.due.iter().flatten() {
            stats[self.jobs[id].kind as usize].due += 1;
        }
        stats
    }
}

/// How long a job rests after one more failure than `before`. A journal without a segment is tried again each second:
/// appends wait for it.
fn retry_after(kind: Kind, before: u32) -> Duration {
    let max = match kind {
        Kind::Segments => RETRY_FIRST,
        Kind::Settle => RETRY_SETTLE_MAX,
        Kind::Merge | Kind::Scrub => RETRY_MAX,
    };
    RETRY_FIRST.saturating_mul(1 << before.min(10)).min(max)
}
