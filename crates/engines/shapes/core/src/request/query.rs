//! Query strings: pairs of names and values, percent-decoded, `+` for a space (WHATWG URL, section 5.1).

use std::borrow::Cow;

/// A value that is no text: a `%` without two hexadecimal digits, bytes that are not UTF-8, or a NUL, which Postgres
/// has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The pairs of a query in their order; a part without `=` has an empty value. Names are decoded too; undecodable names
/// are skipped, because no parameter has such a name.
pub fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    Pieces(Some(query)).filter(|pair| !pair.is_empty()).filter_map(|pair| {
        let (name, value) = match memchr::memchr(b'=', pair.as_bytes()) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, ""),
        };
        Some((decoded(name).ok()?, value))
    })
}

/// The parts between `&`.
struct Pieces<'a>(Option<&'a str>);

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0?;
        match memchr::memchr(b'&', rest.as_bytes()) {
            Some(at) => {
                self.0 = Some(&rest[at + 1..]);
                Some(&rest[..at])
            }
            None => self.0.take(),
        }
    }
}

/// A name or a value as text; copied only if it is encoded.
pub fn decoded(text: &str) -> Result<Cow<'_, str>, Malformed> {
    let bytes = text.as_bytes();
    let Some(first) = memchr::memchr3(b'%', b'+', 0, bytes) else { return Ok(Cow::Borrowed(text)) };
    let mut out = Vec::with_capacity(bytes.len());
    out.extend_from_slice(&bytes[..first]);
    let mut at = first;
    while let Some(byte) = bytes.get(at) {
        let byte = match byte {
            b'%' => {
                let digit = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
                let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else { return Err(Malformed) };
                at += 2;
                (high << 4 | low) as u8
            }
            b'+' => b' ',
            other => *other,
        };
        if byte == 0 {
            return Err(Malformed);
        }
        out.push(byte);
        at += 1;
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(query: &str) -> Vec<(String, Result<String, Malformed>)> {
        pairs(query).map(|(name, value)| (name.into_owned(), decoded(value).map(Cow::into_owned))).collect()
    }

    #[test]
    fn names_and_values_are_decoded() {
        let found = all("a=1&params%5B1%5D=x+y%20z&&live&b==%3D&=c");
        let expected = [("a", "1"), ("params[1]", "x y z"), ("live", ""), ("b", "=="), ("", "c")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), Ok(value.to_owned()))));
    }

    #[test]
    fn what_is_no_text_is_malformed() {
        for value in ["%", "%4", "%zz", "a%ff", "%00", "%c3%28"] {
            assert_eq!(decoded(value), Err(Malformed), "{value}");
        }
        assert_eq!(all("%ff=1&a=2"), [("a".to_owned(), Ok("2".to_owned()))]);
    }

    proptest! {
        #[test]
        fn text_is_read_back_whatever_is_encoded(text in "[^\0]*", all in any::<bool>()) {
            let mut encoded = String::new();
            for byte in text.bytes() {
                match byte {
                    b' ' if !all => encoded.push('+'),
                    b if !all && (b.is_ascii_alphanumeric() || b == b'_') => encoded.push(char::from(b)),
                    b => encoded.push_str(&format!("%{b:02x}")),
                }
            }
            prop_assert_eq!(decoded(&encoded).unwrap(), text);
        }

        #[test]
        fn no_query_panics(query in "[&=%+a-c0-9\\[\\]é]*") {
            let _ = all(&query);
        }
    }
}
