//! Making shapes: from definitions to rows that can be shown. Runs on threads that may wait for Postgres and for the
//! disk.
//!
//! One job takes all definitions of a table that wait at the same time ([`ShapesServer::begin`]); similar ones get
//! their rows from one scan of the table ([`scan`]).

mod check;
mod dependent;
mod dependent_rows;
mod groups;
pub(crate) mod scan;
mod target;
#[cfg(test)]
mod tests;

use crate::catalog::Catalog;
use crate::change_store::ChangeStore;
use crate::failures::{cannot_store, invalid, no_table, not_published, unavailable};
use crate::faults::Fault;
use crate::feed_lock::SharedFeed;
use crate::lifetime::Lifetime;
use crate::retirement::Retirement;
use crate::server::ShapesServer;
use crate::shape::{Phase, Shape, State};
use check::Checked;
use std::sync::Arc;
use thalweg_shapes_core::state::recent::RecentMark;
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
    /// The shape does not get the transactions that were applied before this mark.
    mark: RecentMark,
}

/// The parts of the server that a scan of a table needs.
struct ScanContext<'a> {
    lifetime: &'a Arc<Lifetime>,
    feed: &'a SharedFeed,
    catalog: &'a Catalog,
    changes: &'a ChangeStore,
    retirement: &'a Retirement,
    chunk_bytes: u64,
}

impl<'a> ScanContext<'a> {
    fn of(server: &'a ShapesServer) -> Self {
        let ShapesServer { lifetime, feed, catalog, changes, retirement, config, .. } = server;
        Self { lifetime, feed, catalog, changes, retirement, chunk_bytes: config.http.chunk_bytes }
    }
}

impl ShapesServer {
    /// The table as it is now.
    pub(crate) fn table_of(&self, session: &mut Session, name: &TableName) -> Result<Arc<Found>, Failure> {
        match self.source.tables.find(session, name) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(no_table(name)),
            Err(LookupError::Unsupported(error)) => Err(invalid("table", error.to_string())),
            Err(LookupError::Source(error)) => Err(unavailable(error)),
        }
    }

    /// Finds the shape of a definition of this table, or begins one: it is registered and listens when this returns;
    /// then [`ShapesServer::fill`] fetches its rows.
    pub(crate) fn begin(
        self: &Arc<Self>,
        session: &mut Session,
        found: &Found,
        definition: &Definition,
        query_key: &[u8],
        now_micros: u64,
    ) -> Result<(Arc<Shape>, Option<Filling>), Failure> {
        let checked = self.check(session, found, definition)?;
        if let Some(known) = self.known(checked.identity, query_key) {
            return Ok((known, None));
        }
        self.catalog.costly.check(checked.identity, self.lifetime.clock.now())?;
        // The publication comes first: the known published tables are valid for one version of it only.
        self.publication_is(&found.standing.publication).map_err(cannot_store)?;
        let epoch = self.catalog.registry.read().epoch();
        self.source.publisher.ensure_found(session, found).map_err(not_published)?;
        // Shapes of one table see its changes by the same columns.
        let known = self.feed.lock().router.table(checked.table.oid).cloned();
        if known.is_some_and(|known| !known.goes_on(&checked.table)) {
            self.retirement.drop_table(checked.table.oid, "was altered");
        }
        let number = self.catalog.ids.new_number();
        let identity = checked.identity;
        let handle = self.catalog.ids.new_handle(identity, now_micros);
        let schema = thalweg_shapes_core::encode::schema::header(&checked.table, &checked.selected);
        let family = self.catalog.families.share(Family::of(definition, checked.table.oid, schema));
        let mut state = State::default();
        state.phase = Phase::Snapshotting;
        let shape = Arc::new(Shape::new(number, handle, family, Condition::of(definition), identity, state));
        {
            let mut registry = self.catalog.registry.write();
            if registry.epoch() != epoch {
                // That the table's changes come was true of the stream before.
                return Err(Failure::Rotated);
            }
            if let Some(known) = registry.by_identity(identity).cloned() {
                registry.learn(query_key, &known);
                return Ok((known, None));
            }
            registry.insert(Arc::clone(&shape));
            registry.learn(query_key, &shape);
        }
        if checked.dependence.is_some() {
            // The shape gets changes from its snapshot on.
            return Ok((Arc::clone(&shape), Some(Filling { shape, checked, mark: RecentMark::START })));
        }
        let registered =
            self.feed.lock().register(&shape, &checked.table, &checked.selected, checked.predicate.clone());
        let registered =
            registered.map(|mark| if self.lifetime.faults.has(Fault::ListensLate) { RecentMark::START } else { mark });
        let Some(mark) = registered else {
            self.retirement.fail_shape(&shape, Failure::Rotated);
            return Err(Failure::Rotated);
        };
        Ok((Arc::clone(&shape), Some(Filling { shape, checked, mark })))
    }

    fn known(&self, identity: Identity, query_key: &[u8]) -> Option<Arc<Shape>> {
        let registry = self.catalog.registry.read();
        let known = registry.by_identity(identity).cloned()?;
        registry.learn(query_key, &known);
        Some(known)
    }
}
