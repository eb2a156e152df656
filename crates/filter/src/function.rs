//! Functions and operators that are null if an argument is.

use crate::budget::{Budget, Failed};
use crate::like;
use crate::types::Base;
use crate::types::array::{Array, Dimension};
use crate::types::datetime::{self, DAY_MICROS, TIMESTAMP_MAX, TIMESTAMP_MIN};
use crate::types::decimal::{Decimal, Fault};
use crate::types::float::{self, Float};
use crate::types::input::in_range;
use crate::types::interval::Interval;
use crate::types::value::{Value, compare_within, unpadded, wrap_time};
use hashbrown::HashSet;
use std::sync::Arc;

/// Operation of a function; a base is the type of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Add(Base),
    Subtract(Base),
    Multiply(Base),
    Divide(Base),
    Remainder(Base),
    Negate(Base),
    Abs(Base),
    Power,
    SquareRoot,
    CubeRoot,
    BitAnd,
    BitOr,
    BitXor,
    BitNot,
    ShiftLeft(Base),
    ShiftRight(Base),
    DateAddDays,
    DaysAddDate,
    DateSubtractDays,
    DateSubtractDate,
    DateAddTime,
    TimeAddDate,
    TimestampAdd,
    IntervalAddTimestamp,
    TimestampSubtract,
    /// Addition to a timestamp with a zone: days are added in UTC.
    ZonedAdd,
    ZonedSubtract,
    TimestampDifference,
    TimeAdd,
    IntervalAddTime,
    TimeSubtract,
    TimeDifference,
    IntervalAdd,
    IntervalSubtract,
    IntervalNegate,
    JustifyDays,
    JustifyHours,
    JustifyInterval,
    Concat,
    BytesConcat,
    /// In the collation "C" only ASCII letters have cases.
    Lower {
        ascii: bool,
    },
    Upper {
        ascii: bool,
    },
    Length,
    OctetLength,
    Trim {
        start: bool,
        end: bool,
    },
    Left,
    Right,
    StartsWith,
    Position,
    Replace,
    /// `like_escape`
    LikeEscape,
    ArrayContains,
    ArrayContained,
    ArrayOverlaps,
    ArrayConcat,
    ArrayAppend,
    ArrayPrepend,
    ArrayDimensions,
    ArrayLength,
    Cardinality,
    Element,
    /// A slice with optional bounds.
    Slice {
        from: bool,
        to: bool,
    },
    JsonMember,
    JsonMemberText,
    JsonElement,
    JsonElementText,
    JsonPath,
    JsonPathText,
    JsonContains,
    JsonContained,
    JsonHas,
    JsonHasAny,
    JsonHasAll,
    /// The blanks at the end of a `character(n)` do not count in comparisons. It is not written in SQL.
    Unpad,
}

