use super::*;
use crate::encode::projection::tests::cpu_ns;
use proptest::prelude::*;
use serde_json::{Value, json};
use thalweg_shapes_model::offset::ShapeOffset;

fn get(query: &str) -> ShapeRequest<'_> {
    ShapeRequest::parse(query, None).unwrap()
}

fn post<'a>(query: &'a str, body: &Value) -> Result<ShapeRequest<'a>, RequestError> {
    ShapeRequest::parse(query, Some(body.to_string().as_bytes()))
}

fn errors_of(error: RequestError) -> Value {
    let RequestError::Invalid(invalid) = error else { panic!("{error:?}") };
    let mut body: Value = serde_json::from_slice(&invalid.body()).unwrap();
    assert_eq!(body["message"], "Invalid request");
    body["errors"].take()
}

fn errors(query: &str) -> Value {
    errors_of(ShapeRequest::parse(query, None).unwrap_err())
}

#[test]
fn a_typical_live_request_is_read() {
    let request =
        get("table=public.items&offset=26800584_4&handle=123-456&live=true&cursor=1789&secret=x&columns=title,id");
    assert_eq!(request.shape.table, "items");
    assert_eq!(request.offset, From::After(ShapeOffset::new(26_800_584, 4)));
    assert_eq!(request.handle.as_deref(), Some("123-456"));
    assert_eq!(request.cursor.as_deref(), Some("1789"));
    assert!(request.live && !request.sse && !request.compaction && request.subset.is_none());
    assert_eq!(request.shape.columns.as_deref().unwrap(), ["id", "title"]);
    assert!(matches!(request.shape.table, Cow::Borrowed(_)) && matches!(request.handle, Some(Cow::Borrowed(_))));
}

#[test]
fn predicates_and_their_parameters_are_decoded() {
    let request = get(
        "table=t&offset=-1&where=a+%3D+%242+and+b%3D%241&params%5B2%5D=x%26y&params[1]=&replica=full&log=changes_only",
    );
    assert_eq!(request.shape.where_sql.as_deref(), Some("a = $2 and b=$1"));
    assert_eq!(request.shape.params, ["", "x&y"]);
    assert_eq!((request.shape.replica, request.shape.log), (Replica::Full, LogMode::ChangesOnly));
}

#[test]
fn every_value_of_live_but_false_means_yes() {
    let at = "table=t&offset=0_0&handle=h";
    for (given, live) in [("&live", true), ("&live=", true), ("&live=true", true), ("&live=false", false), ("", false)]
    {
        assert_eq!(get(&format!("{at}{given}")).live, live, "{given}");
    }
    assert!(get(&format!("{at}&live=true&live_sse=true")).sse);
    assert!(get(&format!("{at}&live=true&experimental_live_sse=true")).sse);
    assert!(!get(&format!("{at}&live=true&experimental_live_sse=true&live_sse=false")).sse);
}

#[test]
fn a_handle_is_dropped_where_it_means_nothing() {
    for offset in ["-1", "now"] {
        assert_eq!(get(&format!("table=t&handle=old&offset={offset}")).handle, None);
    }
}

#[test]
fn unknown_parameters_and_cache_busters_are_passed_over() {
    let request = get("expired_handle=1&cache-buster=2&table=t&x[y]=1&offset=-1&%ff=1&&subset=");
    assert_eq!(request, get("table=t&offset=-1"));
}

#[test]
fn the_last_of_equal_parameters_counts() {
    assert_eq!(
        get("table=a&table=b&offset=-1&where=x&params[1]=1&params[1]=2"),
        get("table=b&offset=-1&where=x&params[1]=2")
    );
}

#[test]
fn offset_and_table_must_be_there() {
    assert_eq!(errors("table=t"), json!({"offset": ["can't be blank"]}));
    assert_eq!(errors("table=t&offset=+"), json!({"offset": ["can't be blank"]}));
    assert_eq!(errors("offset=-1"), json!({"table": ["can't be blank"]}));
    assert_eq!(errors("offset=-1&table="), json!({"table": ["can't be blank"]}));
}

#[test]
fn wrong_offsets_are_refused() {
    for offset in ["invalid", "-1_2", "-3_-1", "1_x", "1"] {
        assert_eq!(errors(&format!("table=t&offset={offset}")), json!({"offset": ["has invalid format"]}), "{offset}");
    }
}

