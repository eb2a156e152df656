//! Makes a base: the rows of the newest one, and the changes since.

use super::Compactor;
use super::pace::Pace;
use super::write::Writer;
use crate::format::note::StoredBase;
use crate::shape::Shape;
use crate::store::StoreError;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_base::{LogId, Lsn};
use thalweg_log::ReadError;
use thalweg_shapes_core::compact::body::BodyError;
use thalweg_shapes_core::compact::delta::{Delta, Part};
use thalweg_shapes_core::state::bases::Base;
use thalweg_shapes_core::state::entries::Entry;
use thalweg_shapes_model::definition::LogMode;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// Memory for changed rows. Of more, all is read several times, and each time a part of the keys is merged.
const DELTA_BYTES_MAX: usize = 64 << 20;
/// Parts of the keys, at most.
const PARTS_MAX: u64 = 1 << 12;
/// Bodies that lie together are read together up to this size.
const READ_BYTES: u32 = 256 << 10;

/// Why there is no new base.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakeError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the server is stopping")]
    Stopping,
}

impl MakeError {
    /// Whether it can never go better.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, MakeError::Body(_) | MakeError::Read(ReadError::Corrupt { .. }))
    }
}

/// A base that is not shown yet.
pub(crate) struct Made {
    pub(crate) shape: Arc<Shape>,
    pub(crate) base: Base,
    /// When this is durable, it may be shown.
    pub(crate) durable: Lsn,
}

/// The input of a merge: a shape's newest base and the changes since.
struct MergeInput {
    number: u32,
    log: LogId,
    /// Bytes of rows.
    rows: u64,
    snapshot: PgSnapshot,
    entries: Vec<Entry>,
}

/// Makes the next base of a shape. `None`: there is nothing to merge, or nothing to merge it with.
pub(crate) fn make(
    compactor: &Compactor,
    shape: &Arc<Shape>,
    pace: &mut Pace,
    delta_max: usize,
) -> Result<Option<Made>, MakeError> {
    let Some(source) = source(compactor, shape) else { return Ok(None) };
    let Some(end) = source.entries.last().map(Entry::offset) else { return Ok(None) };
    let number = source.number + 1;
    let stored = StoredBase { shape: shape.number, number, end, snapshot: None, chunks: Vec::new(), complete: false };
    let log = compactor.changes.store.create_base(shape.handle, stored)?;
    let written = write(compactor, shape, &source, log, pace, delta_max);
    let (snapshot, chunks, durable) = match written {
        Ok(written) => written,
        Err(error) => {
            discard(compactor, log);
            return Err(error);
        }
    };
    let base = Base { number, log, end, chunks, snapshot: Box::new(snapshot), shown_ms: 0 };
    Ok(Some(Made { shape: Arc::clone(shape), base, durable }))
}

/// Deletes the log of a base that will not be published.
pub(crate) fn discard(compactor: &Compactor, log: LogId) {
    // The next start deletes the log if this fails.
    if let Err(error) = compactor.changes.store.delete_shape(&[log]) {
        tracing::warn!(%error, "a base that was not finished cannot be deleted");
    }
}

/// Publishes a durable base, unless the shape was retired since the merge began.
pub(crate) fn show(compactor: &Compactor, made: Made) {
    let Made { shape, mut base, .. } = made;
    let log = base.log;
    base.shown_ms = compactor.lifetime.now_ms();
    let shown = {
        let mut state = shape.lock();
        let next = state.is_live() && state.newest() + 1 == base.number;
        if next {
            state.show(base);
        }
        next
    };
    if shown {
        compactor.lifetime.counters.bases_made.fetch_add(1, Ordering::Relaxed);
    } else {
        discard(compactor, log);
    }
}

