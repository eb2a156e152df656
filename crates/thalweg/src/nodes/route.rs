//! Where a request goes: to its unit, which this node or another one owns.
//!
//! The node that takes a request from a client follows it to its end: it asks the owner of the unit, goes where the home
//! of a stream's name has moved, waits while a unit has no owner, and asks again what was not sent. A node that is asked
//! by another one answers or refuses, and sends nothing on: so no request goes in circles.

use super::{Served, refused};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_host::nodes::{self, Forwarded, Forwarding, Node, OwnedRequest, Place};
use thalweg_http::{Body, BodySource, Context, Method, Pending, Poll, Pull, Reply, Request, Response, Sink};
use thalweg_streams::{GRANT, SOURCE_UNIT, Streams};

/// How long a request waits for an owner of its unit.
const OWNER_WITHIN: Duration = Duration::from_secs(10);
/// How many owners may be lost under one read.
const LOSSES_MAX: u32 = 8;
/// The first pause between two looks for the owner of a request's unit.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// The longest pause between two such looks.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(160);

/// How often an answer that comes bit by bit is checked for whether its node still has the unit.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Where a request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Target {
    unit: u64,
    grant: u64,
}

/// An engine whose requests go to the node that owns their unit.
pub(crate) trait Door: Send + Sync {
    /// Answers a request in a unit that this node serves; `None` if the engine does not have the unit yet, or any more.
    /// The answer does not wait for the event loop's gate.
    fn handle_in(&self, unit: u64, request: &Request<'_>, cx: &mut Context<'_>) -> Option<Reply>;

    /// Whether sending the request twice does what sending it once does.
    fn is_read(&self, request: &OwnedRequest) -> bool {
        request.is_read()
    }
}

/// The door of streams.
pub(super) struct ToStreams(pub(super) Arc<Streams>);

impl Door for ToStreams {
    fn handle_in(&self, unit: u64, request: &Request<'_>, cx: &mut Context<'_>) -> Option<Reply> {
        self.0.handle_in(unit, request, cx)
    }
}

impl Served {
    /// Answers a request for this unit, here or on the node that owns it.
    pub(crate) fn route_to(
        self: &Arc<Self>,
        door: &Arc<dyn Door>,
        unit: u64,
        request: &Request<'_>,
        cx: &mut Context<'_>,
    ) -> Reply {
        let Some(node) = self.node.get() else { return Reply::Now(no_owner()) };
        if request.headers.get(nodes::SECRET).is_some() {
            return self.of_node(node, &**door, request, cx);
        }
        if !is_path_of_nodes(request.path) {
            return Reply::Now(bad_name());
        }
        // The short way: this node owns the unit.
        let reply = if node.serves(unit) { door.handle_in(unit, request, cx) } else { None };
        let target = Target { unit, grant: 0 };
        let routed = |state| match OwnedRequest::of(request, &self.budget) {
            Some(owned) => {
                Reply::Later(Box::new(Routed { state, ..Routed::new(self, Arc::clone(door), owned, target) }))
            }
            None => without_copy(state),
        };
        match reply {
            Some(Reply::Now(response)) if !is_internal(&response) => Reply::Now(response),
            Some(Reply::Later(pending)) => routed(State::Here(pending)),
            _ => routed(State::Begin),
        }
    }

