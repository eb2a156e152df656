//! Bytes per second of long work.

use std::time::Duration;

/// No turn waits longer for those before it: the budget is one for all units, and one turn may merge any number of
/// bytes.
const DEBT_MAX: Duration = Duration::from_secs(5);

/// Turns pay for the bytes that they have read and written, at a fixed rate. The next turn may begin once all are paid,
/// or [`DEBT_MAX`] after the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget {
    /// Bytes per second; zero: no limit.
    rate: u64,
    paid_at: Duration,
}

impl Budget {
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, paid_at: Duration::ZERO }
    }

    /// When the next turn may begin.
    pub(crate) fn free_at(&self) -> Duration {
        self.paid_at
    }

    /// A turn between these times has read and written so much.
    pub(crate) fn spend(&mut self, began: Duration, ended: Duration, bytes: u64) {
        if let Some(seconds) = bytes.checked_div(self.rate) {
            let rest = (bytes % self.rate) as f64 / self.rate as f64;
            let cost = Duration::from_secs(seconds) + Duration::from_secs_f64(rest);
            self.paid_at = self.paid_at.max(began).saturating_add(cost).min(ended.saturating_add(DEBT_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_is_paid_at_the_rate_and_time_without_turns_is_not_saved_up() {
        let second = Duration::from_secs;
        let mut budget = Budget::new(100);
        budget.spend(second(5), second(5), 250);
        assert_eq!(budget.free_at(), Duration::from_millis(7500));
        budget.spend(second(6), second(6), 50);
        assert_eq!(budget.free_at(), second(8));
        budget.spend(second(100), second(100), 100);
        assert_eq!(budget.free_at(), second(101));
        let mut unlimited = Budget::new(0);
        unlimited.spend(second(5), second(5), u64::MAX);
        assert_eq!(unlimited.free_at(), Duration::ZERO);
    }

    #[test]
    fn no_turn_is_paid_for_longer_than_a_few_seconds() {
        let second = Duration::from_secs;
        let mut budget = Budget::new(100);
        budget.spend(second(10), second(20), u64::MAX);
        assert_eq!(budget.free_at(), second(20) + DEBT_MAX);
        budget.spend(second(18), second(21), u64::MAX);
        assert_eq!(budget.free_at(), second(21) + DEBT_MAX, "debts of turns side by side do not add up");
    }
}
