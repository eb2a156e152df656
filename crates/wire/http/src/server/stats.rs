//! Counters of the event loops.

use super::waits::{WaitCounters, Waits};
#[cfg(doc)]
use crate::SharedPages;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters and gauges of the server, summed over its event loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections accepted since the start.
    pub connections_accepted: u64,
    /// Connections that are open now.
    pub connections_active: u64,
    /// Connections beyond the bound, answered 503 or dropped.
    pub connections_refused: u64,
    /// Connections that ended during a TLS handshake, including plain HTTP on a TLS port.
    pub handshakes_failed: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Requests refused before the service saw them.
    pub requests_refused: u64,
    /// Bytes received since the start.
    pub bytes_in: u64,
    /// Bytes sent since the start.
    pub bytes_out: u64,
    /// Bytes in the files of [`SharedPages`].
    pub pages_bytes: u64,
    /// Replies that wait for the gate.
    pub replies_held: u64,
    /// Replies that are being made: pending answers and body sources.
    pub replies_pending: u64,
    /// Connections closed because the client took or sent nothing for too long.
    pub timeouts: u64,
    /// How long replies waited for the gate: for appends, from the round that handled them to the round that released
    /// their answer.
    pub waits: Waits,
}

/// One event loop's counters. Only its thread writes them, so that counting needs no locked instruction.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: Counter,
    pub(super) active: Counter,
    pub(super) refused: Counter,
    pub(super) handshakes_failed: Counter,
    pub(super) requests: Counter,
    pub(super) requests_refused: Counter,
    pub(super) bytes_in: Counter,
    pub(super) bytes_out: Counter,
    pub(super) held: Counter,
    pub(super) pending: Counter,
    pub(super) timeouts: Counter,
    pub(super) waits: WaitCounters,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, n: usize) {
        self.0.store(self.get().wrapping_add(n as u64), Ordering::Relaxed);
    }

    pub(super) fn sub(&self, n: usize) {
        self.0.store(self.get().wrapping_sub(n as u64), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn add_to(&self, sum: &mut ServerStats) {
        sum.connections_accepted += self.accepted.get();
        sum.connections_active += self.active.get();
        sum.connections_refused += self.refused.get();
        sum.handshakes_failed += self.handshakes_failed.get();
        sum.requests += self.requests.get();
        sum.requests_refused += self.requests_refused.get();
        sum.bytes_in += self.bytes_in.get();
        sum.bytes_out += self.bytes_out.get();
        sum.replies_held += self.held.get();
        sum.replies_pending += self.pending.get();
        sum.timeouts += self.timeouts.get();
        self.waits.add_to(&mut sum.waits);
    }
}
