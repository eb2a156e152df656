//! Moments as RFC 3339 writes them, to the end of the year 9999.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use thalweg_base::Millis;

/// Moments are computed by the calendar from this one: the library's own moments end a day before the last moment of
/// RFC 3339.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// 9999-12-31T23:59:59.999Z
const MAX: Millis = Millis(253_402_300_799_999);

/// Parses strictly: `T` and a zone are required, and nothing may follow. A moment before 1970 is past, so zero stands
/// for it.
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
    let pieces = Pieces::parse(&text).ok()?;
    let offset = i128::from(pieces.to_numeric_offset()?.seconds());
    let since = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH).as_millis() - offset * 1_000;
    Some(Millis(u64::try_from(since).unwrap_or(0)).min(MAX))
}

/// Reads back as the same; a moment after the year 9999 as its end.
#[must_use]
pub fn text(at: Millis) -> String {
    let since = i64::try_from(at.min(MAX).0).unwrap_or(i64::MAX);
    EPOCH.checked_add(SignedDuration::from_millis(since)).map(|at| format!("{at}Z")).unwrap_or_default()
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
