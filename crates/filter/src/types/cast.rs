//! Values of one type as values of another: `pg_cast`, and through text where Postgres goes that way.

use super::array::Array;
use super::datetime;
use super::decimal::Decimal;
use super::float::{self, Float};
use super::interval::Interval;
use super::json::Json;
use super::value::{Value, unpadded, wrap_time};
use super::{Base, Category, Type, input, output};
use crate::budget::{Budget, Failed};
use crate::schema::Schema;
use std::borrow::Cow;
use std::sync::Arc;

/// Whether `x::to` exists for an `x` of a type.
pub(crate) fn exists(from: Type, to: Type) -> bool {
    if from.array != to.array {
        // Through text.
        return !from.array && from.base.is_text() && !matches!(to.base, Base::Other(_))
            || !to.array && to.base.is_text();
    }
    base_exists(from.base, to.base)
}

fn base_exists(from: Base, to: Base) -> bool {
    use Base::{Bool, Date, Float4, Float8, Int4, Interval, Json, Jsonb, Other, Time, Timestamp, Timestamptz};
    if from.becomes(to) {
        return true;
    }
    if matches!(to, Other(_)) {
        return false;
    }
    if from.is_text() || to.is_text() {
        return true;
    }
    match (from, to) {
        (a, b) if a.category() == Category::Number && b.category() == Category::Number => true,
        (Bool, Int4) | (Int4, Bool) => true,
        (Timestamp | Timestamptz, Date | Time) | (Timestamptz, Timestamp) | (Interval, Time) => true,
        (Json, Jsonb) | (Jsonb, Json | Bool) => true,
        (Jsonb, to) => to.category() == Category::Number || matches!(to, Float4 | Float8),
        _ => false,
    }
}

/// Whether a cast has a result for every value. (Numbers too large for a float and dates too late for a timestamp have
/// none.)
pub(crate) fn is_total(from: Type, to: Type) -> bool {
    use Base::{Date, Float4, Float8, Numeric, Timestamp, Timestamptz};
    let narrows = matches!((from.base, to.base), (Numeric, Float4 | Float8) | (Date, Timestamp | Timestamptz));
    // Every value has a text.
    from.becomes(to) && !narrows || !to.array && to.base.is_text()
}

/// Whether a cast depends on the session's time zone, which for us is UTC.
pub(crate) fn is_zoned(from: Base, to: Base) -> bool {
    match (from, to) {
        (Base::Timestamptz, Base::Timestamptz) => false,
        (Base::Timestamptz, to) => to != Base::Unknown,
        (Base::Date | Base::Timestamp, Base::Timestamptz) => true,
        _ => false,
    }
}

/// A value that is not null.
pub(crate) fn cast<'a>(
    value: Value<'a>,
    from: Type,
    to: Type,
    schema: &Schema,
    budget: &Budget,
) -> Result<Value<'a>, Failed> {
    if from == to {
        return Ok(value);
    }
    match value {
        Value::Array(array) if to.array => {
            budget.make(array.elements.len() * size_of::<Value<'_>>())?;
            let mut elements = Vec::with_capacity(array.elements.len());
            for element in &array.elements {
                budget.make(element.own_bytes())?;
                elements.push(match element {
                    Value::Null => Value::Null,
                    element => cast(element.clone(), from.base.into(), to.base.into(), schema, budget)?,
                });
            }
            Ok(Value::Array(Arc::new(Array { elements: elements.into(), shape: array.shape.clone() })))
        }
        value => cast_base(value, from, to, schema, budget),
    }
}

fn cast_base<'a>(
    value: Value<'a>,
    from: Type,
    to: Type,
    schema: &Schema,
    budget: &Budget,
) -> Result<Value<'a>, Failed> {
    if !to.array && to.base.is_text() {
        return to_text(value, from, to.base, schema, budget);
    }
    if let Value::Numeric(x) = &value {
        budget.spend(x.cost_of_text())?;
    }
    Ok(match (value, to.base) {
        (Value::Int(x), Base::Int2 | Base::Int4 | Base::Int8) => ranged(x, to.base)?,
        (Value::Int(x), Base::Float8) => float_of(x as f64),
        (Value::Int(x), Base::Float4) => float_of(f64::from(x as f32)),
        (Value::Int(x), Base::Numeric) => Decimal::from(x).into(),
        (Value::Int(x), Base::Bool) => Value::Bool(x != 0),
        (Value::Bool(x), Base::Int4) => Value::Int(x.into()),
        (Value::Float(x), Base::Float8) => Value::Float(x),
        (Value::Float(x), Base::Float4) => {
            float_of(float::to_single(x.0).filter(|s| *s != 0.0 || x.0 == 0.0).ok_or(Failed::Invalid)?)
        }
        (Value::Float(x), Base::Numeric) => Decimal::from_f64(x.0, from.base == Base::Float4).into(),
        (Value::Float(x), Base::Int2 | Base::Int4 | Base::Int8) => integer_of(x.0, to.base)?,
        (Value::Numeric(x), Base::Numeric) => Value::Numeric(x),
        (Value::Numeric(x), Base::Float8) => finite(x.to_f64(), &x)?,
        (Value::Numeric(x), Base::Float4) => {
            let text = x.to_string();
            float_of(float::parse(&text, true).ok_or(Failed::Invalid)?)
        }
        (Value::Numeric(x), Base::Int2 | Base::Int4 | Base::Int8) => {
            ranged(x.to_i64().ok_or(Failed::Invalid)?, to.base)?
        }
        (Value::Date(x), Base::Timestamp | Base::Timestamptz) => {
            Value::Timestamp(datetime::date_to_timestamp(x).ok_or(Failed::Invalid)?)
        }
        (Value::Timestamp(x), Base::Timestamp | Base::Timestamptz) => Value::Timestamp(x),
        (Value::Timestamp(x), Base::Date) => Value::Date(datetime::timestamp_to_date(x)),
        (Value::Timestamp(datetime::TIMESTAMP_MAX | datetime::TIMESTAMP_MIN), Base::Time) => Value::Null,
        (Value::Timestamp(x), Base::Time) => Value::Time(wrap_time(x)),
        (Value::Time(x), Base::Interval) => Value::Interval(Interval { micros: x, ..Interval::default() }),
        (Value::Interval(x), Base::Time) if x.is_infinite() => return Err(Failed::Invalid),
        (Value::Interval(x), Base::Time) => Value::Time(wrap_time(x.micros)),
        (Value::Jsonb(x), Base::Json) => x.print(budget)?.into(),
        (Value::Jsonb(x), base) => from_jsonb(&x, base, budget)?,
        (Value::Text(x), _) if from.base.is_text() || from.base == Base::Json => {
            let text = if from.base == Base::Bpchar { unpadded(x) } else { x };
            budget.make(text.len())?;
            input::parse(&text, to, schema, budget)?.owned()
        }
        (value, _) => value,
    })
}

