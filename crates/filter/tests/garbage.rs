//! No input of a client and no row causes a panic, and the index finds the same rows as a scan.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "differential/generate.rs"]
#[allow(dead_code)]
mod generate;

/// The columns for `generate`.
#[allow(dead_code)]
mod server {
    pub(crate) const COLUMNS: &[(&str, &str)] = &[
        ("id", "integer"),
        ("b", "boolean"),
        ("i2", "smallint"),
        ("i4", "integer"),
        ("i8", "bigint"),
        ("f4", "real"),
        ("f8", "double precision"),
        ("n", "numeric"),
        ("t", "text"),
        ("t2", "text"),
        ("v", "varchar(30)"),
        ("c", "char(6)"),
        ("nm", "name"),
        ("u", "uuid"),
        ("by", "bytea"),
        ("d", "date"),
        ("tm", "time"),
        ("ts", "timestamp"),
        ("tz", "timestamptz"),
        ("iv", "interval"),
        ("e", "mood"),
        ("ia", "integer[]"),
        ("ta", "text[]"),
        ("na", "numeric[]"),
        ("ea", "mood[]"),
        ("j", "jsonb"),
    ];
}

use generate::Generator;
use proptest::prelude::*;
use std::sync::Arc;
use thalweg_filter::{Column, Index, Predicate, Schema};

fn schema() -> Schema {
    let column = |(name, ty): &(&str, &str)| {
        let (type_oid, element_oid) = match *ty {
            "boolean" => (16, 0),
            "smallint" => (21, 0),
            "integer" => (23, 0),
            "bigint" => (20, 0),
            "real" => (700, 0),
            "double precision" => (701, 0),
            "numeric" => (1700, 0),
            "varchar(30)" => (1043, 0),
            "char(6)" => (1042, 0),
            "name" => (19, 18),
            "uuid" => (2950, 0),
            "bytea" => (17, 0),
            "date" => (1082, 0),
            "time" => (1083, 0),
            "timestamp" => (1114, 0),
            "timestamptz" => (1184, 0),
            "interval" => (1186, 0),
            "mood" => (90_001, 0),
            "integer[]" => (1007, 23),
            "text[]" => (1009, 25),
            "numeric[]" => (1231, 1700),
            "mood[]" => (90_002, 90_001),
            "jsonb" => (3802, 0),
            _ => (25, 0),
        };
        let labels =
            if ty.starts_with("mood") { ["sad", "ok", "happy", "a b"].map(str::to_owned).to_vec() } else { Vec::new() };
        Column { name: (*name).into(), type_oid, element_oid, labels, type_sql: String::new() }
    };
    Schema::new("t", server::COLUMNS.iter().map(column).collect())
}

fn row(generator: &mut Generator) -> Vec<Option<String>> {
    server::COLUMNS
        .iter()
        .map(|(_, ty)| {
            let literal = generator.value(ty);
            literal.strip_prefix('\'').and_then(|l| l.strip_suffix('\'')).map(|text| text.replace("''", "'"))
        })
        .collect()
}

#[test]
fn the_index_finds_what_a_scan_finds() {
    let schema = schema();
    for seed in 0..20 {
        let mut generator = Generator::new(seed);
        let clauses = (0..400).map(|_| generator.clause());
        let predicates: Vec<Arc<Predicate>> =
            clauses.filter_map(|c| Predicate::parse(&c, &[], &schema).ok()).map(Arc::new).collect();
        let mut index = Index::new();
        let mut filings = Vec::new();
        for (key, predicate) in predicates.iter().enumerate() {
            filings.push(index.insert(key, Some(predicate)));
            if key % 5 == 0 {
                assert_eq!(index.insert(key + 1000, Some(predicate)), filings[key]);
            }
        }
        // A third goes again.
        for (key, filing) in filings.iter().enumerate().filter(|(key, _)| key % 3 == 0) {
            index.remove(key, *filing);
        }
        for _ in 0..40 {
            let row = row(&mut generator);
            let row: Vec<Option<&[u8]>> = row.iter().map(|v| v.as_deref().map(str::as_bytes)).collect();
            let mut expected = Vec::new();
            for (key, _) in predicates.iter().enumerate().filter(|(_, p)| p.holds(&row).unwrap()) {
                expected.extend([key].into_iter().filter(|key| key % 3 != 0));
                expected.extend([key + 1000].into_iter().filter(|_| key % 5 == 0));
            }
            expected.sort_unstable();
            let mut found = Vec::new();
            let mut costly = Vec::new();
            index.matching(&row, &mut found, &mut costly);
            assert_eq!((found, costly), (expected, Vec::new()), "seed {seed}");
        }
        for (key, filing) in filings.iter().enumerate() {
            if key % 3 != 0 {
                index.remove(key, *filing);
            }
            if key % 5 == 0 {
                index.remove(key + 1000, *filing);
            }
        }
        assert!(index.is_empty(), "seed {seed}");
    }
}

