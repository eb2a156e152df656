//! The Prometheus text page, made from one snapshot of the process's counters.
//!
//! Names and meanings are documented in `docs/ops/metrics.md`; a test keeps the two in step.

use crate::auth::DeniedCounts;
use crate::door::RefusedCounts;
use std::fmt::Write;
use thalweg_log::Place;
use thalweg_wire::http::Waits;

/// The counters of a process at one moment. Whoever wires the parts together fills it in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) streams: Streams,
    pub(crate) subscriptions: thalweg_subscriptions::Stats,
    /// If there is a database whose shapes are served.
    pub(crate) shapes: Option<Shapes>,
    pub(crate) journal: Journal,
    pub(crate) settling: Settling,
    pub(crate) connections: Connections,
    pub(crate) process: Process,
    /// Requests that tokens did not allow, by code. None if tokens are not asked for.
    pub(crate) denied: Option<DeniedCounts>,
    /// Of all kernel units.
    pub(crate) scrub: crate::scrub::Stats,
    /// How long answers of appends waited.
    pub(crate) waits: Waits,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Streams {
    /// Streams that exist.
    pub(crate) count: u64,
    /// Append requests that were accepted, since the start.
    pub(crate) appends: u64,
    /// Bytes of content that were accepted, since the start.
    pub(crate) appended_bytes: u64,
    /// Retries of idempotent producers that were recognised, since the start.
    pub(crate) duplicates: u64,
    /// Memory that answers and their cache hold now.
    pub(crate) held_bytes: u64,
    /// Bytes of reads that were compressed, before and after, since the start.
    pub(crate) compressed_from_bytes: u64,
    pub(crate) compressed_to_bytes: u64,
    /// Bytes of content given up by retention, since the start.
    pub(crate) trimmed_bytes: u64,
    /// Bytes of content that were read, since the start.
    pub(crate) read_bytes: u64,
    /// Long-polls and SSE connections that wait for data now.
    pub(crate) waiters: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shapes {
    pub(crate) stats: thalweg_shapes::ShapesStats,
    /// Of their unit, which has a journal of its own.
    pub(crate) journal_held_bytes: u64,
    pub(crate) journal_poisoned: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Journal {
    pub(crate) frames: u64,
    pub(crate) batches: u64,
    pub(crate) written_bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) sync_nanos: u64,
    /// Bytes between the trim point and the end.
    pub(crate) held_bytes: u64,
    pub(crate) window_bytes: u64,
    /// The journal stopped for good after a failed write or sync.
    pub(crate) poisoned: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Settling {
    /// Bytes of content in the journal that are in no object yet.
    pub(crate) lag_bytes: u64,
    /// Age of the oldest of them.
    pub(crate) lag_seconds: f64,
    /// Bytes of content that were moved from the journal into objects, since the start.
    pub(crate) settled_bytes: u64,
    /// Bytes written to objects by settling, merging and rewriting, since the start.
    pub(crate) object_written_bytes: u64,
    /// Objects that exist, and their size.
    pub(crate) objects: u64,
    pub(crate) object_bytes: u64,
    /// Bytes in objects that some stream can still read.
    pub(crate) live_bytes: u64,
    /// Runs that exist: no stream is spread over more.
    pub(crate) runs_max: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Connections {
    pub(crate) open: u64,
    pub(crate) accepted: u64,
    /// Turned away at the limit.
    pub(crate) refused: u64,
    /// TLS handshakes that were begun and not finished.
    pub(crate) handshakes_failed: u64,
    pub(crate) requests: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) uptime_seconds: f64,
    /// Resident.
    pub(crate) memory_bytes: u64,
}

/// Figures that no engine counts: of the door, the settings and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Door {
    /// Requests that no token was asked for, by code.
    pub(crate) refused: RefusedCounts,
    pub(crate) streams_max: u64,
    /// Log lines that were thrown away because nobody took them.
    pub(crate) log_lines_dropped: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// The page for a snapshot.
pub(crate) fn render(snapshot: &Snapshot, door: &Door) -> String {
    let mut page = String::with_capacity(4096);
    for (name, kind, help, value) in families(snapshot, door) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "# HELP thalweg_{name} {help}\n# TYPE thalweg_{name} {kind}\nthalweg_{name} {value}");
    }
    render_build(&mut page);
    render_denied(&mut page, snapshot.denied.as_ref(), &door.refused);
    render_damage(&mut page, &snapshot.scrub);
    render_waits(&mut page, &snapshot.waits);
    page
}

