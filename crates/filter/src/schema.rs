//! The columns that a where clause may name.

use crate::types::{Base, Type};
use std::sync::Arc;

/// A column as Postgres's catalogue has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Column {
    /// The column's name, without quotes.
    pub name: String,
    /// `pg_attribute.atttypid`, or the base type of a domain.
    pub type_oid: u32,
    /// `pg_type.typelem` if the type is an array, 0 if it is none.
    pub element_oid: u32,
    /// Labels, in order, of an enum or of an array's enum elements.
    pub labels: Vec<String>,
    /// Name as SQL, with its schema, of an enum or of an array's enum elements; empty if it is not known.
    pub type_sql: String,
}

/// The columns of a table, in the order of its rows. A clone is the same schema.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Columns>);

#[derive(Debug)]
struct Columns {
    table: String,
    columns: Box<[Column]>,
    types: Box<[Type]>,
}

/// Most columns that a table of Postgres has.
const COLUMNS_MAX: usize = 1664;

impl Schema {
    /// `table` is its name without the schema: columns may be qualified with it. Columns past the 1664th, which
    /// Postgres cannot have, are left out.
    pub fn new(table: &str, mut columns: Vec<Column>) -> Self {
        columns.truncate(COLUMNS_MAX);
        let types = columns.iter().map(|column| type_of(column, &columns)).collect();
        Self(Arc::new(Columns { table: table.to_owned(), columns: columns.into(), types }))
    }

    /// The same columns under another table name.
    pub(crate) fn named(&self, table: &str) -> Self {
        Self::new(table, self.0.columns.to_vec())
    }

    /// The columns of this, and behind them those of `other`.
    pub(crate) fn joined(&self, other: &Self) -> Self {
        Self::new("", self.columns().iter().chain(other.columns()).cloned().collect())
    }

    /// The columns, in the order of [`Schema::new`].
    pub fn columns(&self) -> &[Column] {
        &self.0.columns
    }

    /// Whether both schemas have the same columns.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.columns == other.0.columns
    }

    pub(crate) fn table(&self) -> &str {
        &self.0.table
    }

    pub(crate) fn find(&self, name: &str) -> Option<u16> {
        self.0.columns.iter().position(|column| column.name == name).and_then(|i| u16::try_from(i).ok())
    }

    pub(crate) fn type_of(&self, column: u16) -> Type {
        self.0.types[usize::from(column)]
    }

    pub(crate) fn name(&self, column: u16) -> &str {
        &self.0.columns[usize::from(column)].name
    }

    /// The labels of an enum, by the column that represents it.
    pub(crate) fn labels(&self, of: u16) -> &[String] {
        &self.0.columns[usize::from(of)].labels
    }

    /// The name of an enum as SQL, by the column that represents it; `None` if it is not known.
    pub(crate) fn type_sql(&self, of: u16) -> Option<&str> {
        let sql = self.0.columns.get(usize::from(of))?.type_sql.as_str();
        (!sql.is_empty()).then_some(sql)
    }
}

fn type_of(column: &Column, columns: &[Column]) -> Type {
    let array = column.element_oid != 0;
    let oid = if array { column.element_oid } else { column.type_oid };
    let base = Base::of_oid(oid).unwrap_or_else(|| {
        // The first column of a type represents it.
        let stands = |c: &Column| oid == if c.element_oid == 0 { c.type_oid } else { c.element_oid };
        let first = u16::try_from(columns.iter().position(stands).unwrap_or(0)).unwrap_or(0);
        if column.labels.is_empty() { Base::Other(first) } else { Base::Enum(first) }
    });
    match base {
        // `name` has a `typelem` too, and is no array.
        _ if array && Base::of_oid(column.type_oid) == Some(Base::Name) => Type { base: Base::Name, array: false },
        base => Type { base, array },
    }
}
