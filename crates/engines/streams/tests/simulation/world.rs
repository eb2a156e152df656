//! One history: the system under test, its disk, and the model beside it.

use crate::client::{Answer, send};
use crate::model::{self, Keep, Kind, Request, Streams as Modelled, Verdict};
use oorandom::Rand32;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_base::{Durability, Lsn, Millis, Reached, Until};
use thalweg_journal::{FileJournal, Journal, Options};
use thalweg_log::{Logs, LogsOptions, Loss, When};
use thalweg_manifest::FileManifest;
use thalweg_sim::SimDisk;
use thalweg_storage::FileStorage;
use thalweg_streams::{StreamState, Streams, StreamsConfig};
use thalweg_wire::http::Method;

/// Which fault is planted, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) sync_lies: bool,
    pub(crate) acknowledged_before_sync: bool,
    pub(crate) retry_acknowledged_early: bool,
    pub(crate) producer_state_in_another_frame: bool,
    pub(crate) close_buffered: bool,
    /// Crashes of the machine are taken for deaths of the process.
    pub(crate) mark_not_applied: bool,
}

impl Plan {
    pub(crate) fn faulty() -> [Self; 6] {
        let none = Self::default();
        [
            Self { sync_lies: true, ..none },
            Self { acknowledged_before_sync: true, ..none },
            Self { retry_acknowledged_early: true, ..none },
            Self { producer_state_in_another_frame: true, ..none },
            Self { close_buffered: true, ..none },
            Self { mark_not_applied: true, ..none },
        ]
    }
}

/// What was told of a stream.
#[derive(Clone, Debug)]
struct Shown {
    name: String,
    offset: String,
    /// Of the stream that the name stood for.
    born: u64,
    content: Vec<u8>,
}

struct System {
    journal: Arc<FileJournal>,
    logs: Arc<Logs<StreamState>>,
    streams: Arc<Streams>,
}

pub(crate) struct World {
    plan: Plan,
    random: Rand32,
    disk: SimDisk,
    system: System,
    now_ms: u64,
    /// The model after everything that was accepted.
    accepted: Modelled,
    /// The model as it is once everything below a position is written, or durable, and the changes that follow, in order.
    written: Modelled,
    unwritten: Vec<(u64, Request)>,
    durable: Modelled,
    pending: Vec<(u64, Request)>,
    /// What replies are held until.
    held: Vec<Until>,
    /// The highest positions that sent replies have depended on: to be written, and to be durable.
    promised: Reached,
    /// What streams that do not say so promise.
    unsaid: Durability,
    /// What was seen below offsets: name, offset, content.
    shown: Vec<Shown>,
    /// The same, of answers that are not sent yet.
    unsent: Vec<(Until, Shown)>,
    /// Names whose stream was removed, and where.
    graves: BTreeMap<String, u64>,
    /// Crashes that took something acknowledged or shown.
    pub(crate) losses: u64,
    names: u32,
    seen: u64,
    /// A read found that old content was given up.
    pub(crate) trimmed: bool,
}

const CHUNK_BYTES: u64 = 200;

impl World {
    pub(crate) fn new(seed: u64, plan: Plan) -> Self {
        let disk = SimDisk::new(seed);
        disk.lie_on_sync(plan.sync_lies);
        disk.waits(0.2);
        let unsaid = if seed.is_multiple_of(3) { Durability::Buffered } else { Durability::Durable };
        let system = open(&disk, plan, unsaid, Loss::Nothing);
        Self {
            plan,
            random: Rand32::new(seed),
            disk,
            system,
            now_ms: 1_800_000_000_000,
            accepted: Modelled::new(),
            written: Modelled::new(),
            unwritten: Vec::new(),
            durable: Modelled::new(),
            pending: Vec::new(),
            held: Vec::new(),
            promised: Reached::default(),
            unsaid,
            shown: Vec::new(),
            unsent: Vec::new(),
            graves: BTreeMap::new(),
            losses: 0,
            names: 0,
            seen: 0,
            trimmed: false,
        }
    }

    fn upto(&mut self, n: u32) -> u32 {
        self.random.rand_range(0..n.max(1))
    }

    fn note(&mut self, n: u64) {
        self.seen = self.seen.wrapping_mul(0x100_0000_01b3).wrapping_add(n);
    }