#[test]
fn what_is_printed_reads_back_the_same() {
    let schema = schema();
    let mut generator = Generator::new(7);
    let mut read = 0;
    for _ in 0..4000 {
        let clause = generator.clause();
        let Ok(predicate) = Predicate::parse(&clause, &[], &schema) else { continue };
        let printed = predicate.canonical();
        // Clauses cannot contain collations and subqueries, and conversions to UTC are spelled differently.
        if ["COLLATE", "SELECT", "timezone("].iter().any(|word| printed.contains(word)) {
            continue;
        }
        let again = Predicate::parse(&printed, &[], &schema).unwrap_or_else(|e| panic!("{clause}\n{printed}\n{e}"));
        assert_eq!(again, predicate, "{clause}");
        read += 1;
    }
    assert!(read > 2000, "{read}");
}

proptest! {
    #[test]
    fn garbage_does_not_panic(text in "\\PC{0,60}") {
        let _ = Predicate::parse(&text, &[(1, text.clone())], &schema());
    }

    #[test]
    fn garbage_of_tokens_does_not_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        "(", ")", "[", "]", ",", ".", ":", "::", "=", "<", ">=", "<>", "+", "-", "*", "/", "%", "^", "||", "->", "->>", "@>", "<@", "&&", "?", "~~", "|/", "@",
        "and", "or", "not", "is", "null", "true", "distinct", "from", "in", "any", "all", "between", "symmetric", "like", "ilike", "escape", "array", "row",
        "cast", "as", "int4", "text", "numeric", "varchar(3)", "at", "time", "zone", "interval", "date", "timestamp", "coalesce(", "greatest(", "nullif(", "lower(",
        "concat(", "array_append(", "'1'", "'{1,2}'", "'a%'", "'2024-01-01'", "'1 day'", "'\\'", "''", "1", "-1", "0", "1.5", "1e300", "9223372036854775807", "$1", "$2",
        "b", "i2", "i4", "i8", "f4", "f8", "n", "t", "v", "c", "nm", "u", "by", "d", "tm", "ts", "tz", "iv", "e", "ia", "ta", "ea", "j", "\"i4\"", "t.", "--", "/*", ";",
    ]), 0..14), seed in 0_u64..1000) {
        let text = words.join(" ");
        if let Ok(predicate) = Predicate::parse(&text, &[(1, "7".into())], &schema()) {
            let row = row(&mut Generator::new(seed));
            let row: Vec<Option<&[u8]>> = row.iter().map(|v| v.as_deref().map(str::as_bytes)).collect();
            let mut index = Index::new();
            index.insert(1, Some(&Arc::new(predicate.clone())));
            let mut found = Vec::new();
            index.matching(&row, &mut found, &mut Vec::new());
            prop_assert_eq!(predicate.holds(&row), Ok(found == [1]));
            let _ = predicate.canonical();
        }
    }

    #[test]
    fn rows_of_garbage_do_not_panic(seed in 0_u64..10_000, values in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<u8>(), 0..12)), 0..30)) {
        let clause = Generator::new(seed).clause();
        if let Ok(predicate) = Predicate::parse(&clause, &[], &schema()) {
            let row: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
            let _ = predicate.holds(&row);
        }
    }

    #[test]
    fn rows_of_digits_do_not_panic(seed in 0_u64..10_000, values in proptest::collection::vec("[-+0-9:. eE{},\\[\\]\"TZPa-]{0,14}", 26)) {
        let clause = Generator::new(seed).clause();
        if let Ok(predicate) = Predicate::parse(&clause, &[], &schema()) {
            let row: Vec<Option<&[u8]>> = values.iter().map(|v| Some(v.as_bytes())).collect();
            let _ = predicate.holds(&row);
        }
    }
}
