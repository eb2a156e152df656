//! JSON mode: one pass over a body checks it (RFC 8259, strictly) and finds its messages.
//!
//! A message is stored as its exact text, trimmed of white space, followed by one comma. So any run of messages can be
//! read as `[` + bytes without the last comma + `]`. An array gives one message per element: exactly one level is
//! flattened. Nothing here recurses, and depth is bounded, so no body can exhaust a stack.

use std::borrow::Cow;
use thalweg_log::Lengths;
use thiserror::Error;

/// How deep arrays and objects may nest, the flattened one included.
pub const JSON_DEPTH_MAX: u32 = 128;

/// The messages of one body. Their stored form is `content` followed by one comma, or empty without messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages<'a> {
    pub content: Cow<'a, [u8]>,
    /// Each with its comma.
    pub lengths: Lengths,
}

/// One valid value as a message of a JSON stream: its parts, and their length.
#[must_use]
pub fn message_of(value: &str) -> ([&[u8]; 2], Lengths) {
    let length = u32::try_from(value.len() + 1).unwrap_or(u32::MAX);
    ([value.as_bytes(), b","], Lengths::one(length))
}

/// Why a body is not valid JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// The byte of the body, from 0.
    pub at: usize,
    /// The fault.
    pub what: JsonFault,
}

/// The faults of JSON texts (RFC 8259), and two bounds of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JsonFault {
    #[error("invalid UTF-8")]
    Utf8,
    #[error("unexpected end")]
    End,
    #[error("unexpected byte")]
    Byte,
    #[error("invalid number")]
    Number,
    #[error("invalid escape")]
    Escape,
    #[error("unescaped control character in a string")]
    Control,
    #[error("text after the value")]
    Trailing,
    #[error("nesting deeper than {JSON_DEPTH_MAX}")]
    Depth,
    #[error("more than 4 GiB")]
    Length,
}

/// Checks `body` and finds its messages.
pub fn split(body: &[u8]) -> Result<Messages<'_>, JsonError> {
    if body.len() >= u32::MAX as usize {
        return Err(JsonError { at: 0, what: JsonFault::Length });
    }
    if let Err(error) = std::str::from_utf8(body) {
        return Err(JsonError { at: error.valid_up_to(), what: JsonFault::Utf8 });
    }
    let mut parser = Parser { body, at: 0 };
    parser.skip_space();
    let mut collector = Collector { body, from: 0, to: 0, joined: None, lengths: Lengths::new() };
    if parser.peek() == Some(b'[') {
        parser.at += 1;
        parser.elements(&mut collector)?;
    } else {
        let start = parser.at;
        parser.value(0)?;
        collector.add(start, parser.at);
    }
    parser.skip_space();
    if parser.at < body.len() {
        return Err(parser.fault(JsonFault::Trailing));
    }
    Ok(collector.finish())
}

/// Gathers messages, without copying while they are adjacent with one comma between.
struct Collector<'a> {
    body: &'a [u8],
    from: usize,
    to: usize,
    joined: Option<Vec<u8>>,
    lengths: Lengths,
}

impl<'a> Collector<'a> {
    fn add(&mut self, start: usize, end: usize) {
        if self.lengths.is_empty() {
            self.from = start;
        } else if self.joined.is_none() && start != self.to + 1 {
            let mut joined = Vec::with_capacity(self.body.len());
            joined.extend_from_slice(&self.body[self.from..self.to]);
            self.joined = Some(joined);
        }
        if let Some(joined) = &mut self.joined {
            joined.push(b',');
            joined.extend_from_slice(&self.body[start..end]);
        }
        self.to = end;
        self.lengths.push((end - start + 1) as u32);
    }

    fn finish(self) -> Messages<'a> {
        let content = match self.joined {
            Some(joined) => Cow::Owned(joined),
            None => Cow::Borrowed(&self.body[self.from..self.to]),
        };
        Messages { content, lengths: self.lengths }
    }
}

struct Parser<'a> {
    body: &'a [u8],
    at: usize,
}

/// The containers that are open around a place, innermost last: one bit each, set for an object.
#[derive(Clone, Copy)]
struct Open {
    bits: u128,
    depth: u32,
    /// Levels that the caller has open.
    outer: u32,
}

impl Open {
    fn push(&mut self, object: bool) -> bool {
        if self.depth + self.outer >= JSON_DEPTH_MAX {
            return false;
        }
        self.bits = self.bits << 1 | u128::from(object);
        self.depth += 1;
        true
    }

