//! What all parts of the engine share: the shapes, where they are kept, and how far the changes have been applied.

use crate::bookmark::Bookmark;
use crate::change_cache::ChangeCache;
use crate::compact::Compactor;
use crate::costly::Costly;
use crate::idle::Idle;
use crate::lag::{Behind, Lag};
use crate::make::Templates;
use crate::partitions::Partitions;
use crate::read::Sources;
use crate::recent_window::RecentWindow;
use crate::registry::Registry;
use crate::router::Router;
use crate::serve::settings::Settings;
use crate::shape::{Phase, Shape};
use crate::shared_rows::SharedRows;
use crate::state::transaction::Told;
use crate::store::{Store, StoreError};
use crate::subquery::Subqueries;
use crate::trim_index::TrimIndex;
use crate::watermarks::Watermarks;
use crate::write_stall::WriteStall;
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg_base::{LogId, Lsn};
use thalweg_shapes_core::state::recent::Recent;
use thalweg_shapes_model::columns::selected;
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::family::Families;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_model::id_allocator::IdAllocator;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::Table;
use thalweg_shapes_source::catalog::Tables;
use thalweg_shapes_source::clock::Clock;
use thalweg_shapes_source::publish::Publisher;
use thalweg_shapes_source::session::{Endpoint, Followed};
use thalweg_shapes_source::setup::Known;
use thalweg_wire::pg;

/// A range of bodies is closed at this size, or at that of a chunk if it is smaller.
const SPLIT_BYTES: u64 = 64 << 10;

/// Changes that were put together and are kept for others who ask for the same.
const KEPT_BYTES: usize = 32 << 20;

/// How long to wait until a shape that could not be deleted for want of space is tried again.
const DELETE_AGAIN: Duration = Duration::from_millis(100);

/// A stop is noticed within this time by a thread that waits for something else.
const STOP_NOTICED_WITHIN: Duration = Duration::from_millis(20);

/// Settings; docs/ops/configuration.md has their meaning.
#[derive(Clone, Debug)]
pub struct ShapesConfig {
    pub database: pg::Config,
    /// For queries, if it is another way to the same database.
    pub query_database: pg::Config,
    pub secret: Option<String>,
    pub http: Settings,
    pub shapes_max: usize,
    /// Changes that are kept; shapes that need older ones are dropped.
    pub log_bytes_max: u64,
    /// How long a shape's rows and the changes since are kept after there are newer rows.
    pub log_keep_ms: u64,
    /// A shape's changes are merged into its rows if they are more than these, and more than this.
    pub compact_bytes: u64,
    pub connections: usize,
    pub stream_id: String,
    pub manual_publishing: bool,
    /// The replication slot goes when the connection does, and with it every shape.
    pub temporary_slot: bool,
    /// Standbys keep a copy of the replication slot.
    pub failover_slot: bool,
    /// Connections are closed when nobody has asked for a shape and no change has come for so long; zero: they stay.
    pub database_idle: Duration,
    /// Nothing stays in the database: a publication that was made goes with the engine.
    pub ephemeral: bool,
    /// For large transactions that are in progress.
    pub spill: PathBuf,
    /// Changes that are held in memory for live readers.
    pub hot_bytes: usize,
    /// Threads that wait for the disk on behalf of reads.
    pub io_threads: usize,
    /// Memory for answers that clients do not take.
    pub unsent_bytes_max: u64,
}

impl ShapesConfig {
    #[must_use]
    pub fn publication(&self) -> String {
        format!("thalweg_publication_{}", self.stream_id)
    }