#[test]
fn rules_between_parameters_have_electrics_words() {
    for (query, expected) in [
        ("table=t&offset=0_0", json!({"handle": ["can't be blank when offset != -1"]})),
        ("table=t&offset=-1&live=true", json!({"live": ["can't be true when offset == -1"]})),
        ("table=t&offset=now&live=true", json!({"live": ["can't be true when offset is 'now'"]})),
        ("table=t&offset=0_0&handle=h&live_sse=true", json!({"live_sse": ["can't be true unless live is also true"]})),
    ] {
        assert_eq!(errors(query), expected);
    }
}

#[test]
fn what_is_wrong_by_itself_is_told_all_at_once() {
    assert_eq!(
        errors("replica=x&log=y&experimental_compaction=z&params=1&columns=a@&handle[]=x&table=%ff"),
        json!({
            "replica": ["is invalid"], "log": ["is invalid"], "experimental_compaction": ["is invalid"], "params": ["is invalid"],
            "columns": ["Invalid unquoted identifier contains special characters: a@"], "handle": ["is invalid"],
            "table": ["is invalid"], "offset": ["can't be blank"],
        })
    );
}

#[test]
fn names_of_tables_are_checked() {
    for (table, message) in [
        (".invalid_shape", "Invalid zero-length delimited identifier"),
        ("a.b.c", "Invalid relation identifier, too many delimiters: a.b.c"),
        ("foob%40r", "Invalid unquoted identifier contains special characters: foob@r"),
    ] {
        assert_eq!(errors(&format!("offset=-1&table={table}")), json!({"table": [message]}));
    }
    let shape = get("offset=-1&table=Foo.%22Ba.r%22").shape;
    assert_eq!((&*shape.schema, &*shape.table), ("foo", "Ba.r"));
}

#[test]
fn parameters_are_numbered_from_one_without_gaps() {
    let at = "table=t&offset=-1&where=x";
    assert_eq!(errors(&format!("{at}&params[a]=1")), json!({"params": ["Parameters can only use numbers as keys"]}));
    for params in ["&params[2]=1", "&params[1]=1&params[3]=1", "&params[0]=1&params[1]=1"] {
        let expected = json!({"params": ["Parameters must be numbered sequentially, starting from 1"]});
        assert_eq!(errors(&format!("{at}{params}")), expected);
    }
    assert_eq!(get("table=t&offset=-1&params[7]=1"), get("table=t&offset=-1"), "without a predicate they mean nothing");
}

#[test]
fn column_lists_may_be_lists() {
    assert_eq!(get("table=t&offset=-1&columns[]=b&columns[]=A").shape.columns.unwrap(), ["A", "b"]);
    assert_eq!(
        errors("table=t&offset=-1&columns[]=b&columns[]="),
        json!({"columns": ["Invalid zero-length identifier"]})
    );
    assert_eq!(get("table=t&offset=-1&columns=").shape.columns, None);
    assert_eq!(get("table=t&offset=-1&queryable_columns=B,a").shape.queryable.unwrap(), ["a", "b"]);
}

#[test]
fn any_subset_parameter_makes_a_subset() {
    let none = Subset { where_sql: None, params: vec![], order_by: None, limit: None, offset: None };
    for query in ["subset__where=", "subset__where_expr=%7B%7D", "subset[order_by]="] {
        assert_eq!(get(&format!("table=t&offset=-1&{query}")).subset.as_deref(), Some(&none), "{query}");
    }
    let subset = get(
        "table=t&offset=-1&subset__where=a%3D%241&subset__params=%7B%221%22%3A7%7D&subset__limit=3&subset__offset=0&subset__order_by=a+desc",
    );
    let expected = Subset {
        where_sql: Some("a=$1".into()),
        params: vec!["7".into()],
        order_by: Some("a desc".into()),
        limit: Some(3),
        offset: Some(0),
    };
    assert_eq!(subset.subset.as_deref(), Some(&expected));
    let bracketed = "table=t&offset=-1&subset[where]=a%3D%241&subset[params][1]=7&subset[limit]=3&subset[offset]=0&subset[order_by]=a+desc";
    assert_eq!(get(bracketed), subset);
}

#[test]
fn subsets_have_rules_of_their_own() {
    for (query, expected) in [
        ("limit=1", json!({"order_by": ["order_by is required when limit or offset is present"]})),
        ("limit=0&subset__order_by=a", json!({"limit": ["must be greater than 0"]})),
        ("offset=-1&subset__order_by=a", json!({"offset": ["must be greater than or equal to 0"]})),
        ("limit=1.5", json!({"limit": ["is invalid"]})),
        ("limit=99999999999999999999", json!({"limit": ["is invalid"]})),
        ("params=x", json!({"params": ["params must be valid JSON"]})),
        ("params=[1]", json!({"params": ["params must be a JSON object"]})),
        ("params=%7B%221%22:null%7D", json!({"params": ["is invalid"]})),
        (
            "where=x&subset__params=%7B%222%22:1%7D",
            json!({"params": ["Parameters must be numbered sequentially, starting from 1"]}),
        ),
    ] {
        assert_eq!(errors(&format!("table=t&offset=-1&subset__{query}")), json!({ "subset": expected }), "{query}");
    }
}

