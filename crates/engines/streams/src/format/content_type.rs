//! Content types: kept as given, compared by media type, and stored as one byte where common.

use thalweg_base::{DecodeError, Decoder, Encoder};

/// The longest content type, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// A code is a place in this table plus one. Only add at the end: journals and checkpoints contain codes.
const COMMON: [&str; 14] = [
    "application/json",
    "text/plain",
    "application/octet-stream",
    "text/plain; charset=utf-8",
    "text/plain;charset=UTF-8",
    "application/json; charset=utf-8",
    "application/ndjson",
    "application/x-ndjson",
    "text/event-stream",
    "text/html",
    "text/markdown",
    "application/x-protobuf",
    "application/cbor",
    "image/png",
];

/// How the engine treats a stream's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `application/json`: messages are values, see [`super::json`].
    Json,
    /// `text/*`
    Text,
    Binary,
}

/// A stream's content type, exactly as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentType {
    Common(u8),
    Other(Box<str>),
}

impl ContentType {
    pub const OCTET_STREAM: Self = Self::Common(2);

    /// `None` if it is no content type at all or too long.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value = value.trim_ascii();
        if let Some(place) = COMMON.iter().position(|common| common.as_bytes() == value) {
            return Some(Self::Common(place as u8));
        }
        let text = std::str::from_utf8(value).ok()?;
        let (kind, sub) = media_type(value).split_at_checked(memchr::memchr(b'/', media_type(value))?)?;
        let visible = value.iter().all(|b| matches!(b, b' '..=b'~' | b'\t'));
        let named = kind.iter().all(|b| is_token(*b)) && sub[1..].iter().all(|b| is_token(*b));
        let whole = !kind.is_empty() && sub.len() > 1 && value.len() <= CONTENT_TYPE_BYTES_MAX;
        (visible && named && whole).then(|| Self::Other(text.into()))
    }

    /// The content type as the stream's creator sent it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Common(place) => COMMON.get(usize::from(*place)).copied().unwrap_or("application/octet-stream"),
            Self::Other(text) => text,
        }
    }

    /// How content of this type is split into messages.
    #[must_use]
    pub fn kind(&self) -> Kind {
        kind(self.as_str().as_bytes())
    }

    /// Does `value` name the same media type? Parameters and case make no difference.
    #[must_use]
    pub fn matches(&self, value: &[u8]) -> bool {
        let ours = self.as_str().as_bytes();
        ours == value || media_type(ours).eq_ignore_ascii_case(media_type(value))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Common(place) => out.put_u8(place + 1),
            Self::Other(text) => {
                out.put_u8(0);
                out.put_bytes(text.as_bytes());
            }
        }
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match d.u8()? {
            0 => Ok(Self::Other(d.str()?.into())),
            code if usize::from(code) <= COMMON.len() => Ok(Self::Common(code - 1)),
            code => Err(DecodeError::Unknown { what: "content type", got: code.into() }),
        }
    }
}

/// The kind of content of this type.
#[must_use]
pub fn kind(content_type: &[u8]) -> Kind {
    let media = media_type(content_type);
    if media.eq_ignore_ascii_case(b"application/json") {
        Kind::Json
    } else if media.len() > 5 && media[..5].eq_ignore_ascii_case(b"text/") {
        Kind::Text
    } else {
        Kind::Binary
    }
}

/// The type and subtype, without parameters.
fn media_type(value: &[u8]) -> &[u8] {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    value[..end].trim_ascii()
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_pinned() {
        let code = |text: &str| {
            let mut out = Vec::new();
            ContentType::parse(text.as_bytes()).unwrap().encode(&mut out);
            out
        };
        assert_eq!(code("application/json"), [1]);
        assert_eq!(code("text/plain"), [2]);
        assert_eq!(code("application/octet-stream"), [3]);
        assert_eq!(code("image/png"), [14]);
        assert_eq!(code("Text/Plain"), b"\x00\x0aText/Plain");
    }

    #[test]
    fn common_types_round_trip_as_given() {
        for text in COMMON.into_iter().chain(["Application/JSON; a=b", "a/b"]) {
            let given = ContentType::parse(text.as_bytes()).unwrap();
            let mut out = Vec::new();
            given.encode(&mut out);
            let mut d = Decoder::new(&out);
            let decoded = ContentType::decode(&mut d).unwrap();
            assert_eq!((decoded.as_str(), d.is_empty()), (text, true));
        }
    }

    #[test]
    fn media_types_compare_without_case_or_parameters() {
        let json = ContentType::parse(b"application/json").unwrap();
        assert!(json.matches(b"APPLICATION/Json ; charset=utf-8"));
        assert!(!json.matches(b"application/jsonl"));
        assert_eq!(kind(b"Application/JSON;x"), Kind::Json);
        assert_eq!(kind(b"TEXT/x"), Kind::Text);
        assert_eq!(kind(b"application/ndjson"), Kind::Binary);
    }

    #[test]
    fn nonsense_is_no_content_type() {
        for text in ["", " ", "json", "/json", "a/", "a b/c", "a/b\x07", "\u{e9}/b"] {
            assert_eq!(ContentType::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(ContentType::parse(format!("a/{}", "b".repeat(255)).as_bytes()), None);
    }
}
