//! Requests to other nodes, on connections that are kept. The client is asynchronous; its runtime stays in this module.

use super::{AGAIN, Proofs, QUESTION, SECRET, SIGNATURE};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_http::{Body, BodySource, Context, Headers, Method, Pull, Request, Response, Sink, Waker};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// A node that does not take a connection within this time is taken for unreachable.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of one answer that may wait for its client; beyond them the other node waits.
const AHEAD_BYTES: usize = 256 << 10;
/// Bytes of all answers that may wait for their clients, before each may have one piece only.
const AHEAD_OF_ALL_BYTES: usize = 256 << 20;
/// Answers up to this many bytes are read whole.
const WHOLE_BYTES: u64 = 64 << 10;
/// The longest announcement.
const ASKED_BYTES_MAX: usize = 64 << 10;
/// The longest answer to a question of subscriptions.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Header fields of one hop, which the server and the client of each connection write themselves.
const OF_ONE_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-connection",
    "date",
];
/// What the event loop adds to every answer.
const ADDED: [&str; 2] = ["x-content-type-options", "content-security-policy"];

/// Statuses of refusals that a node gives before it has read who asks: they may come unsigned, and say that nothing was
/// done.
const UNSIGNED: [u16; 8] = [400, 408, 411, 413, 414, 417, 431, 505];

/// Bytes of bodies that may wait to be sent to other nodes, of all requests together.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    bytes_max: usize,
}

impl Budget {
    /// Nothing is used yet.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), bytes_max })
    }

    /// Room for so many bytes, until it is dropped; `None` if there is none.
    #[must_use]
    fn take(self: &Arc<Self>, bytes: usize) -> Option<Arc<Taken>> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Arc::new(Taken { budget: Arc::clone(self), bytes }))
    }
}

/// A part of a budget.
#[derive(Debug)]
struct Taken {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A request that outlives its call.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    method: reqwest::Method,
    /// Path and query, as they were sent.
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
    /// The body's room.
    taken: Option<Arc<Taken>>,
}

