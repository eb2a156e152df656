//! The engine of streams. Its kernel unit is that of the data folder, and the event loop's gate follows the journal of
//! this unit.

use crate::nodes::{Served, Share};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thalweg_host::auth::{self, KEY_FILE};
use thalweg_host::background::{self, Background};
use thalweg_host::config::Config;
use thalweg_host::folder::Folder;
use thalweg_host::kernel;
use thalweg_host::metrics::{Kind, Page};
use thalweg_host::{Boot, Engine, Engines, Guard, Mirroring, Paths, Route, Unit};
use thalweg_http::{Context, Gate, Reply, Request, Service};
use thalweg_journal::Journal;
use thalweg_log::{FileUnit, When};
use thalweg_rounds::Rounds;
use thalweg_streams::{Retention, StreamState, Streams, StreamsConfig};

/// The path under which streams live.
const ROOT: &str = "/v1/stream";
/// How often streams are checked for expiry.
const TICK_EVERY: Duration = Duration::from_millis(100);

/// Counts logs of the unit that are no streams.
type CountOthers = Box<dyn Fn() -> u64 + Send + Sync>;

/// Streams and their kernel unit.
pub(crate) struct ServedStreams {
    pub(crate) kernel: FileUnit<StreamState>,
    pub(crate) streams: Arc<Streams>,
    /// The mirror of the data folder in a bucket, if there is one.
    pub(crate) mirroring: Option<Mirroring>,
    /// The bucket that it shares with other nodes, if it is a node.
    pub(crate) share: Option<Share>,
    /// Says where requests go, on a node.
    node: OnceLock<Arc<Served>>,
    others: OnceLock<CountOthers>,
    streams_max: u64,
    reserve_bytes: u64,
}

pub(crate) fn open(boot: Boot<'_>) -> anyhow::Result<ServedStreams> {
    let Boot { config, folder, auth, gate, .. } = boot;
    let share = Share::of(config, boot.folder)?;
    if let (Some(share), Some(auth)) = (&share, auth) {
        auth.share_key(|own| share.settle_once(KEY_FILE, own))?;
    }
    let (kernel, mirroring) = kernel::open(folder, config)?;
    boot.share_chunks_of(&kernel);
    folder.note_running(config.durability.of_journal())?;
    let units_of_nodes = share.as_ref().map_or(0, |share| share.prefix.units as usize);
    let private = auth.is_some_and(|auth| auth.is_everywhere());
    let streams =
        Streams::new(Arc::clone(&kernel.logs), StreamsConfig { units_of_nodes, ..streams_config(config, private) });
    let (path, durability) = (folder.path().to_owned(), config.durability.of_journal());
    open_gate(&kernel, gate, &streams, move || Folder::note_failed(&path, durability));
    let (streams_max, reserve_bytes) = (config.max_streams, config.reserve_bytes.0);
    let (node, others) = (OnceLock::new(), OnceLock::new());
    Ok(ServedStreams { kernel, streams, mirroring, share, node, others, streams_max, reserve_bytes })
}

impl ServedStreams {
    /// Registers the number of another engine's logs in the same unit, which are not counted as streams.
    pub(crate) fn leave_out(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        let first = self.others.set(Box::new(count)).is_ok();
        assert!(first, "one engine keeps logs beside the streams");
    }

    /// How many units nodes have.
    pub(crate) fn units(&self) -> u64 {
        self.share.as_ref().map_or(0, |share| share.prefix.units)
    }

    /// Has a node say where requests go. Once.
    /// The node, if this server is one.
    pub(crate) fn node(&self) -> Option<Arc<Served>> {
        self.node.get().cloned()
    }

    pub(crate) fn route_by(&self, node: Arc<Served>) {
        let _ = self.node.set(node);
    }
}

impl ServedStreams {
    /// Closes all units of `engines`, of which this one is the first; the bucket gets what it lacks of it.
    pub(crate) fn close(&self, engines: &Engines) -> anyhow::Result<()> {
        let Some(mirroring) = &self.mirroring else { return engines.close() };
        mirroring.close(|| {
            // What is settled need not be copied with the journal's end.
            while self.kernel.logs.settle(background::now(), When::Now)? {}
            engines.close()
        })
    }
}

