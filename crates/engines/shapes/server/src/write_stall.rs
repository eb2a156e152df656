//! Whether changes wait because they cannot be stored: the disk is full, or settling is behind. Their write is tried
//! again.

use crate::store::StoreError;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The pause between two warnings.
const SAY_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct WriteStall(Mutex<Option<Since>>);

#[derive(Clone, Copy, Debug)]
struct Since {
    began: Instant,
    said: Instant,
    no_space: bool,
}

impl WriteStall {
    /// Changes could not be stored.
    pub(crate) fn failed(&self, error: &StoreError, now: Instant) {
        let mut since = self.0.lock();
        match &mut *since {
            Some(since) => {
                since.no_space = error.is_no_space();
                if now.duration_since(since.said) < SAY_EVERY {
                    return;
                }
                since.said = now;
            }
            none => *none = Some(Since { began: now, said: now, no_space: error.is_no_space() }),
        }
        tracing::warn!(%error, "changes of Postgres cannot be stored: they wait, and Postgres keeps its log; rows are read as before");
    }

    /// Changes are stored again.
    pub(crate) fn over(&self, now: impl FnOnce() -> Instant) {
        let since = self.0.lock().take();
        if let Some(since) = since {
            tracing::info!(after = ?now().saturating_duration_since(since.began), "changes of Postgres are stored again");
        }
    }

    /// A new stream begins: Postgres sends the changes again that could not be stored.
    pub(crate) fn forget(&self) {
        *self.0.lock() = None;
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Whether changes wait for want of space, which an operator has to see to.
    pub(crate) fn is_full(&self) -> bool {
        self.0.lock().is_some_and(|since| since.no_space)
    }
}
