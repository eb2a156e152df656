//! The shapes as the binary has them: opened on a kernel unit, with the threads that follow Postgres.

use crate::compact;
use crate::config::ShapesConfig;
use crate::follow;
use crate::format::note::LogState;
use crate::lag;
use crate::maintenance;
use crate::serve::ShapesService;
use crate::serve::admission::Kind;
use crate::server::ShapesServer;
use crate::store::{Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use thalweg_log::Logs;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_model::table::TableName;
use thalweg_shapes_source::clock::SystemClock;
use thalweg_shapes_source::pool::{self, Pool};
use thalweg_shapes_source::setup;

/// Why the shapes cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a thread cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShapesStats {
    pub shapes: usize,
    /// Transactions that were applied since the start.
    pub transactions: u64,
    /// Changes that were made for shapes since the start, and how often one was given to a shape.
    pub changes: u64,
    pub deliveries: u64,
    /// Predicates that were evaluated for a row since the start.
    pub evaluations: u64,
    /// Every transaction that commits at or before this LSN was applied.
    pub processed_lsn: u64,
    /// Changes in memory for live readers.
    pub hot_bytes: usize,
    /// The stream of changes is open, or no shape or request needs it.
    pub active: bool,
    /// No shape or request needs the database: no connection to it is open.
    pub asleep: bool,
    /// Times that the tables of shapes were compared with the catalog since the start.
    pub compared: u64,
    /// Times that all shapes were dropped since the start, as the source had become another one.
    pub left: u64,
    /// Connections to the database for queries.
    pub connections: usize,
    /// Queries that wait for one.
    pub queries_waiting: usize,
    /// The last attempt to connect for queries failed.
    pub database_down: bool,
    /// Of Postgres's log, not applied yet.
    pub lag_bytes: u64,
    /// How long the oldest part of them has been known.
    pub lag_ms: u64,
    /// Bytes of its log that Postgres keeps for the replication slot.
    pub wal_kept_bytes: u64,
    /// Live requests under way: long-polls and SSE.
    pub live: u64,
    /// Snapshots that are being copied.
    pub snapshots: u64,
    /// Rows that snapshots copied since the start.
    pub rows_copied: u64,
    /// Bases that were made of logs since the start, and bytes that were read and written for them.
    pub bases_made: u64,
    pub compact_read_bytes: u64,
    pub compact_written_bytes: u64,
    /// Changes that are kept for shapes.
    pub log_held_bytes: u64,
    /// Changes that came cannot be stored.
    pub stuck: bool,
    /// That is because the disk is full.
    pub disk_full: bool,
    /// Bytes in memory of answers that are not sent yet, and of messages that are kept for more readers.
    pub held_bytes: u64,
    /// Requests that wait for a shape to be made; all other requests that are under way.
    pub initial_requests: usize,
    pub existing_requests: usize,
}

/// Shapes of one database.
pub struct Shapes {
    server: Arc<ShapesServer>,
    service: ShapesService,
    threads: Vec<JoinHandle<()>>,
}