/// Notation of a function.
pub(crate) enum Spelling {
    Infix(&'static str),
    Prefix(&'static str),
    Named(&'static str),
    /// Handled separately.
    Special,
}

impl Function {
    pub(crate) fn spelling(self) -> Spelling {
        use Spelling::{Infix, Named, Prefix, Special};
        match self {
            Self::Add(_) | Self::DateAddDays | Self::DaysAddDate | Self::DateAddTime | Self::TimeAddDate => Infix("+"),
            Self::TimestampAdd
            | Self::IntervalAddTimestamp
            | Self::TimeAdd
            | Self::IntervalAddTime
            | Self::IntervalAdd => Infix("+"),
            Self::Subtract(_) | Self::DateSubtractDays | Self::DateSubtractDate | Self::TimestampSubtract => Infix("-"),
            Self::TimestampDifference | Self::TimeSubtract | Self::TimeDifference | Self::IntervalSubtract => {
                Infix("-")
            }
            Self::Multiply(_) => Infix("*"),
            Self::Divide(_) => Infix("/"),
            Self::Remainder(_) => Infix("%"),
            Self::Negate(_) | Self::IntervalNegate => Prefix("-"),
            Self::Abs(_) => Prefix("@"),
            Self::Power => Infix("^"),
            Self::SquareRoot => Prefix("|/"),
            Self::CubeRoot => Prefix("||/"),
            Self::BitAnd => Infix("&"),
            Self::BitOr => Infix("|"),
            Self::BitXor => Infix("#"),
            Self::BitNot => Prefix("~"),
            Self::ShiftLeft(_) => Infix("<<"),
            Self::ShiftRight(_) => Infix(">>"),
            Self::Concat | Self::BytesConcat | Self::ArrayConcat | Self::ArrayAppend | Self::ArrayPrepend => {
                Infix("||")
            }
            Self::JustifyDays => Named("justify_days"),
            Self::JustifyHours => Named("justify_hours"),
            Self::JustifyInterval => Named("justify_interval"),
            Self::Lower { .. } => Named("lower"),
            Self::Upper { .. } => Named("upper"),
            Self::Length => Named("length"),
            Self::OctetLength => Named("octet_length"),
            Self::Trim { start: true, end: true } => Named("btrim"),
            Self::Trim { start: true, .. } => Named("ltrim"),
            Self::Trim { .. } => Named("rtrim"),
            Self::Left => Named("left"),
            Self::Right => Named("right"),
            Self::StartsWith => Named("starts_with"),
            Self::Position => Named("strpos"),
            Self::Replace => Named("replace"),
            Self::LikeEscape => Named("like_escape"),
            Self::ArrayContains | Self::JsonContains => Infix("@>"),
            Self::ArrayContained | Self::JsonContained => Infix("<@"),
            Self::ArrayOverlaps => Infix("&&"),
            Self::ArrayDimensions => Named("array_ndims"),
            Self::ArrayLength => Named("array_length"),
            Self::Cardinality => Named("cardinality"),
            Self::JsonMember | Self::JsonElement => Infix("->"),
            Self::JsonMemberText | Self::JsonElementText => Infix("->>"),
            Self::JsonPath => Infix("#>"),
            Self::JsonPathText => Infix("#>>"),
            Self::JsonHas => Infix("?"),
            Self::JsonHasAny => Infix("?|"),
            Self::JsonHasAll => Infix("?&"),
            Self::ZonedAdd | Self::ZonedSubtract | Self::Element | Self::Slice { .. } | Self::Unpad => Special,
        }
    }

    /// For arguments that are not null and have the types of the signature.
    pub(crate) fn call<'a>(self, args: &[Value<'a>], budget: &Budget) -> Result<Value<'a>, Failed> {
        budget.spend(8)?;
        match (self, args) {
            (Self::ArrayConcat, [other, Value::Null] | [Value::Null, other]) => return Ok(other.clone()),
            (Self::ArrayAppend, [Value::Null, element]) => return concat_one(&Arc::default(), element, false, budget),
            (Self::ArrayPrepend, [element, Value::Null]) => return concat_one(&Arc::default(), element, true, budget),
            _ => {}
        }
        match args {
            [Value::Int(a), Value::Int(b)] => self.integers(*a, *b),
            [Value::Float(a), Value::Float(b)] => self.floats(a.0, b.0),
            [Value::Numeric(a), Value::Numeric(b)] => self.decimals(a, b, budget),
            [Value::Text(_), ..] => self.texts(args, budget),
            [Value::Array(array), ..] => self.arrays(array, &args[1..], budget),
            [only] => self.unary(only),
            [Value::Jsonb(_), _] => self.json(&args[0], &args[1], budget),
            [left, right] => self.mixed(left, right, budget),
            _ => Err(Failed::Invalid),
        }
    }

    fn integers<'a>(self, a: i64, b: i64) -> Result<Value<'a>, Failed> {
        let (result, base) = match self {
            Self::Add(base) => (a.checked_add(b), base),
            Self::Subtract(base) => (a.checked_sub(b), base),
            Self::Multiply(base) => (a.checked_mul(b), base),
            Self::Divide(base) => (a.checked_div(b), base),
            // The smallest number by -1 leaves nothing, and is no error.
            Self::Remainder(base) => (if b == 0 { None } else { Some(a.wrapping_rem(b)) }, base),
            Self::BitAnd => (Some(a & b), Base::Int8),
            Self::BitOr => (Some(a | b), Base::Int8),
            Self::BitXor => (Some(a ^ b), Base::Int8),
            // Shifts as the hardware does: by the lower bits of the count.
            Self::ShiftLeft(base) => (Some(shift_left(a, b, base)), base),
            Self::ShiftRight(base) => {
                let bits = if base == Base::Int8 { 63 } else { 31 };
                (Some(a >> (b & bits)), base)
            }
            _ => return Err(Failed::Invalid),
        };
        result.filter(|value| in_range(*value, base)).map(Value::Int).ok_or(Failed::Invalid)
    }

