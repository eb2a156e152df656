//! What a shape is: which rows and columns of which table, and how its changes are told.

use crate::table::TableName;
use serde::{Deserialize, Serialize};

/// How much of a changed row is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Replica {
    /// Updates have the key and what changed, deletes the key.
    #[default]
    Default,
    /// Updates and deletes have the whole row, updates also the old values of what changed.
    Full,
}

/// What a shape's log begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogMode {
    /// The rows that there are.
    #[default]
    Full,
    /// Nothing: only what changes from now on.
    ChangesOnly,
}

/// A shape's identity, as far as it can be told without the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Definition {
    pub table: TableName,
    /// As it was asked for.
    pub where_sql: Option<String>,
    /// `$1` is the first.
    pub params: Vec<(u32, String)>,
    /// Sorted; `None`: all.
    pub columns: Option<Vec<String>>,
    /// What subsets may use; `None`: all.
    pub queryable: Option<Vec<String>>,
    pub replica: Replica,
    pub log: LogMode,
}

impl Definition {
    /// All of a table.
    #[must_use]
    pub fn of_table(schema: &str, name: &str) -> Self {
        Self {
            table: TableName { schema: schema.into(), name: name.into() },
            where_sql: None,
            params: Vec::new(),
            columns: None,
            queryable: None,
            replica: Replica::Default,
            log: LogMode::Full,
        }
    }
}
