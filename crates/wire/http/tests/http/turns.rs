//! The order of output within one event loop: small output first, then large output in bounded turns.

use crate::client::{Client, get};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use thalweg_http::{
    Body, BodySource, Context, Gate, Pull, Reply, Request, Response, Server, ServerConfig, Service, Sink,
};

const LARGE: usize = 256 << 10;
const LARGE_READERS: usize = 16;

/// Reports to the test that the event loop is here, then waits for the test.
#[derive(Clone)]
struct Stop {
    reached: Sender<()>,
    go: Arc<Mutex<Receiver<()>>>,
}

impl Stop {
    fn wait(&self) {
        self.reached.send(()).unwrap();
        self.go.lock().recv().unwrap();
    }
}

/// Answers in the order in which they were sent; `/wait` and the first large body block the event loop until the test
/// releases it.
struct Order {
    sent: Arc<Mutex<Vec<&'static str>>>,
    stop: Stop,
}

struct Said {
    name: &'static str,
    bytes: usize,
    sent: Arc<Mutex<Vec<&'static str>>>,
    stop: Option<Stop>,
}

impl BodySource for Said {
    fn pull(&mut self, _: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        self.sent.lock().push(self.name);
        if let Some(stop) = self.stop.take() {
            stop.wait();
        }
        sink.push(Bytes::from(vec![b'x'; self.bytes]));
        Pull::End
    }
}

impl Service for Order {
    fn handle(&self, request: &Request<'_>, _: &mut Context<'_>) -> Reply {
        let said = |name, bytes, stop| {
            let sent = Arc::clone(&self.sent);
            let mut response = Response::new(200);
            response.body = Body::Sized(bytes as u64, Box::new(Said { name, bytes, sent, stop }));
            Reply::Now(response)
        };
        match request.path {
            "/wait" => {
                self.stop.wait();
                Reply::Now(Response::new(204))
            }
            "/large" => said("large", LARGE, None),
            "/large-that-stops" => said("large", LARGE, Some(self.stop.clone())),
            _ => said("small", 1, None),
        }
    }

    fn round_done(&self) {}

    fn gate_failed(&self) -> Response {
        Response::new(503)
    }
}

struct Loop {
    server: Server,
    sent: Arc<Mutex<Vec<&'static str>>>,
    reached: Receiver<()>,
    go: Sender<()>,
}

fn one_loop() -> Loop {
    let ((reached_sender, reached), (go, go_receiver)) = (channel(), channel());
    let sent = Arc::<Mutex<_>>::default();
    let stop = Stop { reached: reached_sender, go: Arc::new(Mutex::new(go_receiver)) };
    let service = Order { sent: Arc::clone(&sent), stop };
    let config = ServerConfig { reactors: 1, ..ServerConfig::default() };
    let server = Server::bind(config).unwrap().serve(Arc::new(service), Arc::<Gate>::default()).unwrap();
    Loop { server, sent, reached, go }
}

impl Loop {
    /// A client whose connection the event loop has accepted.
    fn client(&self) -> Client {
        let mut client = Client::new(&self.server);
        assert_eq!(client.get("/hello").status, 200);
        client
    }
}

#[test]
fn small_answers_are_sent_before_large_ones_of_the_same_round() {
    let events = one_loop();
    let mut busy = events.client();
    let mut large: Vec<_> = (0..LARGE_READERS).map(|_| events.client()).collect();
    let mut small = events.client();
    busy.send(get("/wait"));
    events.reached.recv().unwrap();
    events.sent.lock().clear();
    large.iter_mut().for_each(|client| client.send(get("/large")));
    small.send(get("/small"));
    events.go.send(()).unwrap();
    assert_eq!(small.answer().body, b"x");
    large.iter_mut().for_each(|client| assert_eq!(client.answer().body.len(), LARGE));
    assert_eq!(events.sent.lock()[..2], ["small", "large"]);
}

#[test]
fn a_request_waits_for_one_turn_of_the_large_answers_and_not_for_all() {
    let events = one_loop();
    let mut busy = events.client();
    let mut large: Vec<_> = (0..LARGE_READERS).map(|_| events.client()).collect();
    let mut small = events.client();
    busy.send(get("/wait"));
    events.reached.recv().unwrap();
    events.sent.lock().clear();
    large[0].send(get("/large-that-stops"));
    large[1..].iter_mut().for_each(|client| client.send(get("/large")));
    events.go.send(()).unwrap();
    events.reached.recv().unwrap();
    small.send(get("/small"));
    events.go.send(()).unwrap();
    assert_eq!(small.answer().body, b"x");
    large.iter_mut().for_each(|client| assert_eq!(client.answer().body.len(), LARGE));
    let at = events.sent.lock().iter().position(|name| *name == "small").unwrap();
    // A socket may take less than a whole answer at once: then a turn has more than one of them.
    assert!((1..=LARGE_READERS / 2).contains(&at), "{at} large ones came before it");
}
