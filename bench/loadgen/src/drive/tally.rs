//! Counters of a run.

use super::{Nanos, Verdict};
use crate::cost::Cost;
use crate::latency::Latencies;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Good answers inside of the window.
    pub(crate) ops: u64,
    pub(crate) bad: u64,
    /// Connections that the server closed and that were opened again.
    pub(crate) reopened: u64,
    /// Latencies of requests that were due inside of the window.
    pub(crate) latencies: Latencies,
    pub(crate) cost: Cost,
    pub(super) closed: bool,
}

impl Tally {
    pub(super) fn record(&mut self, verdict: Verdict, answered_inside: bool, due_inside: bool, latency: Nanos) {
        self.ops += u64::from(answered_inside && verdict == Verdict::Good);
        if due_inside {
            self.bad += u64::from(verdict == Verdict::Bad);
            self.latencies.record(Duration::from_nanos(latency));
        }
    }

    pub(super) fn close(&mut self, cost: Option<Cost>) {
        self.closed = true;
        self.cost = cost.unwrap_or_default();
    }

    /// Adds another thread's counters. The cost is the process's: that of the first thread stands for all.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.bad += other.bad;
        self.reopened += other.reopened;
        self.latencies.add(&other.latencies);
        if self.cost.seconds == 0.0 {
            self.cost = other.cost;
        }
    }
}

impl fmt::Display for Tally {
    #[allow(clippy::cast_precision_loss, reason = "rates for a person")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ops, seconds) = (self.ops.max(1) as f64, self.cost.seconds.max(1e-9));
        write!(f, "ops={} bad={} seconds={seconds:.2} per_s={:.0}", self.ops, self.bad, self.ops as f64 / seconds)?;
        if self.reopened > 0 {
            write!(f, " reopened={}", self.reopened)?;
        }
        if let Some(us) = self.cost.server_us {
            write!(f, " cpu_us={:.2} cores={:.2}", us / ops, us / 1e6 / seconds)?;
        }
        if let Some(us) = self.cost.client_us {
            write!(f, " client_us={:.2}", us / ops)?;
        }
        write!(f, " {}", self.latencies)
    }
}
