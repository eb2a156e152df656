//! Opens the data folder and serves it until it is asked to stop.

use crate::announce;
use crate::background::Background;
use crate::backup::Backups;
use crate::config::{Config, Switch};
use crate::folder::Folder;
use crate::http::Front;
use crate::kernel::Kernel;
use crate::reserve::Reserve;
use crate::shutdown::Stop;
use crate::vitals::ServerVitals;
use anyhow::Context;
use std::sync::Arc;
use std::time::Duration;
use thalweg_journal::Journal;
use thalweg_streams::{Retention, Streams, StreamsConfig};
use thalweg_wire::http::{Gate, Server, ServerConfig};

/// How long requests that are under way may take after a stop was asked for.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a server with these settings. Returns after a graceful stop.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    let mut stop = Stop::install()?;
    let folder = Folder::take(&config.data)?;
    let kernel = Kernel::open(&folder, config)?;
    folder.note_running(config.durability)?;
    let reserve = Reserve::open(&*kernel.disk, config.reserve_bytes.0).context("cannot hold back disk space")?;

    let streams = Streams::new(Arc::clone(&kernel.logs), streams_config(config));
    let gate = Arc::new(Gate::default());
    open_gate(&kernel, &gate, &streams);
    let background =
        Background::start(&kernel, &streams, reserve, config.settle == Switch::On, config.journal_segment_bytes.0)?;

    let vitals = Arc::new(ServerVitals::new(&kernel, &streams));
    let backups = Backups::start(&kernel, folder.path().to_owned(), folder.lineage(), config.backup_idle.0)?;
    let backups = Arc::new(backups);
    let front = Arc::new(Front::new(Arc::clone(&streams), Arc::clone(&vitals), Arc::clone(&backups)));
    let server = Server::start(server_config(config), front, gate);
    let server = Arc::new(server.with_context(|| format!("cannot listen on {}", config.listen))?);
    vitals.watch(&server);
    let announcement = announce::ready(config, server.local_addr())?;

    let signal = stop.wait();
    tracing::info!(signal, "stopping");
    drop(announcement);
    server.stop(GRACE);
    backups.stop();
    background.stop();
    kernel.journal.close().context("the journal could not be closed")?;
    folder.note_stopped()?;
    tracing::info!("stopped");
    Ok(())
}

/// Lets the gate follow the journal's durable position, and tells the engine of every advance.
fn open_gate(kernel: &Kernel, gate: &Arc<Gate>, streams: &Arc<Streams>) {
    let (gate, streams) = (Arc::clone(gate), Arc::clone(streams));
    let journal = Arc::downgrade(&kernel.journal);
    gate.advance(kernel.journal.durable().0);
    kernel.journal.subscribe(Arc::new(move || {
        let Some(journal) = journal.upgrade() else { return };
        gate.advance_with(journal.durable().0, || streams.on_durable());
        if journal.poisoned().is_some() {
            gate.fail();
        }
    }));
}

fn streams_config(config: &Config) -> StreamsConfig {
    StreamsConfig {
        long_poll_timeout: config.long_poll_timeout.0,
        sse_lifetime: config.sse_lifetime.0,
        io_threads: config.io_threads,
        unsent_bytes_max: config.max_unsent.0,
        gzip_level: config.gzip_level,
        retention: Retention {
            bytes: Some(config.retention_bytes.0).filter(|bytes| *bytes > 0),
            secs: Some(config.retention_age.0.as_secs()).filter(|secs| *secs > 0),
        },
        ..StreamsConfig::default()
    }
}

fn server_config(config: &Config) -> ServerConfig {
    let mut server = ServerConfig {
        listen: config.listen.0,
        max_connections: config.max_connections,
        max_body: usize::try_from(config.max_body.0).unwrap_or(usize::MAX),
        ..ServerConfig::default()
    };
    if config.reactors > 0 {
        server.reactors = config.reactors;
    }
    server
}
