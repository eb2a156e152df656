//! Arrays: of one dimension mostly; of more, their elements in order.

use super::value::{Value, compare};
use crate::budget::{Budget, Failed};
use std::cmp::Ordering;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Array {
    pub(crate) elements: Box<[Value<'static>]>,
    /// Dimensions; `None` for one dimension that begins at 1.
    pub(crate) shape: Option<Box<[Dimension]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Dimension {
    pub(crate) lower: i32,
    pub(crate) length: i32,
}

/// Deepest nesting, as in Postgres.
const DIMENSIONS_MAX: usize = 6;

impl Array {
    pub(crate) fn of(elements: Vec<Value<'static>>) -> Self {
        Self { elements: elements.into(), shape: None }
    }

    pub(crate) fn dimensions(&self) -> Vec<Dimension> {
        match &self.shape {
            Some(shape) => shape.to_vec(),
            None if self.elements.is_empty() => Vec::new(),
            None => vec![Dimension { lower: 1, length: i32::try_from(self.elements.len()).unwrap_or(i32::MAX) }],
        }
    }

    /// Elements first, then the number of dimensions and their bounds.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let elements = self.elements.iter().zip(&other.elements).map(|(a, b)| compare(a, b)).find(|o| o.is_ne());
        elements.unwrap_or_else(|| self.elements.len().cmp(&other.elements.len())).then_with(|| {
            let (a, b) = (self.dimensions(), other.dimensions());
            let bounds = |d: &[Dimension]| d.iter().map(|d| (d.length, d.lower)).collect::<Vec<_>>();
            a.len().cmp(&b.len()).then_with(|| bounds(&a).cmp(&bounds(&b)))
        })
    }

    /// The element at a subscript.
    pub(crate) fn get(&self, index: i64) -> Option<&Value<'static>> {
        match self.dimensions()[..] {
            [only] => self.elements.get(usize::try_from(index - i64::from(only.lower)).ok()?),
            _ => None,
        }
    }

    /// A slice from one subscript of the first dimension to another, inclusive, with the other dimensions whole; the
    /// result begins at 1.
    pub(crate) fn slice(&self, from: Option<i64>, to: Option<i64>) -> Self {
        let dimensions = self.dimensions();
        let [first, inner @ ..] = &dimensions[..] else { return Self::default() };
        let lower = i64::from(first.lower);
        let upper = lower + i64::from(first.length) - 1;
        let (from, to) = (from.unwrap_or(lower).max(lower), to.unwrap_or(upper).min(upper));
        if from > to {
            return Self::default();
        }
        let stride: usize = inner.iter().map(|d| usize::try_from(d.length).unwrap_or(0)).product();
        let at = |i: i64| usize::try_from(i - lower).unwrap_or(0) * stride;
        let mut slice = Self::of(self.elements[at(from)..at(to + 1)].to_vec());
        if !inner.is_empty() {
            let lengths =
                std::iter::once(i32::try_from(to - from + 1).unwrap_or(0)).chain(inner.iter().map(|d| d.length));
            slice.shape = Some(lengths.map(|length| Dimension { lower: 1, length }).collect());
        }
        slice
    }

    /// `{…}` as text; `print` writes the elements.
    pub(crate) fn print(&self, print: &Print<'_>, budget: &Budget) -> Result<String, Failed> {
        let dimensions = self.dimensions();
        if dimensions.is_empty() {
            return Ok("{}".into());
        }
        let mut out = String::new();
        if dimensions.iter().any(|d| d.lower != 1) {
            for d in &dimensions {
                out.push_str(&format!("[{}:{}]", d.lower, d.lower + d.length - 1));
            }
            out.push('=');
        }
        let lengths: Vec<usize> = dimensions.iter().map(|d| usize::try_from(d.length).unwrap_or(0)).collect();
        write_level(&mut out, &lengths, &self.elements, print, budget)?;
        Ok(out)
    }
}

/// Writes an element, without quotes.
type Print<'a> = dyn Fn(&Value<'static>) -> Result<String, Failed> + 'a;

fn write_level(
    out: &mut String,
    lengths: &[usize],
    elements: &[Value<'static>],
    print: &Print<'_>,
    budget: &Budget,
) -> Result<(), Failed> {
    let stride = lengths[1..].iter().product::<usize>().max(1);
    for (i, part) in elements.chunks(stride).enumerate() {
        out.push(if i == 0 { '{' } else { ',' });
        if lengths.len() > 1 {
            write_level(out, &lengths[1..], part, print, budget)?;
        } else if part[0].is_null() {
            budget.make(8)?;
            out.push_str("NULL");
        } else {
            let text = print(&part[0])?;
            // Every byte may need a backslash.
            budget.make(2 * text.len() + 8)?;
            write_element(out, &text);
        }
    }
    out.push('}');
    Ok(())
}

fn write_element(out: &mut String, text: &str) {
    let special = |c: char| matches!(c, '"' | '\\' | '{' | '}' | ',' | ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    if !text.is_empty() && !text.contains(special) && !text.eq_ignore_ascii_case("null") {
        out.push_str(text);
        return;
    }
    out.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            out.push('\\');
        }
        out.push(char);
    }
    out.push('"');
}

