//! Clauses with subqueries: their decomposition, and refusals.

use thalweg_filter::{Column, Condition, Filter, InnerTable, Named, Position, Schema, inner_tables};

fn schema(table: &str, columns: &[(&str, u32)]) -> Schema {
    let column =
        |(name, type_oid): &(&str, u32)| Column { name: (*name).to_owned(), type_oid: *type_oid, ..Column::default() };
    Schema::new(table, columns.iter().map(column).collect())
}

const INT4: u32 = 23;
const INT8: u32 = 20;
const TEXT: u32 = 25;
const NUMERIC: u32 = 1700;
const JSONB: u32 = 3802;

fn find(named: &Named) -> Option<InnerTable> {
    let columns = schema(&named.name, &[("id", INT8), ("name", TEXT), ("n", NUMERIC), ("j", JSONB), ("top_id", INT4)]);
    let schema = named.schema.as_deref().unwrap_or("public");
    (named.name != "nowhere").then(|| InnerTable { oid: 7, sql: format!("\"{schema}\".\"{}\"", named.name), columns })
}

fn outer() -> Schema {
    schema("t", &[("a", INT4), ("b", TEXT), ("c", NUMERIC), ("j", JSONB)])
}

fn condition(sql: &str) -> Result<Condition, String> {
    Condition::parse(sql, &[(1, "5".into())], &outer(), &find).map_err(|error| error.message)
}

fn alternatives(sql: &str) -> Result<Vec<Vec<u16>>, String> {
    Ok(condition(sql)?.alternatives().map(<[u16]>::to_vec).collect())
}

#[test]
fn a_clause_is_an_or_of_ands_of_positions() {
    assert_eq!(alternatives("a IN (SELECT id FROM p)").unwrap(), [[0]]);
    assert_eq!(alternatives("a = 1 AND b = 'x' AND a IN (SELECT id FROM p)").unwrap(), [[0, 1]]);
    assert_eq!(alternatives("a IN (SELECT id FROM p) OR c = 10").unwrap(), [[0], [1]]);
    assert_eq!(alternatives("NOT (a IN (SELECT id FROM p) OR c = 10)").unwrap(), [[0, 1]]);
    assert_eq!(
        alternatives("(a IN (SELECT id FROM p) OR a = 1) AND (b IN (SELECT name FROM p) OR b = 'x')").unwrap(),
        [[0, 2], [0, 3], [1, 2], [1, 3]]
    );
    let twice = condition("a IN (SELECT id FROM p) OR (a IN (SELECT id FROM p) AND b = 'x')").unwrap();
    assert_eq!(twice.positions().len(), 2, "the same subquery is one position");
    assert!(twice.holds(&[true, false]) && !twice.holds(&[false, true]));
}

#[test]
fn negations_come_to_the_positions() {
    let negated = |sql: &str| condition(sql).unwrap().memberships().map(|(_, m)| m.negated).collect::<Vec<_>>();
    assert_eq!(negated("NOT (a NOT IN (SELECT id FROM p) AND NOT b IN (SELECT name FROM p))"), [false, false]);
    assert_eq!(negated("a NOT IN (SELECT id FROM p)"), [true]);
}

#[test]
fn sql_says_the_same_without_what_it_leaves_to_the_server() {
    let nested =
        "a IN (SELECT q.id FROM s.p AS q WHERE q.top_id IN (SELECT id FROM p WHERE n > $1) AND name = 'x') AND b = 'y'";
    let condition = condition(nested).unwrap();
    assert_eq!(
        condition.canonical(),
        "((\"a\" IN (SELECT \"id\" FROM \"s\".\"p\" WHERE ((\"top_id\" IN (SELECT \"id\" FROM \"public\".\"p\" WHERE (\"n\" > '5'::numeric))) AND (\"name\" = 'x'::text)))) AND (\"b\" = 'y'::text))"
    );
    assert_eq!(
        condition.sql(),
        concat!(
            r#"((("a" OPERATOR(pg_catalog.=) ANY (SELECT "id" FROM "s"."p" WHERE ((("top_id" OPERATOR(pg_catalog.=) ANY ("#,
            r#"SELECT "id" FROM "public"."p" WHERE ("n" OPERATOR(pg_catalog.>) '5'::pg_catalog.numeric)))) "#,
            r#"AND ("name" OPERATOR(pg_catalog.=) 'x'::pg_catalog.text))))) AND ("b" OPERATOR(pg_catalog.=) 'y'::pg_catalog.text))"#
        )
    );
    let (_, membership) = condition.memberships().next().unwrap();
    assert!(matches!(membership.query.filter, Filter::Nested(_)));
    assert_eq!(membership.query.columns(), [0, 1, 4]);
    assert_eq!(condition.columns(), [0, 1]);
    let keys = [membership.key(&[Some(b"7"), None]), membership.null()];
    assert_eq!(
        condition.sql_moving(0, &keys),
        r#"((("a" OPERATOR(pg_catalog.=) ANY (ARRAY['7'::pg_catalog.int8]))) OR ("a" IS NULL)) AND ((("b" OPERATOR(pg_catalog.=) 'y'::pg_catalog.text)))"#
    );
}

