//! Two workers that claim, acknowledge, release or forget their claims.
//!
//! One of them at a time holds a claim, generations only grow, a claim whose time is not over is honoured also after a
//! crash, one that was overtaken is fenced for ever, and acknowledged offsets stay acknowledged.

use super::consumer::{Consumer, Offer, fetch};
use super::{LEASE, Ledger, SUBSCRIPTIONS, WAKE_STREAM, wait_for};
use crate::http::{Answer, Request};
use crate::session::{Down, Session};
use crate::tokens::ADMIN;
use crate::world::{Sabotage, World};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between the server's clock for leases and ours.
const MARGIN: Duration = Duration::from_millis(200);

#[derive(Clone, serde::Deserialize)]
struct Claim {
    wake_id: String,
    generation: u64,
    token: String,
    streams: Vec<Offer>,
}

struct Known {
    consumer: Consumer,
    /// Of the newest claim.
    generation: u64,
    /// Until when no other worker may hold a claim, as far as is known.
    held_until: Option<Instant>,
}

struct Pull {
    known: Mutex<Known>,
    through: AtomicBool,
}

impl Pull {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn start(
    world: &Arc<World>,
    ledger: &Arc<Ledger>,
    ready: &Arc<AtomicBool>,
    seed: u64,
) -> Vec<JoinHandle<()>> {
    let known = Known { consumer: Consumer::default(), generation: 0, held_until: None };
    let pull = Arc::new(Pull { known: Mutex::new(known), through: AtomicBool::new(false) });
    let mut threads = Vec::new();
    for (number, name) in ["one", "two"].into_iter().enumerate() {
        let (world, pull, ready) = (Arc::clone(world), Arc::clone(&pull), Arc::clone(ready));
        let rng = oorandom::Rand64::new(u128::from(seed) * 7 + 900 + number as u128);
        threads.push(std::thread::spawn(move || {
            while !ready.load(Ordering::Acquire) && world.report.clean() && !pull.through.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let (claims, reads) = (Session::new(&world, ADMIN), Session::new(&world, "pull"));
            Worker { pull: &pull, claims, reads, name, rng, old: None }.work();
        }));
    }
    let (world, ledger) = (Arc::clone(world), Arc::clone(ledger));
    threads.push(std::thread::spawn(move || {
        let missing = || ledger.missing("crash/pull/", |name| pull.known().consumer.processed(name));
        let told = wait_for(&world, &ledger, "the worker that claims", missing);
        pull.through.store(true, Ordering::Release);
        if told {
            world.report.count("workers told of everything");
            compare_wakes(&world);
        }
    }));
    threads
}

/// The wake stream tells every generation once, in order.
fn compare_wakes(world: &World) {
    let mut session = Session::new(world, ADMIN);
    let (mut at, mut last) = ("-1".to_owned(), 0);
    loop {
        let path = format!("/v1/stream/{WAKE_STREAM}?offset={at}");
        let Ok(answer) = session.call(&Request::get(&path)) else { return };
        let events: Vec<Value> = serde_json::from_slice(&answer.body).unwrap_or_default();
        for event in &events {
            let generation = event["generation"].as_u64().unwrap_or(0);
            if generation <= last {
                return world.violation(format!("the wake stream tells generation {generation} after {last}"));
            }
            last = generation;
        }
        world.report.add("wake events compared", events.len() as u64);
        if answer.is_true("stream-up-to-date") || answer.status != 200 {
            return;
        }
        at = answer.position().unwrap_or_default();
    }
}

struct Worker<'a> {
    pull: &'a Pull,
    /// The session that claims, with the operator's token, and the one that reads.
    claims: Session<'a>,
    reads: Session<'a>,
    name: &'static str,
    rng: oorandom::Rand64,
    /// A claim that was forgotten, to be fenced later.
    old: Option<Claim>,
}

