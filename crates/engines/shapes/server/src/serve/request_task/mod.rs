//! One request for a shape: it waits for the shape to be made, for rows, or for a change.

mod answer;

use super::access::{Granted, Left};
use super::admission::{Kind, Permit};
use super::in_flight_creates::InFlightCreate;
use super::read_plan::{Answer, ReadPlan, plan_read};
use super::refusal::Refusal;
use super::respond::RequestContext;
use super::state::ServeState;
use super::subset;
use crate::lifetime::Counted;
use crate::shape::Shape;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_http::{Body, Context, Fetch, Method, Pending, Poll, Reply, Request};
use thalweg_log::ReadError;
use thalweg_shapes_core::request::params::ShapeRequest;
use thalweg_shapes_model::failure::Beyond;
use thalweg_shapes_model::handle::Handle;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_model::offset::From;

/// How long a request waits for its shape to begin, in milliseconds: less than the minute after which proxies usually
/// give up. The shape goes on being made, and the next request waits for the same one.
const MAKING_MS: u64 = 45_000;

impl ServeState {
    /// Answers a request for a shape, or begins the task that will.
    pub(super) fn begin(
        self: &Arc<Self>,
        request: &Request<'_>,
        granted: Option<&Granted>,
        context: &RequestContext,
        cx: &mut Context<'_>,
    ) -> Result<Reply, Refusal> {
        let body = matches!(request.method, Method::Post).then_some(request.body);
        self.server.source.idle.touch(self.server.lifetime.now_ms());
        let mut wanted = ShapeRequest::parse(request.query.unwrap_or_default(), body)?;
        let mut rights = subset::Rights::default();
        if let Some(Granted { grants, .. }) = granted {
            if let Some(subset) = &wanted.subset {
                rights.is_part = grants.check_subset(&wanted.shape, subset)?;
            }
            rights.by_token = true;
            Left { shape: wanted.shape, narrowing: rights.narrowing } = grants.narrow(wanted.shape)?;
        }
        let query_key = wanted.shape.key();
        let (known, named) = {
            let registry = self.server.catalog.registry.read();
            let known = registry.by_query_key(&query_key).cloned();
            let named = wanted.handle.as_ref().map(|handle| registry.by_handle(Handle::parse(handle).shape).cloned());
            (known, named)
        };
        let (stage, permit) = match (known, named) {
            (Some(shape), None) => (Stage::Shape(shape), self.admission.enter(Kind::Existing)?),
            (Some(shape), Some(Some(named))) if named.number == shape.number => {
                (Stage::Shape(shape), self.admission.enter(Kind::Existing)?)
            }
            // The handle is that of another shape, or of none: the client starts again with this shape.
            (Some(shape), Some(_)) => return Err(Refusal::MustRefetch(Some(shape.newest_handle()))),
            // The query key is new, the shape need not be.
            (None, _) => {
                let (making, permit) = self.create(&wanted.shape, query_key, &rights.narrowing)?;
                (Stage::Creating(making), permit)
            }
        };
        let mut task = ShapeRequestTask {
            inner: Arc::clone(self),
            context: context.clone(),
            permit,
            stage,
            from: wanted.offset,
            base: wanted.handle.as_ref().map(|handle| Handle::parse(handle).base),
            handle: wanted.handle.map(|handle| handle.as_ref().into()),
            live: wanted.live,
            counted: wanted.live.then(|| Counted::new(&self.server.lifetime, |counters| &counters.live)),
            sse: wanted.sse,
            cursor: wanted.cursor.map(|cursor| cursor.as_ref().into()),
            subset: wanted.subset.map(|subset| Box::new(subset::Owned::of(&subset, rights))),
            known_tags: tags(request),
            began_ms: cx.now_ms,
            expires_ms: granted.and_then(|granted| granted.expires_ms),
            ticket: None,
        };
        Ok(match task.poll(cx) {
            Poll::Ready(reply) => reply,
            Poll::Wait => Reply::Later(Box::new(task)),
        })
    }
}

/// The names in `If-None-Match`, for later: the request's headers are gone when an answer has to wait.
fn tags(request: &Request<'_>) -> Box<[u8]> {
    let mut all: Vec<u8> = Vec::new();
    for (_, value) in request.headers.0.iter().filter(|(name, _)| name.eq_ignore_ascii_case("if-none-match")) {
        all.extend_from_slice(value);
        all.push(b',');
    }
    all.into()
}

