//! Chunks that are sent in pieces, each read when the socket has taken the previous one.
//!
//! Normally a large chunk is gathered whole: it is read at once, and shared with other requests for it. While answers
//! already hold much memory, or many reads wait, that would cost megabytes for each slow reader, and refusals for later
//! ones. Then the end of the chunk is found without its content, the head names it, and the content follows piece by
//! piece, with one read ahead.
//!
//! Once the head is sent a failure can only cut the connection. The client reconnects, and learns the reason from a
//! status: the first piece is read before the head is sent, and while any damage is known chunks are gathered whole.

use super::chunk::{Caching, Mode, Place};
use super::engine::Engine;
use super::turn::{Answer, Feed, Flowing, Task, Turn};
use crate::format::content_type::Kind;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{LogId, Offset, Step};
use thalweg_http::{Body, Fetch, Pull};
use thalweg_log::{Chunk, EndRead, PieceRead, ReadError, ReadFrom};

/// Small enough to stay in a processor's cache from the read to the socket.
const PIECE_BYTES: u64 = 256 << 10;
/// Size of a piece while answers hold much memory: ten thousand readers with two pieces each.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Chunks are sent in pieces when answers hold this fraction of the memory that they may, and in small ones from the
/// second fraction on.
const SCARCE_FROM: u64 = 4;
const SHORT_FROM: u64 = 2;
/// When a pool that was full is asked again.
const FULL_FOR: Duration = Duration::from_millis(20);

/// The end of a chunk, and its first piece.
struct Begun {
    end: Offset,
    first: Chunk,
}

type Beginning = Fetch<Result<Begun, ReadError>>;

impl Engine {
    /// Begins to send a large chunk in pieces, if memory requires it. `None`: the chunk is to be gathered whole.
    pub(super) fn begin_pieces(self: &Arc<Self>, place: &Place, mode: Mode, caching: Caching<'_>) -> Option<Answer> {
        let want = place.span.read_from();
        let is_compressed = caching.gzip && self.compressible(place);
        if want.upto.since(want.from) <= 2 * PIECE_BYTES || is_compressed {
            return None;
        }
        if !self.is_memory_scarce() && self.pool.place().is_some() {
            return None;
        }
        if self.is_at_hand(want) || self.is_memory_short() || self.logs.damage_stats().total() > 0 {
            return None;
        }
        Some(Answer::Later(Box::new(Beginner {
            engine: Arc::clone(self),
            place: place.clone(),
            mode,
            if_none_match: caching.if_none_match.map(Into::into),
            beginning: None,
        })))
    }

    fn is_memory_scarce(&self) -> bool {
        self.holds_from(SCARCE_FROM)
    }

    /// Whether finished and pending answers hold at least that fraction of their bound.
    fn holds_from(&self, fraction: u64) -> bool {
        let cache = self.logs.options().chunk_cache_bytes;
        self.logs.held_bytes() + self.flights.bytes() >= cache.saturating_add(self.config.unsent_bytes_max / fraction)
    }

    /// Whether most of the chunk is cached, or is being read for another request, or will be cached because of recent
    /// requests.
    fn is_at_hand(&self, want: ReadFrom) -> bool {
        self.logs.recall(want).is_some()
            || self.logs.to_gather(want) <= PIECE_BYTES
            || self.flights.are_under_way(want, self.logs.chunk_target(want.from))
            || self.logs.is_asked_again(want)
    }

    /// The next piece of a chunk, from this offset on.
    fn piece(&self, log: LogId, from: Offset, end: Offset) -> ReadFrom {
        let bytes = if self.holds_from(SHORT_FROM) { PIECE_BYTES_MIN } else { PIECE_BYTES };
        ReadFrom { log, from, upto: end.min(from.plus(bytes)) }
    }

    fn begin_reading(self: &Arc<Self>, want: ReadFrom) -> Option<Beginning> {
        enum Stage {
            End(Box<EndRead>),
            First(Offset, Box<PieceRead>),
        }
        let engine = Arc::clone(self);
        let mut stage = Stage::End(Box::new(EndRead::new(want)));
        self.pool.steps(move || {
            loop {
                stage = match &mut stage {
                    Stage::End(read) => match read.step(&engine.logs) {
                        Step::Done(Ok(end)) => {
                            let first = PieceRead::first(engine.piece(want.log, want.from, end));
                            Stage::First(end, Box::new(first))
                        }
                        Step::Done(Err(error)) => return Step::Done(Err(error)),
                        Step::Wants(ticket) => return Step::Wants(ticket),
                    },
                    Stage::First(end, read) => {
                        let end = *end;
                        return read.step(&engine.logs).map(|read| read.map(|first| Begun { end, first }));
                    }
                };
            }
        })
    }
}

