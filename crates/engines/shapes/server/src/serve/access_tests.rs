use super::*;
use proptest::prelude::*;
use thalweg_shapes_core::request::params::ShapeRequest;

fn grant(text: &str) -> Grant {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn grants(texts: &[&str]) -> Grants {
    texts.iter().map(|text| grant(text)).collect::<Vec<_>>().try_into().unwrap()
}

/// A narrowed request: where clause, parameters, columns, queryable columns; or the code of its refusal.
type Left = (Option<String>, Vec<String>, Option<Vec<String>>, Option<Vec<String>>);

fn ask(grants: &Grants, query: &str) -> Result<Left, &'static str> {
    let query = format!("{query}&offset=-1");
    let wanted = ShapeRequest::parse(&query, None).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let code = |narrowed| match narrowed {
        Narrowed::Beyond(beyond) => beyond.mapping().1,
        Narrowed::Invalid(_) => "invalid",
    };
    if let Some(subset) = &wanted.subset {
        grants.check_subset(&wanted.shape, subset).map_err(code)?;
    }
    let shape = grants.narrow(wanted.shape).map_err(code)?.shape;
    let texts = |list: Vec<Cow<'_, str>>| list.into_iter().map(Cow::into_owned).collect::<Vec<_>>();
    Ok((
        shape.where_sql.map(Cow::into_owned),
        texts(shape.params),
        shape.columns.map(texts),
        shape.queryable.map(texts),
    ))
}

