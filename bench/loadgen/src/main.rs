//! Load on many streams at once, for measurements.
//!
//! A few dozen connections with deep pipelines make a load that one process per stream could not, within a small number of open
//! files. Every command prints one line of `key=value` pairs per interval and one at its end.

mod latency;
mod pipe;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use latency::Latencies;
use pipe::{Pipe, post, request};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Load on many streams at once, for measurements.")]
struct Cli {
    /// The server, as HOST:PORT.
    #[arg(long, global = true, default_value = "127.0.0.1:4437")]
    server: SocketAddr,
    #[arg(long, global = true, default_value_t = 32)]
    connections: usize,
    /// Requests on their way on one connection.
    #[arg(long, global = true, default_value_t = 32)]
    depth: usize,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Clone)]
struct Names {
    /// How many streams.
    #[arg(long)]
    streams: u64,
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only every so many-th of them.
    #[arg(long, default_value_t = 1)]
    step: u64,
    #[arg(long, default_value = "load-")]
    prefix: String,
    /// The length of a name.
    #[arg(long, default_value_t = 40)]
    name_bytes: usize,
}

impl Names {
    fn path(&self, number: u64) -> String {
        let width = self.name_bytes.saturating_sub(self.prefix.len());
        format!("/v1/stream/{}{number:0width$}", self.prefix)
    }

    fn numbers(&self, share: u64, of: u64) -> impl Iterator<Item = u64> + use<> {
        let (from, step, end) = (self.from, self.step, self.from + self.streams);
        (0..).map(move |i| from + (share + i * of) * step).take_while(move |n| *n < end)
    }
}

