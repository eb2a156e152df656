//! Text of Postgres as JSON strings.

/// Appends `text` with the escapes that JSON strings require (RFC 8259, section 7). Bytes that are no UTF-8 are copied
/// as they are: a database whose encoding is SQL_ASCII may send such.
#[inline]
pub fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    loop {
        let (clean, dirty) = rest.split_at(clean_prefix(rest));
        out.extend_from_slice(clean);
        let Some((byte, after)) = dirty.split_first() else { return };
        push_escape(out, *byte);
        rest = after;
    }
}

/// Appends `text` as a JSON string, quotes included.
#[inline]
pub fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// `text` as a JSON string in ASCII alone, as header fields need it.
#[must_use]
pub fn ascii_string(text: &str) -> String {
    let mut escaped = Vec::with_capacity(text.len() + 2);
    push_string(&mut escaped, text.as_bytes());
    let mut out = String::with_capacity(escaped.len());
    for c in String::from_utf8_lossy(&escaped).chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

#[inline]
fn must_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// The length of the prefix that needs no escape. The loop tests sixteen bytes without a branch, so that the compiler
/// emits vector instructions.
#[inline]
fn clean_prefix(text: &[u8]) -> usize {
    let mut at = 0;
    for chunk in text.chunks_exact(16) {
        if chunk.iter().fold(false, |dirty, byte| dirty | must_escape(*byte)) {
            break;
        }
        at += chunk.len();
    }
    let tail = &text[at..];
    at + tail.iter().position(|byte| must_escape(*byte)).unwrap_or(tail.len())
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' => b'"',
        b'\\' => b'\\',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend([byte >> 4, byte & 15].map(|nibble| HEX[usize::from(nibble)]));
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn string(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_string(&mut out, text);
        out
    }

    #[test]
    fn what_json_forbids_is_escaped_and_nothing_else() {
        assert_eq!(string(b"a\"b\\c\n\r\t\x08\x0c\x01\x1f/\x7f"), b"\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001f/\x7f\"");
        assert_eq!(string("grün \u{1f30a}".as_bytes()), "\"grün \u{1f30a}\"".as_bytes());
    }

    #[test]
    fn a_mark_is_found_at_every_place_of_a_long_text() {
        for at in 0..70 {
            let mut text = vec![b'x'; 70];
            text[at] = b'"';
            assert_eq!(string(&text).len(), 73, "{at}");
        }
    }

    #[test]
    fn a_header_gets_ascii_only() {
        assert_eq!(ascii_string("ä\u{1f30a}\"\u{7f}"), r#""\u00e4\ud83c\udf0a\"\u007f""#);
    }

    proptest! {
        #[test]
        fn a_string_is_read_back_as_it_was(text in ".*") {
            prop_assert_eq!(serde_json::from_slice::<String>(&string(text.as_bytes())).unwrap(), text.clone());
            let ascii = ascii_string(&text);
            prop_assert!(ascii.bytes().all(|b| (0x20..0x7f).contains(&b)));
            prop_assert_eq!(serde_json::from_str::<String>(&ascii).unwrap(), text);
        }

        #[test]
        fn bytes_that_are_no_text_do_no_harm(text in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(string(&text).len() >= text.len() + 2);
        }
    }
}
