//! Registry of waiting readers, by stream.
//!
//! An unwatched stream costs nothing here: its state says so. A change of a watched stream is queued with its position
//! in the journal, and the thread that learns of that position's durability wakes the watchers. Lock order: a shard of
//! logs, then a shard of this registry, or the queue; never two of these.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{LogId, Reached, Until};
use thalweg_http::Waker;

const SHARDS: usize = 64;

pub(crate) struct Watchers {
    shards: [Shard; SHARDS],
    /// Changes of watched logs that were not visible when they were made, about in the order of the journal.
    queue: Mutex<Vec<(Until, LogId)>>,
    next: AtomicU64,
}

impl Default for Watchers {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Shard::default());
        Self { shards, queue: Mutex::default(), next: AtomicU64::default() }
    }
}

#[derive(Default)]
struct Shard(Mutex<HashMap<LogId, Vec<(u64, Waker)>>>);

/// One watcher, for [`Watchers::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchKey(u64);

impl Watchers {
    fn shard(&self, log: LogId) -> &Mutex<HashMap<LogId, Vec<(u64, Waker)>>> {
        // Ids end in their log shard's number, so nearby ids differ in their upper bits.
        &self.shards[(log.0 ^ (log.0 >> 6)) as usize % SHARDS].0
    }

    /// Wakes `waker` after each change of `log`, until removed. The caller holds the log's shard and marks the log as
    /// watched.
    pub(crate) fn add(&self, log: LogId, waker: Waker) -> WatchKey {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(log).lock().entry(log).or_default().push((key, waker));
        WatchKey(key)
    }

    /// Returns whether the log still has a watcher. The caller holds the log's shard, if the log still exists.
    pub(crate) fn remove(&self, log: LogId, key: WatchKey) -> bool {
        let mut shard = self.shard(log).lock();
        let Some(list) = shard.get_mut(&log) else { return false };
        if let Some(at) = list.iter().position(|(k, _)| *k == key.0) {
            list.swap_remove(at);
        }
        if list.is_empty() {
            shard.remove(&log);
            return false;
        }
        true
    }

    /// Queues a change of a watched log, visible when `until` is reached. If it is reached already, call
    /// [`Watchers::wake`] afterwards.
    pub(crate) fn changed(&self, until: Until, log: LogId) {
        self.queue.lock().push((until, log));
    }

    /// Wakes all watchers.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            shard.0.lock().values().flatten().for_each(|(_, waker)| waker.wake());
        }
    }

    /// Wakes the watchers of every change that is visible now.
    pub(crate) fn wake(&self, reached: Reached) {
        let mut due = {
            let mut queue = self.queue.lock();
            if queue.is_empty() {
                return;
            }
            let mut due = Vec::new();
            queue.retain(|(until, log)| {
                let later = !reached.covers(*until);
                if !later {
                    due.push(*log);
                }
                later
            });
            due
        };
        due.sort_unstable();
        due.dedup();
        for log in due {
            if let Some(list) = self.shard(log).lock().get(&log) {
                list.iter().for_each(|(_, waker)| waker.wake());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_base::Lsn;

    fn counting() -> (Arc<AtomicU64>, Waker) {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        (
            count,
            Waker::from_fn(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }),
        )
    }

    #[test]
    fn only_visible_changes_wake() {
        let (watchers, (count, waker)) = (Watchers::default(), counting());
        let key = watchers.add(LogId(1), waker);
        watchers.changed(Until::Durable(Lsn(10)), LogId(1));
        watchers.changed(Until::Durable(Lsn(8)), LogId(1));
        watchers.changed(Until::Durable(Lsn(20)), LogId(1));
        watchers.changed(Until::Written(Lsn(8)), LogId(2));
        watchers.wake(Reached { written: Lsn(20), durable: Lsn(7) });
        assert_eq!(count.load(Ordering::Relaxed), 0);
        watchers.wake(Lsn(10).into());
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert!(!watchers.remove(LogId(1), key));
        watchers.wake(Lsn(20).into());
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_last_watcher_is_known() {
        let watchers = Watchers::default();
        let (a, b) = (watchers.add(LogId(1), counting().1), watchers.add(LogId(1), counting().1));
        assert!(watchers.remove(LogId(1), a));
        assert!(!watchers.remove(LogId(1), b));
        assert!(!watchers.remove(LogId(1), b));
    }
}
