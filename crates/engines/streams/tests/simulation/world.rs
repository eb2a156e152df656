//! One history: the system under test, its disk, and the model beside it.

use crate::client::{Answer, send};
use crate::model::{self, Keep, Kind, Request, Streams as Modelled, Verdict};
use oorandom::Rand32;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use thalweg_base::{Durability, Lsn, Millis, Reached, Until};
use thalweg_disk::Disk;
use thalweg_http::Method;
use thalweg_journal::{FileJournal, Journal, Options};
use thalweg_log::{FileUnit, ListOptions, Logs, LogsOptions, Loss, Scrub, When};
use thalweg_sim::SimDisk;
use thalweg_streams::{StreamState, Streams, StreamsConfig};

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
    pub(crate) round_misses_deletes: bool,
}

impl Plan {
    pub(crate) fn faulty() -> [Self; 7] {
        let none = Self::default();
        [
            Self { sync_lies: true, ..none },
            Self { acknowledged_before_sync: true, ..none },
            Self { retry_acknowledged_early: true, ..none },
            Self { producer_state_in_another_frame: true, ..none },
            Self { close_buffered: true, ..none },
            Self { mark_not_applied: true, ..none },
            Self { round_misses_deletes: true, ..none },
        ]
    }
}

/// An answer's claim about a stream.
#[derive(Clone, Debug)]
struct Shown {
    name: String,
    offset: String,
    /// The stream that the name meant. After a crash another stream may get its position, so the durability is
    /// recorded, too.
    born: u64,
    kind: Kind,
    content: Vec<u8>,
}

/// Counts of events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Crashes that took something acknowledged or shown.
    pub(crate) losses: u64,
    /// Reads that found that old content was given up.
    pub(crate) trimmed: u64,
    pub(crate) crashes_inside: u64,
    pub(crate) crashes_in_recovery: u64,
    pub(crate) meanwhile: u64,
    pub(crate) unsteady: u64,
    pub(crate) rotten: u64,
    pub(crate) refused: u64,
    /// Passes of the scrub, and passes that have found damage.
    pub(crate) passes: u64,
    pub(crate) found: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.losses += other.losses;
        self.trimmed += other.trimmed;
        self.crashes_inside += other.crashes_inside;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.meanwhile += other.meanwhile;
        self.unsteady += other.unsteady;
        self.rotten += other.rotten;
        self.refused += other.refused;
        self.passes += other.passes;
        self.found += other.found;
    }
}

pub(crate) struct System {
    disk: SimDisk,
    journal: Arc<FileJournal>,
    logs: Arc<Logs<StreamState>>,
    pub(crate) streams: Arc<Streams>,
}

impl System {
    /// Acts as the journal's writer for a waiting reader; returns whether a reader waits. A full disk gets space.
    pub(crate) fn write_for_readers(&self) -> bool {
        if self.logs.reads_waiting() == 0 {
            return false;
        }
        while matches!(self.journal.step(), Ok(true)) {}
        if self.logs.reads_waiting() > 0 {
            self.disk.capacity(1 << 40);
        }
        true
    }
}

pub(crate) struct World {
    plan: Plan,
    random: Rand32,
    disk: SimDisk,
    system: System,
    now_ms: u64,
    /// How far the clock has gone forward, jumps included, however often it was set back.
    passed_ms: u64,
    /// The disk rots now and then, and has.
    rots: bool,
    rotten: bool,
    /// The remaining data cannot be opened, and the error says so.
    over: bool,
    /// The model after everything that was accepted.
    accepted: Modelled,
    /// The model as it is once everything below a position is written, or durable, and the changes that follow, in
    /// order.
    written: Modelled,
    unwritten: Vec<(u64, Request)>,
    durable: Modelled,
    pending: Vec<(u64, Request)>,
    /// Positions that replies are held for.
    held: Vec<Until>,
    /// The highest positions that sent replies have depended on: to be written, and to be durable.
    promised: Reached,
    /// Durability of streams that request none.
    unsaid: Durability,
    /// Answers' claims about content below offsets: name, offset, content.
    shown: Vec<Shown>,
    /// The same, of answers that are not sent yet.
    unsent: Vec<(Until, Shown)>,
    /// Names of removed streams, with the position of the removal.
    tombstones: BTreeMap<String, u64>,
    names: u32,
    seen: u64,
    pub(crate) tally: Tally,
}