#[test]
fn a_body_is_laid_over_the_query() {
    let body =
        json!({"table": "b", "replica": "full", "live": false, "cursor": "9", "columns": ["Id", "a"], "where_sql": 1});
    let request = post("table=a&offset=-1&cursor=7", &body).unwrap();
    assert_eq!((&*request.shape.table, request.shape.replica, request.live), ("b", Replica::Full, false));
    assert_eq!(request.shape.columns.unwrap(), ["Id", "a"]);
    assert_eq!(request.cursor.as_deref(), Some("7"));
    assert!(request.subset.is_none());
    assert_eq!(ShapeRequest::parse("table=a&offset=-1", Some(b"")).unwrap(), get("table=a&offset=-1"));
}

#[test]
fn members_of_a_subset_may_be_flat_or_nested() {
    let members = json!({
        "where": "a = $1", "params": {"1": "x", "2": 7}, "order_by": "a", "limit": 10, "offset": 2,
        "where_expr": {"x": 1}, "order_by_expr": [],
    });
    let flat = post("table=t&offset=-1&where=b&params[1]=z&subset__limit=3", &members).unwrap();
    let subset = flat.subset.as_deref().unwrap();
    assert_eq!((subset.limit, subset.offset, subset.params.len()), (Some(10), Some(2), 2));
    assert_eq!(flat.shape.where_sql.as_deref(), Some("b"), "the shape's predicate stays");
    assert_eq!(flat.offset, From::Start);
    let nested =
        post("", &json!({"subset": members, "where": "b", "params": {"1": "z"}, "offset": "-1", "table": "t"}))
            .unwrap();
    assert_eq!(nested, flat);
    let text = json!({"where": "a = $1", "params": "{\"1\":\"x\"}"});
    assert_eq!(post("table=t&offset=-1", &text).unwrap().subset.unwrap().params, ["x"]);
}

#[test]
fn wrong_bodies_are_refused() {
    let of = |body: &[u8]| ShapeRequest::parse("table=t&offset=-1", Some(body)).unwrap_err();
    assert!(matches!(of(b"{"), RequestError::Body(BodyError::NotJson(_))));
    assert!(matches!(of(&[b'['; 100_000]), RequestError::Body(BodyError::NotJson(_))), "not even deep ones");
    assert_eq!(of(b"[]"), RequestError::Body(BodyError::NotObject));
    assert_eq!(of(&vec![b' '; 8_000_001]), RequestError::Body(BodyError::TooLarge));
    let wrong = |body: Value| errors_of(post("offset=-1", &body).unwrap_err());
    assert_eq!(wrong(json!({"table": 7})), json!({"table": ["is invalid"]}));
    assert_eq!(wrong(json!({"table": "t\0"})), json!({"table": ["is invalid"]}));
    assert_eq!(wrong(json!({"table": "t", "subset": 7})), json!({"subset": ["is invalid"]}));
    assert_eq!(wrong(json!({"table": "t", "limit": "x"})), json!({"subset": {"limit": ["is invalid"]}}));
}

#[test]
fn a_delete_names_a_definition_or_a_handle() {
    let of = |query: &'static str| DeleteRequest::parse(query);
    assert_eq!(of("handle=h").unwrap(), DeleteRequest { shape: None, handle: Some("h".into()) });
    let both = of("table=t&where=x&handle=h&live=true&offset=whatever").unwrap();
    assert_eq!((both.shape, both.handle.as_deref()), (Some(get("table=t&where=x&offset=-1").shape), Some("h")));
    assert_eq!(
        errors_of(of("").unwrap_err().into()),
        json!({"handle": ["can't be blank when shape definition is missing"]})
    );
    assert!(of("table=a.b.c").is_err() && of("handle=h&replica=x").is_err());
}