fn to_text<'a>(value: Value<'a>, from: Type, to: Base, schema: &Schema, budget: &Budget) -> Result<Value<'a>, Failed> {
    let text = match value {
        Value::Text(text) if from.base == Base::Bpchar && to != Base::Bpchar && !from.array => unpadded(text),
        Value::Text(text) => text,
        // This cast writes booleans differently from the output function.
        Value::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
        other => Cow::Owned(output::print(&other, from, schema, budget)?.into_owned()),
    };
    Ok(Value::Text(match (to, text) {
        (Base::Name, Cow::Borrowed(text)) => Cow::Borrowed(input::truncated(text, 63)),
        (Base::Name, Cow::Owned(text)) => Cow::Owned(input::truncated(&text, 63).to_owned()),
        (_, text) => text,
    }))
}

fn float_of(value: f64) -> Value<'static> {
    Value::Float(Float(value))
}

fn ranged(value: i64, base: Base) -> Result<Value<'static>, Failed> {
    if input::in_range(value, base) { Ok(Value::Int(value)) } else { Err(Failed::Invalid) }
}

/// Half to even, as `rint` does.
fn integer_of(value: f64, base: Base) -> Result<Value<'static>, Failed> {
    let rounded = value.round_ties_even();
    if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
        return Err(Failed::Invalid);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    ranged(rounded as i64, base)
}

/// A number too large for a float is an error, and so is one too small.
fn finite(value: f64, of: &Decimal) -> Result<Value<'static>, Failed> {
    let lost = match of {
        Decimal::Finite { .. } => value.is_infinite() || value == 0.0 && of.compare(&Decimal::from(0)).is_ne(),
        _ => false,
    };
    if lost { Err(Failed::Invalid) } else { Ok(float_of(value)) }
}

fn from_jsonb(json: &Json, base: Base, budget: &Budget) -> Result<Value<'static>, Failed> {
    match (json, base) {
        (Json::Bool(value), Base::Bool) => Ok(Value::Bool(*value)),
        (Json::Number(number), base) if base.category() == Category::Number => {
            budget.make(number.size())?;
            let number = Value::Numeric(Arc::new(Decimal::clone(number)));
            let number_type = Type::from(Base::Numeric);
            // Numbers need no schema.
            match (number, base) {
                (number, Base::Numeric) => Ok(number),
                (number, base) => cast(number, number_type, base.into(), &Schema::new("", Vec::new()), budget),
            }
        }
        _ => Err(Failed::Invalid),
    }
}

/// `varchar(n)`, `char(n)`, `numeric(p, s)`: the length that an explicit cast gives to a value.
pub(crate) fn fit<'a>(value: Value<'a>, base: Base, modifiers: [i32; 2], budget: &Budget) -> Result<Value<'a>, Failed> {
    let length = usize::try_from(modifiers[0]).unwrap_or(0);
    Ok(match value {
        Value::Text(text) => {
            budget.spend(2 * text.len().min(4 * length) as u64)?;
            let end = text.char_indices().nth(length).map_or(text.len(), |(at, _)| at);
            let missing = if base == Base::Bpchar { length.saturating_sub(text[..end].chars().count()) } else { 0 };
            match text {
                Cow::Borrowed(text) if missing == 0 => Value::Text(Cow::Borrowed(&text[..end])),
                text => {
                    budget.make(end + 2 * missing)?;
                    format!("{}{}", &text[..end], " ".repeat(missing)).into()
                }
            }
        }
        Value::Numeric(number) => {
            budget.spend(2 * number.cost_of_text())?;
            let rounded = number.round(u32::try_from(modifiers[1]).unwrap_or(0));
            let whole = u32::try_from(modifiers[0] - modifiers[1]).unwrap_or(0);
            if rounded.fits(whole) { rounded.into() } else { return Err(Failed::Invalid) }
        }
        other => other,
    })
}
