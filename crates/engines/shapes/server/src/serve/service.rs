//! Requests for shapes: finding the shape, waiting for it, answering.

use super::access::{Clause, Denied, Granted, Left};
use super::admission::{Admission, Kind, Permit};
use super::create_batcher::{Batch, CreateBatcher, CreateRequest};
use super::in_flight_creates::{InFlightCreate, InFlightCreates};
use super::read_plan::{Answer, ReadPlan, plan_read};
use super::refusal::Refusal;
use super::respond::{self, Mode, Page, RequestClock, RequestContext, Responder};
use super::route::Route;
use super::rows::RowsBody;
use super::secret::Secret;
use super::sse;
use super::subset;
use crate::lifetime::Counted;
use crate::make::scan;
use crate::read::{self, Reading, Wanted};
use crate::server::ShapesServer;
use crate::shape::Shape;
use bytes::Bytes;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thalweg_base::Step;
use thalweg_http::{Body, Context, Fetch, Method, Pending, Poll, Pool, Reply, Request, Response, Service};
use thalweg_log::ReadError;
use thalweg_shapes_core::encode::message::{push_snapshot_end, up_to_date};
use thalweg_shapes_core::request::params::{self, DeleteRequest, ShapeRequest};
use thalweg_shapes_model::failure::{Beyond, Failure};
use thalweg_shapes_model::handle::Handle;
use thalweg_shapes_model::health::Health;
use thalweg_shapes_model::offset::{From, ShapeOffset};
use thalweg_shapes_model::table::TableName;
use thalweg_shapes_source::catalog::Found;
use thalweg_shapes_source::error::SourceError;
use thalweg_shapes_source::pool::Pool as Database;
use thalweg_shapes_source::session::Session;

/// Larger answers are put together on a thread of the pool, not on the event loop; rows are read while they are sent.
const INLINE_BYTES: u64 = 256 << 10;
/// Smaller answers are copied into one piece.
const JOINED_BYTES: usize = 16 << 10;
/// Live answers up to this size are kept for other requests that wait for the same.
const SHARED_BYTES: usize = 1 << 20;
/// Reads that wait for the disk, at most.
const READS_MAX: usize = 4096;
/// How long a request waits for its shape to begin, in milliseconds: less than the minute after which proxies usually
/// give up. The shape goes on being made, and the next request waits for the same one.
const MAKING_MS: u64 = 45_000;

/// Serves shapes over HTTP.
#[derive(Clone)]
pub struct ShapesService(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) server: Arc<ShapesServer>,
    pub(crate) responder: Responder,
    secret: Secret,
    pub(crate) admission: Arc<Admission>,
    in_flight: InFlightCreates,
    batcher: CreateBatcher,
    pub(crate) database: Database,
    pub(crate) io: Pool,
    random: RandomState,
    unique: AtomicU64,
}

impl ShapesService {
    pub(crate) fn new(server: Arc<ShapesServer>, database: Database) -> Self {
        let http = server.config.http.clone();
        Self(Arc::new(Inner {
            admission: Admission::new(http.initial_requests_max, http.existing_requests_max),
            secret: Secret::new(server.config.secret.as_deref()),
            responder: Responder::new(http, env!("CARGO_PKG_VERSION")),
            io: Pool::new("shapes-io", server.config.io_threads, READS_MAX),
            in_flight: InFlightCreates::default(),
            batcher: CreateBatcher::new(Arc::clone(&server.lifetime.clock)),
            random: RandomState::new(),
            unique: AtomicU64::new(0),
            server,
            database,
        }))
    }

    /// Whether a path is one of those that are served here.
    #[must_use]
    pub fn serves(path: &str) -> bool {
        matches!(Route::of(path), Route::Shape | Route::Health)
    }
}

impl ShapesService {
    /// Whether a request gives the secret, right or wrong: then that counts, and no token.
    #[must_use]
    pub fn gives_secret(request: &Request<'_>) -> bool {
        Secret::is_in(request.query)
    }

