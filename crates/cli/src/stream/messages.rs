//! JSON messages as lines.
//!
//! A line break inside of a JSON value can only be between its tokens, where it has no meaning: dropping it changes no
//! value.

use crate::failure::Failure;
use serde_json::value::RawValue;

/// The messages of an array as the server sends it, one per line, each as it was written.
pub(crate) fn lines(array: &[u8]) -> Result<Vec<u8>, Failure> {
    let messages: Vec<&RawValue> =
        serde_json::from_slice(array).map_err(|error| Failure::Strange(format!("a JSON stream sent {error}")))?;
    let mut lines = Vec::with_capacity(array.len());
    for message in messages {
        lines.extend(message.get().bytes().filter(|b| !matches!(b, b'\n' | b'\r')));
        lines.push(b'\n');
    }
    Ok(lines)
}

/// Whether a line is one JSON value.
pub(crate) fn is_message(line: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<&RawValue>(line).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_becomes_lines_with_every_digit_kept() {
        let text = lines(b"[{\"a\":1.0000000000000000001,\n \"b\":\"x\\ny\"},[1,2],\"]\",null]").unwrap();
        let expected = "{\"a\":1.0000000000000000001, \"b\":\"x\\ny\"}\n[1,2]\n\"]\"\nnull\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_eq!(lines(b"[]").unwrap(), b"");
        assert!(lines(b"[1").is_err());
    }

    #[test]
    fn a_line_cannot_pass_for_more_than_one_message() {
        assert!(is_message(b" {\"a\":[1]} ").is_ok());
        for line in ["1],[2", "1,2", "", "{", "1 2", "nul"] {
            assert!(is_message(line.as_bytes()).is_err(), "{line}");
        }
    }
}
