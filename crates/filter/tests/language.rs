//! Promises of the language, clause by clause; the differential test has the breadth.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use thalweg_filter::{Column, Predicate, Schema, TooCostly};

fn schema() -> Schema {
    let column =
        |name: &str, type_oid, element_oid| Column { name: name.into(), type_oid, element_oid, ..Column::default() };
    let mood = |name: &str, array: bool| Column {
        name: name.into(),
        type_oid: if array { 90_002 } else { 90_001 },
        element_oid: if array { 90_001 } else { 0 },
        labels: vec!["sad".into(), "ok".into(), "happy".into()],
        type_sql: String::new(),
    };
    Schema::new(
        "items",
        vec![
            column("id", 23, 0),
            column("f8", 701, 0),
            column("t", 25, 0),
            column("v", 1043, 0),
            column("a", 1007, 23),
            column("d", 1082, 0),
            column("tz", 1184, 0),
            column("n", 1700, 0),
            mood("e", false),
            mood("ea", true),
            column("point", 600, 0),
            column("b", 16, 0),
            column("Odd \"name\"", 25, 0),
            column("ip", 869, 0),
            column("iv", 1186, 0),
        ],
    )
}

const COLUMNS: [&str; 15] = ["id", "f8", "t", "v", "a", "d", "tz", "n", "e", "ea", "point", "b", "odd", "ip", "iv"];

fn parse(clause: &str) -> Result<Predicate, String> {
    Predicate::parse(clause, &[], &schema()).map_err(|error| error.to_string())
}

/// Whether a clause holds for a row that has some values.
fn holds(clause: &str, values: &[(&str, &str)]) -> bool {
    let find = |name: &&str| values.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_bytes());
    let row: Vec<Option<&[u8]>> = COLUMNS.iter().map(find).collect();
    parse(clause).unwrap().holds(&row).unwrap()
}

/// Sessions and streams of ours have `IntervalStyle = iso_8601`.
#[test]
fn intervals_come_as_our_sessions_print_them() {
    for (text, meant) in [
        ("P1Y2M3DT4H5M6.7S", "1 year 2 mons 3 days 04:05:06.7"),
        ("P-1Y-2M3DT-4H-5M-6.7S", "-1 year -2 mons +3 days -04:05:06.7"),
        ("PT0S", "0"),
        ("P1M", "1 mon"),
        ("PT36H", "36 hours"),
        ("PT-0.000001S", "-0.000001 seconds"),
        ("PT-59M-59.5S", "-00:59:59.5"),
        ("P-178000000Y", "-178000000 years"),
        ("infinity", "infinity"),
        ("-infinity", "-infinity"),
    ] {
        let clauses = [
            format!("iv = '{meant}'"),
            format!("iv = interval '{text}'"),
            format!("iv::text = '{text}'"),
            format!("iv IN ('7 days', '{meant}')"),
            format!("iv IN ('infinity', '-infinity') OR iv - '{meant}' = '0'"),
            format!("NOT iv < '{meant}' AND NOT iv > '{meant}'"),
        ];
        for clause in clauses {
            assert!(holds(&clause, &[("iv", text)]), "{text}: {clause}");
        }
    }
    assert!(holds("iv > '1 day'", &[("iv", "PT24H0.1S")]) && !holds("iv > '1 day'", &[("iv", "PT24H")]));
    assert!(holds("iv BETWEEN '29 days' AND '31 days'", &[("iv", "P1M")]));
}

#[test]
fn an_enum_is_compared_without_a_cast() {
    for (clause, expected) in [
        ("e IS NOT NULL", true),
        ("e = 'ok'", true),
        ("e > 'sad'", true),
        ("e > 'happy'", false),
        ("e IN ('ok', 'happy')", true),
    ] {
        assert_eq!(holds(clause, &[("e", "ok")]), expected, "{clause}");
    }
    assert!(!holds("e IS NOT NULL", &[]));
    assert!(holds("ea @> '{sad}'", &[("ea", "{ok,sad}")]));
    assert_eq!(parse("e = 'angry'").unwrap_err(), "invalid input value for enum: \"angry\"");
}