impl OwnedRequest {
    /// A copy, without the header fields of its hop and without those that only nodes may send. `None`: the budget has no
    /// room for its body.
    #[must_use]
    pub fn of(request: &Request<'_>, budget: &Arc<Budget>) -> Option<Self> {
        let taken = budget.take(request.body.len())?;
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Head => reqwest::Method::HEAD,
            Method::Put => reqwest::Method::PUT,
            Method::Post => reqwest::Method::POST,
            Method::Delete => reqwest::Method::DELETE,
            Method::Options | Method::Other(_) => reqwest::Method::OPTIONS,
        };
        let target = match request.query {
            Some(query) => format!("{}?{query}", request.path),
            None => request.path.to_owned(),
        };
        let ours = |name: &str| name.len() >= 8 && name.as_bytes()[..8].eq_ignore_ascii_case(b"thalweg-");
        // What the client names for its connection is of one hop too (RFC 9110, section 7.6.1).
        let of_connection = request.headers.get("connection").and_then(|value| std::str::from_utf8(value).ok());
        let of_connection = of_connection.unwrap_or_default();
        let is_of_connection = |name: &str| of_connection.split(',').any(|of| of.trim().eq_ignore_ascii_case(name));
        let is_of_hop = |name: &str| OF_ONE_HOP.iter().any(|hop| name.eq_ignore_ascii_case(hop));
        let passes = |name: &str| !ours(name) && !is_of_hop(name) && !is_of_connection(name);
        let headers = request.headers.0.iter().filter(|(name, _)| passes(name));
        let headers = headers.map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        Some(Self { method, target, headers, body: Bytes::copy_from_slice(request.body), taken: Some(taken) })
    }

    /// A HEAD of another path, with the same rights.
    #[must_use]
    pub fn head_of(&self, path: &str) -> Self {
        let kept = |name: &str| ["host", "authorization"].iter().any(|kept| name.eq_ignore_ascii_case(kept));
        let headers = self.headers.iter().filter(|(name, _)| kept(name)).cloned().collect();
        Self { method: reqwest::Method::HEAD, target: path.to_owned(), headers, body: Bytes::new(), taken: None }
    }

    /// Whether it waits for what comes after the moment in which it is asked: `offset=now`, by long-poll. Repeated later, it
    /// would skip what came between.
    #[must_use]
    pub fn waits_from_now(&self) -> bool {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        let has = |wanted: &str| query.split('&').any(|pair| pair == wanted);
        self.method == reqwest::Method::GET && has("offset=now") && has("live=long-poll")
    }

    /// The same from this offset on.
    pub fn begin_at(&mut self, offset: &str) {
        let Some((path, query)) = self.target.split_once('?') else { return };
        let pairs = query
            .split('&')
            .map(|pair| if pair == "offset=now" { format!("offset={offset}") } else { pair.to_owned() });
        self.target = format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"));
    }

    /// Calls `f` with the request, and with `more` header fields.
    pub fn with<T>(&self, more: &[(&str, String)], f: impl FnOnce(&Request<'_>) -> T) -> T {
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let headers: Vec<(&str, &[u8])> =
            own.chain(more.iter().map(|(name, value)| (*name, value.as_bytes()))).collect();
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target.as_str(), None),
        };
        let method = match self.method {
            reqwest::Method::GET => Method::Get,
            reqwest::Method::HEAD => Method::Head,
            reqwest::Method::PUT => Method::Put,
            reqwest::Method::POST => Method::Post,
            reqwest::Method::DELETE => Method::Delete,
            _ => Method::Options,
        };
        f(&Request { method, path, query, headers: Headers(&headers), body: &self.body })
    }

    /// Whether sending it twice does what sending it once does.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self.method, reqwest::Method::GET | reqwest::Method::HEAD)
    }

    /// The first field of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
    }

    /// Whether it is a PUT.
    #[must_use]
    pub fn is_put(&self) -> bool {
        self.method == reqwest::Method::PUT
    }

    /// Whether doing it a second time changes nothing: an append with the whole identity of a producer (Durable Streams
    /// protocol, "Idempotent Producers").
    #[must_use]
    pub fn is_repeatable(&self) -> bool {
        let identity = ["producer-id", "producer-epoch", "producer-seq"];
        self.method == reqwest::Method::POST && identity.iter().all(|field| self.header(field).is_some())
    }

    /// Whether it is a DELETE.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        self.method == reqwest::Method::DELETE
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }
}

/// What came of a request to another node.
pub enum Forwarded {
    /// Its answer.
    Response(Response),
    /// It was not sent, or to another process: the node is not there.
    Unreachable(String),
    /// It was sent, and no answer came: it may have happened.
    Broken(String),
}

/// Sends requests to other nodes.
pub struct Forwarder {
    runtime: Option<Runtime>,
    client: reqwest::Client,
    proofs: Arc<Proofs>,
    /// Bytes of answers that wait for their clients.
    ahead: Arc<AtomicUsize>,
}

/// A question to one process, to which no other one can give the answer.
struct Question {
    proofs: Arc<Proofs>,
    instance: String,
    number: String,
}

impl Question {
    fn is_answered_by(&self, headers: &reqwest::header::HeaderMap) -> bool {
        let signature = headers.get(SIGNATURE);
        signature.is_some_and(|found| self.proofs.is_answer(&self.number, &self.instance, found.as_bytes()))
    }
}

impl Forwarder {
    /// Sends nothing yet.
    /// `silence_max`: a node from which nothing comes for so long is not waited for any more.
    pub fn new(silence_max: Duration, proofs: Arc<Proofs>) -> anyhow::Result<Self> {
        // The process may have chosen a provider of TLS already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(silence_max)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .build()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forward")
            .enable_all()
            .build()?;
        Ok(Self { runtime: Some(runtime), client, proofs, ahead: Arc::default() })
    }

    /// A question to the process `instance`, and a request that carries it.
    fn question(&self, builder: reqwest::RequestBuilder, instance: &str) -> (reqwest::RequestBuilder, Question) {
        let number = self.proofs.new_question();
        let builder = builder.header(SECRET, self.proofs.to_show(instance)).header(QUESTION, &number);
        (builder, Question { proofs: Arc::clone(&self.proofs), instance: instance.to_owned(), number })
    }

