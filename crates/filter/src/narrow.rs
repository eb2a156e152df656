//! Facts about a clause, for a caller that lets clients narrow a clause of its own: its columns and tables, and whether
//! it can fail on a row; and the conjunction of two clauses.
//!
//! Postgres evaluates the two sides of an AND in any order. An operation that fails on some rows (a division, a cast
//! from text) would reveal rows that the other side excludes: by the error itself, and by the value in the error's
//! text. So clients' clauses must hold no operation that can fail, as row security evaluates only leakproof functions
//! before its policies.
//!
//! The text of a clause shows most of that without its table ([`uses`]). Implicit casts depend on the types of columns:
//! they are known once the clause is analysed ([`Predicate::may_fail`], [`Condition::may_fail`]).

use crate::condition::{Condition, Filter, Named, Position, named};
use crate::error::ParseError;
use crate::expr::Expr;
use crate::like;
use crate::predicate::Predicate;
use crate::syntax::{self, Kind, Node};
use crate::types::cast;

/// Names and operations of a clause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uses {
    /// Columns of the table that it is about, each once; not those of subqueries' tables.
    pub columns: Vec<String>,
    /// Tables of subqueries, each once.
    pub tables: Vec<Named>,
    /// An operation that is not known to succeed on every row, by its text.
    pub may_fail: Option<String>,
}

/// Comparisons of any type, and questions to arrays and jsonb: they have an answer for every value.
const OPERATORS: [&str; 16] =
    ["=", "<>", "<", "<=", ">", ">=", "@>", "<@", "&&", "?", "?|", "?&", "->", "->>", "#>", "#>>"];
const COMPARISONS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];
const FUNCTIONS: [&str; 13] = [
    "lower",
    "upper",
    "length",
    "octet_length",
    "coalesce",
    "nullif",
    "starts_with",
    "btrim",
    "ltrim",
    "rtrim",
    "strpos",
    "cardinality",
    "array_length",
];

/// Reads a clause without knowing its table.
pub fn uses(sql: &str, params: &[(u32, String)]) -> Result<Uses, ParseError> {
    let tree = syntax::parse(sql, params).map_err(|refusal| refusal.locate(sql))?;
    let mut uses = Uses::default();
    collect(&tree, true, &mut uses);
    Ok(uses)
}

/// The conjunction of two clauses. Parameters of `second` are renumbered to follow the `first_params` of the first.
/// Each must be a complete clause, so neither can affect the other's parse: a comment ends with its line, and each
/// clause has its own lines.
pub fn both(first: &str, first_params: u32, second: &str) -> Result<String, ParseError> {
    let second = syntax::renumbered(second, first_params).map_err(|refusal| refusal.locate(second))?;
    Ok(format!("({first}\n) AND ({second}\n)"))
}

/// `outer`: columns are those of the table that the clause is about.
fn collect(node: &Node, outer: bool, uses: &mut Uses) {
    match &node.kind {
        Kind::Column { name, .. } if outer && !uses.columns.contains(name) => uses.columns.push(name.clone()),
        Kind::InQuery { operand, query, .. } => {
            let named = named(query);
            if !uses.tables.contains(&named) {
                uses.tables.push(named);
            }
            collect(operand, outer, uses);
            query.columns.iter().chain(&query.condition).for_each(|inner| collect(inner, false, uses));
            return;
        }
        _ => {}
    }
    if uses.may_fail.is_none() && has_columns(node) {
        uses.may_fail = failing(node);
    }
    node.children().into_iter().for_each(|child| collect(child, outer, uses));
}

/// An expression without columns is computed once, before any row.
fn has_columns(node: &Node) -> bool {
    matches!(node.kind, Kind::Column { .. }) || node.children().into_iter().any(has_columns)
}