#[test]
fn null_elements_of_arrays_keep_a_condition_unknown() {
    for clause in ["0 < ALL(a)", "NOT (5 = ANY(a))", "5 <> ALL(a)"] {
        assert!(!holds(clause, &[("a", "{1,NULL}")]), "{clause}");
        assert!(holds(clause, &[("a", "{1,2}")]), "{clause}");
        assert!(holds(clause, &[("a", "{}")]), "{clause}");
    }
    assert!(holds("1 = ANY(a)", &[("a", "{NULL,1}")]));
}

#[test]
fn an_escaped_wildcard_is_itself() {
    assert!(holds(r"t LIKE '%\%%'", &[("t", "50% off")]));
    assert!(!holds(r"t LIKE '%\%%'", &[("t", "50 off")]));
    assert!(holds("t LIKE 'a!_b' ESCAPE '!'", &[("t", "a_b")]));
    assert!(!holds("t LIKE 'a!_b' ESCAPE '!'", &[("t", "axb")]));
}

#[test]
fn an_integer_is_compared_with_a_float_column() {
    assert!(holds("f8 = 3", &[("f8", "3")]));
    assert!(holds("f8 > 2 AND f8 < 9007199254740993", &[("f8", "3.5")]));
}

#[test]
fn numbers_beyond_integers_are_numeric() {
    assert!(holds("n = 1e20", &[("n", "100000000000000000000")]));
    assert!(holds("n = 9007199254740993", &[("n", "9007199254740993")]));
    assert!(!holds("n = 9007199254740993", &[("n", "9007199254740992")]));
    assert!(holds("id < 9007199254740993", &[("id", "1")]));
    assert!(holds("id < 123456789012345678901234567890", &[("id", "1")]));
}

#[test]
fn dates_differ_and_strings_join() {
    assert!(holds("d <> '2024-01-01'", &[("d", "2024-01-02")]));
    assert!(holds("tz <> '2024-01-01'", &[("tz", "2024-01-01 01:00:00+00")]));
    assert!(!holds("tz <> '2024-01-01 01:00+01'", &[("tz", "2024-01-01 00:00:00+00")]));
    assert!(holds("v || t = 'ab'", &[("v", "a"), ("t", "b")]));
}

#[test]
fn parameters_have_the_type_of_what_is_around_them() {
    let params = [(1, "5".to_owned()), (2, "a'b".to_owned()), (3, "{1,2}".to_owned())];
    let predicate = Predicate::parse("id = $1 AND t = $2 AND id = ANY($3)", &params, &schema()).unwrap();
    assert_eq!(
        predicate.canonical(),
        r#"(("id" = '5'::integer) AND ("t" = 'a''b'::text) AND ("id" = ANY ('{1,2}'::integer[])))"#
    );
    assert_eq!(predicate.columns(), [0, 2]);
    let wrong = Predicate::parse("t = 'x' OR id = $2", &params, &schema()).unwrap_err();
    assert_eq!((wrong.message.as_str(), wrong.position), ("invalid input syntax for type integer: \"a'b\"", 17));
}

