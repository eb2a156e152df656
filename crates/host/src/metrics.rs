//! The Prometheus text page: the host adds the metrics of every server, each engine its own.
//!
//! Names and meanings are documented in `docs/ops/metrics.md`; a test keeps the two in step.

use crate::Unit;
use crate::auth::DeniedCounts;
use crate::door::RefusedCounts;
use crate::scrub;
use std::fmt::Write;
use thalweg_http::{ServerStats, Waits};
use thalweg_log::{DamageStats, Place};
use thalweg_rounds as rounds;

/// A metric for Prometheus: name, kind, help, value.
pub type Figure = (&'static str, Kind, &'static str, f64);
/// Figures of one owner.
pub type Families = Vec<Figure>;

/// The type of a Prometheus metric.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Builder of the page: metrics by name, with all samples of one metric together, as the format requires, whichever
/// part adds them.
#[derive(Default)]
pub struct Page {
    families: Vec<Family>,
    /// Histograms, which have another form.
    rest: String,
}

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// Whole lines.
    samples: String,
}

impl Page {
    /// Adds figures without labels.
    pub fn add(&mut self, figures: impl IntoIterator<Item = Figure>) {
        self.add_labelled("", figures);
    }

    /// Adds figures with labels, as `name="value"` with commas between them.
    pub fn add_labelled(&mut self, labels: &str, figures: impl IntoIterator<Item = Figure>) {
        for (name, kind, help, value) in figures {
            let samples = &mut self.family(name, kind, help).samples;
            // Writing to a String cannot fail.
            let _ = match labels {
                "" => writeln!(samples, "thalweg_{name} {value}"),
                labels => writeln!(samples, "thalweg_{name}{{{labels}}} {value}"),
            };
        }
    }

    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut Family {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let at = self.families.iter().position(|family| family.name == name).unwrap_or_else(|| {
            self.families.push(Family { name, kind, help, samples: String::new() });
            self.families.len() - 1
        });
        &mut self.families[at]
    }

    /// The text that is served.
    pub fn text(self) -> String {
        let mut page = String::with_capacity(16 << 10);
        for Family { name, kind, help, samples } in self.families {
            let _ = write!(page, "# HELP thalweg_{name} {help}\n# TYPE thalweg_{name} {kind}\n{samples}");
        }
        page + &self.rest
    }

    /// Figures of a kernel unit: its journal, settling, and the scrub of it.
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub fn add_unit(&mut self, unit: &Unit, scrub: &scrub::Stats) {
        let label = unit.label().map(|name| format!("unit=\"{name}\"")).unwrap_or_default();
        self.add_labelled(&label, unit.families());
        self.add_labelled(
            &label,
            [
                (
                    "scrub_bytes_total",
                    Kind::Counter,
                    "Bytes of the unit that the scrub has read back.",
                    scrub.bytes as f64,
                ),
                (
                    "scrub_passes_total",
                    Kind::Counter,
                    "Times that the scrub has read everything in the unit.",
                    scrub.passes as f64,
                ),
                (
                    "scrub_last_pass_timestamp_seconds",
                    Kind::Gauge,
                    "When the scrub had last read everything in the unit, as Unix time; 0 before.",
                    scrub.last_end_seconds,
                ),
            ],
        );
        let help = "Places of stored data that are known to be damaged now, by the kind of file.";
        let DamageStats { places, left_out } = scrub.damage;
        for (kind, places) in Place::KINDS.into_iter().zip(places).chain([("left_out", left_out)]) {
            let labels = [format!("kind=\"{kind}\""), label.clone()];
            let labels = labels.join(",");
            self.add_labelled(labels.trim_end_matches(','), [("damage", Kind::Gauge, help, places as f64)]);
        }
    }

    /// Figures of the background jobs of all units, by kind.
    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub fn add_rounds(&mut self, stats: &rounds::Stats) {
        use Kind::{Counter, Gauge};
        let f = |n: u64| n as f64;
        for (kind, of) in rounds::Kind::ALL.into_iter().zip(&stats.kinds) {
            self.add_labelled(&format!("kind=\"{}\"", kind.name()), [
                ("background_turns_total", Counter, "Turns of background work, by kind.", f(of.turns)),
                ("background_failed_total", Counter, "Turns of background work that failed and are tried again, by kind.", f(of.failed)),
                ("background_seconds_total", Counter, "Time spent in background work, by kind.", of.busy.as_secs_f64()),
                ("background_waited_seconds_total", Counter, "Time that background work was due and waited for a thread or for background_rate, by kind.", of.waited.as_secs_f64()),
                ("background_due", Gauge, "Jobs of background work that are due and wait, by kind.", f(of.due)),
            ]);
        }
        self.add([
            ("background_threads", Gauge, "Threads of background work.", stats.threads as f64),
            ("background_wakes_total", Counter, "Times that a thread of background work checked for work.", f(stats.wakes)),
        ]);
    }