impl Shapes {
    /// Restores the shapes of the unit, and begins to follow the database.
    pub fn open(logs: Arc<Logs<LogState>>, config: ShapesConfig) -> Result<Self, OpenError> {
        let store = Store::open(logs)?;
        let server = Arc::new(ShapesServer::new(config, store, Arc::new(SystemClock)));
        let recovered = server.recover()?;
        tracing::info!(shapes = recovered.shapes, transactions = recovered.transactions, "shapes are back");
        let kept = if server.source.idle.is_on() { 0 } else { pool::KEPT };
        let database = Pool::new(server.source.queries.clone(), server.config.connections, kept);
        warm(&server, &database);
        let service = ShapesService::new(Arc::clone(&server), database);
        let mut shapes = Self { server, service, threads: Vec::new() };
        let following = Arc::clone(&shapes.server);
        shapes.spawn("shapes-follow", move || follow::run(&following))?;
        let watching = Arc::clone(&shapes.server);
        shapes.spawn("shapes-watch", move || maintenance::run(&watching))?;
        let compacting = Arc::clone(&shapes.server);
        shapes.spawn("shapes-compact", move || compact::run(&compacting.compactor))?;
        let asking = Arc::clone(&shapes.server);
        shapes.spawn("shapes-lag", move || {
            let ShapesServer { lifetime, source, watermarks, config, .. } = &*asking;
            let is_following = || source.health() == Health::Active;
            lag::run(lifetime, &source.lag, watermarks, &source.queries, &config.slot(), is_following);
        })?;
        Ok(shapes)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// Answers requests.
    #[must_use]
    pub fn service(&self) -> ShapesService {
        self.service.clone()
    }

    /// Stops following. Applied changes are durable, or Postgres will send them again.
    pub fn stop(&mut self) {
        if self.server.lifetime.stopping() {
            return;
        }
        self.server.lifetime.stop();
        self.server.fetcher.stop();
        self.server.source.partitions.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the shapes has panicked");
            }
        }
        if let Err(error) = self.server.note_clean_stop() {
            tracing::warn!(%error, "the clean stop of the shapes cannot be noted: after a failover of Postgres they would be dropped");
        }
        if self.server.source.publication_passing.swap(false, Ordering::Relaxed) {
            let publication = self.server.config.publication();
            match setup::forget(&self.server.source.replication, &publication) {
                Ok(()) => tracing::info!(publication, "the publication of `thalweg dev` is dropped"),
                Err(error) => {
                    tracing::warn!(publication, %error, "the publication of `thalweg dev` stays: drop it")
                }
            }
        }
    }
}

/// Has the pool's first connection made, and has that connection's process read the catalog, before a request waits for
/// both.
fn warm(server: &Arc<ShapesServer>, database: &Pool) {
    let server = Arc::clone(server);
    let any = TableName { schema: "pg_catalog".into(), name: "pg_publication".into() };
    // If it cannot be done now, the first shape waits for it.
    let _ = database.submit(move |session| {
        if let Ok(session) = session {
            let _ = server.source.tables.find(session, &any);
        }
    });
}

impl Drop for Shapes {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ShapesService {
    /// Numbers for metrics.
    #[must_use]
    pub fn stats(&self) -> ShapesStats {
        let server = &self.0.server;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let behind = server.behind();
        let pool = self.0.database.stats();
        ShapesStats {
            shapes: server.catalog.registry.read().len(),
            transactions: count(&server.lifetime.counters.transactions),
            changes: count(&server.lifetime.counters.changes),
            deliveries: count(&server.lifetime.counters.deliveries),
            evaluations: count(&server.lifetime.counters.evaluations),
            processed_lsn: server.watermarks.processed_lsn().0,
            hot_bytes: server.changes.recent_window.bytes(),
            active: matches!(server.source.health(), Health::Active | Health::Asleep),
            asleep: server.source.health() == Health::Asleep,
            compared: count(&server.lifetime.counters.compared),
            left: count(&server.lifetime.counters.left),
            connections: pool.connections,
            queries_waiting: pool.waiting,
            database_down: matches!(self.0.database.health(), pool::Health::Down { .. }),
            lag_bytes: behind.bytes,
            lag_ms: u64::try_from(behind.age.as_millis()).unwrap_or(u64::MAX),
            wal_kept_bytes: behind.kept_bytes,
            live: count(&server.lifetime.counters.live),
            snapshots: count(&server.lifetime.counters.snapshots),
            rows_copied: count(&server.lifetime.counters.rows_copied),
            bases_made: count(&server.lifetime.counters.bases_made),
            compact_read_bytes: count(&server.lifetime.counters.compact_read),
            compact_written_bytes: count(&server.lifetime.counters.compact_written),
            log_held_bytes: server.changes.store.changes_held(),
            stuck: server.changes.write_stall.is_stuck(),
            disk_full: server.changes.write_stall.is_full(),
            held_bytes: server.changes.store.logs().held_bytes(),
            initial_requests: self.0.admission.now(Kind::Initial),
            existing_requests: self.0.admission.now(Kind::Existing),
        }
    }
}
