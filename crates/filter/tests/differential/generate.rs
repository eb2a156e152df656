//! Random values and clauses. Values come from small pools, so that clauses select something.

use oorandom::Rand64;

pub(crate) struct Generator {
    random: Rand64,
}

const INTS: &[&str] = &["0", "1", "2", "3", "5", "-1", "-2", "7", "32767", "100"];
const BIG: &[&str] =
    &["0", "1", "2", "3", "-1", "9007199254740993", "2147483648", "-9223372036854775808", "9223372036854775807", "100"];
const FLOATS: &[&str] =
    &["0", "1", "3", "0.1", "-1.5", "2.5", "1e20", "1e-7", "NaN", "Infinity", "-Infinity", "100", "-0"];
const NUMERICS: &[&str] = &[
    "0",
    "1",
    "1.0",
    "1.50",
    "-2.25",
    "3",
    "0.1",
    "1e20",
    "9007199254740993",
    "NaN",
    "123456789012345678901234567890.5",
    "100",
    "0.0001",
];
const TEXTS: &[&str] = &[
    "", "a", "b", "ab", "abc", "ABC", "Abc", "foo", "Foo%bar", "foo_bar", "a%b", "a\\b", "50%", "it''s", "äö", "ÄÖ",
    "x y", " a", "a ", "null", "日本", "1", "10",
];
const PATTERNS: &[&str] = &[
    "%", "a%", "%b", "%b%", "_", "a_c", "A%", "foo%", "%\\%%", "50\\%", "foo\\_%", "%_%", "", "abc", "%o%b%", "ä%",
    "_ö", "a\\\\b", "%''%", "f__%", "%a%c", "% ",
];
const UUIDS: &[&str] = &[
    "00000000-0000-0000-0000-000000000000",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12",
    "{ffffffffffffffffffffffffffffffff}",
];
const DATES: &[&str] = &[
    "2000-01-01",
    "2024-02-29",
    "2023-12-31",
    "1969-07-20",
    "infinity",
    "-infinity",
    "0044-03-15 BC",
    "2024-03-01",
    "20240301",
];
const TIMES: &[&str] = &["00:00:00", "12:34:56.789", "23:59:59.999999", "08:00", "24:00:00"];
const STAMPS: &[&str] = &[
    "2000-01-01 00:00:00",
    "2024-02-29 12:34:56.789",
    "2024-03-01",
    "1969-07-20 20:17:40",
    "infinity",
    "2024-02-29T23:59:59.9999995",
    "2024-01-31 10:00",
];
const ZONED: &[&str] = &[
    "2000-01-01 00:00:00+00",
    "2024-02-29 12:34:56.789+02",
    "2024-03-01 00:00:00-05:30",
    "infinity",
    "2024-02-29T10:34:56.789Z",
    "2024-03-01",
];
const SPANS: &[&str] = &[
    "1 day",
    "24:00:00",
    "1 mon",
    "30 days",
    "-1 days +02:03:04",
    "1 year 2 mons",
    "00:00:00",
    "1.5 days",
    "2 weeks",
    "P1DT2H",
    "90 min",
    "1 hour ago",
    "-00:00:01.5",
];
const MOODS: &[&str] = &["sad", "ok", "happy", "a b"];
const INT_ARRAYS: &[&str] =
    &["{}", "{1}", "{1,2,3}", "{3,NULL}", "{5,5}", "{NULL}", "{{1,2},{3,4}}", "[0:1]={1,2}", "{-1,0,7}"];
const TEXT_ARRAYS: &[&str] =
    &["{}", "{a}", "{a,b}", "{NULL,a}", "{\"x y\",\"it''s\"}", "{foo,\"a,b\",\"null\"}", "{\"\"}", "{abc,ABC}"];