    /// Answers a request for streams.
    pub(crate) fn route(self: &Arc<Self>, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let streams = &self.streams.streams;
        let Some(node) = self.node.get() else { return Reply::Now(no_owner()) };
        if matches!(request.method, Method::Options | Method::Other(_)) {
            return streams.handle(request, cx);
        }
        if request.headers.get(nodes::SECRET).is_some() {
            // Only streams are listed.
            if self.is_list(request) && self.is_from_node(request) {
                return self.own_list(request, cx);
            }
            return self.of_node(node, &*self.door, request, cx);
        }
        if self.is_list(request) {
            return self.list(request, cx);
        }
        let source = request.headers.get("stream-forked-from").map(std::str::from_utf8);
        if !is_path_of_nodes(request.path) || source.is_some_and(|path| !path.is_ok_and(is_path_of_nodes)) {
            return Reply::Now(bad_name());
        }
        // What is no name of a stream is refused in the same words as elsewhere.
        let Some(unit) = streams.first_unit(request.path) else { return streams.handle(request, cx) };
        // The short way: this node owns the unit. Only a PUT of a fork must know more.
        let says_more = |(name, _): &(&str, &[u8])| {
            name.len() >= 8
                && (name[..8].eq_ignore_ascii_case("thalweg-") || name.eq_ignore_ascii_case("stream-forked-from"))
        };
        let waits_from_now =
            request.query.is_some_and(|query| query.contains("offset=now") && query.contains("live=long-poll"));
        let is_short = node.serves(unit) && !waits_from_now && !request.headers.0.iter().any(says_more);
        let reply = if is_short { streams.handle_in(unit, request, cx) } else { None };
        let is_read = matches!(request.method, Method::Get | Method::Head);
        let target = Target { unit, grant: 0 };
        let routed = |state| match OwnedRequest::of(request, &self.budget) {
            Some(owned) => {
                Reply::Later(Box::new(Routed { state, ..Routed::new(self, Arc::clone(&self.door), owned, target) }))
            }
            None => without_copy(state),
        };
        match reply {
            Some(Reply::Now(response)) if !is_internal(&response) => Reply::Now(response),
            // Its body need not be copied: nothing is sent twice.
            Some(Reply::Later(pending)) if !is_read => Reply::Later(Box::new(Local(pending))),
            Some(Reply::Later(pending)) => routed(State::Here(pending)),
            _ => routed(State::Begin),
        }
    }

    /// A reply to another node, with the signature that this process has given it.
    pub(crate) fn signed(&self, request: &Request<'_>, reply: Reply) -> Reply {
        let Some(signature) = self.signature(request) else { return reply };
        match reply {
            Reply::Now(response) => Reply::Now(response.header(nodes::SIGNATURE, signature)),
            Reply::Held(until, response) => Reply::Held(until, response.header(nodes::SIGNATURE, signature)),
            Reply::Later(pending) => Reply::Later(Box::new(Signed { pending, signature })),
        }
    }

    /// The signature of the answer to a question of another node; `None` for other requests.
    pub(crate) fn signature(&self, request: &Request<'_>) -> Option<String> {
        let question = request.headers.get(nodes::QUESTION).filter(|_| self.is_from_node(request))?;
        Some(self.node.get()?.proofs().signature_of_answer(question))
    }

    /// Answers a request that another node has sent on.
    fn of_node(&self, node: &Node, door: &dyn Door, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        if !self.is_from_node(request) {
            return Reply::Now(nodes::not_a_node());
        }
        let unit = request.headers.get(nodes::UNIT).and_then(|unit| std::str::from_utf8(unit).ok()?.parse().ok());
        let served = unit.filter(|unit| node.serves(*unit));
        served.and_then(|unit| door.handle_in(unit, request, cx)).unwrap_or_else(|| Reply::Now(not_here()))
    }
}

pub(super) fn is_byte_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte)
}

/// Whether a path goes from node to node as it is (RFC 3986, section 3.3; section 5.2.4 has segments that do not).
fn is_path_of_nodes(path: &str) -> bool {
    let is_dots = |segment: &str| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..");
    path.bytes().all(is_byte_of_path) && !path.split('/').any(is_dots)
}

fn bad_name() -> Response {
    let why = "on nodes a name has letters, digits and -._~!$&'()*+,;=:@ only, and all else percent-encoded, and no part that is . or ..";
    refused(400, "bad_name", why)
}

/// This node does not serve the unit, or not any more: the node that has sent the request looks for its owner again.
pub(crate) fn not_here() -> Response {
    refused(421, "not_here", "this node does not own the unit").header(nodes::AGAIN, "1")
}

fn no_owner() -> Response {
    refused(503, "no_owner", "no node owns what this request needs just now; retry in a second")
}

