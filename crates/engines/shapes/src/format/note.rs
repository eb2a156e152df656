//! What stands beside the logs of the shapes' kernel unit: notes and attachments.
//!
//! The name of a log says what it is: `c/<n>` bodies of changes, `g/<n>` references to them, `s/<handle>` a shape with its snapshot,
//! `b/<handle>/<n>` a later base of it, `t/<oid>` a table as it was last seen, `source` where changes come from.

use crate::definition::Definition;
use crate::format::offset::ShapeOffset;
use crate::state::snapshot::PgSnapshot;
use serde::{Deserialize, Serialize};
use thalweg_base::{DecodeError, Decoder, Encoder, Lsn};
use thalweg_log::Attachment;

const PLAIN: u8 = 0;
const SHAPE: u8 = 1;
const BASE: u8 = 2;

const SNAPSHOT_TAKEN: u8 = 1;
const CHUNK_END: u8 = 2;
const COMPLETE: u8 = 3;
const ROWS_GONE: u8 = 4;

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
    /// The rows were given up: there is a newer base.
    pub rows_gone: bool,
}

/// A base as it is kept: rows of a shape as of a position of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBase {
    /// The shape's number.
    pub shape: u64,
    /// From 1 on; never used again once it was shown.
    pub number: u32,
    /// The rows have every change up to here.
    pub end: ShapeOffset,
    /// The transactions that they have; `None`: it is not known yet.
    pub snapshot: Option<PgSnapshot>,
    /// Where complete chunks end in the log's content.
    pub chunks: Vec<u64>,
    /// All rows are there.
    pub complete: bool,
}

/// What a change of the state of a shape or of a base says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShapeNote {
    SnapshotTaken(PgSnapshot),
    ChunkEnd(u64),
    Complete,
    RowsGone,
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
            ShapeNote::RowsGone => out.put_u8(ROWS_GONE),
        }
        out
    }

    fn decode(note: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(note);
        let note = match d.u8()? {
            SNAPSHOT_TAKEN => ShapeNote::SnapshotTaken(PgSnapshot::decode(&mut d)?),
            CHUNK_END => ShapeNote::ChunkEnd(d.varint()?),
            COMPLETE => ShapeNote::Complete,
            ROWS_GONE => ShapeNote::RowsGone,
            other => return Err(DecodeError::Unknown { what: "note", got: u64::from(other) }),
        };
        d.end()?;
        Ok(note)
    }
}

/// What is kept with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogState {
    /// Whatever the content or the last note says.
    Plain(Vec<u8>),
    Shape(Box<Stored>),
    Base(Box<StoredBase>),
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
            LogState::Plain(_) | LogState::Base(_) => None,
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
            LogState::Shape(stored) => match ShapeNote::decode(note)? {
                ShapeNote::SnapshotTaken(snapshot) => stored.snapshot = Some(snapshot),
                ShapeNote::ChunkEnd(at) => stored.chunks.push(at),
                ShapeNote::Complete => stored.complete = true,
                ShapeNote::RowsGone => {
                    (stored.rows_gone, stored.chunks) = (true, Vec::new());
                }
            },
            LogState::Base(stored) => match ShapeNote::decode(note)? {
                ShapeNote::SnapshotTaken(snapshot) => stored.snapshot = Some(snapshot),
                ShapeNote::ChunkEnd(at) => stored.chunks.push(at),
                ShapeNote::Complete => stored.complete = true,
                ShapeNote::RowsGone => return Err(DecodeError::Range("note of a base")),
            },
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
                let flags = [stored.snapshot.is_some(), stored.complete, stored.rows_gone];
                put_rows(out, flags, stored.snapshot.as_ref(), &stored.chunks);
            }
            LogState::Base(stored) => {
                out.put_u8(BASE);
                out.put_varint(stored.shape);
                out.put_varint(u64::from(stored.number));
                out.put_varint(stored.end.lsn);
                out.put_varint(stored.end.op);
                let flags = [stored.snapshot.is_some(), stored.complete, false];
                put_rows(out, flags, stored.snapshot.as_ref(), &stored.chunks);
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
                let ([_, complete, rows_gone], snapshot, chunks) = rows(&mut d)?;
                Ok(LogState::Shape(Box::new(Stored {
                    number,
                    table,
                    definition,
                    identity,
                    snapshot,
                    chunks,
                    complete,
                    rows_gone,
                })))
            }
            BASE => {
                let (shape, number) = (d.varint()?, d.varint_u32()?);
                let end = ShapeOffset::new(d.varint()?, d.varint()?);
                let ([_, complete, _], snapshot, chunks) = rows(&mut d)?;
                Ok(LogState::Base(Box::new(StoredBase { shape, number, end, snapshot, chunks, complete })))
            }
            other => Err(DecodeError::Unknown { what: "note", got: u64::from(other) }),
        }
    }

    fn may_rest(&self, _: Lsn) -> bool {
        true
    }
}