    pub(crate) fn step(&mut self) {
        self.now_ms += u64::from(self.upto(50));
        match self.upto(100) {
            0..55 => self.request(),
            55..62 => self.begin(),
            62..65 => self.kick(),
            65..77 => self.finish_batch(),
            77..80 => self.settle(),
            80..82 => self.upkeep(),
            82..85 => self.prepare(),
            85..93 => self.read(),
            93..95 => self.disk.fail_next_sync(),
            95 => self.full_disk(),
            _ => self.crash(),
        }
        let now = Millis(self.now_ms);
        self.system.streams.tick(now);
        self.release();
    }

    /// The last look: everything that was promised is there.
    pub(crate) fn finish(&mut self) -> u64 {
        self.disk.heal();
        self.crash();
        self.seen
    }

    fn request(&mut self) {
        let request = self.make_request();
        let answer = self.send(&request);
        self.note(u64::from(answer.status) + answer.held.position().0);
        if matches!(answer.status, 500..=599) {
            // Refused for want of space or after a failed sync: it must have changed nothing.
            return;
        }
        let mut after = self.accepted.clone();
        let verdict = model::apply(&mut after, &request, answer.held.position().0);
        assert_eq!(answer.status, verdict.status, "{request:?} was answered {answer:?}");
        self.check_position(&request, &answer, verdict);
        if verdict.changes {
            let at = answer.held.position().0;
            self.unwritten.push((at, request.clone()));
            self.pending.push((at, request.clone()));
            let gone = self.accepted.keys().filter(|name| !after.contains_key(*name)).cloned();
            self.graves.extend(gone.map(|name| (name, at)));
            self.accepted = after;
        }
        self.held.push(answer.held);
        self.tell(request.name(), &answer);
    }

    /// Whoever gets the answer knows what lies below the offset in it.
    fn tell(&mut self, name: &str, answer: &Answer) {
        let Some((next, stream)) = answer.header("stream-next-offset").zip(self.accepted.get(name)) else { return };
        let content = stream.content();
        let Some(content) = content.get(..number_of(next)) else { return };
        let shown = Shown { name: name.into(), offset: next.into(), born: stream.born, content: content.into() };
        self.unsent.push((answer.held, shown));
    }

    fn promise(&self, kind: Kind) -> Durability {
        match kind {
            Kind::Unsaid => self.unsaid,
            Kind::Durable => Durability::Durable,
            Kind::Buffered => Durability::Buffered,
        }
    }

    /// A reply depends on the last change of its stream: it must be held until that is as safe as its stream promises. What a
    /// loss would undo visibly, such as an end, is always durable.
    fn check_position(&self, request: &Request, answer: &Answer, verdict: Verdict) {
        let reached = self.system.journal.reached();
        let needs = |until: Until| {
            let held = answer.held;
            let enough = reached.covers(until) || (held == held.and(until));
            assert!(enough, "{request:?} depends on {until:?}, reached is {reached:?}, and its reply was {answer:?}");
        };
        // Whose life or death the answer tells.
        let told = match (request, answer.status) {
            (Request::Fork { name, source }, 200..=299) => vec![name.as_str(), source.as_str()],
            (Request::Fork { source, .. }, 404) => vec![source.as_str()],
            (Request::Fork { .. }, _) => Vec::new(),
            _ => vec![request.name()],
        };
        for grave in told.into_iter().filter_map(|name| self.graves.get(name)) {
            needs(Until::Durable(Lsn(*grave)));
        }
        if verdict.changes {
            let at = answer.held.position();
            assert!(
                !reached.covers(answer.held),
                "{request:?} changed the state, but its reply is not held: {answer:?}"
            );
            let (ends, kind) = match request {
                Request::Delete { .. } => (true, Kind::Durable),
                Request::Create { closed, kind, .. } => (*closed, *kind),
                Request::Append { close, name, .. } => (*close, self.accepted[name].kind),
                Request::Fork { source, .. } => (false, self.accepted[source].kind),
            };
            return needs(if ends { Until::Durable(at) } else { Until::of(self.promise(kind), at) });
        }
        if let Some(stream) = self.accepted.get(request.name()) {
            needs(Until::of(self.promise(stream.kind), Lsn(stream.changed)));
            needs(Until::Durable(Lsn(stream.sealed)));
        }
    }

