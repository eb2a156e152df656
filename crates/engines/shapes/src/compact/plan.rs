//! Which shapes need a new base, and which of them first.

/// What a shape has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bytes of the newest base's rows.
    pub(crate) rows: u64,
    /// Bytes of the changes since.
    pub(crate) since: u64,
    /// Where the oldest of them lies in the change log.
    pub(crate) oldest: Option<u64>,
    /// Somebody began with the newest base.
    pub(crate) joined: bool,
    /// When that was shown; `None`: it is the snapshot.
    pub(crate) shown_ms: Option<u64>,
}

/// When a new base is worth its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of changes that are never merged because of who begins.
    pub(crate) bytes_min: u64,
    /// Changes before this place must not be needed any more.
    pub(crate) pressed_before: u64,
    /// Bases of one shape are so far apart, unless they are pressed for.
    pub(crate) every_ms: u64,
    pub(crate) now_ms: u64,
}

/// More is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Who begins reads this many times what he needs.
    Long(u64),
    /// The change log waits for it, by so many bytes.
    Pressed(u64),
}

/// What is merged although nobody has begun since: then only memory is saved, and the log's space sooner.
const UNJOINED: u64 = 16;

impl Limits {
    pub(crate) fn urgency(&self, facts: &Facts) -> Option<Urgency> {
        if let Some(oldest) = facts.oldest.filter(|oldest| *oldest < self.pressed_before) {
            return Some(Urgency::Pressed(self.pressed_before - oldest));
        }
        let times = if facts.joined { 1 } else { UNJOINED };
        // What is written is never more than what was read because of it: each change is merged once or twice.
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
