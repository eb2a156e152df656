//! Opens the data folder and serves it until it is asked to stop.

use crate::announce;
use crate::auth::Auth;
use crate::background::{self, Background};
use crate::backup::Backups;
use crate::caution;
use crate::config::{Config, Switch, WebhookTargets, environment};
use crate::door::Door;
use crate::folder::Folder;
use crate::http::Front;
use crate::kernel::Kernel;
use crate::reload::Reload;
use crate::reserve::{self, Reserve};
use crate::scrub::{Scrubber, Scrubs};
use crate::shapes;
use crate::shutdown::Stop;
use crate::tls;
use crate::vitals::ServerVitals;
use anyhow::Context;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use thalweg_disk::RealDisk;
use thalweg_journal::Journal;
use thalweg_streams::{Retention, StreamState, Streams, StreamsConfig};
use thalweg_subscriptions::{Keys, Subscriptions, SubscriptionsConfig, Targets};
use thalweg_wire::http::{Gate, Server, ServerConfig, TlsIdentity};

/// How long requests that are under way may take after a stop was asked for.
const GRACE: Duration = Duration::from_secs(10);

/// Whether a server could start with these settings, as far as their files tell. Opens and makes nothing.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    Auth::check(config)?;
    tls::check(config)?;
    shapes::check(config)?;
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
    // Everything that can be refused without the data folder comes before it.
    Auth::check(config)?;
    let tls = tls::identity(config, &mut reload)?;
    let folder = Folder::take(&config.data)?;
    let auth = Auth::of(config)?.map(Arc::new);
    reserve::lend(&RealDisk::open(folder.path()).context("cannot open the data folder")?)?;
    let kernel = Kernel::<StreamState>::open(&folder, config)?;
    folder.note_running(config.durability)?;
    // What has to be opened on a full disk is, before space is held back again.
    let mut served = shapes::open(&folder, config)?;
    let reserve = Reserve::open(&*kernel.disk, config.reserve_bytes.0).context("cannot hold back disk space")?;

    let streams = Streams::new(
        Arc::clone(&kernel.logs),
        streams_config(config, auth.as_ref().is_some_and(|auth| auth.is_everywhere())),
    );
    let gate = Arc::new(Gate::default());
    let (path, durability) = (folder.path().to_owned(), config.durability);
    open_gate(&kernel, &gate, &streams, move || Folder::note_failed(&path, durability));
    let mut background = Background::start();
    background.keep(&kernel, reserve, config.settle == Switch::On, config.journal_segment_bytes.0)?;
    background.tick(&streams)?;

    if let Some(auth) = &auth {
        let auth = Arc::clone(auth);
        reload.watch("tokens", auth.files(), move || auth.reload());
    }
    background.watch(reload)?;

    if let Some(served) = &served {
        let reserve = Reserve::open(&*served.kernel.disk, 0).context("cannot hold back disk space")?;
        background.keep(&served.kernel, reserve, config.settle == Switch::On, config.journal_segment_bytes.0)?;
    }

    let mut scrubs = Scrubs::default();
    scrubs.add("", &kernel);
    if let Some(served) = &served {
        scrubs.add(shapes::PREFIX, &served.kernel);
    }
    let scrubs = Arc::new(scrubs);
    background.scrub(Scrubber::new(Arc::clone(&scrubs), config.scrub_rate.0, config.scrub_every.0))?;

    let subscriptions = subscriptions(&folder, &kernel, &streams, config)?;
    let vitals = Arc::new(ServerVitals::new(
        &kernel,
        &streams,
        &subscriptions,
        auth.clone(),
        served.as_ref().map(|served| (served.shapes.service(), Arc::clone(&served.kernel.journal))),
        Arc::clone(&scrubs),
    ));
    let backups = Backups::start(&kernel, folder.path().to_owned(), folder.lineage(), config.backup_idle.0)?;
    let backups = Arc::new(backups);
    let bound = Server::bind(server_config(config, tls)).map_err(|error| not_listening(config, error))?;
    let door = Arc::new(Door::new(config, auth.clone(), bound.local_addr().port()));
    let front = Arc::new(Front::new(
        Arc::clone(&streams),
        Arc::clone(&subscriptions),
        Arc::clone(&backups),
        scrubs,
        Arc::clone(&vitals),
        Arc::clone(&door),
        served.as_ref().map(|served| served.shapes.service()),
    ));
    let server = Arc::new(bound.serve(front, gate).context("cannot start the event loops")?);
    vitals.watch(&server);
    folder.note_served();
    let announcement = announce::ready(config, server.local_addr())?;

    let signal = stop.wait();
    tracing::info!(signal, "stopping");
    drop(announcement);
    server.stop(GRACE);
    subscriptions.stop();
    backups.stop();
    if let Some(served) = &mut served {
        served.shapes.stop();
    }
    background.stop();
    if let Some(served) = served {
        served.kernel.close().context("shapes")?;
    }
    kernel.close()?;
    folder.note_stopped()?;
    tracing::info!("stopped");
    Ok(())
}