    /// Answers under a token, if one was sent in place of the secret.
    pub fn handle_as(
        &self,
        request: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
        cx: &mut Context<'_>,
    ) -> Reply {
        self.0.handle(request, access, cx)
    }

    /// The refusal of a request of which there is only the head: nobody sends a body in vain. `None` lets it go on to
    /// [`ShapesService::handle_as`].
    #[must_use]
    pub fn on_head(
        &self,
        head: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
        now_ms: u64,
    ) -> Option<Response> {
        let route = Route::of(head.path);
        if route != Route::Shape || head.method == Method::Options {
            return None;
        }
        let refusal = self.0.admit(head, access).err()?;
        let moment = self.0.moment(now_ms);
        Some(self.0.responder.refuse(&self.0.context(head, route, moment), &refusal, moment))
    }
}

impl Service for ShapesService {
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        self.0.handle(request, Ok(None), cx)
    }

    fn round_done(&self) {}

    fn gate_failed(&self) -> Response {
        Response::new(500)
    }
}

impl Inner {
    fn handle(
        self: &Arc<Self>,
        request: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
        cx: &mut Context<'_>,
    ) -> Reply {
        let route = Route::of(request.path);
        let moment = self.moment(cx.now_ms);
        let context = self.context(request, route, moment).private(matches!(access, Ok(Some(_))));
        let refuse = |refusal: Refusal| Reply::Now(self.responder.refuse(&context, &refusal, moment));
        match (route, request.method) {
            (Route::Health, Method::Get | Method::Head) => {
                let health = match self.server.source.health() {
                    // Electric says so too: the next request is served as ever.
                    Health::Active | Health::Asleep => respond::Health::Active,
                    Health::Waiting => respond::Health::Waiting,
                    Health::Starting => respond::Health::Starting,
                };
                return Reply::Now(self.responder.health(&context, health));
            }
            (Route::Shape, Method::Options) => return Reply::Now(self.responder.preflight(&context, request.headers)),
            (Route::Shape, Method::Get | Method::Head | Method::Post | Method::Delete) => {}
            _ => return refuse(Refusal::Unknown),
        }
        let granted = match self.admit(request, access) {
            Ok(granted) => granted,
            Err(refusal) => return refuse(refusal),
        };
        let done = match (request.method, granted) {
            (Method::Delete, Some(_)) => Err(Beyond::Delete.into()),
            (Method::Delete, None) => self.delete(request, &context),
            (_, granted) => self.shape(request, granted.as_ref(), &context, cx),
        };
        done.unwrap_or_else(refuse)
    }

    fn context(&self, request: &Request<'_>, route: Route, moment: RequestClock) -> RequestContext {
        let id = u128::from(self.random.hash_one(moment.unique)) << 64 | u128::from(moment.unique);
        RequestContext::new(request, route, id)
    }

    /// What the sender of a request may read, by a token or by the secret; all if nobody is asked for one.
    fn admit(
        &self,
        request: &Request<'_>,
        access: Result<Option<Granted>, Denied>,
    ) -> Result<Option<Granted>, Refusal> {
        match access {
            Err(denied) => Err(Refusal::Denied(denied)),
            Ok(None) if !self.secret.admits(request.query) => Err(Refusal::Secret),
            Ok(granted) => Ok(granted),
        }
    }

    pub(crate) fn moment(&self, now_ms: u64) -> RequestClock {
        let unique = self.unique.fetch_add(1, Ordering::Relaxed);
        // Never the same twice, also not after a restart.
        let unique = unique.wrapping_add(now_ms << 20);
        RequestClock { now_s: now_ms / 1000, random: self.random.hash_one(unique) as u32, unique }
    }

