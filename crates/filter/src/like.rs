//! LIKE, with `\` as the escape character.

use crate::budget::{Budget, Failed};
use std::borrow::Cow;

/// Steps are paid in batches: patterns with many wildcards on long texts take the product of both lengths.
const STEPS: u32 = 32;
const STEP_COSTS: u64 = 3;
/// Beginning a search costs as much as scanning this many bytes.
const FIND_COSTS: usize = 192;

/// One character of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// `%`
    Any,
    /// `_`
    One,
    Char(char),
}

/// The next part of a pattern and the rest; `None` at a lone escape at the end.
pub(crate) fn next_part(pattern: &str) -> Option<(Part, &str)> {
    let mut chars = pattern.chars();
    let part = match chars.next()? {
        '%' => Part::Any,
        '_' => Part::One,
        '\\' => Part::Char(chars.next()?),
        char => Part::Char(char),
    };
    Some((part, chars.as_str()))
}

/// Whether a pattern does not end in a lone escape.
pub(crate) fn is_whole(mut pattern: &str) -> bool {
    while let Some((_, behind)) = next_part(pattern) {
        pattern = behind;
    }
    pattern.is_empty()
}

/// Whether a text matches. A pattern that ends in a lone escape is an error, once matching reaches it.
pub(crate) fn matches(text: &str, pattern: &str, budget: &Budget) -> Result<bool, Failed> {
    let (mut text, mut pattern) = (text, pattern);
    // After the last `%`: the pattern behind it, and the text that it was tried at.
    let mut retry: Option<(&str, &str)> = None;
    let mut steps = 0_u32;
    loop {
        if steps.is_multiple_of(STEPS) {
            budget.spend(u64::from(STEPS) * STEP_COSTS)?;
        }
        steps = steps.wrapping_add(1);
        if pattern.is_empty() {
            if text.is_empty() {
                return Ok(true);
            }
        } else {
            let (part, behind) = next_part(pattern).ok_or(Failed::Invalid)?;
            if part == Part::Any {
                if behind.is_empty() {
                    return Ok(true);
                }
                (pattern, retry) = (behind, Some((behind, text)));
                continue;
            }
            let mut chars = text.chars();
            if let Some(char) = chars.next()
                && (part == Part::One || part == Part::Char(char))
            {
                (text, pattern) = (chars.as_str(), behind);
                continue;
            }
        }
        // No match here: extend the last `%` by one character.
        let Some((behind, tried)) = retry else { return Ok(false) };
        let mut chars = tried.chars();
        if chars.next().is_none() {
            return Ok(false);
        }
        let mut tried = chars.as_str();
        if let Some((Part::Char(wanted), _)) = next_part(behind) {
            // Straight to where its first character is.
            let Some(at) = memchr::memmem::find(tried.as_bytes(), wanted.encode_utf8(&mut [0; 4]).as_bytes()) else {
                budget.scan(FIND_COSTS + tried.len())?;
                return Ok(false);
            };
            budget.scan(FIND_COSTS + at)?;
            tried = &tried[at..];
        }
        (text, pattern, retry) = (tried, behind, Some((behind, tried)));
    }
}

/// In lower case, character by character: a character without a single lower-case one stays.
pub(crate) fn fold(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|b| b.is_ascii_uppercase() || b >= 0x80) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| single(c, c.to_lowercase())).collect())
}

pub(crate) fn unfold(text: &str) -> String {
    text.chars().map(|c| single(c, c.to_uppercase())).collect()
}

fn single(char: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => char,
    }
}

/// A pattern with another escape character (none if `None`), written with `\`.
pub(crate) fn with_backslash(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        if Some(char) == escape {
            out.push('\\');
            out.extend(chars.next());
        } else if char == '\\' {
            out.push_str("\\\\");
        } else {
            out.push(char);
        }
    }
    out
}