/// What becomes of a request that cannot be kept: one that this node answers already is answered, and not asked again.
fn without_copy(state: State) -> Reply {
    match state {
        State::Here(pending) => Reply::Later(Box::new(Local(pending))),
        State::Begin | State::There(..) => Reply::Now(busy()),
    }
}

fn busy() -> Response {
    let why = "bodies of requests that wait for other nodes take all the memory that they may; retry in a second";
    refused(503, "node_busy", why)
}

/// A reply to another node that comes later.
struct Signed {
    pending: Box<dyn Pending>,
    signature: String,
}

impl Pending for Signed {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        loop {
            let signature = &self.signature;
            let reply = match self.pending.poll(cx) {
                Poll::Wait => return Poll::Wait,
                Poll::Ready(Reply::Later(next)) => {
                    self.pending = next;
                    continue;
                }
                Poll::Ready(Reply::Now(response)) => Reply::Now(response.header(nodes::SIGNATURE, signature)),
                Poll::Ready(Reply::Held(until, response)) => {
                    Reply::Held(until, response.header(nodes::SIGNATURE, signature))
                }
            };
            return Poll::Ready(reply);
        }
    }
}

pub(super) fn unconfirmed() -> Response {
    let why = "the node that was asked did not answer: it may or may not have happened; ask again, with a producer to be safe";
    refused(503, "unconfirmed", why)
}

/// The value of a field in an answer's head.
pub(super) fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let head = std::str::from_utf8(&response.head).ok()?;
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(": "));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn is_again(response: &Response) -> bool {
    matches!(response.status, 403 | 421 | 503) && field(response, nodes::AGAIN).is_some()
}

fn moved_to(response: &Response) -> Option<Target> {
    let number = |name| field(response, name)?.parse().ok();
    (response.status == 421).then(|| Some(Target { unit: number(nodes::UNIT)?, grant: number(GRANT)? }))?
}

/// Whether an answer is meant for nodes.
fn is_internal(response: &Response) -> bool {
    is_again(response) || moved_to(response).is_some()
}

/// A change that this node makes. In the moment in which the home of its name moves, it is to be asked for again.
struct Local(Box<dyn Pending>);

impl Pending for Local {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match self.0.poll(cx) {
            Poll::Ready(Reply::Now(response)) if is_internal(&response) => Poll::Ready(Reply::Now(no_owner())),
            polled => polled,
        }
    }
}

/// A request on its way.
pub(super) struct Routed {
    served: Arc<Served>,
    door: Arc<dyn Door>,
    request: OwnedRequest,
    target: Target,
    /// The unit of a fork's source, once it is known.
    source_unit: Option<u64>,
    /// The search for it.
    source: Option<Box<Routed>>,
    /// The question where `now` is, of a request that waits from there: it may have to be asked again later.
    now: Option<Box<Routed>>,
    state: State,
    moves: u64,
    /// How often it was sent to a node that then did not answer.
    losses: u32,
    /// A node had it and did not answer: it may have happened.
    is_in_doubt: bool,
    pause: Duration,
    /// When the present attempt began.
    began: Instant,
    until: Instant,
}

enum State {
    /// To be sent.
    Begin,
    /// This node answers.
    Here(Box<dyn Pending>),
    /// The node of this instance answers.
    There(Forwarding, String),
}

/// A question for the owner of a stream: where its name is at home is found as for a request.
pub(super) struct OwnerOf {
    routed: Routed,
    stream: String,
}

impl OwnerOf {
    /// `name` as in a URL; `None` if it is none of a stream.
    pub(super) fn new(served: &Arc<Served>, name: &str, request: &Request<'_>) -> Option<Self> {
        let path = format!("/v1/stream/{name}");
        let unit = served.streams.streams.first_unit(&path).filter(|_| is_path_of_nodes(&path))?;
        let request = OwnedRequest::of(request, &served.budget)?.head_of(&path);
        let routed = Routed::new(served, Arc::clone(&served.door), request, Target { unit, grant: 0 });
        Some(Self { routed, stream: name.to_owned() })
    }
}

