//! The engine as the binary has it: opened on a kernel unit, with the threads that follow Postgres.

use crate::engine::{Engine, Health, ShapesConfig};
use crate::follow;
use crate::format::note::LogState;
use crate::serve::ShapesService;
use crate::source::pool::Pool;
use crate::store::{Store, StoreError};
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
}

/// Shapes of one database.
pub struct Shapes {
    engine: Arc<Engine>,
    service: ShapesService,
    follower: Option<JoinHandle<()>>,
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
        let following = Arc::clone(&engine);
        let follower = std::thread::Builder::new()
            .name("shapes-follow".into())
            .spawn(move || follow::run(&following, recovered.source))?;
        Ok(Self { engine, service, follower: Some(follower) })
    }

    /// Answers requests.
    #[must_use]
    pub fn service(&self) -> ShapesService {
        self.service.clone()
    }

    #[must_use]
    pub fn stats(&self) -> ShapesStats {
        ShapesStats {
            shapes: self.engine.registry.read().len(),
            transactions: self.engine.counters.transactions.load(Ordering::Relaxed),
            processed_lsn: self.engine.processed_lsn(),
            hot_bytes: self.engine.hot.bytes(),
            active: self.engine.health() == Health::Active,
        }
    }

    /// Stops following. What was applied is durable or will be sent again.
    pub fn stop(&mut self) {
        self.engine.stop();
        if let Some(follower) = self.follower.take()
            && follower.join().is_err()
        {
            tracing::error!("the thread that follows Postgres has panicked");
        }
    }
}

impl Drop for Shapes {
    fn drop(&mut self) {
        self.stop();
    }
}