enum Stage {
    Creating(Arc<InFlightCreate>),
    Shape(Arc<Shape>),
    /// No result: there was no memory for it.
    Reading(Arc<Shape>, Box<Answer>, Fetch<Option<Result<Vec<Bytes>, ReadError>>>),
    Subset(Arc<Shape>, Fetch<Result<subset::Done, Refusal>>),
}

/// One request that is being answered.
pub(crate) struct ShapeRequestTask {
    inner: Arc<ServeState>,
    context: RequestContext,
    permit: Permit,
    stage: Stage,
    from: From,
    handle: Option<Box<str>>,
    /// The base of the handle, if there is one.
    base: Option<u32>,
    live: bool,
    /// Among the live requests, if it is one.
    counted: Option<Counted>,
    sse: bool,
    cursor: Option<Box<str>>,
    subset: Option<Box<subset::Owned>>,
    known_tags: Box<[u8]>,
    began_ms: u64,
    /// From then on nothing is sent.
    expires_ms: Option<u64>,
    /// Where it waits.
    ticket: Option<(Arc<Shape>, u64)>,
}

impl Pending for ShapeRequestTask {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        self.leave();
        if self.expires_ms.is_some_and(|at| at <= cx.now_ms) {
            return self.refuse(&Beyond::Expired.into(), cx);
        }
        let poll = self.step(cx);
        if let (Poll::Wait, Some(at)) = (&poll, self.expires_ms) {
            cx.wake_within(Duration::from_millis(at - cx.now_ms));
        }
        poll
    }
}

impl Drop for ShapeRequestTask {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ShapeRequestTask {
    fn leave(&mut self) {
        if let Some((shape, key)) = self.ticket.take() {
            shape.forget(key);
        }
    }

