use super::answer::{mark_header, push_begin, push_end};
use super::order::{Order, parse_order};
use super::query::Query;
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_model::definition::Replica;
use thalweg_shapes_model::invalid::Invalid;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::sample::{self, TEXT, column};
use thalweg_shapes_model::table::{Table, TableName};

fn table() -> Table {
    let column = |name, key| column(name, TEXT, key);
    let columns = vec![column("id", Some(0)), column("a", None), column("O\"r", None), column("desc", None)];
    Table { name: TableName { schema: "s".into(), name: "T".into() }, ..sample::table("T", columns) }
}

fn order(text: &str) -> Result<Vec<Order>, String> {
    parse_order(text, &table(), None).map_err(|invalid| {
        let body: Value = serde_json::from_slice(&invalid.body()).unwrap();
        body["errors"]["subset"]["order_by"][0].as_str().unwrap().to_owned()
    })
}

fn sql(order: &[Order]) -> String {
    let query = Query { shape_where: None, subset_where: None, order, limit: None, offset: None };
    let all = query.sql(&table(), &Projection::new(&table(), &[0], Replica::Default).select_list());
    all.strip_prefix("SELECT \"id\" FROM \"s\".\"T\"").unwrap().to_owned()
}

#[test]
fn orderings_by_columns_are_read() {
    for (text, expected) in [
        ("id", r#""id""#),
        (" ID  desc ", r#""id" DESC"#),
        ("id ASC NULLS last, \"O\"\"r\" DESC nulls FIRST,a", r#""id" NULLS LAST, "O""r" DESC NULLS FIRST, "a""#),
        ("desc desc", r#""desc" DESC"#),
        ("a nulls first", r#""a" NULLS FIRST"#),
        ("id\n,\ta", r#""id", "a""#),
    ] {
        assert_eq!(sql(&order(text).unwrap()).strip_prefix(" ORDER BY ").unwrap(), expected, "{text}");
    }
}

#[test]
fn only_columns_are_allowed() {
    for text in [
        "CAST((SELECT version()) AS int) DESC",
        "pg_sleep(5)",
        "(SELECT count(*) FROM pg_tables)",
        "id::text",
        "CASE WHEN (SELECT true) THEN 1 ELSE 0 END",
        "1",
        "id + 1",
        "t.id",
        "id using <",
        "id collate \"C\"",
        "id -- x",
        "id /* x */",
        "'id'",
        "id,",
        "",
        ",",
        "id desc desc",
        "id limit 1",
    ] {
        let message = order(text).unwrap_err();
        assert!(message.contains("not allowed in ORDER BY"), "{text}: {message}");
    }
    assert_eq!(order("id; drop table x").unwrap_err(), "Unexpected `;` in order by");
    assert_eq!(order("id, $1").unwrap_err(), "At location 4: parameter $1 is not supported in ORDER BY clauses");
    assert_eq!(order("\"id").unwrap_err(), "At location 0: unterminated quoted identifier");
    assert_eq!(order("id nulls").unwrap_err(), "At location 8: syntax error");
}

#[test]
fn columns_that_may_not_be_asked_for_are_unknown() {
    assert_eq!(order("id, secret_token").unwrap_err(), "At location 4: unknown reference secret_token");
    assert_eq!(order("\"ID\"").unwrap_err(), "At location 0: unknown reference ID");
    let invalid = parse_order("id, a", &table(), Some(&["id".to_owned()])).unwrap_err();
    assert_eq!(invalid, Invalid::subset("order_by", "At location 4: unknown reference a"));
}

#[test]
fn an_or_in_one_predicate_does_not_reach_the_other() {
    let order = order("a desc").unwrap();
    let query = Query {
        shape_where: Some("id = 1 OR id = 2"),
        subset_where: Some("id = 2 OR true"),
        order: &order,
        limit: Some(10),
        offset: Some(3),
    };
    assert_eq!(
        query.sql(&table(), &Projection::new(&table(), &[0, 2], Replica::Default).select_list()),
        r#"SELECT "id","O""r" FROM "s"."T" WHERE (id = 1 OR id = 2) AND (id = 2 OR true) ORDER BY "a" DESC LIMIT 10 OFFSET 3"#
    );
    let only = Query { shape_where: None, order: &[], limit: None, offset: None, ..query };
    assert_eq!(
        only.sql(&table(), &Projection::new(&table(), &[0], Replica::Default).select_list()),
        r#"SELECT "id" FROM "s"."T" WHERE (id = 2 OR true)"#
    );
}

#[test]
fn an_answer_says_when_its_rows_were_read() {
    let snapshot = PgSnapshot { lsn: 77, ..at_some_time() };
    let p = Projection::new(&table(), &[0], Replica::Default);
    for rows in 0..3 {
        let mut out = Vec::new();
        push_begin(&mut out, &snapshot, 5);
        for _ in 0..rows {
            p.snapshot_row_with(&[Some(b"1".as_slice())], &mark_header(5), &mut out);
        }
        push_end(&mut out);
        let body: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            body["metadata"],
            json!({"snapshot_mark": 5, "database_lsn": "77", "xmin": "10", "xmax": "20", "xip_list": ["12"]})
        );
        assert_eq!(body["data"].as_array().unwrap().len(), rows);
        if rows > 0 {
            assert_eq!(body["data"][0]["headers"]["snapshot_mark"], 5);
        }
    }
}

fn at_some_time() -> PgSnapshot {
    "10:20:12".parse().unwrap()
}

proptest! {
    #[test]
    fn no_ordering_panics_and_what_is_read_is_read_again(text in "([a-c\", ;$é]|desc|asc|nulls|first|last|id){0,12}") {
        if let Ok(orders) = order(&text) {
            let written = sql(&orders);
            prop_assert_eq!(order(written.strip_prefix(" ORDER BY ").unwrap()).unwrap(), orders);
        }
    }
}
