//! From values to text: what Postgres's output functions do, with `DateStyle = ISO`, `TimeZone = UTC` and `bytea_output = hex`.

use super::value::Value;
use super::{Base, Type, datetime, float};
use crate::schema::Schema;
use std::borrow::Cow;
use std::fmt::Write;

/// The text of a value that is not null.
pub(crate) fn print<'a>(value: &'a Value<'_>, ty: Type, schema: &'a Schema) -> Cow<'a, str> {
    match value {
        Value::Text(text) => Cow::Borrowed(text),
        Value::Enum(place) => match ty.base {
            Base::Enum(of) => Cow::Borrowed(schema.labels(of).get(usize::from(*place)).map_or("", String::as_str)),
            _ => Cow::Borrowed(""),
        },
        Value::Array(array) => Cow::Owned(array.print(&|element| print(element, ty.base.into(), schema).into_owned())),
        other => Cow::Owned(print_plain(other, ty.base)),
    }
}

fn print_plain(value: &Value<'_>, base: Base) -> String {
    match value {
        Value::Bool(value) => if *value { "t" } else { "f" }.into(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => float::print(value.0, base == Base::Float4),
        Value::Numeric(value) => value.to_string(),
        Value::Bytes(bytes) => print_bytea(bytes),
        Value::Uuid(bytes) => print_uuid(*bytes),
        Value::Date(days) => datetime::print_date(*days),
        Value::Time(micros) => datetime::print_time(*micros),
        Value::Timestamp(micros) => datetime::print_timestamp(*micros, base == Base::Timestamptz),
        Value::Interval(interval) => interval.print(),
        Value::Jsonb(json) => json.print(),
        Value::Null | Value::Text(_) | Value::Enum(_) | Value::Array(_) => String::new(),
    }
}

fn print_bytea(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("\\x");
    for byte in bytes {
        let _infallible = write!(out, "{byte:02x}");
    }
    out
}

fn print_uuid(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}