    fn refuse(&self, refusal: &Refusal, cx: &Context<'_>) -> Poll {
        debug_assert!(
            !matches!(refusal, Refusal::MustRefetch(Some(handle)) if self.handle.as_deref() == Some(&**handle)),
            "invariant 10: a client is sent back to the handle that it is refused with"
        );
        let seen;
        let refusal = if self.context.is_private() {
            seen = refusal.clone().without_values();
            &seen
        } else {
            refusal
        };
        Poll::Ready(Reply::Now(self.inner.responder.refuse(&self.context, refusal, self.inner.moment(cx.now_ms))))
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll {
        loop {
            match &self.stage {
                Stage::Creating(making) => match making.result(|| cx.waker()) {
                    None if cx.stopping() => {
                        return self.refuse(&Refusal::NotReady("The server is stopping".into()), cx);
                    }
                    None => {
                        let ends = self.began_ms + MAKING_MS;
                        if cx.now_ms >= ends {
                            return self.refuse(&Refusal::still_made(), cx);
                        }
                        cx.wake_after(Duration::from_millis(ends - cx.now_ms));
                        return Poll::Wait;
                    }
                    Some(Err(failure)) => return self.refuse(&Refusal::from(&failure), cx),
                    Some(Ok(shape)) => {
                        let shape_of = |handle: &str| Handle::parse(handle).shape.parse();
                        if self.handle.as_ref().is_some_and(|handle| shape_of(handle) != Ok(shape.handle)) {
                            return self.refuse(&Refusal::MustRefetch(Some(shape.newest_handle())), cx);
                        }
                        self.stage = Stage::Shape(shape);
                    }
                },
                Stage::Shape(shape) => {
                    let shape = Arc::clone(shape);
                    match self.plan(&shape, cx) {
                        Some(poll) => return poll,
                        None => continue,
                    }
                }
                Stage::Reading(shape, answer, fetch) => {
                    let Some(read) = fetch.take(|| cx.waker()) else { return Poll::Wait };
                    return match read {
                        Some(Ok(messages)) => self.answer(&Arc::clone(shape), &answer.clone(), messages, cx),
                        Some(Err(error)) => self.unreadable(&Arc::clone(shape), answer.base, &error, cx),
                        None => self.refuse(&Refusal::unsent(), cx),
                    };
                }
                Stage::Subset(shape, fetch) => {
                    let Some(done) = fetch.take(|| cx.waker()) else { return Poll::Wait };
                    return match done {
                        Ok(done) => {
                            let (offset, base) = {
                                let state = shape.lock();
                                (state.tail(), self.base.unwrap_or(state.newest()))
                            };
                            let (handle, body) = (shape.handle_of(base), Body::Bytes(done.body));
                            let responder = &self.inner.responder;
                            let response = responder.subset(
                                &self.context,
                                &handle,
                                offset,
                                &self.inner.server.catalog.schema(shape),
                                body,
                            );
                            Poll::Ready(Reply::Now(response))
                        }
                        Err(refusal) => self.refuse(&refusal, cx),
                    };
                }
            }
        }
    }

    /// `None`: the stage has changed.
    fn plan(&mut self, shape: &Arc<Shape>, cx: &mut Context<'_>) -> Option<Poll> {
        shape.used(cx.now_ms);
        let inner = Arc::clone(&self.inner);
        let processed = inner.server.watermarks.processed_lsn().0;
        let mut state = shape.lock();
        let from = if self.subset.is_some() { From::Now } else { self.from };
        let found = plan_read(&state, self.base, from, self.live, processed);
        let http = &inner.server.config.http;
        match found {
            ReadPlan::Failed(failure) => {
                drop(state);
                Some(self.refuse(&Refusal::from(&*failure), cx))
            }
            ReadPlan::Gone => {
                drop(state);
                Some(self.refuse(&Refusal::MustRefetch(None), cx))
            }
            ReadPlan::Past => {
                drop(state);
                Some(self.refuse(&Refusal::MustRefetch(Some(shape.newest_handle())), cx))
            }
            // A stream of events that begins beyond the shape's end would have none, for as long as it lasts.
            _ if self.sse && !matches!(found, ReadPlan::Beyond) => {
                drop(state);
                Some(Poll::Ready(Reply::Now(self.events(shape, cx))))
            }
            ReadPlan::Answer(_) if self.subset.is_some() => {
                drop(state);
                self.permit.now_reads();
                self.begin_subset(shape, cx)
            }
            ReadPlan::Answer(answer) => {
                self.permit.now_reads();
                state.joined |= self.from == From::Start;
                // A body that says that it is up to date is not for an answer that is not.
                let shared = answer.up_to_date.and_then(|_| state.shared(answer.after, answer.end, self.live));
                drop(state);
                if let Some(body) = shared {
                    return Some(self.respond(shape, &answer, Body::Bytes(body), cx));
                }
                self.read(shape, answer, cx)
            }
            ReadPlan::WaitForRows => {
                if cx.stopping() {
                    drop(state);
                    return Some(self.refuse(&Refusal::NotReady("The server is stopping".into()), cx));
                }
                let key = shape.wait(&mut state, cx.waker());
                self.ticket = Some((Arc::clone(shape), key));
                Some(Poll::Wait)
            }
            ReadPlan::WaitForChange(nothing) => {
                let ends = self.began_ms + http.long_poll_ms;
                if cx.now_ms >= ends || cx.stopping() {
                    drop(state);
                    return Some(self.answer(shape, &nothing, Vec::new(), cx));
                }
                self.permit.now_reads();
                let key = shape.wait(&mut state, cx.waker());
                self.ticket = Some((Arc::clone(shape), key));
                cx.wake_after(Duration::from_millis(ends - cx.now_ms));
                Some(Poll::Wait)
            }
            ReadPlan::Beyond => {
                let ends = self.began_ms + http.long_poll_ms / 2;
                if cx.now_ms >= ends || cx.stopping() {
                    drop(state);
                    // After a crash Postgres sends the changes again that clients have seen and that were not durable,
                    // as soon as they can be stored.
                    let late =
                        inner.server.changes.write_stall.is_stuck() || inner.server.source.health() != Health::Active;
                    let refusal = if late {
                        Refusal::NotReady("Changes before this offset are on their way from Postgres".into())
                    } else {
                        Refusal::out_of_bounds()
                    };
                    return Some(self.refuse(&refusal, cx));
                }
                let key = shape.wait(&mut state, cx.waker());
                self.ticket = Some((Arc::clone(shape), key));
                cx.wake_after(Duration::from_millis(ends - cx.now_ms));
                Some(Poll::Wait)
            }
        }
    }
}
