//! Opens the engine of shapes, if there is a database to make them of.

use crate::config::{Config, Switch};
use crate::folder::Folder;
use crate::kernel::Kernel;
use anyhow::Context;
use std::sync::Arc;
use thalweg_shapes::{LogState, Settings, Shapes, ShapesConfig};
use thalweg_wire::pg;

/// The folder of the unit that shapes are kept in, beside that of the streams.
const FOLDER: &str = "shapes";
/// The same as the beginning of paths below the data folder.
pub(crate) const PREFIX: &str = "shapes/";
/// Changes that are held in memory for live readers.
const HOT_BYTES: usize = 64 << 20;
/// How long shared caches may keep the rows that clients begin with, at most.
const FIRST_SHARED_AGE_S: u64 = 3600;

/// Shapes and the kernel unit they stand on.
pub(crate) struct Served {
    pub(crate) kernel: Kernel<LogState>,
    pub(crate) shapes: Shapes,
}

/// `None`: no database is configured.
pub(crate) fn open(folder: &Folder, config: &Config) -> anyhow::Result<Option<Served>> {
    if config.database_url.is_empty() {
        return Ok(None);
    }
    let path = folder.path().join(FOLDER);
    let settings = settings(config, path.join("spill"))?;
    let kernel = Kernel::open_derived(&path, config)?;
    let shapes = Shapes::open(Arc::clone(&kernel.logs), settings).context("cannot open the shapes")?;
    Ok(Some(Served { kernel, shapes }))
}

/// Whether the addresses of the database can be understood.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    if config.serves_shapes() {
        settings(config, std::path::PathBuf::new())?;
    }
    Ok(())
}

fn settings(config: &Config, spill: std::path::PathBuf) -> anyhow::Result<ShapesConfig> {
    let database = database(config, &config.database_url).context("--database-url")?;
    let query_database = match config.query_database_url.as_str() {
        "" => database.clone(),
        url => self::database(config, url).context("--query-database-url")?,
    };
    let secret = (config.shape_insecure == Switch::Off).then(|| config.shape_secret.clone());
    let millis = |span: crate::config::Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
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