const NUMERIC_ARRAYS: &[&str] = &["{}", "{1,1.50}", "{1.0,NULL}", "{0.1,3}", "{NaN}"];
const MOOD_ARRAYS: &[&str] = &["{}", "{sad}", "{ok,happy}", "{\"a b\",NULL}"];
const BYTES: &[&str] = &["\\x", "\\x00", "\\x6162", "ab", "\\x61", "\\xff00"];
const JSON: &[&str] = &[
    "{}",
    "[]",
    "null",
    "1",
    "\"a\"",
    "{\"a\": 1, \"b\": [1, 2, {\"c\": null}]}",
    "{\"a\": \"x\", \"b\": {\"c\": \"d\"}}",
    "[1, 2.0, \"a\", null, true]",
    "{\"a\": 1.0}",
    "{\"b\": [], \"a\": null}",
    "true",
    "[[\"a\"], {\"a\": 1}]",
];

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Rand64::new(seed.into()) }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random.rand_range(0..n as u64)).unwrap_or(0)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }

    fn pool(ty: &str) -> &'static [&'static str] {
        match ty {
            "boolean" => &["t", "f"],
            "smallint" | "integer" => INTS,
            "bigint" => BIG,
            "real" | "double precision" => FLOATS,
            "numeric" => NUMERICS,
            "uuid" => UUIDS,
            "bytea" => BYTES,
            "date" => DATES,
            "time" => TIMES,
            "timestamp" => STAMPS,
            "timestamptz" => ZONED,
            "interval" => SPANS,
            "mood" => MOODS,
            "integer[]" => INT_ARRAYS,
            "text[]" => TEXT_ARRAYS,
            "numeric[]" => NUMERIC_ARRAYS,
            "mood[]" => MOOD_ARRAYS,
            "jsonb" => JSON,
            _ => TEXTS,
        }
    }

    /// For a row: a literal, or null.
    pub(crate) fn value(&mut self, ty: &str) -> String {
        if self.one_in(7) {
            return "NULL".into();
        }
        let value = self.pick(Self::pool(ty));
        match ty {
            "char(6)" => format!("left('{value}', 6)"),
            _ => format!("'{value}'"),
        }
    }

    pub(crate) fn clause(&mut self) -> String {
        let depth = self.below(4);
        self.condition(depth)
    }

    fn condition(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.atom();
        }
        match self.below(9) {
            0..=2 => format!("{} AND {}", self.operand(depth - 1), self.operand(depth - 1)),
            3..=5 => format!("{} OR {}", self.operand(depth - 1), self.operand(depth - 1)),
            6 => format!("NOT {}", self.operand(depth - 1)),
            7 => {
                let test = self.pick(&[
                    "IS TRUE",
                    "IS NOT TRUE",
                    "IS FALSE",
                    "IS NOT FALSE",
                    "IS UNKNOWN",
                    "IS NOT UNKNOWN",
                    "IS NULL",
                    "= b",
                    "IS DISTINCT FROM true",
                ]);
                format!("({}) {test}", self.condition(depth - 1))
            }
            _ => self.atom(),
        }
    }

    /// With or without parentheses: precedence matters.
    fn operand(&mut self, depth: usize) -> String {
        let inner = self.condition(depth);
        if self.one_in(3) { inner } else { format!("({inner})") }
    }

    fn atom(&mut self) -> String {
        match self.below(16) {
            0 => self
                .pick(&[
                    "b",
                    "NOT b",
                    "b = true",
                    "b <> 'f'",
                    "b IS NOT TRUE",
                    "true",
                    "b IS NULL",
                    "b::text = 'true'",
                    "b::int = 1",
                    "(b OR NULL)",
                ])
                .to_owned(),
            1..=3 => self.comparison(),
            4 | 5 => self.text_match(),
            6 => self.in_list(),
            7 => self.between(),
            8 => {
                let column = crate::server::COLUMNS[self.below(crate::server::COLUMNS.len())].0;
                format!("{column} IS {}NULL", self.pick(&["", "NOT "]))
            }
            9 => self.distinct(),
            10 => self.quantified(),
            11 => self.array_condition(),
            12 => self.json_condition(),
            13 => self.moment_condition(),
            14 => self.enum_condition(),
            _ => self.oddity(),
        }
    }

    fn operator(&mut self) -> &'static str {
        self.pick(&["=", "=", "<>", "!=", "<", "<=", ">", ">="])
    }

    fn comparison(&mut self) -> String {
        let operator = self.operator();
        let (left, right) = match self.below(10) {
            0..=3 => (self.number(2), self.number(2)),
            4..=6 => (self.text(2), self.text(2)),
            7 => {
                let (column, pool) = [
                    ("u", UUIDS),
                    ("by", BYTES),
                    ("d", DATES),
                    ("tm", TIMES),
                    ("ts", STAMPS),
                    ("tz", ZONED),
                    ("iv", SPANS),
                ][self.below(7)];
                (column.to_owned(), format!("'{}'", self.pick(pool)))
            }
            8 => {
                let column = self.pick(&["i2", "i4", "i8", "f4", "f8", "n", "t", "v", "c", "nm"]);
                let pool = match column {
                    "i2" | "i4" => INTS,
                    "i8" => BIG,
                    "f4" | "f8" => FLOATS,
                    "n" => NUMERICS,
                    _ => TEXTS,
                };
                (column.to_owned(), format!("'{}'", self.pick(pool)))
            }
            _ => {
                let pair = self.pick(&[
                    "d|ts", "ts|d", "tz|ts", "d|tz", "i2|n", "f4|f8", "t|nm", "c|v", "c|t", "i8|f4", "n|f8", "nm|nm",
                    "t|v",
                ]);
                let (left, right) = pair.split_once('|').unwrap_or((pair, pair));
                (left.to_owned(), right.to_owned())
            }
        };
        if self.one_in(4) { format!("{right} {operator} {left}") } else { format!("{left} {operator} {right}") }
    }

    fn number(&mut self, depth: usize) -> String {
        if depth == 0 || self.one_in(2) {
            return match self.below(8) {
                0..=3 => self.pick(&["i2", "i4", "i8", "f4", "f8", "n", "id"]).to_owned(),
                4 => self.pick(INTS).to_owned(),
                5 => self.pick(BIG).to_owned(),
                6 => self
                    .pick(&["0.1", "1.5", "1e20", "-2.25", "3.0", ".5", "1e-7", "100", "12345678901234567890"])
                    .to_owned(),
                _ => self
                    .pick(&[
                        "'1'::int8",
                        "1::int2",
                        "2.5::float8",
                        "'3'::numeric",
                        "0.1::float4",
                        "i4::numeric",
                        "n::int4",
                        "f8::int8",
                        "f4::float8",
                        "n::float4",
                        "i8::int2",
                        "t::int",
                        "1.005::numeric(6,2)",
                        "f8::numeric",
                        "b::int",
                        "CAST(i4 AS bigint)",
                    ])
                    .to_owned(),
            };
        }
        let (a, b) = (self.number(depth - 1), self.number(depth - 1));
        match self.below(14) {
            0..=2 => format!("{a} + {b}"),
            3 => format!("{a} - {b}"),
            4 => format!("({a}) * ({b})"),
            5 => format!("{a} * {b}"),
            6 => format!("{a} / {b}"),
            7 => format!("i4 % {}", self.pick(&["2", "3", "i2::int", "(-2)"])),
            8 => format!("-{a}"),
            9 => format!("abs({a})"),
            10 => format!("coalesce({a}, {b})"),
            11 => format!("{}({a}, {b})", self.pick(&["greatest", "least"])),
            12 => self
                .pick(&[
                    "length(t)",
                    "length(c)",
                    "char_length(v)",
                    "octet_length(t)",
                    "strpos(t, 'b')",
                    "i4 & 3",
                    "i8 | 4",
                    "i4 # 1",
                    "~i4",
                    "i4 << 2",
                    "i8 >> 1",
                    "|/ abs(i4)",
                    "-2 ^ 2",
                    "2 ^ i2",
                    "@ i4",
                    "array_length(ia, 1)",
                    "cardinality(ia)",
                    "array_ndims(ia)",
                    "ia[1]",
                    "(j->>'a')::numeric",
                    "n % 2",
                ])
                .to_owned(),
            _ => format!("({a} + {b}) - {a}"),
        }
    }

    fn text(&mut self, depth: usize) -> String {
        if depth == 0 || self.one_in(2) {
            return match self.below(6) {
                0..=3 => self.pick(&["t", "t2", "v", "c", "nm"]).to_owned(),
                4 => format!("'{}'", self.pick(TEXTS)),
                _ => self
                    .pick(&[
                        "t::varchar(2)",
                        "i4::text",
                        "n::text",
                        "u::text",
                        "d::text",
                        "b::text",
                        "e::text",
                        "f8::text",
                        "f4::text",
                        "ia::text",
                        "ta::text",
                        "iv::text",
                        "tm::text",
                        "ts::text",
                        "j::text",
                        "'ab'::char(4)",
                        "t::name",
                        "c::text",
                        "E'a\\\\b'",
                        "$$abc$$",
                        "j->>'a'",
                        "j#>>'{b,c}'",
                        "by::text",
                        "na::text",
                        "ta[1]",
                        "t::char(3)",
                    ])
                    .to_owned(),
            };
        }
        let (a, b) = (self.text(depth - 1), self.text(depth - 1));
        match self.below(8) {
            0 => format!("lower({a})"),
            1 => format!("upper({a})"),
            2 | 3 => format!("{a} || {b}"),
            4 => format!("coalesce({a}, {b})"),
            5 => format!("{}({a}, {b})", self.pick(&["greatest", "least", "nullif"])),
            6 => self
                .pick(&[
                    "concat(t, 'x', i4)",
                    "left(t, 2)",
                    "right(t, -1)",
                    "btrim(t)",
                    "ltrim(v, 'a')",
                    "rtrim(t)",
                    "replace(t, 'a', 'xy')",
                    "t || i4",
                    "n || v",
                    "b || t",
                ])
                .to_owned(),
            _ => format!("{a} || 'x'"),
        }
    }

    fn text_match(&mut self) -> String {
        let column = if self.one_in(5) { self.text(1) } else { self.pick(&["t", "t2", "v", "c", "nm"]).to_owned() };
        let operator = self.pick(&["LIKE", "ILIKE", "NOT LIKE", "NOT ILIKE", "~~", "~~*", "!~~", "!~~*"]);
        let pattern = match self.below(8) {
            0 => "t2".to_owned(),
            1 => format!("'{}' || '%'", self.pick(TEXTS).replace('\\', "")),
            _ => format!("'{}'", self.pick(PATTERNS)),
        };
        if operator.contains("LIKE") && self.one_in(6) {
            let (pattern, escape) =
                [("a!%b", "!"), ("50!%", "!"), ("foo\\%", ""), ("a\\b", ""), ("%x%%", "x")][self.below(5)];
            return format!("{column} {operator} '{pattern}' ESCAPE '{escape}'");
        }
        format!("{column} {operator} {pattern}")
    }

    fn in_list(&mut self) -> String {
        let not = self.pick(&["", "NOT "]);
        let (column, pool, bare) = [
            ("i2", INTS, true),
            ("i4", INTS, true),
            ("i8", BIG, true),
            ("t", TEXTS, false),
            ("v", TEXTS, false),
            ("c", TEXTS, false),
            ("nm", TEXTS, false),
            ("u", UUIDS, false),
            ("d", DATES, false),
            ("e", MOODS, false),
            ("tz", ZONED, false),
            ("n", NUMERICS, false),
            ("f4", FLOATS, false),
            ("iv", SPANS, false),
            ("b", &["t", "f"], false),
        ][self.below(15)];
        let mut items: Vec<String> = Vec::new();
        for _ in 0..=self.below(4) {
            let item = self.pick(pool);
            items.push(if bare { item.to_owned() } else { format!("'{item}'") });
        }
        match (self.below(8), column) {
            (0, _) => items.push("NULL".into()),
            (1, "i4") => items.push("i2".into()),
            (1, "t") => items.push("v".into()),
            (2, "f4") => items = vec!["0.1".into(), "3".into()],
            (2, "i4") => items.push("1.5".into()),
            _ => {}
        }
        if self.one_in(8) {
            return format!("(i4, t) {not}IN ((1, 'a'), (2, 'foo'), (i2, t2))");
        }
        format!("{column} {not}IN ({})", items.join(", "))
    }

    fn between(&mut self) -> String {
        let not = self.pick(&["", "NOT "]);
        let symmetric = self.pick(&["", "", "SYMMETRIC "]);
        let (column, pool) = [
            ("i4", INTS),
            ("i8", BIG),
            ("n", NUMERICS),
            ("t", TEXTS),
            ("d", DATES),
            ("ts", STAMPS),
            ("tz", ZONED),
            ("f8", FLOATS),
            ("e", MOODS),
        ][self.below(9)];
        format!("{column} {not}BETWEEN {symmetric}'{}' AND '{}'", self.pick(pool), self.pick(pool))
    }

    fn distinct(&mut self) -> String {
        let not = self.pick(&["", "NOT "]);
        let (left, right) = match self.below(4) {
            0 => (self.number(1), self.number(1)),
            1 => (self.text(1), self.text(1)),
            2 => ("e".to_owned(), self.pick(&["'sad'", "NULL", "e"]).to_owned()),
            _ => (self.pick(&["t", "i4", "ia", "c"]).to_owned(), "NULL".to_owned()),
        };
        format!("{left} IS {not}DISTINCT FROM {right}")
    }

    fn quantified(&mut self) -> String {
        let operator = self.operator();
        let which = self.pick(&["ANY", "ALL", "SOME"]);
        match self.below(8) {
            0 => format!(
                "{} {operator} {which}(ia)",
                self.pick(&["5", "0", "i4", "i8", "NULL", "i2", "id", "1.0::float8::int"])
            ),
            1 => format!("{} {operator} {which}(ta)", self.pick(&["'a'", "t", "v", "NULL::text", "nm", "'foo'"])),
            2 => format!("{} {operator} {which}(na)", self.pick(&["1", "1.0", "n", "i4", "0.1"])),
            3 => format!("{} {operator} {which}(ea)", self.pick(&["e", "'sad'", "'a b'"])),
            4 => format!("i4 {operator} {which}('{}')", self.pick(&["{1,2,3}", "{}", "{NULL,1}", "{100}"])),
            5 => format!("{} {operator} {which}('{}')", self.pick(&["t", "v", "c", "nm"]), self.pick(TEXT_ARRAYS)),
            6 => format!("t {} {which}(ARRAY['a%', '%o%', NULL])", self.pick(&["LIKE", "ILIKE", "NOT LIKE", "~~"])),
            _ => format!("{} {operator} {which}(ARRAY[i4, i2, 3])", self.pick(&["i8", "n", "f8", "id"])),
        }
    }

    fn array_condition(&mut self) -> String {
        let operator = self.pick(&["@>", "<@", "&&", "=", "<>", "<", ">=", "@>"]);
        match self.below(7) {
            0 | 1 => format!("ia {operator} '{}'", self.pick(INT_ARRAYS)),
            2 => format!("ta {operator} '{}'", self.pick(TEXT_ARRAYS)),
            3 => format!("ta {operator} ARRAY[t, 'a']"),
            4 => format!("ea {operator} '{}'", self.pick(MOOD_ARRAYS)),
            5 => format!(
                "{} {operator} ia",
                self.pick(&[
                    "ARRAY[1,2]",
                    "'{3}'",
                    "ia || 7",
                    "ia || '{1}'",
                    "i4 || ia",
                    "ia || ia",
                    "array_append(ia, 1)",
                    "array_prepend(NULL, ia)",
                    "array_cat('{1}', ia)",
                    "ia[1:2]",
                    "ia[:1]"
                ])
            ),
            _ => self
                .pick(&[
                    "ia[1] = 1",
                    "ia[2] > i4",
                    "ta[1] LIKE 'a%'",
                    "ia[-1] IS NULL",
                    "ia[1:2] = '{1,2}'",
                    "(ARRAY[i4, 5])[1] = 5",
                    "na[1] = 1",
                    "ea[1] = 'sad'",
                    "array_length(ia, 1) = 3",
                    "ia IS NULL",
                    "ia[1][2] = 2 IS NULL",
                    "cardinality(ta) > 1",
                ])
                .to_owned(),
        }
    }

    fn json_condition(&mut self) -> String {
        match self.below(6) {
            0 => format!("j {} '{}'", self.pick(&["=", "<>", "@>", "<@", "<", ">="]), self.pick(JSON)),
            1 => format!("j->'{}' = '{}'", self.pick(&["a", "b", "c"]), self.pick(JSON)),
            2 => format!("j->>{} {} '1'", self.pick(&["'a'", "0", "-1", "'b'", "1"]), self.operator()),
            3 => format!("j {} '{}'", self.pick(&["?", "?"]), self.pick(&["a", "b", "x"])),
            4 => format!("j {} '{}'", self.pick(&["?|", "?&"]), self.pick(&["{a,b}", "{}", "{a,x}"])),
            _ => self
                .pick(&[
                    "j#>'{b,2}' = '{\"c\": null}'",
                    "j#>>'{b,0}' = '1'",
                    "j#>'{b,-1}' IS NULL",
                    "(j->'b')->0 = '1'",
                    "(j->>'a')::int = 1",
                    "j->'a' IS NULL",
                    "j::text LIKE '%\"a\"%'",
                    "j->'b'->>'c' = 'd'",
                ])
                .to_owned(),
        }
    }

    fn moment_condition(&mut self) -> String {
        let span = self.pick(SPANS);
        let operator = self.operator();
        match self.below(14) {
            0 => format!("d + {} {operator} '{}'", self.pick(&["1", "i4", "-30", "i2::int"]), self.pick(DATES)),
            1 => format!("d - date '{}' {operator} {}", self.pick(DATES), self.pick(&["0", "60", "i4"])),
            2 => format!("ts + interval '{span}' {operator} timestamp '{}'", self.pick(STAMPS)),
            3 => format!("ts - interval '{span}' {operator} d"),
            4 => format!("tz + interval '{span}' {operator} timestamptz '{}'", self.pick(ZONED)),
            5 => format!("interval '{span}' + tz {operator} tz"),
            6 => format!("ts - timestamp '{}' {operator} interval '{span}'", self.pick(STAMPS)),
            7 => format!("tm + interval '{span}' {operator} time '{}'", self.pick(TIMES)),
            8 => format!("iv + interval '{span}' {operator} iv"),
            9 => format!(
                "{}(iv) {operator} interval '{span}'",
                self.pick(&["justify_days", "justify_hours", "justify_interval", "-"])
            ),
            10 => format!("d + tm {operator} ts"),
            11 => format!("tz AT TIME ZONE 'UTC' {operator} ts"),
            12 => format!(
                "{} {operator} {}",
                self.pick(&["ts::date", "tz::date", "d::timestamp::date"]),
                self.pick(&["d", "'2024-02-29'", "date '2024-03-01'"])
            ),
            _ => format!(
                "{} {operator} {}",
                self.pick(&["ts::time", "tz::time", "iv::time"]),
                self.pick(&["tm", "'12:34:56.789'"])
            ),
        }
    }

    fn enum_condition(&mut self) -> String {
        match self.below(4) {
            0 | 1 => format!("e {} '{}'", self.operator(), self.pick(MOODS)),
            2 => format!("'{}' {} e", self.pick(MOODS), self.operator()),
            _ => self
                .pick(&[
                    "e::text = 'sad'",
                    "e IS NOT NULL",
                    "coalesce(e, 'ok') = 'ok'",
                    "e > 'sad' AND e <= 'happy'",
                    "e::text LIKE 'h%'",
                    "greatest(e, 'ok') = e",
                    "ea && '{sad,ok}'",
                    "e = ea[1]",
                ])
                .to_owned(),
        }
    }

    /// Clauses that were once parsed wrongly, or might be.
    fn oddity(&mut self) -> String {
        self.pick(&[
            "f8 = 3",
            "f4 = 0.1",
            "f4 = 0.1::float4",
            "f4 IN (0.1, 3)",
            "i8 = 9007199254740993",
            "n = 1e20",
            "i4 = 1.0",
            "0 < ALL(ia)",
            "NOT (5 = ANY(ia))",
            "t LIKE '%\\%%'",
            "v || t = 'aa'",
            "d <> '2024-02-29'",
            "tz <> '2000-01-01'",
            "1 - -1 = 2",
            "i4 - -1 > 2",
            "- i4 < - 2",
            "2 + 3 * i4 - 1 = 6",
            "NOT i4 = 1",
            "NOT i4 IS NULL",
            "i4 = 1 IS TRUE",
            "i4 < 2 = b",
            "1 < i4 AND NOT b OR t = 'a'",
            "i4 BETWEEN 1 AND 3 AND b",
            "i4 NOT IN (1) IS NULL",
            "t IS NULL = b",
            "b AND NULL",
            "b OR NULL IS NULL",
            "NULL = NULL",
            "t = NULL",
            "i4 / i2 = 1",
            "i2 + 32767 > 0",
            "i4 * i4 * 1000000 > 5",
            "i4 = '  2  '",
            "c = 'a'",
            "c = 'a '",
            "c::text = 'a'",
            "c LIKE 'a     '",
            "c || 'x' = 'ax'",
            "length(c) = 1",
            "t.i4 = 1",
            "\"i4\" = 1",
            "I4 = 1",
            "t::text ilike 'A%' and /* here /* nested */ */ i4 > 0 -- end",
            "n = 'NaN'",
            "n > 0 AND n < 'Infinity'",
            "n / 3 = 0.33333333333333333333",
            "n * n > 1.5",
            "10 / n < 4",
            "1 / 3.0 * n = 1",
            "f8 / 3 > 0.3",
            "i4 = ANY(ARRAY[1, 2.5])",
            "t < 'B'",
            "t >= 'a' AND t < 'b'",
            "'a' < t AND t < 'foo'",
            "lower(t) = 'abc'",
            "lower(t) LIKE 'ab%'",
            "t ILIKE 'ÄÖ'",
            "upper(t) = 'ÄÖ'",
            "b = 'yes'",
            "'t' AND b",
            "ts = '2024-03-01'",
            "ts = date '2024-03-01'",
            "d = timestamp '2024-03-01 00:00'",
            "iv = '24 hours'",
            "iv > '1 week 2 days'",
            "u = 'A0EEBC999C0B4EF8BB6D6BB9BD380A11'",
            "by = 'ab'",
            "by > '\\x60'",
        ])
        .to_owned()
    }
}
