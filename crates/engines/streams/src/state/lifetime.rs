//! How long a stream lives: for ever, until it was idle for a while (renewed by reads and writes), or until a moment.
//!
//! A renewal counts in memory at once. It is journaled only when it has moved by more than the *slack*, so that a
//! stream that is read all the time costs no write per read; after a restart a stream may therefore live longer by the
//! slack, never shorter.

use thalweg_base::Millis;

/// When a stream expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Never.
    #[default]
    Unlimited,
    /// Expires this many seconds after the last read or write.
    Idle { secs: u64 },
    /// At this moment.
    Until(Millis),
}

const SLACK_MS_MIN: u64 = 1_000;
const SLACK_MS_MAX: u64 = 3_600_000;

impl Lifetime {
    /// The moment from which a stream that was last used at `seen` is gone.
    #[must_use]
    pub fn deadline(self, seen: Millis) -> Option<Millis> {
        match self {
            Self::Unlimited => None,
            Self::Idle { secs } => Some(seen.plus(secs.saturating_mul(1_000))),
            Self::Until(at) => Some(at),
        }
    }

    /// How far a use may go unrecorded: a tenth of the time to live, within a second and an hour.
    #[must_use]
    pub fn slack_ms(self) -> u64 {
        match self {
            Self::Idle { secs } => secs.saturating_mul(100).clamp(SLACK_MS_MIN, SLACK_MS_MAX),
            _ => 0,
        }
    }

    /// Whether reads and writes prolong it.
    #[must_use]
    pub fn is_sliding(self) -> bool {
        matches!(self, Self::Idle { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_idle_time_slides() {
        assert_eq!(Lifetime::Unlimited.deadline(Millis(5)), None);
        assert_eq!(Lifetime::Idle { secs: 2 }.deadline(Millis(5)), Some(Millis(2_005)));
        assert_eq!(Lifetime::Until(Millis(9)).deadline(Millis(5)), Some(Millis(9)));
        assert_eq!(Lifetime::Idle { secs: u64::MAX }.deadline(Millis(5)), Some(Millis::MAX));
    }

    #[test]
    fn slack_is_a_tenth_within_bounds() {
        assert_eq!(Lifetime::Idle { secs: 1 }.slack_ms(), 1_000);
        assert_eq!(Lifetime::Idle { secs: 60 }.slack_ms(), 6_000);
        assert_eq!(Lifetime::Idle { secs: 1_000_000 }.slack_ms(), 3_600_000);
        assert_eq!(Lifetime::Unlimited.slack_ms(), 0);
    }
}
