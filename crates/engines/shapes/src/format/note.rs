//! What stands beside the logs of the shapes' kernel unit: notes and attachments.
//!
//! The name of a log says what it is: `c/<n>` bodies of changes, `g/<n>` references to them, `s/<handle>` a shape with its snapshot,
//! `t/<oid>` a table as it was last seen, `source` where changes come from.

use crate::definition::Definition;
use crate::state::snapshot::PgSnapshot;
use serde::{Deserialize, Serialize};
use thalweg_base::{DecodeError, Decoder, Encoder, Lsn};
use thalweg_log::Attachment;

const PLAIN: u8 = 0;
const SHAPE: u8 = 1;

const SNAPSHOT_TAKEN: u8 = 1;
const CHUNK_END: u8 = 2;
const COMPLETE: u8 = 3;

/// Where changes come from: who cannot show the same again has lost what was between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceIdentity {
    pub system: String,
    pub timeline: u32,
    pub database: String,
    pub slot: String,
    pub publication: String,
}

/// A shape as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// What references name it by; never used again.
    pub number: u64,
    /// The table's oid.
    pub table: u32,
    pub definition: Definition,
    /// What distinguishes it from all others: the same for two definitions that select the same.
    pub identity: String,
    /// `None`: it was not taken yet.
    pub snapshot: Option<PgSnapshot>,
    /// Where complete snapshot chunks end in the log's content.
    pub chunks: Vec<u64>,
    /// The last chunk is complete too.
    pub complete: bool,
}

/// What a change of a shape's state says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeNote {
    SnapshotTaken(PgSnapshot),
    ChunkEnd(u64),
    Complete,
}

impl ShapeNote {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            ShapeNote::SnapshotTaken(snapshot) => {
                out.put_u8(SNAPSHOT_TAKEN);
                snapshot.encode(&mut out);
            }
            ShapeNote::ChunkEnd(at) => {
                out.put_u8(CHUNK_END);
                out.put_varint(*at);
            }
            ShapeNote::Complete => out.put_u8(COMPLETE),
        }
        out
    }
}

/// What is kept with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Whatever the content or the last note says.
    Plain(Vec<u8>),
    Shape(Box<Stored>),
}

impl LogState {
    /// The note that creates a log of this state.
    #[must_use]
    pub fn note(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    #[must_use]
    pub fn shape(&self) -> Option<&Stored> {
        match self {
            LogState::Shape(stored) => Some(stored),
            LogState::Plain(_) => None,
        }
    }
}

impl Attachment for LogState {
    fn create(note: &[u8], _: Lsn) -> Result<Self, DecodeError> {
        Self::decode(note)
    }

    fn apply(&mut self, note: &[u8], _: Lsn) -> Result<(), DecodeError> {
        match self {
            LogState::Plain(state) => *state = note.to_vec(),
            LogState::Shape(stored) => {
                let mut d = Decoder::new(note);
                match d.u8()? {
                    SNAPSHOT_TAKEN => stored.snapshot = Some(PgSnapshot::decode(&mut d)?),
                    CHUNK_END => stored.chunks.push(d.varint()?),
                    COMPLETE => stored.complete = true,
                    other => return Err(DecodeError::Unknown { what: "note", got: u64::from(other) }),
                }
                d.end()?;
            }
        }
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            LogState::Plain(state) => {
                out.put_u8(PLAIN);
                out.extend_from_slice(state);
            }
            LogState::Shape(stored) => {
                out.put_u8(SHAPE);
                out.put_varint(stored.number);
                out.put_varint(u64::from(stored.table));
                // Maps have text keys and nothing fails by itself, so this cannot fail.
                out.put_bytes(&serde_json::to_vec(&stored.definition).unwrap_or_default());
                out.put_bytes(stored.identity.as_bytes());
                out.put_u8(u8::from(stored.complete) << 1 | u8::from(stored.snapshot.is_some()));
                if let Some(snapshot) = &stored.snapshot {
                    snapshot.encode(out);
                }
                out.put_varint(stored.chunks.len() as u64);
                stored.chunks.iter().for_each(|at| out.put_varint(*at));
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(bytes);
        match d.u8()? {
            PLAIN => Ok(LogState::Plain(d.rest().to_vec())),
            SHAPE => {
                let (number, table) = (d.varint()?, d.varint_u32()?);
                let definition = serde_json::from_slice(d.bytes()?).map_err(|_| DecodeError::Range("definition"))?;
                let identity = d.str()?.to_owned();
                let flags = d.u8()?;
                let snapshot = (flags & 1 != 0).then(|| PgSnapshot::decode(&mut d)).transpose()?;
                let count = d.varint()?;
                if count > d.rest().len() as u64 {
                    return Err(DecodeError::Truncated(1));
                }
                let chunks = (0..count).map(|_| d.varint()).collect::<Result<_, _>>()?;
                d.end()?;
                let complete = flags & 2 != 0;
                Ok(LogState::Shape(Box::new(Stored {
                    number,
                    table,
                    definition,
                    identity,
                    snapshot,
                    chunks,
                    complete,
                })))
            }
            other => Err(DecodeError::Unknown { what: "note", got: u64::from(other) }),
        }
    }

    fn may_rest(&self, _: Lsn) -> bool {
        true
    }
}
