//! Encoded messages split as bytes: no value is decoded, so none changes its form.

use super::moves::{Event, Reasons};

/// A message that cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// A message of an unknown kind.
    #[error("the shape's log tells of more than rows")]
    NotRows,
    #[error("a body is not in the form that it was written in")]
    Form,
}

/// The operation of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Insert,
    Update,
    Delete,
}

/// A message of a log.
pub enum Message<'a> {
    Row(Body<'a>),
    /// A message about many rows.
    Event(Event<'a>),
}

impl<'a> Message<'a> {
    /// The first message of `bytes`, and the rest.
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BodyError> {
        let Some(rest) = bytes.strip_prefix(b"{\"headers\":") else {
            return Body::split(bytes).map(|(body, rest)| (Self::Row(body), rest));
        };
        let (headers, rest) = rest.split_at(object_end(rest)?);
        let rest = rest.strip_prefix(b" },").ok_or(BodyError::Form)?;
        Ok((Self::Event(serde_json::from_slice(headers).map_err(|_| BodyError::NotRows)?), rest))
    }
}

/// `{"key":…,"value":{…},"headers":{…}},`, in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// The whole message, including the comma behind it.
    pub whole: &'a [u8],
    /// The key without its quotes, still escaped.
    pub key: &'a [u8],
    /// `{…}`.
    pub value: &'a [u8],
    /// `{…}`.
    pub headers: &'a [u8],
}

impl<'a> Body<'a> {
    /// The first body of `bytes`, and the rest.
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), BodyError> {
        if bytes.starts_with(b"{\"headers\":") {
            return Err(BodyError::NotRows);
        }
        let rest = bytes.strip_prefix(b"{\"key\":\"").ok_or(BodyError::Form)?;
        let (key, rest) = rest.split_at(text_end(rest)?);
        let rest = rest.strip_prefix(b"\",\"value\":").ok_or(BodyError::Form)?;
        let (value, mut rest) = rest.split_at(object_end(rest)?);
        if let Some(old) = rest.strip_prefix(b",\"old_value\":") {
            rest = &old[object_end(old)?..];
        }
        let rest = rest.strip_prefix(b",\"headers\":").ok_or(BodyError::Form)?;
        let (headers, rest) = rest.split_at(object_end(rest)?);
        let rest = rest.strip_prefix(b"},").ok_or(BodyError::Form)?;
        let whole = &bytes[..bytes.len() - rest.len()];
        Ok((Self { whole, key, value, headers }, rest))
    }

    pub fn operation(&self) -> Result<Operation, BodyError> {
        let rest = self.headers.strip_prefix(b"{\"operation\":\"").ok_or(BodyError::Form)?;
        match &rest[..text_end(rest)?] {
            b"insert" => Ok(Operation::Insert),
            b"update" => Ok(Operation::Update),
            b"delete" => Ok(Operation::Delete),
            _ => Err(BodyError::Form),
        }
    }

    /// The tags of a row of a shape with subqueries.
    pub fn reasons(&self) -> Result<Option<Reasons<'a>>, BodyError> {
        // Quotes in a text have a backslash before them: these are names.
        let list = |name: &[u8]| {
            let Some(at) = memchr::memmem::find(self.headers, name) else { return Ok(None) };
            list_at(self.headers, at + name.len()).map(Some)
        };
        match (list(b"\"tags\":")?, list(b"\"active_conditions\":")?) {
            (None, None) => Ok(None),
            (Some(tags), Some(active)) => Ok(Some(Reasons { tags, active })),
            _ => Err(BodyError::NotRows),
        }
    }

    /// The transaction's xid, if the message has one.
    pub fn xid(&self) -> Option<u32> {
        const NAME: &[u8] = b"\"txids\":[";
        let at = memchr::memmem::find(self.headers, NAME)? + NAME.len();
        let digits = self.headers[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        std::str::from_utf8(&self.headers[at..at + digits]).ok()?.parse().ok()
    }

    /// `"relation":["…","…"]`.
    pub fn relation(&self) -> Result<&'a [u8], BodyError> {
        const NAME: &[u8] = b"\"relation\":[";
        let from = memchr::memmem::find(self.headers, NAME).ok_or(BodyError::Form)?;
        let list = list_at(self.headers, from + NAME.len() - 1)?;
        Ok(&self.headers[from..from + NAME.len() - 1 + list.len()])
    }
}

