//! Periodic upkeep: compares tables with the catalog, takes unused tables out of the publication, trims the change log,
//! and drops the least recently used shapes if there are too many.

use crate::server::ShapesServer;
use crate::shape::Shape;
use crate::store::StoreError;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::publish::PublishError;
use thalweg_shapes_source::reconcile::reconcile;
use thalweg_shapes_source::session::Session;

/// The interval between queries of the catalog; it grows with the number of tables, so that the cost stays small.
const RECONCILE_EVERY: Duration = Duration::from_secs(2);
const RECONCILE_EVERY_PER_TABLE: Duration = Duration::from_millis(10);
/// A table that no shape has needed in this time leaves the publication.
const UNUSED: Duration = Duration::from_secs(600);
/// How often the change log is trimmed: this, and so much longer for each shape that it costs little.
const CUT_EVERY: Duration = Duration::from_secs(1);
const CUT_EVERY_PER_SHAPE: Duration = Duration::from_micros(10);
/// How often unused inner shapes are counted: one that is found twice goes.
const ORPHANS_EVERY: Duration = Duration::from_secs(60);
/// The pause between two rounds.
const TICK: Duration = Duration::from_millis(200);

/// Runs until the server stops.
pub(crate) fn run(server: &Arc<ShapesServer>) {
    let clock = &server.lifetime.clock;
    let start = clock.now();
    let (mut next, mut last_cut, mut last_orphans) = (start, start, start);
    let mut was = Health::Starting;
    while !server.lifetime.stopping() {
        clock.sleep(TICK);
        server.evict();
        let shapes = u32::try_from(server.catalog.registry.read().len()).unwrap_or(u32::MAX);
        if clock.since(last_cut) >= CUT_EVERY + CUT_EVERY_PER_SHAPE * shapes {
            last_cut = clock.now();
            server.trim_change_log();
        }
        if clock.since(last_orphans) >= ORPHANS_EVERY {
            last_orphans = clock.now();
            // Inner shapes of shapes that could not be made.
            let orphans = server.feed.lock().graph.orphans();
            orphans.iter().for_each(|shape| {
                server.retirement.drop_shape(shape);
            });
        }
        let health = server.source.health();
        // While no stream was open, anything may have happened.
        let back = health == Health::Active && was != Health::Active;
        was = health;
        if was != Health::Active || !back && clock.now() < next {
            continue;
        }
        let tables = u32::try_from(server.feed.lock().router.tables().len()).unwrap_or(u32::MAX);
        next = clock.now() + RECONCILE_EVERY + RECONCILE_EVERY_PER_TABLE * tables;
        if let Err(error) = reconcile_tables(server) {
            tracing::warn!(%error, "tables could not be compared with the catalog; it is tried again");
        }
    }
}

fn reconcile_tables(server: &Arc<ShapesServer>) -> Result<(), SourceError> {
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
        // With the parts that it had, all of its changes come: the catalog was compared. MoveInFetcher again would wait
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

    /// Gives up changes that no shape needs, has shapes rebased that hold too many of them, and drops those that still
    /// do.
    pub(crate) fn trim_change_log(&self) {
        let published = self.watermarks.published();
        let kept_from = published.saturating_sub(self.config.log_bytes_max);
        let limits = self.compactor.limits(published.saturating_sub(self.config.log_bytes_max / 2));
        let shapes: Vec<Arc<Shape>> = self.catalog.registry.read().all().cloned().collect();
        let (mut floor, applied) = (published, self.watermarks.applied());
        let mut dropped = 0;
        let mut found = Vec::new();
        for shape in shapes {
            shape.lock().rest(applied);
            let mut standing = self.compactor.consider(&shape, &limits, &mut found);
            // The space that may be used goes before the time for which offsets are kept.
            let forced =
                standing.held.is_some_and(|at| at < kept_from) && standing.needed.is_none_or(|at| at >= kept_from);
            if standing.may_leave || forced {
                let before_ms = if forced { u64::MAX } else { limits.now_ms.saturating_sub(self.config.log_keep_ms) };
                if let Err(error) = self.retirement.release_bases(&shape, before_ms) {
                    tracing::warn!(%error, "old bases cannot be deleted; it is tried again");
                }
                standing.held = shape.lock().oldest_body();
            }
            let Some(oldest) = standing.held else { continue };
            if oldest < kept_from && !forced {
                dropped += 1;
                self.retirement.drop_shape(&shape);
            } else {
                floor = floor.min(oldest);
            }
        }
        self.compactor.want(found);
        if dropped > 0 {
            tracing::warn!(
                shapes = dropped,
                "shapes are dropped: they need more changes than are kept (shape_log_bytes)"
            );
        }
        // The references say which shapes wait for rows; they are kept until those have come.
        if self.feed.lock().graph.is_waiting() {
            return;
        }
        let Some(mark) = self.changes.trim_index.lock().cut(floor) else { return };
        if let Err(error) = self.changes.store.trim_changes(mark.bodies, mark.references) {
            tracing::warn!(%error, "old changes cannot be given up; it is tried again");
        }
    }

    /// Drops the least recently requested shapes, if there are more than the limit.
    fn evict(&self) {
        let max = self.config.shapes_max;
        let all: Vec<Arc<Shape>> = {
            let registry = self.catalog.registry.read();
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
            self.retirement.drop_shape(shape);
        });
    }
}

/// The least recently requested shapes, so many.
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
