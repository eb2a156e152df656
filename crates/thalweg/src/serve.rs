//! Opens the data folder and serves it until it is asked to stop.

use crate::announce;
use crate::backup::Backups;
use crate::caution;
use crate::engines;
use crate::http::Front;
use crate::shutdown::Stop;
use crate::vitals::ServerVitals;
use anyhow::Context;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use thalweg_disk::RealDisk;
use thalweg_host::auth::Auth;
use thalweg_host::background::Background;
use thalweg_host::config::{Config, Switch, environment};
use thalweg_host::door::Door;
use thalweg_host::folder::Folder;
use thalweg_host::reload::Reload;
use thalweg_host::reserve;
use thalweg_host::scrub::{Scrubber, Scrubs};
use thalweg_host::tls;
use thalweg_host::{Boot, Keeping, Routes, keep};
use thalweg_http::{Gate, Server, ServerConfig, SharedPages, TlsIdentity};
use thalweg_rounds::{Options, Rounds};

/// How long requests under way may take after a stop.
const GRACE: Duration = Duration::from_secs(10);

/// Checks that a server could start with these settings and the files that they name. Opens and creates nothing.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    Auth::check(config)?;
    tls::check(config)?;
    engines::check(config)?;
    for warning in warnings(config) {
        eprintln!("warning: {warning}");
    }
    println!("the configuration is good");
    Ok(())
}

/// Runs a server with these settings. Returns after a graceful stop.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    let mut stop = Stop::install()?;
    let mut reload = Reload::install()?;
    for warning in warnings(config) {
        tracing::warn!("{warning}");
    }
    // Every refusal that does not need the data folder comes first.
    Auth::check(config)?;
    let tls = tls::identity(config, &mut reload)?;
    let folder = Folder::take(&config.data)?;
    let auth = Auth::of(config)?.map(Arc::new);
    reserve::lend(&RealDisk::open(folder.path()).context("cannot open the data folder")?)?;
    let gate = Arc::new(Gate::default());
    // Chunks that are kept for many readers: as much again as the cache holds.
    let pages = SharedPages::new(config.chunk_cache_bytes.0);
    let boot = Boot { config, folder: &folder, auth: auth.as_ref(), gate: &gate, pages: &pages };
    let (engines, streams) = engines::open(boot)?;
    let engines = Arc::new(engines);
    let mut background = Background::start();
    let options = Options { threads: config.background_threads, bytes_per_second: config.background_rate.0 };
    let rounds = Arc::new(Rounds::start(options).context("cannot start the threads of background work")?);
    // Space is held back again once everything is open: on a full disk the opening may use it.
    for unit in engines.units() {
        let reserve = unit.hold_back().context("cannot hold back disk space")?;
        let settles = config.settle == Switch::On;
        keep(&rounds, unit, Keeping { reserve, settles, bound_bytes: config.journal_bound_bytes.0 });
    }
    engines.all().iter().try_for_each(|engine| engine.work(&mut background, &rounds))?;

    if let Some(auth) = &auth {
        let auth = Arc::clone(auth);
        reload.watch("tokens", auth.files(), move || auth.reload());
    }
    background.watch(reload)?;
    let scrubs = Arc::new(Scrubs::of(engines.units()));
    Scrubber::new(Arc::clone(&scrubs), config.scrub_rate.0, config.scrub_every.0).start(&rounds);

    let vitals =
        Arc::new(ServerVitals::new(Arc::clone(&engines), auth.clone(), Arc::clone(&scrubs), Arc::clone(&rounds)));
    let backups = Backups::start(&streams.kernel, folder.path().to_owned(), folder.lineage(), config.backup_idle.0)?;
    let backups = Arc::new(backups);
    let bound = Server::bind(server_config(config, tls, pages)).map_err(|error| not_listening(config, error))?;
    let door = Door::new(config, auth.clone(), bound.local_addr().port());
    let door = Arc::new(match &streams.share {
        Some(share) => door.of_node(Arc::clone(&share.proofs)),
        None => door,
    });
    let front = Arc::new(Front {
        routes: Routes::of(engines.all()),
        gated: Arc::clone(&streams.streams),
        vitals: Arc::clone(&vitals),
        node: streams.node(),
        backups: Arc::clone(&backups),
        scrubs,
        door,
    });
    let server = Arc::new(bound.serve(front, gate).context("cannot start the event loops")?);
    vitals.watch(&server);
    folder.note_served();
    let announcement = announce::ready(config, server.local_addr())?;

    let signal = stop.wait();
    tracing::info!(signal, "stopping");
    drop(announcement);
    engines.retire();
    server.stop(GRACE);
    engines.stop();
    backups.stop();
    background.stop();
    rounds.stop();
    streams.close(&engines)?;
    folder.note_stopped()?;
    tracing::info!("stopped");
    Ok(())
}

/// Why the address cannot be served, and a remedy.
fn not_listening(config: &Config, error: std::io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => ": stop the program that listens there, or take another port with --listen",
        ErrorKind::AddrNotAvailable => ": --listen takes an address of this machine, or 0.0.0.0 for all of them",
        ErrorKind::PermissionDenied => {
            ": a port below 1024 needs CAP_NET_BIND_SERVICE; take a higher one with --listen"
        }
        _ => "",
    };
    anyhow::anyhow!("cannot listen on {}: {error}{remedy}", config.listen)
}

/// Warnings about allowed settings that are probably mistakes.
fn warnings(config: &Config) -> Vec<String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut said = environment::unknown(std::env::vars_os().filter_map(text));
    said.extend(caution::all(config, rustix::process::geteuid().is_root()));
    said
}

fn server_config(config: &Config, tls: Option<Arc<TlsIdentity>>, pages: SharedPages) -> ServerConfig {
    let mut server = ServerConfig {
        listen: config.listen.0,
        tls,
        max_connections: crate::descriptors::connections_max(config.max_connections, config.is_node()),
        max_connections_per_peer: config.max_connections_per_peer,
        write_timeout: config.write_timeout.0,
        max_body: usize::try_from(config.max_body.0).unwrap_or(usize::MAX),
        same_origin: config.is_for_this_machine(),
        pages,
        ..ServerConfig::default()
    };
    if config.reactors > 0 {
        server.reactors = config.reactors;
    }
    server
}
