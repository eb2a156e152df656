//! Random tables, and values of their columns. Values come from small pools, so that conditions hit and keys collide.

use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Char,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Uuid,
    Bytea,
    Ints,
    Texts,
    Mood,
    Jsonb,
    /// Text that is kept out of line, so that updates of other columns do not carry it.
    Big,
}

pub(crate) const KINDS: [Kind; 22] = [
    Kind::Bool,
    Kind::Int2,
    Kind::Int4,
    Kind::Int8,
    Kind::Float4,
    Kind::Float8,
    Kind::Numeric,
    Kind::Text,
    Kind::Varchar,
    Kind::Char,
    Kind::Date,
    Kind::Time,
    Kind::Timestamp,
    Kind::Timestamptz,
    Kind::Interval,
    Kind::Uuid,
    Kind::Bytea,
    Kind::Ints,
    Kind::Texts,
    Kind::Mood,
    Kind::Jsonb,
    Kind::Big,
];

const TEXTS: [&str; 18] = [
    "", "a", "ab", "abc", "b", "B", "Ab", "a_b", "a%b", "100%", "\\", "a\\b", "é", "x/y", "it's", "\"q\"", "NULL",
    "z\n",
];

impl Kind {
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int2 => "int2",
            Kind::Int4 => "int4",
            Kind::Int8 => "int8",
            Kind::Float4 => "float4",
            Kind::Float8 => "float8",
            Kind::Numeric => "numeric",
            Kind::Text | Kind::Big => "text",
            Kind::Varchar => "varchar(20)",
            Kind::Char => "char(4)",
            Kind::Date => "date",
            Kind::Time => "time",
            Kind::Timestamp => "timestamp",
            Kind::Timestamptz => "timestamptz",
            Kind::Interval => "interval",
            Kind::Uuid => "uuid",
            Kind::Bytea => "bytea",
            Kind::Ints => "int4[]",
            Kind::Texts => "text[]",
            Kind::Mood => "mood",
            Kind::Jsonb => "jsonb",
        }
    }

    /// A value in Postgres's text form.
    pub(crate) fn value(self, random: &mut Random) -> String {
        match self {
            Kind::Bool => (random.word(&["true", "false"])).to_owned(),
            Kind::Int2 | Kind::Int4 => random.between(-3, 12).to_string(),
            Kind::Int8 => match random.below(12) {
                0 => "9007199254740993".to_owned(),
                1 => "-9223372036854775808".to_owned(),
                2 => "9223372036854775807".to_owned(),
                _ => random.between(-3, 12).to_string(),
            },
            Kind::Float4 => (random.word(&["0", "1.5", "-2.25", "3", "0.1", "NaN"])).to_owned(),
            Kind::Float8 => {
                (random.word(&["0", "1.5", "-2.25", "3", "0.1", "12", "1e25", "NaN", "Infinity", "-Infinity"]))
                    .to_owned()
            }
            Kind::Numeric => (random.word(&[
                "0",
                "1.50",
                "-2.25",
                "3",
                "3.00",
                "12",
                "1e20",
                "123456789012345678901234567890.5",
                "0.1",
            ]))
            .to_owned(),
            Kind::Text => (*random.pick(&TEXTS)).to_owned(),
            Kind::Varchar => (random.word(&["", "a", "Ab", "ab ", "abc", "help", "HELP", "hel%"])).to_owned(),
            Kind::Char => (random.word(&["", "a", "ab", "abcd", "B"])).to_owned(),
            Kind::Date => format!("2024-02-{:02}", random.between(26, 29)),
            Kind::Time => (random.word(&["00:00:00", "05:05:00", "12:30:15.25", "23:59:59"])).to_owned(),
            Kind::Timestamp => {
                format!(
                    "2024-02-{:02} {}",
                    random.between(27, 29),
                    random.word(&["00:00:00", "05:05:00", "12:30:15.25"])
                )
            }
            Kind::Timestamptz => {
                format!("2024-02-{:02} {}", random.between(27, 29), random.word(&["00:00+00", "05:05+02", "23:30-03"]))
            }
            Kind::Interval => (random.word(&[
                "1 day",
                "24 hours",
                "5 hours",
                "1 mon",
                "30 days",
                "-1 day",
                "0",
                "1 year 2 mons 3 days 04:05:06.7",
            ]))
            .to_owned(),
            Kind::Uuid => format!("00000000-0000-4000-8000-{:012x}", random.below(12)),
            Kind::Bytea => (random.word(&["\\x", "\\x00", "\\xff00", "\\x616263"])).to_owned(),
            Kind::Ints => {
                let items: Vec<String> = (0..random.below(4))
                    .map(|_| if random.percent(12) { "NULL".to_owned() } else { random.between(0, 6).to_string() })
                    .collect();
                format!("{{{}}}", items.join(","))
            }
            Kind::Texts => {
                let items: Vec<&str> =
                    (0..random.below(4)).map(|_| random.word(&["a", "b", "\"\"", "\"c,d\"", "NULL"])).collect();
                format!("{{{}}}", items.join(","))
            }
            Kind::Mood => (random.word(&["sad", "ok", "happy"])).to_owned(),
            Kind::Jsonb => (random.word(&["{}", "{\"a\": 1}", "[1, 2]", "null", "\"x\""])).to_owned(),
            Kind::Big => {
                let piece = format!("{:x}", random.below(1 << 30));
                piece.repeat(1 + random.below(1500))
            }
        }
    }

    /// Can be compared with `<` by everybody in the same way.
    pub(crate) fn is_ordered(self) -> bool {
        !matches!(
            self,
            Kind::Bool
                | Kind::Interval
                | Kind::Ints
                | Kind::Texts
                | Kind::Mood
                | Kind::Jsonb
                | Kind::Big
                | Kind::Bytea
                | Kind::Char
        )
    }

    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Kind::Int2 | Kind::Int4)
    }

    pub(crate) fn is_number(self) -> bool {
        matches!(self, Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Float4 | Kind::Float8 | Kind::Numeric)
    }
}

