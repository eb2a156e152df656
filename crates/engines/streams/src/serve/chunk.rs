//! Content for one answer: its place, its fetching, and its form.

use super::config::ANSWER_MAX_AGE;
use super::engine::{Engine, closed_visibly, position};
use super::etag::{etag, gzipped, unchanged};
use super::flights::{Boarded, Landing};
use super::gzip::{BYTES_MIN, is_compressible};
use super::head::Head;
use super::stats::add;
use super::turn::{Answer, Task, Turn};
use crate::error::{Refusal, Refused};
use crate::format::content_type::{ContentType, Kind};
use crate::format::offset::Position;
use crate::state::StreamState;
use crate::state::cursor;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{LogId, Lsn, Millis, Offset, Reached, Step, Until};
use thalweg_http::Fetch;
use thalweg_http::{Body, Response};
use thalweg_log::{BoundaryRead, Chunk, ChunkRead, LogView, Logs, ReadError, ReadFrom};

/// A range of one stream as readers may see it now.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) log: LogId,
    pub(crate) from: Position,
    /// The published tail.
    pub(crate) upto: Position,
    /// The stream is closed, and `upto` is its end.
    pub(crate) closed: bool,
    pub(crate) kind: Kind,
}

/// A span, and the properties of its stream for an answer.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) span: Span,
    pub(crate) name: Box<str>,
    pub(crate) content_type: ContentType,
    /// The read starts at the stream's start, which may move, or at `now`, which does move: a cache must revalidate.
    pub(crate) moving: bool,
    /// When the stream will be gone.
    pub(crate) deadline: Option<Millis>,
    /// The answer must wait for this: the stream's own making, and its last trim.
    pub(crate) after: Until,
}

/// The client's cached tag, and its accepted encoding.
#[derive(Clone, Copy, Default)]
pub(crate) struct Caching<'a> {
    pub(crate) if_none_match: Option<&'a [u8]>,
    pub(crate) gzip: bool,
}

/// The read that a chunk answers.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    CatchUp,
    LongPoll { echoed: Option<u64> },
}

impl Span {
    pub(crate) fn new(view: &LogView<'_, StreamState>, from: Offset, durable: Lsn) -> Self {
        let (from, upto) = (position(view, from), position(view, view.published));
        let kind = view.attachment.content_type.kind();
        Self { log: view.id, from, upto, closed: closed_visibly(view, durable), kind }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.from.offset == self.upto.offset
    }

    pub(crate) fn read_from(&self) -> ReadFrom {
        ReadFrom { log: self.log, from: self.from.offset, upto: self.upto.offset }
    }
}

impl Place {
    pub(crate) fn new(view: &LogView<'_, StreamState>, from: Offset, reached: Reached) -> Self {
        let state = view.attachment;
        Self {
            span: Span::new(view, from, reached.durable),
            name: view.name.into(),
            content_type: state.content_type.clone(),
            moving: false,
            deadline: state.lifetime.deadline(state.seen),
            after: Some(view.when(view.created.max(state.trimmed)))
                .filter(|after| !reached.covers(*after))
                .unwrap_or(Until::NOW),
        }
    }
}

/// Gathering more than this holds up the requests behind it, even if no device has to be waited for.
const INLINE_MAX: u64 = 256 << 10;
/// Shorter reads are served however scarce memory is: bounds on connections suffice for them.
const UNCOUNTED_MAX: u64 = 4 << 10;

/// A chunk, and where it begins: at the requested place or, if that lies inside a message, at the message's start.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) from: Offset,
    pub(crate) chunk: Chunk,
}

/// A read under way on another thread.
pub(crate) type Reading = Fetch<Result<Content, ReadError>>;

/// Result of requesting a chunk.
pub(crate) enum ChunkAnswer {
    Here(Content),
    Reading(Reading),
    Failed(ReadError),
}

impl Engine {
    /// Reads a chunk if no device has to be waited for, else has it read.
    pub(crate) fn ask(&self, span: &Span) -> Result<ChunkAnswer, Refusal> {
        let here = |chunk| Ok(ChunkAnswer::Here(Content { from: span.from.offset, chunk }));
        if span.is_empty() {
            return here(Chunk { parts: Vec::new(), end: span.upto.offset });
        }
        let (from, kind) = (span.read_from(), span.kind);
        if from.upto.since(from.from) >= UNCOUNTED_MAX && self.is_memory_short() {
            return Err(Refusal::Unsent);
        }
        if let Some(chunk) = self.logs.recall(from) {
            return here(chunk);
        }
        if self.logs.to_gather(from) > INLINE_MAX
            && let Some(reading) = self.read_elsewhere(from, kind)
        {
            return Ok(ChunkAnswer::Reading(reading));
        }
        match self.logs.try_read(from) {
            Some(Ok(chunk)) => here(chunk),
            Some(Err(error)) if !begins_earlier(&error, kind) => Ok(ChunkAnswer::Failed(error)),
            Some(Err(_)) | None => Ok(ChunkAnswer::Reading(self.read_elsewhere(from, kind).ok_or(Refusal::Busy)?)),
        }
    }