impl Worker<'_> {
    fn work(&mut self) {
        let world = self.claims.world;
        while world.report.clean() && !self.pull.through.load(Ordering::Acquire) {
            if self.step().is_err() && !self.claims.revive() {
                return;
            }
            std::thread::sleep(Duration::from_millis(self.rng.rand_range(5..60)));
        }
    }

    fn step(&mut self) -> Result<(), Down> {
        self.try_the_old_one()?;
        let world = self.claims.world;
        let body = json!({ "worker": self.name }).to_string();
        let request = Request::new("POST", &format!("{SUBSCRIPTIONS}/pull/claim"), &[], body.as_bytes());
        let asked = Instant::now();
        let answer = self.claims.call(&request)?;
        let granted = Instant::now();
        match answer.status {
            200 => {}
            409 | 503 => return Ok(()),
            status => {
                world.violation(format!("{}: {status} {:?}", request.line, answer.text()));
                return Ok(());
            }
        }
        let claim: Claim = match serde_json::from_slice(&answer.body) {
            Ok(claim) => claim,
            Err(error) => {
                world.violation(format!("a claim is not as it should be: {error}: {:?}", answer.text()));
                return Ok(());
            }
        };
        world.report.count("claims");
        {
            let mut known = self.pull.known();
            // Its lease ended before this check: another one may have been granted and noted since.
            if asked.elapsed() + MARGIN > LEASE {
                return Ok(());
            }
            if claim.generation <= known.generation {
                world.violation(format!("generation {} is claimed after {}", claim.generation, known.generation));
            }
            if known.held_until.is_some_and(|until| granted + MARGIN < until) {
                world.violation(format!("generation {} is claimed while another claim is held", claim.generation));
            }
            known.generation = claim.generation;
            known.held_until = Some(asked + LEASE);
            if let Err(what) =
                claim.streams.iter().try_for_each(|offer| known.consumer.offered(offer, claim.generation))
            {
                world.violation(format!("claim: {what}"));
            }
        }
        let mood = match (world.over(), world.plans(Sabotage::Unfenced)) {
            (true, _) => 0,
            (_, true) => 99,
            _ => self.rng.rand_range(0..100),
        };
        match mood {
            0..65 => {
                self.process(&claim)?;
                self.acknowledge(&claim, "ack", asked + LEASE, true)?;
            }
            65..82 => {
                self.process(&claim)?;
                // A sign of life first, which moves the cursors, and gives more time.
                let again = Instant::now();
                if self.acknowledge(&claim, "ack", asked + LEASE, false)? {
                    self.pull.known().held_until = Some(again + LEASE);
                    self.acknowledge(&claim, "ack", again + LEASE, true)?;
                }
            }
            82..94 => {
                self.acknowledge(&claim, "release", asked + LEASE, true)?;
            }
            // Its time has to end.
            _ => self.old = Some(claim),
        }
        Ok(())
    }

    fn process(&mut self, claim: &Claim) -> Result<(), Down> {
        for offer in &claim.streams {
            let (first, next) = fetch(&mut self.reads, offer)?;
            if let Err(what) = self.pull.known().consumer.process(&offer.path, first, next) {
                self.claims.world.violation(format!("claim: {what}"));
            }
        }
        Ok(())
    }

    fn send(&mut self, claim: &Claim, route: &str, done: bool) -> Result<Answer, Down> {
        let acks: Vec<Value> = match route {
            "ack" => claim.streams.iter().map(|s| json!({ "stream": s.path, "offset": s.tail_offset })).collect(),
            _ => Vec::new(),
        };
        let body = json!({ "wake_id": claim.wake_id, "generation": claim.generation, "acks": acks, "done": done });
        let token = format!("Bearer {}", claim.token);
        let headers = [("authorization", token.as_str())];
        let request =
            Request::new("POST", &format!("{SUBSCRIPTIONS}/pull/{route}"), &headers, body.to_string().as_bytes());
        self.claims.ask(&request)
    }

    /// Acknowledges or releases a claim that is held until then; whether that was taken.
    fn acknowledge(&mut self, claim: &Claim, route: &str, until: Instant, done: bool) -> Result<bool, Down> {
        let world = self.claims.world;
        {
            let mut known = self.pull.known();
            if route == "ack" {
                claim.streams.iter().for_each(|offer| known.consumer.tells(&offer.path, &offer.tail_offset));
            }
            // From here on another one may get it.
            if done {
                known.held_until = None;
            }
        }
        let answer = self.send(claim, route, done)?;
        match answer.status {
            200 | 204 => {
                let mut known = self.pull.known();
                if route == "ack" {
                    for offer in &claim.streams {
                        known.consumer.confirm(&offer.path, &offer.tail_offset, claim.generation);
                    }
                }
                world.report.count(if route == "ack" { "claims acknowledged" } else { "claims released" });
                return Ok(true);
            }
            409 if Instant::now() + MARGIN < until => world.violation(format!(
                "{route} of generation {} is fenced although its time is not over: {:?}",
                claim.generation,
                answer.text()
            )),
            409 | 503 => {}
            status => world.violation(format!("{route} of a claim: {status} {:?}", answer.text())),
        }
        Ok(false)
    }

    /// A fenced claim has no effect.
    fn try_the_old_one(&mut self) -> Result<(), Down> {
        let world = self.claims.world;
        let overtaken = |old: &mut Claim| self.pull.known().generation > old.generation;
        let spoil = self.old.is_some() && world.sabotage(Sabotage::Unfenced);
        let old = if spoil { self.old.take() } else { self.old.take_if(overtaken) };
        let Some(old) = old else { return Ok(()) };
        let answer = self.send(&old, "ack", true)?;
        match answer.status {
            409 => world.report.count("old claims fenced"),
            503 => {}
            status => world.violation(format!(
                "generation {} was overtaken, but its acknowledgement is answered {status} {:?}",
                old.generation,
                answer.text()
            )),
        }
        Ok(())
    }
}
