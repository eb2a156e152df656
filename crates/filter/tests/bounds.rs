//! For any clause on any row, the answer, or that it is too costly, comes soon, and takes little memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_filter::{Column, Index, Predicate, Schema, TooCostly};

/// Counts a thread's memory, and its peak.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: every call is passed on as it is.
#[allow(unsafe_code, reason = "an allocator that counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Result of `f`, its peak of additional memory, and its duration.
fn measured<T>(f: impl FnOnce() -> T) -> (T, usize, Duration) {
    let before = NOW.get();
    MOST.set(before);
    let began = Instant::now();
    let value = f();
    (value, usize::try_from(MOST.get() - before).unwrap_or(0), began.elapsed())
}

const COLUMNS: [(&str, u32, u32); 9] = [
    ("t", 25, 0),
    ("u", 25, 0),
    ("by", 17, 0),
    ("n", 1700, 0),
    ("j", 3802, 0),
    ("ta", 1009, 25),
    ("ia", 1007, 23),
    ("na", 1231, 1700),
    ("i", 23, 0),
];

fn schema() -> Schema {
    let column = |(name, type_oid, element_oid): (&str, u32, u32)| Column {
        name: name.into(),
        type_oid,
        element_oid,
        labels: Vec::new(),
        type_sql: String::new(),
    };
    Schema::new("t", COLUMNS.map(column).to_vec())
}

type Row = Vec<Option<String>>;

fn row(values: &[(&str, &str)]) -> Row {
    COLUMNS.iter().map(|(name, ..)| values.iter().find(|(n, _)| n == name).map(|(_, v)| (*v).to_owned())).collect()
}

fn borrowed(row: &Row) -> Vec<Option<&[u8]>> {
    row.iter().map(|value| value.as_deref().map(str::as_bytes)).collect()
}

/// Debug builds are slow, and the machine may be busy.
const SOON: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });

/// Reads a clause and evaluates it for a row, alone and through an index: all within bounds.
fn judge(clause: &str, params: &[(u32, String)], row: &Row) -> Option<Result<bool, TooCostly>> {
    let shown: String = clause.chars().take(60).collect();
    let given = clause.len() + params.iter().map(|(_, value)| value.len()).sum::<usize>();
    let (parsed, memory, time) = measured(|| Predicate::parse(clause, params, &schema()));
    assert!(memory < (160 << 20) + 100 * given, "{shown}: {memory} bytes to read it");
    assert!(time < SOON, "{shown}: {time:?} to read it");
    let predicate = parsed.ok()?;
    let (sql, _, time) = measured(|| predicate.sql());
    assert!(sql.len() < 64 << 20 && time < SOON, "{shown}: {} bytes of SQL in {time:?}", sql.len());

    let values = borrowed(row);
    let bytes: usize = values.iter().flatten().map(|value| value.len()).sum();
    // Budgets are 16 MiB and 128 bytes a byte for reading, 4 MiB and 32 for evaluating.
    let bound = (40 << 20) + 400 * bytes;
    let (held, memory, time) = measured(|| predicate.holds(&values));
    assert!(memory < bound.min(600 << 20), "{shown}: {memory} bytes for a row of {bytes}");
    assert!(time < SOON, "{shown}: {time:?} for a row of {bytes} bytes");

    let mut index = Index::new();
    index.insert(1, Some(&Arc::new(predicate)));
    let ((found, costly), memory, time) = measured(|| {
        let (mut found, mut costly) = (Vec::new(), Vec::new());
        index.matching(&values, &mut found, &mut costly);
        (found, costly)
    });
    assert!(memory < bound.min(600 << 20), "{shown}: {memory} bytes for a row of {bytes} through an index");
    assert!(time < SOON, "{shown}: {time:?} for a row of {bytes} bytes through an index");
    match held {
        Ok(held) => assert!(found == [1] && held || found.is_empty() && !held || costly == [1], "{shown}"),
        Err(TooCostly) => assert!(found.is_empty() && costly == [1], "{shown}: {found:?}"),
    }
    Some(held)
}

fn many(what: &str, count: usize) -> String {
    vec![what; count].join(", ")
}

/// `f` around `inner`, this many times.
fn nested(inner: &str, times: usize, f: impl Fn(&str) -> String) -> String {
    (0..times).fold(inner.to_owned(), |inner, _| f(&inner))
}

