//! Whether changes of a table can be had.

use crate::table::TableName;
use serde::Deserialize;

/// How a table and its parts stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) relation: Relation,
    /// Its partitions and who inherits from it, at any depth, by oid.
    pub(crate) parts: Vec<Relation>,
    /// The publication has stored generated columns too (from Postgres 18 on).
    pub(crate) publishes_generated: bool,
    /// The publication has changes of every kind; also if it is not there.
    pub(crate) publishes_all: bool,
    /// Another one whenever somebody has set what the publication publishes; empty if it is not there.
    pub(crate) publication: String,
}

/// One relation of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) oid: u32,
    pub(crate) name: TableName,
    pub(crate) class: Class,
    pub(crate) persistence: Persistence,
    pub(crate) identity: Identity,
    /// Of Postgres itself.
    pub(crate) system: bool,
    /// Our role owns it, and may alter it.
    pub(crate) owned: bool,
    /// Our role may select from it, or from some of its columns.
    pub(crate) readable: bool,
    /// It is a partition.
    pub(crate) partition: bool,
    /// It was a part from its beginning, so that it had no rows when it became one.
    pub(crate) made_as_part: bool,
    /// The publication names it.
    pub(crate) member: bool,
    /// The publication has its changes: by its name, by that of a table that it is a partition of, by its schema, or with all tables.
    pub(crate) published: bool,
    /// The publication leaves out rows or columns of it.
    pub(crate) cut: bool,
    /// The publication gives its changes as those of the table that it is a partition of.
    pub(crate) as_root: bool,
}

/// `pg_class.relkind`, as far as one can select from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Class {
    #[serde(rename = "r")]
    Ordinary,
    #[serde(rename = "p")]
    Partitioned,
    #[serde(rename = "v")]
    View,
    #[serde(rename = "m")]
    Materialized,
    #[serde(rename = "f")]
    Foreign,
}

/// `pg_class.relpersistence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Persistence {
    #[serde(rename = "p")]
    Permanent,
    #[serde(rename = "u")]
    Unlogged,
    #[serde(rename = "t")]
    Temporary,
}

/// What of the old row an update or a delete tells (`pg_class.relreplident`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Identity {
    #[serde(rename = "d")]
    Key,
    #[serde(rename = "n")]
    Nothing,
    #[serde(rename = "f")]
    Full,
    #[serde(rename = "i")]
    Index,
}

/// What cannot be followed, whatever anybody sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsupported {
    #[error("{name} is {what}: shapes are made of tables, because Postgres tells the changes of nothing else")]
    NotATable { name: TableName, what: &'static str },
    #[error("Table {name} is {what}: Postgres does not tell its changes")]
    Untold { name: TableName, what: &'static str },
    #[error("Table {name} has a part, {part}, that is {what}: Postgres does not tell its changes")]
    Part { name: TableName, part: TableName, what: &'static str },
}

impl Standing {
    /// The table itself, then its parts.
    pub(crate) fn relations(&self) -> impl Iterator<Item = &Relation> + Clone {
        std::iter::once(&self.relation).chain(&self.parts)
    }

    /// Refuses what Postgres never tells the changes of.
    pub(crate) fn supported(&self) -> Result<(), Unsupported> {
        let name = || self.relation.name.clone();
        match self.relation.class {
            Class::Ordinary | Class::Partitioned => {}
            Class::View => return Err(Unsupported::NotATable { name: name(), what: "a view" }),
            Class::Materialized => return Err(Unsupported::NotATable { name: name(), what: "a materialized view" }),
            Class::Foreign => return Err(Unsupported::NotATable { name: name(), what: "a foreign table" }),
        }
        if let Some(what) = self.relation.untold() {
            return Err(Unsupported::Untold { name: name(), what });
        }
        match self.parts.iter().find_map(|part| Some((part, part.untold()?))) {
            Some((part, what)) => Err(Unsupported::Part { name: name(), part: part.name.clone(), what }),
            None => Ok(()),
        }
    }
}

impl Relation {
    fn untold(&self) -> Option<&'static str> {
        match (self.class, self.persistence) {
            (Class::Foreign, _) => Some("a foreign table"),
            (_, Persistence::Unlogged) => Some("unlogged"),
            (_, Persistence::Temporary) => Some("temporary"),
            _ if self.system => Some("a table of Postgres itself"),
            _ => None,
        }
    }

    /// Whether it holds rows itself.
    #[must_use]
    pub(crate) fn has_rows(&self) -> bool {
        self.class != Class::Partitioned
    }
}