/// A reason for which the node itself may fail on some row; its children are checked separately.
fn failing(node: &Node) -> Option<String> {
    let unless = |known: bool, what: &str| (!known).then(|| what.to_owned());
    match &node.kind {
        Kind::Column { .. } | Kind::Number(_) | Kind::String(_) | Kind::Bool(_) | Kind::Null => None,
        Kind::And(_) | Kind::Or(_) | Kind::Not(_) | Kind::Is { .. } | Kind::Distinct { .. } => None,
        Kind::In { .. } | Kind::InQuery { .. } | Kind::Between { .. } | Kind::Array(_) | Kind::Row(_) => None,
        Kind::Element(..) | Kind::Slice(..) => None,
        Kind::Binary(operator, ..) => unless(OPERATORS.contains(&operator.as_str()), operator),
        Kind::Quantified { operator, .. } => unless(COMPARISONS.contains(&operator.as_str()), operator),
        Kind::Prefix(operator, _) => Some(operator.clone()),
        Kind::Call(name, _) => unless(FUNCTIONS.contains(&name.as_str()), name),
        // Every value has a text.
        Kind::Cast(_, to) => {
            unless(to.name == "text" && to.modifiers.is_empty() && !to.array, &format!("::{}", to.name))
        }
        // A pattern that ends in a lone escape is an error for the rows whose match reaches it.
        Kind::Like { pattern, escape, .. } => match (&pattern.kind, escape) {
            (Kind::String(pattern), None) => unless(like::is_whole(pattern), "LIKE with such a pattern"),
            _ => Some("LIKE with a pattern that is no constant".to_owned()),
        },
    }
}

impl Predicate {
    /// An operation that may fail on some row because of the types of its operands, though the clause's text does not
    /// show it.
    pub fn may_fail(&self) -> Option<String> {
        failing_by_type(&self.expr)
    }
}

impl Condition {
    /// The same as [`Predicate::may_fail`], in the subqueries too: Postgres runs a subquery when the first row asks for
    /// it.
    pub fn may_fail(&self) -> Option<String> {
        self.positions().iter().find_map(|position| match position {
            Position::Row(predicate) => predicate.may_fail(),
            Position::In(membership) => {
                membership.expressions().find_map(failing_by_type).or_else(|| match &membership.query.filter {
                    Filter::All => None,
                    Filter::Row(predicate) => predicate.may_fail(),
                    Filter::Nested(condition) => condition.may_fail(),
                })
            }
        })
    }
}

