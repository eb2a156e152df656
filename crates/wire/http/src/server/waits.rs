//! Times that replies waited for the gate, counted in buckets.

use super::stats::Counter;
use std::sync::atomic::{AtomicU64, Ordering};

/// End of the first bucket, in microseconds. Two buckets per doubling follow, and one for longer waits.
const FIRST_MICROS: u64 = 1 << FIRST_LOG;
const FIRST_LOG: usize = 5;
const DOUBLINGS: usize = 19;
const BUCKETS: usize = 2 * DOUBLINGS + 2;

/// Numbers of replies by their waiting time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    counts: [u64; BUCKETS],
    /// Sum of all waiting times, in microseconds.
    pub micros: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], micros: 0 }
    }
}

impl Waits {
    /// Each bucket: its upper bound in microseconds, `None` for the last, and how many waited less than that and no
    /// less than the bound before.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.counts.iter().enumerate().map(|(bucket, count)| (bound(bucket), *count))
    }
}

fn bucket(micros: u64) -> usize {
    if micros < FIRST_MICROS {
        return 0;
    }
    let log = micros.ilog2() as usize;
    let half = (micros >> (log - 1) & 1) as usize;
    (1 + 2 * (log - FIRST_LOG) + half).min(BUCKETS - 1)
}

fn bound(bucket: usize) -> Option<u64> {
    let doubled = FIRST_MICROS << (bucket / 2);
    match bucket {
        _ if bucket == BUCKETS - 1 => None,
        _ if bucket.is_multiple_of(2) => Some(doubled),
        _ => Some(doubled + doubled / 2),
    }
}

/// One event loop's count. Only its thread writes it.
#[derive(Debug)]
pub(super) struct WaitCounters {
    counts: [Counter; BUCKETS],
    micros: AtomicU64,
}

impl Default for WaitCounters {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| Counter::default()), micros: AtomicU64::new(0) }
    }
}

impl WaitCounters {
    pub(super) fn add(&self, micros: u32) {
        let micros = u64::from(micros);
        self.counts[bucket(micros)].add(1);
        self.micros.store(self.micros.load(Ordering::Relaxed) + micros, Ordering::Relaxed);
    }

    pub(super) fn add_to(&self, sum: &mut Waits) {
        for (total, count) in sum.counts.iter_mut().zip(&self.counts) {
            *total += count.get();
        }
        sum.micros += self.micros.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_falls_between_the_bounds_of_its_bucket() {
        for micros in
            (0..4_096).chain([65_535, 65_536, 98_304, 16_777_215, 16_777_216, 20_000_000, u64::from(u32::MAX)])
        {
            let at = bucket(micros);
            assert!(bound(at).is_none_or(|upper| micros < upper), "{micros} in {at}");
            assert!(at == 0 || bound(at - 1).is_some_and(|lower| micros >= lower), "{micros} in {at}");
        }
        assert_eq!([bound(0), bound(1), bound(2), bound(3)], [Some(32), Some(48), Some(64), Some(96)]);
        assert_eq!(bound(BUCKETS - 2), Some(16_777_216), "16 s");
    }

    #[test]
    fn loops_add_up() {
        let (one, two) = (WaitCounters::default(), WaitCounters::default());
        one.add(10);
        one.add(40);
        two.add(40);
        let mut sum = Waits::default();
        one.add_to(&mut sum);
        two.add_to(&mut sum);
        assert_eq!(sum.micros, 90);
        assert_eq!(sum.buckets().take(3).collect::<Vec<_>>(), [(Some(32), 1), (Some(48), 2), (Some(64), 0)]);
    }
}
