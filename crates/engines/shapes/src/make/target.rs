//! One shape's rows on their way from Postgres into its log.

use super::Filling;
use super::failure::cannot_store;
use crate::engine::{Counted, Engine};
use crate::format::note::{ShapeNote, Stored};
use crate::shape::{Copied, Failure, Phase};
use crate::state::snapshot::PgSnapshot;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_base::{LogId, Lsn};
use thalweg_log::Lengths;

/// Rows of one shape. Few rows, and all that is to be known of the shape, become one frame of the journal when they are complete; before
/// it is written nothing of the shape is there, and it can be filled again.
pub(super) struct Target {
    pub(super) filling: Filling,
    /// Once something was written.
    log: Option<LogId>,
    block: Vec<u8>,
    lengths: Lengths,
    /// Bytes that were written.
    written: u64,
    /// Rows that were taken.
    rows: u64,
    /// Where the last complete chunk ends.
    chunk: u64,
    /// Ends of chunks that are not shown yet, each with the end of the frame that must be durable before.
    hidden: VecDeque<(Lsn, u64)>,
    /// It was dropped meanwhile: nobody wants its rows.
    dropped: bool,
    _running: Counted,
}

impl Target {
    pub(super) fn new(engine: &Arc<Engine>, filling: Filling) -> Self {
        Self {
            filling,
            log: None,
            block: Vec::new(),
            lengths: Lengths::default(),
            written: 0,
            rows: 0,
            chunk: 0,
            hidden: VecDeque::new(),
            dropped: false,
            _running: Counted::new(engine, |counters| &counters.snapshots),
        }
    }

    /// Forgets rows that were taken, to begin anew; not if some were written.
    pub(super) fn restart(&mut self) -> bool {
        self.block.clear();
        self.lengths = Lengths::default();
        self.rows = 0;
        self.log.is_none()
    }

    /// Bytes that are not written yet.
    pub(super) fn buffered(&self) -> usize {
        self.block.len()
    }

    /// Gives up the memory of a block that was written.
    pub(super) fn release(&mut self) {
        if self.block.is_empty() {
            self.block = Vec::new();
        }
    }

    /// Where a row is to be added; [`Target::added`] must follow.
    pub(super) fn block(&mut self) -> &mut Vec<u8> {
        &mut self.block
    }

    /// A row of this length was added to the block.
    pub(super) fn added(&mut self, length: usize) {
        self.lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
        self.rows += 1;
    }

    /// A row is about to come. The chunk ends before it if it is complete: a chunk that is shown before the last one has a row after it, so
    /// that only the last one need say that it is. Whether a chunk ended.
    pub(super) fn turn(&mut self, engine: &Engine, snapshot: &PgSnapshot) -> Result<bool, Failure> {
        let end = self.written + self.block.len() as u64;
        if end - self.chunk < engine.config.http.chunk_bytes {
            return Ok(false);
        }
        let at = self.write(engine, snapshot, Some(&ShapeNote::ChunkEnd(end)))?;
        self.chunk = end;
        self.hidden.push_back((at, end));
        Ok(true)
    }

    /// Shows the chunks that are durable.
    pub(super) fn show(&mut self, durable: Lsn) {
        while let Some((_, end)) = self.hidden.pop_front_if(|(at, _)| *at <= durable) {
            if !self.dropped {
                self.filling.shape.change(|state| state.chunks.push(end));
            }
        }
    }

    /// The frame that must be durable before the next chunk can be shown.
    pub(super) fn hidden(&self) -> Option<Lsn> {
        self.hidden.front().map(|(at, _)| *at)
    }

    /// Whether none was shown yet.
    pub(super) fn is_first(&self) -> bool {
        self.filling.shape.lock().chunks.is_empty()
    }

    /// How many chunks are not shown yet.
    pub(super) fn hidden_count(&self) -> usize {
        self.hidden.len()
    }

