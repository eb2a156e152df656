//! Settings that cannot be, or do not fit together.

use super::{Config, Switch};
use crate::bucket_unit::UNITS_MAX;
use anyhow::bail;
use std::path::Path;
use thalweg_base::Level;
use thalweg_rounds::THREADS_MIN;

/// More than any device makes use of.
const BACKGROUND_THREADS_MAX: usize = 256;

/// The data folder may be missing, since the server makes it. Anything else in its place is a mistake.
fn check_data(data: &Path) -> anyhow::Result<()> {
    match std::fs::metadata(data) {
        Ok(found) if !found.is_dir() => bail!("--data {} is a file and not a folder", data.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => match std::fs::read_link(data) {
            Ok(to) => bail!(
                "--data {} is a symbolic link to {}, which is not there: mount or make it, or name another folder",
                data.display(),
                to.display()
            ),
            Err(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Other databases have similar addresses.
fn check_database(flag: &str, url: &str) -> anyhow::Result<()> {
    match url.split_once("://") {
        Some((scheme, _)) if !matches!(scheme, "postgres" | "postgresql") => bail!(
            "--{flag} begins with {scheme}://, and shapes are parts of a Postgres database: write \
             postgres://USER:PASSWORD@HOST/DATABASE"
        ),
        _ => Ok(()),
    }
}

/// The first of them that is found.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    check_data(&config.data)?;
    check_database("database-url", &config.database_url)?;
    check_database("query-database-url", &config.query_database_url)?;
    check_journal(config)?;
    check_serving(config)?;
    check_store(config)?;
    check_node(config)?;
    if config.serves_shapes() {
        check_access_to_shapes(config)?;
        check_replication(config)?;
        check_serving_of_shapes(config)?;
    }
    let age = config.retention_age.0;
    if !age.is_zero() && age.subsec_nanos() != 0 {
        bail!("--retention-age {} must be whole seconds", config.retention_age);
    }
    Ok(())
}

fn check_journal(config: &Config) -> anyhow::Result<()> {
    let segment = config.journal_segment_bytes.0;
    if segment < 64 << 10 {
        bail!("--journal-segment-bytes {} is under the least size of 64KiB", config.journal_segment_bytes);
    }
    if config.journal_bound_bytes.0 < 2 * segment {
        bail!(
            "--journal-bound-bytes {} must hold at least two segments of --journal-segment-bytes {}",
            config.journal_bound_bytes,
            config.journal_segment_bytes
        );
    }
    if !(THREADS_MIN..=BACKGROUND_THREADS_MAX).contains(&config.background_threads) {
        bail!(
            "--background-threads {} must be from {THREADS_MIN} (segments, settling, merging) to {BACKGROUND_THREADS_MAX}",
            config.background_threads
        );
    }
    if config.merge_fan_in < 2 {
        bail!("--merge-fan-in {} must be at least 2", config.merge_fan_in);
    }
    Ok(())
}

/// Clients give up before.
const COMMIT_INTERVAL_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// A cache smaller than this would give up blocks before they are read twice.
const CACHE_BYTES_MIN: u64 = 8 << 20;

fn check_store(config: &Config) -> anyhow::Result<()> {
    let Some(location) = &config.store.0 else {
        if config.durability == Level::Replicated {
            bail!("--durability replicated needs --store: replicated is what the bucket has");
        }
        return Ok(());
    };
    if config.commit_interval.0 > COMMIT_INTERVAL_MAX {
        bail!("--commit-interval {} must be 10s at most: every replicated append waits for it", config.commit_interval);
    }
    if !location.outlives_the_process() {
        bail!("--store {location} ends with the process, and data that is copied there would be lost: name a bucket");
    }
    if config.cache_bytes.0 < CACHE_BYTES_MIN {
        bail!("--cache-bytes {} is under the least size of 8MiB", config.cache_bytes);
    }
    if config.offload_every.0.is_zero() || config.store_beacon.0.is_zero() {
        bail!("--offload-every and --store-beacon must be longer than 0");
    }
    if config.store_beacon.0 > std::time::Duration::from_secs(3600) {
        bail!("--store-beacon {} must be one hour at most", config.store_beacon);
    }
    Ok(())
}

/// What others write into URLs, logs and keys.
const NODE_NAME_MAX: usize = 64;

fn check_node(config: &Config) -> anyhow::Result<()> {
    if !config.is_node() {
        if !config.advertise.is_empty() {
            bail!("--advertise is for servers that share a bucket: it needs --node and --store");
        }
        return Ok(());
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if config.node.len() > NODE_NAME_MAX || !config.node.bytes().all(is_of_name) {
        bail!("--node `{}` must be 1 to {NODE_NAME_MAX} letters, digits and any of `-._`", config.node);
    }
    if config.store.0.is_none() {
        bail!("--node needs --store: the bucket is what nodes share");
    }
    if !(1..=UNITS_MAX).contains(&config.units) {
        bail!("--units {} must be from 1 to {UNITS_MAX}", config.units);
    }
    let beacon = config.node_beacon.0;
    if beacon < std::time::Duration::from_millis(100) || beacon > std::time::Duration::from_secs(60) {
        bail!("--node-beacon {} must be from 100ms to 60s", config.node_beacon);
    }
    if config.advertise.is_empty() && (config.listen.0.ip().is_unspecified() || config.listen.0.port() == 0) {
        bail!("--advertise must say where other nodes reach this one: --listen {} does not", config.listen);
    }
    if !config.advertise.is_empty()
        && !config.advertise.starts_with("http://")
        && !config.advertise.starts_with("https://")
    {
        bail!("--advertise {} must begin with http:// or https://", config.advertise);
    }
    // Others append paths to it, and it is shown to operators.
    let rest = config.advertise.split_once("://").map_or("", |(_, rest)| rest.trim_end_matches('/'));
    if rest.contains(['/', '?', '#', '@', '\\']) || rest.chars().any(char::is_whitespace) {
        bail!("--advertise {} must be scheme, host and port only, such as http://10.0.0.1:4437", config.advertise);
    }
    if config.serves_shapes() {
        check_shapes_of_node(config)?;
    }
    Ok(())
}

/// Postgres cuts names after 63 bytes, and those of nodes have the prefix's.
const STREAM_ID_OF_NODES_MAX: usize = 34;

fn check_shapes_of_node(config: &Config) -> anyhow::Result<()> {
    if config.has_temporary_slot() {
        bail!(
            "--replication-temporary-slot (always on in `thalweg dev`) and --node contradict each other: another node goes on with the slot \
             when this one is gone; leave --database-url or --replication-temporary-slot out"
        );
    }
    if config.replication_stream_id.len() > STREAM_ID_OF_NODES_MAX {
        bail!("--replication-stream-id must be {STREAM_ID_OF_NODES_MAX} letters at most on nodes");
    }
    Ok(())
}

fn check_serving(config: &Config) -> anyhow::Result<()> {
    if config.io_threads == 0 || config.max_connections == 0 {
        bail!("--io-threads and --max-connections must be at least 1");
    }
    if let Some(wrong) = config.allow_origin.0.iter().find(|name| !is_origin(name)) {
        bail!(
            "--allow-origin `{wrong}` is not an origin; write https://app.example or http://localhost:5173, without a path"
        );
    }
    if config.tls_cert.as_os_str().is_empty() != config.tls_key.as_os_str().is_empty() {
        bail!("--tls-cert and --tls-key go together");
    }
    if config.long_poll_timeout.0.is_zero() || config.sse_lifetime.0.is_zero() {
        bail!("--long-poll-timeout and --sse-lifetime must be longer than 0");
    }
    if config.write_timeout.0.is_zero() {
        bail!("--write-timeout must be longer than 0");
    }
    if config.gzip_level > 9 {
        bail!("--gzip-level {} must be 0 to 9", config.gzip_level);
    }
    Ok(())
}

fn check_access_to_shapes(config: &Config) -> anyhow::Result<()> {
    match (config.shape_secret.is_empty(), config.shape_insecure) {
        (true, Switch::Off) => bail!(
            "--database-url (DATABASE_URL) needs --shape-secret (ELECTRIC_SECRET), which requests must give, or --shape-insecure on \
             (ELECTRIC_INSECURE=true) if every client that reaches the server may read the database; --database-url '' serves no shapes"
        ),
        (false, Switch::On) => bail!(
            "--shape-secret (ELECTRIC_SECRET) and --shape-insecure on (ELECTRIC_INSECURE=true) contradict each other: leave one of \
             them out"
        ),
        _ => {}
    }
    Ok(())
}

fn check_replication(config: &Config) -> anyhow::Result<()> {
    let id = &config.replication_stream_id;
    if id.is_empty() || id.len() > 40 || !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    {
        bail!("--replication-stream-id `{id}` must be 1 to 40 of a-z, 0-9 and _");
    }
    let is_temporary = config.has_temporary_slot();
    if is_temporary && config.replication_failover_slot == Switch::On {
        bail!(
            "--replication-temporary-slot (always on in `thalweg dev`) and --replication-failover-slot contradict each other: Postgres copies \
             no temporary slot to standbys; leave one of them out"
        );
    }
    if is_temporary && !config.database_idle.0.is_zero() {
        bail!(
            "--replication-temporary-slot (always on in `thalweg dev`) and --database-idle contradict each other: all shapes would be made \
             again after each pause; leave one of them out"
        );
    }
    Ok(())
}

fn check_serving_of_shapes(config: &Config) -> anyhow::Result<()> {
    if config.shape_chunk_bytes.0 == 0 || config.shape_database_connections == 0 {
        bail!("--shape-chunk-bytes and --shape-database-connections must be at least 1");
    }
    if config.shape_long_poll_timeout.0.is_zero() || config.shape_sse_lifetime.0.is_zero() {
        bail!("--shape-long-poll-timeout and --shape-sse-lifetime must be longer than 0");
    }
    Ok(())
}

/// Whether the text is an origin as browsers write it in `Origin`.
fn is_origin(name: &str) -> bool {
    let site = name.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, site)| site);
    matches!(name, "*" | "null")
        || site.is_some_and(|site| !site.is_empty() && !site.contains(['/', '?', '#', '@', '*']))
}
