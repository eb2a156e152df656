//! Values, of rows (borrowed from them) and of where clauses (owned).

use super::array::Array;
use super::datetime::DAY_MICROS;
use super::decimal::Decimal;
use super::float::{self, Float};
use super::interval::Interval;
use super::json;
use crate::budget::{Budget, Failed};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value's type is known from its context. Equality and hash of the traits compare representations; [`compare`] and
/// [`hash`] are Postgres's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Value<'a> {
    Null,
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float of either width.
    Float(Float),
    Numeric(Arc<Decimal>),
    /// The text of all string types, of `json` and of unknown types. `jsonb` too, in Postgres's spelling.
    Text(Cow<'a, str>),
    /// Not a `Cow`: a second one would enlarge values by a word.
    Bytes(Arc<[u8]>),
    Uuid([u8; 16]),
    /// Days since 2000-01-01.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 2000-01-01, in UTC for a type with a zone.
    Timestamp(i64),
    Interval(Interval),
    /// The place of the label.
    Enum(u16),
    Array(Arc<Array>),
    Jsonb(Arc<json::Json>),
}

impl Value<'_> {
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The same value, borrowed if it is large.
    pub(crate) fn borrow(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(x) => Value::Bool(*x),
            Self::Int(x) => Value::Int(*x),
            Self::Float(x) => Value::Float(*x),
            Self::Numeric(x) => Value::Numeric(Arc::clone(x)),
            Self::Text(x) => Value::Text(Cow::Borrowed(x)),
            Self::Bytes(x) => Value::Bytes(Arc::clone(x)),
            Self::Uuid(x) => Value::Uuid(*x),
            Self::Date(x) => Value::Date(*x),
            Self::Time(x) => Value::Time(*x),
            Self::Timestamp(x) => Value::Timestamp(*x),
            Self::Interval(x) => Value::Interval(*x),
            Self::Enum(x) => Value::Enum(*x),
            Self::Array(x) => Value::Array(Arc::clone(x)),
            Self::Jsonb(x) => Value::Jsonb(Arc::clone(x)),
        }
    }

    pub(crate) fn owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(x) => Value::Bool(x),
            Self::Int(x) => Value::Int(x),
            Self::Float(x) => Value::Float(x),
            Self::Numeric(x) => Value::Numeric(x),
            Self::Text(x) => Value::Text(Cow::Owned(x.into_owned())),
            Self::Bytes(x) => Value::Bytes(x),
            Self::Uuid(x) => Value::Uuid(x),
            Self::Date(x) => Value::Date(x),
            Self::Time(x) => Value::Time(x),
            Self::Timestamp(x) => Value::Timestamp(x),
            Self::Interval(x) => Value::Interval(x),
            Self::Enum(x) => Value::Enum(x),
            Self::Array(x) => Value::Array(x),
            Self::Jsonb(x) => Value::Jsonb(x),
        }
    }
}

impl Value<'_> {
    /// Bytes of memory beside the value itself.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Numeric(number) => number.size(),
            Self::Array(array) => array.elements.iter().map(|element| size_of::<Self>() + element.size()).sum(),
            Self::Jsonb(json) => json.size(),
            _ => 0,
        }
    }

    /// Bytes that a clone allocates, beside the value itself.
    pub(crate) fn own_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            _ => 0,
        }
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<Decimal> for Value<'_> {
    fn from(number: Decimal) -> Self {
        Self::Numeric(Arc::new(number))
    }
}

/// The order of two values of one type; a null (of an array's element) is the largest.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b))
        | (Value::Time(a), Value::Time(b))
        | (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => float::compare(a.0, b.0),
        (Value::Numeric(a), Value::Numeric(b)) => a.compare(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (Value::Interval(a), Value::Interval(b)) => a.span().cmp(&b.span()),
        (Value::Enum(a), Value::Enum(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => a.compare(b),
        (Value::Jsonb(a), Value::Jsonb(b)) => a.compare(b),
        _ => a.is_null().cmp(&b.is_null()),
    }
}

/// [`compare`] within a budget.
pub(crate) fn compare_within(a: &Value<'_>, b: &Value<'_>, budget: &Budget) -> Result<Ordering, Failed> {
    budget.spend(cost_of_comparing(a, b))?;
    Ok(compare(a, b))
}

fn cost_of_comparing(a: &Value<'_>, b: &Value<'_>) -> u64 {
    let bytes = |a: usize, b: usize| a.min(b) as u64 / 8;
    4 + match (a, b) {
        (Value::Text(a), Value::Text(b)) => bytes(a.len(), b.len()),
        (Value::Bytes(a), Value::Bytes(b)) => bytes(a.len(), b.len()),
        (Value::Numeric(a), Value::Numeric(b)) => a.cost_of_comparing(b),
        (Value::Array(a), Value::Array(b)) => {
            a.elements.iter().zip(&b.elements).map(|(a, b)| cost_of_comparing(a, b)).sum()
        }
        (Value::Jsonb(a), Value::Jsonb(b)) => a.cost_of_comparing(b),
        _ => 0,
    }
}

/// Cost of looking up a value by its hash.
pub(crate) fn cost_of_hashing(value: &Value<'_>) -> u64 {
    8 + match value {
        Value::Text(text) => text.len() as u64 / 4,
        Value::Bytes(bytes) => bytes.len() as u64 / 4,
        Value::Numeric(number) => number.cost_of_text(),
        Value::Array(array) => array.elements.iter().map(cost_of_hashing).sum(),
        Value::Jsonb(json) => json.cost_of_hashing(),
        _ => 0,
    }
}

/// Feeds the same to a hasher for values that [`compare`] equal.
pub(crate) fn hash<H: Hasher>(value: &Value<'_>, state: &mut H) {
    match value {
        Value::Null => 0_u8.hash(state),
        Value::Bool(x) => x.hash(state),
        Value::Int(x) | Value::Time(x) | Value::Timestamp(x) => x.hash(state),
        Value::Float(x) => float::key(x.0).hash(state),
        Value::Numeric(x) => x.hash_number(state),
        Value::Text(x) => x.hash(state),
        Value::Bytes(x) => x.hash(state),
        Value::Uuid(x) => x.hash(state),
        Value::Date(x) => x.hash(state),
        Value::Interval(x) => x.span().hash(state),
        Value::Enum(x) => x.hash(state),
        Value::Array(x) => x.elements.iter().for_each(|element| hash(element, state)),
        // Numbers that are equal may be written differently.
        Value::Jsonb(x) => x.hash_value(state),
    }
}

/// The text without the blanks at the end, which do not count in `character(n)`.
pub(crate) fn unpadded(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_end_matches(' ')),
        Cow::Owned(mut text) => {
            text.truncate(text.trim_end_matches(' ').len());
            Cow::Owned(text)
        }
    }
}

/// A day of microseconds at most: a time of day.
pub(crate) fn wrap_time(micros: i64) -> i64 {
    micros.rem_euclid(DAY_MICROS)
}
