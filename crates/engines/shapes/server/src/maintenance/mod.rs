//! Periodic upkeep: compares tables with the catalog, takes unused tables out of the publication, trims the change log,
//! and drops the least recently used shapes if there are too many.

mod catalog;
mod evict;
mod trim;

use crate::server::ShapesServer;
use std::sync::Arc;
use std::time::Duration;
use thalweg_shapes_model::health::Health;

/// The interval between queries of the catalog; it grows with the number of tables, so that the cost stays small.
const RECONCILE_EVERY: Duration = Duration::from_secs(2);
const RECONCILE_EVERY_PER_TABLE: Duration = Duration::from_millis(10);
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
        evict::evict(&server.catalog, &server.retirement, server.config.shapes_max);
        let shapes = u32::try_from(server.catalog.registry.read().len()).unwrap_or(u32::MAX);
        if clock.since(last_cut) >= CUT_EVERY + CUT_EVERY_PER_SHAPE * shapes {
            last_cut = clock.now();
            server.trim_change_log();
        }
        if clock.since(last_orphans) >= ORPHANS_EVERY {
            last_orphans = clock.now();
            drop_orphans(server);
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
        if let Err(error) = catalog::reconcile_tables(server) {
            tracing::warn!(%error, "tables could not be compared with the catalog; it is tried again");
        }
    }
}

/// Drops the inner shapes of shapes that could not be made.
fn drop_orphans(server: &ShapesServer) {
    let orphans = server.feed.lock().graph.orphans();
    orphans.iter().for_each(|shape| {
        server.retirement.drop_shape(shape);
    });
}
