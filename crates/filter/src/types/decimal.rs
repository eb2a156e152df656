//! `numeric`: exact, with the scales that Postgres's operators give their results.

use crate::budget::{Budget, Failed};
use num_bigint::{BigInt, Sign};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Equality and hash of the traits are those of the text (`1.0` is not `1.00`); [`Decimal::compare`] is that of the
/// number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Decimal {
    NaN,
    Infinity {
        negative: bool,
    },
    /// `unscaled / 10^scale`
    Finite {
        unscaled: BigInt,
        scale: u32,
    },
}

/// Most digits after the point.
const SCALE_MAX: u32 = 16_383;
/// Most digits before the point.
const WHOLE_MAX: i64 = 131_072;
/// Most digits after the point that a division gives by itself.
const DISPLAY_SCALE_MAX: i64 = 1000;

/// Longest result of an operator, about 20,000 digits: where clauses are evaluated for every row, and long division is
/// slow.
const RESULT_BITS_MAX: u64 = 1 << 16;
/// Longest constant, about 1,000 digits.
const CONSTANT_BITS_MAX: u64 = 3400;
const CONSTANT_SCALE_MAX: u32 = 1000;

/// Why an operation has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    NotANumber,
    Overflow,
    DivisionByZero,
    /// Postgres has a result; to compute it costs more than an evaluation may.
    Costly,
}

impl From<Failed> for Fault {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Invalid => Self::NotANumber,
            Failed::Costly => Self::Costly,
        }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotANumber | Fault::Overflow | Fault::DivisionByZero => Self::Invalid,
            Fault::Costly => Self::Costly,
        }
    }
}

/// Cost of multiplying numbers of this many limbs of 64 bits, of dividing, or of writing one in another base:
/// schoolbook, as measured.
fn product(a: u64, b: u64) -> u64 {
    a * b / 2 + 8 * (a + b) + 40
}

/// The limbs of this many decimal digits.
fn limbs_of(digits: u64) -> u64 {
    digits / 19 + 1
}

/// Cost of multiplying a number of this many limbs by a power of ten.
fn raising(limbs: u64, exponent: u32) -> u64 {
    let power = limbs_of(exponent.into());
    product(power, power) / 4 + product(limbs, power)
}

fn ten_to(exponent: u32) -> BigInt {
    BigInt::from(10_u32).pow(exponent)
}

fn is_zero(number: &BigInt) -> bool {
    number.sign() == Sign::NoSign
}

/// Half away from zero.
fn divide_rounded(number: &BigInt, by: &BigInt) -> BigInt {
    let quotient = number / by;
    let rest: BigInt = number - &quotient * by;
    let twice = rest.magnitude() * 2_u32;
    if twice < *by.magnitude() {
        return quotient;
    }
    if (number.sign() == Sign::Minus) == (by.sign() == Sign::Minus) { quotient + 1 } else { quotient - 1 }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self::Finite { unscaled: number.into(), scale: 0 }
    }
}

