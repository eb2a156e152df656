//! Background work outside kernel units: one thread per kind, so that no kind waits for another. Jobs of kernel units
//! run on the threads of [`thalweg_rounds::Rounds`].

use crate::reload::Reload;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_base::Millis;

/// How often reloadable files are checked for changes.
const RELOAD_EVERY: Duration = Duration::from_millis(500);

/// Milliseconds since the Unix epoch, by the clock that never goes back.
pub fn now() -> Millis {
    Millis(thalweg_http::clock::unix_ms())
}

/// Asks this process to stop, as a person would.
pub fn stop_this_process() {
    let sent = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
    if let Err(error) = sent {
        tracing::error!(%error, "this process could not be asked to stop");
    }
}

/// The threads; stopping waits for the current step of each.
pub struct Background {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Sleeps; whether to stop.
    fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut stopped = self.stopped.lock();
        while !*stopped && !self.changed.wait_until(&mut stopped, until).timed_out() {}
        *stopped
    }
}

impl Background {
    /// No thread yet.
    pub fn start() -> Self {
        Self { stop: Arc::default(), threads: Vec::new() }
    }

    /// Checks periodically whether files are to be read again.
    pub fn watch(&mut self, mut reload: Reload) -> std::io::Result<()> {
        self.every("reload", RELOAD_EVERY, move || reload.step())
    }

    /// Starts a thread that calls `work` again and again, with a `pause` between.
    pub fn every(
        &mut self,
        name: &'static str,
        pause: Duration,
        mut work: impl FnMut() + Send + 'static,
    ) -> std::io::Result<()> {
        self.until_done(name, pause, move || {
            work();
            false
        })
    }

    /// The same, until `work` says that it is done.
    pub fn until_done(
        &mut self,
        name: &'static str,
        pause: Duration,
        mut work: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let run = move || while !work() && !stop.sleep(pause) {};
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }

    /// Ends all threads, and waits for the step that each is in.
    pub fn stop(self) {
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}
