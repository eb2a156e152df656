//! Random conditions over the whole documented language.

use crate::random::Random;
use crate::schema::{Column, Kind, Table, quote};

/// A condition with numbered parameters, as it is sent; [`Clause::inlined`] is what Postgres is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clause {
    pub(crate) text: String,
    pub(crate) params: Vec<String>,
    pub(crate) has_subquery: bool,
}

impl Clause {
    /// The same condition without parameters: `$n` becomes a literal of no type yet, which Postgres types like a
    /// parameter.
    pub(crate) fn inlined(&self) -> String {
        let mut out = String::new();
        let mut rest = self.text.as_str();
        let mut in_quotes = false;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            if c == '\'' {
                in_quotes = !in_quotes;
            }
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            if c == '$' && !in_quotes && digits > 0 {
                let number: usize = rest[..digits].parse().unwrap_or(0);
                rest = &rest[digits..];
                out += &self.params.get(number.wrapping_sub(1)).map_or_else(|| "NULL".to_owned(), |p| quote(p));
            } else {
                out.push(c);
            }
        }
        out
    }
}

/// The parts of SQL that conditions may use.
#[derive(Clone, Copy)]
pub(crate) struct Language<'a> {
    pub(crate) tables: &'a [Table],
    pub(crate) subqueries: bool,
    pub(crate) params: bool,
}

pub(crate) fn random(language: Language<'_>, table: usize, random: &mut Random) -> Clause {
    let mut maker = Maker { language, random, clause: Clause::default(), nesting: 0 };
    let depth = maker.random.below(3);
    let text = maker.condition(table, depth, language.subqueries);
    maker.clause.text = text;
    maker.clause
}

struct Maker<'a, 'r> {
    language: Language<'a>,
    random: &'r mut Random,
    clause: Clause,
    nesting: usize,
}

impl Maker<'_, '_> {
    fn condition(&mut self, table: usize, depth: usize, subqueries: bool) -> String {
        if depth == 0 {
            if subqueries && self.random.percent(if self.nesting == 0 { 35 } else { 20 }) {
                return self.subquery(table);
            }
            return self.leaf(table);
        }
        let left = self.condition(table, depth - 1, subqueries);
        match self.random.below(5) {
            0 => format!("NOT ({left})"),
            1 | 2 => {
                let right = self.condition(table, depth - 1, subqueries);
                format!("({left}) AND ({right})")
            }
            _ => {
                let right = self.condition(table, depth - 1, subqueries);
                format!("({left}) OR ({right})")
            }
        }
    }

    /// `a IN (SELECT b FROM other WHERE ..)`; both sides are plain columns of one type.
    fn subquery(&mut self, table: usize) -> String {
        let inner = self.random.below(self.language.tables.len());
        let (outer_table, inner_table) = (&self.language.tables[table], &self.language.tables[inner]);
        let mut pairs = Vec::new();
        for a in &outer_table.columns {
            for b in &inner_table.columns {
                let usable = matches!(a.kind, Kind::Int4 | Kind::Text | Kind::Uuid | Kind::Int8)
                    && a.name != "nonce"
                    && b.name != "nonce";
                if a.kind == b.kind && usable {
                    pairs.push((a, b));
                }
            }
        }
        if pairs.is_empty() || self.nesting >= 2 {
            return self.leaf(table);
        }
        self.clause.has_subquery = true;
        let first = *self.random.pick(&pairs);
        let second = *self.random.pick(&pairs);
        self.nesting += 1;
        let depth = self.random.below(2);
        let filter = if self.random.percent(80) {
            format!(" WHERE {}", self.condition(inner, depth, self.language.subqueries))
        } else {
            String::new()
        };
        self.nesting -= 1;
        let not = if self.random.percent(25) { "NOT " } else { "" };
        let from = inner_table.sql();
        if self.random.percent(20) && first.0.name != second.0.name && first.1.name != second.1.name {
            let (a, b, c, d) = (first.0.sql(), second.0.sql(), first.1.sql(), second.1.sql());
            format!("({a}, {b}) {not}IN (SELECT {c}, {d} FROM {from}{filter})")
        } else {
            format!("{} {not}IN (SELECT {} FROM {from}{filter})", first.0.sql(), first.1.sql())
        }
    }

