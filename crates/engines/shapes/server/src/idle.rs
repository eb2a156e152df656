//! When the server lets go of the database: no client asks for shapes and no change comes.
//!
//! A database that is billed by use is suspended while it has no connections. All data that was read stays, as does the
//! replication slot, and the next request for a shape opens the connections again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A connection that was opened again is kept for at least this long, so that the stream has time to bring the gathered
/// changes.
const AWAKE_MS: u64 = 5_000;
/// After this long without a connection changes are read in any case: until they are, Postgres keeps its log for the
/// replication slot.
pub(crate) const ASLEEP_MAX: Duration = Duration::from_secs(3600);

/// Times are those of the server's clock in milliseconds.
#[derive(Debug)]
pub(crate) struct Idle {
    /// Silence that ends in sleep; 0: the connections stay.
    after_ms: u64,
    /// When a client has asked, or a change has come.
    active_ms: AtomicU64,
    /// No sleep before this.
    until_ms: AtomicU64,
}

impl Idle {
    pub(crate) fn new(after: Duration) -> Self {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        Self { after_ms, active_ms: AtomicU64::new(0), until_ms: AtomicU64::new(0) }
    }

    /// Connections are closed at some time.
    pub(crate) fn is_on(&self) -> bool {
        self.after_ms > 0
    }

    /// A client asks, or a change comes.
    pub(crate) fn touch(&self, now_ms: u64) {
        self.active_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Takes note that a replication stream begins, be it for a client or for the hourly look.
    pub(crate) fn awake(&self, now_ms: u64) {
        self.until_ms.store(now_ms.saturating_add(AWAKE_MS), Ordering::Relaxed);
    }

    /// Whether it has been silent for long enough.
    pub(crate) fn is_silent(&self, now_ms: u64) -> bool {
        self.is_on()
            && now_ms >= self.until_ms.load(Ordering::Relaxed)
            && now_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed)) >= self.after_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_from_the_last_request_or_change() {
        let idle = Idle::new(Duration::from_secs(60));
        idle.touch(1_000);
        assert_eq!([60_999, 61_000].map(|now| idle.is_silent(now)), [false, true]);
        idle.touch(61_000);
        assert!(!idle.is_silent(62_000), "somebody asks again");
        idle.touch(500);
        assert!(!idle.is_silent(120_999), "a late word of an earlier request changes nothing");
    }

    #[test]
    fn a_stream_that_began_has_time_to_bring_changes() {
        let idle = Idle::new(Duration::from_millis(1));
        idle.awake(10_000);
        assert_eq!([10_500, 14_999, 15_000].map(|now| idle.is_silent(now)), [false, false, true]);
    }

    #[test]
    fn connections_stay_unless_a_time_is_set() {
        assert!(!Idle::new(Duration::ZERO).is_silent(u64::MAX));
    }
}
