//! Entity tags: `"<incarnation>:<start>:<end>"`, with `:c` when the stream ends there for good (protocol section 10.1).

use crate::format::offset::Position;
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

#[cfg(test)]
mod tests {
    use super::*;

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
