//! The commands: each prepares, runs and prints a measurement.

mod idle;
mod live;
mod replay;
pub(crate) mod shapes;

pub(crate) use idle::idle;
pub(crate) use live::{Fanout, fanout};
pub(crate) use replay::{Replayers, mixed, read, replay, verify};

use crate::cli::{Target, Window};
use crate::drive::{Tally, Until};
use crate::names::Names;
use crate::run::{threads, timed};
use crate::work::append::{Append, Body};
use crate::work::each::{Each, Plan};
use crate::work::weave::{Pattern, Weave};
use std::time::{Instant, SystemTime};

pub(crate) const BINARY: &str = "application/octet-stream";

/// A fixed list of requests for every stream.
pub(crate) fn each(target: &Target, names: &Names, what: &str, plan: &Plan, interleave: bool) -> anyhow::Result<()> {
    let make = |first, many| Each::new(names, plan.clone(), interleave, first, many, target.connections);
    let (tally, works) = threads(target, Instant::now(), None, || Until::Exhausted, None, &make)?;
    println!("{what} {tally}");
    if let Some((path, status)) = works.iter().find_map(|work| work.refused.as_ref()) {
        eprintln!("{what}: {path} was refused with status {status}");
    }
    Ok(())
}

pub(crate) fn weave(target: &Target, names: &Names, pattern: &Pattern) -> anyhow::Result<()> {
    // A connection needs a stream, so there are no more connections than streams.
    let connections = target.connections.min(usize::try_from(names.count()).unwrap_or(usize::MAX));
    let target = &Target { connections, ..target.clone() };
    let make = |first, many| Weave::new(names, pattern, first, many, connections);
    let (tally, _) = threads(target, Instant::now(), None, || Until::Exhausted, None, &make)?;
    println!("weave {tally}");
    Ok(())
}

pub(crate) fn append(target: &Target, names: &Names, body: &Body, window: &Window, create: bool) -> anyhow::Result<()> {
    if create {
        let content_type = body.content_type();
        each(target, names, "create", &Plan::Create { content_type, ttl: 0, body: Vec::new() }, false)?;
    }
    let (tally, duplicates) = appends(target, names, body, window)?;
    println!("append {tally} dup={duplicates}");
    Ok(())
}

fn appends(target: &Target, names: &Names, body: &Body, window: &Window) -> anyhow::Result<(Tally, u64)> {
    // Every run's producers begin a new epoch, later than all before.
    let epoch = SystemTime::UNIX_EPOCH.elapsed()?.as_millis() as u64;
    let make = |first, many| Append::new(names, body, first, many, target.connections, epoch);
    let (tally, works) = timed(target, window, &make)?;
    Ok((tally, works.iter().map(|work| work.duplicates).sum()))
}
