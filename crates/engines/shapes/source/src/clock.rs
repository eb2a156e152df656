//! The passing of time, as a parameter: the one file of this crate that asks the operating system for it.

#![allow(clippy::disallowed_methods)]

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reads the time, and waits for it to pass.
///
/// Waits for an event of another thread, or of the server, end by that event or by a timeout that the operating system
/// measures.
pub trait Clock: Debug + Send + Sync {
    /// Never goes back.
    fn now(&self) -> Instant;

    /// Returns after this much time.
    fn sleep(&self, time: Duration);

    /// The time of day in microseconds since the Unix epoch. May go back.
    fn unix_us(&self) -> u64;

    /// The time since `then`; zero if that is still to come.
    fn since(&self, then: Instant) -> Duration {
        self.now().saturating_duration_since(then)
    }
}

/// The operating system's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn unix_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock for tests: it stands still, and a sleep advances it at once.
#[cfg(test)]
pub(crate) mod manual {
    use super::Clock;
    use parking_lot::Mutex;
    use std::time::{Duration, Instant};

    #[derive(Debug)]
    pub(crate) struct ManualClock(Mutex<Instant>);

    impl ManualClock {
        pub(crate) fn new() -> Self {
            Self(Mutex::new(Instant::now()))
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Instant {
            *self.0.lock()
        }

        fn sleep(&self, time: Duration) {
            *self.0.lock() += time;
        }

        fn unix_us(&self) -> u64 {
            0
        }
    }
}