#[test]
fn every_operation_that_makes_much_of_little_is_too_costly() {
    let text = "x".repeat(200_000);
    let wide = row(&[("t", &text), ("u", "x"), ("by", &format!("\\x{}", "ab".repeat(100_000))), ("n", "7")]);
    let ints = format!("{{{}}}", vec!["7"; 50_000].join(","));
    let lists = row(&[
        ("ta", &format!("{{{}}}", vec!["abcdefgh"; 20_000].join(","))),
        ("ia", &ints),
        ("t", "a\"\\"),
        ("n", "3"),
    ]);
    let sixty = |what: &str| format!("concat({})", many(what, 60));
    let doubled = nested("t", 14, |t| format!("({t} || {t})").chars().take(60_000).collect());
    let cases: Vec<(String, &Row)> = vec![
        (format!("length({}) > 0", sixty(&sixty("t"))), &wide),
        (format!("octet_length({}) > 0", vec!["by"; 90].join(" || ")), &wide),
        ("replace(t, 'x', t) <> ''".into(), &wide),
        (format!("length({}) > 0", sixty("(u::char(10000000))::text")), &wide),
        (format!("cardinality({}) > 0", vec!["ia"; 90].join(" || ")), &lists),
        (format!("length({}) > 0", nested("t", 30, |t| format!("(ARRAY[{t}])::text"))), &lists),
        (format!("length(concat({})) > 0", many("by", 90)), &wide),
        (format!("{} > 0", vec!["n"; 90].join(" * ").replace('n', "(n * 1e900)")), &lists),
        (format!("cardinality(ARRAY[{}]) > 0", many("t", 90)), &wide),
    ];
    for (clause, row) in &cases {
        assert_eq!(judge(clause, &[], row), Some(Err(TooCostly)), "{}", &clause[..40]);
    }
    judge(&format!("length({doubled}) > 0"), &[], &wide);
    let clause = format!("length({}) > 0", sixty(&sixty("t")));
    assert_eq!(judge(&clause, &[], row_of("abc")), Some(Ok(true)), "a short value costs little");
    assert_eq!(judge(&format!("length({}) > 0", sixty("t")), &[], row_of("abc")), Some(Ok(true)));
}

/// A clause of functions and operators that are all allowed under a grant.
fn costly_on_any_row() -> String {
    let text = "x".repeat(2000);
    let one = format!("length({}coalesce(nullif(t, t), '{text}'){}) = 1", "lower(".repeat(60), ")".repeat(60));
    vec![one; 16].join(" OR ")
}

#[test]
fn what_comes_after_a_condition_that_is_not_true_is_never_too_costly() {
    let costly = costly_on_any_row();
    for (first, t, i, expected) in [
        ("i = 7", "abc", Some("7"), Err(TooCostly)),
        ("i = 7", "abc", Some("8"), Ok(false)),
        ("i = 7", "abc", None, Ok(false)),
        ("i = 7 AND u IS NOT NULL", "abc", Some("7"), Ok(false)),
        ("u = 'x' AND i = 7", "abc", Some("7"), Ok(false)),
        ("(u = 'x' AND i = 7) OR u = 'y'", "abc", Some("7"), Ok(false)),
        ("NOT (u = 'x')", "abc", Some("7"), Ok(false)),
    ] {
        let mut values = vec![("t", t)];
        values.extend(i.map(|i| ("i", i)));
        let row = row(&values);
        for second in [format!("t = 'abc' AND ({costly})"), format!("({costly})")] {
            let clause = thalweg_filter::both(first, 0, &second).unwrap();
            assert_eq!(judge(&clause, &[], &row), Some(expected), "{first}, i is {i:?}");
        }
    }
}

