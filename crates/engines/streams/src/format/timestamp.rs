//! Moments as RFC 3339 writes them, to the end of the year 9999.

use jiff::Timestamp;
use thalweg_base::Millis;

/// The library's moments end a day before the last year does, so that every offset from UTC fits; what lies beyond is read and written
/// as a year before, in which every day of that one has the same name.
const LAST_YEAR: &str = "9999";
const YEAR_BEFORE: &str = "9998";
const YEAR_MS: u64 = 365 * 86_400_000;
/// 9999-12-31T23:59:59.999Z
const MAX: Millis = Millis(253_402_300_799_999);

/// Reads strictly: `T` and a zone are needed, and nothing may follow. What is before 1970 has passed, which zero says as well.
#[must_use]
pub fn parse(text: &[u8]) -> Option<Millis> {
    let digits = |range: std::ops::Range<usize>| text.get(range).is_some_and(|t| t.iter().all(u8::is_ascii_digit));
    let at = |place: usize, any: &[u8]| text.get(place).is_some_and(|b| any.contains(b));
    let date = digits(0..4) && at(4, b"-") && digits(5..7) && at(7, b"-") && digits(8..10) && at(10, b"Tt");
    let time = digits(11..13) && at(13, b":") && digits(14..16) && at(16, b":") && digits(17..19);
    if !date || !time {
        return None;
    }
    let mut rest = text.get(19..)?;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let len = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if !(1..=9).contains(&len) {
            return None;
        }
        rest = &fraction[len..];
    }
    let zone = match rest {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()),
        _ => false,
    };
    if !zone {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?.to_ascii_uppercase();
    let millis = |text: &str| text.parse().ok().map(|at: Timestamp| u64::try_from(at.as_millisecond()).unwrap_or(0));
    let found = millis(&text).or_else(|| {
        let rest = text.strip_prefix(LAST_YEAR)?;
        millis(&format!("{YEAR_BEFORE}{rest}")).map(|at| at + YEAR_MS)
    })?;
    Some(Millis(found).min(MAX))
}

/// Reads back as the same; a moment after the year 9999 as its end.
#[must_use]
pub fn text(at: Millis) -> String {
    let shown =
        |ms: u64| i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).map(|at| at.to_string());
    let at = at.min(MAX).0;
    let last = || Some(LAST_YEAR.to_owned() + shown(at - YEAR_MS)?.strip_prefix(YEAR_BEFORE)?);
    shown(at).or_else(last).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_moments_are_moments() {
        for (given, shown) in [
            ("9999-12-30T21:59:59Z", "9999-12-30T21:59:59Z"),
            ("9999-12-31T00:00:00Z", "9999-12-31T00:00:00Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T23:59:59+01:00", "9999-12-31T22:59:59Z"),
            // The next year, which has five digits.
            ("9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(parse(given.as_bytes()).map(text).as_deref(), Some(shown), "{given}");
        }
        for none in ["9999-12-32T00:00:00Z", "9999-02-29T00:00:00Z", "9999-12-31T25:00:00Z", "10000-01-01T00:00:00Z"] {
            assert_eq!(parse(none.as_bytes()), None, "{none}");
        }
        assert_eq!(text(Millis::MAX), "9999-12-31T23:59:59.999Z");
    }

    proptest! {
        #[test]
        fn a_moment_reads_back_as_itself(at in 0..=MAX.0, last in 0..400_000_000_u64) {
            for at in [Millis(at), Millis(MAX.0 - last)] {
                prop_assert_eq!(parse(text(at).as_bytes()), Some(at));
            }
        }
    }
}