/// Flags are: the snapshot is known, the rows are complete, they are gone.
fn put_rows(out: &mut Vec<u8>, flags: [bool; 3], snapshot: Option<&PgSnapshot>, chunks: &[u64]) {
    out.put_u8(flags.iter().rev().fold(0, |all, flag| all << 1 | u8::from(*flag)));
    if let Some(snapshot) = snapshot {
        snapshot.encode(out);
    }
    out.put_varint(chunks.len() as u64);
    chunks.iter().for_each(|at| out.put_varint(*at));
}

type Rows = ([bool; 3], Option<PgSnapshot>, Vec<u64>);

/// The end of a state: what [`put_rows`] has written.
fn rows(d: &mut Decoder<'_>) -> Result<Rows, DecodeError> {
    let flags = d.u8()?;
    if flags > 7 {
        return Err(DecodeError::Unknown { what: "flags", got: u64::from(flags) });
    }
    let flags = [flags & 1 != 0, flags & 2 != 0, flags & 4 != 0];
    let snapshot = flags[0].then(|| PgSnapshot::decode(d)).transpose()?;
    let count = d.varint()?;
    if count > d.rest().len() as u64 {
        return Err(DecodeError::Truncated(1));
    }
    let chunks = (0..count).map(|_| d.varint()).collect::<Result<_, _>>()?;
    d.end()?;
    Ok((flags, snapshot, chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored() -> Stored {
        Stored {
            number: 7,
            table: 16_500,
            definition: Definition::of_table("public", "t"),
            identity: "t".into(),
            snapshot: None,
            chunks: Vec::new(),
            complete: false,
            rows_gone: false,
        }
    }

    fn base() -> StoredBase {
        StoredBase {
            shape: 7,
            number: 2,
            end: ShapeOffset::new(300, 4),
            snapshot: None,
            chunks: Vec::new(),
            complete: false,
        }
    }

    fn after(mut state: LogState, notes: &[ShapeNote]) -> LogState {
        notes.iter().for_each(|note| state.apply(&note.encode(), Lsn::ZERO).unwrap());
        let again = LogState::decode(&state.note());
        assert_eq!(again.as_ref(), Ok(&state));
        state
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes_of_a_base() {
        let snapshot = PgSnapshot { xmin: 5, xmax: 9, xip: vec![5, 7], lsn: 300 };
        let notes = [ShapeNote::ChunkEnd(200), ShapeNote::SnapshotTaken(snapshot), ShapeNote::Complete];
        assert_eq!(hex(&LogState::Base(Box::new(base())).note()), "020702ac02040000");
        assert_eq!(notes.each_ref().map(|note| hex(&note.encode())), ["02c801", "010509ac02020507", "03"]);
        assert_eq!(hex(&after(LogState::Base(Box::new(base())), &notes).note()), "020702ac0204030509ac0202050701c801");
    }

    #[test]
    fn golden_bytes_of_rows_that_are_given_up() {
        let notes = [ShapeNote::ChunkEnd(3), ShapeNote::Complete, ShapeNote::RowsGone];
        assert_eq!(hex(&ShapeNote::RowsGone.encode()), "04");
        let note = after(LogState::Shape(Box::new(stored())), &notes).note();
        assert!(hex(&note).ends_with("01740600"), "the identity, the flags, no chunks: {}", hex(&note));
        assert!(LogState::Base(Box::new(base())).apply(&ShapeNote::RowsGone.encode(), Lsn::ZERO).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = LogState::decode(&bytes);
            for mut state in [LogState::Shape(Box::new(stored())), LogState::Base(Box::new(base()))] {
                let _ = state.apply(&bytes, Lsn::ZERO);
            }
        }
    }
}
