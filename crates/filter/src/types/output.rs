//! From values to text: Postgres's output functions, with `DateStyle = ISO`, `TimeZone = UTC` and `bytea_output = hex`.

use super::value::Value;
use super::{Base, Type, datetime, float};
use crate::budget::{Budget, Failed};
use crate::schema::Schema;
use std::borrow::Cow;

/// The text of a value that is not null.
pub(crate) fn print<'a>(
    value: &'a Value<'_>,
    ty: Type,
    schema: &'a Schema,
    budget: &Budget,
) -> Result<Cow<'a, str>, Failed> {
    Ok(match value {
        Value::Text(text) => Cow::Borrowed(text),
        Value::Enum(place) => match ty.base {
            Base::Enum(of) => Cow::Borrowed(schema.labels(of).get(usize::from(*place)).map_or("", String::as_str)),
            _ => Cow::Borrowed(""),
        },
        Value::Array(array) => {
            let element = |element: &_| Ok(print(element, ty.base.into(), schema, budget)?.into_owned());
            Cow::Owned(array.print(&element, budget)?)
        }
        other => Cow::Owned(print_plain(other, ty.base, budget)?),
    })
}

/// Prints a constant, whose clause bounds its size: the budget is unlimited, so printing cannot fail.
pub(crate) fn print_constant<'a>(value: &'a Value<'_>, ty: Type, schema: &'a Schema) -> Cow<'a, str> {
    print(value, ty, schema, &Budget::unlimited()).unwrap_or_default()
}

fn print_plain(value: &Value<'_>, base: Base, budget: &Budget) -> Result<String, Failed> {
    budget.make(64)?;
    Ok(match value {
        Value::Bool(value) => if *value { "t" } else { "f" }.into(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => float::print(value.0, base == Base::Float4),
        Value::Numeric(value) => {
            budget.spend(value.cost_of_text() + value.size() as u64 * 4)?;
            value.to_string()
        }
        Value::Bytes(bytes) => {
            budget.make(2 + 2 * bytes.len())?;
            print_bytea(bytes)
        }
        Value::Uuid(bytes) => print_uuid(*bytes),
        Value::Date(days) => datetime::print_date(*days),
        Value::Time(micros) => datetime::print_time(*micros),
        Value::Timestamp(micros) => datetime::print_timestamp(*micros, base == Base::Timestamptz),
        Value::Interval(interval) => interval.print(),
        Value::Jsonb(json) => json.print(budget)?,
        Value::Null | Value::Text(_) | Value::Enum(_) | Value::Array(_) => String::new(),
    })
}

fn print_bytea(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("\\x");
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    for byte in bytes {
        out.push(digit(byte >> 4));
        out.push(digit(byte & 15));
    }
    out
}

fn print_uuid(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}
