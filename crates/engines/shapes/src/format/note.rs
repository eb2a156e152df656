//! What stands beside the logs of the shapes' kernel unit: notes and attachments.
//!
//! The name of a log says what it is: `c/<n>` bodies of changes, `g/<n>` references to them, `s/<handle>` a shape with its snapshot,
//! `t/<oid>` a table as it was last seen, `source` where changes come from.
//!
//! A shape's state, in bytes; numbers are varints, texts and lists have their length before them:
//!
//! ```text
//! 2, number, table's oid, identity (16 bytes), flags,
//! schema, table, [columns], [queryable columns], [where, count of params, params],
//! [snapshot: xmin, xmax, LSN, count of xip, xip], count of chunks, their ends
//! ```
//!
//! What is in brackets is there if its flag is: 1 snapshot, 2 complete, 4 where, 8 columns, 16 queryable columns; 32 is `replica=full`
//! and 64 `log=changes_only`. A million shapes have such a state in memory each: that is why it is so terse.

use crate::definition::{Definition, Identity, LogMode, Replica};
use crate::state::snapshot::PgSnapshot;
use crate::table::TableName;
use serde::{Deserialize, Serialize};
use thalweg_base::{DecodeError, Decoder, Encoder, Lsn};
use thalweg_log::Attachment;

const PLAIN: u8 = 0;
const SHAPE: u8 = 2;

/// Flags of a shape's state.
const HAS_SNAPSHOT: u8 = 1;
const COMPLETED: u8 = 2;
const HAS_WHERE: u8 = 4;
const HAS_COLUMNS: u8 = 8;
const HAS_QUERYABLE: u8 = 16;
const REPLICA_FULL: u8 = 32;
const CHANGES_ONLY: u8 = 64;

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
    pub identity: Identity,
    /// `None`: it was not taken yet.
    pub snapshot: Option<PgSnapshot>,
    /// Where complete snapshot chunks end in the log's content.
    pub chunks: Vec<u64>,
    /// The last chunk is complete too.
    pub complete: bool,
}

impl Stored {
    fn encode(&self, out: &mut Vec<u8>) {
        let definition = &self.definition;
        out.put_varint(self.number);
        out.put_varint(u64::from(self.table));
        out.extend_from_slice(&self.identity.0);
        let flags = [
            (HAS_SNAPSHOT, self.snapshot.is_some()),
            (COMPLETED, self.complete),
            (HAS_WHERE, definition.where_sql.is_some()),
            (HAS_COLUMNS, definition.columns.is_some()),
            (HAS_QUERYABLE, definition.queryable.is_some()),
            (REPLICA_FULL, definition.replica == Replica::Full),
            (CHANGES_ONLY, definition.log == LogMode::ChangesOnly),
        ];
        out.put_u8(flags.iter().filter(|(_, is)| *is).fold(0, |all, (flag, _)| all | flag));
        out.put_bytes(definition.table.schema.as_bytes());
        out.put_bytes(definition.table.name.as_bytes());
        for names in [&definition.columns, &definition.queryable].into_iter().flatten() {
            put_texts(names.iter(), out);
        }
        if let Some(sql) = &definition.where_sql {
            out.put_bytes(sql.as_bytes());
            put_texts(definition.params.iter().map(|(_, value)| value), out);
        }
        if let Some(snapshot) = &self.snapshot {
            snapshot.encode(out);
        }
        out.put_varint(self.chunks.len() as u64);
        self.chunks.iter().for_each(|at| out.put_varint(*at));
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (number, table) = (d.varint()?, d.varint_u32()?);
        let identity: [u8; 16] = d.take(16)?.try_into().map_err(|_| DecodeError::Truncated(16))?;
        let flags = d.u8()?;
        let has = |flag: u8| flags & flag != 0;
        let name = TableName { schema: d.str()?.to_owned(), name: d.str()?.to_owned() };
        let columns = has(HAS_COLUMNS).then(|| texts(d)).transpose()?;
        let queryable = has(HAS_QUERYABLE).then(|| texts(d)).transpose()?;
        let where_sql = has(HAS_WHERE).then(|| d.str().map(str::to_owned)).transpose()?;
        let params = if has(HAS_WHERE) { texts(d)? } else { Vec::new() };
        let snapshot = has(HAS_SNAPSHOT).then(|| PgSnapshot::decode(d)).transpose()?;
        let chunks = (0..count(d)?).map(|_| d.varint()).collect::<Result<_, _>>()?;
        let definition = Definition {
            table: name,
            where_sql,
            params: (1..).zip(params).collect(),
            columns,
            queryable,
            replica: if has(REPLICA_FULL) { Replica::Full } else { Replica::Default },
            log: if has(CHANGES_ONLY) { LogMode::ChangesOnly } else { LogMode::Full },
        };
        let (identity, complete) = (Identity(identity), has(COMPLETED));
        Ok(Self { number, table, definition, identity, snapshot, chunks, complete })
    }
}

