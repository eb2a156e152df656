//! Reading frames: from the window by slices, else from the sink by checked copies.

use crate::format::{FRAME_HEADER, check_frame};
use crate::sequencer::Sequencer;
use crate::sink::{Piece, Sink, SinkError};
use crate::{FrameRef, Journal, ReadError};
use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_base::Lsn;

/// Frames this close together are read by one call.
const GAP_MAX: u64 = 4096;
const RUN_MAX: u64 = 4 << 20;
/// The payload, in bytes, from which a frame counts as large: it is read whole for each piece of it, see [`Large`].
const LARGE: u32 = 1 << 20;

/// Keeps the large frame that was read from the sink last, so that a reader that takes it piece by piece, as readers of
/// a long log do, has it read and checked once.
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

    /// Memory that this holds without a reader, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.0.lock().as_ref().map_or(0, |(_, bytes)| bytes.len() + FRAME_HEADER)
    }

    pub(crate) fn trim(&self, start: Lsn) {
        self.0.lock().take_if(|(lsn, _)| *lsn < start);
    }
}

/// How many of `frames`, which is not empty, one read may cover; none ends behind `limit` but maybe the first.
pub(crate) fn run_len(frames: &[FrameRef], limit: Lsn) -> usize {
    let follows = |pair: &[FrameRef]| {
        let (end, next) = (pair[0].end(), pair[1]);
        next.lsn >= end
            && next.lsn.since(end) <= GAP_MAX
            && next.end().since(frames[0].lsn) <= RUN_MAX
            && next.end() <= limit
    };
    1 + frames.windows(2).take_while(|pair| follows(pair)).count()
}

/// Checks the first of `frames`, as many as start in the piece, and adds their payloads to `out`; how many these are.
pub(crate) fn take_frames(piece: &Piece, frames: &[FrameRef], out: &mut Vec<Bytes>) -> Result<usize, ReadError> {
    let starts_here = |frame: &&FrameRef| frame.lsn >= piece.at && frame.lsn < piece.end();
    let here = frames.iter().take_while(starts_here).count();
    for frame in &frames[..here] {
        let from = frame.lsn.since(piece.at) as usize;
        let corrupt = |what: &str| ReadError::Corrupt { at: frame.lsn, what: what.into() };
        let bytes = piece.bytes.get(from..).unwrap_or_default();
        let found = check_frame(bytes, piece.seal, frame.lsn).map_err(corrupt)?;
        if found != frame.len {
            return Err(corrupt("it has another length than asked for"));
        }
        out.push(piece.bytes.slice(from + FRAME_HEADER..from + FRAME_HEADER + frame.len as usize));
    }
    Ok(here)
}

impl<S: Sink> Sequencer<S> {
    /// `None` where a device would have to be waited for and may not.
    pub(crate) fn read_frames(&self, frames: &[FrameRef], may_wait: bool) -> Option<Result<Vec<Bytes>, ReadError>> {
        let mut out = Vec::with_capacity(frames.len());
        let mut rest = frames;
        while !rest.is_empty() {
            let taken = match self.take_from_window(rest, &mut out) {
                Ok(0) => match self.take_from_sink(rest, may_wait, &mut out) {
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

    /// How many of the first frames one read of the sink gave; none if it would have to wait.
    fn take_from_sink(&self, frames: &[FrameRef], may_wait: bool, out: &mut Vec<Bytes>) -> Result<usize, ReadError> {
        let Some(first) = frames.first() else { return Ok(0) };
        if let Some(bytes) = self.large.get(*first) {
            out.push(bytes);
            return Ok(1);
        }
        let run = &frames[..run_len(frames, self.published.written())];
        let range = first.lsn..run.last().unwrap_or(first).end();
        let read = match may_wait {
            true => self.sink.read(range).wait(),
            false => match self.sink.try_read(range) {
                Some(read) => read,
                None => return Ok(0),
            },
        };
        let mut rest = run;
        for Piece { at, seal, bytes } in read.map_err(|error| self.read_error(first.lsn, error))? {
            let piece = Piece { at, seal, bytes: self.pinned.count(bytes) };
            rest = &rest[take_frames(&piece, rest, out)?..];
        }
        match (run.len() - rest.len(), out.last()) {
            (0, _) => Err(ReadError::Corrupt { at: first.lsn, what: "no bytes stand there".into() }),
            (1, Some(bytes)) => {
                self.large.keep(*first, bytes);
                Ok(1)
            }
            (n, _) => Ok(n),
        }
    }

    fn read_error(&self, at: Lsn, error: SinkError) -> ReadError {
        match error {
            SinkError::Missing(missing) if missing < self.start() => ReadError::Trimmed(missing),
            SinkError::Missing(missing) => ReadError::Corrupt { at: missing, what: "nothing is kept there".into() },
            SinkError::Damaged { at, cause } => ReadError::Corrupt { at, what: cause },
            other => ReadError::Io { at, cause: other.to_string() },
        }
    }
}
