//! Making shapes: from definitions to rows that can be shown. Runs on threads that may wait for Postgres and for the disk.
//!
//! Definitions of one table that wait at the same time are looked at together ([`Engine::begin`]), and those that are alike get their rows
//! from one scan of the table ([`scan`]).

mod check;
mod failure;
mod groups;
pub(crate) mod scan;
mod target;
mod template;
#[cfg(test)]
mod tests;

pub(crate) use failure::{cannot_store, invalid, not_published, unavailable};
pub(crate) use template::Templates;

use crate::engine::Engine;
use crate::faults::Fault;
use crate::shape::{Phase, Shape, State};
use check::Checked;
use failure::no_table;
use std::sync::Arc;
use thalweg_shapes_model::definition::{Condition, Definition, Identity};
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::family::Family;
use thalweg_shapes_model::table::TableName;
use thalweg_shapes_source::catalog::{Found, LookupError};
use thalweg_shapes_source::session::Session;

/// A shape that listens to changes and has no rows yet.
pub(crate) struct Filling {
    pub(crate) shape: Arc<Shape>,
    checked: Checked,
    /// What was applied before this is not told to it.
    mark: u64,
}

impl Engine {
    /// The table as it is now.
    pub(crate) fn table_of(&self, session: &mut Session, name: &TableName) -> Result<Arc<Found>, Failure> {
        match self.tables.find(session, name) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(no_table(name)),
            Err(LookupError::Unsupported(error)) => Err(invalid("table", error.to_string())),
            Err(LookupError::Source(error)) => Err(unavailable(error)),
        }
    }

    /// Finds the shape of a definition of this table, or begins one: it is registered and listens when this returns; then
    /// [`Engine::fill`] fetches its rows.
    pub(crate) fn begin(
        self: &Arc<Self>,
        session: &mut Session,
        found: &Found,
        definition: &Definition,
        words: &[u8],
        now_micros: u64,
    ) -> Result<(Arc<Shape>, Option<Filling>), Failure> {
        let checked = self.check(session, found, definition)?;
        if let Some(known) = self.known(checked.identity, words) {
            return Ok((known, None));
        }
        self.refuse_costly(checked.identity)?;
        // First: what was known of published tables holds for this version of the publication only.
        self.publication_is(&found.standing.publication).map_err(cannot_store)?;
        self.publisher.ensure_found(session, found).map_err(not_published)?;
        // Shapes of one table see its changes by the same columns.
        let known = self.router.lock().table(checked.table.oid).cloned();
        if known.is_some_and(|known| !known.goes_on(&checked.table)) {
            self.drop_table(checked.table.oid, "was altered");
        }
        let number = self.ids.new_number();
        let identity = checked.identity;
        let handle = self.ids.new_handle(identity, now_micros);
        let schema = thalweg_shapes_core::encode::schema::header(&checked.table, &checked.selected);
        let family = self.families.share(Family::of(definition, checked.table.oid, schema));
        let mut state = State::default();
        state.phase = Phase::Snapshotting;
        let shape = Arc::new(Shape::new(number, handle, family, Condition::of(definition), identity, state));
        {
            let mut registry = self.registry.write();
            if let Some(known) = registry.by_identity(identity).cloned() {
                registry.learn(words, &known);
                return Ok((known, None));
            }
            registry.insert(Arc::clone(&shape));
            registry.learn(words, &shape);
        }
        if checked.dependence.is_some() {
            // It is told of changes from its snapshot on.
            return Ok((Arc::clone(&shape), Some(Filling { shape, checked, mark: 0 })));
        }
        let Some(mark) = self.listen(&shape, &checked) else {
            self.fail_shape(&shape, Failure::Rotated);
            return Err(Failure::Rotated);
        };
        Ok((Arc::clone(&shape), Some(Filling { shape, checked, mark })))
    }

    /// From here on the shape gets changes; what was applied before the mark must be in its snapshot. `None`: meanwhile the table was altered,
    /// and has shapes that see its changes by other columns.
    fn listen(&self, shape: &Arc<Shape>, checked: &Checked) -> Option<u64> {
        let mut router = self.router.lock();
        if router.table(checked.table.oid).is_some_and(|known| !known.same_shape(&checked.table)) {
            return None;
        }
        let slot = router.insert(Arc::clone(shape), &checked.table, &checked.selected, checked.predicate.clone());
        shape.lock().slot = Some(slot);
        let mark = self.recent.lock().mark();
        Some(if self.faults.has(Fault::ListensLate) { 0 } else { mark })
    }

    fn known(&self, identity: Identity, words: &[u8]) -> Option<Arc<Shape>> {
        let registry = self.registry.read();
        let known = registry.by_identity(identity).cloned()?;
        registry.learn(words, &known);
        Some(known)
    }
}
