//! Where clauses that Postgres has read, without their constants: many shapes differ in constants only, and need no
//! second parse by Postgres.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use thalweg_shapes_model::table::Table;

const TABLES_MAX: usize = 10_000;
/// Of one table.
const TEMPLATES_MAX: usize = 256;
/// Longer clauses are not remembered.
const TEMPLATE_BYTES_MAX: usize = 4096;

/// The clauses that Postgres has accepted.
#[derive(Default)]
pub(crate) struct Templates(Mutex<HashMap<u32, Known>>);

struct Known {
    table: Arc<Table>,
    clauses: HashSet<Box<str>>,
}

impl Templates {
    /// The table as shapes of it share it. Templates of an earlier description of the table are forgotten.
    pub(crate) fn table(&self, table: &Table) -> Arc<Table> {
        let mut all = self.0.lock();
        if let Some(known) = all.get(&table.oid)
            && *known.table == *table
        {
            return Arc::clone(&known.table);
        }
        if all.len() >= TABLES_MAX {
            all.clear();
        }
        let table = Arc::new(table.clone());
        all.insert(table.oid, Known { table: Arc::clone(&table), clauses: HashSet::new() });
        table
    }

    /// Another history begins, where oids mean other tables.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }

    /// Whether a clause was agreed to that differs from this one in constants only.
    pub(crate) fn knows(&self, table: &Table, sql: &str) -> bool {
        let Some(template) = template(sql) else { return false };
        let all = self.0.lock();
        all.get(&table.oid).is_some_and(|known| *known.table == *table && known.clauses.contains(&*template))
    }

    pub(crate) fn learn(&self, table: &Table, sql: &str) {
        let Some(template) = template(sql) else { return };
        let mut all = self.0.lock();
        let Some(known) = all.get_mut(&table.oid) else { return };
        if *known.table == *table && !known.clauses.contains(&*template) {
            if known.clauses.len() >= TEMPLATES_MAX {
                known.clauses.clear();
            }
            known.clauses.insert(template.into());
        }
    }
}

/// The clause with every text and every run of digits made equal. `None` if it is longer, or has texts that are not
/// plain, or comments: this function does not find their ends.
fn template(sql: &str) -> Option<String> {
    if sql.len() > TEMPLATE_BYTES_MAX {
        return None;
    }
    let bytes = sql.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let in_name =
            out.last().is_some_and(|b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'$' || *b > 127);
        let rest = &bytes[at + 1..];
        let (keep, used): (&[u8], usize) = match byte {
            b'\\' => return None,
            b'-' if rest.starts_with(b"-") => return None,
            b'/' if rest.starts_with(b"*") => return None,
            b'$' if !rest.first().is_some_and(u8::is_ascii_digit) => return None,
            // `E'…'`, `U&'…'` and the like.
            b'\'' if in_name || out.ends_with(b"&") => return None,
            b'\'' => (b"''", quoted(rest, byte)? + 1),
            b'"' => (&bytes[at..at + quoted(rest, byte)? + 1], quoted(rest, byte)? + 1),
            b'0'..=b'9' if !in_name => (b"0", 1 + rest.iter().take_while(|b| b.is_ascii_digit()).count()),
            _ => (&bytes[at..=at], 1),
        };
        out.extend_from_slice(keep);
        at += used;
    }
    String::from_utf8(out).ok()
}

/// How much of `rest` belongs to the text that it is the inside of, with the quote that ends it. A doubled quote does
/// not.
fn quoted(rest: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr(quote, &rest[at..])? + 1;
        if rest.get(at) != Some(&quote) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::template;

    fn same(a: &str, b: &str) -> bool {
        let (a, b) = (template(a), template(b));
        a.is_some() && a == b
    }

    #[test]
    fn constants_make_no_difference() {
        assert!(same("level > -12", "level > -7"));
        assert!(same("a = 'it''s' AND b = 1.5", "a = '' AND b = 22.75"));
        assert!(same("id IN (1, 2)", "id IN (33, 4)"));
        assert!(same("x = 'a'::text", "x = 'b\"(c'::text"));
    }

    #[test]
    fn everything_else_does() {
        assert!(!same("col1 = 1", "col2 = 1"));
        assert!(!same("\"1\" = 1", "\"2\" = 1"));
        assert!(!same("a = $1", "a = $2"));
        assert!(!same("a > 1", "a >= 1"));
        assert!(!same("a = 1", "a = '1'"));
        assert!(!same("a = 1", "a = 1x"));
        assert!(!same("é1 = 1", "é2 = 1"));
    }

    #[test]
    fn what_is_not_plain_has_no_template() {
        let odd = [
            "a = E'x'",
            "a = U&'x'",
            "a = $$x$$",
            "a = $t$x$t$",
            "a = 1 -- x",
            "a /* x */ = 1",
            "a = 'x",
            "\"a",
            "a LIKE 'x' \\",
        ];
        odd.iter().for_each(|sql| assert_eq!(template(sql), None, "{sql}"));
        assert!(template("a = 'x\\'").is_some(), "a backslash in a plain text is only a backslash");
        assert_eq!(template(&"a".repeat(5000)), None);
    }
}
