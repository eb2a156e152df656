//! Bodies partly in shared pages arrive unchanged, however few bytes the socket takes at once.

use crate::client::{Client, get};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_http::{Body, Context, Gate, Reply, Request, Response, Server, ServerConfig, Service, SharedPages};

const LARGE: usize = 3 << 20;
const CLIENTS: usize = 12;

struct Given(Mutex<Vec<Bytes>>);

impl Service for Given {
    fn handle(&self, request: &Request<'_>, _: &mut Context<'_>) -> Reply {
        if request.path == "/drop" {
            self.0.lock().clear();
        }
        let mut response = Response::new(200);
        response.body = Body::Parts(self.0.lock().clone());
        Reply::Now(response)
    }

    fn round_done(&self) {}

    fn gate_failed(&self) -> Response {
        Response::new(503)
    }
}

fn bytes(len: usize, seed: usize) -> Bytes {
    (0..len).map(|at| (at * 31 / 8 + seed) as u8).collect::<Vec<_>>().into()
}

#[test]
fn bodies_from_shared_pages_are_whole_for_fast_and_slow_clients_and_after_their_owner_is_gone() {
    let pages = SharedPages::new(16 << 20);
    let held = pages.hold(bytes(LARGE, 1));
    assert_eq!(pages.bytes(), LARGE as u64);
    // In the middle of the file, between parts that are copied, small, large and empty; twenty small ones make for a
    // call of many pieces.
    let mut parts = vec![bytes(10, 2), held.slice(77..LARGE - 5), bytes(0, 0), bytes(300 << 10, 3), held.clone()];
    parts.extend((0..20).map(|n| bytes(3_000, n)));
    parts.push(held.slice(..200 << 10));
    let whole = parts.concat();
    drop(held);
    let service = Arc::new(Given(Mutex::new(parts)));
    let config = ServerConfig {
        reactors: 1,
        tls: crate::IDENTITY.map(|identity| identity().server()),
        pages: pages.clone(),
        ..ServerConfig::default()
    };
    let server = Server::start(config, Arc::<Given>::clone(&service), Arc::<Gate>::default()).unwrap();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::new(&server)).collect();
    // Two requests each: the sockets fill while no client reads, and the rest goes to backlogs.
    clients.iter_mut().for_each(|client| client.send([get("/"), get("/")].concat()));
    for client in &mut clients {
        assert!(client.answer().body == whole);
    }
    assert!(clients[0].answer().body == whole);
    assert_eq!(clients[0].get("/drop").body, b"");
    for client in &mut clients[1..] {
        assert!(client.answer().body == whole);
    }
    drop(server);
    assert_eq!(pages.bytes(), 0, "the last slice of them is gone");
}

#[test]
fn clients_that_go_away_within_a_body_from_shared_pages_harm_nobody_and_keep_nothing() {
    let pages = SharedPages::new(16 << 20);
    let whole = bytes(LARGE, 1);
    let service = Arc::new(Given(Mutex::new(vec![pages.hold(whole.clone())])));
    let config = ServerConfig {
        reactors: 1,
        tls: crate::IDENTITY.map(|identity| identity().server()),
        pages: pages.clone(),
        ..ServerConfig::default()
    };
    let server = Server::start(config, Arc::<Given>::clone(&service), Arc::<Gate>::default()).unwrap();
    for n in 0..20 {
        let mut client = Client::new(&server);
        client.send(get("/").repeat(3));
        if n % 2 == 0 {
            assert!(client.more());
        }
    }
    let mut client = Client::new(&server);
    assert!(client.get("/").body == whole);
    assert_eq!(client.get("/drop").body, b"");
    drop(client);
    drop(server);
    assert_eq!(pages.bytes(), 0);
}
