//! Newtypes for every number that travels.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number 0.
            pub const ZERO: Self = Self(0);
            /// The largest number.
            pub const MAX: Self = Self(u64::MAX);

            /// `self + n`, saturating: positions never wrap.
            #[must_use]
            pub const fn plus(self, n: u64) -> Self {
                Self(self.0.saturating_add(n))
            }

            /// How far `self` is past `earlier`; zero if it is not.
            #[must_use]
            pub const fn since(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// A byte position in the journal. It never repeats, not even after a crash or in a recycled segment.
    Lsn
);
number!(
    /// The id of one log. It is never reused, and larger than every id given out before it.
    LogId
);
number!(
    /// A byte position in one log.
    Offset
);
number!(
    /// One immutable object in storage, never reused.
    ObjectId
);
number!(
    /// Milliseconds since the Unix epoch. Time is always a parameter.
    Millis
);

impl Millis {
    /// How long ago this was at `now`. If the clock was set back behind it, it becomes `now`: a wait begins again, and
    /// does not last until the clock has caught up.
    pub fn elapsed(&mut self, now: Self) -> u64 {
        *self = (*self).min(now);
        now.since(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_begins_the_wait_again() {
        let mut began = Millis(1_000);
        assert_eq!(began.elapsed(Millis(1_300)), 300);
        assert_eq!((began.elapsed(Millis(10)), began), (0, Millis(10)));
        assert_eq!(began.elapsed(Millis(110)), 100);
    }
}