    /// A constant of this kind: a literal, or a parameter.
    fn constant(&mut self, kind: Kind) -> String {
        let value = kind.value(self.random);
        if self.language.params && self.random.percent(30) {
            self.clause.params.push(value);
            return format!("${}", self.clause.params.len());
        }
        let plain = kind.is_number() && !value.contains(|c: char| c.is_ascii_alphabetic()) && self.random.percent(80);
        if plain { value } else { quote(&value) }
    }

    fn constants(&mut self, kind: Kind) -> String {
        let n = 1 + self.random.below(4);
        (0..n).map(|_| self.constant(kind)).collect::<Vec<_>>().join(", ")
    }

    fn leaf(&mut self, table: usize) -> String {
        let columns = &self.language.tables[table].columns;
        let column = self.random.pick(columns);
        let name = column.sql();
        if self.random.percent(10) {
            return (self.random.word(&["IS NULL", "IS NOT NULL"])).replace("IS", &format!("{name} IS"));
        }
        match column.kind {
            Kind::Bool => match self.random.below(7) {
                0 => name,
                1 => format!("NOT {name}"),
                2 => format!("{name} {} {}", self.random.word(&["=", "<>"]), self.random.word(&["true", "false"])),
                _ => {
                    let what = self.random.word(&[
                        "IS TRUE",
                        "IS FALSE",
                        "IS NOT TRUE",
                        "IS NOT FALSE",
                        "IS UNKNOWN",
                        "IS NOT UNKNOWN",
                    ]);
                    format!("{name} {what}")
                }
            },
            Kind::Ints => self.array(&name),
            Kind::Texts => {
                let list = Kind::Texts.value(self.random);
                match self.random.below(5) {
                    0 => format!("{} = ANY({name})", quote(self.random.word(&["a", "b", ""]))),
                    1 => format!("{name} && {}", quote(&list)),
                    2 => format!("{name} @> {}", quote(&list)),
                    3 => format!("{name} <> {}", quote(&list)),
                    _ => format!("{name} = {}", quote(&list)),
                }
            }
            Kind::Mood => {
                let value = quote(&Kind::Mood.value(self.random));
                match self.random.below(4) {
                    0 => format!("{name}::text = {value}"),
                    1 => format!("{name}::text IN ({value}, 'ok')"),
                    2 => format!("{name}::text <> {value}"),
                    _ => format!("{name}::text LIKE '%a%'"),
                }
            }
            Kind::Jsonb => format!("{name} IS NOT NULL"),
            Kind::Bytea | Kind::Big => format!("{name} IS NULL"),
            Kind::Interval => {
                let value = quote(&Kind::Interval.value(self.random));
                format!("{name} {} interval {value}", self.random.word(&["=", "<>"]))
            }
            Kind::Text | Kind::Varchar => self.text(column),
            Kind::Char => format!("{name} = {}", quote(self.random.word(&["a", "ab", "abcd", ""]))),
            kind => match self.random.below(10) {
                0 => self.column_with_column(table, column),
                1 if kind.is_integer() => self.arithmetic(&name, kind),
                2 if matches!(kind, Kind::Date | Kind::Timestamp | Kind::Timestamptz) => {
                    self.time_arithmetic(&name, kind)
                }
                3 => format!("{name} {}IN ({})", self.not(), self.constants(kind)),
                4 if kind.is_ordered() => {
                    let symmetric = if self.random.percent(30) { "SYMMETRIC " } else { "" };
                    let (not, low, high) = (self.not(), self.constant(kind), self.constant(kind));
                    format!("{name} {not}BETWEEN {symmetric}{low} AND {high}")
                }
                5 => format!("{name} IS {}DISTINCT FROM {}", self.not(), self.constant(kind)),
                6 if kind.is_integer() => format!("{name} = ANY({})", quote(&Kind::Ints.value(self.random))),
                7 if kind.is_number() => {
                    let function = self.random.word(&["coalesce", "greatest", "least"]);
                    let other = self.random.between(-1, 8);
                    format!("{function}({name}, {other}) {} {}", self.order(), self.random.between(0, 8))
                }
                8 if kind.is_integer() => format!("{name}::text = {}", quote(&kind.value(self.random))),
                _ => {
                    let (order, constant) = (self.order(), self.constant(kind));
                    if self.random.percent(15) {
                        format!("{constant} {order} {name}")
                    } else {
                        format!("{name} {order} {constant}")
                    }
                }
            },
        }
    }