    /// Sends a request to the node at an URL without a path, the process `instance`, with `more` header fields. What
    /// another process answers there counts for nothing.
    #[must_use]
    pub fn send(&self, node: (&str, &str), request: &OwnedRequest, more: &[(&str, String)]) -> Forwarding {
        self.send_for(node, request, more, WHOLE_BYTES)
    }

    /// The same; a body of up to so many bytes comes in one piece.
    #[must_use]
    pub fn send_for(
        &self,
        (base, instance): (&str, &str),
        request: &OwnedRequest,
        more: &[(&str, String)],
        whole_bytes: u64,
    ) -> Forwarding {
        let url = format!("{}{}", base.trim_end_matches('/'), request.target);
        let mut builder = self.client.request(request.method.clone(), url).body(request.body.clone());
        for (name, value) in &request.headers {
            builder = builder.header(name.as_str(), value.as_slice());
        }
        for (name, value) in more {
            builder = builder.header(*name, value.as_str());
        }
        let (builder, question) = self.question(builder, instance);
        let slot = Arc::<Slot>::default();
        let taken = request.taken.clone();
        let flight = forward(builder, question, Arc::clone(&slot), whole_bytes, Arc::clone(&self.ahead));
        let task = self.runtime.as_ref().map(|runtime| {
            let flight = async move {
                // The body's room is free once the request has ended.
                let _taken = taken;
                flight.await;
            };
            runtime.spawn(flight).abort_handle()
        });
        Forwarding { slot, task }
    }

    /// Asks the node at `base`, and waits for the whole answer: its body, if it answered 200 within the time.
    pub fn ask(&self, base: &str, path: &str, more: &[(&str, String)], within: Duration) -> Option<Bytes> {
        let mut builder = self.client.get(format!("{}{path}", base.trim_end_matches('/'))).timeout(within);
        for (name, value) in more {
            builder = builder.header(*name, value.as_str());
        }
        self.runtime.as_ref()?.block_on(async {
            let found = builder.send().await.ok()?;
            match whole(found, ASKED_BYTES_MAX).await {
                Asked::Answer(200, answer) => Some(answer),
                _ => None,
            }
        })
    }
}

/// Ends the wait for an answer: the present one, or the next if there is none.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<tokio::sync::Notify>);

impl Interrupt {
    /// Interrupts.
    pub fn now(&self) {
        self.0.notify_one();
    }
}

/// What came of a question to another node.
pub enum Asked {
    /// Its status and body.
    Answer(u16, Bytes),
    /// The wait was ended from outside.
    Interrupted,
    /// No answer came, or one that is too long.
    Failed(String),
}

