use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::table::{Column, TableName, sample};

const AT: Place = Place { xid: 745, lsn: 26_800_584, op: 4 };

fn column(name: &str, oid: u32, key: Option<u32>) -> Column {
    sample::column(name, (oid, "x"), key)
}

fn table(columns: Vec<Column>) -> Table {
    sample::table("items", columns)
}

fn items() -> Table {
    table(vec![column("id", 23, Some(0)), column("title", 25, None), column("done", BOOL, None)])
}

fn row<const N: usize>(cells: [&'static str; N]) -> [Option<&'static [u8]>; N] {
    cells.map(|cell| (cell != "NULL").then_some(cell.as_bytes()))
}

fn text(render: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    render(&mut out);
    String::from_utf8(out).unwrap()
}

fn value(body: &str) -> Value {
    serde_json::from_str(body.strip_suffix(',').unwrap()).unwrap()
}

#[test]
fn a_snapshot_row_has_no_place() {
    let p = Projection::all(&items(), Replica::Default);
    assert_eq!(
        text(|out| p.snapshot_row(&row(["1", "a\"b", "t"]), out)),
        r#"{"key":"\"public\".\"items\"/\"1\"","value":{"id":"1","title":"a\"b","done":"true"},"headers":{"operation":"insert","relation":["public","items"]}},"#
    );
    assert_eq!(
        text(|out| p.snapshot_row_with(&row(["1", "NULL", "f"]), b",\"snapshot_mark\":7", out)),
        r#"{"key":"\"public\".\"items\"/\"1\"","value":{"id":"1","title":null,"done":"false"},"headers":{"operation":"insert","relation":["public","items"],"snapshot_mark":7}},"#
    );
}

#[test]
fn an_insert_has_the_whole_row() {
    let p = Projection::all(&items(), Replica::Default);
    assert_eq!(
        text(|out| p.insert(AT, &row(["1", "x", "NULL"]), out)),
        r#"{"key":"\"public\".\"items\"/\"1\"","value":{"id":"1","title":"x","done":null},"headers":{"operation":"insert","txids":[745],"relation":["public","items"],"lsn":"26800584","op_position":4}},"#
    );
}

#[test]
fn an_update_has_the_key_and_what_changed() {
    let p = Projection::all(&items(), Replica::Default);
    let (old, new) = (row(["1", "x", "t"]), row(["1", "y", "t"]));
    assert_eq!(p.difference(&old, &new), Difference::Columns);
    assert_eq!(
        text(|out| p.update(AT, &old, &new, out)),
        r#"{"key":"\"public\".\"items\"/\"1\"","value":{"id":"1","title":"y"},"headers":{"operation":"update","txids":[745],"relation":["public","items"],"lsn":"26800584","op_position":4}},"#
    );
}

#[test]
fn a_full_update_has_the_row_and_the_old_values_of_what_changed() {
    let p = Projection::all(&items(), Replica::Full);
    let body = value(&text(|out| p.update(AT, &row(["1", "NULL", "t"]), &row(["1", "y", "f"]), out)));
    assert_eq!(body["value"], json!({"id": "1", "title": "y", "done": "false"}));
    assert_eq!(body["old_value"], json!({"title": null, "done": "true"}));
}

#[test]
fn a_delete_has_the_key_and_a_full_one_the_row() {
    let old = row(["1", "x", "t"]);
    let default = Projection::all(&items(), Replica::Default);
    assert_eq!(
        text(|out| default.delete(AT, &old, out)),
        r#"{"key":"\"public\".\"items\"/\"1\"","value":{"id":"1"},"headers":{"operation":"delete","txids":[745],"relation":["public","items"],"lsn":"26800584","op_position":4}},"#
    );
    let full = Projection::all(&items(), Replica::Full);
    assert_eq!(
        value(&text(|out| full.delete(AT, &old, out)))["value"],
        json!({"id": "1", "title": "x", "done": "true"})
    );
}

#[test]
fn a_change_of_the_key_is_a_delete_and_an_insert() {
    let p = Projection::all(&items(), Replica::Default);
    let (old, new) = (row(["1", "x", "t"]), row(["2", "x", "t"]));
    assert_eq!(p.difference(&old, &new), Difference::Key);
    assert_eq!(
        text(|out| p.key_change_delete(AT, &old, &new, out)),
        r#"{"key":"\"public\".\"items\"/\"1\"","value":{"id":"1"},"headers":{"operation":"delete","txids":[745],"relation":["public","items"],"key_change_to":"\"public\".\"items\"/\"2\"","lsn":"26800584","op_position":4}},"#
    );
    assert_eq!(
        text(|out| p.key_change_insert(AT, &old, &new, out)),
        r#"{"key":"\"public\".\"items\"/\"2\"","value":{"id":"2","title":"x","done":"true"},"headers":{"operation":"insert","txids":[745],"relation":["public","items"],"key_change_from":"\"public\".\"items\"/\"1\"","lsn":"26800584","op_position":5}},"#
    );
}

#[test]
fn columns_that_are_not_selected_are_not_told() {
    let p = Projection::new(&items(), &[2, 0], Replica::Default);
    assert_eq!(p.select_list(), r#""id","done""#);
    assert_eq!(p.difference(&row(["1", "x", "t"]), &row(["1", "y", "t"])), Difference::Nothing);
    assert_eq!(
        value(&text(|out| p.insert(AT, &row(["1", "x", "f"]), out)))["value"],
        json!({"id": "1", "done": "false"})
    );
    assert_eq!(
        value(&text(|out| p.snapshot_row(&row(["1", "f"]), out)))["value"],
        json!({"id": "1", "done": "false"}),
        "rows of snapshots have the selected columns only"
    );
}

#[test]
fn keys_double_slashes_and_dots_of_names() {
    let mut table = items();
    table.name = TableName { schema: "a/b.c".into(), name: "q\"\\".into() };
    table.columns[0].name = "i\"d".into();
    let p = Projection::all(&table, Replica::Default);
    assert_eq!(p.key(&row(["x/y.\"z", "", "t"])), r#""a//b..c"."q"\"/"x//y."z""#);
    assert_eq!(p.select_list(), r#""i""d","title","done""#);
    let body = value(&text(|out| p.delete(AT, &row(["x/y.\"z", "", "t"]), out)));
    assert_eq!(body["key"], p.key(&row(["x/y.\"z", "", "t"])));
    assert_eq!(body["value"], json!({"i\"d": "x/y.\"z"}));
    assert_eq!(body["headers"]["relation"], json!(["a/b.c", "q\"\\"]));
}

#[test]
fn the_key_follows_the_order_of_the_primary_key() {
    let t = table(vec![column("a", 25, Some(1)), column("b", 25, None), column("c", BOOL, Some(0))]);
    let p = Projection::all(&t, Replica::Default);
    assert_eq!(p.key(&row(["x", "y", "t"])), r#""public"."items"/"true"/"x""#);
}

#[test]
fn without_a_primary_key_all_columns_by_name_are_the_key() {
    let t = table(vec![column("b", 25, None), column("a", 25, None), column("c", 25, None)]);
    let p = Projection::all(&t, Replica::Default);
    assert_eq!(p.key(&row(["1", "NULL", ""])), r#""public"."items"/_/"1"/"""#);
    let (old, new) = (row(["1", "2", "3"]), row(["1", "2", "4"]));
    assert_eq!(p.difference(&old, &new), Difference::Key);
    assert_eq!(
        value(&text(|out| p.delete(AT, &old, out)))["value"],
        json!({"a": "2", "b": "1", "c": "3"}),
        "a delete without a key tells the whole row"
    );
}

#[test]
fn a_text_column_may_hold_a_t() {
    let p = Projection::all(&items(), Replica::Default);
    assert_eq!(value(&text(|out| p.insert(AT, &row(["t", "f", "t"]), out)))["value"]["title"], "f");
}

proptest! {
    #[test]
    fn every_row_is_json_that_says_the_same(cells in prop::collection::vec(prop::option::of(".{0,40}"), 3)) {
        let p = Projection::all(&table(vec![column("a", 25, Some(0)), column("b", 25, None), column("c", 25, None)]), Replica::Full);
        let row: Vec<Option<&[u8]>> = cells.iter().map(|cell| cell.as_deref().map(str::as_bytes)).collect();
        let expected = json!({"a": cells[0], "b": cells[1], "c": cells[2]});
        for body in [text(|out| p.insert(AT, row.as_slice(), out)), text(|out| p.snapshot_row(row.as_slice(), out))] {
            prop_assert_eq!(&value(&body)["value"], &expected);
            prop_assert_eq!(&value(&body)["key"], &json!(p.key(row.as_slice())));
        }
    }

    #[test]
    fn keys_of_different_rows_differ(a in "[ab/\"_]{0,4}", b in "[ab/\"_]{0,4}", c in "[ab/\"_]{0,4}", d in "[ab/\"_]{0,4}") {
        let p = Projection::all(&table(vec![column("a", 25, Some(0)), column("b", 25, Some(1))]), Replica::Default);
        let key = |a: &str, b: &str| p.key(&[Some(a.as_bytes()), Some(b.as_bytes())]);
        // Quotes within values are not doubled, so that values which imitate a key's own marks can collide: `a"/"b`.
        if !(a.clone() + &b + &c + &d).contains('"') {
            prop_assert_eq!(key(&a, &b) == key(&c, &d), (a, b) == (c, d));
        }
    }
}

/// CPU time of this thread: other processes on the machine do not count.
pub(crate) fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// `cargo test -p thalweg-shapes-core --release -- --ignored --nocapture rows_a_second`
#[test]
#[ignore = "a measurement"]
fn rows_a_second() {
    let t = table(vec![
        column("id", 20, Some(0)),
        column("title", 25, None),
        column("done", BOOL, None),
        column("n", 20, None),
    ]);
    let p = Projection::all(&t, Replica::Default);
    let lines: Vec<Vec<u8>> =
        (0..1000).map(|n| format!("{n}\ta title of some words, number {n}\tt\t{}\n", n * 7).into_bytes()).collect();
    let (mut copy, mut out) = (CopyRow::default(), Vec::with_capacity(1 << 20));
    let rounds = 1000;
    let start = cpu_ns();
    for _ in 0..rounds {
        out.clear();
        for line in &lines {
            copy.decode(line).unwrap();
            p.snapshot_row(&copy, &mut out);
        }
    }
    let copied = f64::from(rounds) * 1000.0 / ((cpu_ns() - start) as f64 / 1e9);
    let start = cpu_ns();
    for _ in 0..rounds {
        out.clear();
        for n in 0..1000_u32 {
            let old = row(["12345", "a title of some words, number one", "t", "77"]);
            let new = row(["12345", "a title of some words, number two", "t", "78"]);
            if p.difference(&old, &new) == Difference::Columns {
                p.update(Place { op: n, ..AT }, &old, &new, &mut out);
            }
        }
    }
    let updated = f64::from(rounds) * 1000.0 / ((cpu_ns() - start) as f64 / 1e9);
    println!("snapshot rows {copied:.0}/s, updates {updated:.0}/s");
}
