//! `thalweg status`: `/health` and `/metrics` of a server, in a form for people.

use crate::failure::{Failure, Refusal};
use crate::human::{count, rate, short_time, size, time};
use crate::server::{Answer, Call, Server};
use crate::{PATIENCE, Target};
use clap::Args;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};
use ureq::http::Method;

/// Requests of this command between the two samples.
const OWN: f64 = 1.0;
/// The time between two samples, over which rates are computed.
const BETWEEN: Duration = Duration::from_secs(1);
const METRICS_BYTES_MAX: u64 = 16 << 20;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg status
  thalweg status --context prod
  thalweg status --json | jq .metrics.thalweg_settle_lag_bytes
  thalweg status --quiet || echo 'not healthy'

Exit code 0: requests are served; 1: not, and the first lines say why; 6: there is no answer. On a server with tokens the figures need one \
that may read everything; health needs none.")]
pub struct StatusArgs {
    #[command(flatten)]
    target: Target,
    /// Print one JSON object with every metric.
    #[arg(long)]
    json: bool,
    /// Check health only, and print only problems.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// All metrics at one moment, by name; those with labels by name and labels.
#[derive(Debug, Default)]
pub struct Sample {
    at: Option<Instant>,
    values: BTreeMap<String, f64>,
    version: Option<String>,
}

impl Sample {
    /// Reads a page of `/metrics`. Other lines are skipped.
    pub fn read(text: &str) -> Self {
        let mut sample = Self { at: Some(Instant::now()), ..Self::default() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            if let Some(labels) = name.strip_prefix("thalweg_info{") {
                let version = labels.split("version=\"").nth(1).and_then(|rest| rest.split('"').next());
                sample.version = version.map(str::to_owned);
            }
            if let Ok(value) = value.parse() {
                sample.values.insert(name.to_owned(), value);
            }
        }
        sample
    }

    /// The version that the server says it has.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Whether the page has this metric; `name` as on the page.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    fn get(&self, name: &str) -> f64 {
        self.values.get(&format!("thalweg_{name}")).copied().unwrap_or(0.0)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size for the eye")]
    fn bytes(&self, name: &str) -> String {
        size(self.get(name) as u64)
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time for the eye")]
    fn seconds(&self, name: &str) -> String {
        time((self.get(name) * 1e3) as u64)
    }

    /// Whether the server serves shapes.
    pub fn has_shapes(&self) -> bool {
        self.has("thalweg_shapes")
    }

    /// Metrics of damage that are not zero, each with its value; `None` if the page has no metric of damage.
    pub fn damage(&self) -> Option<Vec<String>> {
        let telling = |name: &str| ["damage", "corrupt", "poisoned", "stuck"].iter().any(|word| name.contains(word));
        let all: Vec<_> = self.values.iter().filter(|(name, _)| telling(name)).collect();
        (!all.is_empty())
            .then(|| all.iter().filter(|(_, n)| **n > 0.0).map(|(name, n)| format!("{name} {n}")).collect())
    }
}

/// Differences between two samples, per second.
struct Rates<'a>(&'a Sample, &'a Sample);

impl Rates<'_> {
    fn of(&self, name: &str) -> f64 {
        self.per_s(self.1.get(name) - self.0.get(name)).max(0.0)
    }

    fn per_s(&self, count: f64) -> f64 {
        match (self.0.at, self.1.at) {
            (Some(was), Some(now)) => count / now.duration_since(was).as_secs_f64().max(1e-3),
            _ => count,
        }
    }

    /// The mean of a total over its count.
    fn mean(&self, total: &str, count: &str) -> Option<f64> {
        let n = self.of(count);
        (n > 0.0).then(|| self.of(total) / n)
    }

    /// The time under which a share of the appends stayed: the upper bound of its bucket of the histogram.
    fn quantile(&self, share: f64) -> Option<f64> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (name, now) in &self.1.values {
            let Some(bound) = name.strip_prefix("thalweg_append_seconds_bucket{le=\"") else { continue };
            let bound = bound.trim_end_matches("\"}");
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap_or(f64::INFINITY) };
            buckets.push((bound, now - self.0.values.get(name).copied().unwrap_or(0.0)));
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all = buckets.last().map(|(_, n)| *n).filter(|n| *n > 0.0)?;
        buckets.into_iter().find(|(_, n)| *n >= all * share).map(|(bound, _)| bound)
    }
}