#[test]
fn names_are_quoted_where_they_are_written() {
    let predicate = parse("\"Odd \"\"name\"\"\" = 'x' AND items.ID = 1").unwrap();
    assert_eq!(predicate.canonical(), r#"(("Odd ""name""" = 'x'::text) AND ("id" = '1'::integer))"#);
}

#[test]
fn equal_meanings_are_equal() {
    for (a, b) in [
        ("id=1", "1  = items.id"),
        ("id IN (1, 2)", "id = ANY('{1,2}')"),
        ("id IN (2, 1, 1)", "id IN (1, 2)"),
        ("NOT id > 3", "id <= 3"),
        ("id BETWEEN 1 AND 2", "id >= 1 AND (id <= 2)"),
        ("id = 1 + 1", "id = 2"),
    ] {
        assert_eq!(parse(a), parse(b), "{a} and {b}");
    }
    assert_ne!(parse("n = 1.0"), parse("n = 1.00"));
}

#[test]
fn refusals_name_what_is_wrong() {
    for (clause, message) in [
        ("", "syntax error at end of input"),
        ("id =", "syntax error at end of input"),
        ("id = = 1", "syntax error at or near \"=\""),
        ("id = 1 = 1", "syntax error at or near \"=\""),
        ("nope = 1", "unknown reference nope"),
        ("other.id = 1", "missing FROM-clause entry for table \"other\""),
        ("id = 1; DROP TABLE items", "unescaped \";\" causing statement split"),
        ("id = 1 ORDER BY id", "malformed query ending with SQL clauses"),
        ("id = 1 LIMIT 1", "malformed query ending with SQL clauses"),
        ("id", "argument of WHERE must be type boolean, not type integer"),
        ("id AND b", "argument of AND must be type boolean, not type integer"),
        ("id = 'x'", "invalid input syntax for type integer: \"x\""),
        ("id = '99999999999'", "value \"99999999999\" is out of range for type integer"),
        ("d = '2024-02-30'", "date/time field value out of range: \"2024-02-30\""),
        ("d = 'today'", "\"today\" is another value at another time and cannot be used here"),
        ("id = t", "operator does not exist: integer = text"),
        ("id = $1", "there is no parameter $1"),
        ("now() < tz", "unsupported function: now"),
        ("tz < current_timestamp", "unsupported function: current_timestamp"),
        ("count(*) = 1", "aggregates are not supported: count"),
        ("id IN (SELECT 1)", "a subquery can only select columns"),
        ("id = (SELECT 1)", "subqueries are not supported here"),
        ("(id IN (SELECT id FROM t)) IS TRUE", "subqueries are supported only as conditions, under AND, OR and NOT"),
        ("EXISTS (SELECT 1)", "EXISTS is not supported"),
        ("CASE WHEN b THEN b END", "CASE is not supported"),
        ("t ~ 'x'", "operator does not exist: text ~ unknown"),
        ("t COLLATE \"C\" = 'x'", "COLLATE is not supported"),
        ("point = '(1,2)'", "columns of this type can only be tested for null or cast to text"),
        ("ip::text = '1.2.3.4'", "a cast of type inet to text is not supported"),
        ("tz::text = ''", "a cast of timestamp with time zone to text depends on the time zone of the session"),
        ("tz AT TIME ZONE 'Europe/Berlin' < '2024-01-01'", "time zones other than 'UTC' are not supported"),
        ("t LIKE 'x' ESCAPE 'ab'", "invalid escape string"),
        ("t = 'x", "unterminated quoted string"),
        ("/* t = 'x'", "unterminated /* comment"),
        ("n = 1e5000", "numeric constants of more than 1000 digits are not supported"),
    ] {
        assert_eq!(parse(clause).unwrap_err(), message, "{clause}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let long = format!("t = '{}'", "x".repeat(64 << 10));
    assert!(parse(&long).unwrap_err().starts_with("where clause is bigger than maximum size"));
    for deep in [
        format!("{}b{}", "(".repeat(30_000), ")".repeat(30_000)),
        "NOT ".repeat(16_000) + "b",
        format!("id = 1{}", "+1".repeat(30_000)),
        "-".repeat(300) + "id = 1",
        "- ".repeat(300) + "id = 1",
        "a[".repeat(20_000),
        "ARRAY[".repeat(5000),
    ] {
        let error = parse(&deep).unwrap_err();
        assert!(
            error.contains("nested deeper than 100")
                || error.contains("syntax error")
                || error.contains("operator does not"),
            "{error}"
        );
    }
    assert!(parse(&("NOT ".repeat(90) + "b")).is_ok());
    // Wide is not deep.
    let wide = (0..5000).map(|i| format!("id={i}")).collect::<Vec<_>>().join(" OR ");
    assert!(wide.len() < 64 << 10 && holds(&wide, &[("id", "4999")]));
    let json = "[".repeat(100_000);
    let row = COLUMNS.map(|name| (name == "t").then_some(json.as_bytes()));
    let told = parse("t::jsonb = '1'").unwrap().holds(&row[..]);
    assert_eq!(
        told,
        Err(TooCostly),
        "Postgres may read deeper documents: whether the row satisfies the clause is not known"
    );
}

#[test]
fn an_error_is_not_true() {
    assert!(!holds("1 / id = 1 OR t = 'a'", &[("id", "0"), ("t", "a")]));
    assert!(holds("t = 'a' OR 1 / id = 1", &[("id", "0"), ("t", "a")]));
    assert!(!holds("t::integer = 1", &[("t", "x")]));
    assert!(!holds("id = 1", &[("id", "not a number")]));
}

#[test]
fn a_row_of_another_length_is_no_reason_to_panic() {
    let predicate = parse("n IS NULL AND id = 1").unwrap();
    assert_eq!(predicate.holds(&[Some(b"1")]), Ok(true));
    assert_eq!(predicate.holds(&[]), Ok(false));
    assert_eq!(parse("t = 'x'").unwrap().holds(&[None, None, Some(b"\xff\xfe")]), Ok(false));
}

#[test]
fn what_postgres_is_sent_names_the_catalog_throughout() {
    // Words of the grammar, and names in quotes, need no schema.
    let keywords = "AND OR NOT IS NULL TRUE FALSE UNKNOWN DISTINCT FROM ANY ALL ARRAY CASE WHEN THEN ELSE END COALESCE GREATEST LEAST \
                    NULLIF SELECT COLLATE OPERATOR pg_catalog E";
    let clauses = [
        "n + 1 > 2 AND t LIKE 'a%' AND lower(t) = 'x' OR NOT b",
        "n IN (1, 2, 3) AND t IN ('a', 'b') AND coalesce(t, 'x') || 'y' > 'z'",
        "m = 'ok' AND m::text <> 'sad' AND m IN ('sad', 'ok') AND other::text = 'x'",
        "at + interval '1 day' > '2024-01-01' AND at::date = '2024-01-01' AND day::timestamptz < at",
        "tags @> '{a}' AND tags[1] = 'a' AND 'x' = ANY (tags) AND tags || ARRAY['q'] = ARRAY['b', 'c']",
        "j ->> 'a' = 'b' AND j ? 'c' AND - n < |/ 4 AND t::varchar(3) = 'abc' AND num::numeric(5, 2) = 1.5",
        "greatest(t, 'a') < 'b' AND concat(t, n) = 'x' AND n IS DISTINCT FROM 3 AND t BETWEEN 'a' AND 'b'",
    ];
    let columns = [
        ("n", 23, 0),
        ("t", 25, 0),
        ("b", 16, 0),
        ("m", 90_000, 0),
        ("other", 90_001, 0),
        ("at", 1184, 0),
        ("day", 1082, 0),
        ("tags", 1009, 25),
        ("j", 3802, 0),
        ("num", 1700, 0),
    ];
    let column = |(name, type_oid, element_oid): &(&str, u32, u32)| Column {
        name: (*name).into(),
        type_oid: *type_oid,
        element_oid: *element_oid,
        labels: if *name == "m" { vec!["sad".into(), "ok".into()] } else { Vec::new() },
        type_sql: if *name == "m" { "\"s\".\"mood\"".into() } else { String::new() },
    };
    let schema = Schema::new("t", columns.iter().map(column).collect());
    for clause in clauses {
        let sql = Predicate::parse(clause, &[], &schema).unwrap_or_else(|error| panic!("{clause}: {error}")).sql();
        let mut rest = sql.as_str();
        let mut plain = String::new();
        while let Some(quote) = rest.find(['\'', '"']) {
            plain += &rest[..quote];
            let end = quote + 1 + rest[quote + 1..].find(&rest[quote..=quote]).unwrap();
            rest = &rest[end + 1..];
        }
        plain += rest;
        let plain = plain.split("pg_catalog.").enumerate().map(|(at, part)| {
            // A schema precedes a name or an operator.
            let named = part.find(|c: char| {
                if part.starts_with(char::is_alphabetic) { !(c.is_alphanumeric() || c == '_') } else { c == ')' }
            });
            if at == 0 { part } else { &part[named.unwrap_or(part.len())..] }
        });
        let plain: String = plain.collect::<Vec<_>>().join(" ");
        let words: Vec<&str> =
            plain.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()).collect();
        let bare =
            words.iter().find(|word| !keywords.split(' ').any(|known| known == **word) && word.parse::<f64>().is_err());
        assert_eq!(bare, None, "{sql}");
        let operators = plain.replace("::", "").replace(['(', ')', '[', ']', ',', ' ', '.'], "");
        assert!(operators.chars().all(char::is_alphanumeric), "{operators} in {sql}");
    }
}
