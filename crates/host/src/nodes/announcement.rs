//! What a node says of itself: in the bucket, and to other nodes that ask.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A node's own words. Two that differ in `seq` were written at different times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// Its name, as its operator has given it.
    pub name: String,
    /// Random for each process: two processes never write the same object.
    pub instance: String,
    /// The URL at which other nodes reach it.
    pub address: String,
    /// How many announcements it has written.
    pub seq: u64,
    /// How often it writes one.
    pub every_ms: u64,
    /// It gives its units up, and takes none.
    pub is_draining: bool,
    /// The units that it owns, each with the epoch of its ownership.
    pub units: Vec<(u64, u64)>,
    /// Milliseconds since 1970, by its clock; for people.
    pub started_ms: u64,
}

impl Announcement {
    pub(super) fn text(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// The epoch by which it owns a unit.
    #[must_use]
    pub fn epoch_of(&self, unit: u64) -> Option<u64> {
        self.units.iter().find(|(own, _)| *own == unit).map(|(_, epoch)| *epoch)
    }
}
