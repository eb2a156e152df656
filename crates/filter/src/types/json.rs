//! `jsonb` as a tree: its text, order, containment and paths.

use super::decimal::{Decimal, Fault};
use crate::budget::{Budget, Failed};
use std::cmp::Ordering;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Json {
    Null,
    String(Box<str>),
    Number(Box<Decimal>),
    Bool(bool),
    Array(Box<[Json]>),
    /// Members by the length of the key, then its bytes; keys are unique.
    Object(Box<[(Box<str>, Json)]>),
}

/// Deepest nesting that is read.
const DEPTH_MAX: usize = 512;

/// Memory of one element or member, while its list grows.
const MEMBER_BYTES: usize = 3 * size_of::<(Box<str>, Json)>();

/// The value of a text. Nesting deeper than our limit, which Postgres would accept, is too costly.
pub(crate) fn parse(text: &str, budget: &Budget) -> Result<Json, Failed> {
    let mut reader = Reader { text, at: 0, budget };
    let json = reader.value(0)?;
    reader.blanks();
    if reader.at == text.len() { Ok(json) } else { Err(Failed::Invalid) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    budget: &'a Budget,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn takes(&mut self, what: &str) -> bool {
        let found = self.text[self.at..].starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, Failed> {
        if depth > DEPTH_MAX {
            return Err(Failed::Costly);
        }
        self.blanks();
        match self.peek().ok_or(Failed::Invalid)? {
            b'n' => self.word("null", Json::Null),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            b'"' => self.string().map(Json::String),
            b'[' => {
                let mut list = Vec::new();
                self.members(']', |reader| {
                    list.push(reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Json::Array(list.into()))
            }
            b'{' => {
                let mut list: Vec<(Box<str>, Json)> = Vec::new();
                self.members('}', |reader| {
                    let key = reader.string()?;
                    reader.blanks();
                    if !reader.takes(":") {
                        return Err(Failed::Invalid);
                    }
                    list.push((key, reader.value(depth + 1)?));
                    Ok(())
                })?;
                // Sorting compares each key with some others.
                self.budget.spend(list.len() as u64 * 64)?;
                // Of equal keys the last counts.
                list.reverse();
                list.sort_by(|a, b| order_keys(&a.0, &b.0));
                list.dedup_by(|b, a| a.0 == b.0);
                Ok(Json::Object(list.into()))
            }
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, meant: Json) -> Result<Json, Failed> {
        if self.takes(word) { Ok(meant) } else { Err(Failed::Invalid) }
    }

    fn members(&mut self, end: char, mut each: impl FnMut(&mut Self) -> Result<(), Failed>) -> Result<(), Failed> {
        let end = end.to_string();
        self.at += 1;
        self.blanks();
        if self.takes(&end) {
            return Ok(());
        }
        loop {
            self.blanks();
            self.budget.make(MEMBER_BYTES)?;
            each(self)?;
            self.blanks();
            if self.takes(&end) {
                return Ok(());
            }
            if !self.takes(",") {
                return Err(Failed::Invalid);
            }
        }
    }

    fn number(&mut self) -> Result<Json, Failed> {
        let from = self.at;
        let digits = |reader: &mut Self| {
            let from = reader.at;
            while reader.peek().is_some_and(|b| b.is_ascii_digit()) {
                reader.at += 1;
            }
            reader.at - from
        };
        self.takes("-");
        let leading_zero = self.peek() == Some(b'0');
        match digits(self) {
            0 => return Err(Failed::Invalid),
            1 => {}
            _ if leading_zero => return Err(Failed::Invalid),
            _ => {}
        }
        if self.takes(".") && digits(self) == 0 {
            return Err(Failed::Invalid);
        }
        if self.takes("e") || self.takes("E") {
            let _sign = self.takes("+") || self.takes("-");
            if digits(self) == 0 {
                return Err(Failed::Invalid);
            }
        }
        let number = Decimal::parse(&self.text[from..self.at], self.budget).map_err(|fault| match fault {
            Fault::Costly => Failed::Costly,
            _ => Failed::Invalid,
        })?;
        // A number with an exponent is longer than its text.
        self.budget.make(2 * number.size())?;
        Ok(Json::Number(Box::new(number)))
    }

    fn string(&mut self) -> Result<Box<str>, Failed> {
        let from = self.at;
        let text = self.quoted().ok_or(Failed::Invalid)?;
        self.budget.make(2 * (self.at - from))?;
        Ok(text)
    }

    fn quoted(&mut self) -> Option<Box<str>> {
        if !self.takes("\"") {
            return None;
        }
        let mut out = String::new();
        loop {
            let char = self.text[self.at..].chars().next()?;
            self.at += char.len_utf8();
            match char {
                '"' => return Some(out.into()),
                '\\' => {
                    let escape = self.peek()?;
                    self.at += 1;
                    out.push(match escape {
                        b'"' | b'\\' | b'/' => char::from(escape),
                        b'b' => '\x08',
                        b'f' => '\x0c',
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        b'u' => self.unicode()?,
                        _ => return None,
                    });
                }
                char if (char as u32) < 0x20 => return None,
                char => out.push(char),
            }
        }
    }

    /// After `\u`; of a pair of surrogates both. No zero: `text` has none.
    fn unicode(&mut self) -> Option<char> {
        let unit = |reader: &mut Self| {
            let digits =
                reader.text.get(reader.at..reader.at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            let unit = u32::from_str_radix(digits, 16).ok()?;
            reader.at += 4;
            Some(unit)
        };
        let first = unit(self)?;
        let code = if (0xd800..0xdc00).contains(&first) {
            if !self.takes("\\u") {
                return None;
            }
            let second = unit(self)?;
            if !(0xdc00..0xe000).contains(&second) {
                return None;
            }
            0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).filter(|c| *c != '\0')
    }
}

fn order_keys(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

impl Json {
    pub(crate) fn print(&self, budget: &Budget) -> Result<String, Failed> {
        let mut out = String::new();
        self.write(&mut out, budget)?;
        Ok(out)
    }

    fn write(&self, out: &mut String, budget: &Budget) -> Result<(), Failed> {
        budget.make(8)?;
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => {
                budget.spend(number.cost_of_text() + number.size() as u64 * 4)?;
                let _infallible = write!(out, "{number}");
            }
            Self::String(text) => write_string(out, text, budget)?,
            Self::Array(list) => {
                out.push('[');
                for (i, element) in list.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    element.write(out, budget)?;
                }
                out.push(']');
            }
            Self::Object(list) => {
                out.push('{');
                for (i, (key, value)) in list.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { ", " });
                    write_string(out, key, budget)?;
                    out.push_str(": ");
                    value.write(out, budget)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }

    /// Bytes of memory.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Null | Self::Bool(_) => 0,
                Self::String(text) => text.len(),
                Self::Number(number) => number.size(),
                Self::Array(list) => list.iter().map(Self::size).sum(),
                Self::Object(list) => list.iter().map(|(key, value)| 16 + key.len() + value.size()).sum(),
            }
    }

    /// Cost of a comparison with another value.
    pub(crate) fn cost_of_comparing(&self, other: &Self) -> u64 {
        let bytes = |a: usize, b: usize| a.min(b) as u64 / 8;
        4 + match (self, other) {
            (Self::String(a), Self::String(b)) => bytes(a.len(), b.len()),
            (Self::Number(a), Self::Number(b)) => a.cost_of_comparing(b),
            (Self::Array(a), Self::Array(b)) if a.len() == b.len() => {
                a.iter().zip(b).map(|(a, b)| a.cost_of_comparing(b)).sum()
            }
            (Self::Object(a), Self::Object(b)) if a.len() == b.len() => {
                a.iter().zip(b).map(|(a, b)| 8 + bytes(a.0.len(), b.0.len()) + a.1.cost_of_comparing(&b.1)).sum()
            }
            _ => 0,
        }
    }

    pub(crate) fn cost_of_hashing(&self) -> u64 {
        8 + match self {
            Self::Null | Self::Bool(_) => 0,
            Self::String(text) => text.len() as u64 / 4,
            Self::Number(number) => number.cost_of_text(),
            Self::Array(list) => list.iter().map(Self::cost_of_hashing).sum(),
            Self::Object(list) => list.iter().map(|(key, value)| key.len() as u64 / 4 + value.cost_of_hashing()).sum(),
        }
    }

    /// The result of `->>`: a string without quotes, `None` for null.
    pub(crate) fn to_text(&self, budget: &Budget) -> Result<Option<String>, Failed> {
        Ok(match self {
            Self::Null => None,
            Self::String(text) => {
                budget.make(text.len())?;
                Some(text.to_string())
            }
            other => Some(other.print(budget)?),
        })
    }

    pub(crate) fn member(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(list) => list.binary_search_by(|(k, _)| order_keys(k, key)).ok().map(|i| &list[i].1),
            _ => None,
        }
    }

    /// From the end if negative. A scalar is the only element of itself, as it is stored.
    pub(crate) fn element(&self, index: i64) -> Option<&Self> {
        match self {
            Self::Array(list) => {
                let from_end = if index < 0 { i64::try_from(list.len()).ok()? } else { 0 };
                list.get(usize::try_from(index.checked_add(from_end)?).ok()?)
            }
            Self::Object(_) => None,
            scalar => matches!(index, 0 | -1).then_some(scalar),
        }
    }

    /// `#>`: keys of objects, indexes of arrays.
    pub(crate) fn path<'a>(&self, mut keys: impl Iterator<Item = &'a str>) -> Option<&Self> {
        keys.try_fold(self, |at, key| match at {
            Self::Object(_) => at.member(key),
            Self::Array(_) => at.element(key.trim_start().parse::<i32>().ok()?.into()),
            _ => None,
        })
    }

    /// Cost of looking up one key.
    pub(crate) fn cost_of_looking_up(&self) -> u64 {
        match self {
            Self::Array(list) => 8 + 4 * list.len() as u64,
            _ => 64,
        }
    }

    /// `?`
    pub(crate) fn has(&self, key: &str) -> bool {
        match self {
            Self::Object(_) => self.member(key).is_some(),
            Self::Array(list) => list.iter().any(|e| matches!(e, Self::String(text) if **text == *key)),
            Self::String(text) => **text == *key,
            _ => false,
        }
    }

    /// `@>`
    pub(crate) fn contains(&self, other: &Self, budget: &Budget) -> Result<bool, Failed> {
        match (self, other) {
            // An array may hold a scalar that is not in one.
            (Self::Array(list), other) if !matches!(other, Self::Array(_) | Self::Object(_)) => {
                any(list.iter(), |element| element.equals(other, budget))
            }
            _ => self.contains_inside(other, budget),
        }
    }

    fn contains_inside(&self, other: &Self, budget: &Budget) -> Result<bool, Failed> {
        budget.spend(8)?;
        match (self, other) {
            (Self::Object(_), Self::Object(wanted)) => all(wanted.iter(), |(key, value)| {
                budget.spend(64)?;
                self.member(key).map_or(Ok(false), |own| own.contains_inside(value, budget))
            }),
            (Self::Array(own), Self::Array(wanted)) => {
                all(wanted.iter(), |value| any(own.iter(), |element| element.contains_inside(value, budget)))
            }
            (Self::Object(_) | Self::Array(_), _) | (_, Self::Object(_) | Self::Array(_)) => Ok(false),
            _ => self.equals(other, budget),
        }
    }

    fn equals(&self, other: &Self, budget: &Budget) -> Result<bool, Failed> {
        budget.spend(self.cost_of_comparing(other))?;
        Ok(self.compare(other).is_eq())
    }

    /// Postgres's order; an empty array is less than everything.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let rank = |json: &Self| match json {
            Self::Array(list) if list.is_empty() => 0,
            Self::Null => 1,
            Self::String(_) => 2,
            Self::Number(_) => 3,
            Self::Bool(_) => 4,
            Self::Array(_) => 5,
            Self::Object(_) => 6,
        };
        match (self, other) {
            (Self::String(a), Self::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Number(a), Self::Number(b)) => a.compare(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Array(a), Self::Array(b)) => a.len().cmp(&b.len()).then_with(|| {
                a.iter().zip(b).map(|(a, b)| a.compare(b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
            }),
            (Self::Object(a), Self::Object(b)) => a.len().cmp(&b.len()).then_with(|| {
                let pairs = a.iter().zip(b).map(|(a, b)| order_keys(&a.0, &b.0).then_with(|| a.1.compare(&b.1)));
                pairs.into_iter().find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
            }),
            _ => rank(self).cmp(&rank(other)),
        }
    }

    /// Hashes equally values that [`Json::compare`] finds equal.
    pub(crate) fn hash_value<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Null => 0_u8.hash(state),
            Self::Bool(value) => value.hash(state),
            Self::String(text) => text.hash(state),
            Self::Number(number) => number.hash_number(state),
            Self::Array(list) => list.iter().for_each(|element| element.hash_value(state)),
            Self::Object(list) => list.iter().for_each(|(key, value)| {
                key.hash(state);
                value.hash_value(state);
            }),
        }
    }
}

/// [`Iterator::all`] and [`Iterator::any`] for conditions that may fail.
fn all<T>(mut list: impl Iterator<Item = T>, mut holds: impl FnMut(T) -> Result<bool, Failed>) -> Result<bool, Failed> {
    Ok(!any(&mut list, |item| Ok(!holds(item)?))?)
}

fn any<T>(list: impl Iterator<Item = T>, mut holds: impl FnMut(T) -> Result<bool, Failed>) -> Result<bool, Failed> {
    for item in list {
        if holds(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write_string(out: &mut String, text: &str, budget: &Budget) -> Result<(), Failed> {
    // A control character is written in six.
    let long = text.bytes().filter(|byte| *byte < 0x20).count();
    budget.make(2 * text.len() + 6 * long + 2)?;
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            char if (char as u32) < 0x20 => {
                let _infallible = write!(out, "\\u{:04x}", char as u32);
            }
            char => out.push(char),
        }
    }
    out.push('"');
    Ok(())
}
