//! Initial syncs: at once or in a closed loop, of one shape or of many.

use super::{Memory, spent};
use crate::cli::Target;
use crate::cost::Meter;
use crate::drive::Until;
use crate::run::threads;
use crate::work::shape::{Board, Definition, Goal, Seen, Shapes};
use anyhow::bail;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

pub(super) fn fetch(
    target: &Target,
    definition: &Definition,
    clients: Option<u64>,
    rows: Option<u64>,
    settle: f64,
) -> anyhow::Result<()> {
    let jobs = clients.unwrap_or(definition.shapes);
    let connections = target.connections.min(usize::try_from(jobs)?);
    let target = &Target { connections, depth: 1, ..target.clone() };
    let (next, board) = (AtomicU64::new(0), Board::default());
    let goal = Goal::Fetch { jobs, rows };
    let make = |_, many| Shapes::new(definition, goal, many, &next, &board);
    let (memory, meter, began) = (Memory::begin(target.server_pid), Meter::start(target.server_pid), Instant::now());
    let (tally, works) = threads(target, began, None, || Until::Exhausted, None, &make)?;
    // From before the first connection to the last answer.
    let cost = meter.stop();
    std::thread::sleep(Duration::from_secs_f64(settle.max(0.0)));
    let seen = works.iter().map(|work| work.seen).fold(Seen::default(), Seen::add);
    println!(
        "fetch ops={} refused={} retried={} rotated={} wrong={} seconds={:.4} per_s={:.0} rows={} rows_per_s={:.0} mb_per_s={:.1}{} {}{}",
        tally.ops,
        seen.refused,
        seen.retried,
        seen.rotated,
        seen.wrong,
        cost.seconds,
        tally.ops as f64 / cost.seconds,
        seen.operations,
        seen.operations as f64 / cost.seconds,
        seen.bytes as f64 / 1e6 / cost.seconds,
        spent(&cost, tally.ops),
        tally.latencies,
        memory.end()
    );
    if tally.ops == 0 || seen.wrong > 0 {
        bail!("{} of {jobs} were right; the last refusal had status {}", tally.ops, seen.status);
    }
    Ok(())
}
