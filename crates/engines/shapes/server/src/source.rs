//! The database that changes come from: its connections, its bookmark, the known tables, and whether a shape or request
//! needs it.

use crate::bookmark::Bookmark;
use crate::config::ShapesConfig;
use crate::idle::Idle;
use crate::lag::Lag;
use crate::lifetime::Lifetime;
use crate::partitions::Partitions;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thalweg_pg as pg;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_source::catalog::Tables;
use thalweg_shapes_source::clock::Clock;
use thalweg_shapes_source::postgres::Postgres;
use thalweg_shapes_source::publish::Publisher;
use thalweg_shapes_source::session::{Endpoint, Followed};

pub(crate) struct Source {
    /// The way to the database for replication, and that for queries.
    pub(crate) replication: Endpoint,
    pub(crate) queries: Endpoint,
    /// The server that changes come from.
    pub(crate) followed: Arc<Followed>,
    /// The durable record of the database.
    pub(crate) bookmark: Bookmark,
    /// Tables as Postgres has described them.
    pub(crate) tables: Tables,
    pub(crate) publisher: Publisher,
    pub(crate) partitions: Partitions,
    pub(crate) lag: Lag,
    pub(crate) idle: Idle,
    health: Mutex<Health>,
    /// The publication goes when the server ends.
    pub(crate) publication_passing: AtomicBool,
}

impl Source {
    pub(crate) fn new(config: &ShapesConfig, postgres: &Arc<dyn Postgres>, clock: &Arc<dyn Clock>) -> Self {
        let followed = Arc::new(Followed::unknown());
        let endpoint =
            |to: &pg::Config| Endpoint::of(Arc::clone(postgres), to.clone(), Arc::clone(&followed), Arc::clone(clock));
        let queries = endpoint(&config.query_database).sleeping_after(config.database_idle);
        Self {
            replication: endpoint(&config.database),
            partitions: Partitions::new(queries.clone(), config.publication()),
            queries,
            followed,
            bookmark: Bookmark::default(),
            tables: Tables::new(config.publication()),
            publisher: Publisher::new(config.publication(), config.manual_publishing).owned(config.ownership.clone()),
            lag: Lag::default(),
            idle: Idle::new(config.database_idle),
            health: Mutex::default(),
            publication_passing: AtomicBool::new(false),
        }
    }

    pub(crate) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    pub(crate) fn set_health(&self, health: Health) {
        *self.health.lock() = health;
    }

    /// Whether no request or shape has needed the database for the configured time. A live request needs it while it
    /// waits, a new shape while it is made.
    pub(crate) fn is_idle(&self, lifetime: &Lifetime) -> bool {
        if !self.idle.is_on() {
            return false;
        }
        let now_ms = lifetime.now_ms();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        if count(&lifetime.counters.live) + count(&lifetime.counters.snapshots) > 0 {
            self.idle.touch(now_ms);
        }
        self.idle.is_silent(now_ms)
    }

    /// Another history begins, in which oids and positions have other meanings.
    pub(crate) fn forget(&self) {
        self.lag.forget();
        self.tables.forget();
        self.publisher.forget_all();
    }
}
