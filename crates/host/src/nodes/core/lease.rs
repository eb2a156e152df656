//! How long this node may serve reads without asking the bucket.

use super::Moment;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What the last announcement that was written allows.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// By the clock that goes on while the machine sleeps, in milliseconds.
    until_ms: u64,
    /// How often an announcement was written after the lease before had ended.
    gaps: u64,
    /// The units that it names, each with the epoch of its ownership.
    named: BTreeMap<u64, u64>,
}

impl Lease {
    pub(super) fn has_ended(&self, now: Moment) -> bool {
        now.boot_ms >= self.until_ms
    }

    /// There was a time without a lease.
    pub(super) fn note_gap(&mut self) {
        self.gaps += 1;
    }

    /// An announcement that names these units gives a lease for `time` from this moment on. Returns its end.
    pub(super) fn renew(&mut self, from: Moment, time: Duration, units: &[(u64, u64)]) -> u64 {
        self.until_ms = from.boot_ms + time.as_millis() as u64;
        self.named = units.iter().copied().collect();
        self.until_ms
    }

    /// The number of the gap after which a unit has its lease, if the last announcement names it with this epoch.
    pub(super) fn of(&self, unit: u64, epoch: Option<u64>, now: Moment) -> Option<u64> {
        let is_named = self.named.get(&unit).is_some_and(|named| epoch == Some(*named));
        (is_named && !self.has_ended(now)).then_some(self.gaps)
    }
}

/// The units that are served, for those who must know it fast. Only the core changes it.
#[derive(Debug)]
pub(crate) struct Open {
    served: Box<[AtomicBool]>,
    leased_until_ms: AtomicU64,
}

impl Open {
    pub(super) fn new(units: u64) -> Self {
        let served = (0..units).map(|_| AtomicBool::new(false)).collect();
        Self { served, leased_until_ms: AtomicU64::new(0) }
    }

    /// Whether a unit is served, with a lease. `now_ms`: called if it is needed, by the clock of [`Moment::boot_ms`].
    pub(crate) fn serves(&self, unit: u64, now_ms: impl FnOnce() -> u64) -> bool {
        // The lease first: after a gap the bits are cleared before the next lease counts.
        let leased_until_ms = self.leased_until_ms.load(Ordering::Acquire);
        let is_served = || self.served.get(unit as usize).is_some_and(|served| served.load(Ordering::Acquire));
        leased_until_ms > 0 && now_ms() < leased_until_ms && is_served()
    }

    pub(super) fn set(&self, unit: u64, is_served: bool) {
        if let Some(served) = self.served.get(unit as usize) {
            served.store(is_served, Ordering::Release);
        }
    }

    pub(super) fn until(&self, leased_until_ms: u64) {
        self.leased_until_ms.store(leased_until_ms, Ordering::Release);
    }
}
