//! A position in a Postgres cluster's write-ahead log. Its name is not that of the kernel's `Lsn`, a position in the
//! journal: neither can stand for the other.

use std::fmt;
use std::str::FromStr;

/// A byte position in the write-ahead log of one Postgres cluster; written `X/Y`, two hexadecimal halves (`pg_lsn`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgLsn(pub u64);

/// A text that is no [`PgLsn`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a position in a write-ahead log: {0:?} (two hexadecimal numbers of at most 8 digits, X/Y)")]
pub struct PgLsnError(pub String);

impl PgLsn {
    /// Before every record: a slot begins where it was confirmed.
    pub const ZERO: Self = Self(0);

    /// The position before this one: all changes before a position are all changes up to and with the one before it.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The position after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl FromStr for PgLsn {
    type Err = PgLsnError;

    fn from_str(text: &str) -> Result<Self, PgLsnError> {
        let half = |digits: &str| {
            let hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten().map(u64::from)
        };
        let parsed = text.split_once('/').and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
        parsed.map(Self).ok_or_else(|| PgLsnError(text.chars().take(64).collect()))
    }
}

impl fmt::Display for PgLsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

impl fmt::Debug for PgLsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        assert_eq!("16/B374D848".parse::<PgLsn>().unwrap(), PgLsn(0x16_B374_D848));
        assert_eq!(PgLsn(0x16_B374_D848).to_string(), "16/B374D848");
        assert_eq!("0/0".parse::<PgLsn>().unwrap(), PgLsn::ZERO);
        assert_eq!("ffffffff/ffffffff".parse::<PgLsn>().unwrap(), PgLsn(u64::MAX));
        for bad in ["", "/", "1", "1/", "/1", "1/2/3", "+1/2", "1/123456789", "g/0", " 1/2", "1/2 "] {
            assert!(bad.parse::<PgLsn>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(n: u64) {
            prop_assert_eq!(PgLsn(n).to_string().parse::<PgLsn>().unwrap(), PgLsn(n));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = text.parse::<PgLsn>();
        }
    }
}