    fn not(&mut self) -> &'static str {
        if self.random.percent(30) { "NOT " } else { "" }
    }

    fn order(&mut self) -> &'static str {
        self.random.word(&["=", "=", "=", "<>", "<", "<=", ">", ">="])
    }

    fn column_with_column(&mut self, table: usize, column: &Column) -> String {
        let columns = &self.language.tables[table].columns;
        let alike: Vec<&Column> = columns
            .iter()
            .filter(|other| other.kind == column.kind || (other.kind.is_integer() && column.kind.is_integer()))
            .collect();
        let other = self.random.pick(&alike).sql();
        format!("{} {} {other}", column.sql(), self.order())
    }

    fn arithmetic(&mut self, name: &str, kind: Kind) -> String {
        let k = self.random.between(1, 4);
        let left = match self.random.below(8) {
            0 => format!("{name} + {k}"),
            1 => format!("{name} - {k}"),
            2 => format!("{name} * {k}"),
            3 => format!("{name} / {k}"),
            4 => format!("-{name}"),
            5 => format!("@ {name}"),
            6 => format!("({name} & {k})"),
            _ => format!("({name} | {k})"),
        };
        let _ = kind;
        format!("{left} {} {}", self.order(), self.random.between(-2, 8))
    }

    fn time_arithmetic(&mut self, name: &str, kind: Kind) -> String {
        let value = quote(&kind.value(self.random));
        let order = self.order();
        match kind {
            Kind::Date => format!("{name} + {} {order} {value}", self.random.below(3)),
            Kind::Timestamp => format!("{name} + interval '1 day' {order} {value}"),
            _ => format!("{name} AT TIME ZONE 'UTC' {order} timestamp '2024-02-28 04:00'"),
        }
    }

    fn text(&mut self, column: &Column) -> String {
        let name = column.sql();
        let kind = column.kind;
        match self.random.below(11) {
            0 | 1 => format!("{name} {} {}", self.order(), self.constant(kind)),
            2 => format!("{name} {}IN ({})", self.not(), self.constants(kind)),
            3 | 4 => {
                let pattern = self
                    .random
                    .word(&["a%", "%b", "%a%", "_b%", "a_", "%", "", "A%", "hel%", "%\\%%", "a\\_b", "%é%", "_"]);
                let not = self.not();
                let like = self.random.word(&["LIKE", "ILIKE"]);
                // An escape is written with the backslash as it is.
                format!("{name} {not}{like} '{pattern}'")
            }
            5 => format!("lower({name}) = {}", quote(self.random.word(&["ab", "a", "help"]))),
            6 => format!("upper({name}) = {}", quote(self.random.word(&["AB", "B", "É"]))),
            7 => format!("{name} || 'x' = {}", quote(self.random.word(&["abx", "x", "bx"]))),
            8 => format!("coalesce({name}, 'none') {} {}", self.order(), quote(self.random.word(&["none", "ab"]))),
            9 => format!("{name} IS {}DISTINCT FROM {}", self.not(), self.constant(kind)),
            _ => format!("concat({name}, '-') = {}", quote(self.random.word(&["ab-", "-", "b-"]))),
        }
    }

    fn array(&mut self, name: &str) -> String {
        let k = self.random.between(0, 6);
        let list = quote(&Kind::Ints.value(self.random));
        match self.random.below(12) {
            0 | 1 => format!("{k} = ANY({name})"),
            2 => format!("{k} {} ALL({name})", self.order()),
            3 => format!("NOT ({k} = ANY({name}))"),
            4 => format!("{k} {} ANY({name})", self.order()),
            5 => format!("{name} @> {list}"),
            6 => format!("{name} <@ {list}"),
            7 => format!("{name} && {list}"),
            8 => format!("{name} {} {list}", self.random.word(&["=", "<>"])),
            9 => format!("{name}[1] = {k}"),
            10 => format!("{name}[1:2] = {list}"),
            _ => format!("array_append({name}, {k}) @> '{{{k}}}'"),
        }
    }
}

/// A condition for a subset of a shape: no sub-queries.
pub(crate) fn subset(tables: &[Table], table: usize, source: &mut Random) -> Clause {
    random(Language { tables, subqueries: false, params: true }, table, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_put_where_they_belong() {
        let clause = Clause {
            text: "a = $1 AND b = '$1' AND c = $2 AND d = $1".into(),
            params: vec!["it's".into(), "x\\".into()],
            ..Clause::default()
        };
        assert_eq!(clause.inlined(), "a = 'it''s' AND b = '$1' AND c = E'x\\\\' AND d = 'it''s'");
    }
}
