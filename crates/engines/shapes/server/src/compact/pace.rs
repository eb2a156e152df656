//! How fast the background may go.

use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_shapes_source::clock::Clock;

/// Bytes that are read and written per second, and four times as many if the change log waits.
const BYTES_PER_S: u64 = 32 << 20;
const PRESSED: u64 = 4;
/// The budget that may be spent at once.
const BURST: u64 = 4 << 20;
/// A stop is noticed after this long.
const NAP: Duration = Duration::from_millis(50);

/// Counts bytes against the clock.
pub(crate) struct Pace {
    clock: Arc<dyn Clock>,
    per_s: u64,
    /// Bytes that are not paid for yet.
    owed: u64,
    since: Instant,
}

impl Pace {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { per_s: BYTES_PER_S, owed: 0, since: clock.now(), clock }
    }

    pub(crate) fn pressed(&mut self, pressed: bool) {
        self.per_s = if pressed { BYTES_PER_S * PRESSED } else { BYTES_PER_S };
    }

    /// Spends bytes; waits until they are paid for, or until `stopping`.
    pub(crate) fn spend(&mut self, bytes: usize, stopping: impl Fn() -> bool) {
        self.owed += bytes as u64;
        loop {
            let left = self.left(self.clock.since(self.since));
            self.since = self.clock.now();
            if left == 0 || stopping() {
                return;
            }
            self.clock.sleep(Duration::from_millis(left * 1000 / self.per_s + 1).min(NAP));
        }
    }

    /// Pays for the time that has gone by; how many bytes are too many.
    fn left(&mut self, elapsed: Duration) -> u64 {
        let paid = u128::from(self.per_s) * elapsed.as_micros() / 1_000_000;
        self.owed = self.owed.saturating_sub(u64::try_from(paid).unwrap_or(u64::MAX));
        self.owed.saturating_sub(BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_shapes_source::clock::SystemClock;

    #[test]
    fn bytes_are_paid_for_with_time() {
        let mut pace = Pace::new(Arc::new(SystemClock));
        pace.owed = BURST + BYTES_PER_S;
        assert_eq!(pace.left(Duration::ZERO), BYTES_PER_S);
        assert_eq!(pace.left(Duration::from_millis(500)), BYTES_PER_S / 2);
        pace.pressed(true);
        assert_eq!(pace.left(Duration::from_millis(125)), 0);
        assert_eq!(pace.left(Duration::from_secs(9)), 0);
        assert_eq!(pace.owed, 0, "nothing is saved up");
    }
}
