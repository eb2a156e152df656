//! The notes and attachments of logs in the shapes' kernel unit.
//!
//! The name of a log says what it is: `c/<n>` bodies of changes, `g/<n>` references to them, `s/<handle>` a shape with
//! its snapshot,
//! `b/<handle>/<n>` a later base of it, `t/<oid>` a table as it was last seen, `source` where changes come from.
//!
//! A shape's state, in bytes; numbers are varints, texts and lists have their length before them:
//!
//! ```text
//! 3, number, table's oid, identity (16 bytes), flags,
//! schema, table, [columns], [queryable columns], [where, params], rows
//! ```
//!
//! A field in brackets is present if its flag is set: 1 where, 2 columns, 4 queryable columns; 8 is `replica=full`, 16
//! `log=changes_only`, and 32 a shape of an inner query. A base's state:
//!
//! ```text
//! 2, shape's number, base's number, end's LSN, end's place in its transaction, rows
//! ```
//!
//! And `rows` are, with flags 1 for a snapshot that is known, 2 for complete, 4 for gone:
//!
//! ```text
//! flags, [xmin, xmax, LSN, xip], ends of chunks
//! ```
//!
//! A million shapes have such a state in memory each: that is why it is so terse.

use serde::{Deserialize, Serialize};
use thalweg_base::{DecodeError, Decoder, Encoder, Lsn};
use thalweg_log::Attachment;
use thalweg_shapes_model::definition::{Definition, Identity, LogMode, Replica};
use thalweg_shapes_model::history::{Anchor, SourceIdentity};
use thalweg_shapes_model::offset::ShapeOffset;
use thalweg_shapes_model::snapshot::PgSnapshot;
use thalweg_shapes_model::table::TableName;

const PLAIN: u8 = 0;
const BASE: u8 = 2;
const SHAPE: u8 = 3;

/// Flags of a shape's state.
const HAS_WHERE: u8 = 1;
const HAS_COLUMNS: u8 = 2;
const HAS_QUERYABLE: u8 = 4;
const REPLICA_FULL: u8 = 8;
const CHANGES_ONLY: u8 = 16;
const INNER: u8 = 32;
const FLAGS: u8 = 63;

const SNAPSHOT_TAKEN: u8 = 1;
const CHUNK_END: u8 = 2;
const COMPLETE: u8 = 3;
const ROWS_GONE: u8 = 4;

/// The durable record of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceNote {
    #[serde(flatten)]
    pub identity: SourceIdentity,
    /// The highest position that Postgres was told: it may have forgotten the changes before it. `None`: an earlier
    /// version of this server wrote the note.
    #[serde(default)]
    pub acknowledged: Option<u64>,
    /// The last transaction that was read before.
    #[serde(default)]
    pub anchor: Option<Anchor>,
    /// The xids of the last transactions that were read before, oldest first: snapshots may not show them yet.
    #[serde(default)]
    pub recent: Vec<u32>,
    /// A clean stop wrote this note: all changes that clients have seen are stored. Absent: a start or a run wrote it.
    #[serde(default)]
    pub clean: bool,
}

/// A shape as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The number by which references name it; never used again.
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
    /// The rows were given up: there is a newer base.
    pub rows_gone: bool,
}

