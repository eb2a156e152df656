//! The writer of one shape's rows from a scan into its log.

use super::{Filling, ScanContext};
use crate::failures::cannot_store;
use crate::format::note::{ShapeNote, Stored};
use crate::lifetime::Counted;
use crate::shape::{Copied, Phase};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use thalweg_base::{LogId, Lsn, Offset};
use thalweg_log::{Append, Lengths};
use thalweg_shapes_core::encode::projection::Projection;
use thalweg_shapes_model::copy::CopyRow;
use thalweg_shapes_model::failure::Failure;
use thalweg_shapes_model::snapshot::PgSnapshot;

/// Rows that a shape has in common with others: they lie in a log of their own.
#[derive(Clone, Copy)]
pub(super) struct Common<'a> {
    pub(super) log: LogId,
    pub(super) from: Offset,
    pub(super) lengths: &'a Lengths,
}

impl<'a> Common<'a> {
    fn append(&self) -> Append<'a> {
        Append::Reference { source: self.log, from: self.from, lengths: self.lengths }
    }
}

/// Rows of one shape. Few rows and the shape's record become one frame of the journal when they are complete; before it
/// is written nothing of the shape is stored, and the scan can restart.
pub(super) struct Target {
    pub(super) filling: Filling,
    /// The log, once rows were written.
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
    /// The shape was dropped during the scan: its rows are discarded.
    dropped: bool,
    _running: Counted,
}