fn row_of(text: &'static str) -> &'static Row {
    Box::leak(Box::new(row(&[("t", text), ("u", text), ("n", "2"), ("i", "5")])))
}

#[test]
fn what_a_row_is_left_out_by_decides_before_what_is_too_costly() {
    let pattern = format!("%{}b", "a".repeat(2000));
    let text = "a".repeat(100_000);
    let [null, other, same] = ["", "8", "7"].map(|i| {
        let cells = [("t", &*text), ("u", &*pattern), ("i", i)];
        row(&cells[..if i.is_empty() { 2 } else { 3 }])
    });
    for clause in ["i = 7 AND t LIKE u", "(i = 7 OR i = 6) AND t LIKE u", "(i = 7\n) AND (n IS NULL AND t LIKE u\n)"] {
        assert_eq!(judge(clause, &[], &null), Some(Ok(false)), "{clause}: null is not true, whatever comes behind it");
        assert_eq!(judge(clause, &[], &other), Some(Ok(false)), "{clause}");
        assert_eq!(judge(clause, &[], &same), Some(Err(TooCostly)), "{clause}");
    }
}

#[test]
fn every_operation_that_takes_long_is_too_costly() {
    let ays = "a".repeat(1_000_000);
    let long = row(&[("t", &ays), ("u", &format!("%{}b", "a".repeat(2000)))]);
    assert_eq!(judge("t LIKE u", &[], &long), Some(Err(TooCostly)));
    assert_eq!(judge("t ILIKE u", &[], &long), Some(Err(TooCostly)));
    assert_eq!(judge(&format!("t LIKE ANY(ARRAY[{}])", many("u", 50)), &[], &long), Some(Err(TooCostly)));
    assert_eq!(judge("t LIKE '%aab%'", &[], &long), Some(Ok(false)), "once through the text is not too much");
    assert_eq!(judge("t ILIKE '%AAA%'", &[], &long), Some(Ok(true)));

    let digits = "7".repeat(131_000);
    let number = row(&[("n", &digits), ("t", "1e131000"), ("u", "1e-16383"), ("i", "3")]);
    for clause in ["n * n > 0", "n / 3.0000001 > 0", "n::text LIKE '7%'", "t::numeric * t::numeric > 1"] {
        assert_eq!(judge(clause, &[], &number), Some(Err(TooCostly)), "{clause}");
    }
    assert_eq!(judge("n > 5", &[], &number), Some(Ok(true)));
    assert_eq!(judge("u::numeric < 0.5", &[], &number), Some(Ok(true)));

    let list =
        |of: &str, count: usize| format!("[{}]", (0..count).map(|i| format!("{of}{i}")).collect::<Vec<_>>().join(","));
    let documents = row(&[("j", &list("", 20_000)), ("t", &list("77777", 20_000))]);
    assert_eq!(judge("j @> t::jsonb", &[], &documents), Some(Ok(false)), "the first is not there");
    let backwards = row(&[
        ("j", &list("", 20_000)),
        ("t", &format!("[{}]", (0..20_000).rev().map(|i| i.to_string()).collect::<Vec<_>>().join(","))),
    ]);
    assert_eq!(judge("j @> t::jsonb", &[], &backwards), Some(Err(TooCostly)));
    let exponents = row(&[("t", &format!("[{}]", vec!["1e131000"; 20_000].join(",")))]);
    assert_eq!(judge("t::jsonb @> '1'", &[], &exponents), Some(Err(TooCostly)));
    let deep = row(&[("j", &("[".repeat(600) + &"]".repeat(600)))]);
    assert_eq!(judge("j @> '1'", &[], &deep), Some(Err(TooCostly)), "Postgres reads deeper ones");

    let arrays = row(&[("ia", &format!("{{{}}}", (0..30_000).map(|i| i.to_string()).collect::<Vec<_>>().join(",")))]);
    assert_eq!(
        judge("(ia || -1) @> ia[2:] AND ia[20000:] && (ARRAY[-7] || ia[:15000])", &[], &arrays),
        Some(Err(TooCostly))
    );
}

#[test]
fn a_clause_whose_meaning_is_larger_than_its_text_is_refused() {
    let between = nested("i BETWEEN 1 AND 2", 60, |inner| format!("({inner}) BETWEEN SYMMETRIC false AND true"));
    assert_eq!(judge(&between, &[], row_of("x")), None);
    let among = nested("i", 40, |inner| format!("nullif(({inner}) IN (i, 1 + i, 2 + i, 3 + i), true)::int"));
    assert_eq!(judge(&format!("{among} = 1"), &[], row_of("x")), None);
    let constant =
        nested("'x'", 60, |inner| format!("concat({inner}, {inner})").chars().take(30_000).collect::<String>());
    judge(&format!("{constant} = t"), &[], row_of("x"));
    let big = "9".repeat(250_000);
    let params = [(1, big.clone())];
    assert_eq!(judge(&format!("t IN ({})", many("$1", 5000)), &params, row_of("x")), None);
    assert_eq!(judge(&vec!["t = $1"; 5000].join(" OR "), &params, row_of("x")), None);
    assert_eq!(judge("t = $1 OR u = $1", &params, row_of("x")), Some(Ok(false)));
    let pattern = [(1, "a".repeat(200_000)), (2, format!("%{}b", "a".repeat(4000)))];
    let folded = ["$1::text LIKE $2::text"; 5].join(" OR ");
    assert_eq!(judge(&folded, &pattern, row_of("x")), None, "constants that take too long to compute");
}

#[test]
fn a_clause_that_is_too_large_is_for_no_other_parser_either() {
    let oversized = |clause: &str| Predicate::parse(clause, &[], &schema()).unwrap_err().oversized;
    for large in [
        format!("t = '{}'", "x".repeat(64 << 10)),
        format!("{}i = 1{}", "(".repeat(5000), ")".repeat(5000)),
        nested("i BETWEEN 1 AND 2", 60, |inner| format!("({inner}) BETWEEN SYMMETRIC false AND true")),
        // An incomplete clause: its size is unknown.
        nested("i", 7, |inner| format!("({inner} IN (1, 2))")) + " AND",
    ] {
        assert!(oversized(&large), "{}", &large[..60]);
    }
    for wrong in ["i = 'x'", "no_such_column = 1", "i = ", "unknown_function(i) IN (1, 2)"] {
        assert!(!oversized(wrong), "{wrong}: Postgres says what is wrong with it");
    }
}

#[test]
fn what_many_clauses_cost_together_for_one_row_has_a_bound() {
    let schema = schema();
    let text = "a".repeat(60_000);
    let row = row(&[("t", &text), ("u", "x")]);
    let values = borrowed(&row);
    let mut index = Index::new();
    for i in 0..400 {
        let clause = format!("(t || u LIKE '%{}b{i}') IS NOT TRUE", "a".repeat(20));
        index.insert(i, Some(&Arc::new(Predicate::parse(&clause, &[], &schema).unwrap())));
    }
    for i in 400..500 {
        index.insert(i, Some(&Arc::new(Predicate::parse("u <> 'y'", &[], &schema).unwrap())));
    }
    let (mut found, mut costly) = (Vec::new(), Vec::new());
    let began = Instant::now();
    index.matching(&values, &mut found, &mut costly);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let heavy = found.iter().filter(|key| **key < 400).count();
    assert_eq!((heavy + costly.len(), found.len() - heavy), (400, 100), "cheap clauses are not affected");
    assert!((10..200).contains(&heavy), "{heavy} had their turn before the bound");
}

#[test]
fn a_key_that_is_too_costly_to_compute_leaves_none_out() {
    let schema = schema();
    let text = "x".repeat(200_000);
    let row = row(&[("t", &text), ("u", "x"), ("i", "7")]);
    let costly = format!("length(concat({}))", many("t", 200));
    let mut index = Index::new();
    for (key, clause) in
        [format!("{costly} = 5"), format!("i = 7 AND {costly} > 5"), format!("i = 8 AND {costly} = 5"), "i = 7".into()]
            .iter()
            .enumerate()
    {
        index.insert(key, Some(&Arc::new(Predicate::parse(clause, &[], &schema).unwrap())));
    }
    let (mut found, mut undecided) = (Vec::new(), Vec::new());
    index.matching(&borrowed(&row), &mut found, &mut undecided);
    assert_eq!((found, undecided), (vec![3], vec![0, 1]));
}

#[test]
fn pieces_of_long_texts_are_found_whichever_way_is_quicker() {
    let schema = schema();
    let text = format!("{}needle{}", "abc".repeat(60_000), "xyz".repeat(60_000));
    let row = row(&[("t", &text)]);
    let mut index = Index::new();
    for (key, piece) in ["needle", "edle", "le", "q", "nadel", "bcabcabc"].iter().enumerate() {
        index.insert(key, Some(&Arc::new(Predicate::parse(&format!("t LIKE '%{piece}%'"), &[], &schema).unwrap())));
    }
    let (mut found, mut costly) = (Vec::new(), Vec::new());
    index.matching(&borrowed(&row), &mut found, &mut costly);
    assert_eq!((found, costly), (vec![0, 1, 2, 5], vec![]));
}

/// Operations by the type of their result: a letter in braces is an operand of that type, `{x*}` the same operand many
/// times.
const OPERATIONS: [(char, &[&str]); 5] = [
    (
        't',
        &[
            "t",
            "u",
            "$1",
            "'ab'",
            "concat({t*})",
            "({t} || {t})",
            "replace({t}, 'a', {t})",
            "({t})::char(100000)",
            "({a})::text",
            "({j})::text",
            "({n})::text",
            "({b})::text",
            "upper(btrim({t}, t))",
            "coalesce(nullif({t}, {t}), greatest({t}, u))",
        ],
    ),
    (
        'n',
        &[
            "n",
            "i",
            "3",
            "1.5",
            "u::numeric",
            "({n} * {n})",
            "({n} / {n})",
            "({n} % {n} + {n})",
            "length({t})",
            "cardinality({a})",
            "strpos({t}, u)",
        ],
    ),
    (
        'a',
        &[
            "ta",
            "ARRAY[t]",
            "({a} || {a})",
            "array_append({a}, {t})",
            "ARRAY[{t*}]",
            "(({a})::text)::text[]",
            "({a})[2:]",
        ],
    ),
    ('j', &["j", "t::jsonb", "({t})::jsonb", "({j} -> 'a')", "({j} #> '{a,0}')"]),
    ('b', &["by", "({b} || {b})"]),
];
const CONDITIONS: [&str; 7] = [
    "{t} LIKE {t}",
    "{a} @> {a}",
    "{j} @> {j}",
    "{n} > {n}",
    "{t} = ANY({a})",
    "octet_length({b}) > 5 OR {t} ILIKE '%a%'",
    "{t} < {t} OR {j} = {j}",
];

/// A template with its operands. Below the depth limit operands are columns or constants.
fn expression(random: &mut oorandom::Rand32, template: &str, depth: u32) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let operand = OPERATIONS
            .iter()
            .find(|(kind, _)| rest[at + 1..].starts_with(*kind))
            .filter(|_| rest[at + 2..].starts_with('}') || rest[at + 2..].starts_with("*}"));
        let Some((_, choices)) = operand else {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        };
        out.push_str(&rest[..at]);
        let simple = choices.iter().take_while(|choice| !choice.contains('{')).count() as u32;
        let range = if depth == 0 { simple } else { choices.len() as u32 };
        let chosen = choices[random.rand_range(0..range) as usize];
        let inner = expression(random, chosen, depth.saturating_sub(1));
        let times = if rest[at + 2..].starts_with('*') { 2 + random.rand_range(0..40) as usize } else { 1 };
        out.push_str(&many(&inner, times));
        rest = &rest[at + rest[at..].find('}').unwrap() + 1..];
    }
    out + rest
}