fn some(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn a_grant_is_written_as_a_query_and_reads_back_from_what_tokens_hold() {
    let full =
        grant("table=public.Items&where=owner = $1 AND \"Kind\"=$2&params[2]=a%26b&params[1]=7&columns=id,\"Title\"");
    let json = serde_json::to_string(&full).unwrap();
    assert_eq!(
        json,
        r#"{"table":"\"public\".\"items\"","where":"owner = $1 AND \"Kind\"=$2","params":["7","a&b"],"columns":["Title","id"]}"#
    );
    assert_eq!(serde_json::from_str::<Grant>(&json).unwrap(), full);
    assert_eq!(serde_json::to_string(&grant("table=items")).unwrap(), r#"{"table":"\"public\".\"items\""}"#);
}

#[test]
fn what_cannot_be_granted_is_refused_and_says_why() {
    for (text, why) in [
        ("", "needs a `table`"),
        ("where=a=1", "needs a `table`"),
        ("table=", "needs a `table`"),
        ("table=a b", "special characters"),
        ("table=a.b.c", "too many delimiters"),
        ("table=t&table=u", "stands twice"),
        ("table=t&where=a=1&where=b=1", "stands twice"),
        ("table=t&where=(", "`where`: syntax error"),
        ("table=t&where=", "`where`: syntax error"),
        ("table=t&where=a=1)OR(1=1", "`where`: syntax error"),
        ("table=t&where=a=1;DROP TABLE t", "`where`"),
        ("table=t&where=a=$1", "there is no parameter $1"),
        ("table=t&where=a=$2&params[2]=x", "without gaps"),
        ("table=t&params[1]=x", "without a `where`"),
        ("table=t&params=x", "cannot be granted"),
        ("table=t&columns=", "columns"),
        ("table=t&columns=a,", "columns"),
        ("table=t&replica=full", "`replica` cannot be granted"),
        ("table=t&offset=-1", "`offset` cannot be granted"),
        ("table=t&where=a LIKE 'x%'", "%25"),
        ("table=t&where=a+b=1", "%2B"),
        ("table=t&where=a&&b LIKE '%x'", "no name that can be read"),
        ("table=t&where%=owner=7", "no name that can be read"),
        ("table=t&wh%ere=owner=7", "no name that can be read"),
    ] {
        assert!(text.parse::<Grant>().unwrap_err().contains(why), "{text}: {:?}", text.parse::<Grant>());
    }
    for json in [
        r#"{}"#,
        r#"{"table":"t","columns":[]}"#,
        r#"{"table":"t","columns":[""]}"#,
        r#"{"table":"t","where":"a = $1"}"#,
        r#"{"table":"t","wehre":"a = 1"}"#,
        r#"{"table":"t","where":null,"params":["x"]}"#,
        r#"[]"#,
    ] {
        assert!(serde_json::from_str::<Grant>(json).is_err(), "{json}");
    }
    let twice = vec![grant("table=t&where=a=1"), grant("table=public.t")];
    assert!(Grants::try_from(twice).unwrap_err().contains("named twice"));
    let many: Vec<Grant> = (0..=GRANTS_MAX).map(|n| grant(&format!("table=t{n}"))).collect();
    assert!(Grants::try_from(many).is_err());
}

#[test]
fn without_a_clause_the_grants_own_counts_in_its_own_words() {
    let grants = grants(&["table=items&where=owner=$1&params[1]=7"]);
    // So a client narrowed by a proxy and one narrowed by a token share one shape.
    let own = (Some("owner=$1".to_owned()), vec!["7".to_owned()], None, None);
    assert_eq!(ask(&grants, "table=items"), Ok(own.clone()));
    assert_eq!(ask(&grants, "table=public.ITEMS&params[1]=8"), Ok(own.clone()));
    assert_eq!(ask(&grants, "table=%22public%22.items&where=%20"), Ok(own));
}

#[test]
fn a_clients_clause_is_joined_and_its_parameters_are_its_own() {
    let grants = grants(&["table=items&where=owner=$1&params[1]=7"]);
    let (sql, params, ..) = ask(&grants, "table=items&where=a=$1 OR b=$2&params[1]=x&params[2]=y").unwrap();
    assert_eq!(sql.unwrap(), "(owner=$1\n) AND (a=$2 OR b=$3\n)");
    assert_eq!(params, ["7", "x", "y"]);
    let (sql, ..) = ask(&grants, "table=items&where=a=1 --").unwrap();
    assert_eq!(sql.unwrap(), "(owner=$1\n) AND (a=1 --\n)");
}

#[test]
fn other_tables_are_beyond_a_grant_however_they_are_written() {
    let grants = grants(&["table=items&where=owner=7", "table=s.notes"]);
    for table in ["users", "s.items", "notes", "public.notes", "\"Items\"", "items2", "\"items \"", "\"public.items\""]
    {
        let query = format!("table={}", table.replace(' ', "%20"));
        assert_eq!(ask(&grants, &query), Err("scope_missing"), "{table}");
    }
    assert!(ask(&grants, "table=S.Notes").is_ok());
}

#[test]
fn columns_are_those_of_the_grant_wherever_they_are_named() {
    let grants = grants(&["table=items&where=owner=7&columns=id,title"]);
    let of = |query: &str| {
        ask(&grants, &format!("table=items&{query}")).map(|(.., columns, queryable)| (columns, queryable))
    };
    let all = some(&["id", "title"]);
    assert_eq!(of(""), Ok((all.clone(), all.clone())));
    assert_eq!(of("columns=id"), Ok((some(&["id"]), all.clone())));
    assert_eq!(of("queryable_columns=id"), Ok((some(&["id"]), some(&["id"]))));
    assert_eq!(of("where=title='x'"), Ok((all.clone(), all)));
    for query in [
        "columns=id,owner",
        "columns=ID,OWNER",
        "columns=\"owner\",id",
        "columns[]=id&columns[]=owner",
        "queryable_columns=id,owner",
        "where=owner=7",
        "where=\"owner\"=7",
        "where=items.owner=7",
        "where=title=owner",
        "where=lower(secret)='x'",
        "where=title='x' OR NOT (id=1 AND secret IS NULL)",
        "where=secret IN ('a','b')",
        "where='a' = ANY (secret)",
        "where=title LIKE 'x' AND secret ILIKE 'y'",
        "where=items=items",
        "subset__where=owner=7",
        "subset__where=secret>'m'&subset__order_by=id&subset__limit=1",
    ] {
        assert_eq!(of(query), Err("column_not_granted"), "{query}");
    }
}

#[test]
fn nothing_that_could_fail_on_somebody_elses_row_stands_beside_a_clause() {
    let some_rows = grants(&["table=items&where=owner=7"]);
    let some_columns = grants(&["table=items&columns=id,title"]);
    for clause in ["1/(id-5)>0", "title::int=1", "id%2B1>0", "-id<0", "title LIKE title", "title LIKE 'a\\'"] {
        for place in ["where", "subset__where"] {
            let query = format!("table=items&{place}={clause}");
            assert_eq!(ask(&some_rows, &query), Err("where_not_granted"), "{query}");
            assert!(ask(&some_columns, &query).is_ok(), "all rows may be seen: {query}");
        }
    }
    assert!(ask(&some_rows, "table=items&where=lower(title) LIKE 'a%25' AND id BETWEEN 1 AND 9").is_ok());
}

#[test]
fn subqueries_are_for_tables_that_may_be_read_as_a_whole() {
    let rights =
        grants(&["table=items&where=owner=7", "table=tags", "table=s.parts&columns=id", "table=users&where=id=7"]);
    let of = |inner: &str| ask(&rights, &format!("table=items&where=id IN (SELECT id FROM {inner})"));
    assert!(of("tags").is_ok() && of("public.tags WHERE name = 'x'").is_ok() && of("tags AS users").is_ok());
    for inner in
        ["users", "public.users", "other", "s.parts", "parts", "tags WHERE id IN (SELECT id FROM users)", "items"]
    {
        assert_eq!(of(inner), Err("where_not_granted"), "{inner}");
    }
    assert_eq!(ask(&rights, "table=tags&where=id IN (SELECT id FROM users)"), Err("where_not_granted"));
    // The grant's own clause is not restricted.
    let own = grants(&["table=items&where=org IN (SELECT org FROM members WHERE person = $1)&params[1]=7"]);
    assert!(ask(&own, "table=items&where=title='x'").is_ok());
    assert_eq!(ask(&own, "table=items&where=org IN (SELECT org FROM members)"), Err("where_not_granted"));
}

#[test]
fn what_is_no_clause_by_itself_narrows_nothing() {
    let grants = grants(&["table=items&where=owner=7"]);
    for clause in [
        "1=1) OR (1=1",
        "1=1) --",
        "1=1) OR (1=1 --",
        "id=1 /*",
        "'",
        "id=1;",
        "id=1 UNION SELECT 1",
        "$1=1",
        "$0=1",
        "id=1,2",
    ] {
        let query = format!("table=items&where={clause}");
        assert_eq!(ask(&grants, &query), Err("invalid"), "{clause}");
    }
}

#[test]
fn a_token_of_a_token_has_what_both_allow() {
    let outer = grants(&["table=items&where=org=$1&params[1]=1&columns=id,title,owner", "table=tags"]);
    let under = |texts: &[&str]| grants(texts).under(&outer).map_err(|beyond| beyond.mapping().1);
    let left = under(&["table=items&where=owner=$1&params[1]=7&columns=id,title"]).unwrap();
    let (sql, params, columns, _) = ask(&left, "table=items&where=title=$1&params[1]=x").unwrap();
    assert_eq!(sql.unwrap(), "((org=$1\n) AND (owner=$2\n)\n) AND (title=$3\n)");
    assert_eq!((params, columns), (vec!["1".to_owned(), "7".to_owned(), "x".to_owned()], some(&["id", "title"])));
    assert_eq!(
        under(&["table=items"]).unwrap(),
        grants(&["table=items&where=org=$1&params[1]=1&columns=id,title,owner"])
    );
    assert_eq!(under(&["table=users"]), Err("scope_missing"));
    assert_eq!(under(&["table=items&columns=id,secret"]), Err("column_not_granted"));
    assert_eq!(under(&["table=items&where=secret='x'"]), Err("column_not_granted"));
    assert_eq!(under(&["table=items&where=1/id=1"]), Err("where_not_granted"));
    assert_eq!(under(&["table=items&where=id IN (SELECT id FROM users)"]), Err("where_not_granted"));
    assert!(under(&["table=items&where=id IN (SELECT id FROM tags)"]).is_ok());
    // Other grants of the outer token are not the inner one's.
    let left = under(&["table=items"]).unwrap();
    assert_eq!(ask(&left, "table=tags"), Err("scope_missing"));
    assert_eq!(ask(&left, "table=items&where=id IN (SELECT id FROM tags)"), Err("where_not_granted"));
}

#[test]
fn every_clause_beside_a_grants_own_is_told_by_itself() {
    let narrowing = |grants: &Grants, query: &str| {
        let query = format!("{query}&offset=-1");
        let narrowing = grants.narrow(ShapeRequest::parse(&query, None).unwrap().shape).unwrap().narrowing;
        narrowing.into_iter().map(|clause| (clause.sql, clause.params)).collect::<Vec<_>>()
    };
    let clause = |sql: &str, value: &str| (sql.to_owned(), vec![(1, value.to_owned())]);
    let some_rows = grants(&["table=items&where=org=$1&params[1]=1"]);
    let asked = "table=items&where=title=$1&params[1]=x";
    assert_eq!(narrowing(&some_rows, "table=items"), []);
    assert_eq!(narrowing(&some_rows, asked), [clause("title=$1", "x")]);
    assert_eq!(narrowing(&grants(&["table=items&columns=id,title"]), asked), [], "all rows are granted");
    let inner = grants(&["table=items&where=owner=$1&params[1]=7"]);
    let left = inner.under(&some_rows).unwrap();
    assert_eq!(narrowing(&left, "table=items"), [clause("owner=$1", "7")], "the holder of the outer token wrote it");
    assert_eq!(narrowing(&left, asked), [clause("owner=$1", "7"), clause("title=$1", "x")]);
    let whole = inner.under(&grants(&["table=items"])).unwrap();
    assert_eq!(narrowing(&whole, asked), [clause("title=$1", "x")], "the holder of the outer token may see all rows");
}

#[test]
#[ignore = "a measurement"]
fn what_a_grant_costs() {
    let grants = grants(&["table=items&where=owner=$1 AND org IN (1, 2, 3)&params[1]=7&columns=id,title,done"]);
    for query in ["table=items&offset=-1", "table=items&offset=-1&where=id%20>%202%20AND%20title%20LIKE%20'a%25'"] {
        let began = std::time::Instant::now();
        for _ in 0..100_000 {
            let wanted = ShapeRequest::parse(query, None).unwrap();
            std::hint::black_box(grants.narrow(wanted.shape).unwrap().shape.key());
        }
        println!("{query}: {:?} each", began.elapsed() / 100_000);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_grant_or_is_refused(text in "(table=[a-z.\"]{0,5})?(&(where|columns|params\\[[0-9]\\])=\\PC{0,12}){0,3}") {
        if let Ok(grant) = text.parse::<Grant>() {
            let json = serde_json::to_string(&grant).unwrap();
            prop_assert_eq!(serde_json::from_str::<Grant>(&json).unwrap(), grant);
        }
    }
}
