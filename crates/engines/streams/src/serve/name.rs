//! Names: the part of the path after the prefix, as sent, except that percent-encoding is normalised (RFC 3986, section
//! 6.2.2).

use crate::error::Refusal;
use std::borrow::Cow;

/// The longest name, in bytes, after normalising.
pub(crate) const NAME_BYTES_MAX: usize = 1_024;

/// The first segment that the protocol reserves.
const RESERVED: &str = "__ds";

/// Whether a log of that name belongs to another engine of this process: no request can name it as a stream.
pub(crate) fn is_private(name: &str) -> bool {
    name.strip_prefix(RESERVED).is_some_and(|rest| rest.starts_with('/'))
}

/// The meaning of a path under the prefix, in its normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// The stream of this name.
    Stream(Cow<'a, str>),
    /// The path behind the segment that the protocol reserves, `__ds`, and its slash.
    Control(Cow<'a, str>),
}

/// Parses `path`. Every check of a path must use this function, so that all checks mean the same stream.
pub fn place_of_path<'a>(path: &'a str, prefix: &str) -> Result<Place<'a>, Refusal> {
    let rest = path.strip_prefix(prefix).ok_or_else(|| Refusal::NotUnderPrefix(prefix.into()))?;
    let name = normal(rest)?;
    if let Some(control) = name.strip_prefix(RESERVED)
        && (control.is_empty() || control.starts_with('/'))
    {
        let at = (RESERVED.len() + 1).min(name.len());
        return Ok(Place::Control(match name {
            Cow::Borrowed(name) => Cow::Borrowed(&name[at..]),
            Cow::Owned(mut name) => Cow::Owned(name.split_off(at)),
        }));
    }
    let mut segments = name.split('/');
    if segments.clone().any(str::is_empty) {
        return Err(Refusal::Name("it is empty, or has an empty segment"));
    }
    if segments.any(|segment| matches!(segment, "." | "..")) {
        return Err(Refusal::Name("`.` and `..` are no segments of a name"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Refusal::Name("it is longer than 1,024 bytes"));
    }
    Ok(Place::Stream(name))
}

/// The name of the stream at `path`.
pub(crate) fn of_path<'a>(path: &'a str, prefix: &str) -> Result<Cow<'a, str>, Refusal> {
    match place_of_path(path, prefix)? {
        Place::Stream(name) => Ok(name),
        Place::Control(_) => Err(Refusal::Reserved),
    }
}

/// Percent-encoded where needed, with capital digits, and nowhere else.
pub(super) fn normal(text: &str) -> Result<Cow<'_, str>, Refusal> {
    const CONTROL: Refusal = Refusal::Name("it holds control bytes");
    let plain = |b: &u8| matches!(b, b'!'..=b'~') && *b != b'%';
    if text.as_bytes().iter().all(plain) {
        return Ok(Cow::Borrowed(text));
    }
    let mut name = String::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let (byte, encoded) = if byte == b'%' {
            let (high, low) = (bytes.next().and_then(hex), bytes.next().and_then(hex));
            let (Some(high), Some(low)) = (high, low) else {
                return Err(Refusal::Name("a `%` is not followed by two hexadecimal digits"));
            };
            (high << 4 | low, true)
        } else {
            (byte, false)
        };
        if byte < 0x20 || byte == 0x7f {
            return Err(CONTROL);
        }
        let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if unreserved || (!encoded && plain(&byte)) {
            name.push(char::from(byte));
        } else {
            name.push('%');
            name.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
            name.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
        }
    }
    Ok(Cow::Owned(name))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|n| n as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(rest: &str) -> Result<String, Refusal> {
        of_path(&format!("/v1/stream/{rest}"), "/v1/stream/").map(Cow::into_owned)
    }

    #[test]
    fn names_are_taken_as_sent() {
        for rest in ["a", "a/b", "a!b@c:d", "a%2Fb", "caf%C3%A9", "__dsx", "a/__ds"] {
            assert_eq!(name(rest).as_deref(), Ok(rest));
        }
    }

    #[test]
    fn percent_encoding_is_normalised() {
        assert_eq!(name("%61%2d%7e").as_deref(), Ok("a-~"));
        assert_eq!(name("a%2fb").as_deref(), Ok("a%2Fb"));
        assert_eq!(name("caf\u{e9}").as_deref(), Ok("caf%C3%A9"));
    }

    #[test]
    fn unsafe_names_are_refused() {
        for rest in ["", "/", "a//b", "a/", ".", "a/../b", "%2e%2E", "a%00", "a\u{7f}", "%zz", "%4"] {
            assert_eq!(name(rest).unwrap_err().code(), "bad_name", "{rest:?}");
        }
        assert!(name(&"a".repeat(1_024)).is_ok());
        assert!(name(&"a".repeat(1_025)).is_err());
    }

    #[test]
    fn the_reserved_segment_is_refused_however_it_is_written() {
        for rest in ["__ds", "__ds/subscriptions/x", "%5F_ds/x"] {
            assert_eq!(name(rest), Err(Refusal::Reserved));
        }
    }

    proptest! {
        #[test]
        fn a_normal_name_is_its_own_normal_form(rest in "[a-c/%0-9é .~]{1,12}") {
            if let Ok(once) = name(&rest) {
                prop_assert_eq!(name(&once), Ok(once.clone()));
            }
        }
    }
}
