use super::*;
use crate::{Column, Predicate, Schema};

fn schema() -> Schema {
    let column =
        |name: &str, type_oid, element_oid| Column { name: name.into(), type_oid, element_oid, ..Column::default() };
    Schema::new(
        "t",
        vec![
            column("id", 23, 0),
            column("name", 25, 0),
            column("b", 16, 0),
            column("tags", 1009, 25),
            column("n", 1700, 0),
        ],
    )
}

fn predicate(sql: &str) -> Arc<Predicate> {
    Arc::new(Predicate::parse(sql, &[], &schema()).unwrap())
}

#[test]
fn conditions_are_found_by_what_they_need() {
    let mut index = Index::new();
    for (clause, expected) in [
        ("name = 'x'", "equality on \"name\""),
        ("'x' = name AND id > 3", "equality on \"name\""),
        ("id IN (1, 2, 3)", "3 x equality on \"id\""),
        ("id = ANY('{1,2}')", "2 x equality on \"id\""),
        ("id > 3", "range on \"id\""),
        ("id >= 3 AND id < 9 AND b", "range on \"id\""),
        ("id BETWEEN 3 AND 9", "range on \"id\""),
        ("name LIKE 'abc%'", "prefix of 3 bytes on \"name\""),
        ("name ILIKE 'aBc%'", "prefix of 3 bytes on \"name\""),
        ("name LIKE '%abc'", "suffix of 3 bytes on \"name\""),
        ("name LIKE '%abcdefghij%'", "piece of 8 bytes on \"name\""),
        ("name LIKE 'abc'", "equality on \"name\""),
        ("name IS NULL", "null on \"name\""),
        ("b", "equality on \"b\""),
        ("NOT b", "equality on \"b\""),
        ("b IS TRUE AND id IS NOT NULL", "equality on \"b\""),
        ("name = 'x' OR id < 3", "equality on \"name\", range on \"id\""),
        ("'a' = ANY(tags)", "element on \"tags\""),
        ("tags @> '{a,b}'", "element on \"tags\""),
        ("tags && '{a,b}'", "2 x element on \"tags\""),
        ("lower(name) = 'x'", "equality on lower(\"name\")"),
        ("n = 1.5", "equality on \"n\""),
        ("id = NULL", "never true"),
        ("name <> 'x'", "evaluated for each row"),
        ("name = 'x' OR id <> 3", "evaluated for each row"),
    ] {
        let predicate = predicate(clause);
        assert_eq!(index.explain(&predicate).to_string(), expected, "{clause}");
        index.insert(0, Some(&predicate));
    }
}

#[test]
fn the_condition_that_fewest_share_is_taken() {
    let mut index = Index::new();
    for id in 0..100 {
        index.insert(id, Some(&predicate(&format!("name = 'same' AND id = {id}"))));
    }
    assert_eq!(index.explain(&predicate("name = 'same' AND id = 200")).to_string(), "equality on \"id\"");
    assert_eq!(index.explain(&predicate("name = 'other' AND id = 5")).to_string(), "equality on \"name\"");
}

#[test]
fn equal_predicates_are_one() {
    let mut index = Index::new();
    let mut filings: Vec<Filing> =
        [3, 1, 2, 2].into_iter().map(|key| index.insert(key, Some(&predicate("name = 'x'")))).collect();
    filings.push(index.insert(9, Some(&predicate("'x'::text = \"name\""))));
    assert!(filings.iter().all(|filing| *filing == filings[0]));
    let all = index.insert(0, None);
    assert_eq!(index.insert(3, None), all);
    assert_eq!(index.slots.len(), 1);
    let mut out = vec![7];
    index.matching(&[Some(b"1"), Some(b"x")], &mut out, &mut Vec::new());
    assert_eq!(out, [7, 0, 1, 2, 3, 9]);
    for key in [1, 2, 3] {
        index.remove(key, filings[0]);
    }
    out.clear();
    index.matching(&[Some(b"1"), Some(b"x")], &mut out, &mut Vec::new());
    assert_eq!(out, [0, 3, 9]);
    index.remove(9, filings[0]);
    index.remove(0, all);
    index.remove(3, all);
    assert!(index.is_empty() && index.interned.is_empty() && index.filed.scalars.all.is_empty());
    assert_eq!(index.templates.len(), 0);
}

