//! What a node says of itself: in the bucket, and to other nodes that ask.

use serde::{Deserialize, Serialize};

/// A node's own words. Two that differ in `seq` were written at different times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its name, as its operator has given it.
    pub name: String,
    /// Random for each process: two processes never write the same object.
    pub instance: String,
    /// The URL at which other nodes reach it.
    pub address: String,
    /// The number of the object that it is written to: 0 at first, and one more each time that another node has retired
    /// the object. Nodes of earlier versions have one object.
    #[serde(default)]
    pub object: u64,
    /// The number of the announcement. It grows with each that is begun, whether or not it is written.
    pub seq: u64,
    /// How often it writes one.
    pub every_ms: u64,
    /// It gives its units up, and takes none.
    pub is_draining: bool,
    /// For how long its process ran when this was written. Nodes of earlier versions do not say it, and count as old.
    #[serde(default = "unknown_age")]
    pub age_ms: u64,
    /// It can own the unit of shapes: it reaches their database. Nodes of earlier versions do not say it.
    #[serde(default)]
    pub has_shapes: bool,
    /// Units that it could not take: others should. Nodes of earlier versions do not say it.
    #[serde(default)]
    pub refuses: Vec<u64>,
    /// How many announcements in a row, this one included, it began after the lease before had ended: it can serve nothing.
    /// Nodes of earlier versions do not say it.
    #[serde(default)]
    pub lapses: u64,
    /// The units that it owns, each with the epoch of its ownership.
    pub units: Vec<(u64, u64)>,
    /// Milliseconds since 1970, by its clock; for people.
    pub started_ms: u64,
}

fn unknown_age() -> u64 {
    u64::MAX
}

impl Announcement {
    /// The epoch by which it owns a unit.
    #[must_use]
    pub fn epoch_of(&self, unit: u64) -> Option<u64> {
        self.units.iter().find(|(own, _)| *own == unit).map(|(_, epoch)| *epoch)
    }
}