    fn floats<'a>(self, a: f64, b: f64) -> Result<Value<'a>, Failed> {
        let (result, base) = match self {
            Self::Add(base) => (a + b, base),
            Self::Subtract(base) => (a - b, base),
            Self::Multiply(base) => (a * b, base),
            Self::Divide(base) => (a / b, base),
            Self::Power => return power(a, b),
            _ => return Err(Failed::Invalid),
        };
        let divides = matches!(self, Self::Divide(_));
        if divides && b == 0.0 && !a.is_nan() {
            return Err(Failed::Invalid);
        }
        // An operation on doubles, rounded once more, gives the result of the operation on singles.
        let result = if base == Base::Float4 { float::to_single(result).ok_or(Failed::Invalid)? } else { result };
        let overflowed = result.is_infinite() && a.is_finite() && b.is_finite();
        let vanished = match self {
            Self::Multiply(_) => result == 0.0 && a != 0.0 && b != 0.0,
            Self::Divide(_) => result == 0.0 && a != 0.0 && b.is_finite(),
            _ => false,
        };
        if overflowed || vanished { Err(Failed::Invalid) } else { Ok(Value::Float(Float(result))) }
    }

    fn decimals<'a>(self, a: &Decimal, b: &Decimal, budget: &Budget) -> Result<Value<'a>, Failed> {
        let result: Result<Decimal, Fault> = match self {
            Self::Add(_) => a.add(b, budget),
            Self::Subtract(_) => a.subtract(b, budget),
            Self::Multiply(_) => a.multiply(b, budget),
            Self::Divide(_) => a.divide(b, budget),
            Self::Remainder(_) => a.remainder(b, budget),
            _ => return Err(Failed::Invalid),
        };
        Ok(result?.into())
    }