impl Target {
    pub(super) fn new(context: &ScanContext<'_>, filling: Filling) -> Self {
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
            _running: Counted::new(context.lifetime, |counters| &counters.snapshots),
        }
    }

    /// Discards the rows that were taken. Returns whether the scan can restart: none was written.
    pub(super) fn restart(&mut self) -> bool {
        self.block.clear();
        self.lengths = Lengths::default();
        (self.rows, self.chunk) = (0, 0);
        self.log.is_none()
    }

    /// Bytes that are not written yet.
    pub(super) fn buffered(&self) -> usize {
        self.block.len()
    }

    /// Gives up the memory of a block that was written, if it has more than this.
    pub(super) fn release(&mut self, room: usize) {
        if self.block.is_empty() && self.block.capacity() > room {
            self.block = Vec::new();
        }
    }

    /// Adds a row to the block, in the form in which it is sent; how long it is.
    pub(super) fn render(&mut self, projection: &Projection, row: &CopyRow) -> usize {
        let before = self.block.len();
        projection.snapshot_row(row, &mut self.block);
        let length = self.block.len() - before;
        self.lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
        self.rows += 1;
        length
    }

    /// Adds rows that were gathered.
    pub(super) fn add(&mut self, rows: &[u8], lengths: &Lengths) {
        self.block.extend_from_slice(rows);
        self.lengths.append(lengths);
        self.rows += lengths.count();
    }

    /// Rows were taken that are not in the block.
    pub(super) fn counted(&mut self, rows: u64) {
        self.rows += rows;
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

    /// Writes the rows of the block, and those that it has in common with others. `last`: no more will come. When the
    /// returned position is durable, the rows can be published; after the last ones, [`Target::finished`] is called.
    pub(super) fn write(
        &mut self,
        context: &ScanContext<'_>,
        snapshot: &PgSnapshot,
        common: &[Common<'_>],
        last: bool,
    ) -> Result<Lsn, Failure> {
        if self.dropped {
            (self.block, self.lengths) = Default::default();
            return Ok(Lsn::ZERO);
        }
        let ends = self.chunk_ends(context.chunk_bytes, common, last);
        let (block, lengths) = (std::mem::take(&mut self.block), std::mem::take(&mut self.lengths));
        let bytes = block.len() as u64 + common.iter().map(|rows| rows.lengths.bytes()).sum::<u64>();
        let count = lengths.count() + common.iter().map(|rows| rows.lengths.count()).sum::<u64>();
        let own: [&[u8]; 1] = [&block];
        let own = (!block.is_empty()).then_some(Append::Bytes { parts: &own, lengths: &lengths });
        let mut rows: Vec<Append<'_>> = own.into_iter().chain(common.iter().map(Common::append)).collect();
        let mut at = None;
        if self.log.is_none() {
            // Few rows and the shape's record are one frame.
            let whole = last && rows.len() <= 1;
            let stored = self.stored(snapshot, if whole { ends.clone() } else { Vec::new() }, whole);
            let first = (!rows.is_empty()).then(|| rows.remove(0));
            match self.create(context, stored, first) {
                Ok((_, created)) => at = whole.then_some(created),
                // The shape was dropped, and with it the rows that it was about to refer to.
                Err(_) if !self.is_wanted() => self.dropped = true,
                Err(failure) => return Err(failure),
            }
        }
        let at = match (at, self.log.filter(|_| !self.dropped)) {
            (Some(at), _) => at,
            (None, None) => Lsn::ZERO,
            (None, Some(log)) => {
                let complete = last.then_some(ShapeNote::Complete);
                let notes: Vec<_> = ends.iter().map(|end| ShapeNote::ChunkEnd(*end)).chain(complete).collect();
                match context.changes.store.write_rows(log, &rows, &notes) {
                    Ok(end) => end,
                    Err(error) if self.is_wanted() => return Err(cannot_store(error)),
                    Err(_) => {
                        // The log went with the shape.
                        self.dropped = true;
                        Lsn::ZERO
                    }
                }
            }
        };
        context.lifetime.counters.rows_copied.fetch_add(count, Ordering::Relaxed);
        self.written += bytes;
        if self.dropped {
            // The shape may have been dropped before it held the rows that it has in common with others.
            context.changes.delete_logs(self.filling.shape.number, Vec::new()).map_err(cannot_store)?;
            return Ok(Lsn::ZERO);
        }
        self.hidden.extend(ends.into_iter().map(|end| (at, end)));
        // The block's allocation is used again.
        self.block = block;
        self.block.clear();
        self.filling.shape.lock().set_copied(Copied { rows: self.rows, bytes: self.written });
        Ok(at)
    }

    /// The ends of chunks in the rows that are about to be written. A chunk ends with the row that brings it to its
    /// size, but only if a row follows: every chunk before the last one has rows after it, so that the last one alone
    /// marks the end. A shape without rows has one empty chunk, so that it can be published.
    fn chunk_ends(&mut self, chunk_bytes: u64, common: &[Common<'_>], last: bool) -> Vec<u64> {
        let mut ends = Vec::new();
        let lists = || std::iter::once(&self.lengths).chain(common.iter().map(|rows| rows.lengths));
        let end = self.written + lists().map(Lengths::bytes).sum::<u64>();
        let (mut at, mut chunk) = (self.written, self.chunk);
        if end - chunk > chunk_bytes {
            for length in lists().flat_map(Lengths::iter) {
                if at - chunk >= chunk_bytes {
                    ends.push(at);
                    chunk = at;
                }
                at += u64::from(length);
            }
        }
        if last && (end > chunk || chunk == 0) {
            ends.push(end);
            chunk = end;
        }
        self.chunk = chunk;
        ends
    }

    fn is_wanted(&self) -> bool {
        matches!(self.filling.shape.lock().phase, Phase::Snapshotting)
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Makes the log. From then on the shape knows which transactions its rows contain.
    fn create(
        &mut self,
        context: &ScanContext<'_>,
        stored: Stored,
        rows: Option<Append<'_>>,
    ) -> Result<(LogId, Lsn), Failure> {
        let shape = &self.filling.shape;
        let (log, end) = context.changes.store.create_shape(shape.handle, &stored, rows).map_err(cannot_store)?;
        self.log = Some(log);
        self.dropped = !shape.change(|state| {
            let wanted = matches!(state.phase, Phase::Snapshotting);
            state.log = wanted.then_some(log);
            if let (true, Some(snapshot)) = (wanted, stored.snapshot) {
                state.snapshot_taken(context.catalog.shared_snapshot(&snapshot), context.chunk_bytes);
            }
            wanted
        });
        if self.dropped {
            context.changes.delete_logs(shape.number, vec![log]).map_err(cannot_store)?;
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

    /// All rows are durable: publishes the shape.
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