    #[must_use]
    pub fn slot(&self) -> String {
        format!("thalweg_slot_{}", self.stream_id)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    /// Times that the tables were compared with the catalog.
    pub(crate) compared: AtomicU64,
    /// Times that a source was left, with all shapes.
    pub(crate) left: AtomicU64,
    pub(crate) transactions: AtomicU64,
    /// Changes that were made for shapes, and how often one was given to a shape.
    pub(crate) changes: AtomicU64,
    pub(crate) told: AtomicU64,
    /// Predicates that were evaluated for a row.
    pub(crate) evaluations: AtomicU64,
    /// Rows of snapshots that were copied.
    pub(crate) rows_copied: AtomicU64,
    /// Snapshots that are being copied.
    pub(crate) snapshots: AtomicU64,
    /// Live requests, long-polls and SSE, that are under way.
    pub(crate) live: AtomicU64,
    /// Bases that were made and shown, and bytes that were read and written for all of them.
    pub(crate) bases_made: AtomicU64,
    pub(crate) compact_read: AtomicU64,
    pub(crate) compact_written: AtomicU64,
}

impl Counters {
    /// A transaction is over.
    pub(crate) fn applied(&self, told: Told, evaluations: u64) {
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(told.bodies, Ordering::Relaxed);
        self.told.fetch_add(told.shapes, Ordering::Relaxed);
        self.evaluations.fetch_add(evaluations, Ordering::Relaxed);
    }
}

/// Counts one more for as long as it lives.
pub(crate) struct Counted {
    engine: Arc<Engine>,
    of: fn(&Counters) -> &AtomicU64,
}

impl Counted {
    pub(crate) fn new(engine: &Arc<Engine>, of: fn(&Counters) -> &AtomicU64) -> Self {
        of(&engine.counters).fetch_add(1, Ordering::Relaxed);
        Self { engine: Arc::clone(engine), of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.engine.counters).fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) struct Engine {
    pub(crate) config: ShapesConfig,
    pub(crate) store: Store,
    /// The way to the database for replication, and that for queries.
    pub(crate) replication: Endpoint,
    pub(crate) queries: Endpoint,
    /// The server that changes come from.
    pub(crate) followed: Arc<Followed>,
    /// What is noted of it.
    pub(crate) bookmark: Bookmark,
    pub(crate) tables: Tables,
    pub(crate) templates: Templates,
    pub(crate) publisher: Publisher,
    pub(crate) recent_window: RecentWindow,
    pub(crate) change_cache: ChangeCache,
    pub(crate) router: Mutex<Router>,
    pub(crate) recent: Mutex<Recent>,
    pub(crate) subqueries: Subqueries,
    pub(crate) partitions: Partitions,
    pub(crate) registry: RwLock<Registry>,
    pub(crate) families: Families,
    pub(crate) shared_rows: SharedRows,
    pub(crate) costly: Costly,
    last_snapshot: Mutex<Option<Arc<PgSnapshot>>>,
    pub(crate) counters: Counters,
    pub(crate) trim_index: Mutex<TrimIndex>,
    pub(crate) compactor: Compactor,
    pub(crate) clock: Arc<dyn Clock>,
    /// [`Engine::now_ms`] counts from here.
    began: Instant,
    pub(crate) lag: Lag,
    pub(crate) idle: Idle,
    /// Bytes of answers that are being put together.
    pub(crate) building: AtomicU64,
    /// Whether changes can be stored.
    pub(crate) write_stall: WriteStall,
    /// Tables that are described in another way than when their shapes were made: other columns may be null.
    redescribed: RwLock<HashMap<u32, Arc<Table>>>,
    pub(crate) health: Mutex<Health>,
    pub(crate) watermarks: Watermarks,
    pub(crate) ids: IdAllocator,
    stopping: AtomicBool,
    /// The publication goes when the engine ends.
    pub(crate) publication_passing: AtomicBool,
}

impl Engine {
    pub(crate) fn new(config: ShapesConfig, store: Store, clock: Arc<dyn Clock>) -> Self {
        let recent_window = RecentWindow::new(config.hot_bytes);
        let followed = Arc::new(Followed::unknown());
        let tables = Tables::new(config.publication());
        let publisher = Publisher::new(config.publication(), config.manual_publishing);
        let endpoint = |to: &pg::Config| Endpoint::new(to.clone(), Arc::clone(&followed), Arc::clone(&clock));
        let queries = endpoint(&config.query_database).sleeping_after(config.database_idle);
        Self {
            replication: endpoint(&config.database),
            subqueries: Subqueries::new(queries.clone()),
            partitions: Partitions::new(queries.clone(), config.publication()),
            queries,
            followed,
            bookmark: Bookmark::default(),
            idle: Idle::new(config.database_idle),
            config,
            store,
            tables,
            templates: Templates::default(),
            publisher,
            recent_window,
            change_cache: ChangeCache::new(KEPT_BYTES),
            router: Mutex::default(),
            recent: Mutex::default(),
            registry: RwLock::default(),
            families: Families::default(),
            shared_rows: SharedRows::default(),
            costly: Costly::default(),
            last_snapshot: Mutex::default(),
            counters: Counters::default(),
            trim_index: Mutex::default(),
            compactor: Compactor::default(),
            began: clock.now(),
            clock,
            lag: Lag::default(),
            building: AtomicU64::new(0),
            write_stall: WriteStall::default(),
            redescribed: RwLock::default(),
            health: Mutex::default(),
            watermarks: Watermarks::default(),
            ids: IdAllocator::default(),
            stopping: AtomicBool::new(false),
            publication_passing: AtomicBool::new(false),
        }
    }