    /// Sends replies that wait no more.
    fn release(&mut self) {
        let reached = self.system.journal.reached();
        for until in self.held.extract_if(.., |held| reached.covers(*held)) {
            match until {
                Until::Written(at) => self.promised.written = self.promised.written.max(at),
                Until::Durable(at) => self.promised.durable = self.promised.durable.max(at),
            }
        }
        self.shown.extend(self.unsent.extract_if(.., |(until, _)| reached.covers(*until)).map(|(_, shown)| shown));
        // The newest say most.
        let old = self.shown.len().saturating_sub(60);
        self.shown.drain(..old);
        self.advance(reached);
    }

    fn advance(&mut self, reached: Reached) {
        while self.unwritten.first().is_some_and(|(at, _)| *at <= reached.written.0) {
            let (at, request) = self.unwritten.remove(0);
            model::apply(&mut self.written, &request, at);
        }
        while self.pending.first().is_some_and(|(at, _)| *at <= reached.durable.0) {
            let (at, request) = self.pending.remove(0);
            model::apply(&mut self.durable, &request, at);
        }
        self.graves.retain(|_, at| *at > reached.durable.0);
    }

    /// What was seen below an offset is seen there again, or the offset is refused; that of a durable stream is not.
    fn check_shown(&mut self) {
        let streams = Arc::clone(&self.system.streams);
        for Shown { name, offset, born, content } in self.shown.clone() {
            let query = format!("offset={offset}");
            let answer = send(&streams, self.now_ms, Method::Get, &name, Some(&query), &[], b"");
            let there = self.accepted.get(&name);
            if answer.status == 200 {
                let there = there.map(model::Stream::content).unwrap_or_default();
                assert!(there.starts_with(&content), "{name} has other bytes below {offset}: {answer:?}");
            } else if let Some(there) = there.filter(|there| there.born == born && !there.soft_deleted) {
                let lost = self.promise(there.kind) == Durability::Buffered;
                assert!(lost || there.shortened, "{name} is durable, and refuses {offset}: {answer:?}");
            }
        }
    }

    fn make_request(&mut self) -> Request {
        let name = self.name();
        match self.upto(20) {
            0..4 => Request::Create {
                name,
                kind: [Kind::Unsaid, Kind::Durable, Kind::Buffered][self.upto(3) as usize],
                json: self.upto(2) == 0,
                body: if self.upto(2) == 0 { self.one_message() } else { Vec::new() },
                closed: self.upto(8) == 0,
                keep: match self.upto(8) {
                    0 => Keep::Bytes(60),
                    1 => Keep::Seconds(1),
                    _ => Keep::All,
                },
                now_ms: self.now_ms,
            },
            4 => {
                self.names += 1;
                Request::Fork { name: format!("fork{}", self.names % 7), source: name }
            }
            5 => Request::Delete { name },
            6 => {
                let (producer, expects) = (self.producer(), self.expects(&name));
                Request::Append { name, body: Vec::new(), producer, close: true, expects, now_ms: self.now_ms }
            }
            n => Request::Append {
                expects: self.expects(&name),
                name,
                body: self.one_message(),
                producer: if n < 14 { self.producer() } else { None },
                close: self.upto(30) == 0,
                now_ms: self.now_ms,
            },
        }
    }

    /// Now and then what a client would expect that has seen everything visible.
    fn expects(&mut self, name: &str) -> Option<String> {
        if self.upto(5) > 0 {
            return None;
        }
        let head = send(&Arc::clone(&self.system.streams), self.now_ms, Method::Head, name, None, &[], b"");
        head.header("stream-next-offset").map(str::to_owned)
    }

    fn name(&mut self) -> String {
        match self.upto(8) {
            0 => format!("fork{}", self.upto(7)),
            n => format!("stream{n}"),
        }
    }

    /// Often a retry, now and then a gap or a new epoch.
    fn producer(&mut self) -> Option<(String, u64, u64)> {
        let id = format!("p{}", self.upto(2));
        let known: Vec<(u64, u64)> =
            self.accepted.values().filter_map(|stream| stream.producers.get(&id).copied()).collect();
        let (epoch, last) = match known.len() {
            0 => return Some((id, 0, 0)),
            n => known[self.upto(n as u32) as usize],
        };
        Some(match self.upto(12) {
            0 => (id, epoch + 1, 0),
            1 => (id, epoch, last + 2),
            2..6 => (id, epoch, last),
            6 => (id, 0, 0),
            _ => (id, epoch, last + 1),
        })
    }