#[test]
fn equal_values_are_equal_keys_whatever_their_types() {
    let of = |sql: &str| {
        let condition = condition(sql).unwrap();
        let Position::In(membership) = &condition.positions()[0] else { panic!("{sql}") };
        membership.clone()
    };
    let ids = of("a IN (SELECT id FROM p)");
    assert_eq!(ids.key(&[Some(b"42")]), ids.query.value(&[Some(b"42")]));
    assert_ne!(ids.key(&[Some(b"42")]), ids.query.value(&[Some(b"43")]));
    assert!(ids.key(&[None]).has_null() && ids.key(&[None]) == ids.null());
    let numbers = of("c IN (SELECT n FROM p)");
    assert_eq!(numbers.key(&[None, None, Some(b"1.50")]), numbers.query.value(&[None, None, Some(b"1.5")]));
    let mixed = of("a IN (SELECT n FROM p)");
    assert_eq!(mixed.key(&[Some(b"3")]), mixed.query.value(&[None, None, Some(b"3.00")]));
    let both = of("(a, b) IN (SELECT id, name FROM p)");
    let (x, y) = (both.key(&[Some(b"1"), Some(b"x")]), both.query.value(&[Some(b"1"), None]));
    assert!(x != y && x.may_equal(&y) && y.has_null());
    assert!(!both.key(&[Some(b"2"), Some(b"x")]).may_equal(&y));
}

#[test]
fn tables_are_named_before_they_are_known() {
    let named = inner_tables(
        "a IN (SELECT id FROM \"S\".p WHERE top_id IN (SELECT id FROM q)) OR a IN (SELECT id FROM q)",
        &[],
    )
    .unwrap();
    let names: Vec<String> =
        named.iter().map(|n| format!("{:?}.{}", n.schema.as_deref().unwrap_or("-"), n.name)).collect();
    assert_eq!(names, ["\"S\".p", "\"-\".q"]);
    assert!(inner_tables("a = 1", &[]).unwrap().is_empty());
}

#[test]
fn what_cannot_be_followed_is_refused() {
    const FORM: &str = "a subquery must be SELECT columns FROM one table, with WHERE or without";
    for (sql, message) in [
        ("a IN (SELECT id FROM nowhere)", "relation \"nowhere\" does not exist"),
        ("a IN (SELECT nope FROM p)", "unknown reference nope"),
        ("a IN (SELECT id, name FROM p)", "subquery has too many columns"),
        ("(a, b) IN (SELECT id FROM p)", "subquery has too few columns"),
        ("a IN (SELECT id FROM p JOIN q ON true)", FORM),
        ("a IN (SELECT id FROM p, q)", FORM),
        ("a IN (SELECT id FROM p ORDER BY id)", FORM),
        ("a IN (SELECT DISTINCT id FROM p)", FORM),
        ("a IN (SELECT id FROM p UNION SELECT 1)", FORM),
        ("a IN (SELECT id FROM p WHERE t.a = 1)", "missing FROM-clause entry for table \"t\""),
        ("a + 1 IN (SELECT id FROM p)", "only columns can be compared with a subquery"),
        ("a IN (SELECT name FROM p)", "operator does not exist: integer = text"),
        ("j IN (SELECT j FROM p)", "columns of this type cannot be compared with a subquery"),
        ("(a IN (SELECT id FROM p)) IS TRUE", "subqueries are supported only as conditions, under AND, OR and NOT"),
        (
            "a IN (SELECT id FROM p) OR NOT a IN (SELECT id FROM p)",
            "a subquery dependency cannot be used with both positive and negative polarity in the same filter",
        ),
    ] {
        assert_eq!(condition(sql).unwrap_err(), message, "{sql}");
    }
    let many: Vec<String> = (0..7).map(|n| format!("(a IN (SELECT id FROM p WHERE n = {n}) OR c = {n})")).collect();
    assert!(condition(&many.join(" AND ")).unwrap_err().contains("64 alternatives"));
}
