//! Clients: each is a producer that appends to every stream, asks any node, repeats what was not answered, and reads.

use super::machine::{Answer, Asked, Call, Slot};
use super::oracle::Offset;
use super::world::{CLIENTS, MACHINES, World};
use std::sync::Arc;
use std::time::Duration;
use thalweg_sim::Rand64;

const ROOT: &str = "/v1/stream/";

pub(super) struct Client {
    world: Arc<World>,
    number: u64,
    random: Rand64,
    /// The machine that answered last.
    favourite: usize,
    streams: Vec<Followed>,
}

/// A stream as this client follows it.
struct Followed {
    name: String,
    unit: u64,
    is_made: bool,
    /// The number of its next append.
    seq: u64,
    at: Option<Offset>,
}

impl Client {
    pub(super) fn begin(world: &Arc<World>, number: u64, streams: &[(String, u64)]) {
        let random = Rand64::new(u128::from(world.random()));
        let streams = streams.iter().map(|(name, unit)| Followed {
            name: name.clone(),
            unit: *unit,
            is_made: false,
            seq: 0,
            at: None,
        });
        let mut client = Self { world: Arc::clone(world), number, random, favourite: 0, streams: streams.collect() };
        world.scheduler.spawn(CLIENTS, "client", move || client.run());
    }

    fn pick(&mut self, n: u64) -> u64 {
        self.random.rand_range(0..n)
    }

    fn think(&mut self) {
        let think = self.world.conditions.think_ms;
        let time = self.pick(2 * think) + 1;
        self.world.scheduler.sleep(Duration::from_millis(time));
    }

    fn run(&mut self) {
        while !self.world.is_healing() {
            self.think();
            let at = self.pick(self.streams.len() as u64) as usize;
            match self.pick(10) {
                0..5 => drop(self.append(at)),
                5 => {
                    // From the start.
                    self.streams[at].at = None;
                    self.read(at);
                }
                _ => drop(self.read(at)),
            }
        }
        // Everything works again: each stream takes another append, and gives all of its content.
        for at in 0..self.streams.len() {
            while !self.append(at) {
                self.think();
            }
        }
        self.read_all();
        self.world.note_done();
        while !self.world.is_fresh() {
            self.think();
        }
        self.read_all();
        self.world.note_done();
    }

    fn read_all(&mut self) {
        for at in 0..self.streams.len() {
            self.streams[at].at = None;
            while !self.read(at) {
                self.think();
            }
        }
    }

    /// Asks a machine; `None`: nobody answered in time.
    fn send(&mut self, call: Call) -> Option<Answer> {
        self.send_all(vec![call]).pop().flatten()
    }

    /// Asks a machine several things, one after the other, and waits for all answers.
    fn send_all(&mut self, calls: Vec<Call>) -> Vec<Option<Answer>> {
        let to = if self.pick(2) == 0 { self.favourite } else { self.pick(MACHINES as u64) as usize };
        let there = Duration::from_micros(500 + self.pick(5_000));
        let back = Duration::from_micros(500 + self.pick(5_000));
        let scheduler = self.world.scheduler.clone();
        scheduler.sleep(there);
        let due = scheduler.now();
        let Some(life) = self.world.life(to) else { return vec![None; calls.len()] };
        let ask = |call| {
            let slot = Slot::default();
            life.ask(Asked { due, call, slot: Arc::clone(&slot), is_sent_on: false });
            slot
        };
        let slots: Vec<Slot> = calls.into_iter().map(ask).collect();
        drop(life);
        let until = due + self.world.conditions.patience;
        loop {
            let left = until.saturating_sub(scheduler.now());
            if left.is_zero() || slots.iter().all(|slot| slot.lock().is_some()) {
                break;
            }
            scheduler.wait(left);
        }
        scheduler.sleep(back);
        let answers: Vec<Option<Answer>> = slots.iter().map(|slot| slot.lock().take()).collect();
        for answer in answers.iter().flatten().filter(|answer| answer.status < 400) {
            self.favourite = answer.by;
        }
        let is_one = |answer: &Answer| !matches!(answer.status, 421 | 500..);
        answers.into_iter().map(|answer| answer.filter(is_one)).collect()
    }

