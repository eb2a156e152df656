//! The writer's thread: parks when there is nothing to do, and is the only place with a clock.

use crate::file::{Counters, FileJournal};
use crate::options::Durability;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

#[derive(Default)]
pub(crate) struct Shell {
    /// Work was announced that the writer has not looked for yet.
    wanted: AtomicBool,
    stopping: AtomicBool,
    thread: OnceLock<Thread>,
    join: Mutex<Option<JoinHandle<()>>>,
}

impl Shell {
    /// While the writer is busy this is one atomic load.
    pub(crate) fn kick(&self) {
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
        let mut last_sync = Instant::now();
        while !self.shell.stopping.load(Ordering::SeqCst) {
            // Cleared before looking: who announces from here on is heard, by this look or by the park below.
            self.shell.wanted.store(false, Ordering::SeqCst);
            let worked = match self.timed_step() {
                Ok(worked) => worked,
                Err(_) => return,
            };
            if worked {
                continue;
            }
            match self.options.durability {
                Durability::Buffered { sync_after, .. } if self.has_unsynced() => {
                    let since = last_sync.elapsed();
                    if since >= sync_after {
                        if self.sync().is_err() {
                            return;
                        }
                        last_sync = Instant::now();
                    } else {
                        std::thread::park_timeout(sync_after - since);
                    }
                }
                _ => match self.mark() {
                    Ok(true) => {}
                    Ok(false) => std::thread::park(),
                    Err(_) => return,
                },
            }
        }
    }

    fn timed_step(&self) -> Result<bool, crate::Poisoned> {
        let began = self.begin()?;
        let before = Instant::now();
        let finished = self.finish()?;
        if finished {
            Counters::add(&self.counters.sync_nanos, before.elapsed().as_nanos() as u64);
        }
        Ok(began || finished)
    }
}