fn source(compactor: &Compactor, shape: &Shape) -> Option<MergeInput> {
    // Read before the shape is locked: the shape has all changes before this position.
    let processed = compactor.watermarks.processed_lsn().0;
    let state = shape.lock();
    if !state.is_live() {
        return None;
    }
    let number = state.newest();
    let rows = state.rows(number)?;
    Some(MergeInput {
        number,
        log: rows.log?,
        rows: rows.chunks.last().copied()?,
        snapshot: rows.snapshot?.clone(),
        entries: state.entries.between(rows.end, processed).to_vec(),
    })
}

type Written = (PgSnapshot, Vec<u64>, Lsn);

fn write(
    compactor: &Compactor,
    shape: &Shape,
    source: &MergeInput,
    log: LogId,
    pace: &mut Pace,
    delta_max: usize,
) -> Result<Written, MakeError> {
    let mut writer = Writer::new(compactor, log);
    let lsn = source.entries.last().map_or(0, |entry| entry.lsn);
    // A client of a changes-only shape begins with no rows.
    if shape.family.log == LogMode::ChangesOnly {
        let snapshot = PgSnapshot { lsn, ..source.snapshot.clone() };
        let (chunks, durable) = writer.finish(&snapshot, pace)?;
        return Ok((snapshot, chunks, durable));
    }
    let hasher = RandomState::new();
    let (mut part, mut snapshot) = (Part::ALL, None);
    while part.part < part.of {
        let mut delta = Delta::new(hasher.clone(), part);
        let fits = changes(compactor, &source.entries, &mut delta, pace, |delta| {
            part.part > 0 || part.of >= PARTS_MAX || delta.bytes() <= delta_max
        })?;
        if !fits {
            part.of *= 2;
            continue;
        }
        compactor.changes.store.each_rows(source.log, source.rows, &mut |rows| {
            read(compactor, rows.len(), pace)?;
            let mut rest = rows;
            // Few rows at a time, so that a chunk ends with the row that brings it to its size.
            while !rest.is_empty() {
                rest = delta.row(rest, &mut |row| writer.push(row))?;
                if writer.is_full() {
                    writer.flush(pace)?;
                }
            }
            Ok::<_, MakeError>(())
        })?;
        let mut failed = None;
        delta.rest(&mut |row| {
            writer.push(row);
            if writer.is_full() && failed.is_none() {
                failed = writer.flush(pace).err();
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        snapshot.get_or_insert_with(|| delta.snapshot(&source.snapshot, lsn));
        part.part += 1;
    }
    let snapshot = snapshot.unwrap_or_else(|| source.snapshot.clone());
    let (chunks, durable) = writer.finish(&snapshot, pace)?;
    Ok((snapshot, chunks, durable))
}

/// Reads all changes into `delta`, for as long as it `fits`.
fn changes(
    compactor: &Compactor,
    entries: &[Entry],
    delta: &mut Delta,
    pace: &mut Pace,
    fits: impl Fn(&Delta) -> bool,
) -> Result<bool, MakeError> {
    let mut rest = entries;
    while let Some((first, mut others)) = rest.split_first() {
        let mut len = first.len;
        while let Some((next, after)) = others.split_first()
            && next.at == first.at + u64::from(len)
            && len < READ_BYTES
        {
            (len, others) = (len.saturating_add(next.len), after);
        }
        let bodies = compactor.changes.sources().bodies(first.at..first.at + u64::from(len))?;
        read(compactor, len as usize, pace)?;
        delta.changes(&bodies)?;
        if !fits(delta) {
            return Ok(false);
        }
        rest = others;
    }
    Ok(true)
}

/// So much was read.
fn read(compactor: &Compactor, bytes: usize, pace: &mut Pace) -> Result<(), MakeError> {
    compactor.lifetime.counters.compact_read.fetch_add(bytes as u64, Ordering::Relaxed);
    pace.spend(bytes, || compactor.lifetime.stopping());
    if compactor.lifetime.stopping() { Err(MakeError::Stopping) } else { Ok(()) }
}

/// As many changed rows as are held at a time.
pub(crate) const fn delta_max() -> usize {
    DELTA_BYTES_MAX
}
