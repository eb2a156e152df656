//! Where a request for a stream goes: to the unit of its name, which this node or another one owns.
//!
//! The node that takes a request from a client follows it to its end: it asks the owner of the name's first home, goes
//! where a home has moved, waits while a unit has no owner, and asks again what was not sent. A node that is asked by
//! another one answers or refuses, and sends nothing on: so no request goes in circles.

use super::list::{incomplete, is_current};
use super::{Served, refused};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_host::nodes::{self, Forwarded, Forwarding, Node, OwnedRequest, Place};
use thalweg_http::{Context, Method, Pending, Poll, Reply, Request, Response};
use thalweg_streams::{GRANT, SOURCE_UNIT};

/// How long a request waits for an owner of its unit.
const OWNER_WITHIN: Duration = Duration::from_secs(10);
/// How often it looks for one.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// The longest pause between two attempts.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(160);

/// Where a request is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Target {
    unit: u64,
    grant: u64,
}

impl Served {
    /// Answers a request for streams.
    pub(crate) fn route(self: &Arc<Self>, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        let streams = &self.streams.streams;
        let Some(node) = self.node.get() else { return Reply::Now(no_owner()) };
        if matches!(request.method, Method::Options | Method::Other(_)) {
            return streams.handle(request, cx);
        }
        if request.headers.get(nodes::SECRET).is_some() {
            return self.of_node(node, request, cx);
        }
        if self.is_list(request) {
            return self.list(request, cx);
        }
        let source = request.headers.get("stream-forked-from").unwrap_or_default();
        if !request.path.bytes().chain(source.iter().copied()).all(is_of_path) {
            let why = "on nodes a name has letters, digits and -._~!$&'()*+,;=:@ only, and all else percent-encoded";
            return Reply::Now(refused(400, "bad_name", why));
        }
        // What is no name of a stream is refused in the same words as elsewhere.
        let Some(unit) = streams.first_unit(request.path) else { return streams.handle(request, cx) };
        // The short way: this node owns the unit. Only a PUT of a fork must know more.
        let says_more = |(name, _): &(&str, &[u8])| {
            name.len() >= 8
                && (name[..8].eq_ignore_ascii_case("thalweg-") || name.eq_ignore_ascii_case("stream-forked-from"))
        };
        let is_short = node.serves(unit) && !request.headers.0.iter().any(says_more);
        let reply = if is_short { streams.handle_in(unit, request, cx) } else { None };
        let is_read = matches!(request.method, Method::Get | Method::Head);
        let routed = || Routed::new(self, OwnedRequest::of(request), Target { unit, grant: 0 });
        match reply {
            Some(Reply::Now(response)) if !is_internal(&response) => Reply::Now(response),
            // Its body need not be copied: nothing is sent twice.
            Some(Reply::Later(pending)) if !is_read => Reply::Later(Box::new(Local(pending))),
            Some(Reply::Later(pending)) => Reply::Later(Box::new(Routed { state: State::Here(pending), ..routed() })),
            _ => Reply::Later(Box::new(routed())),
        }
    }

    /// Answers a request that another node has sent on.
    fn of_node(self: &Arc<Self>, node: &Node, request: &Request<'_>, cx: &mut Context<'_>) -> Reply {
        if !self.is_from_node(request) {
            let why = "the header thalweg-node is for nodes of the same bucket and prefix";
            return Reply::Now(refused(403, "not_a_node", why));
        }
        if self.is_list(request) {
            return if is_current(node) { self.streams.streams.handle(request, cx) } else { Reply::Now(incomplete()) };
        }
        let unit = request.headers.get(nodes::UNIT).and_then(|unit| std::str::from_utf8(unit).ok()?.parse().ok());
        let served = unit.filter(|unit| node.serves(*unit));
        served
            .and_then(|unit| self.streams.streams.handle_in(unit, request, cx))
            .unwrap_or_else(|| Reply::Now(not_here()))
    }
}

/// Whether a byte of a path goes from node to node as it is (RFC 3986, section 3.3).
fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%".contains(&byte)
}

/// This node does not serve the unit, or not any more: the node that has sent the request looks for its owner again.
fn not_here() -> Response {
    refused(421, "not_here", "this node does not own the unit").header(nodes::AGAIN, "1")
}

fn no_owner() -> Response {
    refused(503, "no_owner", "no node owns the unit of this stream just now; retry in a second")
}

fn unconfirmed() -> Response {
    let why = "the node that has the stream did not answer: it may or may not have happened; ask again, with a producer to be safe";
    refused(503, "unconfirmed", why)
}

/// The value of a field in an answer's head.
fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    let head = std::str::from_utf8(&response.head).ok()?;
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(": "));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn is_again(response: &Response) -> bool {
    matches!(response.status, 421 | 503) && field(response, nodes::AGAIN).is_some()
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
    request: OwnedRequest,
    target: Target,
    /// The unit of a fork's source, once it is known.
    source_unit: Option<u64>,
    /// The search for it.
    source: Option<Box<Routed>>,
    state: State,
    moves: u64,
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

/// What came of one attempt.
enum Outcome {
    Wait,
    /// The same again, later.
    Again,
    Response(Response),
}

impl Routed {
    fn new(served: &Arc<Served>, request: OwnedRequest, target: Target) -> Self {
        let source = Self::source_of(served, &request).map(Box::new);
        Self {
            served: Arc::clone(served),
            request,
            target,
            source_unit: None,
            source,
            state: State::Begin,
            moves: 0,
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
        Some(Self::new(served, request.head_of(path), Target { unit, grant: 0 }))
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
        loop {
            let response = match self.attempt(cx) {
                Outcome::Wait => return None,
                Outcome::Again => {
                    let now = Instant::now();
                    // An owner had it for some time: the wait for the next one begins now.
                    if !matches!(self.state, State::Begin) && now - self.began >= OWNER_WITHIN / 10 {
                        (self.until, self.pause) = (now + OWNER_WITHIN, LOOK_EVERY);
                    }
                    self.state = State::Begin;
                    if now >= self.until || cx.stopping() {
                        return Some(no_owner());
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
                Some(_) => return Some(no_owner()),
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
                        let unit = self.target.unit;
                        let reply =
                            self.request.with(&more, |request| served.streams.streams.handle_in(unit, request, cx));
                        match reply {
                            None => return Outcome::Again,
                            Some(Reply::Now(response) | Reply::Held(_, response)) => return of(response),
                            Some(Reply::Later(pending)) => self.state = State::Here(pending),
                        }
                    }
                    Place::There { address, instance } => {
                        let mut more = self.more();
                        more.push((nodes::SECRET, node.secret().to_owned()));
                        let forwarding = node.forwarder().send(&address, &self.request, &more);
                        self.state = State::There(forwarding, instance);
                    }
                },
                State::Here(pending) => match pending.poll(cx) {
                    Poll::Wait => return Outcome::Wait,
                    Poll::Ready(Reply::Later(next)) => self.state = State::Here(next),
                    Poll::Ready(Reply::Now(response) | Reply::Held(_, response)) => return of(response),
                },
                State::There(forwarding, instance) => match forwarding.take(|| cx.waker()) {
                    Some(Forwarded::Response(response)) => return of(response),
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

    /// The node that has the request does not answer.
    fn lost(&self) -> Outcome {
        if self.request.is_read() { Outcome::Again } else { Outcome::Response(unconfirmed()) }
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