impl Forwarder {
    /// Posts to the node at an URL without a path, the process `instance`, and waits for the whole answer.
    pub fn post(
        &self,
        (base, instance): (&str, &str),
        path: &str,
        more: &[(&str, String)],
        body: Bytes,
        within: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Asked {
        let Some(runtime) = &self.runtime else { return Asked::Failed("the node stops".into()) };
        let (builder, question) = self.question(self.post_of(base, path, more, body, within), instance);
        let answer = async {
            match builder.send().await {
                Ok(found) if found.status() == 200 && !question.is_answered_by(found.headers()) => {
                    Asked::Failed(ANOTHER_PROCESS.into())
                }
                Ok(found) => whole(found, ANSWER_BYTES_MAX).await,
                Err(error) => Asked::Failed(error.to_string()),
            }
        };
        runtime.block_on(async {
            match interrupt {
                None => answer.await,
                Some(Interrupt(notify)) => tokio::select! {
                    answer = answer => answer,
                    () = notify.notified() => Asked::Interrupted,
                },
            }
        })
    }

    /// Posts to the node at an URL without a path, the process `instance`; the status and the header fields of its answer.
    pub fn post_for_head(
        &self,
        (base, instance): (&str, &str),
        path: &str,
        more: &[(&str, String)],
        body: Bytes,
        within: Duration,
    ) -> Result<(u16, reqwest::header::HeaderMap), String> {
        let Some(runtime) = &self.runtime else { return Err("the node stops".into()) };
        let (request, question) = self.question(self.post_of(base, path, more, body, within), instance);
        // Its timer is made by the call, which must be within the runtime.
        let found = runtime.block_on(async { request.send().await });
        let found = found.map_err(|error| error.to_string())?;
        if !question.is_answered_by(found.headers()) {
            return Err(ANOTHER_PROCESS.into());
        }
        Ok((found.status().as_u16(), found.headers().clone()))
    }

    fn post_of(
        &self,
        base: &str,
        path: &str,
        more: &[(&str, String)],
        body: Bytes,
        within: Duration,
    ) -> reqwest::RequestBuilder {
        let mut builder = self.client.post(format!("{}{path}", base.trim_end_matches('/'))).timeout(within).body(body);
        for (name, value) in more {
            builder = builder.header(*name, value.as_str());
        }
        builder
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// An answer with its whole body, of at most so many bytes.
async fn whole(mut found: reqwest::Response, bytes_max: usize) -> Asked {
    let mut bytes = BytesMut::new();
    loop {
        match found.chunk().await {
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= bytes_max => bytes.extend_from_slice(&chunk),
            Ok(Some(_)) => return Asked::Failed(format!("the answer has more than {bytes_max} bytes")),
            Ok(None) => return Asked::Answer(found.status().as_u16(), bytes.freeze()),
            Err(error) => return Asked::Failed(error.to_string()),
        }
    }
}

#[derive(Default)]
struct Slot(Mutex<(Option<Forwarded>, Option<Waker>)>);

/// A request under way. Dropped, it is given up.
pub struct Forwarding {
    slot: Arc<Slot>,
    task: Option<AbortHandle>,
}

impl Forwarding {
    /// The answer, if it has come; otherwise the waker is called when it does.
    pub fn take(&mut self, waker: impl FnOnce() -> Waker) -> Option<Forwarded> {
        let mut slot = self.slot.0.lock();
        let found = slot.0.take();
        match &found {
            // The body may still be on its way.
            Some(_) => self.task = None,
            None => slot.1 = Some(waker()),
        }
        found
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

const ANOTHER_PROCESS: &str = "another process answers at the node's address";

async fn forward(
    builder: reqwest::RequestBuilder,
    question: Question,
    slot: Arc<Slot>,
    whole_bytes: u64,
    ahead: Arc<AtomicUsize>,
) {
    let answer = |forwarded| {
        let waker = {
            let mut slot = slot.0.lock();
            slot.0 = Some(forwarded);
            slot.1.take()
        };
        waker.into_iter().for_each(|waker| waker.wake());
    };
    let mut found = match builder.send().await {
        Ok(found) => found,
        Err(error) if error.is_connect() || error.is_builder() => {
            return answer(Forwarded::Unreachable(error.to_string()));
        }
        Err(error) => return answer(Forwarded::Broken(error.to_string())),
    };
    let status = found.status().as_u16();
    let is_signed = question.is_answered_by(found.headers());
    if !is_signed && !UNSIGNED.contains(&status) {
        // A node that was started where another one had been says so by asking for it again. Anybody else may have had it
        // done all the same.
        let is_undone = found.headers().contains_key(AGAIN);
        let why = ANOTHER_PROCESS.into();
        return answer(if is_undone { Forwarded::Unreachable(why) } else { Forwarded::Broken(why) });
    }
    let mut response = Response::new(status);
    for (name, value) in found.headers() {
        let name = name.as_str();
        if name == SIGNATURE || (!is_signed && !["content-type", "retry-after"].contains(&name)) {
            continue;
        }
        if !OF_ONE_HOP.contains(&name) && !ADDED.contains(&name) {
            response = response.header(name, value.as_bytes());
        }
    }
    let len = found.content_length();
    if len.is_some_and(|len| len <= whole_bytes) {
        return match found.bytes().await {
            Ok(bytes) => {
                if !bytes.is_empty() {
                    response.body = Body::Bytes(bytes);
                }
                answer(Forwarded::Response(response));
            }
            Err(error) => answer(Forwarded::Broken(error.to_string())),
        };
    }
    let room = Arc::new(Semaphore::new(AHEAD_BYTES));
    let shared = Arc::new(Coming { parts: Mutex::default(), ahead });
    let (alive, mut gone) = tokio::sync::oneshot::channel();
    let source = Box::new(Flow { shared: Arc::clone(&shared), room: Arc::clone(&room), _alive: alive });
    match len {
        Some(len) => response.body = Body::Sized(len, source),
        None => {
            response.body = Body::Stream(source);
            response.close = true;
        }
    }
    answer(Forwarded::Response(response));
    loop {
        let next = tokio::select! {
            next = found.chunk() => next,
            // The client has gone away: so does the request.
            _ = &mut gone => return,
        };
        let end = match next {
            Ok(Some(chunk)) => {
                let permits = chunk.len().min(AHEAD_BYTES);
                // Slow clients of many answers: each waits until the piece before is gone.
                let is_tight = shared.ahead.load(Ordering::Relaxed) > AHEAD_OF_ALL_BYTES;
                let asked = if is_tight { AHEAD_BYTES } else { permits };
                match room.acquire_many(asked as u32).await {
                    Ok(taken) => taken.forget(),
                    Err(_) => return,
                }
                room.add_permits(asked - permits);
                shared.put(Some(chunk), None);
                continue;
            }
            Ok(None) => Pull::End,
            Err(_) => Pull::Abort,
        };
        return shared.put(None, Some(end));
    }
}

/// The part of a body that has come.
struct Coming {
    parts: Mutex<Parts>,
    /// Bytes of the parts of all bodies.
    ahead: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Parts {
    chunks: VecDeque<Bytes>,
    end: Option<Pull>,
    waker: Option<Waker>,
}

impl Coming {
    fn put(&self, chunk: Option<Bytes>, end: Option<Pull>) {
        let waker = {
            let mut parts = self.parts.lock();
            self.ahead.fetch_add(chunk.as_ref().map_or(0, Bytes::len), Ordering::Relaxed);
            parts.chunks.extend(chunk);
            parts.end = end;
            parts.waker.take()
        };
        waker.into_iter().for_each(|waker| waker.wake());
    }
}

/// A body that another node sends.
struct Flow {
    shared: Arc<Coming>,
    room: Arc<Semaphore>,
    /// Dropped with the body: the task that reads it ends.
    _alive: tokio::sync::oneshot::Sender<()>,
}

impl BodySource for Flow {
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        let mut parts = self.shared.parts.lock();
        if let Some(chunk) = parts.chunks.pop_front() {
            self.shared.ahead.fetch_sub(chunk.len(), Ordering::Relaxed);
            self.room.add_permits(chunk.len().min(AHEAD_BYTES));
            sink.push(chunk);
            return Pull::More;
        }
        if let Some(end) = parts.end.take() {
            return end;
        }
        if cx.stopping() {
            return Pull::Abort;
        }
        parts.waker = Some(cx.waker());
        Pull::Wait
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.room.close();
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let left = self.parts.get_mut().chunks.iter().map(Bytes::len).sum();
        self.ahead.fetch_sub(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(query: &str) -> OwnedRequest {
        let request =
            Request { method: Method::Get, path: "/v1/stream/a", query: Some(query), headers: Headers(&[]), body: b"" };
        OwnedRequest::of(&request, &Budget::new(10)).unwrap()
    }

    #[test]
    fn a_wait_from_now_begins_where_now_was() {
        let mut request = get("live=long-poll&offset=now&cursor=3");
        assert!(request.waits_from_now());
        request.begin_at("0000_0017");
        assert_eq!(request.target, "/v1/stream/a?live=long-poll&offset=0000_0017&cursor=3");
        for other in ["offset=now", "offset=now&live=sse", "offset=0000_0017&live=long-poll", "live=long-poll"] {
            assert!(!get(other).waits_from_now(), "{other}");
        }
    }

    #[test]
    fn bodies_wait_within_a_budget() {
        let budget = Budget::new(10);
        let of = |body: &[u8]| {
            let request = Request { method: Method::Post, path: "/", query: None, headers: Headers(&[]), body };
            OwnedRequest::of(&request, &budget)
        };
        let first = of(b"123456").unwrap();
        assert!(of(b"12345").is_none());
        let (second, same) = (of(b"1234").unwrap(), first.clone());
        drop(first);
        assert!(of(b"1").is_none(), "a clone has the same body");
        drop((second, same));
        assert!(of(b"1234567890").is_some());
    }
}
