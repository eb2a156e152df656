//! Shape definitions: which rows and columns of which table, and how much of a change a message holds.

use crate::table::TableName;
use serde::{Deserialize, Serialize};
use thalweg_base::{Decoder, Encoder};

/// How much of a changed row a message holds (`replica`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Replica {
    /// Updates hold the key and the changed columns, deletes hold the key.
    #[default]
    Default,
    /// Updates and deletes hold the whole row, updates also the old values of the changed columns.
    Full,
}

/// The rows that a shape's log begins with (`log`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LogMode {
    /// The rows of the table.
    #[default]
    Full,
    /// The log has no rows, and later changes only.
    ChangesOnly,
    /// The rows of the table, for the hidden shape of an inner query: no client can ask for one.
    Inner,
}

/// The definition of a shape, as its request states it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Definition {
    /// The table that the rows are of.
    pub table: TableName,
    /// The clause as the request wrote it.
    pub where_sql: Option<String>,
    /// The number and the value of each parameter; `$1` is the first.
    pub params: Vec<(u32, String)>,
    /// Sorted; `None`: all.
    pub columns: Option<Vec<String>>,
    /// The columns that subset queries may use; `None`: all.
    pub queryable: Option<Vec<String>>,
    /// Which columns changes have (`replica`).
    pub replica: Replica,
    /// Whether the log begins with rows (`log`).
    pub log: LogMode,
}

impl Definition {
    /// The definition of all rows and columns of a table.
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

/// The where clause of a definition with its parameters, in one allocation: most shapes differ in it alone, and there
/// may be a million of them.
///
/// The where clause, then the values of its parameters from `$1` on, each after its length as a varint. Empty: all
/// rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition(Box<[u8]>);

impl Condition {
    /// The where clause and the parameters of a definition.
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        let mut out = Vec::new();
        if let Some(sql) = &definition.where_sql {
            out.put_bytes(sql.as_bytes());
            definition.params.iter().for_each(|(_, value)| out.put_bytes(value.as_bytes()));
        }
        Self(out.into())
    }

    /// The where clause; `None`: all rows.
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

/// The identity of a shape: equal for two definitions that select the same rows and columns.
///
/// Half of a SHA-256. Two definitions collide by accident with a chance of one in 2^128. An attacker needs as many
/// tries to collide with a given definition; 2^64 tries find a collision between two definitions of the attacker's own,
/// which then share one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// `text` names the selection; equal selections have equal texts.
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
