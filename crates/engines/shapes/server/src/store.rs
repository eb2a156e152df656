//! The shapes' kernel unit: its logs, and the content of each kind of frame.

use crate::format::note::{LogState, ShapeNote, SourceNote, Stored, StoredBase};
use crate::format::references::References;
use crate::format::shared_rows;
use crate::no_wait;
use crate::trim_index::TrimPoint;
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, Lsn, Offset};
use thalweg_journal::{AppendError, Class, Poisoned, WaitError};
use thalweg_log::{Append, Chunk, CommitError, Lengths, Logs, Op, ReadError, ReadFrom, SweepCursor};
use thalweg_shapes_model::name::Name;
use thalweg_shapes_model::table::Table;

const SOURCE: &str = "source";
const CHANGES: &str = "c/0";
const REFERENCES: &str = "g/0";
const SHAPE: &str = "s/";
const BASE: &str = "b/";
const TABLE: &str = "t/";
const SHARED_ROWS: &str = "r/";

/// The number of logs that a sweep reads under one lock.
const SWEEP: usize = 4096;

/// A failed operation of the kernel unit.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// Frames that were accepted are not durable.
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("{log} is damaged: {cause}")]
    Damaged { log: String, cause: String },
}

impl StoreError {
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, StoreError::Commit(CommitError::Refused(AppendError::NoSpace)))
    }

    /// The most bytes that one frame of the journal may have, if the error is a frame with more.
    #[must_use]
    pub fn frame_max(&self) -> Option<usize> {
        match self {
            StoreError::Commit(CommitError::Refused(AppendError::TooLarge { max, .. })) => Some(*max),
            _ => None,
        }
    }

    /// Whether it may go better later: the disk is full, or the journal is behind.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Commit(CommitError::Refused(AppendError::NoSpace | AppendError::Full { .. })))
    }
}

/// A shape as the unit has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a> {
    pub(crate) handle: &'a str,
    pub(crate) log: LogId,
    pub(crate) stored: &'a Stored,
}

/// A base as the unit has it.
#[derive(Clone, Debug)]
pub(crate) struct KeptBase {
    pub(crate) log: LogId,
    pub(crate) stored: StoredBase,
}

/// Rows of several shapes as the unit has them.
#[derive(Clone, Debug)]
pub(crate) struct StoredSharedRows {
    pub(crate) log: LogId,
    pub(crate) number: u64,
    /// Numbers of the shapes that may refer to them.
    pub(crate) holders: Vec<u64>,
}

/// The stored state that a start finds beside shapes.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) source: Option<SourceNote>,
    pub(crate) tables: Vec<Table>,
    pub(crate) bases: Vec<KeptBase>,
    pub(crate) shared_rows: Vec<StoredSharedRows>,
}

/// A write: the length of its references, and the position at which all of it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Where the bodies and the references went.
    pub(crate) at: TrimPoint,
    /// Bytes of the references.
    pub(crate) references: u64,
    pub(crate) end: Lsn,
}

pub(crate) struct Store {
    logs: Arc<Logs<LogState>>,
    /// Logs of bodies and of references; they have one writer.
    changes: LogId,
    references: LogId,
    source: Mutex<Option<LogId>>,
    /// Observes each step of an operation that must survive a crash between any two steps.
    #[cfg(test)]
    pub(crate) on_write: Mutex<Option<OnWrite>>,
}

#[cfg(test)]
pub(crate) type OnWrite = Box<dyn FnMut(&Store, Lsn) + Send>;

impl Store {
    pub(crate) fn open(logs: Arc<Logs<LogState>>) -> Result<Self, StoreError> {
        let changes = plain(&logs, CHANGES)?;
        let references = plain(&logs, REFERENCES)?;
        let source = logs.lock(&[SOURCE]).find(SOURCE);
        Ok(Self {
            logs,
            changes,
            references,
            source: Mutex::new(source),
            #[cfg(test)]
            on_write: Mutex::default(),
        })
    }

    #[cfg(test)]
    fn written(&self, end: Lsn) {
        if let Some(on_write) = &mut *self.on_write.lock() {
            on_write(self, end);
        }
    }

    #[cfg(not(test))]
    fn written(&self, _: Lsn) {}

