//! Reading frames: from the window by slices, else from segments by checked copies.

use crate::file::FileJournal;
use crate::format::{FRAME_HEADER, check_frame};
use crate::pinned::Pinned;
use crate::segments::Segment;
use crate::{FrameRef, Journal, ReadError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_base::Lsn;

/// Frames this close together are read by one call.
const GAP_MAX: u64 = 4096;
const RUN_MAX: u64 = 4 << 20;
/// A frame with such a payload, in bytes, is read whole for each piece of it that somebody wants: see [`Large`].
const LARGE: u32 = 1 << 20;

/// The large frame that was read from a segment last. Who wants it piece by piece, as readers of a long log do, has it read and checked once.
#[derive(Default)]
pub(crate) struct Large(Mutex<Option<(Lsn, Bytes)>>);

impl Large {
    fn get(&self, frame: FrameRef) -> Option<Bytes> {
        let last = self.0.lock();
        let (lsn, bytes) = last.as_ref()?;
        (*lsn == frame.lsn && bytes.len() == frame.len as usize).then(|| bytes.clone())
    }

    fn keep(&self, frame: FrameRef, bytes: &Bytes) {
        if frame.len >= LARGE {
            *self.0.lock() = Some((frame.lsn, bytes.clone()));
        }
    }

    /// Memory that is held although nobody reads, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.0.lock().as_ref().map_or(0, |(_, bytes)| bytes.len() + FRAME_HEADER)
    }

    pub(crate) fn trim(&self, start: Lsn) {
        self.0.lock().take_if(|(lsn, _)| *lsn < start);
    }
}

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
            read_run(&self.segment, &self.pinned, run, true, &mut out)?;
            rest = later;
        }
        Ok(out)
    }
}

/// How many of `frames`, which is not empty, one read may cover; none starts at or after `limit` but maybe the first.
fn run_len(frames: &[FrameRef], limit: Lsn) -> usize {
    let follows = |pair: &[FrameRef]| {
        let (end, next) = (pair[0].end(), pair[1]);
        next.lsn >= end
            && next.lsn.since(end) <= GAP_MAX
            && next.end().since(frames[0].lsn) <= RUN_MAX
            && next.end() <= limit
    };
    1 + frames.windows(2).take_while(|pair| follows(pair)).count()
}

/// Reads a run of neighbouring frames of one segment. `false` where the device would have to be waited for.
fn read_run(
    segment: &Segment,
    pinned: &Pinned,
    run: &[FrameRef],
    may_wait: bool,
    out: &mut Vec<Bytes>,
) -> Result<bool, ReadError> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(true) };
    let at = segment.offset(first.lsn);
    let len = last.end().since(first.lsn);
    if at + len > segment.bytes {
        return Err(ReadError::Corrupt { at: first.lsn, what: "it runs over its segment's end".into() });
    }
    let mut buf = vec![0; len as usize];
    let io = |error: std::io::Error| match thalweg_disk::is_damage(&error) {
        true => ReadError::Corrupt { at: first.lsn, what: format!("it cannot be read: {error}") },
        false => ReadError::Io { at: first.lsn, cause: error.to_string() },
    };
    let n = if may_wait {
        segment.file.read_at(&mut buf, at).map_err(io)?
    } else {
        match segment.file.try_read_at(&mut buf, at).map_err(io)? {
            Some(n) => n,
            None => return Ok(false),
        }
    };
    buf.truncate(n);
    let bytes = pinned.count(buf);
    for frame in run {
        let from = frame.lsn.since(first.lsn) as usize;
        let corrupt = |what: &str| ReadError::Corrupt { at: frame.lsn, what: what.into() };
        let found = check_frame(bytes.get(from..).unwrap_or_default(), segment.seal, frame.lsn).map_err(corrupt)?;
        if found != frame.len {
            return Err(corrupt("it has another length than asked for"));
        }
        out.push(bytes.slice(from + FRAME_HEADER..from + FRAME_HEADER + frame.len as usize));
    }
    Ok(true)
}

impl FileJournal {
    /// Keeps the segment of `lsn` readable until the answer is dropped; `None` if `lsn` is trimmed or not written.
    #[must_use]
    pub fn hold(&self, lsn: Lsn) -> Option<Held> {
        let written = self.published.written();
        let segments = self.segments.lock();
        if lsn < self.start() || lsn >= written {
            return None;
        }
        let segment = segments.find(lsn)?;
        let end = segments.end_of(&segment).unwrap_or(written);
        Some(Held { start: segment.base, end, pinned: self.pinned.clone(), segment })
    }

    /// `None` where a device would have to be waited for and may not.
    pub(crate) fn read_frames(&self, frames: &[FrameRef], may_wait: bool) -> Option<Result<Vec<Bytes>, ReadError>> {
        let mut out = Vec::with_capacity(frames.len());
        let mut rest = frames;
        while !rest.is_empty() {
            let taken = match self.take_from_window(rest, &mut out) {
                Ok(0) => match self.take_from_segment(rest, may_wait, &mut out) {
                    Ok(0) => return None,
                    other => other,
                },
                other => other,
            };
            match taken {
                Ok(n) => rest = &rest[n..],
                Err(e) => return Some(Err(e)),
            }
        }
        Some(Ok(out))
    }

    fn check_written(&self, frame: FrameRef) -> Result<(), ReadError> {
        if frame.lsn < self.start() {
            return Err(ReadError::Trimmed(frame.lsn));
        }
        if frame.end() > self.published.written() {
            return Err(ReadError::NotWritten(frame.lsn));
        }
        Ok(())
    }

    /// How many of the first frames the window had.
    fn take_from_window(&self, frames: &[FrameRef], out: &mut Vec<Bytes>) -> Result<usize, ReadError> {
        let window = self.window.lock();
        let mut last = 0;
        for (n, frame) in frames.iter().enumerate() {
            self.check_written(*frame)?;
            match window.get(*frame, &mut last) {
                Some(Ok(bytes)) => out.push(bytes),
                Some(Err(what)) => return Err(ReadError::Corrupt { at: frame.lsn, what: what.into() }),
                None => return Ok(n),
            }
        }
        Ok(frames.len())
    }

    /// How many of the first frames one read of a segment gave; none if it would have to wait.
    fn take_from_segment(&self, frames: &[FrameRef], may_wait: bool, out: &mut Vec<Bytes>) -> Result<usize, ReadError> {
        let Some(first) = frames.first() else { return Ok(0) };
        if let Some(bytes) = self.large.get(*first) {
            out.push(bytes);
            return Ok(1);
        }
        let (segment, limit) = {
            let segments = self.segments.lock();
            let segment = segments.find(first.lsn).ok_or(ReadError::Trimmed(first.lsn))?;
            let limit = segments.end_of(&segment).unwrap_or_else(|| self.published.written());
            (segment, limit)
        };
        let n = run_len(frames, limit);
        if !read_run(&segment, &self.pinned, &frames[..n], may_wait, out)? {
            return Ok(0);
        }
        if let (1, Some(bytes)) = (n, out.last()) {
            self.large.keep(*first, bytes);
        }
        Ok(n)
    }
}
