//! Idle connections, and the server's memory for each.

use super::BINARY;
use crate::ask;
use crate::cli::Target;
use crate::cost::resident_bytes;
use crate::drive::Until;
use crate::run::threads;
use crate::work::idle::{Idle, Kind};
use anyhow::bail;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long all connections may take to be answered.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn idle(target: &Target, kind: Kind, path: &str, settle: f64, hold: f64) -> anyhow::Result<()> {
    ask::create(target.server, path, BINARY, &[b'e'; 1024])?;
    let end = ask::end(target.server, path)?;
    let memory = || target.server_pid.and_then(resident_bytes);
    let (ready, over, before) = (AtomicU64::new(0), AtomicBool::new(false), memory());
    let target = &Target { depth: 1, ..target.clone() };
    let wanted = target.connections as u64;
    let make = |_, many| Idle::new(path, &end, kind, many, &ready);
    std::thread::scope(|scope| {
        let (over, make, began) = (&over, &make, Instant::now());
        let waiting = scope.spawn(move || threads(target, began, None, || Until::Stopped(over), None, make));
        while ready.load(Ordering::Acquire) < wanted && !waiting.is_finished() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let opened = began.elapsed().as_secs_f64();
        std::thread::sleep(Duration::from_secs_f64(settle.max(0.0)));
        let after = memory();
        let seen = ready.load(Ordering::Acquire);
        print!("idle connections={seen} opened_s={opened:.2}");
        if let (Some(before), Some(after)) = (before, after) {
            let each = (after as f64 - before as f64) / seen.max(1) as f64;
            print!(" rss_before={before} rss_after={after} bytes_each={each:.0}");
        }
        if hold > 0.0 {
            println!();
            std::thread::sleep(Duration::from_secs_f64(hold));
            print!("idle held_s={hold}");
        }
        over.store(true, Ordering::Release);
        let Ok(outcome) = waiting.join() else { bail!("a thread panicked") };
        let (_, works) = outcome?;
        let sum = |of: fn(&Idle<'_>) -> u64| works.iter().map(of).sum::<u64>();
        println!(" refused={} closed={}", sum(|work| work.refused), sum(|work| work.closed));
        if seen < wanted {
            bail!("only {seen} of {wanted} connections were answered");
        }
        Ok(())
    })
}