    /// Writes what there is.
    pub(super) fn write(
        &mut self,
        engine: &Engine,
        snapshot: &PgSnapshot,
        note: Option<&ShapeNote>,
    ) -> Result<Lsn, Failure> {
        let log = match self.log {
            Some(log) => log,
            None => self.create(engine, self.stored(snapshot, Vec::new(), false), b"", &Lengths::default())?.0,
        };
        if self.dropped {
            self.taken(engine);
            return Ok(Lsn::ZERO);
        }
        let end = match engine.store.write_shape(log, note, &self.block, &self.lengths) {
            Ok(end) => end,
            Err(error) if self.is_wanted() => return Err(cannot_store(error)),
            Err(_) => {
                // The log went with the shape.
                self.dropped = true;
                Lsn::ZERO
            }
        };
        self.taken(engine);
        self.filling.shape.lock().set_copied(Copied { rows: self.rows, bytes: self.written });
        Ok(end)
    }

    fn is_wanted(&self) -> bool {
        matches!(self.filling.shape.lock().phase, Phase::Snapshotting)
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.dropped
    }

    fn taken(&mut self, engine: &Engine) {
        engine.counters.rows_copied.fetch_add(self.lengths.count(), Ordering::Relaxed);
        self.written += self.block.len() as u64;
        self.block.clear();
        self.lengths = Lengths::default();
    }

    /// Makes the log. From then on the shape knows which transactions its rows contain.
    fn create(
        &mut self,
        engine: &Engine,
        stored: Stored,
        rows: &[u8],
        lengths: &Lengths,
    ) -> Result<(LogId, Lsn), Failure> {
        let shape = &self.filling.shape;
        let (log, end) = engine.store.create_shape(shape.handle, &stored, rows, lengths).map_err(cannot_store)?;
        self.log = Some(log);
        self.dropped = !shape.change(|state| {
            let wanted = matches!(state.phase, Phase::Snapshotting);
            state.log = wanted.then_some(log);
            if let (true, Some(snapshot)) = (wanted, stored.snapshot) {
                state.snapshot_taken(engine.shared_snapshot(&snapshot), engine.config.http.chunk_bytes);
            }
            wanted
        });
        if self.dropped {
            engine.store.delete_shape(&[log]).map_err(cannot_store)?;
        }
        Ok((log, end))
    }

    fn stored(&self, snapshot: &PgSnapshot, chunks: Vec<u64>, complete: bool) -> Stored {
        let shape = &self.filling.shape;
        Stored {
            number: shape.number,
            table: self.filling.checked.table.oid,
            definition: shape.definition(),
            identity: shape.identity,
            snapshot: Some(snapshot.clone()),
            chunks,
            complete,
            rows_gone: false,
        }
    }

    /// All rows were taken. When the returned position is durable, [`Target::finished`] may be called.
    pub(super) fn finish(&mut self, engine: &Engine, snapshot: &PgSnapshot) -> Result<Lsn, Failure> {
        let end = self.written + self.block.len() as u64;
        if self.log.is_none() {
            // A shape without rows has one empty chunk, so that there is something to show.
            let stored = self.stored(snapshot, vec![end], true);
            let (rows, lengths) = (std::mem::take(&mut self.block), std::mem::take(&mut self.lengths));
            let (_, at) = self.create(engine, stored, &rows, &lengths)?;
            engine.counters.rows_copied.fetch_add(lengths.count(), Ordering::Relaxed);
            self.written = end;
            self.filling.shape.lock().set_copied(Copied { rows: self.rows, bytes: end });
            self.hidden.push_back((at, end));
            return Ok(at);
        }
        if self.dropped {
            return Ok(Lsn::ZERO);
        }
        if end > self.chunk || self.chunk == 0 {
            let at = self.write(engine, snapshot, Some(&ShapeNote::ChunkEnd(end)))?;
            self.hidden.push_back((at, end));
        }
        let Some(log) = self.log else { return Ok(Lsn::ZERO) };
        match engine.store.write_shape(log, Some(&ShapeNote::Complete), b"", &Lengths::default()) {
            Err(error) if self.is_wanted() => Err(cannot_store(error)),
            end => Ok(end.unwrap_or_default()),
        }
    }

    /// Everything is durable: shows it.
    pub(super) fn finished(&mut self) {
        let ends: Vec<u64> = self.hidden.drain(..).map(|(_, end)| end).collect();
        self.filling.shape.change(|state| {
            if matches!(state.phase, Phase::Snapshotting) {
                ends.into_iter().for_each(|end| state.chunks.push(end));
                state.phase = Phase::Live;
            }
        });
    }
}