const INFO: &str = "info";
const APPEND_SECONDS: &str = "append_seconds";
const DAMAGE: &str = "damage";
const DENIED: &str = "requests_denied_total";

fn render_damage(page: &mut String, scrub: &crate::scrub::Stats) {
    let _ = writeln!(
        page,
        "# HELP thalweg_{DAMAGE} Places of stored data that are known to be damaged now, by the kind of file.\n\
         # TYPE thalweg_{DAMAGE} gauge"
    );
    for (kind, places) in Place::KINDS.iter().zip(scrub.damage.places) {
        let _ = writeln!(page, "thalweg_{DAMAGE}{{kind=\"{kind}\"}} {places}");
    }
    let _ = writeln!(page, "thalweg_{DAMAGE}{{kind=\"left_out\"}} {}", scrub.damage.left_out);
}

fn render_denied(page: &mut String, denied: Option<&DeniedCounts>, refused: &RefusedCounts) {
    let _ = writeln!(
        page,
        "# HELP thalweg_{DENIED} Requests refused before a route saw them: for their token, host, origin or encoding, by code.\n\
         # TYPE thalweg_{DENIED} counter"
    );
    for (code, count) in denied.into_iter().flatten().chain(refused) {
        let _ = writeln!(page, "thalweg_{DENIED}{{code=\"{code}\"}} {count}");
    }
}