#[test]
fn equal_definitions_have_equal_keys_however_they_are_spelled() {
    let key = |query: &str| get(&format!("{query}&offset=-1")).shape.key();
    let same = [
        "table=items&columns=a,b&where=x%3D1",
        "columns=%22b%22,A&table=public.Items&where=x=1&replica=default",
        "where=x=1&columns=a,b,a&table=%22public%22.%22items%22&log=full&params=&handle=3&live=false",
    ];
    same.iter().for_each(|query| assert_eq!(key(query), key(same[0]), "{query}"));
    let different = [
        "table=items&columns=a,b&where=x%3D1&params[1]=1",
        "table=items&columns=a,b&where=x%3D1&params[1]=2",
        "table=items&columns=a,b&where=x%3D1&params[1]=1&params[2]=",
        "table=items&columns=a,b&where=x%3D2",
        "table=items&columns=a,b",
        "table=items&columns=a",
        "table=items&columns=%22a,b%22",
        "table=items",
        "table=items&queryable_columns=a,b",
        "table=items&replica=full",
        "table=items&log=changes_only",
        "table=s.items",
        "table=item&where=s",
    ];
    let keys: std::collections::HashSet<Vec<u8>> = different.iter().map(|query| key(query)).collect();
    assert_eq!(keys.len(), different.len());
    assert!(!keys.contains(&key(same[0])));
}

fn parts(definition: &Definition) -> (Family, Condition) {
    (Family::of(definition, 1, String::new()), Condition::of(definition))
}

#[test]
fn a_definition_has_the_key_of_its_request() {
    for query in [
        "table=Items&offset=-1",
        "table=a.b&offset=-1&where=x=$1&params[1]=7&params[2]=8&columns=b,a&queryable_columns=a&replica=full&log=changes_only",
    ] {
        let shape = get(query).shape;
        let (family, condition) = parts(&shape.to_definition());
        assert_eq!(Shape::of(&family, &condition), shape);
        assert_eq!(Shape::of(&family, &condition).key(), shape.key());
    }
}

proptest! {
    #[test]
    fn no_request_panics(
        names in prop::collection::vec(
            "table|offset|handle|live|live_sse|where|columns|replica|log|params(\\[[a-c0-9]?\\]){0,2}|subset__[a-z_]{0,8}|subset\\[[a-z]{0,6}\\](\\[1\\])?|[a-z\\[\\]%]{0,5}",
            0..8,
        ),
        values in prop::collection::vec("-1|now|0_0|true|t|[a-z0-9_%+\"\\{\\},.]{0,10}", 8),
        body in prop::option::of("[\\[\\]{}\":,a-z0-9 ]{0,40}|\\{\"(where|limit|subset|params)\":[0-9\"{}\\[\\]]{0,4}\\}"),
    ) {
        let query = names.iter().zip(&values).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
        if let Err(RequestError::Invalid(invalid)) = ShapeRequest::parse(&query, body.as_deref().map(str::as_bytes)) {
            serde_json::from_slice::<Value>(&invalid.body()).unwrap();
        }
        let _ = DeleteRequest::parse(&query);
    }

    #[test]
    fn keys_tell_definitions_apart(a in definition(), b in definition()) {
        let key = |definition| {
            let (family, condition) = parts(definition);
            Shape::of(&family, &condition).key()
        };
        prop_assert_eq!(key(&a) == key(&b), a == b);
    }
}

fn definition() -> impl Strategy<Value = Definition> {
    let names = || prop::option::of(prop::collection::vec("[ab]{0,2}", 0..3));
    (
        ("[ab]{0,2}", "[ab]{0,2}"),
        prop::option::of(("[ab]{0,2}", prop::collection::vec("[ab]{0,1}", 0..3))),
        names(),
        names(),
        any::<[bool; 2]>(),
    )
        .prop_map(|((schema, name), predicate, columns, queryable, [full, changes])| {
            let (where_sql, params) = predicate.map_or((None, vec![]), |(sql, params)| (Some(sql), params));
            Definition {
                where_sql,
                params: (1..).zip(params).collect(),
                columns,
                queryable,
                replica: if full { Replica::Full } else { Replica::Default },
                log: if changes { LogMode::ChangesOnly } else { LogMode::Full },
                ..Definition::of_table(&schema, &name)
            }
        })
}

/// `cargo test -p thalweg-shapes-core --release -- --ignored --nocapture nanoseconds_a_request`
#[test]
#[ignore = "a measurement"]
fn nanoseconds_a_request() {
    for query in [
        "table=items&offset=26800584_4&handle=87654321-1763712000123456&live=true&cursor=35251200",
        "columns=id%2Ctitle&cursor=35251200&handle=87654321-1763712000123456&live=true&offset=26800584_4&params%5B1%5D=x&table=items&where=title%3D%241",
    ] {
        let (mut key, rounds) = (Vec::new(), 1_000_000_u32);
        let start = cpu_ns();
        for _ in 0..rounds {
            key.clear();
            get(std::hint::black_box(query)).shape.push_key(&mut key);
        }
        println!("{} ns: {query}", (cpu_ns() - start) / u64::from(rounds));
    }
}