    fn pop(&mut self) {
        self.bits >>= 1;
        self.depth -= 1;
    }

    fn in_object(self) -> bool {
        self.bits & 1 == 1
    }
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn fault(&self, what: JsonFault) -> JsonError {
        JsonError { at: self.at, what }
    }

    /// The error for an unexpected byte or end.
    fn unexpected(&self) -> JsonError {
        self.fault(if self.at < self.body.len() { JsonFault::Byte } else { JsonFault::End })
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// The elements of the outermost array, after its `[`.
    fn elements(&mut self, collector: &mut Collector<'_>) -> Result<(), JsonError> {
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_space();
            let start = self.at;
            self.value(1)?;
            collector.add(start, self.at);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// One value, from its first byte to just past its last.
    fn value(&mut self, outer: u32) -> Result<(), JsonError> {
        let mut open = Open { bits: 0, depth: 0, outer };
        loop {
            // A value starts at this byte.
            match self.peek() {
                Some(b'{') => {
                    self.enter(&mut open, true)?;
                    if self.peek() != Some(b'}') {
                        self.key()?;
                        continue;
                    }
                    self.at += 1;
                    open.pop();
                }
                Some(b'[') => {
                    self.enter(&mut open, false)?;
                    if self.peek() != Some(b']') {
                        continue;
                    }
                    self.at += 1;
                    open.pop();
                }
                Some(b'"') => self.string()?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(self.unexpected()),
            }
            // A value has ended: close the levels that end with it, up to the next comma.
            loop {
                if open.depth == 0 {
                    return Ok(());
                }
                self.skip_space();
                match (self.peek(), open.in_object()) {
                    (Some(b','), object) => {
                        self.at += 1;
                        self.skip_space();
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => {
                        self.at += 1;
                        open.pop();
                    }
                    _ => return Err(self.unexpected()),
                }
            }
        }
    }

    fn enter(&mut self, open: &mut Open, object: bool) -> Result<(), JsonError> {
        if !open.push(object) {
            return Err(self.fault(JsonFault::Depth));
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    /// A key and its colon, up to the value.
    fn key(&mut self) -> Result<(), JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected());
        }
        self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.unexpected());
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            self.skip_plain();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0..0x20) => return Err(self.fault(JsonFault::Control)),
                Some(_) => self.at += 1,
                None => return Err(self.fault(JsonFault::End)),
            }
        }
    }

    /// Moves over bytes that mean nothing in a string: sixteen at a time, which compilers turn into vector
    /// instructions.
    fn skip_plain(&mut self) {
        let special = |b: &u8| *b == b'"' || *b == b'\\' || *b < 0x20;
        let rest = &self.body[self.at..];
        for chunk in rest.chunks_exact(16) {
            if chunk.iter().fold(false, |found, b| found | special(b)) {
                break;
            }
            self.at += 16;
        }
        let rest = &self.body[self.at..];
        self.at += rest.iter().position(special).unwrap_or(rest.len());
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let digits = match self.body.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 0,
            Some(b'u') => 4,
            Some(_) => return Err(self.fault(JsonFault::Escape)),
            None => return Err(self.fault(JsonFault::End)),
        };
        let hex = self.body.get(self.at + 2..self.at + 2 + digits).ok_or(self.fault(JsonFault::End))?;
        if !hex.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.fault(JsonFault::Escape));
        }
        self.at += 2 + digits;
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.body[self.at..].starts_with(word) {
            return Err(self.fault(JsonFault::Byte));
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.fault(JsonFault::Number)),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.fault(JsonFault::Number)) } else { Ok(()) }
    }
}