    fn one_message(&mut self) -> Vec<Vec<u8>> {
        let length = if self.upto(10) == 0 { 1 + self.upto(700) } else { 1 + self.upto(40) };
        // A JSON string without anything to escape is a message of either kind.
        let letter = b'a' + self.upto(26) as u8;
        let mut text = vec![b'"'];
        text.extend(std::iter::repeat_n(letter, length as usize));
        text.push(b'"');
        vec![text]
    }

    fn send(&mut self, request: &Request) -> Answer {
        let streams = Arc::clone(&self.system.streams);
        let type_of = |json: bool| if json { "application/json" } else { "text/plain" };
        let now = self.now_ms;
        match request {
            Request::Create { name, kind, json, body, closed, keep, .. } => {
                let mut headers = vec![("content-type", type_of(*json))];
                headers.extend(closed.then_some(("stream-closed", "true")));
                headers.extend(match kind {
                    Kind::Unsaid => None,
                    Kind::Durable => Some(("stream-durability", "durable")),
                    Kind::Buffered => Some(("stream-durability", "buffered")),
                });
                let (bound, amount) = match keep {
                    Keep::All => ("", String::new()),
                    Keep::Bytes(bytes) => ("stream-retention-bytes", bytes.to_string()),
                    Keep::Seconds(secs) => ("stream-retention-seconds", secs.to_string()),
                };
                headers.extend((!bound.is_empty()).then_some((bound, amount.as_str())));
                send(&streams, now, Method::Put, name, None, &headers, &body.concat())
            }
            Request::Fork { name, source } => {
                let source = format!("{}{source}", crate::client::ROOT);
                send(&streams, now, Method::Put, name, None, &[("stream-forked-from", &source)], b"")
            }
            Request::Append { name, body, producer, close, expects, .. } => {
                let json = self.accepted.get(name).is_some_and(|stream| stream.json);
                let mut headers = vec![("content-type", type_of(json))];
                headers.extend(close.then_some(("stream-closed", "true")));
                headers.extend(expects.as_deref().map(|tail| ("if-match", tail)));
                let numbers = producer.as_ref().map(|(_, epoch, seq)| (epoch.to_string(), seq.to_string()));
                if let (Some((id, ..)), Some((epoch, seq))) = (producer, &numbers) {
                    headers.extend([("producer-id", id.as_str()), ("producer-epoch", epoch), ("producer-seq", seq)]);
                }
                send(&streams, now, Method::Post, name, None, &headers, &body.concat())
            }
            Request::Delete { name } => send(&streams, now, Method::Delete, name, None, &[], b""),
        }
    }

    fn begin(&mut self) {
        // A failure poisons the journal; the next crash restarts it.
        let _ = self.system.journal.begin();
    }

    /// What an event loop does at the end of its round.
    fn kick(&mut self) {
        self.system.journal.kick();
        self.system.streams.on_durable();
    }

    fn finish_batch(&mut self) {
        let _ = self.system.journal.begin();
        let _ = self.system.journal.finish();
        self.system.streams.on_durable();
    }

    fn settle(&mut self) {
        let done = self.system.logs.settle(Millis(self.now_ms), When::Now);
        self.note(u64::from(done.is_ok()));
    }

    fn upkeep(&mut self) {
        let _ = self.system.logs.merge();
        let _ = self.system.logs.reclaim(Millis(self.now_ms + 1_000_000));
    }

    fn prepare(&mut self) {
        let _ = self.system.journal.prepare();
    }

    fn full_disk(&mut self) {
        let full = self.upto(2) == 0;
        let used: u64 = self.disk.cached().values().map(|bytes| bytes.len() as u64).sum();
        self.disk.capacity(if full { used + 2_000 } else { 1 << 40 });
    }

