//! The shapes behind the router's ids: who gets the entries of a change.

use crate::shape::Shape;
use std::sync::Arc;
use thalweg_shapes_core::route::ids::RouteId;

/// Shapes by their route ids.
#[derive(Default)]
pub(crate) struct RoutedShapes(Vec<Option<Arc<Shape>>>);

impl RoutedShapes {
    pub(crate) fn get(&self, route_id: RouteId) -> Option<&Arc<Shape>> {
        self.0.get(route_id.index())?.as_ref()
    }

    /// The router gives an id to one shape at a time.
    pub(crate) fn insert(&mut self, route_id: RouteId, shape: Arc<Shape>) {
        let at = route_id.index();
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        let before = self.0[at].replace(shape);
        assert!(before.is_none(), "{route_id:?} is given to two shapes");
    }

    /// Takes the shape with this number out; whether it was there.
    pub(crate) fn remove(&mut self, route_id: RouteId, number: u64) -> bool {
        let found = self.0.get_mut(route_id.index());
        found.is_some_and(|found| found.take_if(|shape| shape.number == number).is_some())
    }
}