/// A fuzz target's entry: this parser and `serde_json` must accept the same bodies, message by message.
#[doc(hidden)]
#[allow(clippy::expect_used, clippy::missing_panics_doc)]
pub fn fuzz_json(data: &[u8]) {
    use serde_json::value::RawValue;
    let ours = split(data);
    let Ok(whole) = serde_json::from_slice::<&RawValue>(data) else {
        assert!(ours.is_err(), "serde_json refuses an accepted body");
        return;
    };
    let messages = match ours {
        Ok(messages) => messages,
        Err(error) => {
            assert_eq!(error.what, JsonFault::Depth, "serde_json accepts a refused body");
            return;
        }
    };
    let expected: Vec<&str> = if whole.get().starts_with('[') {
        let elements: Vec<&RawValue> = serde_json::from_str(whole.get()).expect("an array");
        elements.into_iter().map(RawValue::get).collect()
    } else {
        vec![whole.get()]
    };
    let mut stored = messages.content.into_owned();
    stored.push(b',');
    let mut at = 0;
    for (length, text) in messages.lengths.iter().zip(&expected) {
        let end = at + length as usize;
        assert_eq!(&stored[at..end - 1], text.as_bytes());
        assert_eq!(stored[end - 1], b',');
        at = end;
    }
    assert_eq!(messages.lengths.count(), expected.len() as u64);
    assert!(expected.is_empty() || at == stored.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(body: &str) -> (String, Vec<u32>) {
        let messages = split(body.as_bytes()).unwrap();
        (String::from_utf8(messages.content.into_owned()).unwrap(), messages.lengths.iter().collect())
    }

    fn fault(body: &[u8]) -> JsonFault {
        split(body).unwrap_err().what
    }

    #[test]
    fn one_value_is_one_message() {
        assert_eq!(stored(" {\"a\": 1}\n"), ("{\"a\": 1}".into(), vec![9]));
        assert_eq!(stored("null"), ("null".into(), vec![5]));
    }

    #[test]
    fn exactly_one_level_is_flattened() {
        assert_eq!(stored("[[1,2],[3,4]]"), ("[1,2],[3,4]".into(), vec![6, 6]));
        assert_eq!(stored("[[[1,2,3]]]"), ("[[1,2,3]]".into(), vec![10]));
        assert_eq!(stored("[]"), (String::new(), vec![]));
        assert_eq!(stored("[[]]"), ("[]".into(), vec![3]));
    }

    #[test]
    fn a_compact_array_is_not_copied() {
        let body = b"[1,{\"a\":[]},\"x\"]";
        assert!(matches!(split(body).unwrap().content, Cow::Borrowed(_)));
    }

    #[test]
    fn space_between_elements_is_trimmed() {
        assert_eq!(stored("[ 1 , 2,\n\t3 ]"), ("1,2,3".into(), vec![2, 2, 2]));
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        assert_eq!(fault(b""), JsonFault::End);
        assert_eq!(fault(b"[1,]"), JsonFault::Byte);
        assert_eq!(fault(b"[1 2]"), JsonFault::Byte);
        assert_eq!(fault(b"{\"a\"1}"), JsonFault::Byte);
        assert_eq!(fault(b"1 2"), JsonFault::Trailing);
        assert_eq!(fault(b"01"), JsonFault::Trailing);
        assert_eq!(fault(b"1."), JsonFault::Number);
        assert_eq!(fault(b"\"a\nb\""), JsonFault::Control);
        assert_eq!(fault(b"\"\\x\""), JsonFault::Escape);
        assert_eq!(fault(b"\"\xff\""), JsonFault::Utf8);
        assert_eq!(fault(b"\xef\xbb\xbf1"), JsonFault::Byte);
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(split(&nested(128)).is_ok());
        assert_eq!(fault(&nested(129)), JsonFault::Depth);
        assert_eq!(fault(&vec![b'['; 10_000_000]), JsonFault::Depth);
        let objects = |depth: usize| ["{\"a\":".repeat(depth), "1".into(), "}".repeat(depth)].concat();
        assert!(split(objects(128).as_bytes()).is_ok());
        assert_eq!(fault(objects(129).as_bytes()), JsonFault::Depth);
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            ".{0,40}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
                prop::collection::btree_map(".{0,5}", inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn splitting_agrees_with_serde_json(value in json(), pretty: bool) {
            let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            prop_assert!(split(&text).is_ok());
            fuzz_json(&text);
        }

        #[test]
        fn damaged_json_agrees_with_serde_json(value in json(), at in 0usize..200, byte: u8, cut in 0usize..200) {
            let mut text = serde_json::to_vec(&value).unwrap();
            if let Some(place) = text.get_mut(at) {
                *place = byte;
            }
            fuzz_json(&text);
            text.truncate(cut);
            fuzz_json(&text);
        }

        #[test]
        fn json_like_garbage_agrees_with_serde_json(text in "[\\[\\]{}\",:0-9eE.+\\- tfnrulase\\\\]{0,30}") {
            fuzz_json(text.as_bytes());
        }
    }
}
