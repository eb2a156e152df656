//! The scrub of a running server: reads all stored data back in a cycle, and reports damage to administrators.
//!
//! | request | answer |
//! |---|---|
//! | `POST /v1/admin/check` | asks for a full pass, which reads without pauses: 202 and its number |
//! | `GET /v1/admin/check` | 200: how far the pass is, and all damage that is known, with the names of streams |
//!
//! One job takes all steps and does all work that waits for a disk. The register of each kernel unit has the damage.

use crate::background;
use crate::listed::{Counts, Listed, Progress};
use crate::{Unit, UnitLogs};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thalweg_base::Millis;
use thalweg_http::{Method, Request, Response};
use thalweg_log::{DamageStats, Scrub};
use thalweg_rounds::{Behind, Done as Turn, Handle, Kind, Next, Rounds};

/// The path of these requests.
pub const SERVED: &str = "/v1/admin/check";

/// How often known damage is checked: where it is, and whether any live data still needs it.
const REFRESH_EVERY: Duration = Duration::from_millis(500);
/// How many unreadable places of one pass are listed: more are only counted.
const UNCHECKED_MAX: usize = 16;
/// A requested pass is not held up by the budget of long work.
const URGENT: Behind = Behind::BOUND;

/// The progress of passes, and the requests for them.
#[derive(Clone, Debug, Default)]
struct State {
    /// Number of requested full passes.
    asked: u64,
    /// Requests up to this one are answered by a pass that has ended.
    finished: u64,
    running: bool,
    read_bytes: u64,
    total_bytes: u64,
    /// Since the start.
    passes: u64,
    last_end: Option<Millis>,
    /// Places that the last pass could not read.
    unchecked: Vec<String>,
    unchecked_more: u64,
}

/// Numbers of one unit, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Bytes read since the start.
    pub bytes: u64,
    /// Times that all of the unit was read.
    pub passes: u64,
    /// When that was last done, in Unix time in seconds; zero before.
    pub last_end_seconds: f64,
    /// Places that are known to be damaged now.
    pub damage: DamageStats,
}

/// The scrubbed units, and the progress.
pub struct Scrubs {
    units: Vec<Scrubbed>,
    state: Mutex<State>,
    /// Nudged when a pass is requested, and when damage is met, once the job exists.
    job: OnceLock<Handle>,
}

struct Scrubbed {
    /// Below the data folder.
    folder: &'static str,
    logs: Arc<dyn UnitLogs>,
    done: Mutex<Done>,
}

/// Bytes and objects of one unit that were read since the start.
#[derive(Clone, Copy, Default)]
struct Done {
    bytes: u64,
    passes: u64,
    last_end: Option<Millis>,
}

impl Scrubs {
    /// Nothing is read yet.
    pub fn of(units: &[Unit]) -> Self {
        let scrubbed =
            |unit: &Unit| Scrubbed { folder: unit.folder, logs: Arc::clone(&unit.logs), done: Mutex::default() };
        Self { units: units.iter().map(scrubbed).collect(), state: Mutex::default(), job: OnceLock::new() }
    }

    /// Damage of all units.
    pub fn damage(&self) -> DamageStats {
        self.units.iter().fold(DamageStats::default(), |sum, unit| sum.plus(&unit.logs.damage_stats()))
    }

    /// Figures of each unit, in the order of the units.
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of this era fit")]
    pub fn stats(&self) -> impl Iterator<Item = Stats> + '_ {
        self.units.iter().map(|unit| {
            let Done { bytes, passes, last_end } = *unit.done.lock();
            let last_end_seconds = last_end.map_or(0.0, |end| end.0 as f64 / 1e3);
            Stats { bytes, passes, last_end_seconds, damage: unit.logs.damage_stats() }
        })
    }

    /// Answers requests for [`SERVED`]. Never waits.
    pub fn handle(&self, request: &Request<'_>) -> Response {
        match request.method {
            Method::Post => {
                let mut state = self.state.lock();
                state.asked += 1;
                if let Some(job) = self.job.get() {
                    job.nudge_behind(URGENT);
                }
                answer(202, &json!({ "pass": state.asked }))
            }
            Method::Get => match serde_json::to_value(self.progress()) {
                Ok(progress) => answer(200, &progress),
                Err(error) => answer(500, &json!({"error": {"code": "internal", "message": error.to_string()}})),
            },
            _ => {
                let message = "POST begins a check of all data, GET says its progress and the damage";
                let body = json!({"error": {"code": "method_not_allowed", "message": message}});
                answer(405, &body).header("allow", "GET, POST")
            }
        }
    }

    fn progress(&self) -> Progress {
        let state = self.state.lock().clone();
        let named = self
            .units
            .iter()
            .flat_map(|unit| unit.logs.damages().into_iter().map(|damage| Listed::of(unit.folder, damage)));
        let damage: Vec<Listed> = named.collect();
        let DamageStats { left_out, .. } = self.damage();
        Progress {
            asked: state.asked,
            finished: state.finished,
            running: state.running,
            read_bytes: state.read_bytes,
            total_bytes: state.total_bytes,
            passes: state.passes,
            last_pass_ended_ms: state.last_end.map(|end| end.0),
            unchecked: state.unchecked,
            unchecked_more: state.unchecked_more,
            counts: Counts { damage: damage.len() as u64 + left_out, left_out },
            damage,
        }
    }
}

fn answer(status: u16, body: &serde_json::Value) -> Response {
    Response::new(status)
        .header("content-type", "application/json")
        .header("cache-control", "no-store")
        .body(body.to_string())
}

