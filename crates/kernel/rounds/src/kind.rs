//! Kinds of jobs, and how urgent they are.

/// A kind of work. Each is a class of its own, but for the last two, which are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Segments made ahead for a journal, and trimmed ones made blank: a batch that finds none waits.
    Segments,
    /// Rounds of settling, and making space on a full disk: writers are refused when the journal is at its bound, or
    /// the disk full.
    Settle,
    /// Merging and reclaiming while there is space.
    Merge,
    /// Reading back everything that is stored, to find damage.
    Scrub,
}

impl Kind {
    /// All kinds, in the order of [`crate::Stats::kinds`].
    pub const ALL: [Self; 4] = [Self::Segments, Self::Settle, Self::Merge, Self::Scrub];

    /// The value of the label `kind` of its metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Segments => "segments",
            Self::Settle => "settle",
            Self::Merge => "merge",
            Self::Scrub => "scrub",
        }
    }

    pub(crate) const fn class(self) -> usize {
        match self {
            Self::Segments => 0,
            Self::Settle => 1,
            Self::Merge | Self::Scrub => LONG,
        }
    }

    pub(crate) const fn is_long(self) -> bool {
        self.class() == LONG
    }
}

pub(crate) const CLASSES: usize = 3;
const LONG: usize = 2;

/// How full the thing is that a job empties, from nothing to its bound: a journal that fills, runs that gather.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Behind(u16);

impl Behind {
    /// Nothing has gathered.
    pub const ZERO: Self = Self(0);
    /// At its bound, or beyond.
    pub const BOUND: Self = Self(Self::MAX);
    const MAX: u16 = 1000;

    /// `is` of a bound; beyond it counts as at it. Zero if there is no bound.
    #[must_use]
    pub fn of(is: u64, bound: u64) -> Self {
        let share = u128::from(is) * u128::from(Self::MAX) / u128::from(bound.max(1));
        Self(if bound == 0 { 0 } else { share.min(u128::from(Self::MAX)) as u16 })
    }

    pub(crate) fn is_urgent(self) -> bool {
        self.0 >= Self::MAX / 2
    }

    /// From 1 to `max`.
    pub(crate) fn weight(self, max: u64) -> u64 {
        1 + (max - 1) * u64::from(self.0) / u64::from(Self::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_goes_from_nothing_to_the_bound() {
        let weights = [0, 1, 50, 99, 100, u64::MAX].map(|is| Behind::of(is, 100).weight(8));
        assert_eq!(weights, [1, 1, 4, 7, 8, 8]);
        assert_eq!([49, 50].map(|is| Behind::of(is, 100).is_urgent()), [false, true]);
        assert_eq!(Behind::of(7, 0), Behind::default());
    }
}
