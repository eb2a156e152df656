//! Floating point as Postgres has it: a total order in which NaN is the largest, and its shortest text.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A float with bitwise equality, which the equality of expressions needs. [`compare`] is Postgres's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Float(pub(crate) f64);

impl PartialEq for Float {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Float {}

impl Hash for Float {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

pub(crate) fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Equal for values that compare equal: both zeros, and every NaN.
pub(crate) fn key(value: f64) -> u64 {
    if value.is_nan() {
        u64::MAX
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// `None` if it is no number of this width, or outside its range.
pub(crate) fn parse(text: &str, single: bool) -> Option<f64> {
    let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let named = ["nan", "inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name));
    if !named && !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let value: f64 = if single { text.parse::<f32>().ok()?.into() } else { text.parse().ok()? };
    let lost = value.is_infinite()
        || value == 0.0 && unsigned.split(['e', 'E']).next()?.contains(|c: char| ('1'..='9').contains(&c));
    (named || !lost).then_some(value)
}

/// `None` if a single would overflow.
pub(crate) fn to_single(value: f64) -> Option<f64> {
    #[expect(clippy::cast_possible_truncation, reason = "the rounding is intended")]
    let single = value as f32;
    (single.is_finite() || !value.is_finite()).then_some(f64::from(single))
}

/// The shortest text that reads back as the same number, in the notation that Postgres chooses.
pub(crate) fn print(value: f64, single: bool) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    #[expect(clippy::cast_possible_truncation, reason = "a single is kept as a double")]
    let scientific = if single { format!("{:e}", value as f32) } else { format!("{value:e}") };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..if single { 6 } else { 15 }).contains(&exponent) {
        return if single { (value as f32).to_string() } else { value.to_string() };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