    /// From where answers are read.
    pub(crate) fn sources(&self) -> Sources<'_> {
        Sources { recent_window: &self.recent_window, store: &self.store, change_cache: &self.change_cache }
    }

    pub(crate) fn split_bytes(&self) -> usize {
        self.config.http.chunk_bytes.clamp(1, SPLIT_BYTES) as usize
    }

    /// How far that is behind Postgres's log.
    pub(crate) fn behind(&self) -> Behind {
        self.lag.behind(self.watermarks.processed_lsn(), self.clock.now())
    }

    /// Milliseconds since the engine was made, at least 1.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.since(self.began).as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Waits for as long as `waits` says so, but no longer than `time` and not beyond a stop of the engine.
    pub(crate) fn pause_while(&self, time: Duration, waits: impl Fn() -> bool) {
        let until = self.clock.now() + time;
        while !self.stopping() && waits() {
            let left = until.saturating_duration_since(self.clock.now());
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left.min(STOP_NOTICED_WITHIN));
        }
    }

    /// Waits for `time`, or until the engine stops.
    pub(crate) fn pause(&self, time: Duration) {
        self.pause_while(time, || true);
    }

    /// Nobody has needed the database for as long as was set. A live request needs it for as long as it waits, a new shape while it is made.
    pub(crate) fn is_idle(&self) -> bool {
        if !self.idle.is_on() {
            return false;
        }
        let now_ms = self.now_ms();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        if count(&self.counters.live) + count(&self.counters.snapshots) > 0 {
            self.idle.touch(now_ms);
        }
        self.idle.is_silent(now_ms)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    pub(crate) fn set_health(&self, health: Health) {
        *self.health.lock() = health;
    }

    /// Answers that nobody takes hold as much memory as they may, beside what is kept for others.
    pub(crate) fn is_memory_short(&self) -> bool {
        let logs = self.store.logs();
        let shared = logs.options().chunk_cache_bytes + KEPT_BYTES as u64;
        let held = logs.held_bytes() + self.building.load(Ordering::Relaxed);
        held >= self.config.unsent_bytes_max.saturating_add(shared)
    }

    /// A snapshot for keeping: while nothing happens in the database, shapes have the same one.
    pub(crate) fn shared_snapshot(&self, snapshot: &PgSnapshot) -> Arc<PgSnapshot> {
        let mut last = self.last_snapshot.lock();
        match &*last {
            Some(known) if **known == *snapshot => Arc::clone(known),
            _ => Arc::clone(last.insert(Arc::new(snapshot.clone()))),
        }
    }

    /// Another history begins, where snapshots mean something else.
    pub(crate) fn forget_last_snapshot(&self) {
        *self.last_snapshot.lock() = None;
        self.redescribed.write().clear();
    }

    /// What is known of the source; `None`: nothing was ever read.
    pub(crate) fn known_source(&self) -> Option<Known> {
        let note = self.bookmark.note()?;
        let of_shape = |shape: &Arc<Shape>| {
            let state = shape.lock();
            let is_complete = matches!(state.phase, Phase::Live);
            state.snapshot.as_ref().filter(|_| is_complete).map(|snapshot| snapshot.lsn)
        };
        let snapshots = self.registry.read().all().filter_map(of_shape).max();
        let changes = self.watermarks.processed_lsn().max(self.watermarks.applied());
        Some(Known {
            identity: note.identity,
            seen: changes.max(snapshots.unwrap_or(0)),
            acknowledged: note.acknowledged,
            broken: self.bookmark.broken(),
        })
    }

    /// The router's table has columns that may be null or not as they were not.
    pub(crate) fn described(&self, table: Arc<Table>) {
        self.redescribed.write().insert(table.oid, table);
    }

    /// A shape's `electric-schema` header as it is now. Event loops ask: the router is not looked at, whose lock may be held for long.
    pub(crate) fn schema<'a>(&self, shape: &'a Shape) -> Cow<'a, str> {
        let known = Cow::Borrowed(&*shape.family.schema);
        let Some(table) = self.redescribed.read().get(&shape.family.table).cloned() else { return known };
        // Whether changes of generated columns come was decided when the shape was made.
        match selected(&table, &shape.definition(), true) {
            Ok(selected) => Cow::Owned(thalweg_shapes_core::encode::schema::header(&table, &selected)),
            Err(_) => known,
        }
    }

    /// Drops every shape of a table; when the returned position is durable, they are gone.
    pub(crate) fn drop_table(&self, table: u32, why: &str) -> Lsn {
        self.drop_shapes(table, why, |_| true)
    }

    /// The same because of what a transaction does, which commits at `lsn`. Shapes whose snapshot has it were made after that: while old
    /// changes are applied they may be of a table that already has other columns.
    pub(crate) fn drop_table_by(&self, table: u32, why: &str, xid: u32, lsn: u64) -> Lsn {
        let concerned =
            |shape: &Shape| !shape.lock().snapshot.as_ref().is_some_and(|snapshot| snapshot.contains(xid, lsn));
        self.drop_shapes(table, why, concerned)
    }

    fn drop_shapes(&self, table: u32, why: &str, which: impl Fn(&Shape) -> bool) -> Lsn {
        let mut shapes = self.router.lock().shapes_of(table);
        shapes.retain(|shape| which(shape));
        if let Some(shape) = shapes.first() {
            // Whoever makes the next shape of it has it looked at again.
            self.publisher.forget(table);
            tracing::info!(table = %shape.family.name, shapes = shapes.len(), "shapes are dropped: the table {why}");
        }
        shapes.iter().map(|shape| self.drop_shape(shape)).max().unwrap_or_default()
    }

    /// Drops every shape.
    pub(crate) fn drop_all(&self, why: &str) -> Lsn {
        let shapes: Vec<Arc<Shape>> = self.registry.read().all().cloned().collect();
        if !shapes.is_empty() {
            tracing::warn!(shapes = shapes.len(), "all shapes are dropped: {why}");
        }
        shapes.iter().map(|shape| self.drop_shape(shape)).max().unwrap_or_default()
    }

    /// Clients of the shape must refetch; when the returned position is durable, it is gone.
    pub(crate) fn drop_shape(&self, shape: &Shape) -> Lsn {
        self.put_out(shape, Phase::Gone)
    }

    /// The same, and waits until it is durable.
    pub(crate) fn drop_for_good(&self, shape: &Shape) -> Result<(), StoreError> {
        self.store.wait(self.drop_shape(shape))
    }

    /// The shape could not be made.
    pub(crate) fn fail_shape(&self, shape: &Shape, failure: Failure) -> Lsn {
        self.put_out(shape, Phase::Failed(Arc::new(failure)))
    }

    fn put_out(&self, shape: &Shape, phase: Phase) -> Lsn {
        let end = self.put_out_alone(shape, phase);
        // What cannot be without it goes too, and what was only there for it.
        let others = self.subqueries.graph.lock().remove(shape.number);
        others.iter().map(|other| self.drop_shape(other)).fold(end, Lsn::max)
    }

    fn put_out_alone(&self, shape: &Shape, phase: Phase) -> Lsn {
        self.registry.write().remove(shape);
        let deleting = self.compactor.deleting.lock();
        let (slot, logs) = shape.change(|state| {
            state.phase = phase;
            let bases = state.bases.take();
            let logs = state.log.take().into_iter().chain(bases.iter().flat_map(|bases| bases.logs()));
            (state.slot.take(), logs.collect::<Vec<LogId>>())
        });
        if let Some(slot) = slot {
            let mut router = self.router.lock();
            router.remove(slot, shape.number);
            if router.table(shape.family.table).is_none() {
                // The next client that asks for the table gets the table as it is then.
                self.redescribed.write().remove(&shape.family.table);
            }
        }
        let mut deleted = self.delete_logs(shape, logs.clone());
        drop(deleting);
        // A shape that is forgotten but not deleted would come back at the next start, without what happened since.
        while deleted.as_ref().is_err_and(StoreError::is_transient) && !self.stopping() {
            self.clock.sleep(DELETE_AGAIN);
            let _deleting = self.compactor.deleting.lock();
            deleted = self.delete_logs(shape, logs.clone());
        }
        match deleted {
            Ok(end) => end,
            Err(error) => {
                self.forgotten(shape, &error);
                Lsn::ZERO
            }
        }
    }

    /// Deletes logs of a shape, and those that only it referred to.
    pub(crate) fn delete_logs(&self, shape: &Shape, mut logs: Vec<LogId>) -> Result<Lsn, StoreError> {
        let shared_rows = self.shared_rows.release(shape.number);
        logs.extend(&shared_rows);
        if logs.is_empty() {
            return Ok(Lsn::ZERO);
        }
        self.store.delete_shape(&logs).inspect_err(|_| self.shared_rows.requeue(shared_rows))
    }

    fn forgotten(&self, shape: &Shape, error: &StoreError) {
        tracing::error!(handle = %shape.handle, %error, "a shape cannot be deleted");
    }
}
