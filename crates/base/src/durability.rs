//! The durability that a journal promises, and the condition that an answer waits for.

use crate::Lsn;
use std::fmt;

/// The promise of a journal for one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The data is written: the operating system has it. Death of the process loses nothing, a crash of the machine
    /// may.
    Buffered,
    /// The data is synced: loss of power loses nothing.
    #[default]
    Durable,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Durable => "durable",
            Self::Buffered => "buffered",
        })
    }
}

/// The condition that an answer waits for: that everything below a position is written, or that it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Until {
    /// The journal must be written below this position: the operating system has the bytes.
    Written(Lsn),
    /// The journal must be durable below this position: the disk has the bytes.
    Durable(Lsn),
}

impl Until {
    /// Nothing to wait for.
    pub const NOW: Self = Self::Written(Lsn::ZERO);

    /// The wait for `position` that `durability` asks for.
    #[must_use]
    pub const fn of(durability: Durability, position: Lsn) -> Self {
        match durability {
            Durability::Buffered => Self::Written(position),
            Durability::Durable => Self::Durable(position),
        }
    }

    /// The position to wait for.
    #[must_use]
    pub const fn position(self) -> Lsn {
        match self {
            Self::Written(position) | Self::Durable(position) => position,
        }
    }

    /// The wait that suffices for both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let position = self.position().max(other.position());
        match (self, other) {
            (Self::Written(_), Self::Written(_)) => Self::Written(position),
            _ => Self::Durable(position),
        }
    }
}

/// A bare position means that the journal must be durable up to it, the stronger of the two waits: a caller that does
/// not say that *written* is enough waits for too long, never for too little.
impl From<Lsn> for Until {
    fn from(position: Lsn) -> Self {
        if position == Lsn::ZERO { Self::NOW } else { Self::Durable(position) }
    }
}

/// How far a journal is written, and how far durable, which is never further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The end of the written frames.
    pub written: Lsn,
    /// The end of the durable frames.
    pub durable: Lsn,
}

/// A journal that is written and durable up to the same position.
impl From<Lsn> for Reached {
    fn from(position: Lsn) -> Self {
        Self { written: position, durable: position }
    }
}

impl Reached {
    /// The position up to which a promise is kept.
    #[must_use]
    pub const fn of(self, durability: Durability) -> Lsn {
        match durability {
            Durability::Buffered => self.written,
            Durability::Durable => self.durable,
        }
    }

    /// Whether the wait is over.
    #[must_use]
    pub fn covers(self, until: Until) -> bool {
        match until {
            Until::Written(position) => position <= self.written.max(self.durable),
            Until::Durable(position) => position <= self.durable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_waits_become_the_stronger_one() {
        let (a, b) = (Until::Written(Lsn(9)), Until::Durable(Lsn(5)));
        assert_eq!(a.and(b), Until::Durable(Lsn(9)));
        assert_eq!(a.and(Until::NOW), a);
        assert_eq!(b.and(b), b);
    }

    #[test]
    fn a_position_is_covered_by_its_own_kind() {
        let reached = Reached { written: Lsn(9), durable: Lsn(5) };
        assert!(reached.covers(Until::Written(Lsn(9))) && !reached.covers(Until::Written(Lsn(10))));
        assert!(reached.covers(Until::Durable(Lsn(5))) && !reached.covers(Until::Durable(Lsn(6))));
        assert!(Reached::default().covers(Until::NOW) && Reached::default().covers(Lsn::ZERO.into()));
    }
}
