//! The writer of a base's rows into its log.

use super::Compactor;
use super::make::MakeError;
use super::pace::Pace;
use crate::format::note::ShapeNote;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_base::{LogId, Lsn};
use thalweg_log::Lengths;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// Rows are written in blocks of about this size.
const BLOCK_BYTES: usize = 256 << 10;
/// How long to wait until the journal takes more, or the disk has space; and how often.
const RETRY_AFTER: Duration = Duration::from_millis(100);
const RETRIES: usize = 50;

pub(crate) struct Writer<'a> {
    compactor: &'a Compactor,
    log: LogId,
    block: Vec<u8>,
    lengths: Lengths,
    /// Bytes before the block.
    written: u64,
    chunks: Vec<u64>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(compactor: &'a Compactor, log: LogId) -> Self {
        Self { compactor, log, block: Vec::new(), lengths: Lengths::default(), written: 0, chunks: Vec::new() }
    }

    /// Takes a row; [`Writer::flush`] writes the gathered rows.
    pub(crate) fn push(&mut self, row: &[u8]) {
        self.block.extend_from_slice(row);
        self.lengths.push(u32::try_from(row.len()).unwrap_or(u32::MAX));
    }

    /// Whether there is enough to be written, or a chunk is complete.
    pub(crate) fn is_full(&self) -> bool {
        self.block.len() >= BLOCK_BYTES || self.ends_chunk()
    }

    fn ends_chunk(&self) -> bool {
        let begin = self.chunks.last().copied().unwrap_or(0);
        self.written + self.block.len() as u64 - begin >= self.compactor.chunk_bytes
    }

    pub(crate) fn flush(&mut self, pace: &mut Pace) -> Result<(), MakeError> {
        if self.block.is_empty() {
            return Ok(());
        }
        let end = self.written + self.block.len() as u64;
        let note = self.ends_chunk().then_some(ShapeNote::ChunkEnd(end));
        self.write(note.as_ref())?;
        self.chunks.extend(note.is_some().then_some(end));
        (self.written, self.lengths) = (end, Lengths::default());
        self.compactor.lifetime.counters.compact_written.fetch_add(self.block.len() as u64, Ordering::Relaxed);
        pace.spend(self.block.len(), || self.compactor.lifetime.stopping());
        self.block.clear();
        Ok(())
    }

    /// Ends the last chunk and says that this is all: the ends of chunks, and what must be durable.
    pub(crate) fn finish(mut self, snapshot: &PgSnapshot, pace: &mut Pace) -> Result<(Vec<u64>, Lsn), MakeError> {
        self.flush(pace)?;
        // A base without rows has one empty chunk, so that it can be published.
        if self.chunks.last().is_none_or(|last| *last < self.written) {
            self.write(Some(&ShapeNote::ChunkEnd(self.written)))?;
            self.chunks.push(self.written);
        }
        self.write(Some(&ShapeNote::SnapshotTaken(snapshot.clone())))?;
        let end = self.write(Some(&ShapeNote::Complete))?;
        Ok((self.chunks, end))
    }

    fn write(&self, note: Option<&ShapeNote>) -> Result<Lsn, MakeError> {
        let mut tries = 0;
        loop {
            match self.compactor.changes.store.write_shape(self.log, note, &self.block, &self.lengths) {
                Err(error) if error.is_transient() && tries < RETRIES && !self.compactor.lifetime.stopping() => {
                    tries += 1;
                    self.compactor.lifetime.clock.sleep(RETRY_AFTER);
                }
                written => return Ok(written?),
            }
        }
    }
}
