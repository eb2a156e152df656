//! Tables that could not be published because transactions write to them.
//!
//! The attempts take seconds, and each blocks the table's writers for a moment. So the refusal is repeated for a while
//! without a new attempt, for example to the other definitions of the same batch.

use super::error::PublishError;
use crate::clock::Clock;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use thalweg_shapes_model::table::Table;

/// How long a refusal is repeated: less than the `retry-after` of clients.
const FOR: Duration = Duration::from_secs(5);

/// The end of the last attempt, by the table's oid.
#[derive(Debug, Default)]
pub(super) struct Busy(Mutex<HashMap<u32, Instant>>);

impl Busy {
    /// Refuses a table that was busy a moment ago.
    pub(super) fn check(&self, table: &Table, clock: &dyn Clock) -> Result<(), PublishError> {
        if self.0.lock().get(&table.oid).is_some_and(|at| clock.since(*at) < FOR) {
            return Err(PublishError::Busy { table: table.name.clone() });
        }
        Ok(())
    }

    /// Records the outcome of an attempt if the table was busy.
    pub(super) fn noted(
        &self,
        table: &Table,
        outcome: Result<(), PublishError>,
        clock: &dyn Clock,
    ) -> Result<(), PublishError> {
        if matches!(outcome, Err(PublishError::Busy { .. })) {
            let mut all = self.0.lock();
            all.retain(|_, at| clock.since(*at) < FOR);
            all.insert(table.oid, clock.now());
        }
        outcome
    }

    pub(super) fn forget(&self, table: u32) {
        self.0.lock().remove(&table);
    }
}
