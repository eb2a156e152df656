//! Orderings of subsets: plain columns, no expressions.

use thalweg_shapes_model::invalid::Invalid;
use thalweg_shapes_model::table::Table;

/// One member of an ordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) column: String,
    pub(crate) descending: bool,
    /// `None`: where Postgres puts them.
    pub(crate) nulls_first: Option<bool>,
}

/// Reads an ordering by plain columns of `table`, of which `queryable` may be used (`None`: all).
pub(crate) fn parse_order(text: &str, table: &Table, queryable: Option<&[String]>) -> Result<Vec<Order>, Invalid> {
    let invalid = |message: String| Invalid::subset("order_by", message);
    let mut words = Words { text, at: 0 };
    let mut orders = Vec::new();
    loop {
        let from = words.skip();
        let column = match words.next().map_err(invalid)? {
            Word::Name(name) | Word::Quoted(name) => name,
            _ => return Err(invalid(refused(from))),
        };
        let mut order = Order { column, descending: false, nulls_first: None };
        let mut at = words.skip();
        let mut next = words.next().map_err(invalid)?;
        if let Some(descending) = next.is_name("desc").or(next.is_name("asc").map(|_| false)) {
            order.descending = descending;
            at = words.skip();
            next = words.next().map_err(invalid)?;
        }
        if next.is_name("nulls").is_some() {
            at = words.skip();
            let place = words.next().map_err(invalid)?;
            order.nulls_first = place.is_name("first").or(place.is_name("last").map(|_| false));
            if order.nulls_first.is_none() {
                return Err(invalid(format!("At location {at}: syntax error")));
            }
            at = words.skip();
            next = words.next().map_err(invalid)?;
        }
        // A term that is more than a name is refused before the name is looked up.
        if !matches!(next, Word::Comma | Word::End) {
            return Err(invalid(refused(at)));
        }
        let is_queryable = queryable.is_none_or(|names| names.contains(&order.column));
        if table.column(&order.column).is_none() || !is_queryable {
            return Err(invalid(format!("At location {from}: unknown reference {}", order.column)));
        }
        orders.push(order);
        if matches!(next, Word::End) {
            return Ok(orders);
        }
    }
}

fn refused(at: usize) -> String {
    format!("At location {at}: expressions are not allowed in ORDER BY clauses")
}

/// The tokens of an ordering.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// Without quotes, in lower case.
    Name(String),
    Quoted(String),
    Comma,
    Other,
    End,
}

impl Word {
    fn is_name(&self, name: &str) -> Option<bool> {
        matches!(self, Word::Name(known) if known == name).then_some(true)
    }
}

impl Words<'_> {
    /// Goes to the next word, and tells where it is.
    fn skip(&mut self) -> usize {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']).len();
        self.at
    }

    fn next(&mut self) -> Result<Word, String> {
        let from = self.skip();
        let rest = &self.text[from..];
        let Some(first) = rest.bytes().next() else { return Ok(Word::End) };
        let is_letter = |b: u8| b.is_ascii_alphabetic() || b == b'_' || b >= 0x80;
        let (word, len) = match first {
            b',' => (Word::Comma, 1),
            b';' => return Err("Unexpected `;` in order by".to_owned()),
            b'"' => self.quoted(rest).ok_or_else(|| format!("At location {from}: unterminated quoted identifier"))?,
            b'$' => {
                let number: String = rest[1..].chars().take_while(char::is_ascii_digit).collect();
                return Err(format!("At location {from}: parameter ${number} is not supported in ORDER BY clauses"));
            }
            letter if is_letter(letter) => {
                let is_part = |b: u8| is_letter(b) || b.is_ascii_digit() || b == b'$';
                let len = rest.bytes().position(|b| !is_part(b)).unwrap_or(rest.len());
                (Word::Name(rest[..len].to_ascii_lowercase()), len)
            }
            _ => (Word::Other, rest.chars().next().map_or(1, char::len_utf8)),
        };
        self.at = from + len;
        Ok(word)
    }

    /// A name in quotes, of which those within stand twice, and its length.
    fn quoted(&self, rest: &str) -> Option<(Word, usize)> {
        let bytes = rest.as_bytes();
        let mut at = 1;
        loop {
            at += memchr::memchr(b'"', &bytes[at..])?;
            if bytes.get(at + 1) == Some(&b'"') {
                at += 2;
            } else {
                return Some((Word::Quoted(rest[1..at].replace("\"\"", "\"")), at + 1));
            }
        }
    }
}