    /// Lets the pool read a chunk, once for all requests that need it during the read. `None`: too many reads wait
    /// already.
    pub(super) fn read_elsewhere(&self, want: ReadFrom, kind: Kind) -> Option<Reading> {
        let target = self.logs.chunk_target(want.from);
        if let Some(reading) = self.flights.join(want, target) {
            // So that the read keeps it in one piece right away.
            self.logs.is_asked_again(want);
            return Some(reading);
        }
        // The place is taken before others may join: a refusal by the pool then refuses only the request that wanted
        // the read.
        let place = self.pool.place()?;
        let (flight, reading) =
            match self.flights.board(want, target, self.logs.to_gather(want).min(target.since(want.from))) {
                Boarded::Joined(reading) => return Some(reading),
                Boarded::First(flight, reading) => (flight, reading),
            };
        let logs = Arc::clone(&self.logs);
        let (mut read, mut flight) = (WholeMessages::new(want, kind), flight);
        let step = move || {
            if flight.ends_unawaited() {
                return Step::Done(None);
            }
            read.step(&logs).map(|mut outcome| {
                if let Ok(content) = &mut outcome
                    && flight.is_shared()
                {
                    let want = ReadFrom { from: content.from, ..want };
                    content.chunk = logs.share(want, std::mem::take(&mut content.chunk));
                }
                flight.landing(outcome)
            })
        };
        place.begin(step, |landing: Option<Landing>| landing.into_iter().for_each(Landing::deliver));
        Some(reading)
    }

    /// Whether unsent answers hold their whole share of memory.
    pub(crate) fn is_memory_short(&self) -> bool {
        let cache = self.logs.options().chunk_cache_bytes;
        self.logs.held_bytes() >= self.config.unsent_bytes_max.saturating_add(cache)
    }

    pub(crate) fn read_failed(&self, place: &Place, error: &ReadError) -> Refused {
        if matches!(error, ReadError::Missing(_)) {
            return self.vanished(&place.name);
        }
        let span = &place.span;
        let refusal = Refusal::of_read(error, &place.name, |offset| self.position_in(span, offset));
        if !matches!(refusal, Refusal::Trimmed { .. }) {
            return refusal.into();
        }
        let mut guard = self.logs.lock_logs(&[span.log], &[]);
        let after = |view: LogView<'_, StreamState>| view.when(view.attachment.trimmed).and(place.after);
        refusal.after(guard.view(span.log).map_or(place.after, after))
    }

    /// The position as clients see it, at an offset of the span.
    pub(crate) fn position_in(&self, span: &Span, offset: Offset) -> Position {
        if offset == span.upto.offset || span.from.incarnation == span.upto.incarnation {
            return Position { offset, ..span.upto };
        }
        // A fork has inherited some of it.
        let mut guard = self.logs.lock_logs(&[span.log], &[]);
        guard.view(span.log).map_or(Position { offset, ..span.upto }, |view| position(&view, offset))
    }

    /// Answers with the chunk of the place: at once, when it was read, or in pieces.
    pub(crate) fn chunk(
        self: &Arc<Self>,
        place: Place,
        mode: Mode,
        caching: Caching<'_>,
        now: Millis,
    ) -> Result<Answer, Refused> {
        match self.begin_pieces(&place, mode, caching) {
            Some(answer) => Ok(answer),
            None => self.whole_chunk(place, mode, caching, now),
        }
    }

    pub(super) fn whole_chunk(
        self: &Arc<Self>,
        mut place: Place,
        mode: Mode,
        caching: Caching<'_>,
        now: Millis,
    ) -> Result<Answer, Refused> {
        match self.ask(&place.span)? {
            ChunkAnswer::Failed(error) => Err(self.read_failed(&place, &error)),
            ChunkAnswer::Here(content) => Ok(self.respond_with(&mut place, mode, content, caching, now)),
            ChunkAnswer::Reading(reading) => Ok(Answer::Later(Box::new(LateChunk {
                engine: Arc::clone(self),
                place,
                mode,
                if_none_match: caching.if_none_match.map(Into::into),
                gzip: caching.gzip,
                reading,
            }))),
        }
    }

