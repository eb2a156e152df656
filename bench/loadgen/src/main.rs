//! Load for measurements, with little of the machine spent on it: raw sockets on epoll, one thread unless told otherwise.
//!
//! Every command prints one line of `key=value` pairs at its end. `bench/README.md` says what the keys mean.

mod content;
mod cost;
mod drive;
mod http;
mod latency;
mod names;
mod socket;
mod work;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};
use drive::{Pace, Tally, Until, Work};
use names::Names;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use work::append::{self, Append};
use work::each::{Each, Fill, Plan};

#[derive(Parser)]
#[command(about = "Load for measurements, and what it costs the server.")]
struct Cli {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Clone)]
struct Target {
    /// The server, as HOST:PORT.
    #[arg(long, global = true, default_value = "127.0.0.1:4437")]
    server: SocketAddr,
    /// The server's process: its CPU time and memory are reported.
    #[arg(long, global = true)]
    server_pid: Option<u32>,
    #[arg(long, global = true, default_value_t = 32)]
    connections: usize,
    /// Requests on their way on one connection.
    #[arg(long, global = true, default_value_t = 1)]
    depth: usize,
    /// Threads that share the connections.
    #[arg(long, global = true, default_value_t = 1)]
    threads: usize,
}

/// How long, and how fast.
#[derive(Args, Clone)]
struct Window {
    /// Seconds that are counted.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before these that are not.
    #[arg(long, default_value_t = 1.0)]
    warm: f64,
    /// Operations per second, all connections together; latencies then count from when one was due. Without it: as fast as
    /// answers come.
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds between two lines of output; 0 prints the last line only.
    #[arg(long, default_value_t = 0)]
    every: u64,
}

#[derive(Subcommand)]
enum Command {
    /// Creates streams, empty.
    Create {
        #[command(flatten)]
        names: Names,
        #[arg(long)]
        json: bool,
        /// Seconds to live; 0 is for ever.
        #[arg(long, default_value_t = 0)]
        ttl: u64,
    },
    /// Creates streams and fills each with messages: JSON of one producer, or binary content that `replay --verify` knows.
    Fill {
        #[command(flatten)]
        names: Names,
        #[arg(long, default_value_t = 10)]
        messages: u64,
        #[arg(long, alias = "bytes", default_value_t = 100)]
        size: usize,
        /// Messages in one request.
        #[arg(long, default_value_t = 1)]
        per_post: u64,
        /// Seconds to live; 0 is for ever.
        #[arg(long, default_value_t = 0)]
        ttl: u64,
        /// Binary streams instead of JSON.
        #[arg(long)]
        binary: bool,
        /// One message to every stream of a connection before the next message to any.
        #[arg(long)]
        interleave: bool,
    },
    /// Deletes streams.
    Delete {
        #[command(flatten)]
        names: Names,
    },
    /// Appends to streams, in a closed loop or at a rate.
    Append {
        #[command(flatten)]
        names: Names,
        #[command(flatten)]
        body: append::Body,
        #[command(flatten)]
        window: Window,
        /// Create the streams first.
        #[arg(long)]
        create: bool,
    },
}

fn main() -> anyhow::Result<()> {
    let Cli { target, command } = Cli::parse();
    let target = &target;
    match command {
        Command::Create { names, json, ttl } => {
            let content_type = if json { "application/json" } else { "application/octet-stream" };
            each(target, &names, "create", &Plan::Create { content_type, ttl, body: Vec::new() }, false)
        }
        Command::Fill { names, messages, size, per_post, ttl, binary, interleave } => {
            let fill = Fill { messages, size, per_post, ttl, json: !binary };
            each(target, &names, "fill", &Plan::Fill(fill), interleave)
        }
        Command::Delete { names } => each(target, &names, "delete", &Plan::Delete, false),
        Command::Append { names, body, window, create } => {
            if create {
                let content_type = body.content_type();
                each(target, &names, "create", &Plan::Create { content_type, ttl: 0, body: Vec::new() }, false)?;
            }
            let epoch = SystemTime::UNIX_EPOCH.elapsed()?.as_millis() as u64;
            let make = |first, many| Append::new(&names, &body, first, many, target.connections, epoch);
            let (tally, works) = timed(target, &window, &make)?;
            let duplicates: u64 = works.iter().map(|work| work.duplicates).sum();
            println!("append {tally} dup={duplicates}");
            Ok(())
        }
    }
}

/// A fixed list of requests for every stream; fails if one is refused.
fn each(target: &Target, names: &Names, what: &str, plan: &Plan, interleave: bool) -> anyhow::Result<()> {
    let make = |first, many| Each::new(names, plan.clone(), interleave, first, many, target.connections);
    let (tally, works) = threads(target, None, || Until::Exhausted, None, &make)?;
    println!("{what} {tally}");
    if let Some((path, status)) = works.iter().find_map(|work| work.refused.as_ref()) {
        eprintln!("{what}: {path} was refused with status {status}");
    }
    Ok(())
}

/// A warm-up and a measured time, with lines in between if they are wanted.
fn timed<W: Work + Send>(
    target: &Target,
    window: &Window,
    make: &(dyn Fn(usize, usize) -> W + Sync),
) -> anyhow::Result<(Tally, Vec<W>)> {
    if window.seconds <= 0.0 || window.rate.is_some_and(|rate| rate <= 0.0) {
        bail!("--rate and --seconds must be more than 0");
    }
    let until = || Until::Elapsed {
        warm: Duration::from_secs_f64(window.warm.max(0.0)),
        seconds: Duration::from_secs_f64(window.seconds),
    };
    if window.every == 0 {
        return threads(target, window.rate, until, None, make);
    }
    let interval = Mutex::new(Tally::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let printer = scope.spawn(|| {
            let began = Instant::now();
            loop {
                std::thread::park_timeout(Duration::from_secs(window.every));
                if over.load(Ordering::Acquire) {
                    break;
                }
                let seen = std::mem::take(&mut *interval.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
                println!("t={:.0} ops={} bad={} {}", began.elapsed().as_secs_f64(), seen.ops, seen.bad, seen.latencies);
            }
        });
        let result = threads(target, window.rate, until, Some(&interval), make);
        over.store(true, Ordering::Release);
        printer.thread().unpark();
        result
    })
}

/// Runs one work per thread, each with its share of the connections, and adds up what they counted.
fn threads<'a, W: Work + Send>(
    target: &Target,
    rate: Option<f64>,
    until: impl Fn() -> Until<'a> + Sync,
    interval: Option<&Mutex<Tally>>,
    make: &(dyn Fn(usize, usize) -> W + Sync),
) -> anyhow::Result<(Tally, Vec<W>)> {
    let epoch = Instant::now();
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
