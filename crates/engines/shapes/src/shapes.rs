//! The engine as the binary has it: opened on a kernel unit, with the threads that follow Postgres.

use crate::engine::{Engine, Health, ShapesConfig};
use crate::follow;
use crate::format::note::LogState;
use crate::serve::ShapesService;
use crate::source::pool::{self, Pool};
use crate::store::{Store, StoreError};
use crate::watch;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use thalweg_log::Logs;

/// Why the engine cannot be opened.
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
    /// Every transaction that commits at or before this LSN was applied.
    pub processed_lsn: u64,
    /// Changes in memory for live readers.
    pub hot_bytes: usize,
    pub active: bool,
    /// Connections to the database for queries.
    pub connections: usize,
    /// Queries that wait for one.
    pub queries_waiting: usize,
    /// The last attempt to connect for queries failed.
    pub database_down: bool,
}

/// Shapes of one database.
pub struct Shapes {
    engine: Arc<Engine>,
    service: ShapesService,
    threads: Vec<JoinHandle<()>>,
}

impl Shapes {
    /// Brings back what the unit has, and begins to follow the database.
    pub fn open(logs: Arc<Logs<LogState>>, config: ShapesConfig) -> Result<Self, OpenError> {
        let store = Store::open(logs)?;
        let engine = Arc::new(Engine::new(config, store));
        let recovered = engine.recover()?;
        tracing::info!(shapes = recovered.shapes, transactions = recovered.transactions, "shapes are back");
        let database = Pool::new(engine.config.query_database.clone(), engine.config.connections);
        let service = ShapesService::new(Arc::clone(&engine), database);
        let mut shapes = Self { engine, service, threads: Vec::new() };
        let following = Arc::clone(&shapes.engine);
        shapes.spawn("shapes-follow", move || follow::run(&following, recovered.source))?;
        let watching = Arc::clone(&shapes.engine);
        shapes.spawn("shapes-watch", move || watch::run(&watching))?;
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

    #[must_use]
    pub fn stats(&self) -> ShapesStats {
        let pool = self.service.0.database.stats();
        ShapesStats {
            shapes: self.engine.registry.read().len(),
            transactions: self.engine.counters.transactions.load(Ordering::Relaxed),
            processed_lsn: self.engine.processed_lsn(),
            hot_bytes: self.engine.hot.bytes(),
            active: self.engine.health() == Health::Active,
            connections: pool.connections,
            queries_waiting: pool.waiting,
            database_down: matches!(self.service.0.database.health(), pool::Health::Down { .. }),
        }
    }

    /// Stops following. What was applied is durable or will be sent again.
    pub fn stop(&mut self) {
        self.engine.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the shapes has panicked");
            }
        }
    }
}

impl Drop for Shapes {
    fn drop(&mut self) {
        self.stop();
    }
}