/// Why nothing can be served at the address, and what to do.
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

/// What is allowed and probably a mistake.
fn warnings(config: &Config) -> Vec<String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let mut said = environment::unknown(std::env::vars_os().filter_map(text));
    said.extend(caution::all(config, rustix::process::geteuid().is_root()));
    said
}

/// Lets the gate follow the journal, and tells the engine of every advance. If the journal stops, `note` is called on a thread of its
/// own.
fn open_gate(
    kernel: &Kernel<StreamState>,
    gate: &Arc<Gate>,
    streams: &Arc<Streams>,
    note: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
) {
    let note = Mutex::new(Some(note));
    let (gate, streams) = (Arc::clone(gate), Arc::clone(streams));
    let journal = Arc::downgrade(&kernel.journal);
    gate.advance(kernel.journal.reached());
    kernel.journal.subscribe(Arc::new(move || {
        let Some(journal) = journal.upgrade() else { return };
        gate.advance_with(journal.reached(), || streams.on_durable());
        if journal.poisoned().is_some() {
            gate.fail();
            let Some(note) = note.lock().take() else { return };
            let noting = std::thread::Builder::new().name("failure".into()).spawn(move || {
                if let Err(error) = note() {
                    tracing::error!(%error, "the failure cannot be noted in the data folder");
                }
            });
            drop(noting);
        }
    }));
}

/// What subscriptions sign with, in the data folder.
const KEYS: &str = "subscriptions.keys";

fn subscriptions(
    folder: &Folder,
    kernel: &Kernel<StreamState>,
    streams: &Arc<Streams>,
    config: &Config,
) -> anyhow::Result<Arc<Subscriptions>> {
    let keys = Keys::open(&folder.path().join(KEYS)).context("cannot open the keys of webhooks")?;
    let settings = SubscriptionsConfig {
        public_url: config.public_url.clone(),
        https: config.speaks_tls(),
        targets: match config.webhook_targets {
            WebhookTargets::Public => Targets::Public,
            WebhookTargets::Local => Targets::Local,
            WebhookTargets::Any => Targets::Any,
        },
        subscriptions_max: config.max_subscriptions,
        streams_max: config.max_subscription_streams,
        deliveries_max: config.webhook_threads,
        delivery_timeout: config.webhook_timeout.0,
        ..SubscriptionsConfig::default()
    };
    let (logs, streams) = (Arc::clone(&kernel.logs), Arc::clone(streams));
    // Ids of wakes and jitter: they need to differ, not to be secret.
    let random = RandomState::new();
    let mut n = 0_u64;
    let random = Box::new(move || {
        n += 1;
        random.hash_one(n)
    });
    Subscriptions::open(logs, streams, settings, keys, background::now, random).context("cannot open the subscriptions")
}

fn streams_config(config: &Config, private: bool) -> StreamsConfig {
    StreamsConfig {
        private,
        https: config.speaks_tls(),
        long_poll_timeout: config.long_poll_timeout.0,
        sse_lifetime: config.sse_lifetime.0,
        streams_max: config.max_streams,
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

fn server_config(config: &Config, tls: Option<Arc<TlsIdentity>>) -> ServerConfig {
    let mut server = ServerConfig {
        listen: config.listen.0,
        tls,
        max_connections: config.max_connections,
        max_connections_per_peer: config.max_connections_per_peer,
        write_timeout: config.write_timeout.0,
        max_body: usize::try_from(config.max_body.0).unwrap_or(usize::MAX),
        same_origin: config.is_for_this_machine(),
        ..ServerConfig::default()
    };
    if config.reactors > 0 {
        server.reactors = config.reactors;
    }
    server
}