/// `'…'`, as SQL wants it.
pub(crate) fn quote(text: &str) -> String {
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

impl Column {
    /// The name as SQL takes it.
    pub(crate) fn sql(&self) -> String {
        identifier(&self.name)
    }
}

pub(crate) fn identifier(name: &str) -> String {
    if name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    /// Places of the key's columns in `columns`; empty: no key, and `nonce` keeps rows apart.
    pub(crate) key: Vec<usize>,
    pub(crate) partitioned: bool,
}

impl Table {
    pub(crate) fn random(number: usize, random: &mut Random) -> Self {
        let name = if random.percent(25) { format!("Odd table.{number}") } else { format!("t{number}") };
        let mut columns = Vec::new();
        let add = |columns: &mut Vec<Column>, name: &str, kind| columns.push(Column { name: name.to_owned(), kind });
        let key = match random.below(7) {
            0 => {
                add(&mut columns, "id", Kind::Text);
                vec![0]
            }
            1 => {
                add(&mut columns, "id", Kind::Uuid);
                vec![0]
            }
            2 => {
                add(&mut columns, "part", Kind::Text);
                add(&mut columns, "id", Kind::Int4);
                vec![1, 0]
            }
            3 => {
                add(&mut columns, "nonce", Kind::Int8);
                add(&mut columns, "id", Kind::Int4);
                Vec::new()
            }
            _ => {
                add(&mut columns, "id", Kind::Int4);
                vec![0]
            }
        };
        let partitioned = key == [0] && columns[0].kind == Kind::Int4 && random.percent(20);
        // The columns that sub-queries of other tables use.
        add(&mut columns, "ref", Kind::Int4);
        add(&mut columns, "tag", Kind::Text);
        for at in 0..3 + random.below(6) {
            let kind = *random.pick(&KINDS);
            let name = if random.percent(15) { format!("C {at}\"") } else { format!("c{at}") };
            add(&mut columns, &name, kind);
        }
        Self { name, columns, key, partitioned }
    }

    pub(crate) fn sql(&self) -> String {
        identifier(&self.name)
    }

    pub(crate) fn has_nonce(&self) -> bool {
        self.key.is_empty()
    }

    pub(crate) fn create(&self) -> String {
        let mut parts: Vec<String> =
            self.columns.iter().map(|c| format!("{} {}", c.sql(), c.kind.type_name())).collect();
        if !self.key.is_empty() {
            let key: Vec<String> = self.key.iter().map(|at| self.columns[*at].sql()).collect();
            parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        let table = self.sql();
        let mut sql = format!("CREATE TABLE {table} ({})", parts.join(", "));
        if self.partitioned {
            sql += " PARTITION BY RANGE (id)";
            for (at, (from, to)) in [("MINVALUE", "5"), ("5", "20"), ("20", "MAXVALUE")].into_iter().enumerate() {
                let leaf = identifier(&format!("{} {at}", self.name));
                sql += &format!("; CREATE TABLE {leaf} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})");
            }
        }
        for column in self.columns.iter().filter(|c| c.kind == Kind::Big) {
            sql += &format!("; ALTER TABLE {table} ALTER {} SET STORAGE EXTERNAL", column.sql());
        }
        sql
    }

    /// A value of a column as an SQL literal; keys are never NULL and come from a wider pool.
    pub(crate) fn literal(&self, at: usize, random: &mut Random) -> String {
        let kind = self.columns[at].kind;
        if self.has_nonce() && at == 0 {
            return "nextval('nonce')".to_owned();
        }
        if self.key.contains(&at) {
            return match kind {
                Kind::Int4 => random.between(0, 40).to_string(),
                _ => quote(&kind.value(random)),
            };
        }
        if random.percent(15) { "NULL".to_owned() } else { quote(&kind.value(random)) }
    }
}
