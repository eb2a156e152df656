//! Whether a text is at most one expression: nothing in it ends the parentheses that are put around it, or the
//! statement.
//!
//! Postgres parses the content; this scanner finds only where lexical elements of SQL begin and end (Postgres
//! documentation, section "Lexical Structure").

/// More parameters would leave no room for the columns of a table, which are parameters too.
const PARAMETERS_MAX: u32 = 10_000;

/// Why a text must not be put in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScanError {
    #[error("unescaped \";\" causing statement split")]
    Statement,
    #[error("a parenthesis is closed that was not opened")]
    Closed,
    #[error("a parenthesis is not closed")]
    Open,
    #[error("a quoted text is not ended")]
    Quote,
    #[error("a comment is not ended")]
    Comment,
    #[error("a zero byte")]
    Zero,
    #[error("there are at most {PARAMETERS_MAX} parameters")]
    Parameter,
}

/// The lexical facts of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The clause may name an object in another one, such as a type in a schema, or select from other tables.
    pub(super) qualified: bool,
    /// The largest `n` of `$n`.
    pub(super) parameters: u32,
}

pub(super) fn one_expression(sql: &str) -> Result<Scanned, ScanError> {
    let bytes = sql.as_bytes();
    let (mut at, mut depth) = (0, 0_u32);
    let mut scanned = Scanned::default();
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        at += match byte {
            b'.' => {
                // A number continues with a digit after its point, or ends with the point.
                scanned.qualified |= !rest.get(1).is_some_and(u8::is_ascii_digit) && !ends_with_number(&bytes[..at]);
                1
            }
            b's' | b'S' if is_word(&bytes[..at], rest, b"select") => {
                scanned.qualified = true;
                1
            }
            // `U&"…"` spells letters in another way.
            b'&' if rest.get(1) == Some(&b'"') => {
                scanned.qualified = true;
                1
            }
            0 => return Err(ScanError::Zero),
            b';' => return Err(ScanError::Statement),
            b'(' => {
                depth += 1;
                1
            }
            b')' => {
                depth = depth.checked_sub(1).ok_or(ScanError::Closed)?;
                1
            }
            b'\'' => quoted(rest, b'\'', is_escaping(&bytes[..at]))?,
            b'"' => quoted(rest, b'"', false)?,
            b'-' if rest.starts_with(b"--") => line(rest),
            b'/' if rest.starts_with(b"/*") => comment(rest)?,
            b'$' if !bytes[..at].last().is_some_and(|b| in_name(*b)) => {
                scanned.parameters = scanned.parameters.max(parameter(rest)?);
                dollar(rest)?
            }
            _ => 1,
        };
    }
    if depth == 0 { Ok(scanned) } else { Err(ScanError::Open) }
}

/// Whether this name or word begins here.
fn is_word(before: &[u8], rest: &[u8], word: &[u8]) -> bool {
    !before.last().is_some_and(|b| in_name(*b))
        && rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        && !rest.get(word.len()).is_some_and(|b| in_name(*b))
}

/// Whether a text ends with digits that belong to no name.
fn ends_with_number(text: &[u8]) -> bool {
    let name = text.iter().rev().take_while(|b| in_name(**b)).count();
    let token = &text[text.len() - name..];
    !token.is_empty() && token.iter().all(u8::is_ascii_digit) && !text[..text.len() - name].ends_with(b"\"")
}

/// The number of a parameter; 0 if a quoted text begins here.
fn parameter(text: &[u8]) -> Result<u32, ScanError> {
    let digits = text[1..].iter().take_while(|b| b.is_ascii_digit());
    let number = digits.fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    if number > PARAMETERS_MAX { Err(ScanError::Parameter) } else { Ok(number) }
}

/// The length of a quoted text; a doubled quote does not end it.
fn quoted(text: &[u8], quote: u8, escaping: bool) -> Result<usize, ScanError> {
    let mut at = 1;
    loop {
        match text.get(at) {
            None => return Err(ScanError::Quote),
            Some(b'\\') if escaping => at += 2,
            Some(byte) if *byte == quote => match text.get(at + 1) {
                Some(next) if *next == quote => at += 2,
                // `E'…'` continues in the same way on the next line.
                _ if escaping => match text[at + 1..].get(between(&text[at + 1..])) {
                    Some(b'\'') => at += 2 + between(&text[at + 1..]),
                    _ => return Ok(at + 1),
                },
                _ => return Ok(at + 1),
            },
            Some(_) => at += 1,
        }
    }
}

/// The length of white space and comments to the end of their lines.
fn between(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match &text[at..] {
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, ..] => at += 1,
            rest if rest.starts_with(b"--") => at += line(rest),
            _ => return at,
        }
    }
}

/// The length up to the end of the line.
fn line(text: &[u8]) -> usize {
    text.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(text.len())
}