/// `[…]` of texts or of words, which begins at `from`.
fn list_at(bytes: &[u8], from: usize) -> Result<&[u8], BodyError> {
    if bytes.get(from) != Some(&b'[') {
        return Err(BodyError::Form);
    }
    let mut at = from + 1;
    loop {
        match bytes.get(at) {
            Some(b']') => return Ok(&bytes[from..=at]),
            Some(b'"') => at += text_end(&bytes[at + 1..])? + 2,
            Some(b',' | b'a'..=b'z') => at += 1,
            _ => return Err(BodyError::Form),
        }
    }
}

/// Appends a row of a base.
pub(crate) fn push_row(out: &mut Vec<u8>, key: &[u8], value: &[u8], relation: &[u8], reasons: Option<Reasons<'_>>) {
    out.extend_from_slice(b"{\"key\":\"");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\",\"value\":");
    out.extend_from_slice(value);
    out.extend_from_slice(b",\"headers\":{\"operation\":\"insert\",");
    out.extend_from_slice(relation);
    if let Some(Reasons { tags, active }) = reasons {
        out.extend_from_slice(b",\"tags\":");
        out.extend_from_slice(tags);
        out.extend_from_slice(b",\"active_conditions\":");
        out.extend_from_slice(active);
    }
    out.extend_from_slice(b"}},");
}

/// `value` patched with the columns of `changes`, in the order of `value`; new columns come last.
pub(crate) fn patched(value: &[u8], changes: &[u8]) -> Result<Vec<u8>, BodyError> {
    let changes = members(changes)?;
    let mut used = vec![false; changes.len()];
    let mut out = Vec::with_capacity(value.len() + 16);
    out.push(b'{');
    let mut push = |name: &[u8], value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    };
    // Both have the table's order, so the next change is where the last one was found, or after it.
    let mut next = 0;
    for (name, value) in members(value)? {
        let mut order = (next..changes.len()).chain(0..next);
        match order.find(|at| changes[*at].0 == name) {
            Some(at) => {
                (used[at], next) = (true, at + 1);
                push(name, changes[at].1);
            }
            None => push(name, value),
        }
    }
    changes.iter().zip(used).filter(|(_, used)| !used).for_each(|((name, value), _)| push(name, value));
    out.push(b'}');
    Ok(out)
}

/// `"name":` and value.
type Member<'a> = (&'a [u8], &'a [u8]);

/// The members of `{…}`.
fn members(object: &[u8]) -> Result<Vec<Member<'_>>, BodyError> {
    let mut rest = object.strip_prefix(b"{").ok_or(BodyError::Form)?;
    let mut all = Vec::new();
    while let Some(quoted) = rest.strip_prefix(b"\"") {
        let name = text_end(quoted)? + 2;
        if rest.get(name) != Some(&b':') {
            return Err(BodyError::Form);
        }
        let (name, value) = rest.split_at(name + 1);
        let end = match value.strip_prefix(b"\"") {
            Some(text) => text_end(text)? + 2,
            None => memchr::memchr2(b',', b'}', value).ok_or(BodyError::Form)?,
        };
        all.push((name, &value[..end]));
        rest = &value[end..];
        rest = rest.strip_prefix(b",").unwrap_or(rest);
    }
    if rest == b"}" { Ok(all) } else { Err(BodyError::Form) }
}

/// The position of the quote that closes the text at the start of `bytes`.
fn text_end(bytes: &[u8]) -> Result<usize, BodyError> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..).ok_or(BodyError::Form)?).ok_or(BodyError::Form)?;
        if bytes[at] == b'"' {
            return Ok(at);
        }
        at += 2;
    }
}

