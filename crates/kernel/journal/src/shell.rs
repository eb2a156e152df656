//! The writer's thread: parks when there is nothing to do, and is the only place with a clock.
//!
//! *Gathering.* A sync costs about the same whatever it makes durable, and those who were just answered ask again soon. So after a
//! sync the next batch waits until it holds half of those who asked lately, so that one half is synced while the other asks; for
//! no longer than a sync takes. Somebody who appends alone never waits.

use crate::file::{Counters, FileJournal};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a batch is gathered at most, however slow the device.
const GATHER_MAX: Duration = Duration::from_millis(1);
/// How long nothing must have come in before the writer says so in the journal.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Shell {
    /// Work was announced that the writer has not looked for yet.
    wanted: AtomicBool,
    stopping: AtomicBool,
    /// While a batch is gathered: the count of accepted frames that ends it. Zero otherwise.
    goal: AtomicU64,
    thread: OnceLock<Thread>,
    join: Mutex<Option<JoinHandle<()>>>,
}

impl Shell {
    /// `accepted` frames wait or are written. While the writer is busy, or gathers more than these, this is two atomic loads.
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
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.thread.get().is_some() && !self.stopping.load(Ordering::SeqCst)
    }

    /// Ends the thread after the step that it is in. What was accepted stays with whoever stops it.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let join = self.join.lock().take();
        if let Some(join) = join {
            join.thread().unpark();
            if join.join().is_err() {
                tracing::error!("the journal's writer panicked");
            }
        }
    }
}

impl FileJournal {
    /// Starts the writer's thread, which [`FileJournal::close`] ends. A second call does nothing.
    pub fn start_writer(self: &Arc<Self>) -> std::io::Result<()> {
        let mut join = self.shell.join.lock();
        if self.shell.thread.get().is_some() {
            return Ok(());
        }
        let journal = Arc::clone(self);
        let handle = std::thread::Builder::new().name("journal".into()).spawn(move || journal.run_writer())?;
        // A kick that came before the thread was known announced itself in `wanted`, which the thread looks at by itself.
        if self.shell.thread.set(handle.thread().clone()).is_ok() {
            handle.thread().unpark();
        }
        *join = Some(handle);
        Ok(())
    }

    /// The writer's loop, until the journal is stopped or poisoned.
    fn run_writer(&self) {
        // Since when frames wait for a sync that nobody asks for.
        let mut dirty_since: Option<Instant> = None;
        let mut sync_time = Duration::ZERO;
        let mut quiet = false;
        while !self.shell.stopping.load(Ordering::SeqCst) {
            // Cleared before looking: who announces from here on is heard, by this look or by the park below.
            self.shell.wanted.store(false, Ordering::SeqCst);
            let (before, began) = (self.written_frames(), Instant::now());
            let Ok((worked, synced)) = self.timed_step() else { return };
            if synced {
                (dirty_since, quiet) = (None, false);
                // A moving average, over some ten syncs.
                sync_time = (sync_time * 7 + began.elapsed().min(GATHER_MAX)) / 8;
                self.gather(self.written_frames() - before, 2 * sync_time);
                continue;
            }
            // What others wrote by themselves is found by looking.
            if self.is_dirty() {
                quiet = false;
                let waited = dirty_since.get_or_insert(began).elapsed();
                if waited >= self.options.sync_after {
                    dirty_since = None;
                    if self.sync_dirty().is_err() {
                        return;
                    }
                } else if !worked {
                    std::thread::park_timeout(self.options.sync_after - waited);
                }
                continue;
            }
            dirty_since = None;
            if worked {
                quiet = false;
            } else if !quiet {
                quiet = true;
                std::thread::park_timeout(PAUSE);
            } else {
                match self.mark() {
                    Ok(true) => {}
                    Ok(false) => std::thread::park(),
                    Err(_) => return,
                }
            }
        }
    }

    /// Waits until half of those who asked lately, `last` of whom were just answered, have asked again; for `most` at most.
    fn gather(&self, last: u64, most: Duration) {
        let (written, accepted) = (self.written_frames(), self.accepted_frames());
        let goal = written + (last + (accepted - written)) / 2;
        let until = Instant::now() + most;
        self.shell.goal.store(goal, Ordering::SeqCst);
        while self.accepted_frames() < goal && !self.shell.stopping.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
        self.shell.goal.store(0, Ordering::SeqCst);
    }

    /// Whether something was done, and whether that was a sync.
    fn timed_step(&self) -> Result<(bool, bool), crate::Poisoned> {
        let began = self.begin()?;
        let before = Instant::now();
        let finished = self.finish()?;
        if finished {
            Counters::add(&self.counters.sync_nanos, before.elapsed().as_nanos() as u64);
        }
        Ok((began || finished, finished))
    }
}