    fn delete(self: &Arc<Self>, request: &Request<'_>, context: &RequestContext) -> Result<Reply, Refusal> {
        if !self.responder.settings().allow_delete {
            return Err(Refusal::NoDelete);
        }
        let wanted = DeleteRequest::parse(request.query.unwrap_or_default()).map_err(Refusal::Invalid)?;
        let registry = self.server.catalog.registry.read();
        let by_query_key = wanted.shape.as_ref().map(|shape| registry.by_query_key(&shape.key()).cloned());
        let by_handle = wanted.handle.as_ref().map(|handle| registry.by_handle(Handle::parse(handle).shape).cloned());
        drop(registry);
        let found = match (by_query_key, by_handle) {
            (Some(Some(shape)), Some(Some(named))) if shape.number != named.number => return Err(Refusal::Mismatch),
            (Some(Some(shape)), Some(None)) if shape.number > 0 => return Err(Refusal::Mismatch),
            (_, Some(Some(shape))) | (Some(Some(shape)), _) => shape,
            _ => return Err(Refusal::NoShape),
        };
        // Acknowledged means durable: a handle that was told to be gone never comes back.
        let (inner, context) = (Arc::clone(self), context.clone());
        let deleted = self.io.run(move || match inner.server.retirement.drop_for_good(&found) {
            Ok(()) => inner.responder.deleted(&context),
            Err(error) => {
                let refusal = Refusal::Unreadable(error.to_string());
                inner.responder.refuse(&context, &refusal, RequestClock::default())
            }
        });
        deleted.map(|fetch| Reply::Later(Box::new(Deleting(fetch)))).ok_or_else(too_many_reads)
    }

