//! From text to values: Postgres's input functions.

use super::array::{self, Array};
use super::datetime::{self, Fault};
use super::decimal::{self, Decimal};
use super::float::{self, Float};
use super::interval::Interval;
use super::value::Value;
use super::{Base, Type, json};
use crate::budget::{Budget, Failed};
use crate::schema::Schema;
use std::borrow::Cow;
use std::sync::Arc;

/// The message that Postgres has for it.
pub(crate) type Message = String;

/// Why a text is no value.
#[derive(Debug)]
pub(crate) enum Unread {
    Invalid(Message),
    Costly,
}

impl From<Message> for Unread {
    fn from(message: Message) -> Self {
        Self::Invalid(message)
    }
}

impl From<Unread> for Failed {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Invalid(_) => Self::Invalid,
            Unread::Costly => Self::Costly,
        }
    }
}

/// The error of an input with only one possible message.
fn with_message(failed: Failed, message: impl FnOnce() -> Message) -> Unread {
    match failed {
        Failed::Invalid => Unread::Invalid(message()),
        Failed::Costly => Unread::Costly,
    }
}

fn invalid(base: Base, text: &str) -> Message {
    format!("invalid input syntax for type {}: \"{text}\"", base.name())
}

fn out_of_range(base: Base, text: &str) -> Message {
    format!("value \"{text}\" is out of range for type {}", base.name())
}

/// A value of a type, from its text.
pub(crate) fn parse<'a>(text: &'a str, ty: Type, schema: &Schema, budget: &Budget) -> Result<Value<'a>, Unread> {
    if !ty.array {
        return parse_base(text, ty.base, schema, budget);
    }
    let (texts, shape) = array::parse(text, budget)
        .map_err(|failed| with_message(failed, || format!("malformed array literal: \"{text}\"")))?;
    let mut elements = Vec::with_capacity(texts.len());
    for text in texts {
        elements.push(match text {
            // The blanks at the end of a `character(n)` do not count wherever elements are compared.
            Some(text) if ty.base == Base::Bpchar => text.trim_end_matches(' ').to_owned().into(),
            Some(text) => parse_base(&text, ty.base, schema, budget)?.owned(),
            None => Value::Null,
        });
    }
    let plain = shape.len() <= 1 && shape.iter().all(|d| d.lower == 1);
    let shape = if plain { None } else { Some(shape.into()) };
    Ok(Value::Array(Arc::new(Array { elements: elements.into(), shape })))
}

