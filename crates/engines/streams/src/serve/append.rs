//! POST: appends and closes (protocol sections 5.2 and 5.3).

use super::engine::{Engine, position};
use super::etag::names_tail;
use super::fields::Fields;
use super::head::Head;
use super::stats::add;
use super::turn::Answer;
use crate::error::{Refusal, Refused, quoted};
use crate::format::content_type::{Kind, kind};
use crate::format::json::{self, JsonError, Messages};
use crate::format::note::Note;
use crate::format::offset::Position;
use crate::state::append::{Attempt, Conflict, Outcome, judge, notes};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use thalweg_base::{Millis, Until};
use thalweg_http::{Body, Request};
use thalweg_journal::Class;
use thalweg_log::{Append, Lengths, Op};

thread_local! {
    /// Room for a note, so that appends do not allocate one each.
    static NOTE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A body as messages, split before any lock is taken.
pub(crate) enum Content<'a> {
    /// One message, unchanged.
    Whole(&'a [u8]),
    Json(Result<Messages<'a>, JsonError>),
}

impl<'a> Content<'a> {
    pub(crate) fn new(kind: Kind, body: &'a [u8]) -> Self {
        if kind == Kind::Json && !body.is_empty() { Self::Json(json::split(body)) } else { Self::Whole(body) }
    }

    /// Calls `f` with the append of this content, `None` for empty content.
    pub(crate) fn with<T>(&self, f: impl FnOnce(Option<Append<'_>>) -> T) -> Result<T, Refusal> {
        match self {
            Self::Whole([]) => Ok(f(None)),
            Self::Whole(body) => {
                let max = u32::MAX as usize;
                let len = u32::try_from(body.len()).map_err(|_| Refusal::TooLarge { len: body.len(), max })?;
                Ok(f(Some(Append::Bytes { parts: &[body], lengths: &Lengths::one(len) })))
            }
            Self::Json(Err(error)) => Err(Refusal::Json(*error)),
            Self::Json(Ok(messages)) if messages.lengths.is_empty() => Ok(f(None)),
            Self::Json(Ok(Messages { content, lengths })) => {
                let content: &[u8] = match content {
                    Cow::Borrowed(bytes) => bytes,
                    Cow::Owned(bytes) => bytes,
                };
                Ok(f(Some(Append::Bytes { parts: &[content, b","], lengths })))
            }
        }
    }
}

impl Engine {
    pub(crate) fn append(self: &Arc<Self>, request: &Request<'_>, now: Millis) -> Result<Answer, Refused> {
        let name = self.name(request)?;
        let fields = Fields::find(request.headers)?;
        let mut attempt = Attempt {
            content_type: fields.content_type,
            empty: request.body.is_empty(),
            close: fields.closes(),
            seq: fields.seq()?,
            claim: fields.claim()?,
            moved: false,
        };
        // A body is accepted only under the stream's own media type, so the request's type determines how to split it.
        let kind = if attempt.empty { Kind::Binary } else { attempt.content_type.map_or(Kind::Binary, kind) };
        let content = Content::new(kind, request.body);

        let (mut guard, log) = self.find_live(&name, self.hop(request.headers), now)?;
        let view = guard.view(log).ok_or(Refusal::NotFound)?;
        let state = view.attachment;
        let tail = position(&view, view.tail);
        attempt.moved = fields.if_match.is_some_and(|given| !names_tail(given, tail));
        let conditional = fields.if_match.is_some();
        let producer = match judge(state, &attempt, self.config.max_producers) {
            Outcome::Accept { producer } => producer,
            Outcome::Refuse(conflict) => {
                let refusal = refusal(conflict, &attempt, state.content_type.as_str(), tail, self.config.max_producers);
                return Err(refusal.after(view.when(view.changed)));
            }
            Outcome::Duplicate { seq } => {
                let closed = state.closed.is_some();
                let changed =
                    if self.config.acknowledges_retries_early() { Until::NOW } else { view.when(view.changed) };
                self.renew(&mut guard, log, now);
                add(&self.counters.duplicates, 1);
                let producer = attempt.claim.map(|claim| (claim.epoch, seq));
                return Ok(accepted(204, changed, tail, closed, producer, conditional));
            }
            Outcome::AlreadyClosed => {
                let changed = view.when(view.changed);
                self.renew(&mut guard, log, now);
                return Ok(accepted(204, changed, tail, true, None, conditional));
            }
        };
        let (watched, sliding) = (state.watched, state.lifetime.is_sliding());
        // Positions past the tail belong to the log itself, also in a fork.
        let beyond = view.incarnation(view.tail.plus(1));
        let mut note = NOTE.take();
        note.clear();
        notes(state, &attempt, producer, now, &mut note);
        if let Some(secs) = self.retention(state).secs
            && let Some(mark) = state.marks.due(secs, view.tail, now)
        {
            Note::Mark(mark).encode(&mut note);
        }
        let committed = content.with(|append| {
            let added = append.as_ref().map_or(0, |append| append.lengths().bytes());
            if added == 0 && !attempt.empty {
                return Err(Refusal::EmptyArray);
            }
            let next = match added {
                0 => tail,
                n => Position { incarnation: beyond, offset: tail.offset.plus(n) },
            };
            if self.config.splits_producer_state() && !note.is_empty() {
                // The planted fault: the content may become durable without its producer's state.
                let first = guard.commit(Class::User, &[Op::Write { log, note: b"", append }])?;
                let _ = self.logs.journal().wait(first.end);
                let committed = guard.commit(Class::User, &[Op::Write { log, note: &note, append: None }])?;
                return Ok((committed.until, next, added));
            }
            let ops = [Op::Write { log, note: &note, append }];
            // A lost close would reopen a stream that a client has seen closed.
            let committed = match attempt.close && !self.config.buffers_closes() {
                true => guard.commit_durably(Class::User, &ops)?,
                false => guard.commit(Class::User, &ops)?,
            };
            Ok((committed.until, next, added))
        });
        NOTE.set(note);
        let (until, next, added) = committed??;
        if sliding {
            self.renew(&mut guard, log, now);
        }
        drop(guard);
        if watched {
            self.announce(until, log);
        }
        if added > 0 {
            self.changed(until, log);
            add(&self.counters.appends, 1);
            add(&self.counters.append_bytes, added);
        }
        let status = if attempt.claim.is_some() && !attempt.empty { 200 } else { 204 };
        let producer = attempt.claim.map(|claim| (claim.epoch, claim.seq));
        Ok(accepted(status, until, next, attempt.close, producer, conditional))
    }
}

/// `conditional`: the request had `If-Match`, so the answer has the tag for the next one.
fn accepted(
    status: u16,
    after: Until,
    next: Position,
    closed: bool,
    producer: Option<(u64, u64)>,
    conditional: bool,
) -> Answer {
    let mut head = Head::new(status).next_offset(next).closed(closed);
    if conditional {
        head = head.line(b"ETag: ", &quoted(next));
    }
    if let Some((epoch, seq)) = producer {
        head = head.number(b"Producer-Epoch: ", epoch).number(b"Producer-Seq: ", seq);
    }
    Answer::Response(after, head.finish(Body::Empty))
}

fn refusal(conflict: Conflict, attempt: &Attempt<'_>, content_type: &str, tail: Position, producers: usize) -> Refusal {
    let (epoch, seq) = attempt.claim.map_or((0, 0), |claim| (claim.epoch, claim.seq));
    match conflict {
        Conflict::Closed => Refusal::Closed { tail },
        Conflict::NoContentType => Refusal::NoContentType,
        Conflict::ContentType => Refusal::ContentType(content_type.into()),
        Conflict::Empty => Refusal::EmptyBody,
        Conflict::Stale { epoch: current } => Refusal::StaleEpoch { given: epoch, current },
        Conflict::Gap { expected } => Refusal::Gap { expected, received: seq },
        Conflict::MidEpoch => Refusal::MidEpoch(seq),
        Conflict::TooManyProducers => Refusal::TooManyProducers(producers),
        Conflict::Moved => Refusal::Moved { tail },
        Conflict::Seq => Refusal::SeqRegression,
    }
}