impl Pending for OwnerOf {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        let Some(found) = self.routed.step(cx) else { return Poll::Wait };
        if found.status >= 500 {
            return Poll::Ready(Reply::Now(no_owner()));
        }
        let exists = found.status == 200;
        Poll::Ready(Reply::Now(self.routed.served.said_of(&self.stream, exists, self.routed.target.unit)))
    }
}

/// What came of one attempt.
enum Outcome {
    Wait,
    /// The same again, later.
    Again,
    Response(Response),
}

impl Routed {
    fn new(served: &Arc<Served>, door: Arc<dyn Door>, request: OwnedRequest, target: Target) -> Self {
        let is_for_streams = Arc::ptr_eq(&door, &served.door);
        let source = if is_for_streams { Self::source_of(served, &request).map(Box::new) } else { None };
        let asks_for_now = is_for_streams && request.waits_from_now();
        let now = asks_for_now
            .then(|| Box::new(Self::new(served, Arc::clone(&door), request.head_of(request.path()), target)));
        Self {
            served: Arc::clone(served),
            door,
            request,
            target,
            source_unit: None,
            source,
            now,
            state: State::Begin,
            moves: 0,
            losses: 0,
            is_in_doubt: false,
            pause: LOOK_EVERY,
            began: Instant::now(),
            until: Instant::now() + OWNER_WITHIN,
        }
    }

    /// The search for the unit of a fork's source.
    fn source_of(served: &Arc<Served>, request: &OwnedRequest) -> Option<Self> {
        let path = request.header("stream-forked-from").filter(|_| request.is_put())?;
        let path = std::str::from_utf8(path).ok()?.trim();
        let unit = served.streams.streams.first_unit(path)?;
        Some(Self::new(served, Arc::clone(&served.door), request.head_of(path), Target { unit, grant: 0 }))
    }

    fn more(&self) -> Vec<(&'static str, String)> {
        let mut more = vec![(nodes::UNIT, self.target.unit.to_string())];
        if self.target.grant > 0 {
            more.push((GRANT, self.target.grant.to_string()));
        }
        if let Some(unit) = self.source_unit {
            more.push((SOURCE_UNIT, unit.to_string()));
        }
        more
    }

    /// The answer of the unit that has the name, once it is there.
    fn step(&mut self, cx: &mut Context<'_>) -> Option<Response> {
        if let Some(source) = &mut self.source {
            let found = source.step(cx)?;
            // A source that is deleted, and lives on for its forks, is refused where it is.
            match found.status {
                200 | 410 => self.source_unit = Some(source.target.unit),
                404 => {}
                _ if found.status < 500 => {}
                _ => return Some(found),
            }
            self.source = None;
        }
        if let Some(now) = &mut self.now {
            let found = now.step(cx)?;
            // Other answers are those of the request itself, too.
            if let Some(offset) = field(&found, "stream-next-offset").filter(|_| found.status == 200) {
                self.request.begin_at(offset);
            }
            self.now = None;
        }
        loop {
            let response = match self.attempt(cx) {
                Outcome::Wait => return None,
                Outcome::Again => {
                    let now = Instant::now();
                    // An owner had it for some time: the wait for the next one begins now.
                    let was_lost = !matches!(self.state, State::Begin) && now - self.began >= OWNER_WITHIN / 10;
                    if was_lost && self.losses < LOSSES_MAX {
                        self.losses += 1;
                        (self.until, self.pause) = (now + OWNER_WITHIN, LOOK_EVERY);
                    }
                    self.state = State::Begin;
                    if now >= self.until || cx.stopping() {
                        return Some(self.given_up());
                    }
                    cx.wake_within(self.pause);
                    self.pause = (self.pause * 2).min(LOOK_AT_LEAST_EVERY);
                    return None;
                }
                Outcome::Response(response) => response,
            };
            self.state = State::Begin;
            match moved_to(&response) {
                // A home may have been in every unit.
                Some(target) if self.moves <= self.served.streams.units() => {
                    (self.target, self.moves) = (target, self.moves + 1);
                }
                Some(_) => return Some(self.given_up()),
                None => return Some(response),
            }
        }
    }

