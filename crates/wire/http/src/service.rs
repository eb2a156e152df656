//! The border between the event loop and the services that answer requests.
//!
//! A reactor calls [`Service::handle`] for every request of one round of its event loop, then [`Service::round_done`]
//! once. Nothing called from here may block: neither on a device, nor on a lock whose holder waits for one.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg_base::{Lsn, Reached, Until};

/// The method of a request (RFC 9110, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method<'a> {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// PUT.
    Put,
    /// POST.
    Post,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// Any other method, as it was sent.
    Other(&'a str),
}

/// One whole request; framing and transfer coding are gone.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The path as sent, percent-encoding included, without the query.
    pub path: &'a str,
    /// The part of the target behind the first `?`.
    pub query: Option<&'a str>,
    /// The header fields, in the order in which they came.
    pub headers: Headers<'a>,
    /// The whole body.
    pub body: &'a [u8],
}

/// The request's header fields, names compared without case.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a>(pub &'a [(&'a str, &'a [u8])]);

impl<'a> Headers<'a> {
    /// The first field of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| *v)
    }

    /// Number of fields of that name.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).count()
    }
}

/// A handler's immediate result.
pub enum Reply {
    /// The response is ready.
    Now(Response),
    /// Sent once the server's [`Gate`] has come so far; if the gate fails first, [`Service::gate_failed`] is sent
    /// instead. A server has one gate, which counts the positions of one journal: a response that waits for another
    /// journal is `Later`.
    Held(Until, Response),
    /// Polled until it has an answer; dropped early if the client goes away.
    Later(Box<dyn Pending>),
}

/// A response. The event loop adds `Content-Length` or `Transfer-Encoding`, `Date`, `Connection`,
/// `X-Content-Type-Options`, and `Content-Security-Policy` unless the response is a page; for a HEAD request it sends
/// the length but not the body.
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Complete header lines, each ended by CR LF.
    pub head: Vec<u8>,
    /// The content.
    pub body: Body,
    /// The connection closes after this answer, and the answer says so. An endless stream should set it: then clients
    /// take a lost connection for the stream's end, and reconnect.
    pub close: bool,
    /// The body is a page of the service's own, whose head says how browsers may use it. Other bodies are data, often
    /// by unknown authors: the event loop adds a policy under which browsers run none of it.
    pub page: bool,
}

/// The content of a response.
pub enum Body {
    /// No content.
    Empty,
    /// Content in one piece.
    Bytes(Bytes),
    /// Sent one after the other, without joining them first.
    Parts(Vec<Bytes>),
    /// Chunked (HTTP/1.0: until close), pulled as the socket takes it.
    Stream(Box<dyn BodySource>),
    /// A stream of known length: the source gives exactly this many bytes, or aborts.
    Sized(u64, Box<dyn BodySource>),
}

impl Body {
    /// The length in bytes, if it is known before sending.
    pub(crate) fn len(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Parts(parts) => Some(parts.iter().map(|part| part.len() as u64).sum()),
            Body::Sized(len, _) => Some(*len),
            Body::Stream(_) => None,
        }
    }
}

impl Response {
    /// A response without headers and content.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, head: Vec::with_capacity(256), body: Body::Empty, close: false, page: false }
    }

    /// Adds a header line. `value` must not hold CR or LF: they are dropped, so that nothing can be injected.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.extend_from_slice(name.as_bytes());
        self.head.extend_from_slice(b": ");
        let value = value.as_ref();
        if memchr::memchr2(b'\r', b'\n', value).is_none() {
            self.head.extend_from_slice(value);
        } else {
            self.head.extend(value.iter().filter(|b| !matches!(b, b'\r' | b'\n')));
        }
        self.head.extend_from_slice(b"\r\n");
        self
    }

    /// Sets the content.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body = Body::Bytes(bytes.into());
        self
    }
}

/// An answer that is not ready: a long-poll, or a read that needs a device.
pub trait Pending: Send {
    /// Called once right after the handler returns it, then after every wake, at its deadline, and when the server
    /// stops. Wakes may be spurious.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll;
}

/// The result of polling a [`Pending`].
pub enum Poll {
    /// The answer is ready.
    Ready(Reply),
    /// Poll again after a wake or at the deadline.
    Wait,
}

/// A response body that is made while it is sent, such as an SSE stream. Dropped early if the client goes away.
pub trait BodySource: Send {
    /// Puts more into the sink. Called when the socket has room, after a wake, when the deadline has passed, and when
    /// the server stops.
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull;
}

/// The result of pulling a [`BodySource`].
pub enum Pull {
    /// More output is ready; call again when there is room.
    More,
    /// Call again after a wake or at the deadline.
    Wait,
    /// The body is complete.
    End,
    /// Something went wrong midway: cut the connection, so that the client cannot take the body for whole.
    Abort,
}

/// Receives the bytes of a body source.
pub struct Sink<'a> {
    pub(crate) parts: &'a mut Vec<Bytes>,
    pub(crate) len: usize,
}

impl<'a> Sink<'a> {
    /// A sink outside of a server: for tests and for bodies that are pulled directly.
    #[must_use]
    pub fn detached(parts: &'a mut Vec<Bytes>) -> Self {
        Self { parts, len: 0 }
    }
}

