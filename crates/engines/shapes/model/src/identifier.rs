//! Names of tables and columns, as Postgres reads them: unquoted ones in lower case, quoted ones as they are (Postgres
//! documentation, section 4.1.1). The messages are on the wire.

use std::borrow::Cow;

/// The length of a Postgres name. Postgres truncates longer names; we refuse them, so that two names never become one.
const BYTES_MAX: usize = 63;

/// One name.
pub fn parse(text: &str) -> Result<Cow<'_, str>, String> {
    let name = match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => quoted(inner)?,
        None => unquoted(text)?,
    };
    if name.len() > BYTES_MAX {
        return Err(format!("Identifier is too long (max length is {BYTES_MAX})"));
    }
    Ok(name)
}

/// `table` or `schema.table`; without a schema it is `public`.
pub fn parse_relation(text: &str) -> Result<(Cow<'_, str>, Cow<'_, str>), String> {
    let mut in_quotes = false;
    let mut dots = text.bytes().enumerate().filter_map(|(at, byte)| {
        in_quotes ^= byte == b'"';
        (byte == b'.' && !in_quotes).then_some(at)
    });
    match (dots.next(), dots.next()) {
        (None, _) => Ok((Cow::Borrowed("public"), parse(text)?)),
        (Some(at), None) => Ok((parse(&text[..at])?, parse(&text[at + 1..])?)),
        _ => Err(format!("Invalid relation identifier, too many delimiters: {text}")),
    }
}

/// A list of names separated by commas: sorted, without duplicates.
pub fn parse_list(text: &str) -> Result<Vec<Cow<'_, str>>, String> {
    // A comma separates if the quotes after it can be paired. Seen from the end, that is one pass.
    let mut in_quotes = false;
    let mut ends = vec![text.len()];
    for (at, byte) in text.bytes().enumerate().rev() {
        in_quotes ^= byte == b'"';
        if byte == b',' && !in_quotes {
            ends.push(at);
        }
    }
    let mut from = 0;
    let mut names = Vec::with_capacity(ends.len());
    for end in ends.into_iter().rev() {
        names.push(parse(&text[from..end])?);
        from = end + 1;
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn quoted(inner: &str) -> Result<Cow<'_, str>, String> {
    if inner.is_empty() {
        return Err(empty());
    }
    if memchr::memchr(b'"', inner.as_bytes()).is_none() {
        return Ok(Cow::Borrowed(inner));
    }
    let name = inner.replace("\"\"", "\"");
    // Pairs match from the left: a quote left over is unpaired.
    if inner.replace("\"\"", "").contains('"') {
        return Err(format!("Invalid identifier with unescaped quote: {inner}"));
    }
    Ok(Cow::Owned(name))
}

fn unquoted(text: &str) -> Result<Cow<'_, str>, String> {
    let Some(first) = text.bytes().next() else { return Err(empty()) };
    // As in Postgres, every byte that is not ASCII is a letter.
    let starts = |b: u8| b.is_ascii_alphabetic() || b == b'_' || b >= 0x80;
    if !starts(first) || !text.bytes().all(|b| starts(b) || b.is_ascii_digit() || b == b'$') {
        return Err(format!("Invalid unquoted identifier contains special characters: {text}"));
    }
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Ok(Cow::Owned(text.to_ascii_lowercase()));
    }
    Ok(Cow::Borrowed(text))
}

fn empty() -> String {
    "Invalid zero-length delimited identifier".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::quoted as quote;
    use proptest::prelude::*;

    fn refused(text: &str, why: &str) {
        assert_eq!(parse(text), Err(why.to_owned()), "{text}");
    }

    #[test]
    fn unquoted_names_are_lowered_and_quoted_ones_kept() {
        for (text, name) in [
            ("FooBar", "foobar"),
            ("_a$1", "_a$1"),
            ("Φtàble", "Φtàble"),
            (r#""FooBar""#, "FooBar"),
            (r#"" ""#, " "),
            (r#""Foo""Bar""#, "Foo\"Bar"),
            (r#""""""#, "\""),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(name));
        }
    }

    #[test]
    fn what_is_no_name_is_refused_in_electrics_words() {
        refused("", "Invalid zero-length delimited identifier");
        refused("\"\"", "Invalid zero-length delimited identifier");
        for text in ["foob@r", " ", "Foo\"Bar\"", "1a", "\"", "a b"] {
            refused(text, &format!("Invalid unquoted identifier contains special characters: {text}"));
        }
        refused(r#""Foo"Bar""#, r#"Invalid identifier with unescaped quote: Foo"Bar"#);
        refused(r#""a"""b""#, r#"Invalid identifier with unescaped quote: a"""b"#);
    }

    #[test]
    fn a_name_is_never_cut() {
        assert!(parse(&"a".repeat(63)).is_ok());
        refused(&"a".repeat(64), "Identifier is too long (max length is 63)");
        refused(&"ä".repeat(32), "Identifier is too long (max length is 63)");
    }

    #[test]
    fn a_relation_has_at_most_a_schema() {
        let relation = |text: &'static str| parse_relation(text).map(|(a, b)| (a.into_owned(), b.into_owned()));
        let ok = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(relation("Foo"), ok("public", "foo"));
        assert_eq!(relation("foo.bar"), ok("foo", "bar"));
        assert_eq!(relation(r#""foo.woah"."Bar""#), ok("foo.woah", "Bar"));
        assert_eq!(relation(".bar"), Err(empty()));
        assert!(relation(r#""foo"."bar"#).unwrap_err().ends_with(r#"characters: "bar"#));
        assert_eq!(relation("a.b.c"), Err("Invalid relation identifier, too many delimiters: a.b.c".to_owned()));
    }

    #[test]
    fn lists_are_sorted_and_have_each_name_once() {
        assert_eq!(parse_list("name,ID,name").unwrap(), ["id", "name"]);
        assert_eq!(parse_list(r#""PoTaTo,sunday",foo,"fo""o""#).unwrap(), ["PoTaTo,sunday", "fo\"o", "foo"]);
        assert_eq!(parse_list("foo,"), Err(empty()));
        assert_eq!(
            parse_list(r#""id,"name""#),
            Err(r#"Invalid unquoted identifier contains special characters: "id"#.to_owned())
        );
    }

    proptest! {
        #[test]
        fn quoting_a_name_keeps_it(names in prop::collection::vec("[^\0]{1,15}", 1..5)) {
            let list = names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(",");
            let mut expected = names.clone();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(parse_list(&list).unwrap(), expected);
            let relation = format!("{}.{}", quote(&names[0]), quote(&names[0]));
            prop_assert_eq!(parse_relation(&relation).unwrap(), (names[0].as_str().into(), names[0].as_str().into()));
        }

        #[test]
        fn no_text_panics(text in "[\"a,.é ]*") {
            let _ = (parse(&text), parse_list(&text), parse_relation(&text));
        }
    }
}
