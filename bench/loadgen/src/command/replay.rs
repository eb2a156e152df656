//! Whole streams read, alone and beside appends.

use super::{BINARY, appends, each};
use crate::cli::{Target, Whole, Window};
use crate::drive::{Tally, Until};
use crate::evict;
use crate::names::Names;
use crate::run::{threads, timed};
use crate::work::append::Body;
use crate::work::each::Plan;
use crate::work::replay::{Expected, Replay};
use anyhow::bail;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

impl Whole {
    fn expected(&self) -> Expected {
        if self.verify {
            Expected::Content { messages: self.messages, size: self.message_size }
        } else {
            Expected::Anything
        }
    }

    /// Runs `during` while the folder to be evicted is.
    fn evicted<T>(&self, during: impl FnOnce() -> T) -> T {
        let Some(folder) = &self.evict else { return during() };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| evict::keep_out(folder, Duration::from_millis(self.evict_every), &over));
            let result = during();
            over.store(true, Ordering::Release);
            result
        })
    }
}

pub(crate) fn read(target: &Target, names: &Names, size: usize, window: &Window) -> anyhow::Result<()> {
    let plan = Plan::Create { content_type: BINARY, ttl: 0, body: vec![b'e'; size] };
    each(target, names, "create", &plan, false)?;
    let make = |first, many| Replay::new(names, Expected::Anything, None, first, many, target.connections);
    let (tally, works) = timed(target, window, &make)?;
    print("read", &tally, &works);
    Ok(())
}

pub(crate) fn replay(target: &Target, names: &Names, whole: &Whole, window: &Window) -> anyhow::Result<()> {
    let make = |first, many| Replay::new(names, whole.expected(), None, first, many, target.connections);
    let (tally, works) = whole.evicted(|| timed(target, window, &make))?;
    print("replay", &tally, &works);
    Ok(())
}

/// Clients that replay beside appends.
pub(crate) struct Replayers {
    pub(crate) connections: usize,
    pub(crate) rate: Option<f64>,
    pub(crate) names: Names,
}

pub(crate) fn mixed(
    target: &Target,
    names: &Names,
    body: &Body,
    replayers: &Replayers,
    whole: &Whole,
    window: &Window,
) -> anyhow::Result<()> {
    let reading = Target { connections: replayers.connections, depth: 1, threads: 1, ..target.clone() };
    let over = AtomicBool::new(false);
    whole.evicted(|| {
        std::thread::scope(|scope| {
            let make =
                |first, many| Replay::new(&replayers.names, whole.expected(), None, first, many, reading.connections);
            let (reading, over) = (&reading, &over);
            let replays = scope
                .spawn(move || threads(reading, Instant::now(), replayers.rate, || Until::Stopped(over), None, &make));
            let appended = appends(target, names, body, window);
            over.store(true, Ordering::Release);
            let Ok(replayed) = replays.join() else { bail!("a thread panicked") };
            let ((replay_tally, works), (tally, duplicates)) = (replayed?, appended?);
            print("replay", &replay_tally, &works);
            println!("append {tally} dup={duplicates}");
            Ok(())
        })
    })
}

pub(crate) fn verify(target: &Target, names: &Names, sample: u64, messages: u64) -> anyhow::Result<()> {
    let connections = target.connections.clamp(1, usize::try_from(sample).unwrap_or(1).max(1));
    let target = &Target { connections, depth: 1, ..target.clone() };
    // Spread over all streams, not the first ones only.
    let step = (names.streams / sample.max(1)).max(1) * names.step.max(1);
    let names = Names { step, ..names.clone() };
    let per_connection = sample.div_ceil(connections as u64);
    let expected = Expected::Objects { messages };
    let make = |first, many| Replay::new(&names, expected, Some(per_connection), first, many, connections);
    let (tally, works) = threads(target, Instant::now(), None, || Until::Exhausted, None, &make)?;
    print("verify", &tally, &works);
    if tally.bad > 0 {
        bail!("{} of {} streams do not hold {messages} messages", tally.bad, tally.bad + tally.ops);
    }
    Ok(())
}

fn print(what: &str, tally: &Tally, works: &[Replay]) {
    let sum = |of: fn(&Replay) -> u64| works.iter().map(of).sum::<u64>();
    let (finished, bytes, pages) = (sum(|w| w.finished).max(1), sum(|w| w.bytes), sum(|w| w.pages));
    let bytes_each = bytes as f64 / finished as f64;
    let mb_per_s = tally.ops as f64 * bytes_each / tally.cost.seconds.max(1e-9) / 1e6;
    print!(
        "{what} {tally} bytes_each={bytes_each:.0} pages_each={:.1} mb_per_s={mb_per_s:.1} wrong={}",
        pages as f64 / finished as f64,
        sum(|w| w.wrong)
    );
    if let Some(read) = tally.cost.server_read_bytes {
        print!(" disk_mb_per_s={:.1}", read as f64 / tally.cost.seconds.max(1e-9) / 1e6);
    }
    println!();
}