    pub(crate) fn durable(&self) -> Lsn {
        self.logs.durable()
    }

    pub(crate) fn logs(&self) -> &Arc<Logs<LogState>> {
        &self.logs
    }

    /// Starts the sync of the written frames.
    pub(crate) fn kick(&self) {
        self.logs.journal().kick();
    }

    /// Waits until the journal is durable up to `end`.
    pub(crate) fn wait(&self, end: Lsn) -> Result<(), StoreError> {
        no_wait::assert_may_wait();
        self.logs.journal().kick();
        Ok(self.logs.journal().wait(end)?)
    }

    /// The same, but ends with an error when frames wait for space on the disk.
    pub(crate) fn wait_unless_full(&self, end: Lsn) -> Result<(), StoreError> {
        no_wait::assert_may_wait();
        self.logs.journal().kick();
        Ok(self.logs.journal().wait_unless_full(end)?)
    }

    /// All that there is, except for shapes and references.
    pub(crate) fn found(&self) -> Result<Found, StoreError> {
        let mut names = Vec::new();
        let mut cursor = Some(SweepCursor::default());
        while let Some(at) = cursor {
            cursor = self.logs.sweep_names(at, SWEEP, &mut |name| {
                if name == SOURCE || [TABLE, BASE, SHARED_ROWS].iter().any(|kind| name.starts_with(kind)) {
                    names.push(name.to_owned());
                }
            });
        }
        let (mut found, mut damaged) = (Found::default(), None);
        for name in names {
            self.logs.peek(&name, &mut |seen| match seen.attachment {
                LogState::Base(stored) => {
                    found.bases.push(KeptBase { log: seen.id, stored: (**stored).clone() });
                }
                LogState::Plain(state) if name == SOURCE => match serde_json::from_slice(state) {
                    Ok(source) => found.source = Some(source),
                    Err(error) => damaged = Some((name.clone(), error.to_string())),
                },
                LogState::Plain(state) if name.starts_with(SHARED_ROWS) => match shared_rows::decode(state) {
                    Ok(holders) => {
                        let number = name[SHARED_ROWS.len()..].parse().unwrap_or_default();
                        found.shared_rows.push(StoredSharedRows { log: seen.id, number, holders });
                    }
                    Err(error) => damaged = Some((name.clone(), error.to_string())),
                },
                LogState::Plain(state) => match serde_json::from_slice(state) {
                    Ok(table) => found.tables.push(table),
                    Err(error) => damaged = Some((name.clone(), error.to_string())),
                },
                LogState::Shape(_) => {}
            });
        }
        match damaged {
            Some((log, cause)) => Err(StoreError::Damaged { log, cause }),
            None => Ok(found),
        }
    }

