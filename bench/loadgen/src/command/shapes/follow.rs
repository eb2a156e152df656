//! Live clients: transactions that all of them wait for, and none at all.

use super::{Memory, spent};
use crate::ask::requests;
use crate::cli::Target;
use crate::cost::{Meter, resident_bytes};
use crate::drive::{Nanos, Until, nanos};
use crate::latency::Latencies;
use crate::pg::{Pg, Url};
use crate::run::threads;
use crate::work::shape::{Board, Definition, Goal, Seen, Shapes};
use anyhow::{Context, bail};
use clap::Args;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Transactions that are waited for.
#[derive(Args, Clone)]
pub(crate) struct Writes {
    /// The database, as postgres://USER@HOST:PORT/DATABASE.
    #[arg(long)]
    pub(super) pg: Url,
    /// One transaction, in one statement.
    #[arg(long)]
    pub(super) sql: String,
    /// Operations that each client gets of it.
    #[arg(long, default_value_t = 1)]
    pub(super) operations: u64,
    #[arg(long, default_value_t = 100)]
    pub(super) transactions: u64,
    /// Transactions before the ones that are counted.
    #[arg(long, default_value_t = 3)]
    pub(super) warm: u64,
    /// Milliseconds between the last client's answer and the next transaction.
    #[arg(long, default_value_t = 20)]
    pub(super) pause: u64,
    /// The server itself, if the clients go through a proxy: its requests are counted.
    #[arg(long)]
    pub(super) origin: Option<SocketAddr>,
}

/// How long the slowest client is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long all clients may take until they wait for changes.
const PATIENCE_READY: Duration = Duration::from_secs(180);

/// Results of a writer and of the clients that follow it.
#[derive(Default)]
pub(super) struct Waits {
    /// From sending the statement to its acknowledgement.
    pub(super) acknowledged: Latencies,
    /// From the acknowledgement until each client had the change, and until the last client had it.
    pub(super) each: Latencies,
    pub(super) last: Latencies,
    pub(super) missing: u64,
    /// Requests that reached the origin during the measurement.
    pub(super) requests: Option<u64>,
}

impl Writes {
    /// Commits one transaction after the other; `begin` and `wait` belong to the board, `clients` is the number of
    /// clients that report.
    pub(super) fn run(
        &self,
        board: &Board,
        clients: u64,
        epoch: Instant,
        server: Option<u32>,
    ) -> anyhow::Result<(Waits, Meter)> {
        let mut pg = Pg::connect(&self.pg)?;
        let (mut waits, mut meter) = (Waits::default(), Meter::start(server));
        let answered = || self.origin.map(requests).transpose();
        let mut before = None;
        for number in 0..self.warm + self.transactions {
            if number == self.warm {
                (waits, meter) = (Waits { missing: waits.missing, ..Waits::default() }, Meter::start(server));
                before = answered()?;
            }
            board.begin(clients);
            let sent = Instant::now();
            pg.query(&self.sql)?;
            let acknowledged = nanos(epoch);
            waits.acknowledged.record(sent.elapsed());
            let arrivals = board.wait(PATIENCE);
            waits.missing += clients.saturating_sub(arrivals.len() as u64);
            let late = |at: Nanos| Duration::from_nanos(at.saturating_sub(acknowledged));
            arrivals.iter().for_each(|&at| waits.each.record(late(at)));
            waits.last.record(late(arrivals.iter().copied().max().unwrap_or(Nanos::MAX)));
            std::thread::sleep(Duration::from_millis(self.pause));
        }
        // The first query for the counter is itself counted by the second.
        waits.requests = answered()?.zip(before).map(|(after, before)| (after - before).saturating_sub(1));
        Ok((waits, meter))
    }
}