    /// Reads some stream whole and compares it with the model of what its readers may see, and nothing else.
    fn read(&mut self) {
        let name = self.name();
        self.release();
        let newest = self.accepted.get(&name).cloned();
        let promise = self.promise(newest.as_ref().map_or(Kind::Durable, |stream| stream.kind));
        let visible = if promise == Durability::Buffered { &self.written } else { &self.durable };
        let expected = visible.get(&name).cloned();
        let grows = |old: &model::Stream, new: &model::Stream| {
            let same = (old.born, old.closed, old.soft_deleted) == (new.born, new.closed, new.soft_deleted);
            same && new.messages.starts_with(&old.messages)
        };
        let steady = match (&expected, &newest) {
            (None, None) => true,
            (Some(old), Some(new)) => grows(old, new),
            _ => false,
        };
        // An end is told when it is durable, whatever the content is.
        let ends = |stream: Option<&model::Stream>| stream.map(|s| (s.born, s.closed, s.soft_deleted));
        let ending = newest.as_ref().is_some_and(|new| new.closed || new.soft_deleted)
            && ends(self.durable.get(&name)) != ends(newest.as_ref());
        let steady = steady && !ending;
        if !steady {
            // Its life is about to change: the reply would be held.
            return;
        }
        self.check_stream(&name, expected.as_ref());
        self.check_shown();
    }

    fn check_stream(&mut self, name: &str, expected: Option<&model::Stream>) {
        let streams = Arc::clone(&self.system.streams);
        let mut content = Vec::new();
        let mut offset = "-1".to_owned();
        for _ in 0..10_000 {
            let query = format!("offset={offset}");
            let answer = send(&streams, self.now_ms, Method::Get, name, Some(&query), &[], b"");
            let Some(expected) = expected else {
                assert_eq!(answer.status, 404, "{name} is not there: {answer:?}");
                return;
            };
            if expected.soft_deleted {
                assert_eq!(answer.status, 410, "{name} is soft deleted: {answer:?}");
                return;
            }
            assert_eq!(answer.status, 200, "reading {name} at {offset}: {answer:?}");
            content.extend(unwrapped(&answer.body, expected.json));
            offset = answer.header("stream-next-offset").expect("every read has a next offset").to_owned();
            self.tell(name, &answer);
            if answer.header("stream-up-to-date").is_some() {
                assert_eq!(answer.header("stream-closed").is_some(), expected.closed, "closure of {name}");
                break;
            }
        }
        let wanted: Vec<u8> = match expected {
            Some(expected) if expected.json => expected.messages.join(&b','),
            Some(expected) => expected.messages.concat(),
            None => Vec::new(),
        };
        let content = content.strip_suffix(b",").map(<[u8]>::to_vec).unwrap_or(content);
        self.trimmed |= content.len() < wanted.len();
        assert!(
            expected.is_some_and(|expected| expected.may_hold(&content, self.now_ms)),
            "{name} holds {} bytes, {} were expected: {:?} / {:?}",
            content.len(),
            wanted.len(),
            String::from_utf8_lossy(&content),
            String::from_utf8_lossy(&wanted)
        );
    }

    /// Producer state, seen from outside: a retry of the newest request is a duplicate, one with a gap is refused.
    fn check_producers(&mut self, name: &str, expected: &model::Stream) {
        if expected.closed || expected.soft_deleted {
            return;
        }
        let streams = Arc::clone(&self.system.streams);
        for (id, (epoch, last)) in &expected.producers {
            for (seq, status) in [(*last, 204), (last + 2, 409)] {
                let (epoch, seq) = (epoch.to_string(), seq.to_string());
                let content_type = if expected.json { "application/json" } else { "text/plain" };
                let headers = [
                    ("content-type", content_type),
                    ("producer-id", id.as_str()),
                    ("producer-epoch", epoch.as_str()),
                    ("producer-seq", seq.as_str()),
                ];
                let answer = send(&streams, self.now_ms, Method::Post, name, None, &headers, b"\"retry\"");
                assert_eq!(answer.status, status, "{name}: {id} retries {epoch}/{seq}: {answer:?}");
            }
        }
    }