fn put_texts<'a>(texts: impl ExactSizeIterator<Item = &'a String>, out: &mut Vec<u8>) {
    out.put_varint(texts.len() as u64);
    texts.for_each(|text| out.put_bytes(text.as_bytes()));
}

fn texts(d: &mut Decoder<'_>) -> Result<Vec<String>, DecodeError> {
    (0..count(d)?).map(|_| d.str().map(str::to_owned)).collect()
}

/// How many follow, each of which takes a byte at least.
fn count(d: &mut Decoder<'_>) -> Result<u64, DecodeError> {
    let count = d.varint()?;
    if count > d.rest().len() as u64 {
        return Err(DecodeError::Truncated(1));
    }
    Ok(count)
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
                stored.encode(out);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(bytes);
        match d.u8()? {
            PLAIN => Ok(LogState::Plain(d.rest().to_vec())),
            SHAPE => {
                let stored = Stored::decode(&mut d)?;
                d.end()?;
                Ok(LogState::Shape(Box::new(stored)))
            }
            other => Err(DecodeError::Unknown { what: "note", got: u64::from(other) }),
        }
    }

    fn may_rest(&self, _: Lsn) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(definition: Definition, snapshot: Option<PgSnapshot>, chunks: Vec<u64>, complete: bool) -> LogState {
        let identity = Identity(std::array::from_fn(|n| n as u8));
        LogState::Shape(Box::new(Stored {
            number: 300,
            table: 16400,
            definition,
            identity,
            snapshot,
            chunks,
            complete,
        }))
    }

    fn hex(state: &LogState) -> String {
        state.note().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_bytes_are_pinned() {
        let plain = Definition { where_sql: Some("id = 12".into()), ..Definition::of_table("public", "items") };
        let snapshot = PgSnapshot { xmin: 10, xmax: 12, xip: vec![11], lsn: 1000 };
        assert_eq!(
            hex(&stored(plain, Some(snapshot), vec![77], true)),
            concat!(
                "02ac029080010001020304050607",
                "08090a0b0c0d0e0f07",
                "067075626c6963056974656d73",
                "076964203d20313200",
                "0a0ce807010b",
                "014d"
            )
        );
        let all = Definition {
            where_sql: Some("a=$1".into()),
            params: vec![(1, "x".into())],
            columns: Some(vec!["a".into(), "b".into()]),
            queryable: Some(vec!["a".into()]),
            replica: Replica::Full,
            log: LogMode::ChangesOnly,
            ..Definition::of_table("s", "t")
        };
        assert_eq!(
            hex(&stored(all, None, vec![], false)),
            concat!(
                "02ac0290800100010203040506070809",
                "0a0b0c0d0e0f7c",
                "01730174",
                "0201610162",
                "010161",
                "04613d2431010178",
                "00"
            )
        );
    }

    proptest! {
        #[test]
        fn a_state_is_read_back_as_it_was_written(
            predicate in prop::option::of((".{0,9}", prop::collection::vec(".{0,9}", 0..3))),
            columns in prop::option::of(prop::collection::vec(".{0,9}", 0..3)),
            queryable in prop::option::of(prop::collection::vec(".{0,9}", 0..3)),
            xip in prop::option::of(prop::collection::vec(any::<u64>(), 0..3)),
            chunks: Vec<u64>,
            [full, changes, complete]: [bool; 3],
        ) {
            let (where_sql, params) = predicate.map_or((None, vec![]), |(sql, params)| (Some(sql), params));
            let definition = Definition {
                where_sql,
                params: (1..).zip(params).collect(),
                columns,
                queryable,
                replica: if full { Replica::Full } else { Replica::Default },
                log: if changes { LogMode::ChangesOnly } else { LogMode::Full },
                ..Definition::of_table("a", "b")
            };
            let snapshot = xip.map(|xip| PgSnapshot { xmin: 1, xmax: u64::MAX, xip, lsn: 3 });
            let state = stored(definition, snapshot, chunks, complete);
            let bytes = state.note();
            prop_assert_eq!(LogState::decode(&bytes), Ok(state));
            for end in 0..bytes.len() {
                prop_assert!(LogState::decode(&bytes[..end]).is_err() || bytes[0] == PLAIN);
            }
        }

        #[test]
        fn garbage_never_panics(mut bytes: Vec<u8>) {
            let _ = LogState::decode(&bytes);
            bytes.insert(0, SHAPE);
            let _ = LogState::decode(&bytes);
        }
    }
}
