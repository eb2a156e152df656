//! How much of a stream is kept: the newest bytes, the youngest content, or both.
//!
//! Age needs times. Instead of one per message a stream keeps a few *marks*: "content below this position was appended
//! at this time, or before". An append sets one when the last is old enough (a sixteenth of the age to keep), upkeep
//! sets one on a stream without appends. So content is removed at the configured age, or at most about a sixteenth
//! later; never before.

use thalweg_base::{Millis, Offset};

/// Retained content; `None` for no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// At least this many of the newest bytes, and at most an eighth and a message more.
    pub bytes: Option<u64>,
    /// Keeps content younger than this many seconds.
    pub secs: Option<u64>,
}

/// Content below `upto` was appended at `time` or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// A message boundary.
    pub upto: Offset,
    /// The time of the mark.
    pub time: Millis,
}

/// Decision about a stream's retained content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Record that all present content existed at this time.
    Mark(Mark),
    /// Trim to this boundary.
    From(Offset),
    /// Trim to the last boundary that is not after this.
    About(Offset),
}

/// Two marks apart are at least a sixteenth of the age apart, so more than these are old, and every second one may go.
const MARKS_MAX: usize = 64;
const MARKS_PER_AGE: u64 = 16;
const MARK_EVERY_MS_MIN: u64 = 100;

/// Marks, in order of positions and times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(Vec<Mark>);

impl Retention {
    /// Fields of `self`, with those of `below` for unset ones.
    #[must_use]
    pub fn or(self, below: Self) -> Self {
        Self { bytes: self.bytes.or(below.bytes), secs: self.secs.or(below.secs) }
    }

    /// Whether all content is kept.
    #[must_use]
    pub fn is_unlimited(self) -> bool {
        self == Self::default()
    }

    /// Decides about content from `start` to `tail`.
    #[must_use]
    pub fn judge(self, marks: &Marks, start: Offset, tail: Offset, now: Millis) -> Option<Keep> {
        let by_age =
            self.secs.and_then(|secs| marks.older_than(secs, now)).filter(|upto| *upto > start && *upto <= tail);
        let by_bytes = self.bytes.filter(|bytes| tail.since(start) > bytes.saturating_add(bytes / 8));
        let about = by_bytes.map(|bytes| Offset(tail.0 - bytes));
        match (by_age, about) {
            (Some(upto), Some(about)) if about > upto => Some(Keep::About(about)),
            (Some(upto), _) => Some(Keep::From(upto)),
            (None, Some(about)) => Some(Keep::About(about)),
            (None, None) if tail > start => marks.due(self.secs?, tail, now).map(Keep::Mark),
            (None, None) => None,
        }
    }
}

impl Marks {
    /// All marks, the oldest first.
    #[must_use]
    pub fn as_slice(&self) -> &[Mark] {
        &self.0
    }

    /// The mark to set at the tail, if the last mark is old enough and newer content lies below the tail.
    #[must_use]
    pub fn due(&self, secs: u64, tail: Offset, now: Millis) -> Option<Mark> {
        let every_ms = (secs.saturating_mul(1_000) / MARKS_PER_AGE).max(MARK_EVERY_MS_MIN);
        let (upto, time) = self.0.last().map_or((Offset::ZERO, None), |last| (last.upto, Some(last.time)));
        // A clock that was set back is not waited for.
        let waited = time.is_none_or(|time| now < time || now.since(time) >= every_ms);
        (tail > upto && waited).then_some(Mark { upto: tail, time: now })
    }

    /// Up to where all content is at least so old.
    fn older_than(&self, secs: u64, now: Millis) -> Option<Offset> {
        let age_ms = secs.saturating_mul(1_000);
        self.0.iter().rev().find(|mark| now.since(mark.time) >= age_ms).map(|mark| mark.upto)
    }

    /// Times never decrease from mark to mark. If the clock was set back, content below earlier marks is at least as
    /// old as this one.
    pub(crate) fn push(&mut self, mark: Mark) {
        for earlier in self.0.iter_mut().rev().take_while(|earlier| earlier.time > mark.time) {
            earlier.time = mark.time;
        }
        self.0.push(mark);
        if self.0.len() > MARKS_MAX {
            // Fewer marks lose precision, never correctness. The newest stays.
            let mut left = self.0.len();
            self.0.retain(|_| {
                left -= 1;
                left.is_multiple_of(2)
            });
        }
    }

    /// Drops marks below the retained start.
    pub(crate) fn forget_below(&mut self, start: Offset) {
        self.0.retain(|mark| mark.upto > start);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AGE: Retention = Retention { bytes: None, secs: Some(160) };
    const SIZE: Retention = Retention { bytes: Some(800), secs: None };

    #[test]
    fn bytes_are_kept_with_some_slack() {
        let judge = |tail| SIZE.judge(&Marks::default(), Offset(100), Offset(tail), Millis(5));
        assert_eq!(judge(1_000), None);
        assert_eq!(judge(1_001), Some(Keep::About(Offset(201))));
    }

    #[test]
    fn content_goes_when_it_is_old_and_not_before() {
        let mut marks = Marks::default();
        let judge = |marks: &Marks, start, now| AGE.judge(marks, Offset(start), Offset(50), Millis(now));
        let first = Mark { upto: Offset(50), time: Millis(1_000) };
        assert_eq!(judge(&marks, 0, 1_000), Some(Keep::Mark(first)));
        marks.push(first);
        assert_eq!(judge(&marks, 0, 160_999), None);
        assert_eq!(judge(&marks, 0, 161_000), Some(Keep::From(Offset(50))));
        assert_eq!(judge(&marks, 50, 161_000), None);
        marks.forget_below(Offset(50));
        assert_eq!(marks, Marks::default());
    }

    #[test]
    fn the_stricter_bound_wins() {
        let both = Retention { bytes: Some(10), secs: Some(1) };
        let mut marks = Marks::default();
        marks.push(Mark { upto: Offset(20), time: Millis(0) });
        let judge = |tail| both.judge(&marks, Offset(0), Offset(tail), Millis(1_000));
        assert_eq!(judge(25), Some(Keep::From(Offset(20))));
        assert_eq!(judge(40), Some(Keep::About(Offset(30))));
        assert_eq!(Retention::default().or(both), both);
        assert_eq!(SIZE.or(both), Retention { bytes: Some(800), secs: Some(1) });
    }

    proptest! {
        /// Compared with every append's own time: young content stays, and old content goes in the end.
        #[test]
        fn marks_never_say_that_young_content_is_old(
            steps in prop::collection::vec((1u64..40, 0u64..30_000), 1..300),
        ) {
            let (mut marks, mut appended, mut tail, mut now) = (Marks::default(), Vec::new(), Offset::ZERO, Millis(1));
            for (len, pause) in steps {
                now = now.plus(pause);
                if let Some(mark) = marks.due(160, tail, now) {
                    marks.push(mark);
                }
                tail = tail.plus(len);
                appended.push((tail, now));
                prop_assert!(marks.as_slice().len() <= MARKS_MAX);
                if let Some(upto) = marks.older_than(160, now) {
                    for (end, time) in &appended {
                        prop_assert!(*end > upto || now.since(*time) >= 160_000);
                    }
                }
            }
            let mark = marks.due(160, tail, now.plus(10_000));
            marks.push(mark.unwrap());
            prop_assert_eq!(marks.older_than(160, now.plus(170_000)), Some(tail));
        }
    }
}
