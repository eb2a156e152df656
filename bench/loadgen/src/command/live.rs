//! One writer and many live readers.

use crate::ask;
use crate::cli::Target;
use crate::drive::{self, Pace, Until};
use crate::latency::Latencies;
use crate::run::threads;
use crate::work::live::{Live, Progress, Readers};
use crate::work::writer::Writer;
use anyhow::bail;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Fanout {
    pub(crate) readers: usize,
    pub(crate) live: Live,
    pub(crate) path: String,
    /// Events per second.
    pub(crate) rate: f64,
    pub(crate) size: usize,
    pub(crate) seconds: f64,
    pub(crate) warm: f64,
    /// The writer's server.
    pub(crate) origin: SocketAddr,
}

/// How long readers may take to attach, and to get the last event.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn fanout(target: &Target, plan: &Fanout) -> anyhow::Result<()> {
    let warm = (plan.warm.max(0.0) * plan.rate).round() as u64;
    let events = warm + (plan.seconds * plan.rate).round().max(1.0) as u64;
    ask::create(plan.origin, &plan.path, "text/plain", b"")?;
    let offset = match plan.live {
        Live::Sse => "now".to_string(),
        Live::LongPoll => ask::end(plan.origin, &plan.path)?,
    };
    let (epoch, progress, over) = (Instant::now(), Progress::default(), AtomicBool::new(false));
    let reading = &Target { connections: plan.readers, depth: 1, ..target.clone() };
    let make = |_, many| Readers::new(&plan.path, &offset, plan.live, many, warm, &progress);
    std::thread::scope(|scope| {
        let (over, make, progress) = (&over, &make, &progress);
        let readers = scope.spawn(move || threads(reading, epoch, None, || Until::Stopped(over), None, make));
        let wanted = plan.readers as u64;
        let attached = wait(|| readers.is_finished() || progress.attached.load(Ordering::Acquire) >= wanted);
        // A long-poll has been sent, but the server may not have it yet.
        std::thread::sleep(Duration::from_millis(200));
        let mut writer = Writer {
            path: plan.path.clone(),
            size: plan.size,
            events,
            warm,
            epoch,
            server_pid: target.server_pid,
            sent: 0,
            meter: None,
        };
        let pace = Pace {
            server: plan.origin,
            server_pid: None,
            connections: 1,
            first: 0,
            depth: 64,
            rate: Some(plan.rate),
            until: Until::Exhausted,
            interval: None,
        };
        let written = if attached { drive::run(&pace, epoch, &mut writer) } else { Ok(drive::Tally::default()) };
        let all = events * wanted;
        if written.is_ok() && attached {
            wait(|| readers.is_finished() || progress.delivered.load(Ordering::Acquire) >= all);
        }
        let cost = writer.meter.as_ref().map(crate::cost::Meter::stop).unwrap_or_default();
        over.store(true, Ordering::Release);
        let Ok(read) = readers.join() else { bail!("a thread panicked") };
        let ((tally, mut works), written) = (read?, written?);
        if !attached {
            bail!("only {} of {wanted} readers could attach", progress.attached.load(Ordering::Acquire));
        }
        let mut latencies = Latencies::default();
        let (mut missing, mut duplicates, mut refused, mut requests) = (0, 0, 0, 0);
        // Each thread's readers waited for all events.
        for work in &mut works {
            work.finish(events);
            latencies.add(&work.latencies);
            missing += work.missing;
            duplicates += work.duplicates;
            refused += work.refused;
            requests += work.requests;
        }
        let deliveries = (events - warm) * wanted;
        let each = |us: Option<f64>| us.map_or(f64::NAN, |us| us / deliveries as f64);
        println!(
            "fanout readers={wanted} events={} deliveries={} missing={missing} dup={duplicates} bad={} reopened={} \
             requests={requests} seconds={:.2} cpu_us={:.2} event_cpu_us={:.1} client_us={:.2} {latencies}",
            events - warm,
            latencies.count(),
            refused + written.bad,
            tally.reopened,
            cost.seconds,
            each(cost.server_us),
            each(cost.server_us) * wanted as f64,
            each(cost.client_us),
        );
        Ok(())
    })
}

/// Whether it was so in time.
fn wait(so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !so() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