pub(super) fn follow(target: &Target, definition: &Definition, writes: &Writes) -> anyhow::Result<()> {
    let (clients, memory) = (target.connections as u64, Memory::begin(target.server_pid));
    let goal = Goal::Follow { operations: writes.operations };
    let (outcome, seen) = while_live(target, definition, goal, |board, epoch| {
        let opened = epoch.elapsed().as_secs_f64();
        std::thread::sleep(Duration::from_millis(500));
        let (waits, meter) = writes.run(board, clients, epoch, target.server_pid)?;
        Ok((opened, waits, meter.stop()))
    })?;
    let (opened, waits, cost) = outcome;
    let transactions = writes.transactions.max(1);
    println!(
        "follow clients={clients} transactions={transactions} opened_s={opened:.2} refused={} retried={} rotated={} missing={} ack_p50_us={} \
         each_p50_us={} each_p95_us={} each_p99_us={} last_p50_us={} last_p95_us={} last_p99_us={}{} cpu_us_each={:.2}{}{}",
        seen.refused,
        seen.retried,
        seen.rotated,
        waits.missing,
        waits.acknowledged.permille(500),
        waits.each.permille(500),
        waits.each.permille(950),
        waits.each.permille(990),
        waits.last.permille(500),
        waits.last.permille(950),
        waits.last.permille(990),
        spent(&cost, transactions),
        cost.server_us.unwrap_or_default() / (transactions * clients) as f64,
        waits.requests.map_or(String::new(), |many| format!(" requests_each={:.2}", many as f64 / transactions as f64)),
        memory.end()
    );
    if waits.missing > 0 {
        bail!("{} transactions did not come to a client in {} s", waits.missing, PATIENCE.as_secs());
    }
    Ok(())
}

pub(super) fn idle(target: &Target, definition: &Definition, beyond: usize, settle: f64) -> anyhow::Result<()> {
    let counted = target
        .connections
        .checked_sub(beyond)
        .filter(|&many| many > 0)
        .context("--connections is not above --beyond")?;
    let group = |connections| Target { connections, ..target.clone() };
    let settled = || {
        std::thread::sleep(Duration::from_secs_f64(settle.max(0.0)));
        target.server_pid.and_then(resident_bytes).context("no server, no memory")
    };
    let goal = Goal::Follow { operations: 1 };
    let ((before, after, refused), seen) = while_live(&group(beyond), definition, goal, |_, _| {
        let before = settled()?;
        let (after, seen) = while_live(&group(counted), definition, goal, |_, _| settled())?;
        Ok((before, after, seen.refused))
    })?;
    let each = (after as f64 - before as f64) / counted as f64;
    println!(
        "idle clients={counted} refused={} rss_before={before} rss={after} bytes_each={each:.0}",
        seen.refused + refused
    );
    Ok(())
}

/// Opens live clients, does something once all of them wait, and closes them.
fn while_live<T>(
    target: &Target,
    definition: &Definition,
    goal: Goal,
    act: impl FnOnce(&Board, Instant) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Seen)> {
    let target = &Target { depth: 1, ..target.clone() };
    let (next, board, over) = (AtomicU64::new(0), Board::default(), AtomicBool::new(false));
    let wanted = target.connections as u64;
    let make = |_, many| Shapes::new(definition, goal, many, &next, &board);
    std::thread::scope(|scope| {
        let (over, make, began) = (&over, &make, Instant::now());
        let clients = scope.spawn(move || threads(target, began, None, || Until::Stopped(over), None, make));
        let known = || board.ready.load(Ordering::Acquire) + board.refused.load(Ordering::Acquire);
        while known() < wanted && !clients.is_finished() && began.elapsed() < PATIENCE_READY {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ready = board.ready.load(Ordering::Acquire);
        let outcome = if ready < wanted { None } else { Some(act(&board, began)) };
        over.store(true, Ordering::Release);
        let Ok(clients) = clients.join() else { bail!("a thread panicked") };
        let seen = clients?.1.iter().map(|work| work.seen).fold(Seen::default(), Seen::add);
        let outcome =
            outcome.with_context(|| format!("{ready} of {wanted} clients are live; status {}", seen.status))?;
        Ok((outcome?, seen))
    })
}
