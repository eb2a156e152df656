//! Streams that many writers share, and the live readers of them.
//!
//! Every message is a line that names its writer and number. Writers leave a stream after a while; an auditor then closes it,
//! reads it and compares: each writer's lines are there in order, none twice, none missing that was acknowledged, and none that
//! nobody wrote. What the live readers saw, over all restarts, must be the same bytes.

use crate::content::{Format, filler};
use crate::http::{Events, Request};
use crate::model::difference;
use crate::session::{Down, Session};
use crate::world::{Sabotage, World};
use base64::Engine as _;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    /// What each reader saw, and whether it saw the end.
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
                let mut session = Session::new(&world);
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
                    session: Session::new(&world),
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
    threads.push(std::thread::spawn(move || Auditor { session: Session::new(&world), kept: Vec::new() }.work(&round)));
    threads
}

fn ensure(session: &mut Session<'_>, stream: &Stream) -> Result<(), Down> {
    let answer =
        session.call(&Request::new("PUT", &stream.path, &[("content-type", stream.format.media_type())], &[]))?;
    // Closed by the auditor meanwhile: 409, and nothing is to be done here any more.
    if !matches!(answer.status, 200 | 201 | 409) {
        session.world.violation(format!("PUT {}: {}", stream.path, answer.status));
    }
    Ok(())
}

struct Writer<'a, 'w> {
    session: &'a mut Session<'w>,
    stream: &'a Stream,
    writer: u64,
    rng: oorandom::Rand64,
}

impl Writer<'_, '_> {
    fn idempotent(&self) -> bool {
        self.writer % 2 == 1 && !self.session.world.tolerates("producer")
    }

