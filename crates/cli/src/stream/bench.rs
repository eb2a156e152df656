//! `thalweg stream bench`: a small load from this machine, with its measured rates and latencies.
//!
//! Each writer waits for its answer before it appends again, so that latencies are those of a server that is not
//! flooded. The command creates streams of its own, which expire if the command is killed. `bench/` in the repository
//! has larger load generators.

use crate::Target;
use crate::failure::Failure;
use crate::human::{count, rate, short_time, size};
use crate::server::{Call, Server, random};
use clap::Args;
use std::io::Read;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use thalweg_base::{Level, Size, Span};
use ureq::http::Method;

#[derive(Args)]
#[command(after_help = "\
Examples:
  thalweg stream bench
  thalweg stream bench --writers 64 --streams 1000 --bytes 1KiB --seconds 10s
  thalweg stream bench --durability buffered --json | jq .append.p99_s

Each writer has a connection of its own and waits for each answer before it appends again. The figures include this machine's client \
and the network to the server. Content is random, so that nothing on the way compresses it.")]
pub(crate) struct BenchArgs {
    /// Number of writers, each on a separate connection; as many readers read everything back.
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=1024))]
    writers: u32,
    /// Streams that the writers append to in turn.
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: u32,
    /// Content of one append.
    #[arg(long, value_name = "SIZE", default_value = "256")]
    bytes: Size,
    /// How long to append.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    seconds: Span,
    /// When an append is acknowledged: durable, buffered or replicated [default: the server's].
    #[arg(long, value_name = "LEVEL")]
    durability: Option<Level>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const BYTES_MAX: u64 = 16 << 20;
const SECONDS_MAX: Duration = Duration::from_secs(3600);
/// After which streams of a command that was killed are gone.
const TTL: &str = "3600";

/// The results of a measurement.
struct Measured {
    /// Seconds that appends took, sorted.
    waits: Vec<f64>,
    append_s: f64,
    read_bytes: u64,
    read_s: f64,
}

pub(crate) fn run(target: &Target, server: &Server, args: &BenchArgs) -> Result<(), Failure> {
    if args.bytes.0 == 0 || args.bytes.0 > BYTES_MAX {
        return Err(Failure::Local("--bytes must be 1 to 16MiB".to_owned()));
    }
    if args.seconds.0.is_zero() || args.seconds.0 > SECONDS_MAX {
        return Err(Failure::Local("--seconds must be more than 0 and at most 1h".to_owned()));
    }
    let id = random();
    let names: Vec<String> = (0..args.streams).map(|n| format!("bench-{id:016x}/{n}")).collect();
    let measured = create(server, args, &names).and_then(|()| measure(target, args, &names));
    let removed = names.iter().try_for_each(|name| remove(server, name));
    show(server, args, &measured?);
    removed
}

fn create(server: &Server, args: &BenchArgs, names: &[String]) -> Result<(), Failure> {
    for name in names {
        let mut call = Call::new(Method::PUT, server.stream(name)).header("stream-ttl", TTL);
        if let Some(durability) = args.durability {
            call = call.header("stream-durability", durability.to_string());
        }
        server.ask(&call)?;
    }
    Ok(())
}

fn remove(server: &Server, name: &str) -> Result<(), Failure> {
    match server.ask(&Call::new(Method::DELETE, server.stream(name))) {
        Err(failure) if !failure.is_missing() => Err(failure),
        _ => Ok(()),
    }
}

fn measure(target: &Target, args: &BenchArgs, names: &[String]) -> Result<Measured, Failure> {
    let (began, mut waits) = (Instant::now(), Vec::new());
    for one in in_parallel(args.writers, |writer| append(target, args, names, writer))? {
        waits.extend(one);
    }
    let append_s = began.elapsed().as_secs_f64();
    waits.sort_by(f64::total_cmp);
    let began = Instant::now();
    let read: Vec<u64> = in_parallel(args.writers, |reader| read(target, args, names, reader))?;
    Ok(Measured { waits, append_s, read_bytes: read.iter().sum(), read_s: began.elapsed().as_secs_f64() })
}

/// Runs `work` on as many threads, which begin together; the first failure is that of all.
fn in_parallel<T: Send>(threads: u32, work: impl Fn(u32) -> Result<T, Failure> + Sync) -> Result<Vec<T>, Failure> {
    let together = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|n| {
                let (work, together) = (&work, &together);
                scope.spawn(move || {
                    together.wait();
                    work(n)
                })
            })
            .collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, Result<T, Failure>>| {
            handle
                .join()
                .unwrap_or_else(|_| Err(Failure::Strange("a thread of the measurement has panicked".to_owned())))
        };
        handles.into_iter().map(join).collect()
    })
}