    fn respond_with(
        self: &Arc<Self>,
        place: &mut Place,
        mode: Mode,
        content: Content,
        caching: Caching<'_>,
        now: Millis,
    ) -> Answer {
        let Content { from, chunk: Chunk { parts, end } } = content;
        self.respond(place, mode, (from, end), |kind| body(kind, parts), caching, now)
    }

    /// The answer with the content from the first offset to the second one, which `body` gives.
    pub(super) fn respond(
        self: &Arc<Self>,
        place: &mut Place,
        mode: Mode,
        (from, end): (Offset, Offset),
        body: impl FnOnce(Kind) -> Body,
        caching: Caching<'_>,
        now: Millis,
    ) -> Answer {
        if from != place.span.from.offset {
            place.span.from = self.position_in(&place.span, from);
        }
        let next = self.position_in(&place.span, end);
        let up_to_date = end == place.span.upto.offset;
        let closed = place.span.closed && up_to_date;
        let mut tag = etag(place.span.from.offset, next, closed);
        let compressible = self.compressible(place);
        let unchanged = unchanged(caching.if_none_match, &tag, caching.gzip && compressible);
        let (status, mut small) = if unchanged.is_some() { (304, None) } else { (200, None) };
        let bytes = end.since(place.span.from.offset);
        let body = body(place.content_type.kind());
        if let Some(known) = unchanged {
            tag = known;
        } else if compressible && caching.gzip && bytes >= BYTES_MIN as u64 {
            small = match &body {
                Body::Bytes(one) => self.compress(std::slice::from_ref(one)),
                Body::Parts(parts) => self.compress(parts),
                _ => None,
            };
        }
        if small.is_some() {
            tag = gzipped(tag);
        }
        let mut head = Head::new(status)
            .line(b"ETag: ", &tag)
            .varies(compressible)
            .next_offset(next)
            .up_to_date(up_to_date)
            .closed(closed);
        match mode {
            Mode::CatchUp if up_to_date => head.put(b"Cache-Control: ", self.config.no_cache()),
            Mode::LongPoll { echoed } => {
                if !closed {
                    head = head.number(b"Stream-Cursor: ", cursor::next(now, echoed));
                }
                head = cacheable(head, place, self.config.private, ANSWER_MAX_AGE, now);
            }
            Mode::CatchUp => head = cacheable(head, place, self.config.private, self.config.chunk_max_age, now),
        }
        if status == 304 {
            return Answer::Response(place.after, head.finish(Body::Empty));
        }
        add(&self.counters.reads, 1);
        add(&self.counters.read_bytes, bytes);
        let head = head.content_type(place.content_type.as_str());
        let Some(small) = small else { return Answer::Response(place.after, head.finish(body)) };
        let response = Some(head.line(b"Content-Encoding: ", b"gzip").finish(Body::Empty));
        Answer::Later(Box::new(Compressing { engine: Arc::clone(self), after: place.after, response, bytes, small }))
    }

    /// Whether an answer from this stream may be compressed.
    pub(crate) fn compressible(&self, place: &Place) -> bool {
        self.config.gzip_level > 0 && is_compressible(place.content_type.as_str())
    }
}

/// Whether a read that failed in this way begins at the start of the message that its place is inside of. Some clients
/// rely on it: they compute a place behind an offset. No data is lost and no message is torn. A place inside a JSON
/// message is refused: a client that computed it treats a stream of messages as a stream of bytes.
fn begins_earlier(error: &ReadError, kind: Kind) -> bool {
    kind != Kind::Json && matches!(error, ReadError::InsideMessage { .. })
}

/// A chunk that begins with a whole message, being read: steps as of a [`ChunkRead`].
struct WholeMessages {
    want: ReadFrom,
    kind: Kind,
    stage: Stage,
}

enum Stage {
    Chunk(Box<ChunkRead>),
    Boundary(Box<BoundaryRead>),
}

impl WholeMessages {
    fn new(want: ReadFrom, kind: Kind) -> Self {
        Self { want, kind, stage: Stage::Chunk(Box::new(ChunkRead::new(want))) }
    }