    fn shape(
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
            // The handle is another's, or nobody's any more: the client starts again with this shape.
            (Some(shape), Some(_)) => return Err(Refusal::MustRefetch(Some(shape.newest_handle()))),
            // The words are new, the shape need not be.
            (None, _) => {
                let (making, permit) = self.make(&wanted.shape, query_key, &rights.narrowing)?;
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

    /// Has the shape made on a thread that may ask Postgres, unless that is under way: a request that waits for another
    /// one's attempt costs no more than a reader.
    fn make(
        self: &Arc<Self>,
        shape: &params::Shape<'_>,
        query_key: Vec<u8>,
        narrowing: &[Clause],
    ) -> Result<(Arc<InFlightCreate>, Permit), Refusal> {
        let (making, new) = self.in_flight.join(&query_key);
        if !new {
            return Ok((making, self.admission.enter(Kind::Existing)?));
        }
        let permit = match self.admission.enter(Kind::Initial) {
            Ok(permit) => permit,
            Err(overloaded) => {
                let failure = Failure::unavailable("concurrent_request_limit_exceeded", overloaded, 6);
                self.in_flight.finish(&query_key, Err(failure));
                return Err(overloaded.into());
            }
        };
        let definition = shape.to_definition();
        let table = definition.table.clone();
        if self.batcher.add(CreateRequest { definition, query_key, narrowing: narrowing.to_vec() }) {
            self.make_all(table);
        }
        Ok((making, permit))
    }

    /// Has all shapes of a table made that wait for it, on a thread that may ask Postgres.
    fn make_all(self: &Arc<Self>, table: TableName) {
        let (inner, of) = (Arc::clone(self), table.clone());
        let queued = self.database.submit(move |session| {
            let Some(batch) = inner.batcher.take(&of) else { return };
            if batch.more {
                inner.make_all(of.clone());
            }
            let found = match session {
                Ok(session) => inner.server.table_of(session, &of).map(|found| (session, found)),
                Err(error) => Err(crate::failures::unavailable(error)),
            };
            match found {
                Ok((session, found)) => inner.make_batch(session, &found, &batch),
                Err(failure) => inner.give_up(&batch.requests, &failure),
            }
        });
        if let Err(error) = queued
            && let Some(batch) = self.batcher.take_now(&table)
        {
            self.give_up(&batch.requests, &crate::failures::unavailable(error));
        }
    }

    fn give_up(&self, requests: &[CreateRequest], failure: &Failure) {
        requests.iter().for_each(|request| self.in_flight.finish(&request.query_key, Err(failure.clone())));
    }

    fn make_batch(self: &Arc<Self>, session: &mut Session, found: &Found, batch: &Batch<'_>) {
        let micros = self.server.lifetime.clock.unix_us();
        let mut fillings = Vec::with_capacity(batch.requests.len());
        for request in &batch.requests {
            let checked = self.server.check_narrowing(session, &found.table, &request.narrowing);
            match checked
                .and_then(|()| self.server.begin(session, found, &request.definition, &request.query_key, micros))
            {
                Err(failure) => self.in_flight.finish(&request.query_key, Err(failure)),
                Ok((shape, filling)) => {
                    self.in_flight.finish(&request.query_key, Ok(shape));
                    fillings.extend(filling);
                }
            }
        }
        batch.prepared();
        let mut scans = scan::scans(fillings).into_iter();
        let first = scans.next();
        for fillings in scans {
            let inner = Arc::clone(self);
            let shapes: Vec<Arc<Shape>> = fillings.iter().map(|filling| Arc::clone(&filling.shape)).collect();
            let queued = self.database.submit(move |session| match session {
                Ok(session) => inner.server.fill(session, fillings),
                Err(error) => inner.server.fail(&fillings, &crate::failures::unavailable(error)),
            });
            if let Err(error) = queued {
                let failure = crate::failures::unavailable(error);
                for shape in shapes {
                    self.server.retirement.fail_shape(&shape, failure.clone());
                }
            }
        }
        if let Some(fillings) = first {
            self.server.fill(session, fillings);
        }
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

/// One request on its way.
pub(crate) struct ShapeRequestTask {
    inner: Arc<Inner>,
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
                    Some(Err(failure)) => return self.refuse(&refusal(&failure), cx),
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
        let processed = inner.server.watermarks.processed_lsn();
        let mut state = shape.lock();
        let from = if self.subset.is_some() { From::Now } else { self.from };
        let found = plan_read(&state, self.base, from, self.live, processed);
        let http = &inner.server.config.http;
        match found {
            ReadPlan::Failed(failure) => {
                drop(state);
                Some(self.refuse(&refusal(&failure), cx))
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
                    // After a crash, what was told and was not durable comes once more from Postgres, as soon as it can
                    // be stored.
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

    fn read(&mut self, shape: &Arc<Shape>, answer: Answer, cx: &mut Context<'_>) -> Option<Poll> {
        let Some(wanted) = &answer.wanted else { return Some(self.answer(shape, &answer, Vec::new(), cx)) };
        let server = &self.inner.server;
        if wanted.bytes() >= read::UNCOUNTED_MAX && server.changes.is_memory_short() {
            return Some(self.refuse(&Refusal::unsent(), cx));
        }
        if wanted.bytes() <= INLINE_BYTES
            && let Some(read) = read::try_read(shape.number, wanted, server.changes.sources())
        {
            return Some(match read {
                Ok(messages) => self.answer(shape, &answer, messages, cx),
                Err(error) => self.unreadable(shape, answer.base, &error, cx),
            });
        }
        if let Wanted::Rows { log, from, upto } = *wanted
            && wanted.bytes() > INLINE_BYTES
        {
            let mut ending = self.ending(shape, &answer);
            ending.pop_if(|byte| *byte == b',');
            let body = RowsBody::new(Arc::clone(&self.inner), log, from, upto, ending);
            return Some(self.respond(shape, &answer, Body::Sized(body.len(), Box::new(body)), cx));
        }
        let (server, mut begun) = (Arc::clone(server), false);
        let mut reading = Reading::new(shape.number, wanted.clone());
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

    /// What was to be read is not there: it was given up meanwhile, or the disk is at fault.
    fn unreadable(&self, shape: &Shape, base: u32, error: &ReadError, cx: &Context<'_>) -> Poll {
        let again = plan_read(&shape.lock(), Some(base), self.from, self.live, 0);
        match again {
            ReadPlan::Gone => self.refuse(&Refusal::MustRefetch(None), cx),
            ReadPlan::Past => self.refuse(&Refusal::MustRefetch(Some(shape.newest_handle())), cx),
            _ => self.refuse(&Refusal::Unreadable(error.to_string()), cx),
        }
    }

    /// Puts the body together: an array of the messages, and the word about where they end. What is large is sent as it
    /// was read.
    fn answer(&mut self, shape: &Arc<Shape>, answer: &Answer, messages: Vec<Bytes>, cx: &mut Context<'_>) -> Poll {
        let messages = match answer.skip {
            Some(from) => vec![read::skip(&read::joined(messages), from)],
            None => messages,
        };
        let tail = self.ending(shape, answer);
        let shared = self.live && answer.wanted.is_some() && answer.up_to_date.is_some();
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

    /// The words about where the messages end, each with a comma after it, but for the last one.
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

    fn respond(&mut self, shape: &Arc<Shape>, answer: &Answer, body: Body, cx: &mut Context<'_>) -> Poll {
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
            has_data: answer.wanted.is_some() || self.from == From::Start,
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

    fn events(&mut self, shape: &Arc<Shape>, cx: &mut Context<'_>) -> Response {
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

    fn begin_subset(&mut self, shape: &Arc<Shape>, cx: &mut Context<'_>) -> Option<Poll> {
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

/// Why Postgres is not asked for a subset.
fn no_subset(error: SourceError) -> Refusal {
    match error {
        SourceError::Full { .. } => Refusal::Unavailable {
            code: "subsets_full",
            message: "Too many subsets wait for Postgres, please retry".to_owned(),
            retry_after_s: 5,
        },
        error => refusal(&crate::failures::unavailable(error)),
    }
}

/// The parts of a JSON array: messages, each with a comma after it, and what comes after them, which has none.
fn array(messages: &[Bytes], mut tail: Vec<u8>) -> Vec<Bytes> {
    let mut parts = Vec::with_capacity(messages.len() + 2);
    parts.push(Bytes::from_static(b"["));
    parts.extend(messages.iter().filter(|part| !part.is_empty()).cloned());
    if tail.is_empty()
        && parts.len() > 1
        && let Some(last) = parts.last_mut()
    {
        last.truncate(last.len() - 1);
    }
    // What ends a snapshot has a comma after it too.
    tail.pop_if(|byte| *byte == b',');
    tail.push(b']');
    parts.push(tail.into());
    parts
}

/// A DELETE that waits for the disk.
struct Deleting(Fetch<Response>);

impl Pending for Deleting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        self.0.take(|| cx.waker()).map_or(Poll::Wait, |response| Poll::Ready(Reply::Now(response)))
    }
}

fn too_many_reads() -> Refusal {
    Refusal::Unavailable {
        code: "too_many_reads",
        message: format!("{READS_MAX} reads wait for the disk, please retry"),
        retry_after_s: 1,
    }
}

/// How a failure is told.
pub(crate) fn refusal(failure: &Failure) -> Refusal {
    match failure {
        Failure::Invalid(invalid) => Refusal::Invalid(invalid.clone()),
        Failure::Rotated => Refusal::MustRefetch(None),
        Failure::Beyond(beyond) => beyond.clone().into(),
        Failure::Unavailable { code: "database_unreachable", .. } => Refusal::Database,
        Failure::Unavailable { code: "snapshot_error", message, .. } => Refusal::Snapshot(message.clone()),
        Failure::Unavailable { code, message, retry_after_s } => {
            Refusal::Unavailable { code, message: message.clone(), retry_after_s: *retry_after_s }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::array;
    use bytes::Bytes;

    #[test]
    fn messages_become_an_array_however_they_are_cut() {
        let body = |messages: &[&'static str], tail: &str| {
            let messages: Vec<Bytes> = messages.iter().map(|part| Bytes::from_static(part.as_bytes())).collect();
            String::from_utf8(array(&messages, tail.into()).concat()).unwrap()
        };
        assert_eq!(body(&[], ""), "[]");
        assert_eq!(body(&[], "{9}"), "[{9}]");
        assert_eq!(body(&[], "{9},"), "[{9}]");
        assert_eq!(body(&["{1},{2", "},"], ""), "[{1},{2}]");
        assert_eq!(body(&["{1}", ",", ""], ""), "[{1}]");
        assert_eq!(body(&["{1},", "{2},"], "{8},{9}"), "[{1},{2},{8},{9}]");
    }
}