/// Whether a quote after this text begins an `E'…'`, where a backslash escapes.
fn is_escaping(before: &[u8]) -> bool {
    match before {
        [head @ .., b'e' | b'E'] => !head.last().is_some_and(|b| in_name(*b)),
        _ => false,
    }
}

/// The length of a comment, with those in it.
fn comment(text: &[u8]) -> Result<usize, ScanError> {
    let (mut at, mut depth) = (0, 0_u32);
    loop {
        match text.get(at..at + 2) {
            None => return Err(ScanError::Comment),
            Some(b"/*") => (at, depth) = (at + 2, depth + 1),
            Some(b"*/") => {
                (at, depth) = (at + 2, depth - 1);
                if depth == 0 {
                    return Ok(at);
                }
            }
            Some(_) => at += 1,
        }
    }
}

/// The length of `$tag$…$tag$`; 1 if it is a parameter.
fn dollar(text: &[u8]) -> Result<usize, ScanError> {
    let name = text[1..].iter().take_while(|b| in_name(**b) && **b != b'$').count();
    let is_tag = text.get(1 + name) == Some(&b'$') && !text[1].is_ascii_digit();
    if !is_tag {
        return Ok(1);
    }
    let tag = &text[..name + 2];
    let end = memchr::memmem::find(&text[tag.len()..], tag).ok_or(ScanError::Quote)?;
    Ok(tag.len() + end + tag.len())
}

/// Letters of an identifier after its first.
fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn expressions_pass() {
        for sql in [
            "",
            "a = 1",
            "(a = 1) OR (b = ')' AND \"c)\" = ';')",
            "a = $1 -- ) ;",
            "a = '''); DROP TABLE t; --'",
            "x /* ) /* ; */ ( */ = 1",
            "a = $$);$$",
            "a = $x$ ) $$ ; $y$ $x$",
            "a = E'\\');'",
            "a$b$c = 1",
            "a = '\\'",
            "e'x' = U&'\\0061'",
            "type'x' = 'a\\'",
            "E'a' -- '\n  '\\') ;' = 1",
            "id IN (SELECT id FROM t WHERE (a))",
            "a = $1) ".trim_end_matches(") "),
        ] {
            assert!(one_expression(sql).is_ok(), "{sql}");
        }
    }

    #[test]
    fn what_reaches_outside_is_refused() {
        use ScanError::*;
        for (sql, error) in [
            ("true) UNION SELECT * FROM secrets WHERE (true", Closed),
            ("a = 1)", Closed),
            ("(a = 1", Open),
            ("a = 1; DROP TABLE t", Statement),
            ("a = '1", Quote),
            ("a = E'\\'", Quote),
            ("a = \"1", Quote),
            ("a = $x$ $y$", Quote),
            ("a /* b", Comment),
            ("a /* /* */ b", Comment),
            ("a -- b\n)", Closed),
            ("a -- b\r)", Closed),
            ("'\\') OR (true", Closed),
            ("a$x$) OR $x$ (true", Closed),
            ("$1$) OR (true", Closed),
            ("E'a'\n'\\'' ) UNION ( SELECT ''", Closed),
            ("a\0", Zero),
        ] {
            assert_eq!(one_expression(sql), Err(error), "{sql:?}");
        }
    }

    #[test]
    fn what_may_lie_in_a_schema_is_noticed() {
        let qualified = |sql: &str| one_expression(sql).unwrap().qualified;
        for sql in [
            "t.a = 1",
            "a = 'x'::public.evil",
            "a = 'x'::\"public\".\"evil\"",
            "a = CAST('x' AS s . t)",
            "a OPERATOR(public.=) 1",
            "public/**/./**/f(a)",
            "x1.f(a)",
            "\"x\"1.f(a)",
            "\"1\".f(a)",
            "a IN (SELECT 1)",
            "a IN (sElEcT 1)",
            "U&\"public\" = 1",
        ] {
            assert!(qualified(sql), "{sql}");
        }
        for sql in [
            "a = 1.5",
            "a = .5",
            "a = 1.",
            "a = 1.e3",
            "a = 'x.y'",
            "\"a.b\" = 1",
            "a -- t.b",
            "selected = 1",
            "a & b = 1",
        ] {
            assert!(!qualified(sql), "{sql}");
        }
    }

    #[test]
    fn parameters_are_counted() {
        let parameters = |sql: &str| one_expression(sql).map(|scanned| scanned.parameters);
        assert_eq!(parameters("a = $2 OR b = $1"), Ok(2));
        assert_eq!(parameters("a = '$7' OR a$9 = 1 OR b = $x$ $8 $x$"), Ok(0));
        assert_eq!(parameters("a = $10000"), Ok(10_000));
        assert_eq!(parameters("a = $10001"), Err(ScanError::Parameter));
        assert_eq!(parameters("a = $99999999999999999999"), Err(ScanError::Parameter));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[()'\"$a-cE/*\\\\;\n -]{0,40}") {
            let _ = one_expression(&text);
        }
    }
}