/// An answer whose first piece is being read.
struct Beginner {
    engine: Arc<Engine>,
    place: Place,
    mode: Mode,
    if_none_match: Option<Box<[u8]>>,
    /// `None` while the pool is full.
    beginning: Option<Beginning>,
}

impl Task for Beginner {
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer> {
        if self.beginning.is_none() {
            self.beginning = self.engine.begin_reading(self.place.span.read_from());
            turn.wake_after = self.beginning.is_none().then_some(FULL_FOR);
        }
        let begun = self.beginning.as_ref()?.take(|| turn.waker())?;
        let caching = Caching { if_none_match: self.if_none_match.as_deref(), gzip: false };
        let (span, engine) = (self.place.span, &self.engine);
        let Ok(Begun { end, first }) = begun else {
            // Gathered whole it gives the refusal that is due, or begins where the client's place calls for.
            return Some(match engine.whole_chunk(self.place.clone(), self.mode, caching, turn.now) {
                Ok(Answer::Later(mut task)) => task.step(turn).unwrap_or(Answer::Later(task)),
                Ok(answer) => answer,
                Err(refused) => engine.refuse(&refused),
            });
        };
        let pieces = Pieces::new(Arc::clone(engine), span.log, span.from.offset, end, first, span.kind);
        let body = |_| Body::Sized(pieces.len(), Box::new(Flowing(Box::new(pieces))));
        Some(engine.respond(&mut self.place, self.mode, (span.from.offset, end), body, caching, turn.now))
    }
}

/// The rest of a body.
struct Pieces {
    engine: Arc<Engine>,
    log: LogId,
    /// Content bytes of the body, and whether they become a JSON array.
    bytes: u64,
    is_json: bool,
    end: Offset,
    /// The piece that is sent next, or the read that gives it.
    next: Next,
    begun: bool,
}

enum Next {
    Here(Chunk),
    Reading(Fetch<Result<Chunk, ReadError>>),
    /// The pool was full: it is asked again.
    From(Offset),
}

impl Pieces {
    fn new(engine: Arc<Engine>, log: LogId, from: Offset, end: Offset, first: Chunk, kind: Kind) -> Self {
        let next = Next::Here(first);
        Self { engine, log, bytes: end.since(from), is_json: kind == Kind::Json, end, next, begun: false }
    }

    /// An array has its brackets, and no comma behind its last value.
    fn len(&self) -> u64 {
        if self.is_json { self.bytes + 1 } else { self.bytes }
    }

    fn read(&self, from: Offset) -> Next {
        let logs = Arc::clone(&self.engine.logs);
        let mut read = PieceRead::later(self.engine.piece(self.log, from, self.end));
        self.engine.pool.steps(move || read.step(&logs)).map_or(Next::From(from), Next::Reading)
    }

    fn put(&mut self, mut piece: Chunk, put: &mut dyn FnMut(Bytes)) {
        let is_last = piece.end >= self.end;
        if self.is_json && !std::mem::replace(&mut self.begun, true) {
            put(Bytes::from_static(b"["));
        }
        if self.is_json
            && is_last
            && let Some(last) = piece.parts.last_mut()
        {
            last.truncate(last.len().saturating_sub(1));
        }
        piece.parts.into_iter().for_each(&mut *put);
        if self.is_json && is_last {
            put(Bytes::from_static(b"]"));
        }
    }
}

impl Feed for Pieces {
    fn pull(&mut self, turn: &mut Turn<'_>, put: &mut dyn FnMut(Bytes)) -> Pull {
        if let Next::From(from) = self.next {
            self.next = self.read(from);
        }
        let piece = match &mut self.next {
            Next::From(_) => {
                turn.wake_after = Some(FULL_FOR);
                return Pull::Wait;
            }
            Next::Here(first) => std::mem::take(first),
            Next::Reading(reading) => match reading.take(|| turn.waker()) {
                None => return Pull::Wait,
                Some(Ok(piece)) => piece,
                Some(Err(error)) => {
                    tracing::warn!(%error, "an answer is cut off, because the rest of its content cannot be read");
                    return Pull::Abort;
                }
            },
        };
        let at = piece.end;
        let more = at < self.end;
        if more {
            // While memory is short, no read is made ahead of the socket.
            self.next = if self.engine.is_memory_short() { Next::From(at) } else { self.read(at) };
        }
        self.put(piece, put);
        if more { Pull::More } else { Pull::End }
    }
}
