//! Comparing the tables of shapes and the publication with Postgres's catalog.

use crate::server::ShapesServer;
use crate::store::StoreError;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::publish::PublishError;
use thalweg_shapes_source::reconcile::reconcile;
use thalweg_shapes_source::session::Session;

/// A table that no shape has needed in this time leaves the publication.
const UNUSED: Duration = Duration::from_secs(600);

/// Drops the shapes of tables that are gone or changed, describes tables again that have moved, and takes tables that
/// no shape uses out of the publication.
pub(super) fn reconcile_tables(server: &Arc<ShapesServer>) -> Result<(), SourceError> {
    let tables = server.feed.lock().router.tables();
    if tables.is_empty() {
        server.lifetime.counters.compared.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let mut session = server.source.queries.connect()?;
    let known: Vec<&Table> = tables.iter().map(AsRef::as_ref).collect();
    let found = reconcile(&mut session, &server.config.publication(), known.iter().copied())?;
    if let Some(version) = &found.publication
        && let Err(error) = server.publication_is(version)
    {
        tracing::warn!(%error, "the publication's version cannot be stored; the catalog is compared again soon");
    }
    for (table, why) in &found.gone {
        server.retirement.drop_table(*table, &why.to_string());
        if let Err(error) = server.changes.store.forget_table(*table) {
            tracing::warn!(%error, "a table cannot be forgotten");
        }
    }
    for moved in &found.moved {
        // With the parts that it had, all of its changes come: the catalog was compared. Publishing it again would wait
        // for its writers.
        let same_parts = tables.iter().any(|table| table.oid == moved.table.oid && table.parts == moved.table.parts);
        if !same_parts {
            publish_parts(server, &mut session, &moved.table)?;
        }
        if let Err(error) = server.changes.store.put_table(&moved.table) {
            tracing::warn!(%error, "a table cannot be noted");
        }
        let table = Arc::new(moved.table.clone());
        if server.feed.lock().router.moved(Arc::clone(&table)) {
            server.catalog.described(table);
        }
    }
    server.lifetime.counters.compared.fetch_add(1, Ordering::Relaxed);
    // A table that gets its first shape after this was requested a moment ago: the publisher keeps it.
    let in_use: HashSet<u32> = server.feed.lock().router.tables().iter().map(|table| table.oid).collect();
    let in_use = |oid: u32| in_use.contains(&oid);
    for table in server.source.publisher.release(&mut session, UNUSED, in_use)? {
        tracing::info!(%table, "no shape needs the table: it leaves the publication");
    }
    Ok(())
}

/// Publishes a table's new parts, or drops its shapes.
fn publish_parts(server: &ShapesServer, session: &mut Session, table: &Table) -> Result<(), SourceError> {
    // That the table was busy a moment ago is no answer.
    server.source.publisher.forget(table.oid);
    match server.source.publisher.ensure(session, table) {
        Ok(()) => {}
        Err(PublishError::Source(error)) => return Err(error),
        Err(error) => {
            server.retirement.drop_table(table.oid, &format!("has a part whose changes do not come: {error}"));
        }
    }
    Ok(())
}

impl ShapesServer {
    /// Takes note of the publication's version, as it was found just now. When the version is not the known one, the
    /// publication was changed by another client of Postgres. Changes may then be missing from the stream, also if the
    /// publication was set back since: all shapes are dropped. While there is no publication (`version` is empty) the
    /// known version stays, so that the next publication is found to be another one.
    pub(crate) fn publication_is(&self, version: &str) -> Result<(), StoreError> {
        let known = self.source.bookmark.publication();
        if known == version || version.is_empty() {
            return Ok(());
        }
        if !known.is_empty() {
            self.retirement.drop_all("somebody has changed what the publication publishes");
            self.source.publisher.forget_all();
            self.source.tables.forget();
        }
        self.source.bookmark.set_publication(&self.changes.store, version)
    }
}
