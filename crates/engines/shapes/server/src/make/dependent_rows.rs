//! The writer of the first rows of a shape with subqueries into its log. The shape is registered before its rows
//! arrive, so that its place between transactions is known.

use crate::change_store::ChangeStore;
use crate::failures::cannot_store;
use crate::format::note::ShapeNote;
use crate::lifetime::Lifetime;
use crate::shape::{Copied, Phase, Shape};
use crate::store::StoreError;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use thalweg_base::{LogId, Lsn};
use thalweg_log::Lengths;
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// Rows go to the log in blocks of about this size.
const BLOCK_BYTES: usize = 256 << 10;

/// Writes rows from Postgres into a shape's log, in blocks.
pub(crate) struct Rows<'a> {
    changes: &'a ChangeStore,
    lifetime: &'a Lifetime,
    chunk_bytes: u64,
    shape: &'a Shape,
    log: LogId,
    block: Vec<u8>,
    lengths: Lengths,
    /// Bytes that were written.
    written: u64,
    /// Rows that were taken.
    rows: u64,
    /// Where the last complete chunk ends.
    chunk: u64,
    failed: Option<Failure>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(
        changes: &'a ChangeStore,
        lifetime: &'a Lifetime,
        chunk_bytes: u64,
        shape: &'a Shape,
        log: LogId,
    ) -> Self {
        Self {
            changes,
            lifetime,
            chunk_bytes,
            shape,
            log,
            block: Vec::new(),
            lengths: Lengths::default(),
            written: 0,
            rows: 0,
            chunk: 0,
            failed: None,
        }
    }

    pub(crate) fn begin(&mut self, snapshot: &PgSnapshot) -> ControlFlow<()> {
        let note = ShapeNote::SnapshotTaken(snapshot.clone());
        let kept = self.changes.store.write_shape(self.log, Some(&note), b"", &Lengths::default());
        self.kept(kept)
    }

    pub(crate) fn fail(&mut self, error: impl ToString) -> ControlFlow<()> {
        self.failed = Some(Failure::unavailable("snapshot_error", error, 10));
        ControlFlow::Break(())
    }

    /// Why it went no further, if the reason is ours.
    pub(crate) fn failure(self) -> Option<Failure> {
        self.failed
    }

    /// Takes one row.
    pub(crate) fn put(&mut self, render: impl FnOnce(&mut Vec<u8>)) -> ControlFlow<()> {
        // A chunk that is shown before the last one has a row after it, so that only the last one need say that it is.
        if self.written + self.block.len() as u64 - self.chunk >= self.chunk_bytes {
            self.end_chunk()?;
        }
        let before = self.block.len();
        render(&mut self.block);
        self.lengths.push(u32::try_from(self.block.len() - before).unwrap_or(u32::MAX));
        self.rows += 1;
        if self.block.len() >= BLOCK_BYTES { self.write(None) } else { ControlFlow::Continue(()) }
    }

    fn write(&mut self, note: Option<&ShapeNote>) -> ControlFlow<()> {
        let written = self.changes.store.write_shape(self.log, note, &self.block, &self.lengths);
        self.written += self.block.len() as u64;
        self.block.clear();
        let rows = self.lengths.count();
        self.lifetime.counters.rows_copied.fetch_add(rows, Ordering::Relaxed);
        self.shape.lock().set_copied(Copied { rows: self.rows, bytes: self.written });
        self.lengths = Lengths::default();
        self.kept(written)
    }

    /// Ends a chunk, and shows it when it is durable.
    fn end_chunk(&mut self) -> ControlFlow<()> {
        let end = self.written + self.block.len() as u64;
        self.write(Some(&ShapeNote::ChunkEnd(end)))?;
        self.chunk = end;
        let durable = self.changes.store.wait(self.changes.store.logs().journal().end());
        self.kept(durable.map(|()| Lsn::ZERO))?;
        self.shape.change(|state| state.chunks.push(end));
        ControlFlow::Continue(())
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let done = self.try_finish();
        match (done, self.failed) {
            (_, Some(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    fn try_finish(&mut self) -> ControlFlow<()> {
        let end = self.written + self.block.len() as u64;
        // A shape without rows has one empty chunk, so that it can be published.
        let last = (end > self.chunk || self.chunk == 0).then_some(end);
        if let Some(end) = last {
            self.write(Some(&ShapeNote::ChunkEnd(end)))?;
        }
        let complete = self.changes.store.write_shape(self.log, Some(&ShapeNote::Complete), b"", &Lengths::default());
        let durable = complete.and_then(|end| self.changes.store.wait(end));
        self.kept(durable.map(|()| Lsn::ZERO))?;
        self.shape.change(|state| {
            if let Some(end) = last {
                state.chunks.push(end);
            }
            if matches!(state.phase, Phase::Snapshotting) {
                state.phase = Phase::Live;
            }
        });
        ControlFlow::Continue(())
    }

    fn kept(&mut self, result: Result<Lsn, StoreError>) -> ControlFlow<()> {
        match result {
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(cannot_store(error));
                ControlFlow::Break(())
            }
        }
    }
}
