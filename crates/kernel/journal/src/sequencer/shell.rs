//! The writer's steps on a thread of a pool: takes one when there is work, parks on it during short pauses, and gives
//! it back. The only place with a clock.
//!
//! *Gathering.* A sync costs about the same however many frames it makes durable, and clients that were just answered
//! append again soon. So after a sync the next batch waits until it holds a frame for half of the clients that appended
//! lately, for the time of two syncs at most: one half is synced while the other half appends. A client that appends
//! alone never waits.
//!
//! A remote sink has several batches under way, and each costs a request: there the next batch waits until
//! [`crate::Options::commit_interval`] has passed since the last one was sent, unless it is full before.

use crate::Poisoned;
use crate::sequencer::pool::{Work, WriterPool};
use crate::sequencer::{Counters, Sequencer};
use crate::sink::Sink;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The longest sync time that counts, even for a slower device: a batch fills for twice this time.
const SYNC_TIME_MAX: Duration = Duration::from_millis(1);
/// How long nothing must have come in before the writer says so in the journal and gives its thread back.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Shell {
    /// Work was announced, and the writer has not begun a step since.
    wanted: AtomicBool,
    stopping: AtomicBool,
    /// While a batch is gathered: the count of accepted frames that ends it. Zero otherwise.
    goal: AtomicU64,
    /// The pool that gives threads, and the journal that they work for.
    home: OnceLock<(WriterPool, Weak<dyn Work>)>,
    /// A thread of the pool has the journal, or will.
    taken: AtomicBool,
    /// The thread that has it.
    thread: Mutex<Option<Thread>>,
    pace: Mutex<Pace>,
    left: Condvar,
}

/// The writer's state between steps, which different threads may take.
#[derive(Default)]
struct Pace {
    /// Since when buffered frames are written and not synced: no acknowledgement waits for that sync.
    dirty_since: Option<Instant>,
    sync_time: Duration,
    /// No frame came in during the last pause.
    quiet: bool,
    /// When the last batch was sent to a remote sink.
    sent_at: Option<Instant>,
}

/// The thread's next action after a step.
enum Next {
    Look,
    Park(Duration),
    /// As `Park`; frames that come meanwhile end it only if they fill the batch.
    Gather(Duration),
    /// End: there is no work, or none is possible.
    Leave,
}

impl Shell {
    /// `accepted` frames wait or are written. While the writer is busy, or gathers more than these, this is two atomic
    /// loads.
    pub(crate) fn kick(&self, accepted: u64) {
        if accepted < self.goal.load(Ordering::SeqCst) {
            return;
        }
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if self.wanted.load(Ordering::SeqCst) || self.wanted.swap(true, Ordering::SeqCst) {
            return;
        }
        self.rouse();
    }