impl Engine for ServedStreams {
    fn routes(&self) -> Vec<Route> {
        let help = "streams: PUT creates, POST appends, GET reads, HEAD asks, DELETE removes";
        vec![Route {
            paths: Paths::Below(ROOT),
            guard: Guard::Token(auth::need_of_streams),
            is_served: true,
            shown: ("/v1/stream/NAME", help),
        }]
    }

    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        match self.node.get() {
            Some(node) => node.route(request, cx),
            None => Service::handle(&*self.streams, request, cx),
        }
    }

    fn unit(&self) -> Option<Unit> {
        Some(Unit::main("streams", &self.kernel, self.reserve_bytes))
    }

    fn health(&self) -> Result<(), String> {
        self.mirroring.as_ref().map_or(Ok(()), Mirroring::health)?;
        match self.kernel.logs.is_low_on_space() {
            true => Err("the disk is full: appends are refused, reads and deletes work".to_owned()),
            false => Ok(()),
        }
    }

    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    fn metrics(&self, page: &mut Page) {
        use Kind::{Counter, Gauge};
        let f = |n: u64| n as f64;
        let (s, logs) = (self.streams.stats(), self.kernel.logs.stats());
        let of_folder = logs.logs.saturating_sub(self.others.get().map_or(0, |count| count()));
        let count = of_folder + self.streams.beside();
        page.add([
            ("streams", Gauge, "Streams that exist; on a node those of the units that it owns.", f(count)),
            ("streams_max", Gauge, "Streams that there may be.", f(self.streams_max)),
            ("appends_total", Counter, "Append requests accepted.", f(s.appends)),
            ("append_bytes_total", Counter, "Bytes of content accepted.", f(s.append_bytes)),
            ("append_duplicates_total", Counter, "Retries of idempotent producers recognised.", f(s.duplicates)),
            ("read_held_bytes", Gauge, "Memory of answers that are not sent yet, and of chunks kept for more readers.", f(self.kernel.logs.held_bytes())),
            ("compressed_from_bytes_total", Counter, "Bytes of reads that were compressed, before.", f(s.compressed_from_bytes)),
            ("compressed_to_bytes_total", Counter, "Bytes of reads that were compressed, after.", f(s.compressed_to_bytes)),
            ("trimmed_bytes_total", Counter, "Bytes of content given up by retention.", f(s.trimmed_bytes)),
            ("read_bytes_total", Counter, "Bytes of content read.", f(s.read_bytes)),
            ("waiters", Gauge, "Long-polls and SSE connections waiting for data.", f(s.long_poll_waiters + s.sse_waiters)),
        ]);
        if let Some(mirroring) = &self.mirroring {
            mirroring.stats().add_to(page);
        }
    }

    fn stop(&self) {
        if let Some(mirroring) = &self.mirroring {
            mirroring.stop();
        }
    }

    /// Lets streams expire.
    fn work(&self, background: &mut Background, _: &Arc<Rounds>) -> std::io::Result<()> {
        let streams = Arc::clone(&self.streams);
        background.every("tick", TICK_EVERY, move || streams.tick(background::now()))
    }
}

/// Opens the gate as the journal advances, and reports every advance to the engine. If the journal stops, a separate
/// thread calls `note`.
fn open_gate(
    kernel: &FileUnit<StreamState>,
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

fn streams_config(config: &Config, private: bool) -> StreamsConfig {
    StreamsConfig {
        private,
        https: config.speaks_tls(),
        long_poll_timeout: config.long_poll_timeout.0,
        sse_lifetime: config.sse_lifetime.0,
        chunk_max_age: config.chunk_max_age.0,
        streams_max: config.max_streams,
        io_threads: config.io_threads,
        unsent_bytes_max: config.max_unsent.0,
        gzip_level: config.gzip_level,
        level: config.durability,
        has_store: config.store.0.is_some() && !config.is_node(),
        retention: Retention {
            bytes: Some(config.retention_bytes.0).filter(|bytes| *bytes > 0),
            secs: Some(config.retention_age.0.as_secs()).filter(|secs| *secs > 0),
        },
        ..StreamsConfig::default()
    }
}