    fn crash(&mut self) {
        self.release();
        let power = self.upto(3) > 0;
        if power {
            self.disk.crash_power();
        } else {
            self.disk.crash_kill();
        }
        self.disk.heal();
        self.disk.lie_on_sync(self.plan.sync_lies);
        self.held.clear();
        self.unsent.clear();
        let loss = match (power && !self.plan.mark_not_applied, self.unsaid) {
            (false, _) => Loss::Nothing,
            (true, Durability::Durable) => Loss::Buffered,
            (true, Durability::Buffered) => Loss::Unsaid,
        };
        self.system = open(&self.disk, self.plan, self.unsaid, loss);
        let end = self.system.journal.durable();
        self.note(end.0);
        let promised = if power { self.promised.durable } else { self.promised.durable.max(self.promised.written) };
        assert!(promised <= end, "replies up to {promised} were sent, but only {end} has survived");
        self.losses += u64::from(self.promised.written > end);
        self.promised = Reached { written: end.min(self.promised.written), ..self.promised };
        self.advance(end.into());
        self.pending.clear();
        self.unwritten.clear();
        self.graves.clear();
        self.accepted = self.durable.clone();
        self.written = self.durable.clone();
        let mut names = Vec::new();
        let mut cursor = Some(thalweg_log::SweepCursor::default());
        while let Some(at) = cursor {
            cursor = self.system.logs.sweep(at, 1_000, &mut |_, name, _| names.push(name.to_owned()));
        }
        names.sort_unstable();
        let modelled: Vec<_> = self.accepted.keys().cloned().collect();
        assert_eq!(names, modelled, "the streams that there are after recovering to {end}");
        for (name, stream) in self.accepted.clone() {
            self.check_stream(&name, Some(&stream));
            self.check_producers(&name, &stream);
        }
        self.release();
        self.check_shown();
        assert_eq!(self.system.journal.end(), end, "looking has changed nothing");
    }
}

/// The messages of an answer as they lie in the stream: JSON without its brackets.
fn unwrapped(body: &[u8], json: bool) -> Vec<u8> {
    if !json {
        return body.to_vec();
    }
    let inner = body.strip_prefix(b"[").and_then(|b| b.strip_suffix(b"]")).expect("a JSON read is an array");
    let mut inner = inner.to_vec();
    if !inner.is_empty() {
        inner.push(b',');
    }
    inner
}

/// Where an offset lies.
fn number_of(offset: &str) -> usize {
    offset.split_once('_').and_then(|(_, number)| number.parse().ok()).expect("an offset")
}

fn open(disk: &SimDisk, plan: Plan, unsaid: Durability, loss: Loss) -> System {
    let shared: Arc<dyn thalweg_disk::Disk> = Arc::new(disk.clone());
    let storage = FileStorage::open(Arc::clone(&shared), "objects").expect("the storage opens");
    let manifest = FileManifest::open(Arc::clone(&shared), "manifest/root").expect("the manifest opens");
    let options = LogsOptions {
        chunk_bytes: CHUNK_BYTES,
        settle_bytes: 6_000,
        object_bytes: 4_000,
        fan_in: 3,
        reclaim_every_ms: 0,
        durability: unsaid,
        ..LogsOptions::default()
    };
    let mut opened = None;
    let logs = Logs::open(options, Arc::new(storage), Arc::new(manifest), loss, |bounds, replay| {
        let journal =
            FileJournal::open(Arc::clone(&shared), journal_options(plan), bounds, &mut |at, bytes| replay(at, bytes));
        let journal = Arc::new(journal.map_err(|error| error.to_string())?);
        opened = Some(Arc::clone(&journal));
        Ok(journal as Arc<dyn Journal>)
    });
    let logs = Arc::new(logs.expect("what a crash left opens"));
    let config = StreamsConfig {
        io_threads: 1,
        #[cfg(feature = "faults")]
        faults: thalweg_streams::Faults {
            retry_acknowledged_early: plan.retry_acknowledged_early,
            producer_state_in_another_frame: plan.producer_state_in_another_frame,
            close_buffered: plan.close_buffered,
        },
        ..StreamsConfig::default()
    };
    let streams = Streams::new(Arc::clone(&logs), config);
    System { journal: opened.expect("the journal was opened"), logs, streams }
}

fn journal_options(plan: Plan) -> Options {
    let options =
        Options { segment_bytes: 16 << 10, bound_bytes: 1 << 20, window_bytes: 4 << 10, ..Options::default() };
    #[cfg(feature = "faults")]
    let options = Options {
        faults: thalweg_journal::Faults {
            acknowledged_before_sync: plan.acknowledged_before_sync,
            ..Default::default()
        },
        ..options
    };
    let _ = plan;
    options
}