    fn step(&mut self, logs: &Logs<StreamState>) -> Step<Result<Content, ReadError>> {
        loop {
            let ReadFrom { log, from, upto } = self.want;
            self.stage = match &mut self.stage {
                Stage::Chunk(read) => match read.step(logs) {
                    Step::Done(Err(error)) if begins_earlier(&error, self.kind) => {
                        Stage::Boundary(Box::new(BoundaryRead::new(log, from, upto)))
                    }
                    step => return step.map(|read| read.map(|chunk| Content { from, chunk })),
                },
                Stage::Boundary(find) => match find.step(logs) {
                    Step::Done(Ok(at)) if at < from => {
                        self.want.from = at;
                        Stage::Chunk(Box::new(ChunkRead::new(self.want)))
                    }
                    // Stored content never changes, so the place cannot have become a boundary.
                    Step::Done(Ok(_)) => {
                        let cause = "the message around it was not found".to_owned();
                        return Step::Done(Err(ReadError::Io { log, offset: from, cause }));
                    }
                    Step::Done(Err(error)) => return Step::Done(Err(error)),
                    Step::Wants(ticket) => return Step::Wants(ticket),
                },
            };
        }
    }
}

/// An answer that is being compressed.
struct Compressing {
    engine: Arc<Engine>,
    after: Until,
    response: Option<Response>,
    bytes: u64,
    small: Fetch<Result<Bytes, String>>,
}

impl Task for Compressing {
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer> {
        let small = self.small.take(|| turn.waker())?;
        let counters = &self.engine.counters;
        Some(match (small, self.response.take()) {
            (Ok(small), Some(response)) => {
                add(&counters.compressed, 1);
                add(&counters.compressed_from_bytes, self.bytes);
                add(&counters.compressed_to_bytes, small.len() as u64);
                let small = self.engine.logs.hold(small);
                Answer::Response(self.after, Response { body: Body::Bytes(small), ..response })
            }
            (Err(error), _) => self.engine.refuse(&Refusal::Internal(format!("gzip: {error}")).into()),
            (Ok(_), None) => self.engine.refuse(&Refusal::Internal("answered twice".into()).into()),
        })
    }
}

/// Content between two offsets never changes. Content that expires must not be cached for longer than it lives.
fn cacheable(mut head: Head, place: &Place, private: bool, max_age: Duration, now: Millis) -> Head {
    /// How long a cache may go on with an old answer while it asks for a new one.
    const STALE_SECS: u64 = 300;
    if private {
        head.put(b"Vary: ", b"Authorization, Cookie");
    }
    if place.moving {
        head.put(b"Cache-Control: ", if private { b"private, no-cache" } else { b"no-cache" });
        return head;
    }
    let mut value = if private { b"private, max-age=".to_vec() } else { b"public, max-age=".to_vec() };
    let left_secs = place.deadline.map_or(u64::MAX, |deadline| deadline.since(now) / 1_000);
    let mut number = itoa::Buffer::new();
    value.extend_from_slice(number.format(max_age.as_secs().min(left_secs)).as_bytes());
    if left_secs >= max_age.as_secs().saturating_add(STALE_SECS) {
        value.extend_from_slice(b", stale-while-revalidate=");
        value.extend_from_slice(number.format(STALE_SECS).as_bytes());
    }
    head.put(b"Cache-Control: ", &value);
    head
}

/// Content as a body: JSON messages become one array.
pub(crate) fn body(kind: Kind, mut parts: Vec<Bytes>) -> Body {
    if kind == Kind::Json {
        let mut array = Vec::with_capacity(parts.len() + 2);
        array.push(Bytes::from_static(b"["));
        if let Some(last) = parts.last_mut() {
            last.truncate(last.len().saturating_sub(1));
        }
        array.append(&mut parts);
        array.push(Bytes::from_static(b"]"));
        return if array.len() == 2 { Body::Bytes(Bytes::from_static(b"[]")) } else { Body::Parts(array) };
    }
    match parts.len() {
        0 => Body::Empty,
        1 => parts.pop().map_or(Body::Empty, Body::Bytes),
        _ => Body::Parts(parts),
    }
}

/// A read that waits for a device.
struct LateChunk {
    engine: Arc<Engine>,
    place: Place,
    mode: Mode,
    if_none_match: Option<Box<[u8]>>,
    gzip: bool,
    reading: Reading,
}

impl Task for LateChunk {
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer> {
        let read = self.reading.take(|| turn.waker())?;
        Some(match read {
            Ok(content) => {
                let caching = Caching { if_none_match: self.if_none_match.as_deref(), gzip: self.gzip };
                match self.engine.respond_with(&mut self.place, self.mode, content, caching, turn.now) {
                    Answer::Later(mut task) => task.step(turn).unwrap_or(Answer::Later(task)),
                    answer => answer,
                }
            }
            Err(error) => self.engine.refuse(&self.engine.read_failed(&self.place, &error)),
        })
    }
}
