//! The published state of the writer: the written and the durable position, and whether the writer stopped.

use crate::Poisoned;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use thalweg_base::Lsn;

type Subscriber = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Published {
    durable: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    /// How often a batch could not be written because there was no space for its segment.
    full: AtomicU64,
    poisoned: OnceLock<Poisoned>,
    subscribers: Mutex<Vec<Subscriber>>,
    waiters: Mutex<()>,
    changed: Condvar,
}

impl Published {
    pub(crate) fn new(at: Lsn) -> Self {
        Self {
            durable: AtomicU64::new(at.0),
            written: AtomicU64::new(at.0),
            synced: AtomicU64::new(at.0),
            full: AtomicU64::new(0),
            poisoned: OnceLock::new(),
            subscribers: Mutex::new(Vec::new()),
            waiters: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn written(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    /// Everything below survives loss of power.
    pub(crate) fn synced(&self) -> Lsn {
        Lsn(self.synced.load(Ordering::Acquire))
    }

    /// Advances the synced and the durable position. The caller calls [`Published::notify`] after this, once it holds
    /// no lock.
    pub(crate) fn set_synced(&self, to: Lsn) {
        self.synced.fetch_max(to.0, Ordering::AcqRel);
        self.set_durable(to);
    }

    pub(crate) fn set_written(&self, to: Lsn) {
        self.written.fetch_max(to.0, Ordering::AcqRel);
    }

    /// Wakes the threads that give up when there is no space; the caller may hold locks. [`Published::notify`] tells
    /// subscribers.
    pub(crate) fn note_full(&self) {
        self.full.fetch_add(1, Ordering::AcqRel);
        drop(self.waiters.lock());
        self.changed.notify_all();
    }

    /// Grows with every attempt that found no space.
    pub(crate) fn times_full(&self) -> u64 {
        self.full.load(Ordering::Acquire)
    }

    /// Publishes the durable position: the synced one, but for planted faults.
    pub(crate) fn set_durable(&self, to: Lsn) {
        self.durable.fetch_max(to.0, Ordering::AcqRel);
    }

    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        self.poisoned.get().cloned()
    }

    pub(crate) fn sound(&self) -> Result<(), Poisoned> {
        self.poisoned().map_or(Ok(()), Err)
    }

    /// Stops the journal for good. Only the first cause counts and is published.
    pub(crate) fn poison(&self, poisoned: Poisoned) -> Poisoned {
        let Poisoned { operation, .. } = poisoned;
        if self.poisoned.set(poisoned.clone()).is_ok() {
            tracing::error!(
                operation,
                cause = poisoned.cause,
                "the journal stopped: it accepts nothing until a restart"
            );
            self.notify();
        }
        self.poisoned().unwrap_or(poisoned)
    }

    pub(crate) fn subscribe(&self, f: Subscriber) {
        self.subscribers.lock().push(f);
    }

    pub(crate) fn notify(&self) {
        drop(self.waiters.lock());
        self.changed.notify_all();
        let subscribers = self.subscribers.lock().clone();
        for f in subscribers {
            f();
        }
    }

    /// Waits until `reached` is true; it is asked after every notification. An error if the journal is poisoned before.
    pub(crate) fn wait(&self, reached: impl Fn(&Self) -> bool) -> Result<(), Poisoned> {
        let mut waiters = self.waiters.lock();
        while !reached(self) {
            self.sound()?;
            self.changed.wait(&mut waiters);
        }
        Ok(())
    }
}
