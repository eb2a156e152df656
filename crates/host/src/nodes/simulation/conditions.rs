//! What a seed decides before a history begins, and the faults that are planted in it.

use super::super::faults::Faults;
use std::time::Duration;
use thalweg_object::{SinkOptions, Weather};
use thalweg_sim::Rand64;

/// What a history is mostly about. One in two is about everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Everything,
    /// Batches that arrive out of order, while their owner looks dead.
    Holes,
    /// Roots of which nobody knows whether they were written, and which are written later.
    Doubt,
    /// Answers that come late, before a node is cut off.
    LateAnswers,
}

impl Focus {
    pub(super) fn of(seed: u64) -> Self {
        [Self::Everything, Self::Holes, Self::Everything, Self::Doubt, Self::Everything, Self::LateAnswers]
            [(seed % 6) as usize]
    }
}

/// Planted faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// In the decisions of nodes.
    pub(super) nodes: Faults,
    /// In the journals.
    pub(super) sink: thalweg_object::Faults,
    /// Bodies of roots are the same for every writer: a version of the object may come again.
    pub(super) has_no_nonces: bool,
}

/// The conditions of one history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    pub(super) plan: Plan,
    pub(super) focus: Focus,
    /// How often a node announces itself.
    pub(super) every: Duration,
    /// How often a node looks after its units.
    pub(super) step_every: Duration,
    pub(super) weather: Weather,
    /// How long a request to the bucket is repeated.
    pub(super) deadline: Duration,
    pub(super) sink: SinkOptions,
    /// Clients' pauses between two requests.
    pub(super) think_ms: u64,
    /// How long clients and other nodes wait for an answer.
    pub(super) patience: Duration,
    /// How long things go wrong.
    pub(super) trouble: Duration,
    /// The longest pause between two troubles, in hundredths of a period of announcements.
    pub(super) calm_max: u64,
    /// How many appends a client sends before it waits for answers.
    pub(super) burst_max: u64,
    pub(super) batch_bytes: usize,
    pub(super) window_bytes: usize,
    pub(super) object_bytes: u64,
    pub(super) chunk_bytes: u64,
    /// The pause between two rounds of upkeep.
    pub(super) upkeep_ms: u64,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Conditions {
    pub(super) fn of(seed: u64, plan: Plan) -> Self {
        let mut random = Rand64::new(u128::from(seed) << 1 | 1);
        let mut pick = |n: u64| random.rand_range(0..n);
        let every = ms([300, 500, 1000][pick(3) as usize]);
        let unkind = pick(4);
        let weather = Weather {
            latency: (ms(1), ms([8, 40][pick(2) as usize])),
            late: 3 * unkind,
            late_max: every.mul_f64([0.5, 1.5, 4.0][pick(3) as usize]),
            lost: [0, 1, 4, 8][unkind as usize],
            doubtful: 0,
            unanswered: [0, 1, 3, 6][pick(4) as usize],
            repeated: [0, 3, 10][pick(3) as usize],
            patience: every.mul_f64([0.6, 1.5][pick(2) as usize]),
        };
        let sink = SinkOptions {
            in_flight_max: [1, 2, 5][pick(3) as usize],
            answer_within: every.mul_f64([1.0, 3.0][pick(2) as usize]),
            fences_max: [0, 4, 16][(seed / 7 % 3) as usize],
            faults: plan.sink,
            ..SinkOptions::default()
        };
        let mut conditions = Self {
            plan,
            focus: Focus::of(seed),
            every,
            step_every: ms([50, 100][pick(2) as usize]),
            weather,
            deadline: every.mul_f64([0.8, 2.0, 5.0][pick(3) as usize]),
            sink,
            think_ms: [20, 60, 150][pick(3) as usize],
            patience: every.mul_f64([1.0, 3.0][pick(2) as usize]),
            trouble: every * 30,
            calm_max: [120, 300][pick(2) as usize],
            burst_max: 1 + pick(4),
            batch_bytes: [1, 400, 4_000][pick(3) as usize],
            window_bytes: [0, 500, 1 << 20][pick(3) as usize],
            object_bytes: [600, 4_000][pick(2) as usize],
            chunk_bytes: [200, 1_000, 1 << 20][pick(3) as usize],
            upkeep_ms: [200, 1_000, 4_000][pick(3) as usize],
        };
        match conditions.focus {
            Focus::Everything => {}
            Focus::Holes => {
                conditions.sink.in_flight_max = 5;
                (conditions.batch_bytes, conditions.burst_max, conditions.think_ms) = (1, 6, 20);
                conditions.weather = Weather {
                    latency: (ms(1), ms(40)),
                    late: 20,
                    late_max: every.mul_f64(1.4),
                    lost: 1,
                    patience: every.mul_f64(1.5),
                    ..weather
                };
            }
            Focus::Doubt => {
                // One attempt at each request, and the next edit soon after it: its replacement is still on its way.
                (conditions.upkeep_ms, conditions.deadline) = (50, every.mul_f64(0.25));
                (conditions.burst_max, conditions.think_ms, conditions.calm_max) = (6, 20, 300);
                conditions.weather = Weather {
                    latency: (ms(1), ms(40)),
                    late: 0,
                    lost: 0,
                    doubtful: 40,
                    patience: every.mul_f64(0.2),
                    ..weather
                };
            }
            Focus::LateAnswers => {
                // A take-over takes little of a period.
                conditions.every = ms(1_000);
                conditions.step_every = ms(50);
                conditions.deadline = conditions.every * 5;
                conditions.patience = conditions.every;
                conditions.trouble = conditions.every * 30;
                conditions.calm_max = 300;
                let (latency, patience) = ((ms(1), ms(4)), conditions.every.mul_f64(1.5));
                conditions.weather = Weather { latency, late: 0, lost: 0, patience, ..weather };
            }
        }
        conditions
    }

    /// The weather after the trouble.
    pub(super) fn calm(&self) -> Weather {
        Weather { late: 0, lost: 0, doubtful: 0, unanswered: 0, repeated: 0, ..self.weather }
    }
}
