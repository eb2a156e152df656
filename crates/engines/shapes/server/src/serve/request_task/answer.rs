//! Reading the rows or changes that a request asks for, and putting the answer together.

use super::{ShapeRequestTask, Stage};
use crate::read::{self, ReadRange, Reading};
use crate::serve::body::array;
use crate::serve::read_plan::{Answer, ReadPlan, plan_read};
use crate::serve::refusal::Refusal;
use crate::serve::respond::{Mode, Page};
use crate::serve::rows::RowsBody;
use crate::serve::state::too_many_reads;
use crate::serve::{sse, subset};
use crate::shape::Shape;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;
use thalweg_base::Step;
use thalweg_http::{Body, Context, Poll, Reply, Response};
use thalweg_log::ReadError;
use thalweg_shapes_core::encode::message::{push_snapshot_end, up_to_date};
use thalweg_shapes_model::offset::{From, ShapeOffset};
use thalweg_shapes_source::error::SourceError;

/// Larger answers are put together on a thread of the pool, not on the event loop; rows are read while they are sent.
const INLINE_BYTES: u64 = 256 << 10;
/// Smaller answers are copied into one piece.
const JOINED_BYTES: usize = 16 << 10;
/// Live answers up to this size are kept for other requests that wait for the same.
const SHARED_BYTES: usize = 1 << 20;

impl ShapeRequestTask {
    pub(super) fn read(&mut self, shape: &Arc<Shape>, answer: Answer, cx: &mut Context<'_>) -> Option<Poll> {
        let Some(range) = &answer.range else { return Some(self.answer(shape, &answer, Vec::new(), cx)) };
        let server = &self.inner.server;
        if range.bytes() >= read::UNCOUNTED_MAX && server.changes.is_memory_short() {
            return Some(self.refuse(&Refusal::unsent(), cx));
        }
        if range.bytes() <= INLINE_BYTES
            && let Some(read) = read::try_read(shape.number, range, server.changes.sources())
        {
            return Some(match read {
                Ok(messages) => self.answer(shape, &answer, messages, cx),
                Err(error) => self.unreadable(shape, answer.base, &error, cx),
            });
        }
        if let ReadRange::Rows { log, from, upto } = *range
            && range.bytes() > INLINE_BYTES
        {
            let mut ending = self.ending(shape, &answer);
            ending.pop_if(|byte| *byte == b',');
            let body = RowsBody::new(Arc::clone(&self.inner), log, from, upto, ending);
            return Some(self.respond(shape, &answer, Body::Sized(body.len(), Box::new(body)), cx));
        }
        let (server, mut begun) = (Arc::clone(server), false);
        let mut reading = Reading::new(shape.number, range.clone());
        let step = move || {
            // Asked again when its turn comes: thousands may have passed the first question.
            if !std::mem::replace(&mut begun, true) && server.changes.is_memory_short() {
                return Step::Done(None);
            }
            reading.step(server.changes.sources()).map(Some)
        };
        match self.inner.io.steps(step) {
            Some(fetch) => {
                self.stage = Stage::Reading(Arc::clone(shape), Box::new(answer), fetch);
                None
            }
            None => Some(self.refuse(&too_many_reads(), cx)),
        }
    }

    /// Answers after a failed read: the base was given up during the read, or the disk is at fault.
    pub(super) fn unreadable(&self, shape: &Shape, base: u32, error: &ReadError, cx: &Context<'_>) -> Poll {
        let again = plan_read(&shape.lock(), Some(base), self.from, self.live, 0);
        match again {
            ReadPlan::Gone => self.refuse(&Refusal::MustRefetch(None), cx),
            ReadPlan::Past => self.refuse(&Refusal::MustRefetch(Some(shape.newest_handle())), cx),
            _ => self.refuse(&Refusal::Unreadable(error.to_string()), cx),
        }
    }

    /// Assembles the body: an array of the messages, and the control message about their end. Large messages are sent
    /// as they were read.
    pub(super) fn answer(
        &mut self,
        shape: &Arc<Shape>,
        answer: &Answer,
        messages: Vec<Bytes>,
        cx: &mut Context<'_>,
    ) -> Poll {
        let messages = match answer.skip {
            Some(from) => vec![read::skip(&read::joined(messages), from)],
            None => messages,
        };
        let tail = self.ending(shape, answer);
        let shared = self.live && answer.range.is_some() && answer.up_to_date.is_some();
        let bytes: usize = messages.iter().map(Bytes::len).sum();
        let body = if bytes <= JOINED_BYTES || shared && bytes <= SHARED_BYTES {
            let body = Bytes::from(array(&messages, tail).concat());
            if shared {
                shape.lock().share(answer.after, answer.end, body.clone());
            }
            Body::Bytes(body)
        } else {
            Body::Parts(array(&messages, tail))
        };
        self.respond(shape, answer, body, cx)
    }

