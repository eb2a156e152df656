//! The promise of an acknowledgement to a client, whichever journal keeps it.

use crate::Durability;
use std::fmt;
use std::str::FromStr;

/// When an append is acknowledged: what it survives from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The operating system has the data: death of the process loses nothing.
    Buffered,
    /// The disk has the data: loss of power loses nothing.
    #[default]
    Durable,
    /// The bucket has the data: loss of the machine loses nothing.
    Replicated,
}

impl Level {
    /// The promise of the journal that keeps data of this level. The journal of replicated data is in the bucket: what is
    /// durable in it is replicated.
    #[must_use]
    pub const fn of_journal(self) -> Durability {
        match self {
            Self::Buffered => Durability::Buffered,
            Self::Durable | Self::Replicated => Durability::Durable,
        }
    }

    /// The level in one word, as settings and headers have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Durable => "durable",
            Self::Replicated => "replicated",
        }
    }
}

/// The level of data in a local journal.
impl From<Durability> for Level {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Buffered => Self::Buffered,
            Durability::Durable => Self::Durable,
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Durable, Self::Buffered, Self::Replicated];
        let found = all.into_iter().find(|level| level.word() == text);
        found.ok_or_else(|| format!("`{text}` is not one of `durable`, `buffered`, `replicated`"))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_written_in_one_word() {
        for level in [Level::Buffered, Level::Durable, Level::Replicated] {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert!("fast".parse::<Level>().unwrap_err().contains("`durable`, `buffered`, `replicated`"));
    }

    #[test]
    fn levels_rise_with_what_they_survive() {
        assert!(Level::Buffered < Level::Durable && Level::Durable < Level::Replicated);
    }
}