impl Decimal {
    pub(crate) fn parse(text: &str, budget: &Budget) -> Result<Self, Fault> {
        let text = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
            return Ok(Self::Infinity { negative });
        }
        if text.eq_ignore_ascii_case("nan") {
            return Ok(Self::NaN);
        }
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], exponent(&unsigned[at + 1..])?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = [whole, fraction].concat();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Fault::NotANumber);
        }
        if digits.len() > 2 * (WHOLE_MAX as usize) {
            return Err(Fault::Overflow);
        }
        let scale = i64::try_from(fraction.len()).unwrap_or(i64::MAX) - exponent;
        let significant = digits.trim_start_matches('0').len() as i64;
        if significant > 0 && significant - scale > WHOLE_MAX {
            return Err(Fault::Overflow);
        }
        let shifted = exponent.clamp(0, WHOLE_MAX).unsigned_abs();
        let limbs = limbs_of(digits.len() as u64 + shifted);
        budget.spend(product(limbs, limbs))?;
        let mut unscaled = BigInt::parse_bytes(digits.as_bytes(), 10).ok_or(Fault::NotANumber)?;
        if negative {
            unscaled = -unscaled;
        }
        if scale > i64::from(SCALE_MAX) {
            // Digits beyond the scale are rounded.
            let excess = u32::try_from(scale - i64::from(SCALE_MAX)).unwrap_or(u32::MAX);
            let kept =
                if i64::from(excess) > significant { BigInt::ZERO } else { divide_rounded(&unscaled, &ten_to(excess)) };
            return Ok(Self::Finite { unscaled: kept, scale: SCALE_MAX });
        }
        if scale < 0 && !is_zero(&unscaled) {
            unscaled *= ten_to(u32::try_from(-scale).map_err(|_| Fault::Overflow)?);
        }
        Ok(Self::Finite { unscaled, scale: u32::try_from(scale.max(0)).unwrap_or(0) })
    }

    /// Limbs of 64 bits.
    fn limbs(&self) -> u64 {
        match self {
            Self::Finite { unscaled, .. } => unscaled.bits() / 64 + 1,
            Self::NaN | Self::Infinity { .. } => 1,
        }
    }

    /// Bytes of memory.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.limbs() as usize * 8
    }

    /// Cost of writing, parsing, or hashing the number.
    pub(crate) fn cost_of_text(&self) -> u64 {
        product(self.limbs(), self.limbs())
    }

    /// Cost of a comparison with another number.
    pub(crate) fn cost_of_comparing(&self, other: &Self) -> u64 {
        match (self, other) {
            (Self::Finite { scale: x, .. }, Self::Finite { scale: y, .. }) if x < y => raising(self.limbs(), y - x),
            (Self::Finite { scale: x, .. }, Self::Finite { scale: y, .. }) if x > y => raising(other.limbs(), x - y),
            _ => self.limbs().min(other.limbs()) + 4,
        }
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let rank = |d: &Self| match d {
            Self::Infinity { negative: true } => 0,
            Self::Finite { .. } => 1,
            Self::Infinity { negative: false } => 2,
            Self::NaN => 3,
        };
        match (self, other) {
            (Self::Finite { unscaled: a, scale: x }, Self::Finite { unscaled: b, scale: y }) => {
                if x == y || a.sign() != b.sign() {
                    a.cmp(b)
                } else if x < y {
                    (a * ten_to(y - x)).cmp(b)
                } else {
                    a.cmp(&(b * ten_to(x - y)))
                }
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }

    /// Hashes equally numbers that compare equal.
    pub(crate) fn hash_number<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Finite { unscaled, .. } if is_zero(unscaled) => 0_u32.hash(state),
            Self::Finite { unscaled, scale } => {
                // Hashes without the zeros at the end, so that 1.0 is 1.00 and 100 is 100.0.
                let text = unscaled.to_string();
                let digits = text.trim_end_matches('0');
                digits.hash(state);
                (i64::from(*scale) - (text.len() - digits.len()) as i64).hash(state);
            }
            other => other.hash(state),
        }
    }

    pub(crate) fn negate(&self) -> Self {
        match self {
            Self::NaN => Self::NaN,
            Self::Infinity { negative } => Self::Infinity { negative: !negative },
            Self::Finite { unscaled, scale } => Self::Finite { unscaled: -unscaled, scale: *scale },
        }
    }

    pub(crate) fn is_negative(&self) -> bool {
        match self {
            Self::NaN => false,
            Self::Infinity { negative } => *negative,
            Self::Finite { unscaled, .. } => unscaled.sign() == Sign::Minus,
        }
    }

    fn is_zero(&self) -> bool {
        matches!(self, Self::Finite { unscaled, .. } if is_zero(unscaled))
    }

    fn checked(unscaled: BigInt, scale: u32) -> Result<Self, Fault> {
        if unscaled.bits() > RESULT_BITS_MAX {
            return Err(Fault::Costly);
        }
        Ok(Self::Finite { unscaled, scale })
    }

    /// Whether it is short enough for a constant.
    pub(crate) fn is_short(&self) -> bool {
        match self {
            Self::Finite { unscaled, scale } => unscaled.bits() <= CONSTANT_BITS_MAX && *scale <= CONSTANT_SCALE_MAX,
            _ => true,
        }
    }

    /// Spends the cost of bringing both numbers to one scale.
    fn align(&self, other: &Self, budget: &Budget) -> Result<(), Fault> {
        Ok(budget.spend(self.cost_of_comparing(other) + 8 * (self.limbs() + other.limbs()))?)
    }

    pub(crate) fn add(&self, other: &Self, budget: &Budget) -> Result<Self, Fault> {
        self.align(other, budget)?;
        match (self, other) {
            (Self::Finite { unscaled: a, scale: x }, Self::Finite { unscaled: b, scale: y }) => {
                let scale = *x.max(y);
                Self::checked(a * ten_to(scale - x) + b * ten_to(scale - y), scale)
            }
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            (Self::Infinity { negative: a }, Self::Infinity { negative: b }) if a != b => Ok(Self::NaN),
            (infinite @ Self::Infinity { .. }, _) | (_, infinite) => Ok(infinite.clone()),
        }
    }

    pub(crate) fn subtract(&self, other: &Self, budget: &Budget) -> Result<Self, Fault> {
        self.add(&other.negate(), budget)
    }

    pub(crate) fn multiply(&self, other: &Self, budget: &Budget) -> Result<Self, Fault> {
        let limbs = self.limbs() + other.limbs();
        // Digits beyond the largest scale are rounded.
        budget.spend(2 * product(self.limbs(), other.limbs()) + product(limbs, 1))?;
        match (self, other) {
            (Self::Finite { unscaled: a, scale: x }, Self::Finite { unscaled: b, scale: y }) => {
                let product = Self::checked(a * b, x + y)?;
                Ok(if x + y > SCALE_MAX { product.round(SCALE_MAX) } else { product })
            }
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            _ if self.is_zero() || other.is_zero() => Ok(Self::NaN),
            _ => Ok(Self::Infinity { negative: self.is_negative() != other.is_negative() }),
        }
    }

    pub(crate) fn divide(&self, other: &Self, budget: &Budget) -> Result<Self, Fault> {
        // The scale of the quotient is found by the digits of both.
        budget.spend(self.cost_of_text() + other.cost_of_text())?;
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            _ if other.is_zero() => Err(Fault::DivisionByZero),
            (Self::Finite { unscaled: a, scale: x }, Self::Finite { unscaled: b, scale: y }) => {
                let scale = self.quotient_scale(other);
                // a/10^x / (b/10^y) at `scale` is a * 10^(scale + y - x) / b.
                let shift = i64::from(scale) + i64::from(*y) - i64::from(*x);
                let by = |n: i64| ten_to(u32::try_from(n).unwrap_or(0));
                let raised = limbs_of(shift.unsigned_abs());
                budget.spend(product(self.limbs() + raised, other.limbs() + raised))?;
                let quotient =
                    if shift >= 0 { divide_rounded(&(a * by(shift)), b) } else { divide_rounded(a, &(b * by(-shift))) };
                Self::checked(quotient, scale)
            }
            (Self::Infinity { .. }, Self::Infinity { .. }) => Ok(Self::NaN),
            (Self::Infinity { .. }, _) => Ok(Self::Infinity { negative: self.is_negative() != other.is_negative() }),
            (Self::Finite { .. }, _) => Ok(Self::from(0)),
        }
    }

    /// The remainder, with the sign of the dividend.
    pub(crate) fn remainder(&self, other: &Self, budget: &Budget) -> Result<Self, Fault> {
        self.align(other, budget)?;
        budget.spend(product(self.limbs().max(other.limbs()), self.limbs().min(other.limbs())))?;
        match (self, other) {
            (Self::NaN, _) | (_, Self::NaN) => Ok(Self::NaN),
            _ if other.is_zero() => Err(Fault::DivisionByZero),
            (Self::Infinity { .. }, _) => Ok(Self::NaN),
            (Self::Finite { .. }, Self::Infinity { .. }) => Ok(self.clone()),
            (Self::Finite { unscaled: a, scale: x }, Self::Finite { unscaled: b, scale: y }) => {
                let scale = *x.max(y);
                Self::checked((a * ten_to(scale - x)) % (b * ten_to(scale - y)), scale)
            }
        }
    }

    /// `select_div_scale` of Postgres: at least 16 significant digits, counted in digits to the base of 10,000.
    fn quotient_scale(&self, other: &Self) -> u32 {
        let first = |d: &Self| {
            let Self::Finite { unscaled, scale } = d else { return (0, 0, 0) };
            if is_zero(unscaled) {
                return (0, 0, i64::from(*scale));
            }
            let digits = unscaled.magnitude().to_string();
            // The exponent of the first digit, and of the group of four it is in.
            let exponent = digits.len() as i64 - 1 - i64::from(*scale);
            let weight = exponent.div_euclid(4);
            let width = (exponent - 4 * weight + 1) as usize;
            let group: String = digits.chars().chain(std::iter::repeat('0')).take(width).collect();
            (weight, group.parse::<i64>().unwrap_or(0), i64::from(*scale))
        };
        let (weight, digit, scale) = first(self);
        let (other_weight, other_digit, other_scale) = first(other);
        let weight = weight - other_weight - i64::from(digit <= other_digit);
        let wanted = (16 - 4 * weight).max(scale).max(other_scale).clamp(0, DISPLAY_SCALE_MAX);
        u32::try_from(wanted).unwrap_or(0)
    }

    /// Half away from zero.
    pub(crate) fn round(&self, to: u32) -> Self {
        match self {
            Self::Finite { unscaled, scale } if *scale > to => {
                Self::Finite { unscaled: divide_rounded(unscaled, &ten_to(scale - to)), scale: to }
            }
            Self::Finite { unscaled, scale } => Self::Finite { unscaled: unscaled * ten_to(to - scale), scale: to },
            other => other.clone(),
        }
    }

    /// Whether the number has at most this many digits before the point.
    pub(crate) fn fits(&self, whole: u32) -> bool {
        match self {
            Self::Finite { unscaled, scale } => *unscaled.magnitude() < *ten_to(whole + scale).magnitude(),
            Self::NaN => true,
            Self::Infinity { .. } => false,
        }
    }

    /// Rounded half away from zero; `None` out of range.
    pub(crate) fn to_i64(&self) -> Option<i64> {
        match self.round(0) {
            Self::Finite { unscaled, .. } => i64::try_from(unscaled).ok(),
            _ => None,
        }
    }

    pub(crate) fn to_f64(&self) -> f64 {
        match self {
            Self::NaN => f64::NAN,
            Self::Infinity { negative } => {
                if *negative {
                    f64::NEG_INFINITY
                } else {
                    f64::INFINITY
                }
            }
            finite => finite.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    /// The decimal with the 15 significant digits (6 of a single) that Postgres keeps.
    pub(crate) fn from_f64(value: f64, single: bool) -> Self {
        if value.is_nan() {
            return Self::NaN;
        }
        if value.is_infinite() {
            return Self::Infinity { negative: value < 0.0 };
        }
        let text = format!("{value:.*e}", if single { 5 } else { 14 });
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        // As `%.15g` prints it: without the zeros at the end.
        let mantissa =
            if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
        Self::parse(&format!("{mantissa}e{exponent}"), &Budget::unlimited()).unwrap_or(Self::NaN)
    }
}

fn exponent(text: &str) -> Result<i64, Fault> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fault::NotANumber);
    }
    text.strip_prefix('+')
        .unwrap_or(text)
        .parse::<i64>()
        .ok()
        .filter(|e| e.abs() < i64::from(i32::MAX) / 2)
        .ok_or(Fault::Overflow)
}

impl fmt::Display for Decimal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NaN => out.write_str("NaN"),
            Self::Infinity { negative } => out.write_str(if *negative { "-Infinity" } else { "Infinity" }),
            Self::Finite { unscaled, scale } => {
                let digits = unscaled.magnitude().to_string();
                let scale = *scale as usize;
                let digits = format!("{digits:0>width$}", width = scale + 1);
                let (whole, fraction) = digits.split_at(digits.len() - scale);
                let sign = if unscaled.sign() == Sign::Minus { "-" } else { "" };
                let point = if scale == 0 { "" } else { "." };
                write!(out, "{sign}{whole}{point}{fraction}")
            }
        }
    }
}
