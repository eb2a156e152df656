//! Questions to the desk of a node and its answers, as they go between nodes: JSON.

use crate::state::offset;
use crate::watched::Interest;
use serde::{Deserialize, Serialize};
use thalweg_streams::format::offset::Position;

/// A question for changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewsRequest {
    /// The session of the last answer; empty before the first.
    pub session: String,
    /// The number of the last answer.
    pub after: u64,
    /// How long to wait for changes, in milliseconds.
    pub wait_ms: u64,
}

/// Changes at a desk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// Names one time in which the desk has recorded all changes. In a new one everything is to be asked for again.
    pub session: String,
    /// The number of this answer.
    pub seq: u64,
    /// Changes were forgotten before they were asked for.
    pub is_lost: bool,
    /// More changes wait.
    pub has_more: bool,
    /// The units that the node serves by a lease, each with the epoch of its ownership, and how often changes of it
    /// were not recorded.
    pub units: Vec<(u64, u64, u64)>,
    /// Streams that have changed.
    pub changes: Vec<Change>,
}

/// A stream as readers find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its unit.
    pub unit: u64,
    /// Its name.
    pub name: Box<str>,
    /// Its end; `None`: there is no stream of that name in the unit.
    #[serde(with = "end", default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Position>,
}

/// A question for the streams of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRequest {
    /// The unit.
    pub unit: u64,
    /// Where the last page ended; 0 at the first, [`PageRequest::END`] behind the last.
    pub at: u64,
    /// The streams that are wanted. Names are looked up with the first page.
    pub interest: Interest,
}

impl PageRequest {
    /// Behind the last page.
    pub const END: u64 = u64::MAX;
}

/// Some of the streams of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The epoch by which the unit is owned.
    #[serde(default)]
    pub epoch: u64,
    /// The streams, and their ends.
    pub streams: Vec<Change>,
    /// Where the next page begins.
    pub next: u64,
    /// The journal's end when the page was made: once it is durable, so are the deletes of streams that are missing.
    pub end: u64,
    /// The journal's durable end.
    pub durable: u64,
}

mod end {
    use super::{Position, offset};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[allow(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub(super) fn serialize<S: Serializer>(end: &Option<Position>, out: S) -> Result<S::Ok, S::Error> {
        match end {
            Some(end) => out.serialize_str(&offset::text(*end)),
            None => out.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Position>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| offset::parse(&text).ok_or_else(|| D::Error::custom("not an offset"))).transpose()
    }
}