/// Shows the state of a server. Fails if it does not serve requests.
pub fn run(args: StatusArgs) -> Result<(), Failure> {
    let chosen = args.target.choose(None)?;
    let server = Server::new(&args.target, Some(if args.quiet { Duration::ZERO } else { PATIENCE }))?;
    // A refusal by /health is a result of this command, and no failure of the request.
    let health = match server.ask_once(&Call::new(Method::GET, server.at("/health"))) {
        Err(Failure::Refused(Refusal { status: 404, .. })) => {
            let why = "/health is not there; is this the address of a thalweg, without a path such as /v1/stream?";
            return Err(Failure::Local(format!("{}{why}", server.base())));
        }
        Err(Failure::Refused(Refusal { status, message, .. })) => Err(format!("{status}: {message}")),
        answer => Ok(first_line(&mut answer?)?),
    };
    let healthy = |health: Result<String, String>| {
        health.map(drop).map_err(|why| Failure::Local(format!("{} does not serve: {why}", server.base())))
    };
    if args.quiet {
        return healthy(health);
    }
    let place = chosen.context.map(|name| format!(" (context {name})")).unwrap_or_default();
    if !args.json {
        line("server", &format!("{}{place}", server.base()));
        line("health", health.as_ref().unwrap_or_else(|why| why));
    }
    let was = sample(&server)?;
    std::thread::sleep(BETWEEN);
    let now = sample(&server)?;
    if args.json {
        let all = serde_json::json!({
            "server": server.base(), "healthy": health.is_ok(), "health": health.as_ref().err(), "version": now.version,
            "metrics": now.values,
        });
        println!("{all}");
    } else {
        show(&was, &now);
    }
    healthy(health)
}

/// `ok`, or a warning of a server that still serves requests.
fn first_line(answer: &mut Answer) -> Result<String, Failure> {
    let mut text = String::new();
    answer.body().take(METRICS_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn sample(server: &Server) -> Result<Sample, Failure> {
    let mut answer = server.ask(&Call::new(Method::GET, server.at("/metrics")))?;
    let mut text = String::new();
    answer.body().take(METRICS_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Sample::read(&text))
}

fn line(name: &str, value: &str) {
    println!("{name:<12} {value}");
}

fn show(was: &Sample, now: &Sample) {
    let rates = Rates(was, now);
    let n = |name: &str| count(now.get(name));
    let version = now.version().unwrap_or("of unknown version");
    line("thalweg", &format!("{version}, up {}, memory {}", now.seconds("uptime_seconds"), now.bytes("memory_bytes")));
    line(
        "streams",
        &format!(
            "{}; {} appends/s, content {} in, {} out",
            n("streams"),
            count(rates.of("appends_total")),
            rate(rates.of("append_bytes_total")),
            rate(rates.of("read_bytes_total"))
        ),
    );
    if let (Some(p50), Some(p99)) = (rates.quantile(0.5), rates.quantile(0.99)) {
        line("latency", &format!("appends: p50 up to {}, p99 up to {}", short_time(p50), short_time(p99)));
    }
    line(
        "clients",
        &format!(
            "{} connections, {} waiting readers, {} requests/s",
            n("connections"),
            n("waiters"),
            count((rates.of("requests_total") - rates.per_s(OWN)).max(0.0))
        ),
    );
    let sync = rates.mean("journal_sync_seconds_total", "journal_syncs_total");
    let sync = sync.map(|s| format!(", {} a sync", short_time(s))).unwrap_or_default();
    line("journal", &format!("{} held{sync}", now.bytes("journal_held_bytes")));
    line(
        "settling",
        &format!("{} wait, the oldest for {}", now.bytes("settle_lag_bytes"), now.seconds("settle_lag_seconds")),
    );
    line("objects", &format!("{}, {} in all", n("objects"), now.bytes("object_bytes")));
    if now.get("subscriptions") > 0.0 {
        let retries = n("subscription_retries");
        line("subscriptions", &format!("{}; {retries} wait to try again", n("subscriptions")));
    }
    if now.has_shapes() {
        let active = if now.get("shape_source_active") > 0.0 { "changes come in" } else { "no changes come in" };
        let clients = n("shape_live_clients");
        line(
            "shapes",
            &format!(
                "{}; {active}, {} changes/s, {clients} live clients",
                n("shapes"),
                count(rates.of("shape_changes_total"))
            ),
        );
        line(
            "postgres",
            &format!(
                "{} and {} behind; it keeps {} of its log for us",
                now.bytes("shape_lag_bytes"),
                now.seconds("shape_lag_seconds"),
                now.bytes("shape_wal_kept_bytes")
            ),
        );
    }
    match now.damage() {
        Some(damage) if damage.is_empty() => line("damage", "none known"),
        Some(damage) => line("damage", &damage.join(", ")),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_that_of_the_time_between_two_samples() {
        let buckets = |n: [u32; 3]| {
            let line = |le: &str, n: u32| format!("thalweg_append_seconds_bucket{{le=\"{le}\"}} {n}\n");
            Sample::read(&(line("0.001", n[0]) + &line("0.01", n[1]) + &line("+Inf", n[2])))
        };
        let (was, now) = (buckets([100, 100, 100]), buckets([150, 199, 200]));
        let rates = Rates(&was, &now);
        assert_eq!((rates.quantile(0.5), rates.quantile(0.99)), (Some(0.001), Some(0.01)));
        assert_eq!(Rates(&was, &was).quantile(0.5), None);
    }
}
