//! The identity of a database history: positions, transaction ids and oids have a meaning in one history only.

use serde::{Deserialize, Serialize};

/// The history that changes come from: one database of one cluster, on one timeline, read through one slot and one
/// publication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceIdentity {
    /// The cluster's system identifier.
    pub system: String,
    /// The timeline's number.
    pub timeline: u32,
    /// The timelines before this one, oldest first, each with the LSN at which the next one branched off. Also empty if
    /// they are unknown.
    #[serde(default)]
    pub branches: Vec<(u32, u64)>,
    /// The database's name.
    pub database: String,
    /// `None`: an earlier version of this server wrote the note.
    #[serde(default)]
    pub database_oid: Option<u32>,
    /// The replication slot's name.
    pub slot: String,
    /// The publication's name.
    pub publication: String,
    /// Changes with every `ALTER PUBLICATION`. Empty: an earlier version of this server wrote the note.
    #[serde(default)]
    pub publication_version: String,
}

/// The last transaction that was read. A stream that should repeat it and does not is of another history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The LSN of its commit record.
    pub lsn: u64,
    /// The transaction's id.
    pub xid: u32,
    /// The commit time, in microseconds since 2000.
    pub time: i64,
}
