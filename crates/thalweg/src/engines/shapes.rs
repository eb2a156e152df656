//! The engine of shapes. It serves if a database is configured; its kernel unit is derived from that database. On nodes
//! one of them has the unit, in the bucket, and all serve: `nodes/shapes.rs` opens and closes it.

use crate::nodes::{Door, Served, ServedNode};
use anyhow::Context as _;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_host::auth::{self, Auth};
use thalweg_host::config::{Config, Switch};
use thalweg_host::folder::Folder;
use thalweg_host::kernel;
use thalweg_host::metrics::{Families, Kind, Page};
use thalweg_host::nodes::Place;
use thalweg_host::plain;
use thalweg_host::{Boot, Engine, Guard, Paths, Route, Unit};
use thalweg_http::{Context, Method, Reply, Request, Response};
use thalweg_journal::Journal;
use thalweg_log::FileUnit;
use thalweg_pg as pg;
use thalweg_shapes::{
    Denied, Granted, LogState, Ownership, Settings, Shapes, ShapesConfig, ShapesService, ShapesStats,
};

/// The unit that shapes are kept in, and its folder beside the files of the streams' unit.
const NAME: &str = "shapes";
/// Prefix of the unit's paths below the data folder.
const PREFIX: &str = "shapes/";
/// Paths of operators' requests.
const ADMIN: Paths = Paths::Below(ShapesService::ADMIN);
const NO_SHAPES: &str =
    r#"{"error":{"code":"no_shapes","message":"this server has no database: --database-url names one"}}"#;
/// Changes that are held in memory for live readers.
const HOT_BYTES: usize = 64 << 20;
/// How long shared caches may keep the rows that clients begin with, at most.
const FIRST_SHARED_AGE_S: u64 = 3600;

/// The service of shapes, if configured, and the authentication of its clients.
pub(crate) struct ServedShapes {
    at: At,
    access: Access,
}

/// Where the shapes are.
enum At {
    /// No database is configured.
    Nowhere,
    Here(Box<Running>),
    /// On one of the nodes, this one or another.
    Nodes {
        served: Arc<Served>,
        door: Arc<dyn Door>,
    },
}

/// What clients must show.
#[derive(Clone)]
pub(crate) struct Access {
    /// Whether shapes require a secret of every client, or a token in its place.
    asks: bool,
    auth: Option<Arc<Auth>>,
}

impl Access {
    /// As the settings say.
    pub(crate) fn of_settings(boot: Boot<'_>) -> Self {
        Self { asks: boot.config.shape_insecure == Switch::Off, auth: boot.auth.cloned() }
    }

    /// Rights of the request, if it carries a token in place of the secret.
    pub(crate) fn of(&self, request: &Request<'_>, now_ms: u64) -> Result<Option<Granted>, Denied> {
        let auth =
            self.auth.as_ref().filter(|_| request.method != Method::Options && !ShapesService::gives_secret(request));
        auth.map_or(Ok(None), |auth| auth.shapes(request, now_ms, !self.asks))
    }
}

/// Shapes and their kernel unit.
struct Running {
    kernel: FileUnit<LogState>,
    shapes: Mutex<Shapes>,
    service: ShapesService,
}

pub(crate) fn open(boot: Boot<'_>, node: &ServedNode) -> anyhow::Result<ServedShapes> {
    let Boot { config, folder, .. } = boot;
    let access = Access::of_settings(boot);
    let at = match node.served() {
        Some(served) => At::Nodes { served: Arc::clone(served), door: served.door_of_shapes() },
        None if config.serves_shapes() => {
            let running = Running::open(folder, config)?;
            boot.share_chunks_of(&running.kernel);
            At::Here(Box::new(running))
        }
        None => At::Nowhere,
    };
    let asks = access.asks && !matches!(at, At::Nowhere);
    Ok(ServedShapes { at, access: Access { asks, ..access } })
}