    fn write(&mut self) {
        while ensure(self.session, self.stream).is_err() {
            if !self.session.revive() {
                return;
            }
        }
        let mut next = 0;
        let mut unanswered: Vec<usize> = Vec::new();
        loop {
            let leaving = self.stream.retired() || self.session.world.over();
            if leaving && (unanswered.is_empty() || !self.idempotent()) {
                return;
            }
            if unanswered.is_empty() {
                let many = usize::try_from(self.rng.rand_range(1..9)).unwrap_or(1);
                unanswered = (next..next + many).collect();
                next += many;
            }
            match self.send(&unanswered) {
                Ok(answered) => {
                    unanswered.drain(..answered);
                }
                Err((answered, Down)) => {
                    unanswered.drain(..answered);
                    // A plain append without an answer is not repeated: it may be there.
                    if !self.idempotent() {
                        unanswered.clear();
                    }
                    if !self.session.revive() {
                        return;
                    }
                }
            }
            if self.rng.rand_float() < 0.3 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Sends these lines, pipelined; how many of them were answered.
    fn send(&mut self, numbers: &[usize]) -> Result<usize, (usize, Down)> {
        let stream = self.stream;
        let (id, writer) = (format!("w{}", self.writer), self.writer);
        let mut requests = Vec::new();
        let idempotent = self.idempotent();
        {
            let mut lines = stream.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let mine = lines.entry(writer).or_default();
            for number in numbers {
                if *number >= mine.len() {
                    mine.resize(number + 1, false);
                }
                let bytes = line(stream.format, writer, *number);
                let seq = number.to_string();
                let mut headers = vec![("content-type", stream.format.media_type())];
                if idempotent {
                    headers.extend([
                        ("producer-id", id.as_str()),
                        ("producer-epoch", "0"),
                        ("producer-seq", seq.as_str()),
                    ]);
                }
                requests.push(Request::new("POST", &stream.path, &headers, &bytes));
                stream.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        }
        if self.session.world.sabotage(Sabotage::Invented) {
            let bytes = line(stream.format, 99, 0);
            let request = Request::new("POST", &stream.path, &[("content-type", stream.format.media_type())], &bytes);
            let _ = self.session.call(&request);
        }
        let (answers, down) = self.session.pipeline(&requests);
        let mut taken = 0;
        for (number, answer) in numbers.iter().zip(&answers) {
            match answer.status {
                200 | 204 => {
                    taken += 1;
                    let mut lines = stream.lines.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(acknowledged) = lines.get_mut(&writer).and_then(|mine| mine.get_mut(*number)) {
                        *acknowledged = true;
                    }
                }
                // Refused: not there. A producer repeats it, another writer goes on; in both cases later ones must wait.
                429 | 503 | 507 => {
                    self.session.world.report.count("refused for now");
                    std::thread::sleep(Duration::from_millis(20));
                    if !self.idempotent() {
                        taken += 1;
                        continue;
                    }
                    break;
                }
                409 if self.idempotent() && taken < numbers.len() && answers.iter().any(|a| a.status == 503) => break,
                status => {
                    let what = format!(
                        "POST {} by writer {writer}, line {number}: {status} {:?} (expected seq {:?})",
                        stream.path,
                        String::from_utf8_lossy(&answer.body),
                        answer.header("producer-expected-seq")
                    );
                    self.session.world.violation(what);
                    return Err((taken, Down));
                }
            }
        }
        self.session.world.report.add("shared appends acknowledged", taken as u64);
        match down {
            None => Ok(taken),
            Some(down) => Err((taken, down)),
        }
    }
}

struct Reader<'a, 'w> {
    session: Session<'w>,
    stream: &'a Stream,
    at: String,
    seen: Vec<u8>,
    ended: bool,
}

impl Reader<'_, '_> {
    fn follow(&mut self, kind: &str) {
        while ensure(&mut self.session, self.stream).is_err() {
            if !self.session.revive() {
                return;
            }
        }
        while !self.ended && !self.session.world.over() {
            let step = if kind == "sse" { self.events() } else { self.poll() };
            match step {
                Ok(()) => {}
                Err(Down) => {
                    if !self.session.revive() {
                        return;
                    }
                    self.session.world.report.count("live readers resumed");
                }
            }
        }
    }

    fn poll(&mut self) -> Result<(), Down> {
        let path = format!("{}?offset={}&live=long-poll", self.stream.path, self.at);
        let answer = self.session.call(&Request::get(&path))?;
        match answer.status {
            200 => {
                if let Err(error) = self.stream.format.normalise(&answer.body, &mut self.seen) {
                    self.session.world.violation(format!("GET {path}: {error}"));
                    return Err(Down);
                }
            }
            204 => {}
            429 | 503 => {
                std::thread::sleep(Duration::from_millis(20));
                return Ok(());
            }
            status => {
                self.session
                    .world
                    .violation(format!("GET {path}: {status} {:?}", String::from_utf8_lossy(&answer.body)));
                return Err(Down);
            }
        }
        if let Some(next) = answer.header("stream-next-offset") {
            next.clone_into(&mut self.at);
        }
        self.ended = answer.is_true("stream-closed");
        self.session.world.report.count("long-polls");
        Ok(())
    }

    /// One connection of server-sent events, to its end.
    fn events(&mut self) -> Result<(), Down> {
        let path = format!("{}?offset={}&live=sse", self.stream.path, self.at);
        let world = self.session.world;
        let request = Request::get(&path);
        let conn = self.session.connect()?;
        let opened = conn.send(std::slice::from_ref(&request)).and_then(|()| conn.head());
        let generation = self.session.generation().unwrap_or(0);
        let base64 = match opened {
            Ok(answer) if answer.status == 200 => answer.header("stream-sse-data-encoding") == Some("base64"),
            Ok(answer) => {
                world.violation(format!("GET {path}: {}", answer.status));
                return Err(Down);
            }
            Err(error) => return Err(self.session.explain(generation, &request.line, &error)),
        };
        let mut events = Events::default();
        let mut data: Vec<u8> = Vec::new();
        loop {
            let conn = self.session.connected()?;
            let chunk = match conn.chunk() {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    // Nothing more follows on this connection.
                    let _ = self.session.revive();
                    return Ok(());
                }
                Err(error)
                    if error.kind() == std::io::ErrorKind::UnexpectedEof && !world.server.is_still(generation) =>
                {
                    let _ = self.session.revive();
                    return Err(Down);
                }
                Err(error) => return Err(self.session.explain(generation, &request.line, &error)),
            };
            for event in events.push(&chunk) {
                match event.kind.as_str() {
                    "data" => {
                        let bytes = if base64 {
                            let text: String = event.data.split_whitespace().collect();
                            match base64::engine::general_purpose::STANDARD.decode(text) {
                                Ok(bytes) => bytes,
                                Err(error) => {
                                    world.violation(format!("GET {path}: a data event is not base64: {error}"));
                                    return Err(Down);
                                }
                            }
                        } else {
                            event.data.into_bytes()
                        };
                        if let Err(error) = self.stream.format.normalise(&bytes, &mut data) {
                            world.violation(format!("GET {path}: {error}"));
                            return Err(Down);
                        }
                    }
                    "control" => {
                        let control: serde_json::Value = serde_json::from_str(&event.data).unwrap_or_default();
                        self.seen.append(&mut data);
                        if let Some(next) = control["streamNextOffset"].as_str() {
                            next.clone_into(&mut self.at);
                        }
                        world.report.count("live events");
                        if control["streamClosed"] == true {
                            self.ended = true;
                        }
                    }
                    _ => {}
                }
            }
            if world.over() {
                let _ = self.session.revive();
                return Ok(());
            }
        }
    }
}

struct Auditor<'w> {
    session: Session<'w>,
    /// Audited streams and their content, to be found unchanged after later crashes.
    kept: Vec<(Arc<Stream>, Vec<u8>)>,
}

impl Auditor<'_> {
    fn work(&mut self, round: &Round) {
        let world = self.session.world;
        let mut number = 0;
        while !world.over() {
            let stream = round.current();
            let old = stream.born.elapsed() > ROUND || stream.bytes.load(Ordering::Relaxed) > ROUND_BYTES;
            if !old {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            number += 1;
            *round.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(Stream::new(number));
            if !self.audit(&stream) || !self.check_one_again(number) {
                return;
            }
        }
        // The last stream, and all that were kept.
        let stream = round.current();
        let all = self.audit(&stream);
        for which in 0..self.kept.len() {
            if !all || !self.check_one_again(which as u64) {
                return;
            }
        }
    }

    /// Whether to go on.
    fn audit(&mut self, stream: &Arc<Stream>) -> bool {
        let world = self.session.world;
        stream.retired.store(true, Ordering::Release);
        while stream.writers.load(Ordering::Acquire) > 0 {
            if !world.report.clean() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let close = Request::new("POST", &stream.path, &[("stream-closed", "true")], &[]);
        while ensure(&mut self.session, stream).is_err() || self.session.call(&close).is_err() {
            if !self.session.revive() {
                return false;
            }
        }
        let Some(content) = self.read(stream) else { return false };
        if let Err(what) = compare(stream, &content) {
            world.violation(format!("{}: {what}", stream.path));
            return false;
        }
        // At the end of a run readers leave where they are.
        let patience = Instant::now() + Duration::from_secs(20);
        while stream.readers.load(Ordering::Acquire) > 0 && Instant::now() < patience && world.report.clean() {
            std::thread::sleep(Duration::from_millis(5));
        }
        for (kind, seen, ended) in stream.seen.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let expected = if ended { &content[..] } else { &content[..seen.len().min(content.len())] };
            if seen != expected {
                world.violation(format!(
                    "{}: a {kind} reader: {}",
                    stream.path,
                    difference("what it saw", expected, &seen)
                ));
                return false;
            }
            world.report.count(if ended { "live readers compared to the end" } else { "live readers compared" });
        }
        world.report.count("shared streams compared");
        self.kept.push((Arc::clone(stream), content));
        if self.kept.len() > 12 {
            let (oldest, _) = self.kept.remove(0);
            let _ = self.session.call(&Request::new("DELETE", &oldest.path, &[], &[]));
        }
        true
    }

    fn check_one_again(&mut self, number: u64) -> bool {
        let Some((stream, expected)) = self.kept.get(usize::try_from(number).unwrap_or(0) % self.kept.len().max(1))
        else {
            return true;
        };
        let (stream, expected) = (Arc::clone(stream), expected.clone());
        let Some(content) = self.read(&stream) else { return false };
        if content != expected {
            let what = difference("settled content", &expected, &content);
            self.session.world.violation(format!("{}: {what}", stream.path));
            return false;
        }
        self.session.world.report.count("old shared streams found unchanged");
        true
    }

    fn read(&mut self, stream: &Stream) -> Option<Vec<u8>> {
        let (mut content, mut at) = (Vec::new(), "-1".to_owned());
        loop {
            let path = format!("{}?offset={at}", stream.path);
            let Ok(answer) = self.session.call(&Request::get(&path)) else {
                if self.session.revive() {
                    continue;
                }
                return None;
            };
            let read = match answer.status {
                200 => stream.format.normalise(&answer.body, &mut content),
                status => Err(format!("{status} {:?}", String::from_utf8_lossy(&answer.body))),
            };
            if let Err(error) = read {
                self.session.world.violation(format!("GET {path}: {error}"));
                return None;
            }
            if answer.is_true("stream-up-to-date") {
                return Some(content);
            }
            answer.header("stream-next-offset").unwrap_or("-1").clone_into(&mut at);
        }
    }
}

/// Every writer's lines, in order, none twice, none missing that was acknowledged, none that nobody wrote.
fn compare(stream: &Stream, content: &[u8]) -> Result<(), String> {
    let lines = stream.lines.lock().unwrap_or_else(PoisonError::into_inner);
    let mut found: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for stored in content.split_inclusive(|b| *b == b'\n') {
        let Some((writer, number)) = parse(stream.format, stored) else {
            return Err(format!(
                "a line that nobody wrote: {:?}",
                String::from_utf8_lossy(&stored[..stored.len().min(60)])
            ));
        };
        if lines.get(&writer).is_none_or(|mine| number >= mine.len()) {
            return Err(format!("line {number} of writer {writer} was never sent"));
        }
        if stored != line(stream.format, writer, number) {
            return Err(format!("line {number} of writer {writer} is not as it was sent ({} bytes)", stored.len()));
        }
        let mine = found.entry(writer).or_default();
        if mine.last().is_some_and(|last| *last >= number) {
            return Err(format!("line {number} of writer {writer} stands after its line {:?}", mine.last()));
        }
        mine.push(number);
    }
    for (writer, acknowledged) in lines.iter() {
        let there = found.get(writer).map_or(&[][..], Vec::as_slice);
        for (number, _) in acknowledged.iter().enumerate().filter(|(_, acknowledged)| **acknowledged) {
            if there.binary_search(&number).is_err() {
                return Err(format!("line {number} of writer {writer} was acknowledged, but is not there"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: u64) -> Stream {
        let stream = Stream::new(number);
        stream.lines.lock().unwrap().insert(1, vec![true, true, false]);
        stream.lines.lock().unwrap().insert(2, vec![true]);
        stream
    }

    fn content(format: Format, lines: &[(u64, usize)]) -> Vec<u8> {
        lines.iter().flat_map(|(writer, number)| line(format, *writer, *number)).collect()
    }

    #[test]
    fn lines_may_interleave_and_those_in_doubt_may_be_missing() {
        for number in 0..3 {
            let stream = stream(number);
            for lines in [&[(1, 0), (2, 0), (1, 1)][..], &[(1, 0), (1, 1), (2, 0)], &[(2, 0), (1, 0), (1, 1), (1, 2)]] {
                compare(&stream, &content(stream.format, lines)).unwrap();
            }
        }
    }

    #[test]
    fn missing_doubled_reordered_and_invented_lines_are_found() {
        for number in 0..3 {
            let stream = stream(number);
            for lines in [
                &[(1, 0), (2, 0)][..],
                &[(1, 0), (1, 0), (1, 1), (2, 0)],
                &[(1, 1), (1, 0), (2, 0)],
                &[(1, 0), (1, 1), (2, 0), (3, 0)],
                &[(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)],
            ] {
                assert!(compare(&stream, &content(stream.format, lines)).is_err(), "{lines:?}");
            }
            let whole = content(stream.format, &[(1, 0), (1, 1), (2, 0)]);
            assert!(compare(&stream, &whole[..whole.len() - 1]).is_err());
        }
    }
}