    fn unary<'a>(self, value: &Value<'a>) -> Result<Value<'a>, Failed> {
        Ok(match (self, value) {
            (Self::Negate(base), Value::Int(x)) => {
                Value::Int(x.checked_neg().filter(|x| in_range(*x, base)).ok_or(Failed::Invalid)?)
            }
            (Self::Abs(base), Value::Int(x)) => {
                Value::Int(x.checked_abs().filter(|x| in_range(*x, base)).ok_or(Failed::Invalid)?)
            }
            (Self::BitNot, Value::Int(x)) => Value::Int(!x),
            (Self::Negate(_), Value::Float(x)) => Value::Float(Float(-x.0)),
            (Self::Abs(_), Value::Float(x)) => Value::Float(Float(x.0.abs())),
            (Self::SquareRoot, Value::Float(x)) if x.0 < 0.0 => return Err(Failed::Invalid),
            (Self::SquareRoot, Value::Float(x)) => Value::Float(Float(x.0.sqrt())),
            (Self::CubeRoot, Value::Float(x)) => Value::Float(Float(x.0.cbrt())),
            (Self::Negate(_), Value::Numeric(x)) => x.negate().into(),
            (Self::Abs(_), Value::Numeric(x)) => if x.is_negative() { x.negate() } else { Decimal::clone(x) }.into(),
            (Self::IntervalNegate, Value::Interval(x)) => Value::Interval(x.negate().ok_or(Failed::Invalid)?),
            (Self::JustifyDays, Value::Interval(x)) => Value::Interval(x.justify_days().ok_or(Failed::Invalid)?),
            (Self::JustifyHours, Value::Interval(x)) => Value::Interval(x.justify_hours().ok_or(Failed::Invalid)?),
            (Self::JustifyInterval, Value::Interval(x)) => {
                Value::Interval(x.justify_interval().ok_or(Failed::Invalid)?)
            }
            (Self::OctetLength, Value::Bytes(x)) => length(x.len()),
            _ => return Err(Failed::Invalid),
        })
    }

    fn mixed<'a>(self, left: &Value<'a>, right: &Value<'a>, budget: &Budget) -> Result<Value<'a>, Failed> {
        match (self, left, right) {
            (Self::BytesConcat, Value::Bytes(a), Value::Bytes(b)) => {
                // Joined, and then copied into its place.
                budget.make(2 * (a.len() + b.len()))?;
                Ok(Value::Bytes([&a[..], &b[..]].concat().into()))
            }
            (Self::ArrayPrepend, element, Value::Array(array)) => prepend(element, array, budget),
            (Self::ArrayContained, ..) => Err(Failed::Invalid),
            _ => self.moments(left, right).ok_or(Failed::Invalid),
        }
    }

    /// Dates, times and intervals.
    fn moments<'a>(self, left: &Value<'a>, right: &Value<'a>) -> Option<Value<'a>> {
        let infinite = |x: i64| matches!(x, TIMESTAMP_MAX | TIMESTAMP_MIN);
        if let (Value::Time(_), Value::Interval(i)) | (Value::Interval(i), Value::Time(_)) = (left, right)
            && i.is_infinite()
        {
            return None;
        }
        Some(match (self, left, right) {
            (Self::DateAddDays, Value::Date(d), Value::Int(n)) | (Self::DaysAddDate, Value::Int(n), Value::Date(d)) => {
                shift_date(*d, *n)?
            }
            (Self::DateSubtractDays, Value::Date(d), Value::Int(n)) => shift_date(*d, -n)?,
            (Self::DateSubtractDate, Value::Date(a), Value::Date(b)) => {
                let finite = |d: i32| d != datetime::DATE_MAX && d != datetime::DATE_MIN;
                if !finite(*a) || !finite(*b) {
                    return None;
                }
                Value::Int(i64::from(*a) - i64::from(*b))
            }
            (Self::DateAddTime, Value::Date(d), Value::Time(t))
            | (Self::TimeAddDate, Value::Time(t), Value::Date(d)) => {
                let day = datetime::date_to_timestamp(*d)?;
                Value::Timestamp(if infinite(day) {
                    day
                } else {
                    day.checked_add(*t).filter(|m| datetime::is_timestamp(*m))?
                })
            }
            (Self::TimestampAdd | Self::ZonedAdd, Value::Timestamp(t), Value::Interval(i))
            | (Self::IntervalAddTimestamp | Self::ZonedAdd, Value::Interval(i), Value::Timestamp(t)) => {
                Value::Timestamp(i.after(*t)?)
            }
            (Self::TimestampSubtract | Self::ZonedSubtract, Value::Timestamp(t), Value::Interval(i)) => {
                Value::Timestamp(i.negate()?.after(*t)?)
            }
            (Self::TimestampDifference, Value::Timestamp(a), Value::Timestamp(b)) => {
                match (infinite(*a), infinite(*b)) {
                    (true, true) if a == b => return None,
                    (true, _) => {
                        return Some(Value::Interval(if *a > 0 {
                            Interval::INFINITE
                        } else {
                            Interval::INFINITE_BACK
                        }));
                    }
                    (_, true) => {
                        return Some(Value::Interval(if *b > 0 {
                            Interval::INFINITE_BACK
                        } else {
                            Interval::INFINITE
                        }));
                    }
                    _ => {}
                }
                Value::Interval(Interval { micros: a.checked_sub(*b)?, ..Interval::default() }.justify_hours()?)
            }
            (Self::TimeAdd, Value::Time(t), Value::Interval(i))
            | (Self::IntervalAddTime, Value::Interval(i), Value::Time(t)) => {
                Value::Time(wrap_time(t + i.micros % DAY_MICROS))
            }
            (Self::TimeSubtract, Value::Time(t), Value::Interval(i)) => {
                Value::Time(wrap_time(t - i.micros % DAY_MICROS))
            }
            (Self::TimeDifference, Value::Time(a), Value::Time(b)) => {
                Value::Interval(Interval { micros: a - b, ..Interval::default() })
            }
            (Self::IntervalAdd, Value::Interval(a), Value::Interval(b)) => Value::Interval(a.add(*b)?),
            (Self::IntervalSubtract, Value::Interval(a), Value::Interval(b)) => Value::Interval(a.add(b.negate()?)?),
            _ => return None,
        })
    }

    fn texts<'a>(self, args: &[Value<'a>], budget: &Budget) -> Result<Value<'a>, Failed> {
        let text = |i: usize| match args.get(i) {
            Some(Value::Text(text)) => Ok(&**text),
            _ => Err(Failed::Invalid),
        };
        let first = text(0)?;
        match self {
            Self::Unpad | Self::OctetLength | Self::StartsWith => {}
            // Character by character, into a text of the same length.
            Self::Lower { ascii: false } | Self::Upper { ascii: false } | Self::Trim { .. } | Self::LikeEscape => {
                budget.make(4 * first.len())?;
            }
            _ => budget.make(2 * first.len())?,
        }
        Ok(match self {
            Self::Concat => {
                let second = text(1)?;
                budget.make(first.len() + second.len())?;
                [first, second].concat().into()
            }
            Self::Lower { ascii: true } => first.to_ascii_lowercase().into(),
            Self::Upper { ascii: true } => first.to_ascii_uppercase().into(),
            Self::Lower { .. } => like::fold(first).into_owned().into(),
            Self::Upper { .. } => like::unfold(first).into(),
            Self::Length => length(first.chars().count()),
            Self::OctetLength => length(first.len()),
            Self::Unpad => match &args[0] {
                Value::Text(text) => Value::Text(unpadded(text.clone())),
                _ => return Err(Failed::Invalid),
            },
            Self::Trim { start, end } => {
                let what = if args.len() > 1 { text(1)? } else { " " };
                budget.make(32 * what.len())?;
                let what: HashSet<char> = what.chars().collect();
                budget.spend(16 * first.len() as u64)?;
                let is_trimmed = |char: char| what.contains(&char);
                let mut rest = first;
                if start {
                    rest = rest.trim_start_matches(is_trimmed);
                }
                if end {
                    rest = rest.trim_end_matches(is_trimmed);
                }
                rest.to_owned().into()
            }
            Self::Left | Self::Right => {
                let Some(Value::Int(count)) = args.get(1) else { return Err(Failed::Invalid) };
                let all = i64::try_from(first.chars().count()).unwrap_or(i64::MAX);
                let taken = if *count < 0 { (all + count).max(0) } else { (*count).min(all) };
                let cut = if self == Self::Left { taken } else { all - taken };
                let at = first.char_indices().nth(usize::try_from(cut).unwrap_or(0)).map_or(first.len(), |(at, _)| at);
                if self == Self::Left { &first[..at] } else { &first[at..] }.to_owned().into()
            }
            Self::StartsWith => Value::Bool(first.starts_with(text(1)?)),
            Self::Position => {
                let second = text(1)?;
                budget.make(second.len())?;
                let at = memchr::memmem::find(first.as_bytes(), second.as_bytes());
                Value::Int(at.map_or(0, |at| 1 + i64::try_from(first[..at].chars().count()).unwrap_or(0)))
            }
            Self::Replace => {
                let (from, to) = (text(1)?, text(2)?);
                if from.is_empty() {
                    return Ok(first.to_owned().into());
                }
                budget.make(from.len())?;
                let found = memchr::memmem::find_iter(first.as_bytes(), from.as_bytes()).count();
                // The text grows while it is made.
                budget.make(16 * found + 2 * (first.len() + found * to.len()))?;
                first.replace(from, to).into()
            }
            Self::LikeEscape => {
                let mut escape = text(1)?.chars();
                let char = escape.next();
                if escape.next().is_some() {
                    return Err(Failed::Invalid);
                }
                like::with_backslash(first, char).into()
            }
            Self::ArrayPrepend => match &args[1] {
                Value::Array(array) => prepend(&args[0], array, budget)?,
                _ => return Err(Failed::Invalid),
            },
            _ => return Err(Failed::Invalid),
        })
    }

    fn arrays<'a>(self, array: &Arc<Array>, rest: &[Value<'a>], budget: &Budget) -> Result<Value<'a>, Failed> {
        Ok(match (self, rest) {
            (Self::ArrayContains, [Value::Array(other)]) => Value::Bool(contains(array, other, budget)?),
            (Self::ArrayContained, [Value::Array(other)]) => Value::Bool(contains(other, array, budget)?),
            (Self::ArrayOverlaps, [Value::Array(other)]) => Value::Bool(overlaps(array, other, budget)?),
            (Self::ArrayConcat, [Value::Array(other)]) => concat(array, other, budget)?,
            (Self::ArrayAppend, [element]) => append(array, element, budget)?,
            (Self::ArrayPrepend, [Value::Array(other)]) => concat(array, other, budget)?,
            (Self::ArrayDimensions, []) => match array.dimensions().len() {
                0 => Value::Null,
                count => length(count),
            },
            (Self::Cardinality, []) => length(array.elements.len()),
            (Self::ArrayLength, [Value::Int(dimension)]) => {
                let dimension = usize::try_from(*dimension).ok().and_then(|d| d.checked_sub(1));
                let found = dimension.and_then(|d| array.dimensions().get(d).copied());
                found.map_or(Value::Null, |d| Value::Int(d.length.into()))
            }
            (Self::Element, [Value::Int(index)]) => array.get(*index).cloned().unwrap_or(Value::Null),
            (Self::Slice { from, to }, bounds) => {
                let mut bounds = bounds.iter().map(|bound| if let Value::Int(x) = bound { Some(*x) } else { None });
                let from = if from { bounds.next().flatten() } else { None };
                let to = if to { bounds.next().flatten() } else { None };
                budget.make(bytes_of(&array.elements))?;
                Value::Array(Arc::new(array.slice(from, to)))
            }
            _ => return Err(Failed::Invalid),
        })
    }

    fn json<'a>(self, left: &Value<'a>, right: &Value<'a>, budget: &Budget) -> Result<Value<'a>, Failed> {
        let Value::Jsonb(json) = left else { return Err(Failed::Invalid) };
        if let Value::Array(array) = right {
            budget.make(bytes_of(&array.elements))?;
        }
        let keys = |array: &'_ Array| {
            array
                .elements
                .iter()
                .map(|e| if let Value::Text(t) = e { Some(t.to_string()) } else { None })
                .collect::<Vec<_>>()
        };
        let found = match (self, right) {
            (Self::JsonContains, Value::Jsonb(other)) => return Ok(Value::Bool(json.contains(other, budget)?)),
            (Self::JsonContained, Value::Jsonb(other)) => return Ok(Value::Bool(other.contains(json, budget)?)),
            (Self::JsonHas, Value::Text(key)) => {
                budget.spend(json.cost_of_looking_up())?;
                return Ok(Value::Bool(json.has(key)));
            }
            (Self::JsonHasAny, Value::Array(array)) => {
                budget.spend(json.cost_of_looking_up() * array.elements.len() as u64)?;
                return Ok(Value::Bool(keys(array).iter().flatten().any(|key| json.has(key))));
            }
            (Self::JsonHasAll, Value::Array(array)) => {
                budget.spend(json.cost_of_looking_up() * array.elements.len() as u64)?;
                return Ok(Value::Bool(keys(array).iter().flatten().all(|key| json.has(key))));
            }
            (Self::JsonMember | Self::JsonMemberText, Value::Text(key)) => json.member(key),
            (Self::JsonElement | Self::JsonElementText, Value::Int(index)) => json.element(*index),
            (Self::JsonPath | Self::JsonPathText, Value::Array(path)) => {
                let keys = keys(path);
                // A null in a path leads nowhere.
                if keys.iter().any(Option::is_none) {
                    None
                } else {
                    json.path(keys.iter().flatten().map(String::as_str))
                }
            }
            _ => return Err(Failed::Invalid),
        };
        let as_text = matches!(self, Self::JsonMemberText | Self::JsonElementText | Self::JsonPathText);
        Ok(match found {
            None => Value::Null,
            Some(found) if as_text => found.to_text(budget)?.map_or(Value::Null, Value::from),
            Some(found) => {
                budget.make(found.size())?;
                Value::Jsonb(Arc::new(found.clone()))
            }
        })
    }
}