#[derive(Subcommand)]
enum Command {
    /// Creates JSON streams and fills each with messages of one producer.
    Fill {
        #[command(flatten)]
        names: Names,
        #[arg(long, default_value_t = 10)]
        messages: u64,
        #[arg(long, default_value_t = 100)]
        bytes: usize,
        /// Messages in one request.
        #[arg(long, default_value_t = 1)]
        per_post: u64,
        /// Seconds to live; 0 is for ever.
        #[arg(long, default_value_t = 0)]
        ttl: u64,
    },
    /// Creates binary streams, empty.
    Create {
        #[command(flatten)]
        names: Names,
    },
    /// Appends at a steady rate; latencies count from when a request was due.
    Append {
        #[command(flatten)]
        names: Names,
        /// Requests per second, all connections together.
        #[arg(long)]
        rate: u64,
        #[arg(long)]
        seconds: u64,
        #[arg(long, default_value_t = 256)]
        bytes: usize,
        /// Seconds between two lines of output.
        #[arg(long, default_value_t = 10)]
        every: u64,
    },
    /// Deletes streams.
    Delete {
        #[command(flatten)]
        names: Names,
    },
    /// Reads some streams, taken at random, and counts their messages.
    Verify {
        #[command(flatten)]
        names: Names,
        #[arg(long, default_value_t = 1000)]
        sample: u64,
        #[arg(long, default_value_t = 10)]
        messages: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match &cli.command {
        Command::Fill { names, messages, bytes, per_post, ttl } => {
            fill(&cli, names, *messages, *bytes, *per_post, *ttl)
        }
        Command::Create { names } => {
            let make = |path: &str| vec![request("PUT", path, &[("content-type", "application/octet-stream")], b"")];
            each(&cli, names, "create", &make)
        }
        Command::Delete { names } => each(&cli, names, "delete", &|path| vec![request("DELETE", path, &[], b"")]),
        Command::Append { names, rate, seconds, bytes, every } => append(&cli, names, *rate, *seconds, *bytes, *every),
        Command::Verify { names, sample, messages } => verify(&cli, names, *sample, *messages),
    }
}

fn fill(cli: &Cli, names: &Names, messages: u64, bytes: usize, per_post: u64, ttl: u64) -> anyhow::Result<()> {
    let message = format!("{{\"k\":1,\"p\":\"{}\"}}", "x".repeat(bytes.saturating_sub(14)));
    let ttl = ttl.to_string();
    let make = |path: &str| {
        let mut headers = vec![("content-type", "application/json")];
        if ttl != "0" {
            headers.push(("stream-ttl", ttl.as_str()));
        }
        let mut requests = vec![request("PUT", path, &headers, b"")];
        let mut sent = 0;
        let mut seq = 0;
        while sent < messages {
            let many = per_post.clamp(1, messages - sent);
            let body = format!("[{}]", vec![message.as_str(); usize::try_from(many).unwrap_or(1)].join(","));
            let number = u64::to_string(&seq);
            let headers = [
                ("content-type", "application/json"),
                ("producer-id", "p"),
                ("producer-epoch", "0"),
                ("producer-seq", &number),
            ];
            requests.push(request("POST", path, &headers, body.as_bytes()));
            sent += many;
            seq += 1;
        }
        requests
    };
    each(cli, names, "fill", &make)
}

/// Sends the requests of every stream, pipelined over all connections.
fn each(cli: &Cli, names: &Names, what: &str, make: &(dyn Fn(&str) -> Vec<Vec<u8>> + Sync)) -> anyhow::Result<()> {
    let began = Instant::now();
    let (bad, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let latencies = Mutex::new(Latencies::default());
    threads(cli, |share| {
        let mut pipe = Pipe::open(cli.server)?;
        let mut mine = Latencies::default();
        let mut numbers = names.numbers(share, cli.connections as u64).peekable();
        while numbers.peek().is_some() {
            let mut batch = Vec::new();
            let mut count = 0;
            while count < cli.depth && numbers.peek().is_some() {
                let Some(number) = numbers.next() else { break };
                for request in make(&names.path(number)) {
                    batch.extend_from_slice(&request);
                    count += 1;
                }
            }
            let sent = Instant::now();
            pipe.send(&batch)?;
            for _ in 0..count {
                if pipe.receive()?.status >= 300 {
                    bad.fetch_add(1, Ordering::Relaxed);
                }
                mine.record(sent.elapsed());
            }
            done.fetch_add(count as u64, Ordering::Relaxed);
        }
        merge(&latencies, &mine);
        Ok(())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let total = latencies.into_inner().unwrap_or_default();
    let done = done.into_inner();
    #[allow(clippy::cast_precision_loss, reason = "a rate for a person")]
    let rate = done as f64 / seconds;
    println!("{what} requests={done} bad={} seconds={seconds:.1} per_s={rate:.0} {total}", bad.into_inner());
    Ok(())
}

fn append(cli: &Cli, names: &Names, rate: u64, seconds: u64, bytes: usize, every: u64) -> anyhow::Result<()> {
    if rate == 0 || seconds == 0 {
        bail!("--rate and --seconds must be at least 1");
    }
    let body = vec![b'x'; bytes];
    let (total, interval) = (Mutex::new(Latencies::default()), Mutex::new(Latencies::default()));
    let (bad, interval_bad) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    let connections = cli.connections as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = began;
            while next < end {
                next = (next + Duration::from_secs(every.max(1))).min(end);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                let seen = std::mem::take(&mut *interval.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
                println!(
                    "t={:.0} bad={} {seen}",
                    began.elapsed().as_secs_f64(),
                    interval_bad.swap(0, Ordering::Relaxed)
                );
            }
        });
        threads(cli, |share| {
            let mut pipe = Pipe::open(cli.server)?;
            let mut rng = oorandom::Rand64::new(u128::from(share) + 1);
            // This connection's requests are due one per gap, spread over all connections.
            let gap = Duration::from_nanos(1_000_000_000 * connections / rate);
            let mut due = began + gap.mul_f64(rng.rand_float());
            while due < end {
                let now = Instant::now();
                if due > now {
                    std::thread::sleep(due - now);
                }
                let now = Instant::now();
                let mut batch = Vec::new();
                let mut dues = Vec::new();
                while due <= now && dues.len() < cli.depth && due < end {
                    let number = names.from + rng.rand_range(0..names.streams.max(1));
                    batch.extend_from_slice(&post(&names.path(number), &body));
                    dues.push(due);
                    due += gap;
                }
                pipe.send(&batch)?;
                let mut mine = Latencies::default();
                for due in dues {
                    if pipe.receive()?.status >= 300 {
                        bad.fetch_add(1, Ordering::Relaxed);
                        interval_bad.fetch_add(1, Ordering::Relaxed);
                    }
                    mine.record(due.elapsed());
                }
                merge(&interval, &mine);
                merge(&total, &mine);
            }
            Ok(())
        })
    })?;
    println!("append bad={} {}", bad.into_inner(), total.into_inner().unwrap_or_default());
    Ok(())
}

fn verify(cli: &Cli, names: &Names, sample: u64, messages: usize) -> anyhow::Result<()> {
    let mut pipe = Pipe::open(cli.server)?;
    let mut rng = oorandom::Rand64::new(7);
    let mut latencies = Latencies::default();
    for _ in 0..sample {
        let path = names.path(names.from + rng.rand_range(0..names.streams.max(1)));
        let began = Instant::now();
        pipe.send(&request("GET", &format!("{path}?offset=-1"), &[], b""))?;
        let answer = pipe.receive()?;
        latencies.record(began.elapsed());
        let found = answer.body.split(|b| *b == b'{').count() - 1;
        if answer.status != 200 || found != messages {
            bail!("{path}: status {}, {found} messages instead of {messages}", answer.status);
        }
    }
    println!("verify ok {latencies}");
    Ok(())
}

fn merge(into: &Mutex<Latencies>, from: &Latencies) {
    into.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(from);
}

/// Runs one thread per connection; fails if one of them does.
fn threads(cli: &Cli, work: impl Fn(u64) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..cli.connections as u64).map(|share| scope.spawn(move || work(share))).collect();
        for thread in running {
            match thread.join() {
                Ok(outcome) => outcome.context("a connection failed")?,
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(())
    })
}