/// Appends until the time is up; how long each append took.
fn append(target: &Target, args: &BenchArgs, names: &[String], writer: u32) -> Result<Vec<f64>, Failure> {
    let server = Server::new(target, None)?;
    let body: Vec<u8> = (0..args.bytes.0.div_ceil(8)).flat_map(|_| random().to_le_bytes()).collect();
    let body = &body[..usize::try_from(args.bytes.0).unwrap_or(body.len())];
    let urls: Vec<String> = own(names, args.writers, writer).map(|name| server.stream(name)).collect();
    let (began, mut waits) = (Instant::now(), Vec::new());
    for url in urls.iter().cycle() {
        let call = Call::new(Method::POST, url.clone()).header("content-type", super::create::BYTES).body(body);
        let sent = Instant::now();
        server.ask_once(&call)?;
        waits.push(sent.elapsed().as_secs_f64());
        if began.elapsed() >= args.seconds.0 {
            break;
        }
    }
    Ok(waits)
}

/// The streams of one thread: every stream has a writer, and every writer a stream.
fn own(names: &[String], threads: u32, thread: u32) -> impl Iterator<Item = &String> {
    let (threads, thread) = (threads as usize, thread as usize);
    let first = thread % names.len();
    names.iter().skip(first).step_by(threads)
}

/// Reads the thread's streams from start to end; how many bytes they have.
fn read(target: &Target, args: &BenchArgs, names: &[String], reader: u32) -> Result<u64, Failure> {
    let server = Server::new(target, None)?;
    let (mut bytes, mut buffer) = (0, vec![0; 64 << 10]);
    for name in own(names, args.writers, reader) {
        let mut from = "-1".to_owned();
        loop {
            let url = format!("{}?offset={from}", server.stream(name));
            let mut answer = server.ask_once(&Call::new(Method::GET, url))?;
            let mut body = answer.body();
            loop {
                match body.read(&mut buffer)? {
                    0 => break,
                    n => bytes += n as u64,
                }
            }
            drop(body);
            let next = answer.header("stream-next-offset");
            from = next.ok_or_else(|| Failure::Strange("it has no Stream-Next-Offset".to_owned()))?.to_owned();
            if answer.says("stream-up-to-date") {
                break;
            }
        }
    }
    Ok(bytes)
}

#[allow(clippy::cast_precision_loss, reason = "rates for the eye")]
fn show(server: &Server, args: &BenchArgs, measured: &Measured) {
    let Measured { waits, append_s, read_bytes, read_s } = measured;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a list")]
    let quantile = |share: f64| waits[((waits.len() as f64 * share) as usize).min(waits.len() - 1)];
    let appends_per_s = waits.len() as f64 / append_s;
    let durability = args.durability.map_or("the server's".to_owned(), |durability| durability.to_string());
    if args.json {
        let all = serde_json::json!({
            "server": server.base(), "writers": args.writers, "streams": args.streams, "bytes": args.bytes.0,
            "durability": durability,
            "append": {
                "count": waits.len(), "seconds": append_s, "per_s": appends_per_s, "p50_s": quantile(0.5),
                "p90_s": quantile(0.9), "p99_s": quantile(0.99), "max_s": quantile(1.0),
            },
            "read": {"bytes": read_bytes, "seconds": read_s, "bytes_per_s": *read_bytes as f64 / read_s},
        });
        println!("{all}");
        return;
    }
    println!(
        "{}: {} writers, {} streams, {} an append, durability {durability}, {append_s:.1} s",
        server.base(),
        args.writers,
        args.streams,
        size(args.bytes.0),
    );
    println!(
        "append  {}/s, {}; answered after p50 {}, p90 {}, p99 {}, at most {}",
        count(appends_per_s),
        rate(appends_per_s * args.bytes.0 as f64),
        short_time(quantile(0.5)),
        short_time(quantile(0.9)),
        short_time(quantile(0.99)),
        short_time(quantile(1.0)),
    );
    println!("read    {}; {} by {} readers", rate(*read_bytes as f64 / read_s), size(*read_bytes), args.writers);
    println!(
        "Each writer waits for its answer before it appends again. The client of this machine and the network are included."
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_is_written_and_every_writer_writes() {
        for (streams, threads) in [(1, 1), (8, 8), (3, 8), (10, 4), (1, 5)] {
            let names: Vec<String> = (0..streams).map(|n| n.to_string()).collect();
            let mut seen: Vec<&String> = (0..threads).flat_map(|thread| own(&names, threads, thread)).collect();
            assert!((0..threads).all(|thread| own(&names, threads, thread).next().is_some()));
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), names.len(), "{streams} streams, {threads} writers");
        }
    }
}