fn render_build(page: &mut String) {
    let _ = writeln!(
        page,
        "# HELP thalweg_{INFO} 1, and the version as a label.\n# TYPE thalweg_{INFO} gauge\n\
         thalweg_{INFO}{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
}

/// A histogram: buckets count all that waited no longer than `le`.
#[allow(clippy::cast_precision_loss, reason = "bounds are small, and sums beyond 2^53 may lose their last digits")]
fn render_waits(page: &mut String, waits: &Waits) {
    let _ = writeln!(
        page,
        "# HELP thalweg_{APPEND_SECONDS} Time until the journal let an answer go, by the clock of the event loop.\n\
         # TYPE thalweg_{APPEND_SECONDS} histogram"
    );
    let mut count = 0;
    for (bound, waited) in waits.buckets() {
        count += waited;
        let bound = bound.map_or("+Inf".to_owned(), |micros| (micros as f64 / 1e6).to_string());
        let _ = writeln!(page, "thalweg_{APPEND_SECONDS}_bucket{{le=\"{bound}\"}} {count}");
    }
    let sum = waits.micros as f64 / 1e6;
    let _ = writeln!(page, "thalweg_{APPEND_SECONDS}_sum {sum}\nthalweg_{APPEND_SECONDS}_count {count}");
}

/// One row per metric: what Prometheus is told about it and its value.
#[rustfmt::skip]
#[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
fn families(s: &Snapshot, door: &Door) -> Vec<(&'static str, Kind, &'static str, f64)> {
    use Kind::{Counter, Gauge};
    let f = |n: u64| n as f64;
    let (streams, journal, settling, connections) = (&s.streams, &s.journal, &s.settling, &s.connections);
    let process = &s.process;
    let mut all = vec![
        ("streams", Gauge, "Streams that exist.", f(streams.count)),
        ("streams_max", Gauge, "Streams that there may be.", f(door.streams_max)),
        ("appends_total", Counter, "Append requests accepted.", f(streams.appends)),
        ("append_bytes_total", Counter, "Bytes of content accepted.", f(streams.appended_bytes)),
        ("append_duplicates_total", Counter, "Retries of idempotent producers recognised.", f(streams.duplicates)),
        ("read_held_bytes", Gauge, "Memory of answers that are not sent yet, and of chunks kept for more readers.", f(streams.held_bytes)),
        ("compressed_from_bytes_total", Counter, "Bytes of reads that were compressed, before.", f(streams.compressed_from_bytes)),
        ("compressed_to_bytes_total", Counter, "Bytes of reads that were compressed, after.", f(streams.compressed_to_bytes)),
        ("trimmed_bytes_total", Counter, "Bytes of content given up by retention.", f(streams.trimmed_bytes)),
        ("read_bytes_total", Counter, "Bytes of content read.", f(streams.read_bytes)),
        ("waiters", Gauge, "Long-polls and SSE connections waiting for data.", f(streams.waiters)),
        ("subscriptions", Gauge, "Subscriptions that exist.", f(s.subscriptions.subscriptions)),
        ("subscription_streams", Gauge, "Streams that subscriptions are linked to, counted for each.", f(s.subscriptions.links)),
        ("subscription_streams_refused_total", Counter, "Streams that matched a pattern but were over the subscription's limit.", f(s.subscriptions.unlinked)),
        ("subscription_leases", Gauge, "Wakes in flight that a lease bounds.", f(s.subscriptions.leases)),
        ("subscription_retries", Gauge, "Subscriptions that wait to try again after a failed wake.", f(s.subscriptions.retries)),
        ("webhook_deliveries_total", Counter, "Webhook deliveries that the receiver took.", f(s.subscriptions.delivered)),
        ("wake_failures_total", Counter, "Webhook deliveries that failed, and wakes whose wake stream was not there.", f(s.subscriptions.failed)),
        ("journal_frames_total", Counter, "Frames appended to the journal.", f(journal.frames)),
        ("journal_batches_total", Counter, "Batches written to the journal.", f(journal.batches)),
        ("journal_written_bytes_total", Counter, "Bytes written to the journal, headers included.", f(journal.written_bytes)),
        ("journal_syncs_total", Counter, "Syncs of the journal.", f(journal.syncs)),
        ("journal_sync_seconds_total", Counter, "Time spent in syncs of the journal.", f(journal.sync_nanos) / 1e9),
        ("journal_batch_frames", Gauge, "Frames per batch, on average since the start.", ratio(journal.frames, journal.batches)),
        ("journal_held_bytes", Gauge, "Bytes the journal holds, from its trim point to its end.", f(journal.held_bytes)),
        ("journal_window_bytes", Gauge, "Bytes of the journal's end kept in memory.", f(journal.window_bytes)),
        ("journal_poisoned", Gauge, "1 after a failed write or sync: nothing more is accepted until a restart.", f(journal.poisoned.into())),
        ("settle_lag_bytes", Gauge, "Bytes of content in the journal that are in no object yet.", f(settling.lag_bytes)),
        ("settle_lag_seconds", Gauge, "Age of the oldest content that is in no object yet.", settling.lag_seconds),
        ("settled_bytes_total", Counter, "Bytes of content moved from the journal into objects.", f(settling.settled_bytes)),
        ("object_written_bytes_total", Counter, "Bytes written to objects by settling, merging and rewriting.", f(settling.object_written_bytes)),
        ("objects", Gauge, "Objects that exist.", f(settling.objects)),
        ("object_bytes", Gauge, "Size of all objects.", f(settling.object_bytes)),
        ("live_bytes", Gauge, "Bytes in objects that some stream can read.", f(settling.live_bytes)),
        ("runs_max", Gauge, "Runs that exist: no stream is spread over more.", f(settling.runs_max)),
        ("write_amplification", Gauge, "Bytes written to journal and objects per byte of content accepted.",
            ratio(journal.written_bytes + settling.object_written_bytes, streams.appended_bytes)),
        ("space_amplification", Gauge, "Size of all objects per byte in them that some stream can read.",
            ratio(settling.object_bytes, settling.live_bytes)),
        ("scrub_bytes_total", Counter, "Bytes that the scrub has read back to look for damage.", f(s.scrub.bytes)),
        ("scrub_passes_total", Counter, "Times that the scrub has read everything.", f(s.scrub.passes)),
        ("scrub_last_pass_timestamp_seconds", Gauge, "When the scrub had last read everything, as Unix time; 0 before.", s.scrub.last_end_seconds),
        ("connections", Gauge, "Connections open.", f(connections.open)),
        ("connections_accepted_total", Counter, "Connections accepted.", f(connections.accepted)),
        ("connections_refused_total", Counter, "Connections turned away at the limit.", f(connections.refused)),
        ("tls_handshakes_failed_total", Counter, "TLS handshakes that were begun and not finished.", f(connections.handshakes_failed)),
        ("requests_total", Counter, "Requests answered.", f(connections.requests)),
        ("received_bytes_total", Counter, "Bytes received from clients, heads included.", f(connections.received_bytes)),
        ("sent_bytes_total", Counter, "Bytes sent to clients, heads included.", f(connections.sent_bytes)),
        ("uptime_seconds", Gauge, "Time since the start.", process.uptime_seconds),
        ("memory_bytes", Gauge, "Memory of the process that is resident.", f(process.memory_bytes)),
        ("log_lines_dropped_total", Counter, "Log lines thrown away because nobody read standard error.", f(door.log_lines_dropped)),
    ];
    all.extend(s.shapes.iter().flat_map(shape_families));
    all
}

#[rustfmt::skip]
#[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
fn shape_families(shapes: &Shapes) -> [(&'static str, Kind, &'static str, f64); 29] {
    use Kind::{Counter, Gauge};
    let f = |n: u64| n as f64;
    let s = &shapes.stats;
    [
        ("shapes", Gauge, "Shapes that exist.", s.shapes as f64),
        ("shape_source_active", Gauge, "1 while changes come in from Postgres, or nobody needs them (shape_source_asleep).", f(s.active.into())),
        ("shape_source_asleep", Gauge, "1 while no connection to Postgres is open, as nobody asks for shapes (database_idle).", f(s.asleep.into())),
        ("shape_source_left_total", Counter, "Times that all shapes were dropped because Postgres no longer had the history that was read.", f(s.left)),
        ("shape_catalog_compared_total", Counter, "Times that the tables of shapes were compared with Postgres's catalog.", f(s.compared)),
        ("shape_transactions_total", Counter, "Transactions of Postgres that were applied.", f(s.transactions)),
        ("shape_changes_total", Counter, "Changes that were made for shapes, one for all that have the same columns.", f(s.changes)),
        ("shape_changes_told_total", Counter, "Changes given to shapes: per change above, the fan-out.", f(s.told)),
        ("shape_evaluations_total", Counter, "Where clauses that were evaluated for a row: those that it found by an index, and those without one.", f(s.evaluations)),
        ("shape_lag_bytes", Gauge, "Bytes of Postgres's log that are not applied yet, of the log as it was a second ago.", f(s.lag_bytes)),
        ("shape_lag_seconds", Gauge, "How long the oldest part of Postgres's log has been known that is not applied.", f(s.lag_ms) / 1e3),
        ("shape_wal_kept_bytes", Gauge, "Bytes of its log that Postgres keeps for the replication slot.", f(s.wal_kept_bytes)),
        ("shape_live_clients", Gauge, "Live requests for shapes, long-polls and SSE, that are under way.", f(s.live)),
        ("shape_snapshots", Gauge, "Snapshots that are being copied from Postgres.", f(s.snapshots)),
        ("shape_rows_copied_total", Counter, "Rows that snapshots copied from Postgres.", f(s.rows_copied)),
        ("shape_database_connections", Gauge, "Connections to Postgres for queries.", s.connections as f64),
        ("shape_database_waiting", Gauge, "Queries that wait for a connection to Postgres.", s.queries_waiting as f64),
        ("shape_database_down", Gauge, "1 after Postgres could not be reached for queries, until it is: no new shapes meanwhile.", f(s.database_down.into())),
        ("shape_initial_requests", Gauge, "Requests that wait for a shape to be made; one above max_initial_requests is refused.", s.initial_requests as f64),
        ("shape_existing_requests", Gauge, "All other requests for shapes under way; one above max_shape_requests is refused.", s.existing_requests as f64),
        ("shape_log_held_bytes", Gauge, "Bytes of changes that are kept for shapes; above shape_log_bytes shapes are dropped.", f(s.log_held_bytes)),
        ("shape_stuck", Gauge, "1 while changes that came from Postgres cannot be stored: the disk is full, or settling is behind.", f(s.stuck.into())),
        ("shape_read_held_bytes", Gauge, "Memory of the shapes' answers that are not sent yet, and of what is kept for more readers.", f(s.held_bytes)),
        ("shape_compactions_total", Counter, "Times that a shape's changes were merged into its rows.", f(s.bases_made)),
        ("shape_compaction_read_bytes_total", Counter, "Bytes that were read for that.", f(s.compact_read_bytes)),
        ("shape_compaction_written_bytes_total", Counter, "Bytes of rows that were written for that.", f(s.compact_written_bytes)),
        ("shape_hot_bytes", Gauge, "Memory of the newest changes, kept for live readers.", s.hot_bytes as f64),
        ("shape_journal_held_bytes", Gauge, "Bytes the journal of the shapes holds, from its trim point to its end.", f(shapes.journal_held_bytes)),
        ("shape_journal_poisoned", Gauge, "1 after a failed write or sync of the shapes' journal: no shape goes on until a restart.", f(shapes.journal_poisoned.into())),
    ]
}

#[allow(clippy::cast_precision_loss, reason = "a ratio of two large counters is approximate anyway")]
fn ratio(of: u64, per: u64) -> f64 {
    if per == 0 { 0.0 } else { of as f64 / per as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_help_type_and_value() {
        let mut snapshot = Snapshot::default();
        snapshot.streams.appended_bytes = 100;
        snapshot.journal.written_bytes = 150;
        snapshot.settling.object_written_bytes = 100;
        let page = render(&snapshot, &Door::default());
        assert!(page.contains("# TYPE thalweg_appends_total counter\nthalweg_appends_total 0\n"));
        assert!(page.contains("thalweg_write_amplification 2.5\n"));
        assert!(page.contains("thalweg_space_amplification 0\n"), "nothing is not a number");
        assert!(page.contains("thalweg_append_seconds_bucket{le=\"0.000032\"} 0\n"));
        assert!(page.contains("thalweg_append_seconds_bucket{le=\"+Inf\"} 0\nthalweg_append_seconds_sum 0\n"));
        let others = [APPEND_SECONDS, INFO, DENIED, "damage{", "damage "].map(|name| format!("thalweg_{name}"));
        let plain = page.lines().filter(|line| !others.iter().any(|name| line.contains(name)));
        assert_eq!(plain.count(), families(&snapshot, &Door::default()).len() * 3);
    }

    #[test]
    fn shapes_have_metrics_only_if_they_are_served() {
        let mut snapshot = Snapshot::default();
        assert!(
            !render(&snapshot, &Door::default()).contains("thalweg_shape"),
            "an alert on the source must not fire without one"
        );
        snapshot.shapes = Some(Shapes::default());
        assert!(render(&snapshot, &Door::default()).contains("thalweg_shape_source_active 0\n"));
    }

    #[test]
    fn the_documentation_lists_every_metric() {
        let page = include_str!("../../../docs/ops/metrics.md");
        let all = Snapshot { shapes: Some(Shapes::default()), ..Snapshot::default() };
        let plain = families(&all, &Door::default());
        for name in plain.iter().map(|family| family.0).chain([INFO, APPEND_SECONDS, DENIED, DAMAGE]) {
            assert!(page.contains(&format!("`thalweg_{name}`")), "docs/ops/metrics.md does not mention thalweg_{name}");
        }
    }
}