fn failing_by_type(expr: &Expr) -> Option<String> {
    let children = expr.children();
    let own = match expr {
        Expr::Cast { from, to, .. } if !cast::is_total(*from, *to) => {
            Some(format!("the cast of {} to {}", from.name(), to.name()))
        }
        Expr::Fit { base, .. } => Some(format!("the cast to a length of {}", base.name())),
        // An expression of constants that can be computed has become its value.
        _ if !children.is_empty() && children.iter().all(|child| matches!(child, Expr::Const(..))) => {
            Some("an expression of constants that cannot be computed beforehand".to_owned())
        }
        _ => None,
    };
    own.or_else(|| children.iter().find_map(failing_by_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, InnerTable, Schema};
    use proptest::prelude::*;

    fn of(sql: &str) -> Uses {
        uses(sql, &[(1, "a".into()), (2, "b%".into())]).unwrap()
    }

    #[test]
    fn columns_and_tables_are_found_however_they_are_written() {
        for (sql, columns) in [
            ("a = 1", vec!["a"]),
            ("1 = A", vec!["a"]),
            (r#""A" = 1"#, vec!["A"]),
            ("t.a = 1 AND public.t.b IS NULL", vec!["a", "b"]),
            ("NOT (a OR (b AND c))", vec!["a", "b", "c"]),
            ("a BETWEEN b AND c", vec!["a", "b", "c"]),
            ("coalesce(a, lower(b)) LIKE 'x'", vec!["a", "b"]),
            ("(a, b) IN ((1, c))", vec!["a", "b", "c"]),
            ("a[b] = ANY (c)", vec!["a", "b", "c"]),
            ("a::text = CAST(b AS text)", vec!["a", "b"]),
            ("a->'x'->>b = c", vec!["a", "b", "c"]),
            ("a IS DISTINCT FROM b", vec!["a", "b"]),
            ("a /* AND b */ = 1 -- AND c", vec!["a"]),
            ("$1 = 'a'", vec![]),
        ] {
            assert_eq!(of(sql).columns, columns, "{sql}");
        }
        let asked = of("a IN (SELECT b FROM s.u WHERE c IN (SELECT d FROM v WHERE e = 1)) AND f = 1");
        assert_eq!(asked.columns, ["a", "f"]);
        let named = |schema: Option<&str>, name: &str| Named { schema: schema.map(Into::into), name: name.into() };
        assert_eq!(asked.tables, [named(Some("s"), "u"), named(None, "v")]);
    }

    #[test]
    fn what_may_fail_on_some_row_is_named() {
        for sql in [
            "a = 1",
            "a IN (1, 2) AND b <> 'x' OR NOT c",
            "a BETWEEN 1 AND 2",
            "a LIKE $2",
            r"a NOT ILIKE 'a\%b'",
            "lower(a) = upper($1) AND length(a) > 3 AND starts_with(a, 'x')",
            "a::text = '1'",
            "a > 1 + 2 * 3 AND b < '2020-01-01'::date - 7 AND c = 1 / 2",
            "a = ANY ('{1,2}') AND 5 = ANY (b) AND c @> '{1}'",
            "a->'b'->>'c' = 'x' AND a ? 'k'",
            "a IN (SELECT b FROM u WHERE c = 1)",
        ] {
            assert_eq!(of(sql).may_fail, None, "{sql}");
        }
        for (sql, what) in [
            ("1 / a > 0", "/"),
            ("a + 1 > 0", "+"),
            ("-a > 0", "-"),
            ("a::int = 1", "::integer"),
            ("a::varchar(3) = 'x'", "::character varying"),
            ("a::text[] = '{}'", "::text"),
            ("cast(a as date) = '2020-01-01'", "::date"),
            ("int4(a) = 1", "int4"),
            ("date '2020-01-01' + a > b", "+"),
            ("a AT TIME ZONE 'UTC' > b", "timezone"),
            (r"a LIKE 'x\'", "LIKE with such a pattern"),
            ("a LIKE b", "LIKE with a pattern that is no constant"),
            ("a LIKE 'x' || $1", "LIKE with a pattern that is no constant"),
            ("a LIKE 'x' ESCAPE '!'", "LIKE with a pattern that is no constant"),
            ("a LIKE ANY (b)", "~~"),
            ("a || b = 'x'", "||"),
            ("b AND (c OR (a = 1 AND NOT 2 = (a % 0)))", "%"),
            ("a IN (SELECT b FROM u WHERE 1 / c = 1)", "/"),
            ("repeat(a, 1000000000) = 'x'", "repeat"),
        ] {
            assert_eq!(of(sql).may_fail.as_deref(), Some(what), "{sql}");
        }
    }

    /// Clauses on columns of many types; subqueries use the same table.
    fn by_type(sql: &str) -> Option<String> {
        let column = |(name, type_oid): (&str, u32)| Column { name: name.into(), type_oid, ..Column::default() };
        let columns = [
            ("t", 25),
            ("i", 23),
            ("l", 20),
            ("n", 1700),
            ("r", 700),
            ("f", 701),
            ("d", 1082),
            ("ts", 1114),
            ("tz", 1184),
            ("c", 1042),
        ];
        let schema = Schema::new("x", columns.map(column).to_vec());
        let columns = schema.clone();
        let find = move |_: &Named| Some(InnerTable { oid: 1, sql: "x".into(), columns: columns.clone() });
        let of =
            |sql: &str| Condition::parse(sql, &[], &schema, &find).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(uses(sql, &[]).unwrap().may_fail, None, "{sql}");
        let predicate = Predicate::parse(sql, &[], &schema);
        let whole = of(sql).may_fail();
        predicate.into_iter().for_each(|predicate| assert_eq!(predicate.may_fail(), whole, "{sql}"));
        whole
    }

    #[test]
    fn a_cast_that_nobody_wrote_and_that_may_fail_is_named() {
        for sql in [
            "n > 1.5 AND n = 1 AND i < n AND l = i AND i = f AND r > 1.5 AND f = r",
            "d = '2030-01-01' AND d < '2030-01-01'::date AND ts < '2030-01-01' AND ts = tz",
            "t = c AND c = 'x' AND t = 'a' || 'b' AND coalesce(t, 'x') = lower(c)",
            "n::text = '1' AND d::text = ts::text",
            "i IN (SELECT l FROM x WHERE n > 1) AND t IN (SELECT t FROM x)",
            "d BETWEEN '2020-01-01' AND '2030-01-01'::date - 1 AND n = ANY ('{1,2}')",
        ] {
            assert_eq!(by_type(sql), None, "{sql}");
        }
        let (real, double) = ("the cast of numeric to real", "the cast of numeric to double precision");
        let (plain, zoned) = ("timestamp without time zone", "timestamp with time zone");
        let (plain, zoned) = (&*format!("the cast of date to {plain}"), &*format!("the cast of date to {zoned}"));
        for (sql, what) in [
            ("t < 'OT' OR coalesce(n, 1::real) > 0", real),
            ("n = f", double),
            ("n > 1::double precision", double),
            ("n BETWEEN 1 AND f", double),
            ("n IN (1, f)", double),
            ("NOT (i = 1 AND n IS DISTINCT FROM f)", double),
            ("n = ANY (ARRAY[f, 1])", double),
            ("d < '2030-01-01'::timestamp", plain),
            ("d = tz", zoned),
            ("tz IN (d)", zoned),
            ("f IN (SELECT n FROM x)", double),
            ("n IN (SELECT f FROM x)", double),
            ("i IN (SELECT i FROM x WHERE n = f)", double),
            ("i IN (SELECT i FROM x WHERE i IN (SELECT i FROM x WHERE d = ts))", plain),
            ("d > ('9' || 'x')::date", "the cast of text to date"),
            ("t = 'x' OR i = 1 / 0", "an expression of constants that cannot be computed beforehand"),
        ] {
            assert_eq!(by_type(sql).as_deref(), Some(what), "{sql}");
        }
    }

    #[test]
    fn neither_of_two_clauses_reaches_into_the_other() {
        let joined = |second| both("a = $1", 1, second).unwrap();
        assert_eq!(joined("b = $1 OR $2 = c"), "(a = $1\n) AND (b = $2 OR $3 = c\n)");
        assert_eq!(joined("b = '$1' -- $1"), "(a = $1\n) AND (b = '$1' -- $1\n)");
        assert_eq!(joined("b = $x$ $1 $x$"), "(a = $1\n) AND (b = $x$ $1 $x$\n)");
        assert_eq!(joined(r#""$1" = $10"#), "(a = $1\n) AND (\"$1\" = $11\n)");
        for broken in
            ["b = 1) OR (1 = 1", "b = 1) --", "b = 1 /*", "b = '", "b = $x$", "\"b", "", "b = 1; SELECT 1", "b, c"]
        {
            assert!(uses(broken, &[]).is_err(), "{broken}");
        }
    }

    const COLUMNS: [&str; 3] = ["a", "b", "c"];

    proptest! {
        /// Any complete clause narrows: the conjunction parses, and holds exactly where both hold.
        #[test]
        fn a_row_that_satisfies_both_satisfies_each(second in r"[abc]( )?(=|<|<>|IS NULL OR|OR|AND NOT)( )?(\$1|'1'|[abc]|1|\(|\)|--|/\*|\*/|')*( )?[=abc1)]*",
                                                   row in prop::collection::vec(prop::option::of("[1-3]"), 3)) {
            let schema = Schema::new("t", COLUMNS.map(|name| Column { name: name.into(), type_oid: 25, ..Column::default() }).to_vec());
            let params = [(1, "1".to_owned())];
            let first = "a = $1 OR b = 'x' -- first";
            let row: Vec<Option<&[u8]>> = row.iter().map(|text| text.as_ref().map(String::as_bytes)).collect();
            let parse = |sql: &str, params: &[(u32, String)]| Predicate::parse(sql, params, &schema);
            let Ok(alone) = parse(&second, &params) else { return Ok(()) };
            let sql = both(first, 1, &second).unwrap();
            let joined = parse(&sql, &[(1, "1".to_owned()), (2, "1".to_owned())]).unwrap();
            let claimed = parse(first, &params).unwrap();
            let holds = |predicate: &Predicate| predicate.holds(&row[..]).unwrap();
            prop_assert_eq!(holds(&joined), holds(&claimed) && holds(&alone), "{}", sql);
        }

        #[test]
        fn no_text_panics(sql in "\\PC{0,40}") {
            let _ = uses(&sql, &[]);
            let _ = both("true", 3, &sql);
        }
    }
}