impl Sink<'_> {
    /// Adds bytes to the body.
    pub fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        self.parts.push(bytes);
    }

    /// Bytes that this call has put in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether this call has put nothing in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Facts about its reactor and connection that a handler may use.
pub struct Context<'a> {
    /// One reading per round of the event loop, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    pub(crate) now: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) stopping: bool,
    /// How long an answer has waited for a journal, if one did and came.
    pub(crate) waited: Option<Duration>,
    pub(crate) waker: &'a dyn Fn() -> Waker,
}

impl<'a> Context<'a> {
    /// A context outside of a server: for tests and for services that are called directly.
    #[must_use]
    pub fn detached(now_ms: u64, waker: &'a dyn Fn() -> Waker) -> Self {
        Self { now_ms, now: Instant::now(), deadline: None, stopping: false, waited: None, waker }
    }
}

impl Context<'_> {
    /// Calls `poll` or `pull` of this request again, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        (self.waker)()
    }

    /// Asks for a call after `delay` at the latest, in place of an earlier wish of this request. Holds until changed.
    pub fn wake_after(&mut self, delay: Duration) {
        self.deadline = Some(self.now + delay);
    }

    /// Asks to be woken after `delay`, unless this call has set an earlier time.
    pub fn wake_within(&mut self, delay: Duration) {
        let at = self.now + delay;
        self.deadline = Some(self.deadline.map_or(at, |earlier| earlier.min(at)));
    }

    /// One reading per round of the event loop: for [`Self::count_wait`].
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Counts an answer that has waited since then for a journal that the server's gate does not count, among those of
    /// [`Reply::Held`].
    pub fn count_wait(&mut self, since: Instant) {
        self.waited = Some(self.now.saturating_duration_since(since));
    }

    /// The server is stopping: answer with the content available now.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stopping
    }
}

/// Wakes one request's [`Pending`] or [`BodySource`]. Cheap to clone; harmless after the request is gone.
#[derive(Clone)]
pub struct Waker(pub(crate) Arc<dyn Wake>);

/// The action of a [`Waker`]. The event loop queues the very allocation that the waker points at.
pub(crate) trait Wake: Send + Sync {
    fn wake(self: Arc<Self>);
}

struct FromFn<F>(F);

impl<F: Fn() + Send + Sync> Wake for FromFn<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

impl Waker {
    /// Wakes the request; it is polled or pulled in the next round of its event loop.
    pub fn wake(&self) {
        Arc::clone(&self.0).wake();
    }

    /// A waker from a function: for tests and for services that run outside a server.
    #[must_use]
    pub fn from_fn(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(FromFn(f)))
    }
}

/// Answers requests.
pub trait Service: Send + Sync + 'static {
    /// Answers one whole request. Called on the event loop: it must not block.
    fn handle(&self, request: &Request<'_>, cx: &mut Context<'_>) -> Reply;

    /// Called once for a request of which only the head has arrived; its body is empty here. An answer refuses the
    /// request without receiving the rest, and the connection closes after it. `None` passes the request on to
    /// [`Service::handle`]. `now_ms` is milliseconds since the Unix epoch.
    fn on_head(&self, head: &Request<'_>, now_ms: u64) -> Option<Response> {
        let _ = (head, now_ms);
        None
    }

    /// All requests of one round were handled, and answers in the making that were due were called: the place to start
    /// work once per batch.
    fn round_done(&self);

    /// The answer in place of held replies when the gate has failed.
    fn gate_failed(&self) -> Response;

    /// The answer to a request that the framing layer refused (400, 408, 413, 414, 417, 431, 501, 503, 505), with the
    /// headers that every answer must carry. The connection closes after it.
    fn refused(&self, status: u16, reason: &str) -> Response {
        Response::new(status).header("content-type", "text/plain; charset=utf-8").body(reason.to_owned())
    }
}

/// Positions up to which the journal is written and durable, and the event loops that wait for them.
///
/// Replies held at a position cost no task, lock or wake-up of their own: the thread that advances the gate wakes each
/// waiting event loop once, for any number of released replies.
#[derive(Default)]
pub struct Gate {
    written: AtomicU64,
    durable: AtomicU64,
    failed: AtomicBool,
    pub(crate) loops: parking_lot::RwLock<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl Gate {
    /// The positions that the journal has reached.
    #[must_use]
    pub fn reached(&self) -> Reached {
        let durable = Lsn(self.durable.load(Ordering::Acquire));
        Reached { written: Lsn(self.written.load(Ordering::Acquire)), durable }
    }

    /// Whether the journal has stopped for good.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Releases every reply that is covered. Positions never go back.
    pub fn advance(&self, to: Reached) {
        self.advance_with(to, || {});
    }

    /// Advances, and runs `also`, which may wake event loops too: each is woken once for both.
    pub fn advance_with(&self, to: Reached, also: impl FnOnce()) {
        self.written.fetch_max(to.written.0, Ordering::AcqRel);
        self.durable.fetch_max(to.durable.0, Ordering::AcqRel);
        also();
        self.wake();
    }

    /// The gate will never advance again.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        for wake in self.loops.read().iter() {
            wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_value_cannot_end_its_line() {
        let response = Response::new(200).header("a", "b\r\nc: d\n").header("e", [0x80, b'f']);
        assert_eq!(response.head, b"a: bc: d\r\ne: \x80f\r\n");
    }
}