impl Running {
    fn open(folder: &Folder, config: &Config) -> anyhow::Result<Self> {
        let path = folder.path().join(NAME);
        let settings = settings(config, path.join("spill"))?;
        let kernel = kernel::open_derived(&path, config)?;
        let shapes = Shapes::open(Arc::clone(&kernel.logs), settings).context("cannot open the shapes")?;
        let service = shapes.service();
        Ok(Self { kernel, shapes: Mutex::new(shapes), service })
    }
}

impl ServedShapes {
    /// Calls `f` with the service, if this process has the shapes.
    fn with_service<T>(&self, f: impl FnOnce(&ShapesService) -> T) -> Option<T> {
        match &self.at {
            At::Nowhere => None,
            At::Here(running) => Some(f(&running.service)),
            At::Nodes { served, .. } => served.shapes()?.now().map(|open| f(&open.service)),
        }
    }
}

/// Sends a request for shapes to the node that has them.
fn route(served: &Arc<Served>, door: &Arc<dyn Door>, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
    // What has no name in a request to another node is refused as the shapes do.
    if matches!(request.method, Method::Other(_)) {
        return Reply::Now(plain(404, "text/plain; charset=utf-8").body("Not found"));
    }
    match served.place_of_shapes() {
        None => Reply::Now(plain(404, "application/json").body(NO_SHAPES)),
        // Who asks for the state does not wait for a better one.
        Some(Place::Nowhere) if ShapesService::is_health(request.path) => {
            Reply::Now(plain(202, "application/json; charset=utf-8").body(r#"{"status":"starting"}"#))
        }
        Some(_) => served.route_to(door, served.shapes_unit(), request, cx),
    }
}

impl Engine for ServedShapes {
    fn routes(&self) -> Vec<Route> {
        let help = "shapes of a Postgres database, if one is configured: GET reads and waits for changes";
        let admin_help = "used by `thalweg shape ls`, `drop` and `explain`";
        vec![
            Route {
                paths: Paths::Spelled(ShapesService::serves),
                guard: Guard::Own { asks: self.access.asks },
                is_served: !matches!(self.at, At::Nowhere),
                shown: ("/v1/shape", help),
            },
            // Without a database this route explains that no shapes exist.
            Route {
                paths: ADMIN,
                guard: Guard::Token(auth::need_of_admin),
                is_served: true,
                shown: (ShapesService::ADMIN, admin_help),
            },
        ]
    }

    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        match &self.at {
            At::Nowhere => Reply::Now(plain(404, "application/json").body(NO_SHAPES)),
            At::Here(running) if ADMIN.fit(request.path) => running.service.admin(request, cx),
            At::Here(running) => running.service.handle_as(request, self.access.of(request, cx.now_ms), cx),
            At::Nodes { served, door } => route(served, door, request, cx),
        }
    }

    fn on_head(&self, head: &Request<'_>, now_ms: u64) -> Option<Response> {
        if ADMIN.fit(head.path) {
            return None;
        }
        match &self.at {
            At::Nowhere => None,
            At::Here(running) => running.service.on_head(head, self.access.of(head, now_ms), now_ms),
            At::Nodes { served, .. } => served.shapes()?.on_head(head, now_ms),
        }
    }

    fn unit(&self) -> Option<Unit> {
        match &self.at {
            At::Here(running) => Some(Unit::derived(NAME, PREFIX, &running.kernel)),
            At::Nowhere | At::Nodes { .. } => None,
        }
    }

    fn health(&self) -> Result<(), String> {
        match self.with_service(|service| service.stats().disk_full).unwrap_or_default() {
            true => Err("shapes: the disk is full: changes of Postgres wait, rows are read".to_owned()),
            false => Ok(()),
        }
    }

    /// Without a database there are no metrics: an alert on the source must not fire then.
    fn metrics(&self, page: &mut Page) {
        match &self.at {
            At::Nowhere => {}
            At::Here(running) => {
                let journal = &running.kernel.journal;
                page.add(families(&running.service.stats(), journal.stats().held_bytes, journal.poisoned().is_some()));
            }
            At::Nodes { served, .. } => metrics_of_node(served, page),
        }
    }

    fn stop(&self) {
        if let At::Here(running) = &self.at {
            running.shapes.lock().stop();
        }
    }
}

/// Figures of the shapes, if this node has them: they have one follower, so sums over all nodes are right.
#[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
fn metrics_of_node(served: &Arc<Served>, page: &mut Page) {
    let Some(home) = served.shapes() else { return };
    let open = home.now();
    let help = "1 while this node has the shapes: it follows Postgres, or is about to.";
    page.add([("node_shapes_owned", Kind::Gauge, help, f64::from(u8::from(open.is_some())))]);
    let Some(open) = open else { return };
    let journal = &open.kernel.journal;
    page.add(families(&open.service.stats(), journal.stats().held_bytes, journal.poisoned().is_some()));
    let label = format!("unit=\"{}\"", open.kernel.name);
    page.add_labelled(&label, Unit::in_bucket(&open.kernel).families());
    let help = "The epoch by which this node owns the unit.";
    page.add_labelled(&label, [("node_unit_epoch", Kind::Gauge, help, open.kernel.epoch() as f64)]);
}

/// Whether the addresses of the database can be understood.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    if config.serves_shapes() {
        settings(config, std::path::PathBuf::new())?;
    }
    Ok(())
}

