//! Upkeep of a kernel unit: its jobs, and the events that give them work.
//!
//! | job | has work |
//! |---|---|
//! | segments | when a batch has begun the last segment that was ready, or a trim has retired one |
//! | settle | when enough is durable, when the oldest of it is old enough, when logs have woken; while the disk is full it makes space, each second and after a delete |
//! | merge | after a round of settling, after a delete, when a full disk has space again |
//!
//! [`Watch`] hears of every advance of the journal, and nudges the jobs that have work then. A unit in which nothing
//! happens has none.

use crate::background::now;
use crate::reserve::Reserve;
use crate::unit::{Unit, UnitJournal, UnitLogs};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use thalweg_base::Lsn;
use thalweg_log::{UpkeepError, When};
use thalweg_rounds::{Behind, Done, Error, Handle, Kind, Next, Rounds};

/// How often a full disk is checked for space.
const FULL_EVERY: Duration = Duration::from_secs(1);
/// When to retry segments that readers may have held in the previous turn.
const HELD_SEGMENTS_AFTER: Duration = Duration::from_secs(1);
/// The intended bound on a unit's runs. From half of it on, merges ignore the budget.
const RUNS_MAX: u64 = 128;
/// The journal's bound has this many steps: settling is nudged at each step of the second half.
const STEPS: u64 = 8;

/// Parameters of a unit's upkeep.
pub struct Keeping {
    /// The space that is held back for the unit.
    pub reserve: Reserve,
    /// Off for measurements.
    pub settles: bool,
    /// The bytes of the journal beyond which writers are refused.
    pub bound_bytes: u64,
}

/// Adds the jobs of a unit. They go when `rounds` is stopped.
pub fn keep(rounds: &Rounds, unit: &Unit, keeping: Keeping) -> Jobs {
    let watch = Arc::new(Watch {
        logs: Arc::downgrade(&unit.logs),
        journal: Arc::downgrade(&unit.journal),
        jobs: OnceLock::new(),
        settle_at: AtomicU64::new(u64::MAX),
        deaths: AtomicU64::new(0),
        bound_bytes: keeping.bound_bytes,
        step: AtomicU64::new(0),
    });
    let segments = {
        let journal = Arc::clone(&unit.journal);
        rounds.add(&unit.name, Kind::Segments, move || make_segments(&*journal))
    };
    let settles = keeping.settles.then(|| {
        let (logs, journal) = (Arc::clone(&unit.logs), Arc::clone(&unit.journal));
        let merging = Arc::<Mutex<()>>::default();
        let merge = Merge {
            unit: Arc::clone(&unit.name),
            logs: Arc::clone(&logs),
            merging: Arc::clone(&merging),
            watch: Arc::clone(&watch),
        };
        let settle = Settle {
            unit: Arc::clone(&unit.name),
            logs,
            journal,
            reserve: keeping.reserve,
            merging,
            watch: Arc::clone(&watch),
        };
        (rounds.add(&unit.name, Kind::Settle, settle.job()), rounds.add(&unit.name, Kind::Merge, merge.job()))
    });
    let (settle, merge) = settles.unzip();
    let jobs = Jobs { segments, settle, merge };
    // Turns that ran before the jobs were set have nudged nothing: nudge all jobs once.
    let _ = watch.jobs.set(jobs.clone());
    jobs.all().for_each(Handle::nudge);
    if let Some(settle) = jobs.settle.clone() {
        unit.logs.on_awake(Box::new(move || settle.nudge()));
    }
    unit.journal.subscribe(Arc::new(move || watch.on_advance()));
    jobs
}

/// The jobs of one unit.
#[derive(Clone)]
pub struct Jobs {
    segments: Handle,
    /// Both are missing if nothing settles.
    settle: Option<Handle>,
    merge: Option<Handle>,
}

impl Jobs {
    /// Takes the jobs away, after the turns that they are in.
    pub fn retire(&self) {
        self.all().for_each(Handle::retire);
    }

    fn all(&self) -> impl Iterator<Item = &Handle> {
        std::iter::once(&self.segments).chain(&self.settle).chain(&self.merge)
    }
}

