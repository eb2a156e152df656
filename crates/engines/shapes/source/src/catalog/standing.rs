//! The standing of a table: whether the stream can bring its changes.

use serde::Deserialize;
use thalweg_shapes_model::table::TableName;

/// The facts that decide whether the changes of a table and its parts come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub relation: Relation,
    /// Its partitions and the tables that inherit from it, at any depth, by oid.
    pub parts: Vec<Relation>,
    /// The publication has stored generated columns too (from Postgres 18 on).
    pub publishes_generated: bool,
    /// The publication publishes INSERT, UPDATE, DELETE and TRUNCATE; also true if the publication does not exist.
    pub publishes_all: bool,
    /// The version of the publication, which every `ALTER PUBLICATION` changes; empty if the publication does not
    /// exist.
    pub publication: String,
}

/// One relation of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    pub oid: u32,
    pub name: TableName,
    pub class: Class,
    pub persistence: Persistence,
    pub identity: Identity,
    /// Whether the relation is Postgres's own.
    pub system: bool,
    /// Our role owns it, and may alter it.
    pub owned: bool,
    /// Our role may select from it, or from some of its columns.
    pub readable: bool,
    /// The relation is a partition.
    pub partition: bool,
    /// The relation was created as a part, so it had no rows when it became one.
    pub made_as_part: bool,
    /// The publication names it.
    pub member: bool,
    /// The publication has its changes: by its name, by that of a table that it is a partition of, by its schema, or
    /// with all tables.
    pub published: bool,
    /// The publication leaves out rows or columns of it.
    pub cut: bool,
    /// The publication gives its changes as those of the table that it is a partition of.
    pub as_root: bool,
}

/// `pg_class.relkind`, as far as one can select from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Class {
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
pub enum Persistence {
    #[serde(rename = "p")]
    Permanent,
    #[serde(rename = "u")]
    Unlogged,
    #[serde(rename = "t")]
    Temporary,
}

/// The part of the old row that updates and deletes send (`pg_class.relreplident`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Identity {
    #[serde(rename = "d")]
    Key,
    #[serde(rename = "n")]
    Nothing,
    #[serde(rename = "f")]
    Full,
    #[serde(rename = "i")]
    Index,
}

/// A relation whose changes Postgres never sends, whatever its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    #[error("{name} is {what}: shapes are made of tables, because Postgres publishes the changes of tables only")]
    NotATable { name: TableName, what: &'static str },
    #[error("Table {name} is {what}: Postgres does not publish its changes")]
    Untold { name: TableName, what: &'static str },
    #[error("Table {name} has a partition, {part}, that is {what}: Postgres does not publish its changes")]
    Part { name: TableName, part: TableName, what: &'static str },
}

impl Standing {
    /// The table itself, then its parts.
    pub fn relations(&self) -> impl Iterator<Item = &Relation> + Clone {
        std::iter::once(&self.relation).chain(&self.parts)
    }

    /// Refuses relations whose changes Postgres never sends.
    pub fn supported(&self) -> Result<(), Unsupported> {
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
    pub fn has_rows(&self) -> bool {
        self.class != Class::Partitioned
    }
}
