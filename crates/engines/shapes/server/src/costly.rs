//! Shapes whose where clause turned out to be too costly for a row that the table has.
//!
//! They are dropped, and for a while not made again: the cause remains, and every new attempt would have Postgres
//! evaluate the clause for the whole table.

use crate::failures::invalid;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use thalweg_filter::TooCostly;
use thalweg_shapes_model::definition::Identity;
use thalweg_shapes_model::failure::Failure;

/// How long a definition is refused.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Definitions that are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// Definitions that are refused, and until when.
#[derive(Debug, Default)]
pub(crate) struct Costly(Mutex<HashMap<Identity, Instant>>);

impl Costly {
    /// Refuses a definition for a while.
    pub(crate) fn note(&self, identity: Identity, now: Instant) {
        let mut all = self.0.lock();
        if all.len() >= REMEMBERED_MAX {
            all.retain(|_, until| *until > now);
        }
        if all.len() < REMEMBERED_MAX {
            all.insert(identity, now + REFUSED_FOR);
        }
    }

    /// Refuses a definition that was too costly a moment ago.
    pub(crate) fn check(&self, identity: Identity, now: Instant) -> Result<(), Failure> {
        if self.has(identity, now) { Err(refusal()) } else { Ok(()) }
    }

    fn has(&self, identity: Identity, now: Instant) -> bool {
        self.0.lock().get(&identity).is_some_and(|until| *until > now)
    }
}

pub(crate) fn refusal() -> Failure {
    let why = "simplify it, or keep the values that it looks at shorter";
    invalid("where", format!("{TooCostly} (docs/ops/limits.md): {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_costly_definition_is_refused_for_a_while() {
        let (costly, now) = (Costly::default(), Instant::now());
        let [one, other] = [Identity::of(b"one"), Identity::of(b"other")];
        costly.note(one, now);
        assert!(costly.has(one, now) && !costly.has(other, now));
        assert!(!costly.has(one, now + REFUSED_FOR));
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let (costly, now) = (Costly::default(), Instant::now());
        (0..2 * REMEMBERED_MAX).for_each(|n| costly.note(Identity::of(&n.to_le_bytes()), now));
        assert_eq!(costly.0.lock().len(), REMEMBERED_MAX);
        let later = now + REFUSED_FOR;
        costly.note(Identity::of(b"later"), later);
        assert_eq!(costly.0.lock().len(), 1);
    }
}