#[test]
fn a_predicate_of_other_columns_is_evaluated_by_its_own() {
    let mut index = Index::new();
    index.insert(1, Some(&predicate("id = 1")));
    let other = Schema::new("t", vec![Column { name: "id".into(), type_oid: 25, ..Column::default() }]);
    let filing = index.insert(2, Some(&Arc::new(Predicate::parse("id = '1'", &[], &other).unwrap())));
    let mut out = Vec::new();
    index.matching(&[Some(b"1")], &mut out, &mut Vec::new());
    assert_eq!(out, [1, 2]);
    index.remove(3, filing);
    index.remove(2, filing);
    out.clear();
    index.matching(&[Some(b"1")], &mut out, &mut Vec::new());
    assert_eq!(out, [1]);
}

/// A million of them are to fit.
#[test]
fn expressions_are_small() {
    use crate::expr::Expr;
    use crate::types::value::Value;
    assert_eq!((size_of::<Value<'_>>(), size_of::<Expr>(), size_of::<Slot<u32>>()), (24, 32, 64));
}

#[test]
fn what_differs_in_constants_only_is_kept_once() {
    let mut index = Index::new();
    let clauses = [
        "id = 1",
        "id = 2",
        "2 = id",
        "id = 1 AND name = 'a'",
        "id = 2 AND name = 'b'",
        "id = 1 AND name IS NULL",
        "id > 1",
        "id <> 1",
        "name LIKE 'a%'",
        "name LIKE 'b%'",
        "id IN (1, 2)",
        "id IN (1, 3)",
        "b = TRUE",
        "NOT (id = 1 OR name = 'x')",
    ];
    let filings: Vec<Filing> =
        clauses.iter().enumerate().map(|(key, clause)| index.insert(key, Some(&predicate(clause)))).collect();
    assert_eq!(filings[1], filings[2]);
    assert!(index.templates.len() < clauses.len() - 3, "{}", index.templates.len());
    let rows: [[Option<&[u8]>; 3]; 4] = [
        [Some(b"1"), Some(b"a"), Some(b"t")],
        [Some(b"2"), Some(b"b"), None],
        [Some(b"3"), None, Some(b"f")],
        [None, Some(b"x"), Some(b"t")],
    ];
    for row in rows {
        let mut found = Vec::new();
        index.matching(&row, &mut found, &mut Vec::new());
        let expected: Vec<usize> =
            (0..clauses.len()).filter(|key| predicate(clauses[*key]).holds(&row) == Ok(true)).collect();
        assert_eq!(found, expected, "{row:?}");
    }
    filings.iter().enumerate().for_each(|(key, filing)| index.remove(key, *filing));
    assert_eq!((index.is_empty(), index.templates.len()), (true, 0));
}

#[test]
fn it_is_said_which_part_has_no_key_and_how_often_predicates_were_evaluated() {
    let mut index = Index::new();
    let clause = predicate("name = 'x' OR id <> 3");
    let Explanation::EachRow { because } = index.explain(&clause) else { panic!("it has keys") };
    assert!(because.contains("<> '3'") && !because.contains("'x'"), "{because}");
    index.insert(1, Some(&clause));
    index.insert(2, Some(&predicate("id = 7")));
    index.insert(3, None);
    let mut found = Vec::new();
    index.matching(&[Some(b"8"), None, None, None, None], &mut found, &mut Vec::new());
    assert_eq!((found, index.take_evaluations()), (vec![1, 3], 1));
    index.matching(&[Some(b"7"), None, None, None, None], &mut Vec::new(), &mut Vec::new());
    assert_eq!((index.take_evaluations(), index.take_evaluations()), (2, 0));
}