const CHUNK_BYTES: u64 = 200;

/// Background work during which clients send requests.
type Work = fn(&Logs<StreamState>, Millis);

impl World {
    pub(crate) fn shared(seed: u64, plan: Plan) -> Arc<Mutex<Self>> {
        let disk = SimDisk::new(seed);
        disk.lie_on_sync(plan.sync_lies);
        disk.waits(0.2);
        let unsaid = if seed.is_multiple_of(3) { Durability::Buffered } else { Durability::Durable };
        let system = open(&disk, plan, unsaid, Start::First, seed).expect("a new folder opens");
        let now_ms = 1_800_000_000_000;
        Arc::new(Mutex::new(Self {
            plan,
            random: Rand32::new(seed),
            disk,
            system,
            now_ms,
            passed_ms: 0,
            rots: seed % 5 == 4,
            rotten: false,
            over: false,
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
            tombstones: BTreeMap::new(),
            names: 0,
            seen: 0,
            tally: Tally::default(),
        }))
    }

    fn upto(&mut self, n: u32) -> u32 {
        self.random.rand_range(0..n.max(1))
    }

    fn note(&mut self, n: u64) {
        self.seen = self.seen.wrapping_mul(0x100_0000_01b3).wrapping_add(n);
    }

    pub(crate) fn step(shared: &Arc<Mutex<Self>>) {
        let mut world = shared.lock();
        if world.over {
            return;
        }
        world.pass_time();
        match world.upto(100) {
            0..53 => world.request(),
            53 => world.scrub(),
            54..61 => world.begin(),
            61..64 => world.kick(),
            64..76 => world.finish_batch(),
            76..80 => {
                drop(world);
                Self::work(shared, |logs, now| {
                    let _ = logs.settle(now, When::Now);
                });
                world = shared.lock();
            }
            80..82 => {
                drop(world);
                Self::work(shared, |logs, now| {
                    let _ = logs.merge();
                    let _ = logs.reclaim(now.plus(1_000_000));
                    check_counts(logs);
                });
                world = shared.lock();
            }
            82..85 => world.prepare(),
            85..92 => world.read(),
            92..95 => world.fail(),
            95 => world.full_disk(),
            96 => world.rot(),
            _ => world.crash(),
        }
        if world.disk.is_stopped() {
            world.tally.crashes_inside += 1;
            world.crash();
        }
        if !world.over {
            let now = Millis(world.now_ms);
            world.system.streams.tick(now);
            world.release();
        }
    }

    /// The clock advances, and sometimes jumps.
    fn pass_time(&mut self) {
        let mut forward = u64::from(self.upto(50));
        match self.upto(300) {
            0 => self.now_ms -= u64::from(self.upto(5_000)),
            1 => forward += u64::from(self.upto(5_000)),
            _ => {}
        }
        self.now_ms += forward;
        self.passed_ms += forward;
    }

    /// Runs background work: clients send requests whenever it holds no lock, the disk may fail it, the process may die
    /// in it.
    fn work(shared: &Arc<Mutex<Self>>, work: Work) {
        let (logs, now) = {
            let mut world = shared.lock();
            match world.upto(6) {
                0 => world.arm(40),
                1 => world.disk.misreads(0.1),
                _ => {}
            }
            (Arc::clone(&world.system.logs), Millis(world.now_ms))
        };
        #[cfg(feature = "faults")]
        {
            let inside = Arc::clone(shared);
            logs.interrupt(Some(Arc::new(move |moment| inside.lock().meanwhile(moment))));
        }
        work(&logs, now);
        #[cfg(feature = "faults")]
        logs.interrupt(None);
        let mut world = shared.lock();
        world.disk.misreads(0.0);
        // Results that the work relied on must be durable at once.
        if world.upto(4) == 0 && !world.disk.is_stopped() {
            world.crash();
        }
    }

    /// Events during background work.
    #[cfg(feature = "faults")]
    fn meanwhile(&mut self, moment: thalweg_log::Moment) {
        use thalweg_log::Moment::{ShardHalfTaken, ShardListed};
        // A round passes shards often, and its other steps once.
        let many = matches!(moment, ShardListed | ShardHalfTaken);
        if self.disk.is_stopped() || self.upto(if many { 8 } else { 3 }) > 0 {
            return;
        }
        self.disk.misreads(0.0);
        self.tally.meanwhile += 1;
        match self.upto(12) {
            0 => self.arm(3),
            1 => self.begin(),
            2 => self.finish_batch(),
            3 | 4 => {
                let name = self.name();
                self.perform(&Request::Delete { name });
            }
            _ => self.request(),
        }
        self.release();
    }

