//! Streams that many writers share, and the live readers of them.
//!
//! Every message is a line that names its writer and number. Writers leave a stream after a while; an auditor then
//! closes it, reads it and compares: each writer's lines are there in order, none twice, none missing that was
//! acknowledged, and none that nobody wrote. What the live readers saw, over all restarts, must be the same bytes.

mod audit;
mod reader;
mod writer;

use crate::content::{Format, filler};
use crate::http::Request;
use crate::session::{Down, Session};
use crate::world::World;
use audit::Auditor;
use reader::Reader;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writer::Writer;

const WRITERS: u64 = 6;
const ROUND: Duration = Duration::from_secs(6);
const ROUND_BYTES: u64 = 6 << 20;

struct Stream {
    path: String,
    format: Format,
    born: Instant,
    bytes: AtomicU64,
    retired: AtomicBool,
    writers: AtomicUsize,
    readers: AtomicUsize,
    /// Per writer: whether each of its lines was acknowledged.
    lines: Mutex<BTreeMap<u64, Vec<bool>>>,
    /// The messages that each reader saw, and whether it saw the end.
    seen: Mutex<Vec<(&'static str, Vec<u8>, bool)>>,
}

impl Stream {
    fn new(number: u64) -> Self {
        Self {
            path: format!("/v1/stream/crash/shared/{number}"),
            format: Format::ALL[usize::try_from(number % 3).unwrap_or(0)],
            born: Instant::now(),
            bytes: AtomicU64::new(0),
            retired: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
            lines: Mutex::new(BTreeMap::new()),
            seen: Mutex::new(Vec::new()),
        }
    }

    fn retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

/// A line as it is stored: what [`Format::normalise`] shows.
fn line(format: Format, writer: u64, number: usize) -> Vec<u8> {
    let seed = writer * 1_000_003 + number as u64;
    let len = match seed % 50 {
        0 => 20_000,
        1..10 => 2_000,
        _ => usize::try_from(seed % 200).unwrap_or(0),
    };
    let mut out = Vec::with_capacity(len + 40);
    match format {
        Format::Json => {
            out.extend_from_slice(format!("{{\"w\":{writer},\"i\":{number},\"p\":\"").as_bytes());
            filler(seed, len, true, &mut out);
            out.extend_from_slice(b"\"}\n");
        }
        Format::Binary | Format::Text => {
            out.extend_from_slice(format!("{writer} {number} ").as_bytes());
            filler(seed, len, true, &mut out);
            out.push(b'\n');
        }
    }
    out
}

/// Writer and number of a stored line.
fn parse(format: Format, line: &[u8]) -> Option<(u64, usize)> {
    let text = std::str::from_utf8(line).ok()?;
    match format {
        Format::Json => {
            let (writer, rest) = text.strip_prefix("{\"w\":")?.split_once(",\"i\":")?;
            Some((writer.parse().ok()?, rest.split_once(',')?.0.parse().ok()?))
        }
        Format::Binary | Format::Text => {
            let mut parts = text.splitn(3, ' ');
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        }
    }
}

struct Round {
    current: Mutex<Arc<Stream>>,
}

impl Round {
    fn current(&self) -> Arc<Stream> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Joins the current stream, as a writer or a reader.
    fn join(&self, role: fn(&Stream) -> &AtomicUsize) -> Arc<Stream> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        role(&current).fetch_add(1, Ordering::AcqRel);
        Arc::clone(&current)
    }
}

pub(crate) fn start(world: &Arc<World>, seed: u64) -> Vec<JoinHandle<()>> {
    let round = Arc::new(Round { current: Mutex::new(Arc::new(Stream::new(0))) });
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (world, round) = (Arc::clone(world), Arc::clone(&round));
        let mut rng = oorandom::Rand64::new(u128::from(seed) * 31 + u128::from(writer));
        threads.push(std::thread::spawn(move || {
            while !world.over() {
                let stream = round.join(|stream| &stream.writers);
                let mut session = Session::new(&world, "shared");
                Writer {
                    session: &mut session,
                    stream: &stream,
                    writer,
                    rng: oorandom::Rand64::new(u128::from(rng.rand_u64())),
                }
                .write();
                stream.writers.fetch_sub(1, Ordering::AcqRel);
            }
        }));
    }
    for kind in ["long-poll", "sse", "long-poll", "sse"] {
        let (world, round) = (Arc::clone(world), Arc::clone(&round));
        threads.push(std::thread::spawn(move || {
            while !world.over() {
                let stream = round.join(|stream| &stream.readers);
                let mut reader = Reader {
                    session: Session::new(&world, "shared"),
                    stream: &stream,
                    at: "-1".to_owned(),
                    seen: Vec::new(),
                    ended: false,
                };
                reader.follow(kind);
                let seen = (kind, reader.seen, reader.ended);
                stream.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
                stream.readers.fetch_sub(1, Ordering::AcqRel);
                // The next stream may not be there yet.
                while !world.over() && Arc::ptr_eq(&stream, &round.current()) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }));
    }
    let world = Arc::clone(world);
    threads.push(std::thread::spawn(move || {
        Auditor { session: Session::new(&world, "audit"), kept: Vec::new() }.work(&round)
    }));
    threads
}

fn ensure(session: &mut Session<'_>, stream: &Stream) -> Result<(), Down> {
    let answer =
        session.call(&Request::new("PUT", &stream.path, &[("content-type", stream.format.media_type())], &[]))?;
    // The auditor has closed it: 409, and nothing is left to do here.
    if !matches!(answer.status, 200 | 201 | 409) {
        session.world.violation(format!("PUT {}: {}", stream.path, answer.status));
    }
    Ok(())
}