/// Memory of each element of an array during parsing.
const ELEMENT_BYTES: usize = size_of::<Option<String>>() + size_of::<Value<'_>>() + 16;

/// The texts of the elements of `{…}` (`None` for NULL) and its shape.
pub(crate) fn parse(text: &str, budget: &Budget) -> Result<(Vec<Option<String>>, Vec<Dimension>), Failed> {
    // Elements are between commas; their texts are copied.
    let elements = memchr::memchr_iter(b',', text.as_bytes()).count() + 1;
    budget.make(2 * text.len() + elements * ELEMENT_BYTES)?;
    read(text).ok_or(Failed::Invalid)
}

fn read(text: &str) -> Option<(Vec<Option<String>>, Vec<Dimension>)> {
    let mut rest = text.trim();
    let mut bounds = Vec::new();
    while let Some(inner) = rest.strip_prefix('[') {
        let (bound, after) = inner.split_once(']')?;
        let (lower, upper) = bound.split_once(':').unwrap_or(("1", bound));
        let (lower, upper): (i32, i32) = (lower.parse().ok()?, upper.parse().ok()?);
        let length = upper.checked_sub(lower)?.checked_add(1)?;
        if length < 1 {
            return None;
        }
        bounds.push(Dimension { lower, length });
        rest = after;
    }
    if !bounds.is_empty() {
        rest = rest.trim_start().strip_prefix('=')?.trim_start();
    }
    let mut reader = Reader { rest, elements: Vec::new(), lengths: Vec::new() };
    reader.level(0)?;
    if !reader.rest.trim().is_empty() {
        return None;
    }
    let mut lengths = Vec::new();
    for length in reader.lengths {
        lengths.push(i32::try_from(length?).ok()?);
    }
    if reader.elements.is_empty() {
        lengths.clear();
    }
    if bounds.is_empty() {
        bounds = lengths.iter().map(|length| Dimension { lower: 1, length: *length }).collect();
    } else if bounds.iter().map(|b| b.length).ne(lengths) {
        return None;
    }
    Some((reader.elements, bounds))
}

struct Reader<'a> {
    rest: &'a str,
    elements: Vec<Option<String>>,
    /// Length of each level, once one of its arrays was parsed.
    lengths: Vec<Option<usize>>,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn takes(&mut self, what: char) -> bool {
        let taken = self.rest.strip_prefix(what);
        self.rest = taken.unwrap_or(self.rest);
        taken.is_some()
    }

    /// From an opening brace past its closing one.
    fn level(&mut self, depth: usize) -> Option<()> {
        if depth >= DIMENSIONS_MAX || !self.takes('{') {
            return None;
        }
        if self.lengths.len() == depth {
            if !self.elements.is_empty() {
                return None;
            }
            self.lengths.push(None);
        }
        let mut count = 0;
        self.blanks();
        if self.takes('}') {
            // Only the whole array may be empty.
            return (depth == 0).then(|| self.lengths[0] = Some(0));
        }
        loop {
            self.blanks();
            if self.rest.starts_with('{') {
                self.level(depth + 1)?;
            } else {
                if self.lengths.len() != depth + 1 {
                    return None;
                }
                let element = self.element()?;
                self.elements.push(element);
            }
            count += 1;
            self.blanks();
            if self.takes('}') {
                break;
            }
            if !self.takes(',') {
                return None;
            }
        }
        let known = self.lengths[depth].get_or_insert(count);
        (*known == count).then_some(())
    }

    fn element(&mut self) -> Option<Option<String>> {
        if self.takes('"') {
            let mut text = String::new();
            let mut chars = self.rest.char_indices();
            loop {
                let (at, char) = chars.next()?;
                match char {
                    '"' => {
                        self.rest = &self.rest[at + 1..];
                        return Some(Some(text));
                    }
                    '\\' => text.push(chars.next()?.1),
                    char => text.push(char),
                }
            }
        }
        let mut text = String::new();
        // Blanks at the end do not count unless they are escaped.
        let mut kept = 0;
        let mut escaped = false;
        let mut chars = self.rest.char_indices();
        let end = loop {
            let (at, char) = chars.next()?;
            match char {
                ',' | '}' => break at,
                '{' | '"' => return None,
                '\\' => {
                    text.push(chars.next()?.1);
                    (kept, escaped) = (text.len(), true);
                }
                char => {
                    text.push(char);
                    if !char.is_ascii_whitespace() {
                        kept = text.len();
                    }
                }
            }
        };
        self.rest = &self.rest[end..];
        text.truncate(kept);
        if text.is_empty() {
            return None;
        }
        Some(if !escaped && text.eq_ignore_ascii_case("null") { None } else { Some(text) })
    }
}
