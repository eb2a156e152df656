//! GET and HEAD (protocol sections 5.5 to 5.8).

use super::chunk::{Caching, Mode, Place, body};
use super::engine::{Engine, closed_visibly, position};
use super::etag::{etag, unchanged};
use super::fields::Fields;
use super::head::Head;
use super::long_poll::LongPoll;
use super::query::{Live, Query};
use super::sse;
use super::turn::Answer;
use crate::error::{Refusal, Refused};
use crate::format::content_type::Kind;
use crate::format::offset::{OffsetParam, Position};
use crate::state::StreamState;
use std::sync::Arc;
use thalweg_base::{Millis, Offset};
use thalweg_http::{Body, Request};
use thalweg_log::LogView;

impl Engine {
    /// HEAD: the properties of a stream. It does not count as a use.
    pub(crate) fn metadata(&self, request: &Request<'_>, now: Millis) -> Result<Answer, Refused> {
        let name = self.name(request)?;
        let (mut guard, log) = self.find_live(&name, self.hop(request.headers), now)?;
        let view = guard.view(log).ok_or(Refusal::NotFound)?;
        let head = Head::new(200)
            .next_offset(position(&view, view.published))
            .closed(closed_visibly(&view, self.logs.durable()))
            .lifetime(view.attachment.lifetime)
            .retention(self.retention(view.attachment))
            .durability(self.level_of(view.attachment.durability))
            .earliest(position(&view, view.start))
            .no_store()
            .content_type(view.attachment.content_type.as_str());
        Ok(Answer::Response(view.when(view.created.max(view.attachment.trimmed)), head.finish(Body::Empty)))
    }

    pub(crate) fn get(self: &Arc<Self>, request: &Request<'_>, now: Millis) -> Result<Answer, Refused> {
        let name = self.name(request)?;
        let query = request.query.map_or(Ok(Query::default()), Query::parse)?;
        let fields = Fields::find(request.headers)?;
        // An SSE reader's last event is newer than the offset in its URL.
        let resumed = if query.live == Some(Live::Sse) { fields.last_event_id()? } else { None };
        let offset = resumed.map(OffsetParam::At).or(query.offset);
        let (mut guard, log) = self.find_live(&name, self.hop(request.headers), now)?;
        self.renew(&mut guard, log, now);
        let view = guard.view(log).ok_or(Refusal::NotFound)?;
        let mut place = Place::new(&view, start(&view, offset)?, self.logs.reached());
        place.moving = match offset {
            None | Some(OffsetParam::Start) => !self.retention(view.attachment).is_unlimited(),
            Some(OffsetParam::Tail) => true,
            Some(OffsetParam::At(_)) => false,
        };
        drop(guard);

        let caching = Caching { if_none_match: fields.if_none_match, gzip: fields.accepts_gzip() };
        let at_tail = place.span.from.offset == place.span.upto.offset;
        match query.live {
            Some(Live::Sse) => Ok(sse::open(self, place, query.cursor, now)),
            Some(Live::LongPoll) if at_tail => {
                Ok(Answer::Later(Box::new(LongPoll::new(self, place, query.cursor, now))))
            }
            Some(Live::LongPoll) => self.chunk(place, Mode::LongPoll { echoed: query.cursor }, caching, now),
            None if query.offset == Some(OffsetParam::Tail) => Ok(tail(&place)),
            None => {
                // The client has all of the content: nothing to read.
                let whole = etag(place.span.from.offset, place.span.upto, place.span.closed);
                let compressible = self.compressible(&place);
                let known = unchanged(fields.if_none_match, &whole, caching.gzip && compressible);
                if let Some(known) = known.filter(|_| !at_tail) {
                    let head = Head::new(304)
                        .line(b"ETag: ", &known)
                        .varies(compressible)
                        .next_offset(place.span.upto)
                        .up_to_date(true)
                        .closed(place.span.closed)
                        .line(b"Cache-Control: ", self.config.no_cache());
                    return Ok(Answer::Response(place.after, head.finish(Body::Empty)));
                }
                self.chunk(place, Mode::CatchUp, caching, now)
            }
        }
    }
}

/// The start of a read. Offsets that the server never gave are refused rather than guessed around, but for places
/// inside a message that holds no JSON: those are read from the message's start (`chunk::begins_earlier`).
fn start(view: &LogView<'_, StreamState>, given: Option<OffsetParam>) -> Result<Offset, Refused> {
    let at = match given {
        None | Some(OffsetParam::Start) => return Ok(view.start),
        Some(OffsetParam::Tail) => return Ok(view.published),
        Some(OffsetParam::At(at)) => at,
    };
    // The offset lies inside the next message.
    let inside_next = Position { offset: view.published.plus(1), ..position(view, view.published) };
    if at == inside_next && view.attachment.content_type.kind() != Kind::Json {
        return Ok(view.published);
    }
    let refusal = if at.offset > view.published {
        Refusal::OffsetBeyond { tail: position(view, view.published) }
    } else if at.incarnation != view.incarnation(at.offset) {
        Refusal::OffsetStale
    } else if at.offset < view.start {
        Refusal::Trimmed { start: position(view, view.start) }
    } else {
        return Ok(at.offset);
    };
    Err(refusal.after(view.when(view.created.max(view.attachment.trimmed))))
}

/// `offset=now`: nothing, and where the next read starts.
fn tail(place: &Place) -> Answer {
    let head = Head::new(200)
        .next_offset(place.span.upto)
        .up_to_date(true)
        .closed(place.span.closed)
        .no_store()
        .content_type(place.content_type.as_str());
    Answer::Response(place.after, head.finish(body(place.content_type.kind(), Vec::new())))
}
