//! A service with one path per kind of reply.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_base::{Lsn, Until};
use thalweg_http::{
    Body, BodySource, Bound, Context, Gate, Pending, Poll, Pull, Reply, Request, Response, Server, ServerConfig,
    Service, Sink, Waker,
};

#[derive(Default)]
pub(crate) struct Paths {
    pub(crate) rounds: AtomicUsize,
    pub(crate) handled: AtomicUsize,
    /// Pending answers and sources that exist.
    pub(crate) alive: Arc<AtomicUsize>,
    pub(crate) wakers: Arc<Mutex<Vec<Waker>>>,
    /// `/later` is answered once it is open; `/events` sends as many events.
    pub(crate) open: Arc<AtomicU64>,
    /// Bytes that endless sources have given.
    pub(crate) pulled: Arc<AtomicUsize>,
}

impl Paths {
    /// Opens the pending answers, and wakes them.
    pub(crate) fn open(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.wakers.lock().iter().for_each(Waker::wake);
    }

    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }
}

/// Counts live values.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Later {
    wakers: Arc<Mutex<Vec<Waker>>>,
    open: Arc<AtomicU64>,
    timeout: Option<Duration>,
    then: Option<Reply>,
    polls: u32,
    _alive: Alive,
}

impl Pending for Later {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        self.polls += 1;
        if cx.stopping() {
            return Poll::Ready(Reply::Now(Response::new(200).body("stopping")));
        }
        if self.open.load(Ordering::SeqCst) > 0 {
            return Poll::Ready(self.then.take().unwrap());
        }
        if self.polls == 1 {
            self.wakers.lock().push(cx.waker());
            if let Some(timeout) = self.timeout {
                cx.wake_after(timeout);
            }
            // An opening in between would have woken no task.
            return self.poll(cx);
        }
        match self.timeout {
            Some(_) if self.polls > 2 => Poll::Ready(Reply::Now(Response::new(204))),
            _ => Poll::Wait,
        }
    }
}

/// An event for every time that something opened.
struct Events {
    wakers: Arc<Mutex<Vec<Waker>>>,
    open: Arc<AtomicU64>,
    sent: Option<u64>,
    _alive: Alive,
}

impl BodySource for Events {
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        if self.sent.is_none() {
            self.wakers.lock().push(cx.waker());
            self.sent = Some(0);
        }
        let (open, sent) = (self.open.load(Ordering::SeqCst), self.sent.unwrap());
        (sent..open).for_each(|n| sink.push(Bytes::from(format!("event {n}\n"))));
        self.sent = Some(open);
        if cx.stopping() { Pull::End } else { Pull::Wait }
    }
}

/// Pieces until `left` is used up.
struct Many {
    left: usize,
    piece: Bytes,
    pulled: Arc<AtomicUsize>,
    then: fn() -> Pull,
    _alive: Alive,
}

impl BodySource for Many {
    fn pull(&mut self, _: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        if self.left == 0 {
            return (self.then)();
        }
        let piece = self.piece.slice(..self.piece.len().min(self.left));
        self.left -= piece.len();
        self.pulled.fetch_add(piece.len(), Ordering::SeqCst);
        sink.push(piece);
        Pull::More
    }
}