fn length<'a>(count: usize) -> Value<'a> {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

#[expect(clippy::cast_possible_truncation, reason = "a shift drops the bits that leave the type")]
fn shift_left(a: i64, b: i64, base: Base) -> i64 {
    match base {
        Base::Int8 => a << (b & 63),
        Base::Int4 => i64::from((a as i32) << (b & 31)),
        _ => i64::from(((a as i32) << (b & 31)) as i16),
    }
}

fn power<'a>(a: f64, b: f64) -> Result<Value<'a>, Failed> {
    if a == 0.0 && b < 0.0 || a < 0.0 && a.is_finite() && b.is_finite() && b.fract() != 0.0 {
        return Err(Failed::Invalid);
    }
    let result = a.powf(b);
    let lost = a.is_finite() && b.is_finite() && (result.is_infinite() || result == 0.0 && a != 0.0);
    if lost { Err(Failed::Invalid) } else { Ok(Value::Float(Float(result))) }
}

fn shift_date<'a>(date: i32, days: i64) -> Option<Value<'a>> {
    if matches!(date, datetime::DATE_MAX | datetime::DATE_MIN) {
        return Some(Value::Date(date));
    }
    let shifted = i32::try_from(i64::from(date) + days).ok()?;
    // From 4714-11-24 BC to 5874897-12-31.
    (-2_451_545..2_145_031_949).contains(&shifted).then_some(Value::Date(shifted))
}

/// Nulls are contained in nothing.
fn contains(array: &Array, wanted: &Array, budget: &Budget) -> Result<bool, Failed> {
    for wanted in &wanted.elements {
        if !has(array, wanted, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn overlaps(array: &Array, other: &Array, budget: &Budget) -> Result<bool, Failed> {
    for element in &array.elements {
        if has(other, element, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Nulls are nowhere.
fn has(array: &Array, wanted: &Value<'static>, budget: &Budget) -> Result<bool, Failed> {
    if wanted.is_null() {
        return Ok(false);
    }
    for element in array.elements.iter().filter(|element| !element.is_null()) {
        if compare_within(element, wanted, budget)?.is_eq() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Memory of a copy of these.
fn bytes_of(elements: &[Value<'static>]) -> usize {
    elements.iter().map(|element| size_of::<Value<'_>>() + element.own_bytes()).sum()
}

/// `array_cat`: two arrays with the same inner dimensions, or an array and one that could be its element.
fn concat<'a>(a: &Arc<Array>, b: &Arc<Array>, budget: &Budget) -> Result<Value<'a>, Failed> {
    if b.elements.is_empty() {
        return Ok(Value::Array(Arc::clone(a)));
    }
    if a.elements.is_empty() {
        return Ok(Value::Array(Arc::clone(b)));
    }
    let (left, right) = (a.dimensions(), b.dimensions());
    let lengths = |d: &[Dimension]| d.iter().map(|d| d.length).collect::<Vec<_>>();
    let (mut shape, added) = if left.len() == right.len() && lengths(&left[1..]) == lengths(&right[1..]) {
        (left, right[0].length)
    } else if left.len() == right.len() + 1 && lengths(&left[1..]) == lengths(&right) {
        (left, 1)
    } else if left.len() + 1 == right.len() && lengths(&left) == lengths(&right[1..]) {
        (right, 1)
    } else {
        return Err(Failed::Invalid);
    };
    shape[0].length = shape[0].length.checked_add(added).ok_or(Failed::Invalid)?;
    // Gathered, and then moved into their place.
    budget.make(2 * (bytes_of(&a.elements) + bytes_of(&b.elements)))?;
    let elements = a.elements.iter().chain(&b.elements).cloned().collect();
    let plain = shape.len() == 1 && shape[0].lower == 1;
    Ok(Value::Array(Arc::new(Array { elements, shape: if plain { None } else { Some(shape.into()) } })))
}

fn append<'a>(array: &Arc<Array>, element: &Value<'a>, budget: &Budget) -> Result<Value<'a>, Failed> {
    concat_one(array, element, false, budget)
}

fn prepend<'a>(element: &Value<'a>, array: &Arc<Array>, budget: &Budget) -> Result<Value<'a>, Failed> {
    concat_one(array, element, true, budget)
}

fn concat_one<'a>(array: &Arc<Array>, element: &Value<'a>, first: bool, budget: &Budget) -> Result<Value<'a>, Failed> {
    budget.make(element.own_bytes() + 64)?;
    let one = Arc::new(Array::of(vec![element.clone().owned()]));
    if array.dimensions().len() > 1 {
        return Err(Failed::Invalid);
    }
    if first { concat(&one, array, budget) } else { concat(array, &one, budget) }
}