    /// Has a thread take a step: the one that has the journal, else another of the pool.
    fn rouse(&self) {
        let Some((pool, work)) = self.home.get() else { return };
        if self.taken.swap(true, Ordering::SeqCst) {
            if let Some(thread) = self.thread.lock().as_ref() {
                thread.unpark();
            }
        } else if let Some(work) = work.upgrade() {
            pool.submit(work);
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.home.get().is_some() && !self.stopping.load(Ordering::SeqCst)
    }

    /// Returns when no thread has the journal; none takes it from then on. The caller then writes the accepted frames
    /// that are left.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let mut thread = self.thread.lock();
        while self.taken.load(Ordering::SeqCst) {
            if let Some(thread) = thread.as_ref() {
                thread.unpark();
            }
            self.left.wait(&mut thread);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn is_crowded(&self) -> bool {
        self.home.get().is_some_and(|(pool, _)| pool.is_crowded())
    }
}

impl<S: Sink> Sequencer<S> {
    /// Has the threads of `pool` take the writer's steps, until [`Sequencer::close`]. A second call does nothing.
    pub fn start_writer_on(self: &Arc<Self>, pool: &WriterPool) {
        let work: Weak<Self> = Arc::downgrade(self);
        if self.shell.home.set((pool.clone(), work)).is_ok() {
            // A kick may have come before the pool was known.
            self.shell.rouse();
        }
    }

    /// Starts the journal's writer on a thread of its own: see [`Self::start_writer_on`].
    pub fn start_writer(self: &Arc<Self>) -> std::io::Result<()> {
        self.start_writer_on(&WriterPool::start(1)?);
        Ok(())
    }

    /// Takes a step, and returns the next action.
    fn look(&self, pace: &mut Pace) -> Result<Next, Poisoned> {
        let (before, began) = (self.written_frames(), Instant::now());
        let early = self.early_by(pace);
        let (worked, synced) = self.timed_step(pace, early.is_none())?;
        if synced {
            (pace.dirty_since, pace.quiet) = (None, false);
            // A moving average, over some ten syncs.
            pace.sync_time = (pace.sync_time * 7 + began.elapsed().min(SYNC_TIME_MAX)) / 8;
            self.gather(self.written_frames() - before, 2 * pace.sync_time);
            return Ok(Next::Look);
        }
        // Batches that callers wrote themselves announce nothing: the writer checks for them.
        if self.is_dirty() {
            pace.quiet = false;
            let waited = pace.dirty_since.get_or_insert(began).elapsed();
            if waited >= self.options.sync_after || (!worked && self.shell.is_crowded()) {
                pace.dirty_since = None;
                self.sync_dirty()?;
            } else if !worked {
                return Ok(Next::Park(self.options.sync_after - waited));
            }
            return Ok(Next::Look);
        }
        pace.dirty_since = None;
        if worked {
            pace.quiet = false;
            return Ok(Next::Look);
        }
        if let Some(early) = early {
            return Ok(Next::Gather(early));
        }
        if !pace.quiet && !self.shell.is_crowded() {
            pace.quiet = true;
            return Ok(Next::Park(PAUSE));
        }
        pace.quiet = false;
        Ok(if self.mark()? { Next::Look } else { Next::Leave })
    }

    /// Waits until frames have come for half of the clients that appended lately, for `most` at most. `last` frames
    /// were just made durable.
    fn gather(&self, last: u64, most: Duration) {
        // In this order: frames that are written in between were accepted before.
        let written = self.written_frames();
        let accepted = self.accepted_frames();
        debug_assert!(written <= accepted, "{written} frames are written, and {accepted} were accepted");
        let goal = written + (last + accepted.saturating_sub(written)) / 2;
        let until = Instant::now() + most;
        self.shell.goal.store(goal, Ordering::SeqCst);
        while self.accepted_frames() < goal && !self.shell.is_stopping() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        self.shell.goal.store(0, Ordering::SeqCst);
    }

    /// How long the batch that fills is still to wait before it is sent; `None`: it need not wait.
    fn early_by(&self, pace: &Pace) -> Option<Duration> {
        let since = pace.sent_at.filter(|_| !S::LOCAL)?.elapsed();
        let left = self.options.commit_interval.checked_sub(since).filter(|left| !left.is_zero())?;
        let fill = self.fill.lock();
        (fill.whole_batches() == 0 && !fill.is_empty()).then_some(left)
    }

    /// Whether something was done, and whether that was a sync.
    fn timed_step(&self, pace: &mut Pace, may_send: bool) -> Result<(bool, bool), Poisoned> {
        let (answered, sent) = self.begin_if(may_send)?;
        if sent {
            pace.sent_at = Some(Instant::now());
        }
        let began = answered || sent;
        let before = Instant::now();
        let finished = self.finish()?;
        if finished {
            Counters::add(&self.counters.sync_nanos, before.elapsed().as_nanos() as u64);
        }
        Ok((began || finished, finished))
    }
}

impl<S: Sink> Work for Sequencer<S> {
    fn work(&self) -> bool {
        *self.shell.thread.lock() = Some(std::thread::current());
        let mut pace = self.shell.pace.lock();
        while !self.shell.is_stopping() {
            // Cleared before the step: work that is announced from here on is seen by this step, or ends the park
            // below.
            self.shell.wanted.store(false, Ordering::SeqCst);
            match self.look(&mut pace) {
                Ok(Next::Look) if self.shell.is_crowded() => return true,
                Ok(Next::Look) => {}
                Ok(Next::Park(time)) => std::thread::park_timeout(time),
                Ok(Next::Gather(time)) => {
                    self.shell.goal.store(u64::MAX, Ordering::SeqCst);
                    std::thread::park_timeout(time);
                    self.shell.goal.store(0, Ordering::SeqCst);
                }
                Ok(Next::Leave) | Err(_) => return false,
            }
        }
        false
    }

    fn fail(&self) {
        self.published.poison(Poisoned::new("step of the writer", "its thread panicked"));
    }

    fn leave(self: Arc<Self>) {
        let shell = &self.shell;
        let mut thread = shell.thread.lock();
        *thread = None;
        shell.taken.store(false, Ordering::SeqCst);
        // Work was announced after this thread's last step.
        let is_missed =
            shell.wanted.load(Ordering::SeqCst) && !shell.is_stopping() && self.published.poisoned().is_none();
        shell.left.notify_all();
        drop(thread);
        if is_missed {
            shell.rouse();
        }
    }
}