/// Knows the events that a unit's jobs wait for.
struct Watch {
    logs: Weak<dyn UnitLogs>,
    journal: Weak<dyn UnitJournal>,
    /// Set once all jobs are registered.
    jobs: OnceLock<Jobs>,
    /// The durable position at which settling wants a turn; `u64::MAX` after its nudge.
    settle_at: AtomicU64,
    /// The number of deletes that the reclaiming job has been nudged for.
    deaths: AtomicU64,
    bound_bytes: u64,
    /// How many of [`STEPS`] settling has been nudged for.
    step: AtomicU64,
}

impl Watch {
    /// After an advance of the journal, on the thread that wrote: cheap, and waits for no device.
    fn on_advance(&self) {
        let (Some(jobs), Some(logs), Some(journal)) = (self.jobs.get(), self.logs.upgrade(), self.journal.upgrade())
        else {
            return;
        };
        if journal.wants_segments() {
            jobs.segments.nudge();
        }
        let durable = journal.durable();
        if let Some(settle) = &jobs.settle {
            let step = self.step_of(durable.since(journal.start()));
            if step > self.step.swap(step, Ordering::Relaxed) && step >= STEPS / 2 {
                settle.nudge_behind(Behind::of(step, STEPS));
            }
            if durable.0 >= self.settle_at.load(Ordering::SeqCst) {
                self.settle_at.store(u64::MAX, Ordering::SeqCst);
                settle.nudge();
            }
        }
        let frees = if logs.is_low_on_space() { &jobs.settle } else { &jobs.merge };
        if let Some(frees) = frees {
            let deaths = logs.deaths();
            if self.deaths.swap(deaths, Ordering::Relaxed) != deaths {
                frees.nudge();
            }
        }
    }

    fn step_of(&self, held: u64) -> u64 {
        held.saturating_mul(STEPS).checked_div(self.bound_bytes).unwrap_or(0).min(STEPS)
    }

    fn nudge(&self, of: impl Fn(&Jobs) -> Option<&Handle>) {
        if let Some(job) = self.jobs.get().and_then(of) {
            job.nudge();
        }
    }

    /// Registers settling for this durable position. Returns whether the position is durable already.
    fn wait_for(&self, at: Lsn, journal: &dyn UnitJournal) -> bool {
        self.settle_at.store(at.0, Ordering::SeqCst);
        // Checked after the store: an earlier advance has not seen the new value.
        journal.durable() >= at
    }
}

fn make_segments(journal: &dyn UnitJournal) -> Result<Done, Error> {
    if !journal.wants_segments() {
        return Ok(Done::IDLE);
    }
    journal.make_segments()?;
    Ok(Done::then(Next::In(HELD_SEGMENTS_AFTER)))
}

/// Rounds of settling. While the disk is full, a turn makes space instead.
struct Settle {
    /// The unit's name, for the log.
    unit: Arc<str>,
    logs: Arc<dyn UnitLogs>,
    journal: Arc<dyn UnitJournal>,
    reserve: Reserve,
    /// Held in turns of merging.
    merging: Arc<Mutex<()>>,
    watch: Arc<Watch>,
}