    /// Figures of the event loops.
    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub fn add_server(&mut self, s: &ServerStats) {
        use Kind::{Counter, Gauge};
        let f = |n: u64| n as f64;
        self.add([
            ("connections", Gauge, "Connections open.", f(s.connections_active)),
            ("connections_accepted_total", Counter, "Connections accepted.", f(s.connections_accepted)),
            ("connections_refused_total", Counter, "Connections turned away at the limit.", f(s.connections_refused)),
            ("tls_handshakes_failed_total", Counter, "TLS handshakes that were begun and not finished.", f(s.handshakes_failed)),
            ("requests_total", Counter, "Requests answered.", f(s.requests)),
            ("received_bytes_total", Counter, "Bytes received from clients, heads included.", f(s.bytes_in)),
            ("sent_bytes_total", Counter, "Bytes sent to clients, heads included.", f(s.bytes_out)),
            ("shared_pages_bytes", Gauge, "Chunks for many readers that are sent without a copy for each, in files of memory.", f(s.pages_bytes)),
        ]);
        render_waits(&mut self.rest, &s.waits);
    }

    /// Figures of the process and of the door in front of all routes. `denied`: requests that tokens did not allow, by
    /// code, if tokens are on.
    #[rustfmt::skip]
    #[allow(clippy::cast_precision_loss, reason = "counters beyond 2^53 may lose their last digits on the page")]
    pub fn add_process(&mut self, process: &Process, denied: Option<&DeniedCounts>, door: &Door) {
        use Kind::{Counter, Gauge};
        self.add([
            ("uptime_seconds", Gauge, "Time since the start.", process.uptime_seconds),
            ("memory_bytes", Gauge, "Memory of the process that is resident.", process.memory_bytes as f64),
            ("log_lines_dropped_total", Counter, "Log lines thrown away because nobody read standard error.", process.log_lines_dropped as f64),
        ]);
        let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
        self.add_labelled(&version, [("info", Gauge, "1, and the version as a label.", 1.0)]);
        let help = "Requests refused before a route saw them: for their token, host, origin or encoding, by code.";
        for (code, count) in denied.into_iter().flatten().chain(&door.refused) {
            self.add_labelled(&format!("code=\"{code}\""), [("requests_denied_total", Counter, help, *count as f64)]);
        }
    }
}

/// Figures of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    pub uptime_seconds: f64,
    /// Resident.
    pub memory_bytes: u64,
    /// Log lines that were dropped because standard error was not read.
    pub log_lines_dropped: u64,
}

/// Figures of the door.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Door {
    /// Requests refused before the check of tokens, by code.
    pub refused: RefusedCounts,
}

const APPEND_SECONDS: &str = "append_seconds";

/// A histogram: each bucket counts the waits no longer than `le`.
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

#[allow(clippy::cast_precision_loss, reason = "a ratio of two large counters is approximate anyway")]
pub(crate) fn ratio(of: u64, per: u64) -> f64 {
    if per == 0 { 0.0 } else { of as f64 / per as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_one_head_and_its_samples_behind_it() {
        let mut page = Page::default();
        page.add([("a", Kind::Counter, "Help.", 1.0), ("b", Kind::Gauge, "More.", 2.5)]);
        page.add_labelled("unit=\"x\"", [("a", Kind::Counter, "Help.", 3.0)]);
        let text = page.text();
        let a = "# HELP thalweg_a Help.\n# TYPE thalweg_a counter\nthalweg_a 1\nthalweg_a{unit=\"x\"} 3\n";
        assert_eq!(text, format!("{a}# HELP thalweg_b More.\n# TYPE thalweg_b gauge\nthalweg_b 2.5\n"));
    }

    #[test]
    fn a_histogram_counts_up() {
        let mut page = Page::default();
        page.add_server(&ServerStats::default());
        let text = page.text();
        assert!(text.contains("thalweg_append_seconds_bucket{le=\"0.000032\"} 0\n"));
        assert!(text.contains("thalweg_append_seconds_bucket{le=\"+Inf\"} 0\nthalweg_append_seconds_sum 0\n"));
    }

    #[test]
    fn a_ratio_to_nothing_is_a_number() {
        assert!(ratio(250, 100) == 2.5 && ratio(1, 0) == 0.0);
    }
}