impl Stored {
    fn encode(&self, out: &mut Vec<u8>) {
        let definition = &self.definition;
        out.put_varint(self.number);
        out.put_varint(u64::from(self.table));
        out.extend_from_slice(&self.identity.0);
        let flags = [
            (HAS_WHERE, definition.where_sql.is_some()),
            (HAS_COLUMNS, definition.columns.is_some()),
            (HAS_QUERYABLE, definition.queryable.is_some()),
            (REPLICA_FULL, definition.replica == Replica::Full),
            (CHANGES_ONLY, definition.log == LogMode::ChangesOnly),
            (INNER, definition.log == LogMode::Inner),
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
        let flags = [self.snapshot.is_some(), self.complete, self.rows_gone];
        put_rows(out, flags, self.snapshot.as_ref(), &self.chunks);
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let (number, table) = (d.varint()?, d.varint_u32()?);
        let identity: [u8; 16] = d.take(16)?.try_into().map_err(|_| DecodeError::Truncated(16))?;
        let flags = d.u8()?;
        if flags & !FLAGS != 0 {
            return Err(DecodeError::Unknown { what: "flags", got: u64::from(flags) });
        }
        let has = |flag: u8| flags & flag != 0;
        let name = TableName { schema: d.str()?.to_owned(), name: d.str()?.to_owned() };
        let columns = has(HAS_COLUMNS).then(|| texts(d)).transpose()?;
        let queryable = has(HAS_QUERYABLE).then(|| texts(d)).transpose()?;
        let where_sql = has(HAS_WHERE).then(|| d.str().map(str::to_owned)).transpose()?;
        let params = if has(HAS_WHERE) { texts(d)? } else { Vec::new() };
        let ([_, complete, rows_gone], snapshot, chunks) = rows(d)?;
        let definition = Definition {
            table: name,
            where_sql,
            params: (1..).zip(params).collect(),
            columns,
            queryable,
            replica: if has(REPLICA_FULL) { Replica::Full } else { Replica::Default },
            log: match (has(CHANGES_ONLY), has(INNER)) {
                (false, false) => LogMode::Full,
                (true, false) => LogMode::ChangesOnly,
                (false, true) => LogMode::Inner,
                (true, true) => return Err(DecodeError::Unknown { what: "flags", got: u64::from(flags) }),
            },
        };
        let identity = Identity(identity);
        Ok(Self { number, table, definition, identity, snapshot, chunks, complete, rows_gone })
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

/// The content of a note: a change of the state of a shape or of a base.
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

/// The attachment of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogState {
    /// For any content and any last note.
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

    fn check(&self, note: &[u8]) -> Result<(), DecodeError> {
        match self {
            LogState::Plain(_) => Ok(()),
            LogState::Shape(_) => ShapeNote::decode(note).map(|_| ()),
            LogState::Base(_) => match ShapeNote::decode(note)? {
                ShapeNote::RowsGone => Err(DecodeError::Range("note of a base")),
                _ => Ok(()),
            },
        }
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
                stored.encode(out);
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
                let stored = Stored::decode(&mut d)?;
                d.end()?;
                Ok(LogState::Shape(Box::new(stored)))
            }
            BASE => {
                let (shape, number) = (d.varint()?, d.varint_u32()?);
                let end = ShapeOffset::new(d.varint()?, d.varint()?);
                let ([_, complete, _], snapshot, chunks) = rows(&mut d)?;
                d.end()?;
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
    let chunks = (0..count(d)?).map(|_| d.varint()).collect::<Result<_, _>>()?;
    Ok((flags, snapshot, chunks))
}

/// A fuzz target's way in: takes `data` for the state of a log as the checkpoint has it, and for notes that change one.
#[doc(hidden)]
pub fn fuzz_log_state(data: &[u8]) {
    let Ok(mut state) = <LogState as Attachment>::decode(data) else { return };
    let again = state.note();
    assert_eq!(<LogState as Attachment>::decode(&again).map(|state| state.note()), Ok(again));
    for note in [data, data.get(1..).unwrap_or_default()] {
        // A note that passes the check can be applied.
        if state.check(note).is_ok() {
            assert_eq!(state.apply(note, Lsn(9)), Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored() -> Stored {
        let definition = Definition { where_sql: Some("id = 12".into()), ..Definition::of_table("public", "items") };
        Stored {
            number: 300,
            table: 16_400,
            definition,
            identity: Identity(std::array::from_fn(|n| n as u8)),
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
    fn golden_bytes_of_a_shape() {
        let snapshot = PgSnapshot { xmin: 10, xmax: 12, xip: vec![11], lsn: 1000 };
        let plain = Stored { snapshot: Some(snapshot), chunks: vec![77], complete: true, ..stored() };
        let expected = [
            "03ac02908001",
            "000102030405060708090a0b0c0d0e0f",
            "01",
            "067075626c6963056974656d73",
            "076964203d20313200",
            "030a0ce807010b014d",
        ];
        assert_eq!(hex(&LogState::Shape(Box::new(plain)).note()), expected.concat());
        let definition = Definition {
            where_sql: Some("a=$1".into()),
            params: vec![(1, "x".into())],
            columns: Some(vec!["a".into(), "b".into()]),
            queryable: Some(vec!["a".into()]),
            replica: Replica::Full,
            log: LogMode::ChangesOnly,
            ..Definition::of_table("s", "t")
        };
        let all = LogState::Shape(Box::new(Stored { definition, ..stored() }));
        let expected = [
            "03ac02908001",
            "000102030405060708090a0b0c0d0e0f",
            "1f",
            "01730174",
            "0201610162",
            "010161",
            "04613d2431010178",
            "0000",
        ];
        assert_eq!(hex(&all.note()), expected.concat());
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
        assert!(hex(&note).ends_with("3132000600"), "no params, the flags, no chunks: {}", hex(&note));
        assert!(LogState::Base(Box::new(base())).apply(&ShapeNote::RowsGone.encode(), Lsn::ZERO).is_err());
    }

    proptest! {
        #[test]
        fn a_state_is_read_back_as_it_was_written(
            predicate in prop::option::of((".{0,9}", prop::collection::vec(".{0,9}", 0..3))),
            columns in prop::option::of(prop::collection::vec(".{0,9}", 0..3)),
            queryable in prop::option::of(prop::collection::vec(".{0,9}", 0..3)),
            xip in prop::option::of(prop::collection::vec(any::<u64>(), 0..3)),
            chunks: Vec<u64>,
            [full, complete]: [bool; 2],
            log in prop::sample::select(vec![LogMode::Full, LogMode::ChangesOnly, LogMode::Inner]),
        ) {
            let (where_sql, params) = predicate.map_or((None, vec![]), |(sql, params)| (Some(sql), params));
            let definition = Definition {
                where_sql,
                params: (1..).zip(params).collect(),
                columns,
                queryable,
                replica: if full { Replica::Full } else { Replica::Default },
                log,
                ..Definition::of_table("a", "b")
            };
            let snapshot = xip.map(|xip| PgSnapshot { xmin: 1, xmax: u64::MAX, xip, lsn: 3 });
            let state = LogState::Shape(Box::new(Stored { definition, snapshot, chunks, complete, ..stored() }));
            let bytes = state.note();
            prop_assert_eq!(LogState::decode(&bytes), Ok(state));
            for end in 0..bytes.len() {
                prop_assert!(LogState::decode(&bytes[..end]).is_err() || bytes[0] == PLAIN);
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, kind in PLAIN..=SHAPE) {
            let _ = LogState::decode(&[&[kind], &bytes[..]].concat());
            for mut state in [LogState::Shape(Box::new(stored())), LogState::Base(Box::new(base()))] {
                let _ = state.apply(&bytes, Lsn::ZERO);
            }
        }
    }
}
