//! Subscriptions: a feeder writes to streams, a webhook receiver and two claiming workers are told of it.
//!
//! Whatever the feeder got acknowledged must reach both kinds of consumer, in order per stream, at least once, and no
//! cursor that was acknowledged may go back.

mod consumer;
mod pull;
mod receiver;
mod webhook;

use crate::http::Request;
use crate::numbered::Numbered;
use crate::session::{Down, Session};
use crate::tokens::ADMIN;
use crate::world::{Sabotage, World};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SUBSCRIPTIONS: &str = "/v1/stream/__ds/subscriptions";
const WAKE_STREAM: &str = "crash/wake";
/// How long a claim and a wake without an answer last. The least that there is is a second.
const LEASE: Duration = Duration::from_millis(1500);
/// For outstanding wakes after the last append: a failed delivery may wait a minute for its next attempt.
const PATIENCE: Duration = Duration::from_secs(150);
/// Streams that one consumer is told of.
const STREAMS: usize = 12;

/// The feeder's acknowledged appends.
#[derive(Default)]
pub(crate) struct Ledger {
    /// By name: how many lines are there.
    lines: Mutex<BTreeMap<String, u64>>,
    /// The same, in the order in which it was acknowledged: each was sent after the one before it was answered.
    history: Mutex<Vec<(String, u64)>>,
    /// There will be no more.
    complete: AtomicBool,
}

impl Ledger {
    fn note(&self, name: &str, lines: u64) {
        let mut known = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(name.to_owned(), lines) != Some(lines) {
            self.history.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), lines));
        }
    }

    pub(crate) fn lines(&self) -> BTreeMap<String, u64> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn history(&self) -> Vec<(String, u64)> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lines below `prefix` that a consumer misses, once the ledger is complete.
    fn missing(&self, prefix: &str, processed: impl Fn(&str) -> u64) -> Vec<String> {
        let lines = self.lines();
        let missing = lines.iter().filter(|(name, lines)| name.starts_with(prefix) && processed(name) < **lines);
        missing.map(|(name, lines)| format!("{name}: {} of {lines} lines", processed(name))).collect()
    }
}

pub(crate) fn start(world: &Arc<World>, ledger: &Arc<Ledger>, seed: u64) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let hooks = Arc::new(webhook::Hooks::new(seed));
    let (url, receiving) = receiver::start(world, &hooks)?;
    let ready = Arc::new(AtomicBool::new(false));
    let mut threads = vec![receiving];
    {
        let (world, ledger, ready) = (Arc::clone(world), Arc::clone(ledger), Arc::clone(&ready));
        threads.push(std::thread::spawn(move || {
            if subscribe(&world, &url) {
                ready.store(true, Ordering::Release);
                feed(&world, &ledger, seed);
            }
            ledger.complete.store(true, Ordering::Release);
        }));
    }
    threads.extend(pull::start(world, ledger, &ready, seed));
    let (world, ledger) = (Arc::clone(world), Arc::clone(ledger));
    threads.push(std::thread::spawn(move || hooks.see_to_the_end(&world, &ledger)));
    Ok(threads)
}

/// Makes the subscriptions and the wake stream, again until they are answered. Whether they are there.
fn subscribe(world: &World, url: &str) -> bool {
    let mut session = Session::new(world, ADMIN);
    let lease = u64::try_from(LEASE.as_millis()).unwrap_or(1500);
    let hook =
        json!({ "type": "webhook", "pattern": "crash/hook/*", "webhook": { "url": url }, "lease_ttl_ms": lease });
    let pull =
        json!({ "type": "pull-wake", "pattern": "crash/pull/*", "wake_stream": WAKE_STREAM, "lease_ttl_ms": lease });
    let wake = format!("/v1/stream/{WAKE_STREAM}");
    let requests = [
        Request::new("PUT", &wake, &[("content-type", "application/json")], &[]),
        Request::new("PUT", &format!("{SUBSCRIPTIONS}/hook"), &[], hook.to_string().as_bytes()),
        Request::new("PUT", &format!("{SUBSCRIPTIONS}/pull"), &[], pull.to_string().as_bytes()),
    ];
    for request in &requests {
        loop {
            match session.call(request) {
                Ok(answer) if matches!(answer.status, 200 | 201) => break,
                Ok(answer) if answer.status == 503 => std::thread::sleep(Duration::from_millis(20)),
                Ok(answer) => {
                    world.violation(format!("{}: {} {:?}", request.line, answer.status, answer.text()));
                    return false;
                }
                Err(Down) if !session.revive() => return false,
                Err(Down) => {}
            }
        }
    }
    true
}

/// Writes numbered lines to streams of both consumers, one request after the other.
fn feed(world: &World, ledger: &Ledger, seed: u64) {
    let mut rng = oorandom::Rand64::new(u128::from(seed) + 60_606);
    let (mut hooks, mut pulls) = (Session::new(world, "hook"), Session::new(world, "pull"));
    let mut streams: Vec<Numbered> = Vec::new();
    let mut name_of_next = 0;
    loop {
        let over = world.over();
        if !world.report.clean() {
            return;
        }
        if !over && streams.len() < 2 * STREAMS && (streams.len() < 4 || rng.rand_float() < 0.01) {
            let place = if name_of_next % 2 == 0 { "hook" } else { "pull" };
            streams.push(Numbered::new(format!("/v1/stream/crash/{place}/s{name_of_next}"), Vec::new()));
            name_of_next += 1;
        }
        let unsettled = streams.iter().position(|stream| stream.acknowledged < stream.next);
        let which = unsettled.unwrap_or_else(|| usize::try_from(rng.rand_range(0..streams.len() as u64)).unwrap_or(0));
        if over && unsettled.is_none() {
            break;
        }
        let stream = &mut streams[which];
        let session = if stream.path.contains("/hook/") { &mut hooks } else { &mut pulls };
        let more = if unsettled.is_some() { 0 } else { rng.rand_range(1..4) };
        let outcome = stream.write(session, more);
        let name = stream.path.trim_start_matches("/v1/stream/");
        if stream.acknowledged > 0 {
            ledger.note(name, stream.acknowledged);
        }
        if outcome.is_err() && !session.revive() {
            return;
        }
        std::thread::sleep(Duration::from_millis(rng.rand_range(1..20)));
    }
    if world.sabotage(Sabotage::Unannounced) {
        ledger.note("crash/hook/never", 1);
    }
}

/// Waits until `missing` is empty; the rest after a long time is a violation.
fn wait_for(world: &World, ledger: &Ledger, what: &str, missing: impl Fn() -> Vec<String>) -> bool {
    while !ledger.complete.load(Ordering::Acquire) {
        if !world.report.clean() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let patience = if world.is_spoiled() { Duration::from_secs(5) } else { PATIENCE };
    let began = Instant::now();
    while world.report.clean() {
        let left = missing();
        if left.is_empty() {
            return true;
        }
        if began.elapsed() > patience {
            world.violation(format!("{what} was never told of {}", left.join(", ")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
