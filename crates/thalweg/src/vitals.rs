//! What a server says about itself: its health, and the numbers of all its parts.

use crate::auth::Auth;
use crate::background;
use crate::http::{Health, Vitals};
use crate::kernel::Kernel;
use crate::metrics::{self, Snapshot};
use crate::scrub::Scrubs;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use thalweg_journal::{FileJournal, Journal};
use thalweg_log::Logs;
use thalweg_shapes::ShapesService;
use thalweg_streams::{StreamState, Streams};
use thalweg_subscriptions::Subscriptions;
use thalweg_wire::http::Server;

pub(crate) struct ServerVitals {
    journal: Arc<FileJournal>,
    logs: Arc<Logs<StreamState>>,
    streams: Arc<Streams>,
    subscriptions: Arc<Subscriptions>,
    auth: Option<Arc<Auth>>,
    /// The shapes and the journal of their unit.
    shapes: Option<(ShapesService, Arc<FileJournal>)>,
    scrubs: Arc<Scrubs>,
    server: OnceLock<Weak<Server>>,
    started: Instant,
}

impl ServerVitals {
    pub(crate) fn new(
        kernel: &Kernel<StreamState>,
        streams: &Arc<Streams>,
        subscriptions: &Arc<Subscriptions>,
        auth: Option<Arc<Auth>>,
        shapes: Option<(ShapesService, Arc<FileJournal>)>,
        scrubs: Arc<Scrubs>,
    ) -> Self {
        Self {
            journal: Arc::clone(&kernel.journal),
            logs: Arc::clone(&kernel.logs),
            streams: Arc::clone(streams),
            subscriptions: Arc::clone(subscriptions),
            auth,
            shapes,
            scrubs,
            server: OnceLock::new(),
            started: Instant::now(),
        }
    }

    /// Whether requests of every kind can be served; if not, why.
    fn serves(&self) -> Result<(), String> {
        if let Some(poisoned) = self.journal.poisoned() {
            return Err(poisoned.to_string());
        }
        if let Some(poisoned) = self.shapes.as_ref().and_then(|(_, journal)| journal.poisoned()) {
            return Err(format!("shapes: {poisoned}"));
        }
        if self.logs.is_low_on_space() {
            return Err("the disk is full: appends are refused, reads and deletes work".to_owned());
        }
        if self.shapes.as_ref().is_some_and(|(shapes, _)| shapes.stats().disk_full) {
            return Err("shapes: the disk is full: changes of Postgres wait, rows are read".to_owned());
        }
        Ok(())
    }

    /// The server is there once it serves, later than the vitals that it shows.
    pub(crate) fn watch(&self, server: &Arc<Server>) {
        let _ = self.server.set(Arc::downgrade(server));
    }
}

impl Vitals for Arc<ServerVitals> {
    fn health(&self) -> Health {
        if let Err(why) = self.serves() {
            return Health::Down(why);
        }
        match self.scrubs.damage().total() {
            0 => Health::Whole,
            damage => Health::Degraded { damage },
        }
    }

    fn metrics(&self) -> Snapshot {
        let (journal, logs, streams) = (self.journal.stats(), self.logs.stats(), self.streams.stats());
        let server = self.server.get().and_then(Weak::upgrade).map(|server| server.stats()).unwrap_or_default();
        let subscriptions = self.subscriptions.stats();
        let shapes = self.shapes.as_ref().map(|(shapes, journal)| metrics::Shapes {
            stats: shapes.stats(),
            journal_held_bytes: journal.stats().held_bytes,
            journal_poisoned: journal.poisoned().is_some(),
        });
        Snapshot {
            subscriptions,
            shapes,
            streams: metrics::Streams {
                // A subscription is a log too.
                count: logs.logs.saturating_sub(subscriptions.subscriptions),
                appends: streams.appends,
                appended_bytes: logs.appended_bytes,
                duplicates: streams.duplicates,
                held_bytes: self.logs.held_bytes(),
                compressed_from_bytes: streams.compressed_from_bytes,
                compressed_to_bytes: streams.compressed_to_bytes,
                trimmed_bytes: streams.trimmed_bytes,
                read_bytes: streams.read_bytes,
                waiters: streams.long_poll_waiters + streams.sse_waiters,
            },
            journal: metrics::Journal {
                frames: journal.frames,
                batches: journal.batches,
                written_bytes: journal.written_bytes,
                syncs: journal.syncs,
                sync_nanos: journal.sync_nanos,
                held_bytes: journal.held_bytes,
                window_bytes: journal.window_bytes,
                poisoned: self.journal.poisoned().is_some(),
            },
            settling: metrics::Settling {
                lag_bytes: logs.lag_bytes,
                lag_seconds: logs.lag_since.map_or(0.0, |since| background::now().since(since) as f64 / 1e3),
                settled_bytes: logs.settled_bytes,
                object_written_bytes: logs.settled_bytes + logs.merged_bytes + logs.directory_bytes,
                objects: logs.objects,
                object_bytes: logs.object_bytes,
                live_bytes: logs.live_bytes,
                runs_max: logs.runs,
            },
            connections: metrics::Connections {
                open: server.connections_active,
                accepted: server.connections_accepted,
                refused: server.connections_refused,
                handshakes_failed: server.handshakes_failed,
                requests: server.requests,
                received_bytes: server.bytes_in,
                sent_bytes: server.bytes_out,
            },
            process: metrics::Process {
                uptime_seconds: self.started.elapsed().as_secs_f64(),
                memory_bytes: resident_bytes().unwrap_or(0),
            },
            denied: self.auth.as_ref().map(|auth| auth.denied()),
            scrub: self.scrubs.stats(),
            waits: server.waits,
        }
    }
}

/// From `/proc`, which costs no device: proc(5), the second number of `statm`, in pages.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