pub(crate) fn settings(config: &Config, spill: std::path::PathBuf) -> anyhow::Result<ShapesConfig> {
    let database = database(config, &config.database_url).context("--database-url")?;
    let query_database = match config.query_database_url.as_str() {
        "" => database.clone(),
        url => self::database(config, url).context("--query-database-url")?,
    };
    let secret = (config.shape_insecure == Switch::Off).then(|| config.shape_secret.clone());
    let millis = |span: thalweg_base::Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
    Ok(ShapesConfig {
        database,
        query_database,
        secret: secret.filter(|secret| !secret.is_empty()),
        http: Settings {
            max_age_s: config.shape_max_age.0.as_secs(),
            stale_age_s: config.shape_stale_age.0.as_secs(),
            // A shared cache must not give out rows that are gone before a client has read them.
            first_shared_age_s: (config.shape_log_keep.0.as_secs() / 2).min(FIRST_SHARED_AGE_S),
            chunk_bytes: config.shape_chunk_bytes.0,
            long_poll_ms: millis(config.shape_long_poll_timeout),
            sse_timeout_ms: millis(config.shape_sse_lifetime),
            allow_delete: config.shape_delete == Switch::On,
            initial_requests_max: config.max_initial_requests,
            existing_requests_max: config.max_shape_requests,
            ..Settings::default()
        },
        shapes_max: config.max_shapes,
        log_bytes_max: config.shape_log_bytes.0,
        log_keep_ms: millis(config.shape_log_keep),
        compact_bytes: config.shape_compact_bytes.0,
        connections: config.shape_database_connections,
        stream_id: config.replication_stream_id.clone(),
        stack: None,
        ownership: Ownership::default(),
        manual_publishing: config.manual_publishing == Switch::On,
        temporary_slot: config.has_temporary_slot(),
        failover_slot: config.replication_failover_slot == Switch::On,
        database_idle: config.database_idle.0,
        ephemeral: config.dev,
        spill,
        hot_bytes: HOT_BYTES,
        io_threads: config.io_threads,
        unsent_bytes_max: config.max_unsent.0,
    })
}

/// An address with the certificates to trust, if a file of them is set.
fn database(config: &Config, url: &str) -> anyhow::Result<pg::Config> {
    let address: pg::Config = url.parse()?;
    match config.database_ca_file.as_path() {
        file if file.as_os_str().is_empty() => Ok(address),
        file => address.trusting(file).context("--database-ca-file (ELECTRIC_DATABASE_CA_CERTIFICATE_FILE)"),
    }
}