impl Service for Paths {
    fn handle(&self, request: &Request<'_>, _: &mut Context<'_>) -> Reply {
        self.handled.fetch_add(1, Ordering::SeqCst);
        let number = || request.query.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let later = |then: Reply, timeout| {
            Reply::Later(Box::new(Later {
                wakers: Arc::clone(&self.wakers),
                open: Arc::clone(&self.open),
                timeout,
                then: Some(then),
                polls: 0,
                _alive: Alive::new(&self.alive),
            }))
        };
        let source = |left, then| {
            Box::new(Many {
                left,
                piece: Bytes::from(vec![b'm'; 10_000]),
                pulled: Arc::clone(&self.pulled),
                then,
                _alive: Alive::new(&self.alive),
            })
        };
        let many = |left, then| {
            let mut response = Response::new(200);
            response.body = Body::Stream(source(left, then));
            Reply::Now(response)
        };
        let until = Until::Durable(Lsn(number()));
        match request.path {
            "/echo" => Reply::Now(Response::new(200).body(request.body.to_vec())),
            "/held" => Reply::Held(until, Response::new(200).body(format!("held {}", number()))),
            "/written" => {
                Reply::Held(Until::Written(Lsn(number())), Response::new(200).body(format!("written {}", number())))
            }
            "/later" => later(Reply::Now(Response::new(200).body(format!("later {}", number()))), None),
            "/later-held" => later(Reply::Held(until, Response::new(200).body("later held")), None),
            "/timeout" => later(Reply::Now(Response::new(200)), Some(Duration::from_millis(number()))),
            "/parts" => {
                let mut response = Response::new(200);
                response.body =
                    Body::Parts((0..number()).map(|n| Bytes::from(vec![b'a' + (n % 26) as u8; 1000])).collect());
                Reply::Now(response)
            }
            "/large" => Reply::Now(Response::new(200).body(vec![b'l'; number() as usize])),
            "/events" => {
                let mut response = Response::new(200).header("content-type", "text/event-stream");
                response.body = Body::Stream(Box::new(Events {
                    wakers: Arc::clone(&self.wakers),
                    open: Arc::clone(&self.open),
                    sent: None,
                    _alive: Alive::new(&self.alive),
                }));
                Reply::Now(response)
            }
            "/many" => many(number() as usize, || Pull::End),
            "/sized" => {
                let mut response = Response::new(200);
                response.body = Body::Sized(number(), source(number() as usize, || Pull::End));
                Reply::Now(response)
            }
            "/abort" => many(number() as usize, || Pull::Abort),
            "/last" => {
                let mut response = Response::new(200).body("the last");
                response.close = true;
                Reply::Now(response)
            }
            "/none" => Reply::Now(Response::new(204)),
            "/page" => {
                let mut response =
                    Response::new(200).header("content-security-policy", "script-src 'self'").body("page");
                response.page = true;
                Reply::Now(response)
            }
            "/guarded" => Reply::Now(Response::new(403).body("looked at whole")),
            path => Reply::Now(Response::new(200).body(path.to_owned())),
        }
    }

    fn on_head(&self, head: &Request<'_>, _: u64) -> Option<Response> {
        assert!(head.body.is_empty());
        (head.path == "/guarded").then(|| Response::new(403).body("the head is enough"))
    }

    fn round_done(&self) {
        self.rounds.fetch_add(1, Ordering::SeqCst);
    }

    fn gate_failed(&self) -> Response {
        Response::new(503).body("the gate failed")
    }
}

pub(crate) struct Stand {
    pub(crate) server: Server,
    pub(crate) paths: Arc<Paths>,
    pub(crate) gate: Arc<Gate>,
}

impl Stand {
    pub(crate) fn advance(&self, durable: u64) {
        self.gate.advance(Lsn(durable).into());
    }
}

pub(crate) fn stand() -> Stand {
    stand_with(|_| {})
}

pub(crate) fn stand_with(change: impl FnOnce(&mut ServerConfig)) -> Stand {
    serve(bind_with(change))
}

/// A server that does not serve yet.
pub(crate) fn bind_with(change: impl FnOnce(&mut ServerConfig)) -> Bound {
    let mut config = ServerConfig { reactors: 1, ..ServerConfig::default() };
    config.tls = crate::IDENTITY.map(|identity| identity().server());
    change(&mut config);
    Server::bind(config).unwrap()
}

pub(crate) fn serve(bound: Bound) -> Stand {
    let (paths, gate) = (Arc::new(Paths::default()), Arc::new(Gate::default()));
    let server = bound.serve(Arc::<Paths>::clone(&paths), Arc::clone(&gate)).unwrap();
    Stand { server, paths, gate }
}
