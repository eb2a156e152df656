//! Work beside the requests: one thread per kind, so that none waits for another.

use crate::host::{Unit, UnitLogs};
use crate::reload::Reload;
use crate::reserve::Reserve;
use crate::scrub::Scrubber;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_base::Millis;
use thalweg_journal::FileJournal;
use thalweg_log::{UpkeepError, When};

/// How often each kind looks for work.
const SETTLE_EVERY: Duration = Duration::from_millis(100);
const MERGE_EVERY: Duration = Duration::from_millis(100);
/// One segment is ready ahead; at this rate it is used up before the next look, and appends wait.
const SEGMENT_BYTES_PER_MS: u64 = 512 << 10;
const RELOAD_EVERY: Duration = Duration::from_millis(500);
const SCRUB_EVERY: Duration = Duration::from_millis(100);
/// How long a kind rests after an error.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn now() -> Millis {
    Millis(thalweg_wire::clock::unix_ms())
}

/// The threads; stopping waits for what each is in.
pub(crate) struct Background {
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
    pub(crate) fn start() -> Self {
        Self { stop: Arc::default(), threads: Vec::new() }
    }

    /// Keeps a kernel unit in order: segments ready ahead, settling, merging, reclaiming, a reserve for a full disk.
    pub(crate) fn keep(
        &mut self,
        unit: &Unit,
        reserve: Reserve,
        settle: bool,
        segment_bytes: u64,
    ) -> std::io::Result<()> {
        let journal: Arc<FileJournal> = Arc::clone(&unit.journal);
        let prepare_every = Duration::from_millis((segment_bytes / SEGMENT_BYTES_PER_MS).clamp(5, 100));
        self.every("prepare", prepare_every, move || {
            if journal.wants_prepare() { journal.prepare().map(|()| Done::Nothing) } else { Ok(Done::Nothing) }
        })?;
        if settle {
            let logs = Arc::clone(&unit.logs);
            self.every("settle", SETTLE_EVERY, move || {
                if logs.is_low_on_space() {
                    return Ok(Done::Nothing);
                }
                let done = logs.settle(now(), When::Due);
                if done.as_ref().is_err_and(UpkeepError::is_no_space) {
                    logs.set_low_on_space(true);
                }
                done.map(Done::from)
            })?;
            let mut space = Space { logs: Arc::clone(&unit.logs), reserve };
            self.every("merge", MERGE_EVERY, move || space.step())?;
        }
        Ok(())
    }

    /// Reads what is stored and looks for damage.
    pub(crate) fn scrub(&mut self, mut scrubber: Scrubber) -> std::io::Result<()> {
        self.every("scrub", SCRUB_EVERY, move || {
            Ok::<_, UpkeepError>(scrubber.step().map_or(Done::Nothing, Done::Then))
        })
    }

    /// Looks now and then whether files are to be read again.
    pub(crate) fn watch(&mut self, mut reload: Reload) -> std::io::Result<()> {
        self.every("reload", RELOAD_EVERY, move || {
            reload.step();
            Ok::<_, UpkeepError>(Done::Nothing)
        })
    }

    /// Starts a thread that calls `work` again and again: at once after it did something, else after `pause`.
    pub(crate) fn every<E: std::fmt::Display>(
        &mut self,
        name: &'static str,
        pause: Duration,
        mut work: impl FnMut() -> Result<Done, E> + Send + 'static,
    ) -> std::io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let run = move || {
            loop {
                let rest = match work() {
                    Ok(Done::Something) => Duration::ZERO,
                    Ok(Done::Nothing) => pause,
                    Ok(Done::Then(rest)) => rest,
                    Err(error) => {
                        tracing::warn!(work = name, %error, "background work failed and is tried again");
                        RETRY_AFTER
                    }
                };
                if stop.sleep(rest) {
                    return;
                }
            }
        };
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }

    pub(crate) fn stop(self) {
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

/// What a turn of background work has done.
pub(crate) enum Done {
    Something,
    Nothing,
    /// Work was done; the next turn is after this pause.
    Then(Duration),
}

impl From<bool> for Done {
    fn from(did: bool) -> Self {
        if did { Self::Something } else { Self::Nothing }
    }
}

/// Merging and reclaiming, and what happens when the disk is full.
struct Space {
    logs: Arc<dyn UnitLogs>,
    reserve: Reserve,
}

impl Space {
    fn step(&mut self) -> Result<Done, UpkeepError> {
        if self.logs.is_low_on_space() {
            return self.relieve();
        }
        if !self.reserve.hold() {
            self.logs.set_low_on_space(true);
            return Ok(Done::Nothing);
        }
        // Reclaiming first: it may need no space, and merging needs less after it.
        let did = self.logs.reclaim(now()).and_then(|reclaimed| Ok(self.logs.merge()? || reclaimed));
        match did {
            Err(error) if error.is_no_space() => {
                tracing::warn!("the disk is full: appends are refused until there is space; deletes work");
                self.logs.set_low_on_space(true);
                Ok(Done::Nothing)
            }
            other => other.map(Done::from),
        }
    }

    /// Reclaims with the reserve's space, takes the reserve back, and lets users in when settling works again.
    fn relieve(&mut self) -> Result<Done, UpkeepError> {
        self.reserve.release();
        let reclaimed = self.logs.reclaim(now());
        if !self.reserve.hold() {
            return reclaimed.map(|_| Done::Nothing);
        }
        match self.logs.settle(now(), When::Due) {
            Err(error) if error.is_no_space() => Ok(Done::Nothing),
            Err(error) => Err(error),
            Ok(_) => {
                self.logs.set_low_on_space(false);
                tracing::info!("there is space again: appends are accepted");
                Ok(Done::Something)
            }
        }
    }
}
