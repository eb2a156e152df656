//! The choice of shapes that need a new base, most urgent first.

/// The facts of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of the newest base's rows.
    pub rows: u64,
    /// Bytes of the changes after it.
    pub since: u64,
    /// The position of the oldest of them in the change log.
    pub oldest: Option<u64>,
    /// A client began with the newest base.
    pub joined: bool,
    /// The time at which that base was published; `None`: it is the snapshot.
    pub shown_ms: Option<u64>,
}

/// The thresholds of a new base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of changes below which read amplification does not matter.
    pub bytes_min: u64,
    /// The position in the change log before which no base should need changes.
    pub pressed_before: u64,
    /// The least time between bases of one shape, unless the change log is too long.
    pub every_ms: u64,
    pub now_ms: u64,
}

/// The greater, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Read amplification for a new client.
    Long(u64),
    /// The bytes of change log that the shape holds back.
    Pressed(u64),
}

/// The factor on the threshold of a base that no client began with: a merge then saves only memory and space of the
/// log.
const UNJOINED: u64 = 16;

impl Limits {
    pub fn urgency(&self, facts: &Facts) -> Option<Urgency> {
        if let Some(oldest) = facts.oldest.filter(|oldest| *oldest < self.pressed_before) {
            return Some(Urgency::Pressed(self.pressed_before - oldest));
        }
        let times = if facts.joined { 1 } else { UNJOINED };
        // A merge never writes more than clients read without it: each change is merged once or twice.
        let long = facts.since > facts.rows.max(self.bytes_min.saturating_mul(times));
        let again = facts.shown_ms.is_none_or(|shown| self.now_ms >= shown.saturating_add(self.every_ms));
        (long && again).then(|| Urgency::Long(facts.since / facts.rows.max(1024)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bytes_min: 1000, pressed_before: 50_000, every_ms: 100, now_ms: 1000 };
    const FACTS: Facts = Facts { rows: 5000, since: 6000, oldest: Some(60_000), joined: true, shown_ms: None };

    #[test]
    fn a_log_that_is_longer_than_its_rows_is_merged() {
        assert_eq!(LIMITS.urgency(&FACTS), Some(Urgency::Long(1)));
        assert_eq!(LIMITS.urgency(&Facts { rows: 6000, ..FACTS }), None);
        assert_eq!(LIMITS.urgency(&Facts { rows: 0, since: 1000, ..FACTS }), None, "too little to care");
        assert_eq!(LIMITS.urgency(&Facts { rows: 0, since: 1001, ..FACTS }), Some(Urgency::Long(0)));
    }

    #[test]
    fn a_log_that_nobody_has_begun_with_may_be_longer() {
        let alone = Facts { joined: false, ..FACTS };
        assert_eq!(LIMITS.urgency(&alone), None);
        assert!(LIMITS.urgency(&Facts { since: 16_001, ..alone }).is_some());
    }

    #[test]
    fn bases_of_one_shape_are_apart() {
        assert_eq!(LIMITS.urgency(&Facts { shown_ms: Some(901), ..FACTS }), None);
        assert!(LIMITS.urgency(&Facts { shown_ms: Some(900), ..FACTS }).is_some());
    }

    #[test]
    fn what_holds_the_change_log_back_comes_first() {
        let holds = Facts { since: 1, joined: false, shown_ms: Some(1000), oldest: Some(49_999), ..FACTS };
        assert_eq!(LIMITS.urgency(&holds), Some(Urgency::Pressed(1)));
        assert!(LIMITS.urgency(&holds) > LIMITS.urgency(&Facts { since: u64::MAX, ..FACTS }));
        assert_eq!(LIMITS.urgency(&Facts { oldest: None, since: 0, ..FACTS }), None);
    }
}