/// The length of the object at the start of `bytes`.
fn object_end(bytes: &[u8]) -> Result<usize, BodyError> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(found) = memchr::memchr3(b'{', b'}', b'"', bytes.get(at..).ok_or(BodyError::Form)?) {
        at += found;
        match bytes[at] {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1).ok_or(BodyError::Form)?;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            _ => at += text_end(&bytes[at + 1..])? + 1,
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    Err(BodyError::Form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHANGE: &[u8] = br#"{"key":"\"public\".\"t\"/\"a}\\\"\"","value":{"id":"a}\\\"","n":null},"old_value":{"n":"{"},"headers":{"operation":"update","txids":[7],"relation":["pub]","t\""],"key_change_to":"\"tags\":","lsn":"9","op_position":2}},"#;

    #[test]
    fn a_body_comes_apart() {
        let two = [CHANGE, br#"{"key":"k","value":{},"headers":{"operation":"delete"}},"#].concat();
        let (body, rest) = Body::split(&two).unwrap();
        assert_eq!(body.whole, CHANGE);
        assert_eq!(body.key, br#"\"public\".\"t\"/\"a}\\\"\""#);
        assert_eq!(body.value, br#"{"id":"a}\\\"","n":null}"#);
        assert_eq!((body.operation(), body.xid()), (Ok(Operation::Update), Some(7)));
        assert_eq!(body.relation().unwrap(), br#""relation":["pub]","t\""]"#);
        let (last, rest) = Body::split(rest).unwrap();
        assert_eq!((last.operation(), last.xid(), rest), (Ok(Operation::Delete), None, &b""[..]));
        let mut row = Vec::new();
        push_row(&mut row, body.key, body.value, body.relation().unwrap(), None);
        let (row, rest) = Body::split(&row).unwrap();
        assert_eq!(
            (row.key, row.value, row.operation(), rest),
            (body.key, body.value, Ok(Operation::Insert), &b""[..])
        );
    }

    #[test]
    fn what_is_more_than_a_row_is_told_apart() {
        let event = br#"{"headers":{"event":"move-out","patterns":[{"pos":0,"value":"}"}],"txids":[3]} },x"#;
        assert!(matches!(Message::split(event), Ok((Message::Event(event), b"x")) if event.txids == [3]));
        assert_eq!(Body::split(event), Err(BodyError::NotRows));
        let tagged = br#"{"key":"k","value":{},"headers":{"operation":"update","relation":["\"tags\":","t"],"tags":["a/","/1"],"removed_tags":["b/"],"active_conditions":[true,false]}},"#;
        let (body, _) = Body::split(tagged).unwrap();
        let reasons = body.reasons().unwrap().unwrap();
        assert_eq!((reasons.tags, reasons.active), (&br#"["a/","/1"]"#[..], &b"[true,false]"[..]));
        assert_eq!(Body::split(CHANGE).unwrap().0.reasons(), Ok(None));
        let mut row = Vec::new();
        push_row(&mut row, body.key, body.value, body.relation().unwrap(), Some(reasons));
        let (row, _) = Body::split(&row).unwrap();
        assert_eq!((row.reasons(), row.operation()), (Ok(Some(reasons)), Ok(Operation::Insert)));
    }

    #[test]
    fn changes_take_the_place_of_what_was_there() {
        let patch = |value: &str, changes: &str| {
            String::from_utf8(patched(value.as_bytes(), changes.as_bytes()).unwrap()).unwrap()
        };
        assert_eq!(patch(r#"{"a":"1","b":"2","c":null}"#, r#"{"a":"1","c":"x"}"#), r#"{"a":"1","b":"2","c":"x"}"#);
        assert_eq!(patch(r#"{"b":"2"}"#, r#"{"a":null,"b":null}"#), r#"{"b":null,"a":null}"#);
        assert_eq!(patch("{}", "{}"), "{}");
        assert_eq!(patch("{}", r#"{"a":"}"}"#), r#"{"a":"}"}"#);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\a1".to_vec()), 0..40), cut in 0..CHANGE.len()) {
            let _ = Body::split(&bytes);
            let _ = Message::split(&[b"{\"headers\":".as_slice(), &bytes].concat());
            let _ = list_at(&bytes, cut % 8);
            let _ = members(&bytes);
            let _ = patched(&bytes, &bytes);
            prop_assert_eq!(Body::split(&CHANGE[..cut]), Err(BodyError::Form));
            let mut damaged = CHANGE.to_vec();
            damaged.splice(cut..cut, bytes);
            if let Ok((body, _)) = Body::split(&damaged) {
                let _ = (body.operation(), body.xid(), body.relation(), body.reasons());
            }
        }
    }
}
