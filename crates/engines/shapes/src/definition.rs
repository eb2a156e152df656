//! What a shape is: which rows and columns of which table, and how its changes are told.

use crate::table::TableName;
use serde::{Deserialize, Serialize};
use thalweg_base::{Decoder, Encoder};

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
    /// The rows that there are; what shapes with subqueries have for an inner query, and no client asks for.
    Inner,
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

/// Which rows a definition selects, in one piece: most shapes differ in this alone, and there may be a million of them.
///
/// The where clause, then the values of its parameters from `$1` on, each after its length as a varint. Nothing: all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition(Box<[u8]>);

impl Condition {
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        let mut out = Vec::new();
        if let Some(sql) = &definition.where_sql {
            out.put_bytes(sql.as_bytes());
            definition.params.iter().for_each(|(_, value)| out.put_bytes(value.as_bytes()));
        }
        Self(out.into())
    }

    #[must_use]
    pub fn where_sql(&self) -> Option<&str> {
        self.texts().next()
    }

    /// The values of `$1`, `$2`, ….
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.texts().skip(1)
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let mut d = Decoder::new(&self.0);
        std::iter::from_fn(move || if d.is_empty() { None } else { d.str().ok() })
    }
}

/// What distinguishes a shape from all others: the same for two definitions that select the same.
///
/// Half of a SHA-256. Shapes meet by accident with a chance of one in 2^128 for each pair; who looks for a definition that meets
/// another one's has to try as many, and who looks for any two that meet (2^64 tries) gets one shape for two of his own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// `text` says what is selected, the same for all who select the same.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, text);
        Self(std::array::from_fn(|at| digest.as_ref()[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_half_of_a_sha_256() {
        let hex: String = Identity::of(b"abc").0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn a_condition_keeps_what_it_was_made_of() {
        let mut definition = Definition::of_table("public", "t");
        assert_eq!(Condition::of(&definition).where_sql(), None);
        definition.where_sql = Some(String::new());
        assert_eq!(Condition::of(&definition).where_sql(), Some(""));
        definition.params = vec![(1, "é".repeat(200)), (2, String::new())];
        let condition = Condition::of(&definition);
        assert_eq!(condition.params().collect::<Vec<_>>(), ["é".repeat(200).as_str(), ""]);
    }
}
