//! The time of day for all waits of the process: it never goes back and never stands still.
//!
//! The system's clock may be set back. A wait for a time of that clock (the end of a long-poll, an interval of
//! background work) would last until the clock has caught up. This clock continues at half speed until then; when the
//! system's clock is set forward, it follows at once.

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

struct Clock {
    start: Instant,
    shown: Mutex<Shown>,
}

/// The last time shown, and when it was shown, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shown {
    unix_us: u64,
    since_start_us: u64,
}

impl Shown {
    fn next(self, since_start_us: u64, system_us: u64) -> Self {
        let passed = since_start_us.saturating_sub(self.since_start_us);
        let unix_us = system_us.max(self.unix_us + passed / 2);
        Self { unix_us, since_start_us: self.since_start_us.max(since_start_us) }
    }
}

/// Milliseconds since the Unix epoch.
#[must_use]
pub fn unix_ms() -> u64 {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    let clock = CLOCK.get_or_init(|| Clock { start: Instant::now(), shown: Mutex::default() });
    let mut shown = clock.shown.lock();
    let us = |time: u128| u64::try_from(time).unwrap_or(u64::MAX);
    let system = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| us(since.as_micros()));
    *shown = shown.next(us(clock.start.elapsed().as_micros()), system);
    shown.unix_us / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_what_the_system_shows() {
        let (before, shown) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis(), unix_ms());
        assert!(u128::from(shown) >= before && u128::from(shown) < before + 10_000);
    }

    #[test]
    fn it_follows_forward_and_goes_on_at_half_speed_when_the_system_is_set_back() {
        let second = 1_000_000;
        let at = Shown::default().next(0, 100 * second);
        let at = at.next(second, 3_700 * second);
        assert_eq!(at.unix_us, 3_700 * second);
        // The system's clock is set back by an hour.
        let mut slow = at;
        for n in 1..=10 {
            slow = slow.next(second + n * second, (100 + n) * second);
        }
        assert_eq!(slow.unix_us, 3_705 * second);
        // Calls in between change nothing, and once the system has caught up it is followed again.
        assert_eq!(slow.next(11 * second, 110 * second), slow);
        let caught_up = slow.next(8_000 * second, 8_100 * second);
        assert_eq!(caught_up.unix_us, 8_100 * second);
    }
}