    fn attempt(&mut self, cx: &mut Context<'_>) -> Outcome {
        let served = Arc::clone(&self.served);
        let Some(node) = served.node.get() else { return Outcome::Again };
        if matches!(self.state, State::Begin) {
            self.began = Instant::now();
        }
        loop {
            match &mut self.state {
                State::Begin => match node.place(self.target.unit) {
                    Place::Nowhere => return Outcome::Again,
                    Place::Here => {
                        let more = self.more();
                        let (unit, door) = (self.target.unit, &self.door);
                        let reply = self.request.with(&more, |request| door.handle_in(unit, request, cx));
                        match reply {
                            None => return Outcome::Again,
                            Some(Reply::Now(response) | Reply::Held(_, response)) => return of(response),
                            Some(Reply::Later(pending)) => self.state = State::Here(pending),
                        }
                    }
                    Place::There { address, instance } => {
                        let forwarding = node.forwarder().send((&address, &instance), &self.request, &self.more());
                        self.state = State::There(forwarding, instance);
                    }
                },
                State::Here(pending) => match pending.poll(cx) {
                    Poll::Wait => return Outcome::Wait,
                    Poll::Ready(Reply::Later(next)) => self.state = State::Here(next),
                    Poll::Ready(Reply::Now(response) | Reply::Held(_, response)) => return of(response),
                },
                State::There(forwarding, instance) => match forwarding.take(|| cx.waker()) {
                    Some(Forwarded::Response(mut response)) => {
                        if let Body::Stream(inner) = response.body {
                            let (served, unit, instance) =
                                (Arc::clone(&served), self.target.unit, std::mem::take(instance));
                            response.body = Body::Stream(Box::new(Watched { inner, served, unit, instance }));
                        }
                        return of(response);
                    }
                    Some(Forwarded::Unreachable(_)) => return Outcome::Again,
                    Some(Forwarded::Broken(_)) => return self.lost(),
                    None => {
                        // A node that sleeps does not answer: another one may have the unit by now.
                        let is_theirs = match node.place(self.target.unit) {
                            Place::There { instance: now, .. } => now == *instance,
                            Place::Here => false,
                            Place::Nowhere => true,
                        };
                        if !is_theirs {
                            return self.lost();
                        }
                        cx.wake_within(Duration::from_millis(250));
                        return Outcome::Wait;
                    }
                },
            }
        }
    }

    /// The answer where no owner was found in time.
    fn given_up(&self) -> Response {
        if self.is_in_doubt { unconfirmed() } else { no_owner() }
    }

    /// The node that has the request does not answer.
    fn lost(&mut self) -> Outcome {
        if self.door.is_read(&self.request) {
            return Outcome::Again;
        }
        self.is_in_doubt = true;
        if self.request.is_repeatable() { Outcome::Again } else { Outcome::Response(unconfirmed()) }
    }
}

/// An answer of the node of this instance that comes bit by bit. A node that sleeps does not end it: it is cut off once
/// another one has the unit, and its client asks again.
struct Watched {
    inner: Box<dyn BodySource>,
    served: Arc<Served>,
    unit: u64,
    instance: String,
}

impl BodySource for Watched {
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        let pulled = self.inner.pull(cx, sink);
        if matches!(pulled, Pull::Wait) {
            let place = self.served.node.get().map(|node| node.place(self.unit));
            let is_elsewhere = match &place {
                Some(Place::There { instance, .. }) => *instance != self.instance,
                Some(Place::Here) => true,
                Some(Place::Nowhere) | None => false,
            };
            if is_elsewhere {
                return Pull::Abort;
            }
            cx.wake_within(WATCH_EVERY);
        }
        pulled
    }
}

fn of(response: Response) -> Outcome {
    if is_again(&response) { Outcome::Again } else { Outcome::Response(response) }
}

impl Pending for Routed {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match self.step(cx) {
            Some(response) => Poll::Ready(Reply::Now(response)),
            None => Poll::Wait,
        }
    }
}
