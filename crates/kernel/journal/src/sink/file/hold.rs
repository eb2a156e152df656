//! Holds of segments: the frames of a segment stay readable while it is held, trimmed or not.

use crate::format::SEGMENT_HEADER;
use crate::sequencer::pinned::Pinned;
use crate::sequencer::read::{run_len, take_frames};
use crate::sink::file::FileJournal;
use crate::sink::file::segments::Segment;
use crate::sink::{Piece, SinkError};
use crate::{FrameRef, Journal, ReadError};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::Lsn;

/// Keeps a segment from being reused, so that its frames stay readable after they are trimmed.
pub struct Held {
    segment: Arc<Segment>,
    pinned: Pinned,
    start: Lsn,
    end: Lsn,
}

impl Held {
    /// The position of the segment's first byte.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The position after the last frame that was written when the segment was taken hold of.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// The payloads of frames of this segment; waits for the device.
    pub fn read(&self, frames: &[FrameRef]) -> Result<Vec<Bytes>, ReadError> {
        let mut out = Vec::with_capacity(frames.len());
        let mut rest = frames;
        while let Some(first) = rest.first() {
            if first.lsn < self.start || first.end() > self.end {
                return Err(ReadError::NotWritten(first.lsn));
            }
            let n = run_len(rest, self.end);
            let (run, later) = rest.split_at(n);
            let end = run.last().unwrap_or(first).end();
            let corrupt = |what: &str| ReadError::Corrupt { at: first.lsn, what: what.into() };
            let piece = self.segment.read(first.lsn..end, true).map_err(|error| match error {
                SinkError::Damaged { at, cause } => ReadError::Corrupt { at, what: cause },
                other => ReadError::Io { at: first.lsn, cause: other.to_string() },
            })?;
            let Piece { at, bytes, seal } = piece.ok_or_else(|| corrupt("a waiting read did not wait"))?;
            let piece = Piece { at, seal, bytes: self.pinned.count(bytes) };
            if take_frames(&piece, run, &mut out)? < run.len() {
                return Err(corrupt("it runs over its segment's end"));
            }
            rest = later;
        }
        Ok(out)
    }
}

impl Segment {
    /// The bytes of the range, as far as the file has them. `None` if a device would have to be waited for and may not.
    pub(super) fn read(&self, range: Range<Lsn>, may_wait: bool) -> Result<Option<Piece>, SinkError> {
        let at = self.offset(range.start);
        let end = (self.offset(range.end)).min(self.bytes.max(SEGMENT_HEADER));
        let mut buf = vec![0; end.saturating_sub(at) as usize];
        let error = |error: std::io::Error| match thalweg_disk::is_damage(&error) {
            true => SinkError::Damaged { at: range.start, cause: format!("it cannot be read: {error}") },
            false => SinkError::failed("read", error),
        };
        let n = if may_wait {
            self.file.read_at(&mut buf, at).map_err(error)?
        } else {
            match self.file.try_read_at(&mut buf, at).map_err(error)? {
                Some(n) => n,
                None => return Ok(None),
            }
        };
        buf.truncate(n);
        Ok(Some(Piece { at: range.start, bytes: buf.into(), seal: self.seal }))
    }
}

impl FileJournal {
    /// Keeps the segment of `lsn` readable until the answer is dropped; `None` if `lsn` is trimmed or not written.
    #[must_use]
    pub fn hold(&self, lsn: Lsn) -> Option<Held> {
        let written = self.published.written();
        let segments = self.sink.segments.lock();
        if lsn < self.start() || lsn >= written {
            return None;
        }
        let segment = segments.find(lsn)?;
        let end = segments.end_of(&segment).unwrap_or(written);
        Some(Held { start: segment.base, end, pinned: self.pinned.clone(), segment })
    }
}