#[rustfmt::skip]
#[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
fn families(s: &ShapesStats, journal_held_bytes: u64, journal_poisoned: bool) -> Families {
    use Kind::{Counter, Gauge};
    let f = |n: u64| n as f64;
    vec![
        ("shapes", Gauge, "Shapes that exist.", s.shapes as f64),
        ("shape_source_active", Gauge, "1 while changes come in from Postgres, or nobody needs them (shape_source_asleep).", f(s.active.into())),
        ("shape_source_asleep", Gauge, "1 while no connection to Postgres is open, as nobody asks for shapes (database_idle).", f(s.asleep.into())),
        ("shape_source_left_total", Counter, "Times that all shapes were dropped because Postgres no longer had the history that was read.", f(s.left)),
        ("shape_catalog_compared_total", Counter, "Times that the tables of shapes were compared with Postgres's catalog.", f(s.compared)),
        ("shape_transactions_total", Counter, "Transactions of Postgres that were applied.", f(s.transactions)),
        ("shape_changes_total", Counter, "Changes that were made for shapes, one for all that have the same columns.", f(s.changes)),
        ("shape_changes_told_total", Counter, "Changes given to shapes: per change above, the fan-out.", f(s.deliveries)),
        ("shape_evaluations_total", Counter, "Where clauses that were evaluated for a row: those that it found by an index, and those without one.", f(s.evaluations)),
        ("shape_lag_bytes", Gauge, "Bytes of Postgres's log that are not applied yet, of the log as it was a second ago.", f(s.lag_bytes)),
        ("shape_lag_seconds", Gauge, "How long the oldest part of Postgres's log has been known that is not applied.", f(s.lag_ms) / 1e3),
        ("shape_wal_kept_bytes", Gauge, "Bytes of its log that Postgres keeps for the replication slot.", f(s.wal_kept_bytes)),
        ("shape_live_clients", Gauge, "Live requests for shapes, long-polls and SSE, that are under way.", f(s.live)),
        ("shape_snapshots", Gauge, "Snapshots that are being copied from Postgres.", f(s.snapshots)),
        ("shape_rows_copied_total", Counter, "Rows that snapshots copied from Postgres.", f(s.rows_copied)),
        ("shape_database_connections", Gauge, "Connections to Postgres for queries.", s.connections as f64),
        ("shape_database_waiting", Gauge, "Queries that wait for a connection to Postgres.", s.queries_waiting as f64),
        ("shape_database_down", Gauge, "1 after Postgres could not be reached for queries, until it is: new shapes are refused until then.", f(s.database_down.into())),
        ("shape_initial_requests", Gauge, "Requests that wait for a shape to be made; one above max_initial_requests is refused.", s.initial_requests as f64),
        ("shape_existing_requests", Gauge, "All other requests for shapes under way; one above max_shape_requests is refused.", s.existing_requests as f64),
        ("shape_log_held_bytes", Gauge, "Bytes of changes that are kept for shapes; above shape_log_bytes shapes are dropped.", f(s.log_held_bytes)),
        ("shape_stuck", Gauge, "1 while changes that came from Postgres cannot be stored: the disk is full, or settling is behind.", f(s.stuck.into())),
        ("shape_read_held_bytes", Gauge, "Memory of the shapes' answers that are not sent yet, and of answers kept for more readers.", f(s.held_bytes)),
        ("shape_compactions_total", Counter, "Times that a shape's changes were merged into its rows.", f(s.bases_made)),
        ("shape_compaction_read_bytes_total", Counter, "Bytes that were read for that.", f(s.compact_read_bytes)),
        ("shape_compaction_written_bytes_total", Counter, "Bytes of rows that were written for that.", f(s.compact_written_bytes)),
        ("shape_hot_bytes", Gauge, "Memory of the newest changes, kept for live readers.", s.hot_bytes as f64),
        ("shape_journal_held_bytes", Gauge, "Bytes the journal of the shapes holds, from its trim point to its end.", f(journal_held_bytes)),
        ("shape_journal_poisoned", Gauge, "1 after a failed write or sync of the shapes' journal: no shape goes on until a restart.", f(journal_poisoned.into())),
    ]
}
