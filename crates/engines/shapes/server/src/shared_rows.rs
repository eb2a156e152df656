//! Logs of rows that several shapes have (`r/<n>`): which shapes refer to them.
//!
//! A scan acquires such a log for its shapes before the first of them refers to it. The thread that deletes a shape's
//! log, or its rows, releases the shape's references after that, and deletes the logs that no shape refers to. A crash
//! in between leaves a log to the next start.

use parking_lot::Mutex;
use std::collections::HashMap;
use thalweg_base::LogId;

#[derive(Debug, Default)]
pub(crate) struct SharedRows(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// How many shapes hold each log.
    holders: HashMap<LogId, u32>,
    /// The logs of each shape, numbered from 0: nearly all have one at most.
    held: hashbrown::HashMap<(u64, u32), LogId>,
    /// No shape refers to them, but they could not be deleted.
    left: Vec<LogId>,
}

impl SharedRows {
    /// `shapes`, by their numbers, are about to refer to this log.
    pub(crate) fn acquire(&self, log: LogId, shapes: &[u64]) {
        let mut inner = self.0.lock();
        assert!(!inner.left.contains(&log), "invariant 11: {log:?} is acquired while it is deleted");
        for shape in shapes {
            let free = (0..).find(|at| !inner.held.contains_key(&(*shape, *at)));
            inner.held.insert((*shape, free.unwrap_or_default()), log);
        }
        *inner.holders.entry(log).or_default() += u32::try_from(shapes.len()).unwrap_or(u32::MAX);
    }

    /// The shape, or its rows, are gone. Returns the logs that no shape refers to now: the caller deletes them.
    pub(crate) fn release(&self, shape: u64) -> Vec<LogId> {
        let mut inner = self.0.lock();
        let mut free = std::mem::take(&mut inner.left);
        for at in 0.. {
            let Some(log) = inner.held.remove(&(shape, at)) else { break };
            let count = inner.holders.entry(log).or_default();
            debug_assert!(*count > 0, "invariant 11: a log of common rows is released more often than it was acquired");
            *count = count.saturating_sub(1);
            if *count == 0 {
                inner.holders.remove(&log);
                free.push(log);
            }
        }
        free
    }

    /// They could not be deleted: the next release returns them again.
    pub(crate) fn requeue(&self, logs: Vec<LogId>) {
        self.0.lock().left.extend(logs);
    }

    /// How many logs there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().holders.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_goes_with_the_last_who_holds_it() {
        let (shared_rows, a, b) = (SharedRows::default(), LogId(1), LogId(2));
        shared_rows.acquire(a, &[7, 8]);
        shared_rows.acquire(b, &[8, 9]);
        assert_eq!(shared_rows.release(7), []);
        assert_eq!(shared_rows.release(7), [], "it holds nothing any more");
        assert_eq!(shared_rows.release(8), [a]);
        shared_rows.requeue(vec![a]);
        assert_eq!(shared_rows.release(9), [a, b]);
        assert_eq!(shared_rows.len(), 0);
    }
}