/// Takes the steps. Only its job has it.
pub struct Scrubber {
    scrubs: Arc<Scrubs>,
    /// Bytes per second; zero: only requested passes.
    rate: u64,
    every: Duration,
    /// Since the start.
    read_bytes: u64,
    pass: Option<Pass>,
    next_pass: Instant,
    next_refresh: Instant,
}

struct Pass {
    /// The newest request that it answers, if it was requested.
    answers: Option<u64>,
    unit: usize,
    scrub: Scrub,
}

impl Scrubber {
    /// `rate`: bytes per second, zero for none; `every`: from the end of one pass to the start of the next.
    pub fn new(scrubs: Arc<Scrubs>, rate: u64, every: Duration) -> Self {
        let now = Instant::now();
        Self { scrubs, rate, every, read_bytes: 0, pass: None, next_pass: now, next_refresh: now }
    }

    /// Has the threads of `rounds` take the steps.
    pub fn start(mut self, rounds: &Rounds) {
        let scrubs = Arc::clone(&self.scrubs);
        let job = rounds.add("every unit", Kind::Scrub, move || Ok(self.turn()));
        for unit in &scrubs.units {
            let job = job.clone();
            unit.logs.on_damage(Box::new(move || job.nudge()));
        }
        // Damage and requests from before the job existed.
        job.nudge();
        let _ = scrubs.job.set(job);
    }

    /// One turn on a thread of background work: a step, and when the next one is due.
    pub fn turn(&mut self) -> Turn {
        let before = self.read_bytes;
        let next = match self.step() {
            Some(Duration::ZERO) => Next::Now,
            Some(pause) => Next::In(pause),
            None => self.rest(),
        };
        let behind = if self.is_asked() { URGENT } else { Behind::ZERO };
        Turn { next, behind, bytes: self.read_bytes - before }
    }

    /// Whether a client waits for a present or future pass.
    fn is_asked(&self) -> bool {
        let state = self.scrubs.state.lock();
        state.asked > state.finished
    }

    /// When the next turn has something to do that found nothing.
    fn rest(&self) -> Next {
        if self.is_asked() {
            return Next::Now;
        }
        let damage = (self.scrubs.damage().total() > 0).then_some(REFRESH_EVERY);
        let pass = (self.rate > 0).then(|| self.next_pass.saturating_duration_since(Instant::now()));
        damage.into_iter().chain(pass).min().map_or(Next::WhenNudged, Next::In)
    }

    /// Takes one step; returns how long to rest. `None`: nothing is to be done now.
    pub fn step(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if now >= self.next_refresh {
            self.scrubs.units.iter().for_each(|unit| unit.logs.refresh_damage(background::now()));
            self.next_refresh = Instant::now() + REFRESH_EVERY;
        }
        self.begin(now);
        let read = self.read()?;
        let asked = self.pass.as_ref().is_some_and(|pass| pass.answers.is_some());
        let pause = if asked || self.rate == 0 { 0.0 } else { read as f64 / self.rate as f64 };
        Some(Duration::from_secs_f64(pause))
    }

    /// Begins a pass if one was requested or is due. A requested pass starts over, and reads all data.
    fn begin(&mut self, now: Instant) {
        let mut state = self.scrubs.state.lock();
        let is_asked = state.asked > state.finished && self.pass.as_ref().is_none_or(|pass| pass.answers.is_none());
        let is_due = self.rate > 0 && self.pass.is_none() && now >= self.next_pass;
        if is_asked || is_due {
            self.pass = Some(Pass { answers: is_asked.then_some(state.asked), unit: 0, scrub: Scrub::default() });
            let total = self.scrubs.units.iter().map(|unit| unit.logs.scrub_bytes()).sum();
            (state.running, state.read_bytes, state.total_bytes) = (true, 0, total);
            (state.unchecked, state.unchecked_more) = (Vec::new(), 0);
        }
    }

    /// Takes the next step of the pass, if one is left; returns how much was read.
    fn read(&mut self) -> Option<u64> {
        let pass = self.pass.as_mut()?;
        let Some(unit) = self.scrubs.units.get(pass.unit) else {
            self.end();
            return None;
        };
        match unit.logs.scrub(&mut pass.scrub) {
            Ok(Some(read)) => {
                self.scrubs.state.lock().read_bytes += read;
                unit.done.lock().bytes += read;
                self.read_bytes += read;
                Some(read)
            }
            Ok(None) => {
                (pass.unit, pass.scrub) = (pass.unit + 1, Scrub::default());
                unit.logs.refresh_damage(background::now());
                let mut done = unit.done.lock();
                done.passes += 1;
                done.last_end = Some(background::now());
                Some(0)
            }
            Err(error) => {
                tracing::warn!(folder = unit.folder, %error, "the scrub could not read everything");
                let mut state = self.scrubs.state.lock();
                if state.unchecked.len() < UNCHECKED_MAX {
                    state.unchecked.push(format!("{}{error}", unit.folder));
                } else {
                    state.unchecked_more += 1;
                }
                Some(0)
            }
        }
    }

    fn end(&mut self) {
        self.scrubs.units.iter().for_each(|unit| unit.logs.refresh_damage(background::now()));
        let Some(pass) = self.pass.take() else { return };
        self.next_pass = Instant::now() + self.every;
        let damage = self.scrubs.damage().total();
        if damage > 0 {
            tracing::error!(damage, "stored data is damaged: `thalweg check --server` lists it");
        }
        let mut state = self.scrubs.state.lock();
        state.finished = pass.answers.unwrap_or(state.finished);
        state.running = false;
        state.passes += 1;
        state.last_end = Some(background::now());
    }
}
