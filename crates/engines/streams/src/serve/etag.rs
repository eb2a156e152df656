//! Entity tags: `"<incarnation>:<start>:<end>"`, with `:c` when the stream is closed at that end (protocol section
//! 10.1).

use crate::format::offset::{OffsetParam, Position};
use thalweg_base::Offset;

/// The tag of content from `start` to `end`.
pub(crate) fn etag(start: Offset, end: Position, closed: bool) -> Vec<u8> {
    let mut tag = Vec::with_capacity(48);
    let mut digits = itoa::Buffer::new();
    tag.push(b'"');
    tag.extend_from_slice(digits.format(end.incarnation).as_bytes());
    tag.push(b':');
    tag.extend_from_slice(digits.format(start.0).as_bytes());
    tag.push(b':');
    tag.extend_from_slice(digits.format(end.offset.0).as_bytes());
    tag.extend_from_slice(if closed { b":c\"" } else { b"\"" });
    tag
}

/// Does `If-None-Match` name the tag? Weak comparison, as RFC 9110 asks for.
pub(crate) fn matches(given: &[u8], tag: &[u8]) -> bool {
    given.split(|b| *b == b',').map(<[u8]>::trim_ascii).any(|one| one.strip_prefix(b"W/").unwrap_or(one) == tag)
}

/// Suffix of the tag of gzip content: other bytes need another tag.
const GZIP: &[u8] = b";gzip\"";

pub(crate) fn gzipped(mut tag: Vec<u8>) -> Vec<u8> {
    tag.pop();
    tag.extend_from_slice(GZIP);
    tag
}

/// The tag of `If-None-Match` that matches this content; the tag of the compressed form matches only for clients that
/// accept gzip.
pub(crate) fn unchanged(given: Option<&[u8]>, tag: &[u8], gzip: bool) -> Option<Vec<u8>> {
    let given = given?;
    if matches(given, tag) {
        return Some(tag.to_vec());
    }
    Some(gzipped(tag.to_vec())).filter(|tag| gzip && matches(given, tag))
}

/// Does `If-Match` name the stream as it ends at `tail`? It may hold `*`, offsets, quoted or not, and tags that a read
/// gave: of these only the end counts. Strong comparison, as RFC 9110 asks for, so weak tags never match.
pub(crate) fn names_tail(given: &[u8], tail: Position) -> bool {
    given.split(|b| *b == b',').map(<[u8]>::trim_ascii).any(|one| {
        let text = one.strip_prefix(b"\"").and_then(|one| one.strip_suffix(b"\"")).unwrap_or(one);
        one == b"*"
            || match OffsetParam::parse(text) {
                Some(OffsetParam::At(at)) => at == tail,
                Some(OffsetParam::Start) => tail.offset == Offset::ZERO,
                Some(OffsetParam::Tail) => false,
                None => end(text) == Some(tail),
            }
    })
}

/// The end of the content that a tag, without its quotes, names.
fn end(tag: &[u8]) -> Option<Position> {
    let tag = tag.strip_suffix(b";gzip").unwrap_or(tag);
    let mut fields = tag.split(|b| *b == b':').map(number);
    let (incarnation, _, end) = (fields.next()??, fields.next()??, fields.next()??);
    Some(Position { incarnation, offset: Offset(end) })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_has_many_names() {
        let tail = Position { incarnation: 64, offset: Offset(9) };
        let text = String::from_utf8(tail.to_text().to_vec()).unwrap();
        for given in [
            text.clone(),
            format!("\"{text}\""),
            format!("\"x\" , \"{text}\""),
            "*".into(),
            "\"64:3:9\"".into(),
            "\"64:3:9:c\"".into(),
            "\"64:3:9;gzip\"".into(),
        ] {
            assert!(names_tail(given.as_bytes(), tail), "{given}");
        }
        for given in [
            String::new(),
            "now".into(),
            "-1".into(),
            format!("W/\"{text}\""),
            "\"64:3:8\"".into(),
            "\"65:3:9\"".into(),
            "\"64:9\"".into(),
            "\"64:+3:9\"".into(),
            "\"64:3:99999999999999999999\"".into(),
        ] {
            assert!(!names_tail(given.as_bytes(), tail), "{given}");
        }
        assert!(names_tail(b"-1", Position { incarnation: 64, offset: Offset::ZERO }));
    }

    #[test]
    fn closure_changes_the_tag() {
        let end = Position { incarnation: 64, offset: Offset(9) };
        assert_eq!(etag(Offset(3), end, false), b"\"64:3:9\"");
        assert_eq!(etag(Offset(3), end, true), b"\"64:3:9:c\"");
    }

    #[test]
    fn lists_and_weak_tags_match() {
        assert!(matches(b"\"a\", W/\"64:3:9\"", b"\"64:3:9\""));
        assert!(!matches(b"\"64:3:9:c\"", b"\"64:3:9\""));
        assert!(!matches(b"*", b"\"64:3:9\""));
    }
}
