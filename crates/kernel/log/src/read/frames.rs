//! Content that is not settled yet: pieces of a log in frames of the journal.

use super::asks::{Answer, Asked, Asks};
use super::stop::{Miss, Stop};
use super::walk::{Found, FoundPlace};
use crate::attachment::Attachment;
use crate::damage::Place as DamagedPlace;
use crate::error::ReadError;
use crate::frame;
use crate::log::Piece;
use crate::logs::Logs;
use bytes::Bytes;
use std::ops::Range;
use std::vec::IntoIter;
use thalweg_base::{LogId, Lsn, Offset};
use thalweg_journal::{FrameRef, ReadError as JournalError};

/// Frames fetched from the journal in one go: this many, or this many bytes.
const FRAMES_PER_FETCH: usize = 1024;
const FRAME_BYTES_PER_FETCH: usize = 8 << 20;

/// A place among the pieces of one log.
#[derive(Default)]
pub(super) struct Frames {
    /// The next piece to fetch, once the first one is known.
    next: Option<usize>,
    fetched: IntoIter<Found>,
    asked: Option<Asked>,
    /// The frames that were asked for last were waited for.
    waited: bool,
}

impl Frames {
    /// The next part of `span`; `None` where the pieces end, because the read wanted no more.
    pub(super) fn next<A: Attachment>(
        &mut self,
        pieces: &[Piece],
        owner: LogId,
        span: Range<Offset>,
        logs: &Logs<A>,
        asks: &mut Asks,
    ) -> Result<Option<Found>, Stop> {
        loop {
            if let Some(found) = self.fetched.next() {
                return Ok(Some(found));
            }
            // Not past the end: later frames may be accepted, but not written yet.
            let last = pieces.partition_point(|piece| piece.start < span.end);
            let first = self
                .next
                .unwrap_or_else(|| pieces.partition_point(|piece| piece.start <= span.start).saturating_sub(1));
            let pieces = &pieces[first.min(last)..last];
            if pieces.is_empty() {
                return Ok(None);
            }
            let now = &pieces[..fetch_count(pieces)];
            self.fetched = self.fetch(owner, now, logs, asks)?.into_iter();
            (self.next, self.waited) = (Some(first + now.len()), false);
        }
    }

    fn fetch<A: Attachment>(
        &mut self,
        log: LogId,
        pieces: &[Piece],
        logs: &Logs<A>,
        asks: &mut Asks,
    ) -> Result<Vec<Found>, Stop> {
        let frames: Vec<FrameRef> = pieces.iter().map(|piece| piece.frame).collect();
        let offset = pieces.first().map_or(Offset::ZERO, |piece| piece.start);
        let failed = |cause: String| Stop::Failed(ReadError::Io { log, offset, cause });
        let not_here = |miss: Miss| match miss {
            Miss::WouldWait => Stop::WouldWait,
            Miss::Pending => Stop::Pending,
            Miss::Failed(error) => failed(error.to_string()),
        };
        let mut given = match self.asked.take() {
            Some(asked) => asks.answer(asked),
            None => asks.frames(logs, &frames).map_err(not_here)?,
        };
        let payloads = loop {
            given = match given {
                // A read may need the content of a log's creating frame before that frame is written: the answer waits
                // for the frame in any case.
                Ok(Answer::Frames(Err(JournalError::NotWritten(_)))) if !self.waited => {
                    self.waited = true;
                    let end = frames.last().map_or(Lsn::ZERO, |last| last.end());
                    asks.written(logs, end).map_err(not_here)?
                }
                Ok(Answer::Frames(payloads)) => break payloads,
                Ok(Answer::Written(arrival)) => {
                    arrival.map_err(|error| failed(error.to_string()))?;
                    asks.frames(logs, &frames).map_err(not_here)?
                }
                Ok(Answer::Object(_)) => return Err(failed("the answer to another question came".to_owned())),
                Err(coming) => {
                    self.asked = Some(coming);
                    return Err(Stop::Pending);
                }
            };
        };
        let payloads = payloads.map_err(|error| match error {
            JournalError::Trimmed(_) => Stop::Moved,
            JournalError::Io { .. } => failed(error.to_string()),
            JournalError::Corrupt { at, .. } | JournalError::NotWritten(at) => damaged(logs, log, pieces, at, &error),
        })?;
        pieces.iter().zip(&payloads).map(|(piece, payload)| found_in_frame(log, *piece, payload)).collect()
    }
}

/// The frame at `at`, which one of the pieces stands in, cannot be had.
fn damaged<A: Attachment>(logs: &Logs<A>, log: LogId, pieces: &[Piece], at: Lsn, error: &JournalError) -> Stop {
    let piece = pieces.iter().find(|piece| piece.frame.lsn == at).or(pieces.first());
    let (offset, end) = piece.map_or((Offset::ZERO, Offset::ZERO), |piece| {
        logs.damage.note(DamagedPlace::Journal { at, end: piece.frame.end() }, error);
        (piece.start, piece.start.plus(u64::from(piece.frame.len)))
    });
    let end = pieces.iter().map(|piece| piece.start).find(|next| *next > offset).unwrap_or(end);
    Stop::Failed(ReadError::Corrupt { log, offset, end, what: error.to_string() })
}

/// How many of the pieces to fetch in one go: at least one.
fn fetch_count(pieces: &[Piece]) -> usize {
    let mut bytes = 0;
    let within = pieces.iter().take(FRAMES_PER_FETCH).take_while(|piece| {
        bytes += piece.frame.len as usize;
        bytes <= FRAME_BYTES_PER_FETCH
    });
    within.count().max(1)
}

fn found_in_frame(log: LogId, piece: Piece, payload: &Bytes) -> Result<Found, Stop> {
    let end = piece.start.plus(u64::from(piece.frame.len));
    let corrupt = |what: String| Stop::Failed(ReadError::Corrupt { log, offset: piece.start, end, what });
    let append = frame::find_append(payload, log, piece.start)
        .map_err(|error| corrupt(format!("the frame at {}: {error}", piece.frame.lsn)))?
        .ok_or_else(|| corrupt(format!("the frame at {} does not append here", piece.frame.lsn)))?;
    let place = match append.content {
        frame::Content::Bytes(bytes) => FoundPlace::Frame(bytes),
        frame::Content::Reference { source, from } => FoundPlace::Reference { source, from },
    };
    Ok(Found { start: piece.start, lengths: append.lengths, place })
}
