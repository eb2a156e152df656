//! News of every stream for one observer in this process, such as subscriptions.
//!
//! Without an observer a change costs one relaxed load. With one, the log is put into a bounded set; the observer is
//! called when changes in it may have become visible, and takes those. Lock order: this set is a leaf.
//!
//! A log has two waits: that of the first change which was not told, and that of the last one. It is told when the first
//! is over, and then once more for the last. With the last wait alone a log that is appended to without a pause would
//! never be told, because each append is visible later than the one before.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_base::{LogId, Reached, Until};

/// Bound on the logs that wait for the observer. Beyond it the observer must check all streams.
const CHANGES_MAX: usize = 1 << 16;

/// Visible changes since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Logs that were made, appended to or deleted.
    pub logs: Vec<LogId>,
    /// Streams that are gone, by name too: nobody finds the names of their logs any more.
    pub gone: Vec<(LogId, Box<str>)>,
    /// The set overflowed: any log may have changed.
    pub overflowed: bool,
}

impl Changes {
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.logs.extend(other.logs);
        self.gone.extend(other.gone);
        Self { overflowed: self.overflowed || other.overflowed, ..self }
    }
}

#[derive(Default)]
pub(crate) struct Observed {
    /// Shared by all units.
    observer: Arc<Observer>,
    changes: Mutex<Set>,
}

/// The observer of all units.
#[derive(Default)]
struct Observer {
    on: AtomicBool,
    wake: OnceLock<Arc<dyn Fn() + Send + Sync>>,
}

/// The waits of a log's changes.
#[derive(Clone, Copy)]
struct Waits {
    /// Of the first change that was not told.
    first: Until,
    last: Until,
}

#[derive(Default)]
struct Set {
    logs: HashMap<LogId, Waits>,
    gone: Vec<(Until, LogId, Box<str>)>,
    overflowed: bool,
}

impl Observed {
    pub(crate) fn by(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        let _ = self.observer.wake.set(wake);
    }

    /// The changes of another unit, for the same observer. Those before were observed by nobody.
    pub(crate) fn beside(&self) -> Self {
        let changes = Set { overflowed: true, ..Set::default() };
        Self { observer: Arc::clone(&self.observer), changes: Mutex::new(changes) }
    }

    /// Starts recording changes. A caller that reads a log under its shard's lock after this misses no change: a change
    /// that did not see the switch precedes that read.
    pub(crate) fn turn(&self, on: bool) {
        self.observer.on.store(on, Ordering::Relaxed);
        if !on {
            *self.changes.lock() = Set::default();
        }
    }

    /// A log was changed, visibly when `until` is reached.
    #[inline]
    pub(crate) fn note(&self, until: Until, log: LogId, reached: impl FnOnce() -> Reached) {
        if self.observer.on.load(Ordering::Relaxed) {
            self.put(until, log);
            // A change that is visible already causes no later call of the observer.
            if reached().covers(until) {
                self.wake();
            }
        }
    }

    /// A stream was removed, visibly when `until` is reached.
    pub(crate) fn note_gone(&self, until: Until, log: LogId, name: &str) {
        if self.observer.on.load(Ordering::Relaxed) {
            let mut set = self.changes.lock();
            if set.gone.len() >= CHANGES_MAX {
                set.overflowed = true;
            } else {
                set.gone.push((until, log, name.into()));
            }
        }
    }

    fn put(&self, until: Until, log: LogId) {
        let mut set = self.changes.lock();
        if set.logs.len() >= CHANGES_MAX && !set.logs.contains_key(&log) {
            set.overflowed = true;
            return;
        }
        let waits = set.logs.entry(log).or_insert(Waits { first: until, last: until });
        waits.last = waits.last.and(until);
    }

    pub(crate) fn wake(&self) {
        if self.observer.on.load(Ordering::Relaxed)
            && let Some(wake) = self.observer.wake.get()
        {
            wake();
        }
    }

    pub(crate) fn take(&self, reached: Reached) -> Changes {
        let mut set = self.changes.lock();
        let mut logs = Vec::new();
        set.logs.retain(|log, waits| {
            if reached.covers(waits.first) {
                logs.push(*log);
                waits.first = waits.last;
            }
            !reached.covers(waits.last)
        });
        let gone = set.gone.extract_if(.., |(until, ..)| reached.covers(*until));
        let gone = gone.map(|(_, log, name)| (log, name)).collect();
        Changes { logs, gone, overflowed: std::mem::take(&mut set.overflowed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::Lsn;

    #[test]
    fn nothing_is_kept_for_nobody() {
        let observed = Observed::default();
        observed.note(Until::Durable(Lsn(1)), LogId(1), || Lsn(9).into());
        observed.turn(true);
        assert_eq!(observed.take(Lsn::MAX.into()), Changes::default());
    }

    #[test]
    fn only_what_is_visible_is_told() {
        let observed = Observed::default();
        observed.turn(true);
        observed.note(Until::Durable(Lsn(10)), LogId(1), || Lsn(0).into());
        observed.note(Until::Durable(Lsn(20)), LogId(2), || Lsn(0).into());
        assert_eq!(observed.take(Lsn(10).into()).logs, [LogId(1)]);
        assert_eq!(observed.take(Lsn(20).into()).logs, [LogId(2)]);
    }

    #[test]
    fn a_log_that_is_appended_to_without_a_pause_is_told() {
        let observed = Observed::default();
        observed.turn(true);
        // The next append is always under way when the one before becomes durable.
        for n in 1..100 {
            observed.note(Until::Durable(Lsn(n * 10)), LogId(1), || Lsn(0).into());
            observed.note(Until::Durable(Lsn(n * 10 + 5)), LogId(1), || Lsn(0).into());
            assert_eq!(observed.take(Lsn(n * 10).into()).logs, [LogId(1)], "{n}");
        }
        assert_eq!(observed.take(Lsn(995).into()).logs, [LogId(1)]);
        assert_eq!(observed.take(Lsn(2_000).into()).logs, []);
    }

    #[test]
    fn an_early_durable_change_wakes_the_observer() {
        let observed = Observed::default();
        let woken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&woken);
        observed.by(Arc::new(move || flag.store(true, Ordering::Relaxed)));
        observed.turn(true);
        observed.note(Until::Durable(Lsn(10)), LogId(1), || Lsn(9).into());
        assert!(!woken.load(Ordering::Relaxed));
        observed.note(Until::Durable(Lsn(10)), LogId(1), || Lsn(10).into());
        assert!(woken.load(Ordering::Relaxed));
    }

    #[test]
    fn too_many_changes_are_told_as_such() {
        let observed = Observed::default();
        observed.turn(true);
        (0..=CHANGES_MAX as u64).for_each(|log| observed.put(Until::Durable(Lsn(1)), LogId(log)));
        let changes = observed.take(Lsn(1).into());
        assert!(changes.overflowed);
        assert_eq!(changes.logs.len(), CHANGES_MAX);
        assert_eq!(observed.take(Lsn(1).into()), Changes::default());
    }
}
