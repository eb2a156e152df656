//! Dropping the least recently used shapes if there are too many.

use crate::catalog::Catalog;
use crate::retirement::Retirement;
use crate::shape::Shape;
use std::sync::Arc;

/// Drops the least recently requested shapes, if there are more than `max`.
pub(super) fn evict(catalog: &Catalog, retirement: &Retirement, max: usize) {
    let all: Vec<Arc<Shape>> = {
        let registry = catalog.registry.read();
        if registry.len() <= max {
            return;
        }
        registry.all().filter(|shape| !shape.is_inner()).cloned().collect()
    };
    // A few more than needed, so that not every new shape has all others sorted.
    let count = ((all.len() + max / 100).saturating_sub(max)).min(all.len());
    if count == 0 {
        return;
    }
    tracing::info!(shapes = count, max, "shapes that nobody has asked for longest are dropped");
    longest_unused(all, count).iter().for_each(|shape| {
        retirement.drop_shape(shape);
    });
}

/// The `count` least recently requested shapes.
fn longest_unused(mut shapes: Vec<Arc<Shape>>, count: usize) -> Vec<Arc<Shape>> {
    if count < shapes.len() {
        shapes.select_nth_unstable_by_key(count, |shape| shape.wanted_ms());
        shapes.truncate(count);
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{State, sample};

    #[test]
    fn a_shape_that_was_not_asked_for_since_the_start_is_as_old_as_its_name() {
        // `sample` names a shape after its number.
        let shapes = [5_000_000, 1_000_000, 2_000_000, 3_000_000].map(|n| Arc::new(sample(n, State::default())));
        shapes[1].used(4_000);
        let gone = |count| {
            let mut numbers: Vec<u64> =
                longest_unused(shapes.to_vec(), count).iter().map(|shape| shape.number).collect();
            numbers.sort_unstable();
            numbers
        };
        assert_eq!(gone(1), [2_000_000], "made first of those that nobody has asked for");
        assert_eq!(gone(2), [2_000_000, 3_000_000]);
        assert_eq!(
            gone(3),
            [1_000_000, 2_000_000, 3_000_000],
            "a new shape outlives what was asked for before it was made"
        );
        assert_eq!(gone(9).len(), 4);
    }
}