    /// Visits every shape: one at a time, as all of them need much memory. `f` must not ask the store.
    pub(crate) fn each_shape(&self, f: &mut dyn FnMut(Kept<'_>)) {
        let mut cursor = Some(SweepCursor::default());
        while let Some(at) = cursor {
            cursor = self.logs.sweep_all(at, SWEEP, &mut |seen| {
                if let LogState::Shape(stored) = seen.attachment {
                    f(Kept { handle: seen.name.trim_start_matches(SHAPE), log: seen.id, stored });
                }
            });
        }
    }

    /// Reads every transaction's references, oldest first, each with its place.
    pub(crate) fn each_references(&self, f: &mut dyn FnMut(u64, References)) -> Result<(), StoreError> {
        let tail = self
            .logs
            .lock_logs(&[self.references], &[])
            .view(self.references)
            .map_or((Offset::ZERO, Offset::ZERO), |v| (v.start, v.published));
        let (mut from, upto) = tail;
        while from < upto {
            let chunk = self.logs.read(ReadFrom { log: self.references, from, upto })?;
            let mut at = from.0;
            from = chunk.end;
            let bytes = joined(chunk);
            let mut rest = &bytes[..];
            while let Some((record, after)) = rest
                .split_first_chunk::<4>()
                .and_then(|(len, rest)| rest.split_at_checked(u32::from_le_bytes(*len) as usize))
            {
                let references = References::decode(record);
                let damaged = |error: thalweg_base::DecodeError| StoreError::Damaged {
                    log: REFERENCES.into(),
                    cause: error.to_string(),
                };
                f(at, references.map_err(damaged)?);
                at += 4 + record.len() as u64;
                rest = after;
            }
            if !rest.is_empty() {
                return Err(StoreError::Damaged { log: REFERENCES.into(), cause: "a record is cut off".into() });
            }
        }
        Ok(())
    }

    /// Where the next bodies go. Only the writer of changes may ask.
    pub(crate) fn changes_tail(&self) -> u64 {
        self.logs.lock_logs(&[self.changes], &[]).view(self.changes).map_or(0, |view| view.tail.0)
    }

    /// Where the next references go. Only the writer of changes may ask.
    pub(crate) fn references_tail(&self) -> u64 {
        self.logs.lock_logs(&[self.references], &[]).view(self.references).map_or(0, |view| view.tail.0)
    }

    /// Bytes of bodies that are kept.
    pub(crate) fn changes_held(&self) -> u64 {
        let mut guard = self.logs.lock_logs(&[self.changes], &[]);
        guard.view(self.changes).map_or(0, |view| view.tail.0 - view.start.0)
    }

    /// Gives up bodies and references before these places.
    pub(crate) fn trim_changes(&self, point: TrimPoint) -> Result<(), StoreError> {
        let TrimPoint { bodies, references } = point;
        let ops = [
            Op::Trim { log: self.changes, start: Offset(bodies) },
            Op::Trim { log: self.references, start: Offset(references) },
        ];
        let end = self.logs.lock_logs(&[self.changes, self.references], &[]).commit(Class::Upkeep, &ops)?.end;
        self.written(end);
        Ok(())
    }

    /// Appends bodies of a transaction, and its references, if it is complete (with others that were put off): one
    /// frame.
    pub(crate) fn write_changes(
        &self,
        bodies: &Bytes,
        lengths: &Lengths,
        references: &[References],
    ) -> Result<Written, StoreError> {
        let parts: [&[u8]; 1] = [bodies];
        let body = Op::Write { log: self.changes, note: b"", append: Some(Append::Bytes { parts: &parts, lengths }) };
        let mut records = Vec::with_capacity(64);
        let mut record_lengths = Lengths::default();
        for record in references.iter().map(References::encode) {
            let head = u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes();
            records.extend_from_slice(&head);
            records.extend_from_slice(&record);
            record_lengths.push(u32::try_from(head.len() + record.len()).unwrap_or(u32::MAX));
        }
        let records: [&[u8]; 1] = [&records];
        let append = Some(Append::Bytes { parts: &records, lengths: &record_lengths });
        let refer = Op::Write { log: self.references, note: b"", append };
        let mut guard = self.logs.lock_logs(&[self.changes, self.references], &[]);
        let at = TrimPoint {
            bodies: guard.view(self.changes).map_or(0, |view| view.tail.0),
            references: guard.view(self.references).map_or(0, |view| view.tail.0),
        };
        let committed = match (bodies.is_empty(), !references.is_empty()) {
            (false, true) => guard.commit(Class::User, &[body, refer]),
            (false, false) => guard.commit(Class::User, &[body]),
            _ => guard.commit(Class::User, &[refer]),
        };
        Ok(Written { at, references: record_lengths.bytes(), end: committed?.end })
    }

    /// Where bodies lie.
    pub(crate) fn bodies(&self, range: Range<u64>) -> ReadFrom {
        read_from(self.changes, range)
    }

    /// Makes the log of a shape, with rows of its snapshot if there are any.
    pub(crate) fn create_shape(
        &self,
        handle: Name,
        stored: &Stored,
        rows: Option<Append<'_>>,
    ) -> Result<(LogId, Lsn), StoreError> {
        self.create(&format!("{SHAPE}{handle}"), &LogState::Shape(Box::new(stored.clone())), rows)
    }

    /// A log for rows that several shapes are to refer to, with the first of them. `number` names it and is never used
    /// again; `holders` are the numbers of the shapes.
    pub(crate) fn create_shared_rows(
        &self,
        number: u64,
        holders: &[u64],
        rows: Append<'_>,
    ) -> Result<LogId, StoreError> {
        Ok(self
            .create(&format!("{SHARED_ROWS}{number}"), &LogState::Plain(shared_rows::encode(holders)), Some(rows))?
            .0)
    }

    /// A log for the rows of a base.
    pub(crate) fn create_base(&self, handle: Name, stored: StoredBase) -> Result<LogId, StoreError> {
        let name = format!("{BASE}{handle}/{}", stored.number);
        Ok(self.create(&name, &LogState::Base(Box::new(stored)), None)?.0)
    }

    fn create(&self, name: &str, state: &LogState, append: Option<Append<'_>>) -> Result<(LogId, Lsn), StoreError> {
        let note = state.note();
        let create = Op::Create { name, note: &note, origin: None, append };
        let committed =
            self.logs.lock_logs(source(append.as_ref()).as_slice(), &[name]).commit(Class::User, &[create])?;
        self.written(committed.end);
        Ok((committed.created.unwrap_or_default(), committed.end))
    }

    /// Appends rows of a snapshot or of a base, changes its state, or both.
    pub(crate) fn write_shape(
        &self,
        log: LogId,
        note: Option<&ShapeNote>,
        rows: &[u8],
        lengths: &Lengths,
    ) -> Result<Lsn, StoreError> {
        let note = note.map(ShapeNote::encode).unwrap_or_default();
        let parts: [&[u8]; 1] = [rows];
        let append = (!rows.is_empty()).then_some(Append::Bytes { parts: &parts, lengths });
        let end = self.logs.lock_logs(&[log], &[]).commit(Class::User, &[Op::Write { log, note: &note, append }])?.end;
        self.written(end);
        Ok(end)
    }

    /// Appends rows of a snapshot, one list after the other, and then changes its state: all or none.
    pub(crate) fn write_rows(&self, log: LogId, rows: &[Append<'_>], notes: &[ShapeNote]) -> Result<Lsn, StoreError> {
        let notes: Vec<Vec<u8>> = notes.iter().map(ShapeNote::encode).collect();
        let rows_ops = rows.iter().map(|rows| Op::Write { log, note: b"", append: Some(*rows) });
        let ops: Vec<Op<'_>> = rows_ops.chain(notes.iter().map(|note| Op::Write { log, note, append: None })).collect();
        if ops.is_empty() {
            return Ok(Lsn::ZERO);
        }
        let logs: Vec<LogId> = rows.iter().filter_map(|rows| source(Some(rows))).chain([log]).collect();
        let end = self.logs.lock_logs(&logs, &[]).commit(Class::User, &ops)?.end;
        self.written(end);
        Ok(end)
    }

    /// Deletes a shape's log, those of its bases, or both: all or none.
    pub(crate) fn delete_shape(&self, logs: &[LogId]) -> Result<Lsn, StoreError> {
        let ops: Vec<Op<'_>> = logs.iter().map(|log| Op::Delete { log: *log }).collect();
        let end = self.logs.lock_logs(logs, &[]).commit(Class::Upkeep, &ops)?.end;
        self.written(end);
        Ok(end)
    }

    /// Deletes bases; `first`: the log of a shape whose snapshot's rows go too.
    pub(crate) fn delete_bases(&self, first: Option<LogId>, bases: &[LogId]) -> Result<Lsn, StoreError> {
        let all: Vec<LogId> = first.iter().chain(bases).copied().collect();
        let mut guard = self.logs.lock_logs(&all, &[]);
        let note = ShapeNote::RowsGone.encode();
        let mut ops: Vec<Op<'_>> = bases.iter().map(|log| Op::Delete { log: *log }).collect();
        if let Some(log) = first
            && let Some(tail) = guard.view(log).map(|view| view.tail)
        {
            ops.push(Op::Write { log, note: &note, append: None });
            ops.push(Op::Trim { log, start: tail });
        }
        let end = guard.commit(Class::Upkeep, &ops)?.end;
        drop(guard);
        self.written(end);
        Ok(end)
    }

    /// Reads rows from front to back in pieces that end where rows do, from a thread that may wait.
    pub(crate) fn each_rows<E: From<ReadError>>(
        &self,
        log: LogId,
        upto: u64,
        f: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut range = ReadFrom { log, from: Offset::ZERO, upto: Offset(upto) };
        while range.from < range.upto {
            let chunk = self.logs.read(range)?;
            range.from = chunk.end;
            f(&joined(chunk))?;
        }
        Ok(())
    }

    /// A chunk of rows or bodies, if no device has to be waited for. A chunk that many readers need is in memory once.
    pub(crate) fn try_chunk(&self, from: ReadFrom) -> Option<Result<Chunk, ReadError>> {
        self.logs.recall(from).map(Ok).or_else(|| self.logs.try_read(from))
    }

    /// The same, from a thread that may wait.
    pub(crate) fn chunk(&self, from: ReadFrom) -> Result<Chunk, ReadError> {
        no_wait::assert_may_wait();
        self.logs.recall(from).map_or_else(|| self.logs.read(from), Ok)
    }

    /// Notes a table as it is now.
    pub(crate) fn put_table(&self, table: &Table) -> Result<Lsn, StoreError> {
        self.put(&format!("{TABLE}{}", table.oid), &serde_json::to_vec(table).unwrap_or_default())
    }

    pub(crate) fn forget_table(&self, oid: u32) -> Result<(), StoreError> {
        let name = format!("{TABLE}{oid}");
        let mut guard = self.logs.lock(&[&name]);
        if let Some(log) = guard.find(&name) {
            guard.commit(Class::Upkeep, &[Op::Delete { log }])?;
        }
        Ok(())
    }

    /// Forgets all tables.
    pub(crate) fn forget_tables(&self) -> Result<(), StoreError> {
        let mut oids = Vec::new();
        let mut cursor = Some(SweepCursor::default());
        while let Some(at) = cursor {
            cursor = self.logs.sweep_names(at, SWEEP, &mut |name| {
                oids.extend(name.strip_prefix(TABLE).and_then(|oid| oid.parse::<u32>().ok()));
            });
        }
        oids.into_iter().try_for_each(|oid| self.forget_table(oid))
    }

    /// Forgets all changes. Only their writer may ask.
    pub(crate) fn forget_changes(&self) -> Result<(), StoreError> {
        self.trim_changes(TrimPoint { bodies: self.changes_tail(), references: self.references_tail() })
    }

    pub(crate) fn put_source(&self, source: &SourceNote) -> Result<Lsn, StoreError> {
        let end = self.put(SOURCE, &serde_json::to_vec(source).unwrap_or_default())?;
        *self.source.lock() = self.logs.lock(&[SOURCE]).find(SOURCE);
        Ok(end)
    }

    fn put(&self, name: &str, state: &[u8]) -> Result<Lsn, StoreError> {
        let mut guard = self.logs.lock(&[name]);
        let committed = match guard.find(name) {
            Some(log) => guard.commit(Class::User, &[Op::Write { log, note: state, append: None }])?,
            None => {
                let note = LogState::Plain(state.to_vec()).note();
                guard.commit(Class::User, &[Op::Create { name, note: &note, origin: None, append: None }])?
            }
        };
        Ok(committed.end)
    }
}

/// Where rows that are referred to lie.
fn source(append: Option<&Append<'_>>) -> Option<LogId> {
    match append {
        Some(Append::Reference { source, .. }) => Some(*source),
        Some(Append::Bytes { .. }) | None => None,
    }
}

/// Positions of a log as a read wants them.
pub(crate) fn read_from(log: LogId, range: Range<u64>) -> ReadFrom {
    ReadFrom { log, from: Offset(range.start), upto: Offset(range.end) }
}

/// The log of that name, made if it is not there.
fn plain(logs: &Logs<LogState>, name: &str) -> Result<LogId, StoreError> {
    let mut guard = logs.lock(&[name]);
    if let Some(log) = guard.find(name) {
        return Ok(log);
    }
    let note = LogState::Plain(Vec::new()).note();
    let committed = guard.commit(Class::User, &[Op::Create { name, note: &note, origin: None, append: None }])?;
    Ok(committed.created.unwrap_or_default())
}

/// A chunk's bytes in one piece.
pub(crate) fn joined(chunk: Chunk) -> Bytes {
    match &chunk.parts[..] {
        [one] => one.clone(),
        parts => parts.concat().into(),
    }
}
