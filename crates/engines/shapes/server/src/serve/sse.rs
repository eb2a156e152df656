//! Live answers that do not end with the first change: one event for each message.

use super::read_plan::{Answer, ReadPlan, plan_read};
use super::state::ServeState;
use crate::lifetime::Counted;
use crate::read;
use crate::shape::Shape;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_http::{BodySource, Context, Fetch, Pull, Sink};
use thalweg_log::ReadError;
use thalweg_shapes_core::encode::message::{KEEP_ALIVE, push_event, push_events, up_to_date};
use thalweg_shapes_model::offset::{From, ShapeOffset};

/// Changes that are sent in one go: each client has a copy of its own until its socket has taken it.
const TURN_BYTES: u64 = 256 << 10;
/// How long to wait for memory.
const MEMORY_AGAIN: Duration = Duration::from_millis(100);

/// One client's stream.
pub(crate) struct Feed {
    inner: Arc<ServeState>,
    shape: Arc<Shape>,
    /// The base that the client began with.
    base: u32,
    /// The position up to which the client has messages.
    at: ShapeOffset,
    ends_ms: u64,
    spoke_ms: u64,
    ticket: Option<u64>,
    _counted: Option<Counted>,
    reading: Option<Reading>,
}

/// An answer whose messages are being read from the disk.
type Reading = (Box<Answer>, Fetch<Result<Vec<Bytes>, ReadError>>);

impl Feed {
    pub(crate) fn new(
        inner: Arc<ServeState>,
        shape: Arc<Shape>,
        base: u32,
        at: ShapeOffset,
        counted: Option<Counted>,
        now_ms: u64,
        expires_ms: Option<u64>,
    ) -> Self {
        let ends_ms = now_ms + inner.server.config.http.sse_timeout_ms;
        let ends_ms = expires_ms.map_or(ends_ms, |at| at.min(ends_ms));
        Self { inner, shape, base, at, ends_ms, spoke_ms: now_ms, ticket: None, _counted: counted, reading: None }
    }

    fn leave(&mut self) {
        if let Some(key) = self.ticket.take() {
            self.shape.forget(key);
        }
    }

    fn tell(&mut self, answer: &Answer, messages: Vec<Bytes>, cx: &Context<'_>, sink: &mut Sink<'_>) -> Pull {
        let messages = read::joined(messages);
        let messages = match answer.skip {
            Some(from) => read::skip(&messages, from),
            None => messages,
        };
        let mut events = Vec::with_capacity(messages.len() + messages.len() / 8 + 128);
        push_events(&mut events, &messages);
        if let Some(lsn) = answer.up_to_date {
            push_event(&mut events, &up_to_date(lsn));
        }
        let events = Bytes::from(events);
        let small = (events.len() as u64) < read::UNCOUNTED_MAX;
        sink.push(if small { events } else { self.inner.server.changes.store.logs().hold(events) });
        (self.at, self.spoke_ms) = (answer.end, cx.now_ms);
        Pull::More
    }
}

impl BodySource for Feed {
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        self.leave();
        if cx.now_ms >= self.ends_ms || cx.stopping() {
            return Pull::End;
        }
        if let Some((answer, fetch)) = self.reading.take() {
            return match fetch.take(|| cx.waker()) {
                None => {
                    self.reading = Some((answer, fetch));
                    Pull::Wait
                }
                Some(Ok(messages)) => self.tell(&answer, messages, cx, sink),
                Some(Err(_)) => Pull::Abort,
            };
        }
        let (shape, inner) = (Arc::clone(&self.shape), Arc::clone(&self.inner));
        let processed = inner.server.watermarks.processed_lsn().0;
        let mut state = shape.lock();
        shape.used(cx.now_ms);
        match plan_read(&state, Some(self.base), From::After(self.at), true, processed) {
            // The client comes back, and learns from the status why.
            ReadPlan::Failed(_) | ReadPlan::Past | ReadPlan::Gone => Pull::End,
            ReadPlan::Answer(mut answer) => {
                drop(state);
                answer.cut(TURN_BYTES);
                let Some(range) = &answer.range else { return self.tell(&answer, Vec::new(), cx, sink) };
                let server = &inner.server;
                if range.bytes() >= read::UNCOUNTED_MAX && server.changes.is_memory_short() {
                    cx.wake_after(MEMORY_AGAIN);
                    return Pull::Wait;
                }
                match read::try_read(shape.number, range, server.changes.sources()) {
                    Some(Ok(messages)) => self.tell(&answer, messages, cx, sink),
                    Some(Err(_)) => Pull::Abort,
                    None => {
                        let server = Arc::clone(server);
                        let mut reading = read::Reading::new(shape.number, range.clone());
                        match inner.io.steps(move || reading.step(server.changes.sources())) {
                            Some(fetch) => {
                                self.reading = Some((Box::new(answer), fetch));
                                self.pull(cx, sink)
                            }
                            None => Pull::Abort,
                        }
                    }
                }
            }
            ReadPlan::WaitForChange(_) | ReadPlan::WaitForRows | ReadPlan::Beyond => {
                self.ticket = Some(shape.wait(&mut state, cx.waker()));
                drop(state);
                let keep_alive = inner.server.config.http.keep_alive_ms;
                if cx.now_ms.saturating_sub(self.spoke_ms) >= keep_alive {
                    sink.push(Bytes::from_static(KEEP_ALIVE));
                    self.spoke_ms = cx.now_ms;
                }
                let next = self.ends_ms.min(self.spoke_ms + keep_alive);
                cx.wake_after(Duration::from_millis(next.saturating_sub(cx.now_ms)));
                Pull::Wait
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.leave();
    }
}
