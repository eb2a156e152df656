//! Running one kind of load on one thread or more.

use crate::cli::{Target, Window};
use crate::drive::{self, Pace, Tally, Until, Work};
use anyhow::bail;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Makes the work of a thread, given its first connection and how many it has.
pub(crate) type Make<'a, W> = &'a (dyn Fn(usize, usize) -> W + Sync);

/// A warm-up and a measured time, with optional progress lines.
pub(crate) fn timed<W: Work + Send>(
    target: &Target,
    window: &Window,
    make: Make<'_, W>,
) -> anyhow::Result<(Tally, Vec<W>)> {
    if window.seconds <= 0.0 || window.rate.is_some_and(|rate| rate <= 0.0) {
        bail!("--rate and --seconds must be more than 0");
    }
    let until = || Until::Elapsed {
        warm: Duration::from_secs_f64(window.warm.max(0.0)),
        seconds: Duration::from_secs_f64(window.seconds),
    };
    let epoch = Instant::now();
    if window.every == 0 {
        return threads(target, epoch, window.rate, until, None, make);
    }
    let interval = Mutex::new(Tally::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let printer = scope.spawn(|| {
            loop {
                std::thread::park_timeout(Duration::from_secs(window.every));
                if over.load(Ordering::Acquire) {
                    break;
                }
                let seen = std::mem::take(&mut *interval.lock().unwrap_or_else(PoisonError::into_inner));
                println!("t={:.0} ops={} bad={} {}", epoch.elapsed().as_secs_f64(), seen.ops, seen.bad, seen.latencies);
            }
        });
        let result = threads(target, epoch, window.rate, until, Some(&interval), make);
        over.store(true, Ordering::Release);
        printer.thread().unpark();
        result
    })
}

/// Runs one work per thread, each with its share of the connections, and adds up their counters.
pub(crate) fn threads<'a, W: Work + Send>(
    target: &Target,
    epoch: Instant,
    rate: Option<f64>,
    until: impl Fn() -> Until<'a> + Sync,
    interval: Option<&Mutex<Tally>>,
    make: Make<'_, W>,
) -> anyhow::Result<(Tally, Vec<W>)> {
    let many = target.threads.clamp(1, target.connections.max(1));
    std::thread::scope(|scope| {
        let until = &until;
        let running: Vec<_> = (0..many)
            .map(|thread| {
                let first = target.connections * thread / many;
                let mine = target.connections * (thread + 1) / many - first;
                scope.spawn(move || {
                    let mut work = make(first, mine);
                    let pace = Pace {
                        server: target.server,
                        server_pid: target.server_pid,
                        connections: mine,
                        first,
                        depth: target.depth,
                        rate: rate.map(|rate| rate / many as f64),
                        until: until(),
                        interval,
                    };
                    drive::run(&pace, epoch, &mut work).map(|tally| (tally, work))
                })
            })
            .collect();
        let (mut total, mut works) = (Tally::default(), Vec::new());
        for thread in running {
            let Ok(outcome) = thread.join() else { bail!("a thread panicked") };
            let (tally, work) = outcome?;
            total.add(&tally);
            works.push(work);
        }
        Ok((total, works))
    })
}