fn parse_base<'a>(text: &'a str, base: Base, schema: &Schema, budget: &Budget) -> Result<Value<'a>, Unread> {
    // Two digits become a byte, which is then moved into its place; of most others little is kept.
    let spent = if base == Base::Bytea { budget.make(2 * text.len()) } else { budget.scan(text.len()) };
    spent.map_err(|failed| with_message(failed, || invalid(base, text)))?;
    let moment = |fault: Fault| match fault {
        Fault::Syntax => invalid(base, text),
        Fault::Range => format!("date/time field value out of range: \"{text}\""),
        Fault::Moving => format!("\"{text}\" is another value at another time and cannot be used here"),
    };
    Ok(match base {
        Base::Bool => Value::Bool(parse_bool(text).ok_or_else(|| invalid(base, text))?),
        Base::Int2 | Base::Int4 | Base::Int8 => Value::Int(parse_integer(text, base)?),
        Base::Float4 | Base::Float8 => {
            let value = float::parse(text, base == Base::Float4).ok_or_else(|| {
                let number = text.trim().parse::<f64>().is_ok();
                if number {
                    format!("\"{text}\" is out of range for type {}", base.name())
                } else {
                    invalid(base, text)
                }
            })?;
            Value::Float(Float(value))
        }
        Base::Numeric => Value::from(Decimal::parse(text, budget).map_err(|fault| match fault {
            decimal::Fault::NotANumber | decimal::Fault::DivisionByZero => Unread::Invalid(invalid(base, text)),
            decimal::Fault::Overflow => Unread::Invalid("value overflows numeric format".into()),
            decimal::Fault::Costly => Unread::Costly,
        })?),
        Base::Name => Value::Text(Cow::Borrowed(truncated(text, 63))),
        Base::Text | Base::Varchar | Base::Bpchar | Base::Unknown | Base::Other(_) => Value::Text(Cow::Borrowed(text)),
        Base::Json => {
            json::parse(text, budget).map_err(|failed| with_message(failed, || invalid(base, text)))?;
            Value::Text(Cow::Borrowed(text))
        }
        Base::Jsonb => {
            let json = json::parse(text, budget).map_err(|failed| with_message(failed, || invalid(base, text)))?;
            Value::Jsonb(Arc::new(json))
        }
        Base::Uuid => Value::Uuid(parse_uuid(text).ok_or_else(|| invalid(base, text))?),
        Base::Bytea => Value::Bytes(parse_bytea(text).ok_or_else(|| invalid(base, text))?.into()),
        Base::Date => Value::Date(datetime::parse_date(text).map_err(moment)?),
        Base::Time => Value::Time(datetime::parse_time(text).map_err(moment)?),
        Base::Timestamp => Value::Timestamp(datetime::parse_timestamp(text, false).map_err(moment)?),
        Base::Timestamptz => Value::Timestamp(datetime::parse_timestamp(text, true).map_err(moment)?),
        Base::Interval => Value::Interval(Interval::parse(text).map_err(moment)?),
        Base::Enum(of) => {
            let place = schema.labels(of).iter().position(|label| label == text);
            let place = place.and_then(|i| u16::try_from(i).ok());
            Value::Enum(place.ok_or_else(|| format!("invalid input value for enum: \"{text}\""))?)
        }
    })
}

/// At most this many bytes, of whole characters.
pub(crate) fn truncated(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn parse_bool(text: &str) -> Option<bool> {
    let word = text.trim().to_ascii_lowercase();
    // Any unambiguous prefix.
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || word == "on" || word == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        Some(false)
    } else {
        None
    }
}

fn parse_integer(text: &str, base: Base) -> Result<i64, Message> {
    let trimmed = text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(base, text));
    }
    trimmed.parse().ok().filter(|value| in_range(*value, base)).ok_or_else(|| out_of_range(base, text))
}

pub(crate) fn in_range(value: i64, base: Base) -> bool {
    match base {
        Base::Int2 => i16::try_from(value).is_ok(),
        Base::Int4 => i32::try_from(value).is_ok(),
        _ => true,
    }
}

/// 32 hexadecimal digits; optional hyphens after any group of four, and braces around.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let inner = match text.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}')?,
        None => text,
    };
    let (mut out, mut digits) = ([0_u8; 16], 0_usize);
    let mut hyphen = false;
    for byte in inner.bytes() {
        if byte == b'-' {
            if hyphen || digits == 0 || !digits.is_multiple_of(4) || digits == 32 {
                return None;
            }
            hyphen = true;
            continue;
        }
        hyphen = false;
        let digit = char::from(byte).to_digit(16)?;
        let place = out.get_mut(digits / 2)?;
        *place = *place << 4 | u8::try_from(digit).ok()?;
        digits += 1;
    }
    (digits == 32).then_some(out)
}

/// `\x…`, or the older form with octal escapes.
fn parse_bytea(text: &str) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix("\\x") {
        let mut out = Vec::with_capacity(hex.len() / 2);
        let mut high: Option<u32> = None;
        for char in hex.chars() {
            if high.is_none() && matches!(char, ' ' | '\n' | '\t' | '\r') {
                continue;
            }
            let digit = char.to_digit(16)?;
            match high.take() {
                None => high = Some(digit),
                Some(high) => out.push(u8::try_from(high << 4 | digit).ok()?),
            }
        }
        return high.is_none().then_some(out);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next()? {
            b'\\' => out.push(b'\\'),
            first @ b'0'..=b'3' => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    let digit = bytes.next().filter(|b| (b'0'..=b'7').contains(b))?;
                    value = value << 3 | (digit - b'0');
                }
                out.push(value);
            }
            _ => return None,
        }
    }
    Some(out)
}
