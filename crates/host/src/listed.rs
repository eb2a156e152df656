//! Damage in the form for people and programs.

use crate::kernel::{MANIFEST, OBJECTS};
use serde::{Deserialize, Serialize};
use std::fmt;
use thalweg_log::{Damage, Place};

/// A running server's answer to a question about its check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The number of the newest request for a pass since the server started, and of the newest that has its answer.
    pub asked: u64,
    pub finished: u64,
    pub running: bool,
    pub read_bytes: u64,
    pub total_bytes: u64,
    pub passes: u64,
    pub(crate) last_pass_ended_ms: Option<u64>,
    /// Objects that the last pass could not read. They may be whole.
    pub unchecked: Vec<String>,
    pub unchecked_more: u64,
    #[serde(flatten)]
    pub counts: Counts,
    #[serde(rename = "damages")]
    pub damage: Vec<Listed>,
}

/// How many places are damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of damaged places, including those that are not listed.
    pub damage: u64,
    /// Of them, those that are not listed.
    pub left_out: u64,
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub kind: String,
    /// Below the data folder.
    pub file: String,
    /// The first byte that may be damaged, and how many may be; zero: not known.
    pub at: u64,
    pub bytes: u64,
    pub what: String,
    /// Streams with content in the damaged place, and the positions affected.
    pub streams: Vec<Stream>,
    pub more_streams: u64,
    pub first_seen_ms: Option<u64>,
    pub times: u64,
}

/// A stream with damaged content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub name: String,
    pub from: u64,
    pub to: u64,
}

impl Listed {
    /// `folder` is that of the unit, below the data folder.
    pub fn of(folder: &str, damage: Damage) -> Self {
        let (file, at) = match damage.place {
            Place::Manifest => (MANIFEST.to_owned(), 0),
            Place::List { object } => (format!("{OBJECTS}/{:016x}.obj", object.0), 0),
            Place::Object { object, at } | Place::Directory { object, at } => {
                (format!("{OBJECTS}/{:016x}.obj", object.0), at)
            }
            Place::Journal { at, .. } => damage.file.unwrap_or_else(|| (format!("journal position {at}"), 0)),
        };
        let stream = |log: thalweg_log::DamagedLog| Stream { name: log.name, from: log.start.0, to: log.end.0 };
        Self {
            kind: Place::KINDS[damage.place.kind()].to_owned(),
            file: format!("{folder}{file}"),
            at,
            bytes: damage.bytes,
            what: damage.what,
            streams: damage.logs.into_iter().map(stream).collect(),
            more_streams: damage.more_logs,
            first_seen_ms: damage.first_seen.map(|at| at.0),
            times: damage.times,
        }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.file, self.at)?;
        if self.bytes > 0 {
            write!(f, ", up to {} bytes", self.bytes)?;
        }
        write!(f, ": {}", self.what)?;
        for Stream { name, from, to } in &self.streams {
            write!(f, "\n    stream `{name}`, positions {from} to {to}")?;
        }
        match self.more_streams {
            0 => Ok(()),
            more => write!(f, "\n    and {more} more streams"),
        }
    }
}