    /// The process dies at one of the next changes of the disk.
    fn arm(&mut self, within: u32) {
        let changes = self.upto(within);
        self.disk.stop_after(changes.into());
    }

    fn fail(&mut self) {
        match self.upto(4) {
            0 => self.disk.fail_next_write(),
            1 => self.disk.fail_next_dir_sync(),
            _ => self.disk.fail_next_sync(),
        }
    }

    /// A bit of a file flips for good.
    fn rot(&mut self) {
        let files = self.disk.files();
        if !self.rots || files.is_empty() || self.upto(3) > 0 {
            return;
        }
        let objects: Vec<&String> = files.iter().filter(|file| file.starts_with("objects/")).collect();
        let file = match objects.len() {
            0 => files[self.upto(files.len() as u32) as usize].clone(),
            n => objects[self.upto(n as u32) as usize].clone(),
        };
        let mut random = oorandom::Rand64::new(u128::from(self.seen));
        if self.disk.flip_bit(&file, &mut random).is_some() {
            self.spoiled();
            if self.upto(2) == 0 {
                self.scrub();
            }
        }
    }

    /// Scrubs everything. Undamaged data must pass; damaged data must be found, if it still exists and is needed.
    fn scrub(&mut self) {
        let (logs, now) = (Arc::clone(&self.system.logs), Millis(self.now_ms));
        let mut pass = Scrub::default();
        loop {
            match logs.scrub(&mut pass) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) if self.disk.is_stopped() => return,
                Err(error) => panic!("the disk reads: {error}"),
            }
        }
        logs.refresh_damage(now);
        let damages = logs.damages();
        assert!(self.rotten || damages.is_empty(), "nothing has rotted: {damages:?}");
        self.tally.passes += 1;
        self.tally.found += u64::from(!damages.is_empty());
        self.note(damages.len() as u64);
    }

    /// Removes a file's name. Not the last segment's: no other file may record that it existed.
    fn lose(&mut self) {
        let files = self.disk.files();
        let last = files.iter().filter(|file| file.ends_with(".seg")).max().cloned();
        let others: Vec<&String> = files.iter().filter(|file| Some(*file) != last.as_ref()).collect();
        if let Some(file) = others.get(self.random.rand_range(0..others.len().max(1) as u32) as usize)
            && self.disk.lose(file)
        {
            self.spoiled();
        }
    }

    fn spoiled(&mut self) {
        self.tally.rotten += u64::from(!self.rotten);
        self.rotten = true;
    }

    /// The final check: every promise holds.
    pub(crate) fn finish(&mut self) -> u64 {
        if !self.over {
            self.disk.heal();
            self.crash();
        }
        self.seen
    }

    fn request(&mut self) {
        let request = self.make_request();
        self.perform(&request);
    }

    fn perform(&mut self, request: &Request) {
        let answer = self.send(request);
        self.note(u64::from(answer.status) + answer.held.position().0);
        if matches!(answer.status, 500..=599) {
            // Refused for want of space or after a failed sync: it must have changed nothing.
            return;
        }
        let mut after = self.accepted.clone();
        let verdict = model::apply(&mut after, request, answer.held.position().0);
        assert_eq!(answer.status, verdict.status, "{request:?} was answered {answer:?}");
        self.check_position(request, &answer, verdict);
        if verdict.changes {
            let at = answer.held.position().0;
            self.unwritten.push((at, request.clone()));
            self.pending.push((at, request.clone()));
            let gone = self.accepted.keys().filter(|name| !after.contains_key(*name)).cloned();
            self.tombstones.extend(gone.map(|name| (name, at)));
            self.accepted = after;
        }
        self.held.push(answer.held);
        self.record_claim(request.name(), &answer);
    }

    /// Records an answer's claim about the content below its offset.
    fn record_claim(&mut self, name: &str, answer: &Answer) {
        let Some((next, stream)) = answer.header("stream-next-offset").zip(self.accepted.get(name)) else { return };
        let content = stream.content();
        let Some(content) = content.get(..number_of(next)) else { return };
        let (born, kind) = (stream.born, stream.kind);
        let shown = Shown { name: name.into(), offset: next.into(), born, kind, content: content.into() };
        self.unsent.push((answer.held, shown));
    }

    fn promise(&self, kind: Kind) -> Durability {
        match kind {
            Kind::Unsaid => self.unsaid,
            Kind::Durable => Durability::Durable,
            Kind::Buffered => Durability::Buffered,
        }
    }

    /// A reply depends on the last change of its stream: it must be held until that change has the stream's durability.
    /// Changes whose loss would be visible, such as a close, are always durable.
    fn check_position(&self, request: &Request, answer: &Answer, verdict: Verdict) {
        let reached = self.system.journal.reached();
        let needs = |until: Until| {
            let held = answer.held;
            let enough = reached.covers(until) || (held == held.and(until));
            assert!(enough, "{request:?} depends on {until:?}, reached is {reached:?}, and its reply was {answer:?}");
        };
        // Streams whose existence the answer shows.
        let told = match (request, answer.status) {
            (Request::Fork { name, source }, 200..=299) => vec![name.as_str(), source.as_str()],
            (Request::Fork { source, .. }, 404) => vec![source.as_str()],
            (Request::Fork { .. }, _) => Vec::new(),
            _ => vec![request.name()],
        };
        for grave in told.into_iter().filter_map(|name| self.tombstones.get(name)) {
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
        self.tombstones.retain(|_, at| *at > reached.durable.0);
    }

    /// Content seen below an offset must be seen again, or the offset is refused; a durable stream's offset must not
    /// be.
    fn check_shown(&mut self) {
        for Shown { name, offset, born, kind, content } in self.shown.clone() {
            let query = format!("offset={offset}");
            let answer = send(&self.system, self.now_ms, Method::Get, &name, Some(&query), &[], b"");
            if self.is_excused(&answer) {
                continue;
            }
            let there = self.accepted.get(&name);
            if answer.status == 200 {
                let there = there.map(model::Stream::content).unwrap_or_default();
                assert!(there.starts_with(&content), "{name} has other bytes below {offset}: {answer:?}");
            } else if let Some(there) = there.filter(|there| there.born == born && !there.soft_deleted) {
                let lost = self.promise(kind) == Durability::Buffered;
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
                now_ms: self.passed_ms,
            },
            4 => {
                self.names += 1;
                Request::Fork { name: format!("fork{}", self.names % 7), source: name }
            }
            5 => Request::Delete { name },
            6 => {
                let (producer, expects) = (self.producer(), self.expects(&name));
                Request::Append { name, body: Vec::new(), producer, close: true, expects, now_ms: self.passed_ms }
            }
            n => Request::Append {
                expects: self.expects(&name),
                name,
                body: self.one_message(),
                producer: if n < 14 { self.producer() } else { None },
                close: self.upto(30) == 0,
                now_ms: self.passed_ms,
            },
        }
    }

    /// Sometimes: the tag that a client expects that has seen all visible content.
    fn expects(&mut self, name: &str) -> Option<String> {
        if self.upto(5) > 0 {
            return None;
        }
        let head = send(&self.system, self.now_ms, Method::Head, name, None, &[], b"");
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
                send(&self.system, now, Method::Put, name, None, &headers, &body.concat())
            }
            Request::Fork { name, source } => {
                let source = format!("{}{source}", crate::client::ROOT);
                send(&self.system, now, Method::Put, name, None, &[("stream-forked-from", &source)], b"")
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
                send(&self.system, now, Method::Post, name, None, &headers, &body.concat())
            }
            Request::Delete { name } => send(&self.system, now, Method::Delete, name, None, &[], b""),
        }
    }

    fn begin(&mut self) {
        // A failure poisons the journal; the next crash restarts it.
        let _ = self.system.journal.begin();
    }

    /// The end of an event loop's round.
    fn kick(&mut self) {
        self.system.journal.kick();
        self.system.streams.on_durable();
    }

    fn finish_batch(&mut self) {
        if self.upto(30) == 0 {
            self.arm(4);
        }
        let _ = self.system.journal.begin();
        let _ = self.system.journal.finish();
        self.system.streams.on_durable();
    }

    fn prepare(&mut self) {
        if self.upto(8) == 0 {
            self.arm(8);
        }
        let _ = self.system.journal.prepare();
    }

    fn full_disk(&mut self) {
        let full = self.upto(2) == 0;
        let used: u64 = self.disk.cached().values().map(|bytes| bytes.len() as u64).sum();
        self.disk.capacity(if full { used + 2_000 } else { 1 << 40 });
    }

    /// Reads a stream whole, and compares it with the model's visible content.
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
        // A close is shown when it is durable, independently of the content's durability.
        let ends = |stream: Option<&model::Stream>| stream.map(|s| (s.born, s.closed, s.soft_deleted));
        let ending = newest.as_ref().is_some_and(|new| new.closed || new.soft_deleted)
            && ends(self.durable.get(&name)) != ends(newest.as_ref());
        let steady = steady && !ending;
        if !steady {
            return self.read_unsteady(&name, newest.as_ref(), promise);
        }
        self.check_stream(&name, expected.as_ref());
        self.check_shown();
    }

    /// The stream's life is about to change: the answer is that of the newest state, and held until that is as safe as
    /// promised.
    fn read_unsteady(&mut self, name: &str, newest: Option<&model::Stream>, promise: Durability) {
        self.tally.unsteady += 1;
        let answer = send(&self.system, self.now_ms, Method::Get, name, Some("offset=-1"), &[], b"");
        if self.is_excused(&answer) || (self.system.journal.poisoned().is_some() && answer.status >= 500) {
            return;
        }
        let status = match newest {
            None => 404,
            Some(stream) if stream.soft_deleted => 410,
            Some(_) => 200,
        };
        assert_eq!(answer.status, status, "{name} is {newest:?}: {answer:?}");
        let Some(newest) = newest.filter(|_| status == 200) else { return };
        let all = unwrapped(&answer.body, newest.json);
        assert!(newest.shortened || newest.content().starts_with(&all), "{name} holds {newest:?}: {answer:?}");
        let held = Until::of(promise, Lsn(newest.born));
        let enough = self.system.journal.reached().covers(held) || answer.held == answer.held.and(held);
        assert!(enough, "a read of {name} depends on {held:?}: {answer:?}");
        self.record_claim(name, &answer);
        self.release();
    }

    /// Damaged content may be refused, and a dead process gives no content.
    fn is_excused(&mut self, answer: &Answer) -> bool {
        let rotten = self.rotten && answer.status == 500;
        if rotten {
            let known = self.system.logs.damage_stats().total() > 0;
            assert!(known, "a read is refused, and nobody knows of damage: {answer:?}");
        }
        self.tally.refused += u64::from(rotten);
        rotten || (self.disk.is_stopped() && answer.status >= 500)
    }

    fn check_stream(&mut self, name: &str, expected: Option<&model::Stream>) {
        let mut content = Vec::new();
        let mut offset = "-1".to_owned();
        for _ in 0..10_000 {
            let query = format!("offset={offset}");
            let answer = send(&self.system, self.now_ms, Method::Get, name, Some(&query), &[], b"");
            if self.is_excused(&answer) {
                return;
            }
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
            self.record_claim(name, &answer);
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
        self.tally.trimmed += u64::from(content.len() < wanted.len());
        assert!(
            expected.is_some_and(|expected| expected.may_hold(&content, self.passed_ms)),
            "{name} holds {} bytes, {} were expected: {:?} / {:?}; {} ms have passed: {expected:?}",
            content.len(),
            wanted.len(),
            String::from_utf8_lossy(&content),
            String::from_utf8_lossy(&wanted),
            self.passed_ms
        );
    }

    /// Producer state, seen from outside: a retry of the newest request is a duplicate, one with a gap is refused.
    fn check_producers(&mut self, name: &str, expected: &model::Stream) {
        if expected.closed || expected.soft_deleted {
            return;
        }
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
                let answer = send(&self.system, self.now_ms, Method::Post, name, None, &headers, b"\"retry\"");
                assert_eq!(answer.status, status, "{name}: {id} retries {epoch}/{seq}: {answer:?}");
            }
        }
    }

    /// The process or the machine goes down, perhaps again while it recovers; whether the machine did.
    fn go_down(&mut self) -> bool {
        let power = self.upto(3) > 0;
        if power {
            self.disk.crash_power();
        } else {
            self.disk.crash_kill();
        }
        self.disk.heal();
        self.disk.lie_on_sync(self.plan.sync_lies);
        if self.rots && self.upto(12) == 0 {
            self.lose();
        }
        power
    }

    fn crash(&mut self) {
        self.release();
        self.held.clear();
        self.unsent.clear();
        let mut power = self.go_down();
        loop {
            let loss = match (power && !self.plan.mark_not_applied, self.unsaid) {
                (false, _) => Loss::Nothing,
                (true, Durability::Durable) => Loss::Buffered,
                (true, Durability::Buffered) => Loss::Unsaid,
            };
            match self.upto(8) {
                0 => self.arm(20),
                1 => self.disk.fail_next_dir_sync(),
                2 => self.disk.fail_next_sync(),
                3 => self.disk.fail_next_read(),
                _ => {}
            }
            let salt = u64::from(self.random.rand_u32());
            let opened = open(&self.disk, self.plan, self.unsaid, Start::After(loss), salt);
            let failing = self.disk.take_armed();
            match opened {
                Ok(system) if !self.disk.is_stopped() => {
                    self.system = system;
                    break;
                }
                Err(error) if self.rotten && !self.disk.is_stopped() && !failing => {
                    // The error is reported, and later steps change nothing.
                    self.tally.refused += 1;
                    self.over = true;
                    self.note(error.len() as u64);
                    return;
                }
                Err(error) if !self.disk.is_stopped() && !failing => {
                    panic!("the state after a crash is refused: {error}")
                }
                _ => {
                    self.tally.crashes_in_recovery += 1;
                    power |= self.go_down();
                }
            }
        }
        let end = self.system.journal.durable();
        self.note(end.0);
        let promised = if power { self.promised.durable } else { self.promised.durable.max(self.promised.written) };
        assert!(promised <= end, "replies up to {promised} were sent, but only {end} has survived");
        self.tally.losses += u64::from(self.promised.written > end);
        self.promised = Reached { written: end.min(self.promised.written), ..self.promised };
        self.advance(end.into());
        self.pending.clear();
        self.unwritten.clear();
        self.tombstones.clear();
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

/// The recorded numbers of live bytes must equal the sums over all objects' indexes, as far as these can be read.
fn check_counts(logs: &Logs<StreamState>) {
    #[cfg(feature = "faults")]
    if let Ok((wrong, _)) = logs.miscounted() {
        assert!(wrong.is_empty(), "objects with their kept and their real number of live bytes: {wrong:?}");
    }
    let _ = logs;
}

/// Where an offset lies.
fn number_of(offset: &str) -> usize {
    offset.split_once('_').and_then(|(_, number)| number.parse().ok()).expect("an offset")
}

/// The folder's known state before it is opened.
#[derive(Clone, Copy)]
enum Start {
    First,
    /// A server has run on it, and may have lost this.
    After(Loss),
}

fn open(disk: &SimDisk, plan: Plan, unsaid: Durability, start: Start, salt: u64) -> Result<System, String> {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let loss = match start {
        Start::First => Loss::Nothing,
        // As in the server: for a unit without objects and durable batches nothing else records that its root was lost.
        Start::After(_) if !has_root(&shared)? => {
            return Err("the root is missing, but a server has run on this folder".into());
        }
        Start::After(loss) => loss,
    };
    let options = LogsOptions {
        chunk_bytes: CHUNK_BYTES,
        settle_bytes: 6_000,
        object_bytes: 4_000,
        fan_in: 3,
        reclaim_every_ms: 0,
        lists: if salt.is_multiple_of(2) {
            ListOptions { root_bytes: 200, page_objects: 2 }
        } else {
            ListOptions::default()
        },
        durability: unsaid,
        #[cfg(feature = "faults")]
        faults: thalweg_log::Faults { round_misses_deletes: plan.round_misses_deletes, ..Default::default() },
        ..LogsOptions::default()
    };
    let journal = Options { salt, ..journal_options(plan) };
    let FileUnit { journal, logs, .. } =
        FileUnit::open(shared, journal, options, loss).map_err(|error| error.to_string())?;
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
    Ok(System { disk: disk.clone(), journal, logs, streams })
}

/// Checks only that the file exists, as the server does: opening reads it.
fn has_root(disk: &Arc<dyn Disk>) -> Result<bool, String> {
    match disk.open(thalweg_log::MANIFEST) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.to_string()),
    }
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