    fn call(&self, at: usize, method: &'static str) -> Call {
        let Followed { name, unit, .. } = &self.streams[at];
        let headers = vec![("content-type", "text/plain".to_owned())];
        Call { unit: *unit, method, path: format!("{ROOT}{name}"), query: None, headers, body: Vec::new() }
    }

    /// Makes the stream, if this client does not know that it is there; whether it is.
    fn make(&mut self, at: usize) -> bool {
        if self.streams[at].is_made {
            return true;
        }
        let call = self.call(at, "PUT");
        let Some(answer) = self.send(call) else { return false };
        assert!(matches!(answer.status, 200 | 201), "making {}: {answer:?}", self.streams[at].name);
        self.streams[at].is_made = true;
        true
    }

    /// The producer's append of this number.
    fn message(&self, seq: u64) -> String {
        let padding = (seq * 7 + self.number * 31) % 90;
        format!("{}.{seq}.{}\n", self.number, "x".repeat(padding as usize))
    }

    /// Appends some messages, or repeats those that were not acknowledged; whether all were.
    fn append(&mut self, at: usize) -> bool {
        if !self.make(at) {
            return false;
        }
        let (first, name) = (self.streams[at].seq, self.streams[at].name.clone());
        let burst = 1 + self.pick(self.world.conditions.burst_max);
        let call = |seq: u64| {
            let mut call = self.call(at, "POST");
            call.headers.push(("producer-id", format!("client{}", self.number)));
            call.headers.push(("producer-epoch", "0".into()));
            call.headers.push(("producer-seq", seq.to_string()));
            call.body = self.message(seq).into_bytes();
            call
        };
        let calls: Vec<Call> = (first..first + burst).map(call).collect();
        let answers = self.send_all(calls);
        for (seq, answer) in (first..).zip(answers) {
            let Some(answer) = answer else { continue };
            // The one before was not accepted, or by an owner that was deposed.
            if answer.status == 409 && answer.header("producer-expected-seq").is_some() && seq > first {
                continue;
            }
            let message = self.message(seq);
            let next = answer.header("stream-next-offset").map(Offset::parse);
            let (200 | 204, Some(next)) = (answer.status, next) else {
                panic!("the append {message:?} to {name} was answered with {answer:?}");
            };
            self.world.say(|| format!("{name} has {message:?} at {}, says {}", next.text, answer.by));
            self.world.note_acknowledged(answer.status == 204);
            let is_new = answer.status == 200;
            self.world.oracle.lock().stream(&name).acknowledge(&name, &message, &next, is_new);
            if seq == self.streams[at].seq {
                self.streams[at].seq += 1;
            }
        }
        self.streams[at].seq == first + burst
    }

    /// Reads to the end; whether it was reached.
    fn read(&mut self, at: usize) -> bool {
        if !self.make(at) {
            return false;
        }
        let name = self.streams[at].name.clone();
        for _ in 0..1_000 {
            let from = self.streams[at].at.clone();
            let mut call = self.call(at, "GET");
            call.headers.clear();
            call.query = Some(format!("offset={}", from.as_ref().map_or("-1", |from| &from.text)));
            let least = self.world.oracle.lock().stream(&name).least();
            let Some(answer) = self.send(call) else { return false };
            let next = answer.header("stream-next-offset").map(Offset::parse);
            let (200, Some(next)) = (answer.status, next) else {
                panic!("a read of {name} from {from:?} was answered with {answer:?}");
            };
            let is_end = answer.header("stream-up-to-date") == Some("true");
            self.world.say(|| format!("{name} is read up to {}, by {}, end {is_end}", next.text, answer.by));
            let mut oracle = self.world.oracle.lock();
            let stream = oracle.stream(&name);
            stream.read(&name, from.map_or(0, |from| from.at), &answer.body, &next);
            if is_end {
                stream.reached(&name, least, next.at, &format!("machine {}", answer.by));
            }
            drop(oracle);
            self.streams[at].at = Some(next);
            if is_end {
                self.world.note_read();
                return true;
            }
        }
        panic!("{name} has no end");
    }
}