    /// The control messages that end the answer, each with a comma after it, but for the last one.
    fn ending(&self, shape: &Shape, answer: &Answer) -> Vec<u8> {
        let mut tail = Vec::new();
        if answer.snapshot_end
            && let Some(snapshot) = shape.lock().rows(answer.base).and_then(|rows| rows.snapshot)
        {
            push_snapshot_end(&mut tail, snapshot, false);
        }
        if let Some(lsn) = answer.up_to_date {
            tail.extend_from_slice(&up_to_date(lsn));
        }
        tail
    }

    pub(super) fn respond(&mut self, shape: &Arc<Shape>, answer: &Answer, body: Body, cx: &mut Context<'_>) -> Poll {
        let schema = if self.live { Cow::Borrowed("") } else { self.inner.server.catalog.schema(shape) };
        let mode = match self.live {
            true => Mode::LongPoll { cursor: self.cursor.as_deref() },
            false => Mode::CatchUp { schema: &schema },
        };
        let handle = shape.handle_of(answer.base);
        let page = Page {
            handle: &handle,
            asked: self.from,
            offset: answer.end,
            mode,
            up_to_date: answer.up_to_date.is_some(),
            has_data: answer.range.is_some() || self.from == From::Start,
        };
        let moment = self.inner.moment(cx.now_ms);
        let fields = [("if-none-match", &self.known_tags[..])];
        let headers = thalweg_http::Headers(if self.known_tags.is_empty() { &[] } else { &fields });
        let responder = &self.inner.responder;
        let response = if page.is_known(headers) {
            responder.not_modified(&self.context, &page, moment)
        } else {
            responder.page(&self.context, &page, moment, body)
        };
        Poll::Ready(Reply::Now(response))
    }

    pub(super) fn events(&mut self, shape: &Arc<Shape>, cx: &mut Context<'_>) -> Response {
        let tail = match self.from {
            From::After(offset) => offset,
            From::Start | From::Now => ShapeOffset::SNAPSHOT_END,
        };
        let base = self.base.unwrap_or(shape.lock().newest());
        let handle = shape.handle_of(base);
        let page = Page {
            handle: &handle,
            asked: self.from,
            offset: tail,
            mode: Mode::Events { cursor: self.cursor.as_deref() },
            up_to_date: false,
            has_data: false,
        };
        let counted = self.counted.take();
        let feed =
            sse::Feed::new(Arc::clone(&self.inner), Arc::clone(shape), base, tail, counted, cx.now_ms, self.expires_ms);
        let moment = self.inner.moment(cx.now_ms);
        let mut response = self.inner.responder.page(&self.context, &page, moment, Body::Stream(Box::new(feed)));
        response.close = true;
        response
    }

    pub(super) fn begin_subset(&mut self, shape: &Arc<Shape>, cx: &mut Context<'_>) -> Option<Poll> {
        if self.inner.server.changes.is_memory_short() {
            return Some(self.refuse(&Refusal::unsent(), cx));
        }
        let subset = self.subset.as_deref()?.clone();
        let server = Arc::clone(&self.inner.server);
        let for_job = Arc::clone(shape);
        let ran = self.inner.database.run_beside(move |session| match session {
            Ok(session) => subset::run(&server, session, &for_job, &subset),
            Err(error) => Err(no_subset(error)),
        });
        match ran {
            Ok(fetch) => {
                self.stage = Stage::Subset(Arc::clone(shape), fetch);
                None
            }
            Err(error) => Some(self.refuse(&no_subset(error), cx)),
        }
    }
}

/// The refusal of a subset whose query could not run.
fn no_subset(error: SourceError) -> Refusal {
    match error {
        SourceError::Full { .. } => Refusal::Unavailable {
            code: "subsets_full",
            message: "Too many subsets wait for Postgres, please retry".to_owned(),
            retry_after_s: 5,
        },
        error => Refusal::from(&crate::failures::unavailable(error)),
    }
}
