//! Descriptions of tables: enough to select from a table, to read its changes, and to detect that it was altered.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A schema's name and a table's, as in the catalog: without quotes, case kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableName {
    /// The schema.
    pub schema: String,
    /// The table.
    pub name: String,
}

impl TableName {
    /// The name for people: without the schema if that is `public`.
    #[must_use]
    pub fn spelled(&self) -> String {
        if self.schema == "public" { self.name.clone() } else { format!("{}.{}", self.schema, self.name) }
    }
}

/// `"schema"."name"`, quoted for SQL.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// An identifier in double quotes.
#[must_use]
pub fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// A type as the catalog has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnType {
    /// The type's oid; for a domain that of its base type.
    pub oid: u32,
    /// `pg_type.typname`, such as `int4` or a domain's; for an array that of its elements.
    pub name: String,
    /// The column's, not a domain's; -1: none.
    pub modifier: i32,
    /// `pg_attribute.attndims`; 0: not an array.
    pub dimensions: u32,
    /// The type of an array's elements; 0: not an array.
    pub element: u32,
    /// The labels of an enum, or of an array of them, in their order.
    pub labels: Vec<String>,
    /// For user-defined types, and for types that contain one.
    #[serde(default)]
    pub made: Option<Made>,
}

/// A user-defined type: of a domain its base type, of an array its element type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The type's name.
    pub name: TableName,
    /// The elements of the array are of a domain: reading a constant of this type runs the domain's checks.
    pub checked: bool,
    /// A text that changes if the type's composition does, at any depth: the text of a value depends on it.
    pub parts: String,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The column's name, without quotes.
    pub name: String,
    /// The column's type.
    pub ty: ColumnType,
    /// Whether the column is NOT NULL.
    pub not_null: bool,
    /// The place in the primary key, from 0; `None`: not part of it.
    pub key: Option<u32>,
    /// `pg_attribute.attnum`: a column that was dropped and added again has another one. 0: it is not known.
    #[serde(default)]
    pub number: i16,
    /// `GENERATED ALWAYS AS (…)`.
    pub generated: Option<Generated>,
}

/// Where the value of a generated column is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generated {
    /// Generated when a row is written: from Postgres 18 on its changes are published.
    Stored,
    /// Generated when a row is read: its changes are never published.
    Virtual,
}

/// The kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A table with rows of its own.
    Ordinary,
    /// The root or an inner node of a partition tree: its rows lie in its partitions.
    Partitioned,
}

/// The first oid that is not built in: objects from here on were created by users of the database.
pub const FIRST_NORMAL_OID: u32 = 16_384;

/// A table in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The table's oid.
    pub oid: u32,
    /// The table's name.
    pub name: TableName,
    /// The table's kind.
    pub kind: Kind,
    /// Columns in the order of `attnum`, without dropped ones.
    pub columns: Vec<Column>,
    /// The tables that this one is a partition of or inherits from, at any depth: its changes are theirs too.
    /// Ascending.
    pub ancestors: Vec<u32>,
    /// Its partitions and the tables that inherit from it, at any depth: their rows are its rows. Ascending.
    pub parts: Vec<u32>,
    /// Marks of the table and of its parts, ascending by oid: they differ after an alteration that leaves the
    /// description equal. Empty: unknown.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

/// Values of the catalog that change when a relation is altered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The relation's oid.
    pub oid: u32,
    /// `pg_class.relfilenode`: it changes when all rows are rewritten.
    pub file: u32,
    /// A hash of the transactions that wrote its columns into the catalog.
    pub columns: i64,
    /// The publication's entries for the relation: they change when it leaves the publication and returns.
    pub entries: String,
}

impl Table {
    /// The column of that name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The columns of the primary key in its order, or all columns by name if there is none.
    #[must_use]
    pub fn key(&self) -> Vec<usize> {
        let mut key: Vec<usize> = (0..self.columns.len()).filter(|at| self.columns[*at].key.is_some()).collect();
        if key.is_empty() {
            key = (0..self.columns.len()).collect();
            key.sort_by(|a, b| self.columns[*a].name.cmp(&self.columns[*b].name));
        } else {
            key.sort_by_key(|at| self.columns[*at].key);
        }
        key
    }

    /// Whether shapes of this table stay valid although the catalog now describes it as `now`.
    #[must_use]
    pub fn goes_on(&self, now: &Table) -> bool {
        self.same_shape(now) && !self.is_rewritten(now)
    }

    /// Whether `ALTER TABLE` changed values of rows, which the replication stream does not report: all rows of a
    /// relation were rewritten and a column was altered. A rewrite alone may be `VACUUM FULL`, an altered column alone
    /// a new default.
    fn is_rewritten(&self, now: &Table) -> bool {
        let was = |mark: &Mark| self.marks.iter().find(|was| was.oid == mark.oid);
        now.marks.iter().any(|is| was(is).is_some_and(|was| was.file != is.file && was.columns != is.columns))
    }

    /// A relation, the table or a part, that left the publication and came back.
    #[must_use]
    pub fn republished(&self, now: &Table) -> Option<u32> {
        let was = |mark: &Mark| self.marks.iter().find(|was| was.oid == mark.oid);
        // A relation that was not published when it was described has not left the publication.
        let left = |was: &Mark, is: &Mark| !was.entries.is_empty() && was.entries != is.entries;
        now.marks.iter().find(|is| was(is).is_some_and(|was| left(was, is))).map(|mark| mark.oid)
    }

    /// Whether rows of `other` have the same columns as rows of this table.
    #[must_use]
    pub fn same_shape(&self, other: &Table) -> bool {
        self.oid == other.oid
            && self.name == other.name
            && self.columns.len() == other.columns.len()
            && self.columns.iter().zip(&other.columns).all(|(column, other)| column.same_values(other))
    }

    /// This table with the chosen columns nullable.
    #[must_use]
    pub fn with_nulls(&self, columns: impl Fn(usize) -> bool) -> Self {
        let mut table = self.clone();
        let named = table.columns.iter_mut().enumerate().filter(|(at, _)| columns(*at));
        named.for_each(|(_, column)| column.not_null = false);
        table
    }
}

impl Column {
    /// Whether values of `other` have the same type and meaning. `NOT NULL` makes no difference.
    fn same_values(&self, other: &Column) -> bool {
        let is_same = self.number == other.number || self.number == 0 || other.number == 0;
        is_same
            && (&self.name, &self.ty, self.key, self.generated) == (&other.name, &other.ty, other.key, other.generated)
    }
}

/// Tables for tests.
#[cfg(any(test, feature = "sample"))]
pub mod sample {
    use super::{Column, ColumnType, Kind, Table, TableName};

    pub const TEXT: (u32, &str) = (25, "text");
    pub const INT4: (u32, &str) = (23, "int4");

    /// The ordinary table `public.NAME`, without relatives; its oid is 1.
    pub fn table(name: &str, columns: Vec<Column>) -> Table {
        let name = TableName { schema: "public".into(), name: name.into() };
        Table { oid: 1, name, kind: Kind::Ordinary, columns, ancestors: vec![], parts: vec![], marks: vec![] }
    }

    /// A column of the type with this oid and name; one of the primary key if it has a place in it, and else it may be
    /// null.
    pub fn column(name: &str, (oid, ty): (u32, &str), key: Option<u32>) -> Column {
        let ty = ColumnType {
            oid,
            name: ty.into(),
            modifier: -1,
            dimensions: 0,
            element: 0,
            labels: Vec::new(),
            made: None,
        };
        Column { name: name.into(), ty, not_null: key.is_some(), key, generated: None, number: 0 }
    }
}
