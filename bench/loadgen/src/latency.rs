//! Latencies in buckets of about 3 % width: cheap to record, to merge and to keep.

use std::fmt;
use std::time::Duration;

const FINE: usize = 32;

#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    max_us: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: vec![0; 40 * FINE], count: 0, max_us: 0 }
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let last = self.buckets.len() - 1;
        self.buckets[bucket(us).min(last)] += 1;
        self.count += 1;
        self.max_us = self.max_us.max(us);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.max_us = self.max_us.max(other.max_us);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The latency in microseconds that this many of a thousand do not exceed.
    pub(crate) fn permille(&self, permille: u64) -> u64 {
        let wanted = (self.count * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (number, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper(number).min(self.max_us);
            }
        }
        self.max_us
    }
}

/// Exact below `FINE`, then `FINE` buckets for each doubling.
fn bucket(us: u64) -> usize {
    let us = usize::try_from(us).unwrap_or(usize::MAX);
    if us < FINE {
        return us;
    }
    let doublings = (us / FINE).ilog2() as usize;
    (doublings + 1) * FINE + (us >> doublings) - FINE
}

/// The largest value in a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < FINE {
        return bucket as u64;
    }
    let doublings = bucket / FINE - 1;
    ((((bucket % FINE) + FINE + 1) as u64) << doublings) - 1
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "n={} p50_us={} p90_us={} p95_us={} p99_us={} p999_us={} max_us={}",
            self.count,
            self.permille(500),
            self.permille(900),
            self.permille(950),
            self.permille(990),
            self.permille(999),
            self.max_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_it_is_named_after_within_four_percent() {
        for us in (0..5_000_000).step_by(37) {
            let top = upper(bucket(us));
            assert!(top >= us && top <= us + us / 25 + 1, "{us} is in a bucket up to {top}");
        }
    }

    #[test]
    fn percentiles_of_a_thousand_steps() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|us| latencies.record(Duration::from_micros(us)));
        assert!((500..=520).contains(&latencies.permille(500)));
        assert!((990..=1000).contains(&latencies.permille(990)));
        assert_eq!(latencies.permille(1000), 1000);
    }
}
