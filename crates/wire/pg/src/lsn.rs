//! A position in a server's write-ahead log.

use std::fmt;
use std::str::FromStr;

/// A byte position in the write-ahead log of one Postgres cluster; written `X/Y`, two hexadecimal halves (`pg_lsn`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// A text that is no [`Lsn`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a position in a write-ahead log: {0:?} (two hexadecimal numbers of at most 8 digits, X/Y)")]
pub struct LsnError(pub String);

impl Lsn {
    /// Before every record: a slot begins where it was confirmed.
    pub const ZERO: Self = Self(0);
}

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Self, LsnError> {
        let half = |digits: &str| {
            let hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten().map(u64::from)
        };
        let parsed = text.split_once('/').and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
        parsed.map(Self).ok_or_else(|| LsnError(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

impl fmt::Debug for Lsn {
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
        assert_eq!("16/B374D848".parse::<Lsn>().unwrap(), Lsn(0x16_B374_D848));
        assert_eq!(Lsn(0x16_B374_D848).to_string(), "16/B374D848");
        assert_eq!("0/0".parse::<Lsn>().unwrap(), Lsn::ZERO);
        assert_eq!("ffffffff/ffffffff".parse::<Lsn>().unwrap(), Lsn(u64::MAX));
        for bad in ["", "/", "1", "1/", "/1", "1/2/3", "+1/2", "1/123456789", "g/0", " 1/2", "1/2 "] {
            assert!(bad.parse::<Lsn>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(n: u64) {
            prop_assert_eq!(Lsn(n).to_string().parse::<Lsn>().unwrap(), Lsn(n));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Lsn>();
        }
    }
}
