//! Taking over a journal in a remote sink: fence, read the batches up to the first hole, cut off the rest, go on there.
//!
//! Everything that an owner has acknowledged lies before the first hole, because it acknowledges a batch only after
//! every batch before it. Batches behind the hole were never acknowledged. They are removed before the new owner
//! appends: it uses their place again, and their bytes could be read as the continuation of its own batches.
//!
//! An owner that dies at any point of a take-over leaves a sink that the next owner can take over in the same way.

use crate::sequencer::Sequencer;
use crate::sink::file::Body;
use crate::sink::{Fenced, Piece, Sink, SinkError, Survey, Term};
use crate::{Bounds, FrameRef, Opened, Options};
use bytes::Bytes;
use thalweg_base::Lsn;
use thiserror::Error;

/// Why a journal was not taken over. Nothing but the fence has changed in the sink, if anything has.
#[derive(Debug, Error)]
pub enum TakeOverError<E> {
    /// A later owner has the journal, or the term was used before: acquire a larger one.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The sink lacks or damages bytes that were durable; `proof` says how that is known.
    #[error("the journal is damaged at {at}, which was durable: {proof}")]
    Corrupt { at: Lsn, proof: String },
    /// A call of the sink failed.
    #[error("{operation} of the journal failed: {error}")]
    Sink { operation: &'static str, error: SinkError },
    /// The caller's replay refused the frame at this position.
    #[error("the frame at {at} was refused: {error}")]
    Replay { at: Lsn, error: E },
    /// The options contradict each other; the text says how.
    #[error("journal options: {0}")]
    Options(&'static str),
}

impl<E> TakeOverError<E> {
    fn of(operation: &'static str) -> impl FnOnce(SinkError) -> Self {
        move |error| match error {
            SinkError::Fenced(fenced) => Self::Fenced(fenced),
            error => Self::Sink { operation, error },
        }
    }
}

/// The batches that a take-over found, up to the first hole.
struct Found {
    end: Lsn,
    /// The largest position that a batch says was durable.
    known: Lsn,
}

impl<S: Sink> Sequencer<S> {
    /// Opens the journal in a remote sink as the owner of term `term`, which must be above the terms of all owners
    /// before.
    ///
    /// Calls `replay` with every frame from the floor on, in order. A journal that ends before the durable end in
    /// `bounds` is corrupt. When this returns, no earlier owner can append, the replayed frames are durable, and the
    /// sink keeps nothing at or behind the end.
    pub fn take_over<E>(
        sink: S,
        options: Options,
        bounds: Bounds,
        term: u64,
        replay: &mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>,
    ) -> Result<Self, TakeOverError<E>> {
        options.check().map_err(TakeOverError::Options)?;
        if term == 0 || term <= bounds.term {
            return Err(Fenced { term, by: bounds.term }.into());
        }
        let term = Term { number: term, salt: options.salt };
        refuse_lost_terms(&sink, bounds)?;
        sink.fence(term).wait().map_err(TakeOverError::of("fencing"))?;
        let end = read_fenced(&sink, bounds, replay)?;
        if !options.faults().tail_kept_on_take_over() {
            sink.truncate(end, term).wait().map_err(TakeOverError::of("cutting off the end"))?;
        }
        sink.accept(term).wait().map_err(TakeOverError::of("taking possession"))?;
        let opened = Opened { term: term.number, end, segments: 0, discarded: None };
        Ok(Self::new(sink, options, opened, term.seal(), bounds.floor, u64::MAX))
    }
}

/// Reads a remote sink as a take-over does, and changes nothing: every frame from the floor on, in order, up to the first
/// hole, whose position is returned. Less than `bounds` say is corrupt.
pub fn read_through<E>(
    sink: &impl Sink,
    bounds: Bounds,
    replay: &mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>,
) -> Result<Lsn, TakeOverError<E>> {
    refuse_lost_terms(sink, bounds)?;
    read_fenced(sink, bounds, replay)
}

fn read_fenced<E>(
    sink: &impl Sink,
    bounds: Bounds,
    replay: &mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>,
) -> Result<Lsn, TakeOverError<E>> {
    let Found { end, known } = read_kept(sink, bounds.floor, replay)?;
    let survey = sink.survey(end).wait().map_err(TakeOverError::of("reading"))?;
    let behind = survey.map_or(Lsn::ZERO, |survey| survey.known);
    let known = known.max(bounds.known_durable).max(bounds.floor).max(behind);
    let proof = match survey.and_then(|survey| contradiction(bounds, survey)) {
        Some(proof) => proof,
        None if end < known => format!("{known} is known to be durable, and nothing is kept at {end}"),
        None => return Ok(end),
    };
    Err(TakeOverError::Corrupt { at: end, proof })
}

/// Refuses a sink that has nothing of the term that the root names, nor of a later one.
fn refuse_lost_terms<E>(sink: &impl Sink, bounds: Bounds) -> Result<(), TakeOverError<E>> {
    let newest = sink.newest_term().wait().map_err(TakeOverError::of("reading"))?;
    match newest.filter(|newest| *newest < bounds.term) {
        Some(newest) => {
            let proof =
                format!("the root says that it was open in term {}, and it has terms up to {newest}", bounds.term);
            Err(TakeOverError::Corrupt { at: bounds.floor, proof })
        }
        None => Ok(()),
    }
}

/// Why the sink does not keep the journal that was read with these bounds, but an earlier or a later state of it, or one
/// that is not whole. Their root may be the one that is older.
fn contradiction(bounds: Bounds, Survey { first, end, .. }: Survey) -> Option<String> {
    let floor = bounds.floor;
    match first {
        None if floor > Lsn::ZERO => Some(format!("the root needs it from {floor} on, and nothing is kept")),
        Some(first) if floor > Lsn::ZERO && first > floor => Some(format!(
            "the root needs it from {floor} on, and it begins at {first}: the root or the journal is of another time, put back what belongs together"
        )),
        Some(_) if end < floor => Some(format!("the root needs it from {floor} on, and it ends at {end}")),
        _ => None,
    }
}

/// Reads whole batches from the one that holds `floor`, up to the first hole.
fn read_kept<E>(
    sink: &impl Sink,
    floor: Lsn,
    replay: &mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>,
) -> Result<Found, TakeOverError<E>> {
    let mut found = Found { end: floor, known: Lsn::ZERO };
    let mut is_first = true;
    loop {
        let pieces = match sink.read(found.end..Lsn::MAX).wait() {
            Ok(pieces) => pieces,
            Err(SinkError::Missing(_)) => return Ok(found),
            Err(error) => return Err(TakeOverError::of("reading")(error)),
        };
        let before = found.end;
        for piece in pieces {
            // The first batch may begin below the floor.
            let follows = piece.at == found.end || is_first && piece.at < found.end;
            if !follows {
                let proof = format!("the sink gave a batch at {}, where {} was asked for", piece.at, found.end);
                return Err(TakeOverError::Corrupt { at: found.end, proof });
            }
            is_first = false;
            found.take(piece, floor, replay)?;
        }
        if found.end == before {
            return Ok(found);
        }
    }
}

impl Found {
    /// Checks the batches of a piece and replays their frames. A batch is kept whole or not at all: damage is
    /// corruption wherever it is.
    fn take<E>(
        &mut self,
        piece: Piece,
        floor: Lsn,
        replay: &mut dyn FnMut(FrameRef, Bytes) -> Result<(), E>,
    ) -> Result<(), TakeOverError<E>> {
        let end = piece.end();
        let body = Body { bytes: piece.bytes, base: piece.at, seal: piece.seal };
        let walk = body.walk(Some(end), |frame, payload| {
            if frame.lsn < floor {
                return Ok(());
            }
            replay(frame, payload).map_err(|error| TakeOverError::Replay { at: frame.lsn, error })
        })?;
        if let Some(what) = walk.damage {
            return Err(TakeOverError::Corrupt { at: walk.end, proof: format!("the batch there is kept; {what}") });
        }
        self.known = self.known.max(walk.known);
        self.end = end;
        Ok(())
    }
}
