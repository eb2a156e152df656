//! Shapes whose where clause turned out to be too costly for a row that the table has.
//!
//! They are dropped, and for a while not made again: what made them costly is still there, and every new try would have Postgres evaluate the
//! clause for the whole table.

use crate::engine::Engine;
use crate::make::invalid;
use crate::shape::{Phase, Shape};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use thalweg_base::Lsn;
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
    fn note(&self, identity: Identity, now: Instant) {
        let mut all = self.0.lock();
        if all.len() >= REMEMBERED_MAX {
            all.retain(|_, until| *until > now);
        }
        if all.len() < REMEMBERED_MAX {
            all.insert(identity, now + REFUSED_FOR);
        }
    }

    fn has(&self, identity: Identity, now: Instant) -> bool {
        self.0.lock().get(&identity).is_some_and(|until| *until > now)
    }
}

fn refusal() -> Failure {
    let why = "simplify it, or keep the values that it looks at shorter";
    invalid("where", format!("{TooCostly} (docs/ops/limits.md): {why}"))
}

impl Engine {
    /// Refuses a definition that was too costly a moment ago.
    pub(crate) fn refuse_costly(&self, identity: Identity) -> Result<(), Failure> {
        if self.costly.has(identity, self.clock.now()) { Err(refusal()) } else { Ok(()) }
    }

    /// A row came for which it is too costly to find out whether the shape has it. When the returned position is durable, the shape is gone.
    pub(crate) fn drop_costly(&self, shape: &Shape) -> Lsn {
        // Of an inner query nobody knows but the shapes that ask for it.
        let above = self.subqueries.graph.lock().above(shape.number);
        let now = self.clock.now();
        for shape in above.iter().map(AsRef::as_ref).chain([shape]) {
            self.costly.note(shape.identity, now);
        }
        let definition = shape.definition();
        let clause: String = definition.where_sql.unwrap_or_default().chars().take(200).collect();
        tracing::warn!(table = %shape.family.name, clause, "a shape is dropped: {TooCostly}");
        if matches!(shape.lock().phase, Phase::Preparing | Phase::Snapshotting) {
            self.fail_shape(shape, refusal())
        } else {
            self.drop_shape(shape)
        }
    }

    /// The same for a row of the snapshot that the shape was to begin with.
    pub(crate) fn fail_costly(&self, shape: &Shape) {
        self.drop_costly(shape);
    }
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
