//! Lengths of time and numbers of bytes, as people write and read them.
//!
//! Settings of a server and flags of its clients take the same text. A value that this module writes reads back as the
//! same value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A length of time: a whole number and a unit, such as `500ms`, `30s`, `5min`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

const SPAN_UNITS: [(&str, u64); 8] = [
    ("ms", 1),
    ("s", 1_000),
    ("sec", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("h", 3_600_000),
    ("hours", 3_600_000),
    ("d", 86_400_000),
];

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text);
        let known = SPAN_UNITS.iter().find(|(name, _)| *name == unit);
        match (number.parse::<u64>(), known) {
            (Ok(0), _) if unit.is_empty() => Ok(Self(Duration::ZERO)),
            (Ok(n), Some((_, ms))) => n
                .checked_mul(*ms)
                .map(|ms| Self(Duration::from_millis(ms)))
                .ok_or_else(|| format!("`{text}` is too long a time")),
            (Ok(_), None) if unit.is_empty() => Err(format!("`{text}` needs a unit: write `{text}s` or `{text}ms`")),
            _ => Err(format!(
                "`{text}` is not a length of time; write a number and ms, s, min or h, such as 500ms or 30s"
            )),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0 => f.write_str("0"),
            ms if ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms % 60_000 == 0 => write!(f, "{}min", ms / 60_000),
            ms if ms % 1_000 == 0 => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// A number of bytes: plain, or with a unit, such as `4096`, `64MiB`, `1GiB`, `10MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

const SIZE_UNITS: [(&str, u64); 11] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("k", 1 << 10),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text);
        let unit = unit.to_ascii_lowercase();
        let known = SIZE_UNITS.iter().find(|(name, _)| *name == unit);
        match (number.parse::<u64>(), known) {
            (Ok(n), Some((_, bytes))) => {
                n.checked_mul(*bytes).map(Self).ok_or_else(|| format!("`{text}` is more than 2^64 bytes"))
            }
            _ => Err(format!(
                "`{text}` is not a size; write a number of bytes, or one with KiB, MiB or GiB, such as 64MiB"
            )),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        match n {
            0 => f.write_str("0"),
            n if n % (1 << 30) == 0 => write!(f, "{}GiB", n >> 30),
            n if n % (1 << 20) == 0 => write!(f, "{}MiB", n >> 20),
            n if n % (1 << 10) == 0 => write!(f, "{}KiB", n >> 10),
            n => write!(f, "{n}"),
        }
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (&text[..digits], text[digits..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_say_so() {
        assert_eq!("30s".parse::<Span>().unwrap().0, Duration::from_secs(30));
        assert_eq!("500ms".parse::<Span>().unwrap().0, Duration::from_millis(500));
        assert_eq!("5 min".parse::<Span>().unwrap().0, Duration::from_secs(300));
        assert_eq!("0".parse::<Span>().unwrap().0, Duration::ZERO);
        assert!("30".parse::<Span>().unwrap_err().contains("`30s`"));
        for bad in ["", "s", "1.5s", "-1s", "5 parsecs", "99999999999999999999s", "18446744073709551615h"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        assert_eq!("64MiB".parse::<Size>().unwrap().0, 64 << 20);
        assert_eq!("1gib".parse::<Size>().unwrap().0, 1 << 30);
        assert_eq!("10MB".parse::<Size>().unwrap().0, 10_000_000);
        assert_eq!("4096".parse::<Size>().unwrap().0, 4096);
        for bad in ["", "MiB", "1.5GiB", "-1", "64 bananas", "99999999999TiB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same() {
        for text in ["500ms", "30s", "5min", "2h", "0", "1500ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["64MiB", "1GiB", "4KiB", "1000", "0"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
    }
}
