//! Tables that could not be published because others write to them.
//!
//! Finding that out takes seconds of attempts, each of which holds up the table's other writers for a moment. For a while the answer is given
//! again without a new attempt, to the other definitions of the same batch among others.

use super::error::PublishError;
use crate::table::Table;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long the answer is given again: less than clients are told to wait.
const FOR: Duration = Duration::from_secs(5);

/// By oid, when the last attempt ended.
#[derive(Debug, Default)]
pub(super) struct Busy(Mutex<HashMap<u32, Instant>>);

impl Busy {
    /// Refuses a table that was busy a moment ago.
    pub(super) fn check(&self, table: &Table) -> Result<(), PublishError> {
        if self.0.lock().get(&table.oid).is_some_and(|at| at.elapsed() < FOR) {
            return Err(PublishError::Busy { table: table.name.clone() });
        }
        Ok(())
    }

    /// Keeps in mind that the outcome of an attempt is that the table is busy.
    pub(super) fn noted(&self, table: &Table, outcome: Result<(), PublishError>) -> Result<(), PublishError> {
        if matches!(outcome, Err(PublishError::Busy { .. })) {
            let mut all = self.0.lock();
            all.retain(|_, at| at.elapsed() < FOR);
            all.insert(table.oid, Instant::now());
        }
        outcome
    }

    pub(super) fn forget(&self, table: u32) {
        self.0.lock().remove(&table);
    }
}