fn condition(seed: u64) -> String {
    let mut random = oorandom::Rand32::new(seed);
    let (which, depth) = (random.rand_range(0..CONDITIONS.len() as u32), 1 + random.rand_range(0..7));
    expression(&mut random, CONDITIONS[which as usize], depth)
}

#[test]
fn most_random_clauses_are_understood() {
    let understood =
        (0..500).filter(|seed| Predicate::parse(&condition(*seed), &[(1, "x".into())], &schema()).is_ok()).count();
    assert!(understood > 250, "{understood}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 48 } else { 512 }))]

    #[test]
    fn random_clauses_are_evaluated_within_bounds(seed in any::<u64>(), length in 0_usize..120_000, what in 0_usize..5) {
        let piece = ["a", "%a", "\"\\", "{1,2},", "[1,{\"a\":7}],"][what];
        let text: String = piece.chars().cycle().take(length).collect();
        let document = format!("{{\"a\": [{}]}}", vec!["17"; length / 4 + 1].join(","));
        let array = format!("{{{}}}", vec!["ab"; length / 8 + 1].join(","));
        let row = row(&[
            ("t", &text), ("u", if what == 1 { "1e100000" } else { "1e-16000" }), ("by", &format!("\\x{}", "a0".repeat(length / 2))),
            ("n", &"7".repeat(length.clamp(1, 131_000))), ("j", &document), ("ta", &array), ("i", "7"),
        ]);
        judge(&condition(seed), &[(1, "a".repeat(length.min(50_000)))], &row);
    }
}