impl Settle {
    fn job(mut self) -> impl FnMut() -> Result<Done, Error> + Send + 'static {
        move || {
            let next = self.turn()?;
            let held = self.journal.durable().since(self.journal.start());
            self.watch.step.store(self.watch.step_of(held), Ordering::Relaxed);
            Ok(Done { behind: Behind::of(held, self.watch.bound_bytes), ..Done::then(next) })
        }
    }

    fn turn(&mut self) -> Result<Next, UpkeepError> {
        if self.logs.is_low_on_space() {
            return self.relieve();
        }
        if !self.reserve.hold() {
            refuse_users(&self.unit, &*self.logs);
            return Ok(Next::In(FULL_EVERY));
        }
        let now = now();
        match self.logs.settle(now, When::Due) {
            Err(error) if error.is_no_space() => {
                refuse_users(&self.unit, &*self.logs);
                Ok(Next::Now)
            }
            Err(error) => Err(error),
            Ok(true) => {
                // The number of runs grew, and segments may be free.
                self.watch.nudge(|jobs| jobs.merge.as_ref());
                self.watch.nudge(|jobs| Some(&jobs.segments));
                Ok(Next::Now)
            }
            Ok(false) => {
                let next = self.logs.next_round(now);
                let is_there = self.watch.wait_for(next.at, &*self.journal);
                Ok(match next.after_ms {
                    _ if is_there => Next::Now,
                    Some(ms) => Next::In(Duration::from_millis(ms)),
                    None => Next::WhenNudged,
                })
            }
        }
    }

    /// Reclaims with the reserve's space, takes the reserve back, and lets users in when settling works again.
    fn relieve(&mut self) -> Result<Next, UpkeepError> {
        // A merge under way would take the reserve's space, and reclaiming would wait for its end. The end of its turn
        // nudges this job.
        let Some(_no_merge) = self.merging.try_lock() else {
            return Ok(Next::In(FULL_EVERY));
        };
        self.reserve.release();
        self.watch.nudge(|jobs| Some(&jobs.segments));
        let reclaimed = unless_full(self.logs.reclaim(now()));
        if !self.reserve.hold() {
            return Ok(match reclaimed? {
                Some(true) => Next::Now,
                _ => Next::In(FULL_EVERY),
            });
        }
        if unless_full(self.logs.settle(now(), When::Due))?.is_none() {
            return Ok(Next::In(FULL_EVERY));
        }
        self.logs.set_low_on_space(false);
        tracing::info!(unit = &*self.unit, "there is space again: appends are accepted");
        self.watch.nudge(|jobs| jobs.merge.as_ref());
        Ok(Next::Now)
    }
}

fn refuse_users(unit: &str, logs: &dyn UnitLogs) {
    tracing::warn!(unit, "the disk is full: appends are refused until there is space; deletes work");
    logs.set_low_on_space(true);
}

/// `None` if the disk was full.
fn unless_full<T>(done: Result<T, UpkeepError>) -> Result<Option<T>, UpkeepError> {
    match done {
        Err(error) if error.is_no_space() => Ok(None),
        done => done.map(Some),
    }
}

/// Merging and reclaiming. On a full disk they wait for its relief, which is the work of [`Settle`].
struct Merge {
    /// The unit's name, for the log.
    unit: Arc<str>,
    logs: Arc<dyn UnitLogs>,
    merging: Arc<Mutex<()>>,
    watch: Arc<Watch>,
}

impl Merge {
    fn job(self) -> impl FnMut() -> Result<Done, Error> + Send + 'static {
        move || {
            let before = self.logs.merged_bytes();
            let next = self.turn();
            if self.logs.is_low_on_space() {
                // A relief request may have come during this turn.
                self.watch.nudge(|jobs| jobs.settle.as_ref());
            }
            // A merge reads and writes the bytes that it copies.
            let bytes = 2 * self.logs.merged_bytes().saturating_sub(before);
            Ok(Done { behind: Behind::of(self.logs.runs(), RUNS_MAX), bytes, next: next? })
        }
    }

    fn turn(&self) -> Result<Next, UpkeepError> {
        // Relief is under way: it reclaims, and has the reserve's space to itself.
        let Some(_merging) = self.merging.try_lock() else {
            return Ok(Next::In(FULL_EVERY));
        };
        if self.logs.is_low_on_space() {
            return Ok(Next::WhenNudged);
        }
        // Reclaiming goes first: it may need no space, and lowers the space that merging needs.
        let did = self.logs.reclaim(now()).and_then(|reclaimed| Ok(self.logs.merge()? || reclaimed));
        Ok(match unless_full(did)? {
            None => {
                refuse_users(&self.unit, &*self.logs);
                Next::WhenNudged
            }
            Some(true) => Next::Now,
            Some(false) => match self.logs.next_reclaim(now()) {
                Some(ms) => Next::In(Duration::from_millis(ms)),
                None => Next::WhenNudged,
            },
        })
    }
}
