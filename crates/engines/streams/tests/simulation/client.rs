//! Requests to the engine, and their answers.

use crate::world::System;
use std::time::{Duration, Instant};
use thalweg_base::Until;
use thalweg_http::{Body, Context, Headers, Method, Reply, Request, Response};

pub(crate) const ROOT: &str = "/v1/stream/";

/// A reply, and the position that it is held for.
pub(crate) struct Answer {
    pub(crate) held: Until,
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]);
        write!(f, "{} held until {:?}: {body}", self.status, self.held)
    }
}

impl Answer {
    fn of(held: Until, response: Response) -> Self {
        let body = match response.body {
            Body::Empty => Vec::new(),
            Body::Bytes(bytes) => bytes.to_vec(),
            Body::Parts(parts) => parts.iter().flat_map(|part| part.to_vec()).collect(),
            Body::Stream(_) | Body::Sized(..) => panic!("no request here asks for a stream"),
        };
        let head = String::from_utf8_lossy(&response.head).to_ascii_lowercase();
        Self { held, status: response.status, head, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends one request and waits for its reply, however long the engine's I/O threads take. No other thread writes the
/// journal during this call: if the reply needs a write, this function makes it.
pub(crate) fn send(
    system: &System,
    now_ms: u64,
    method: Method<'_>,
    name: &str,
    query: Option<&str>,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let path = format!("{ROOT}{name}");
    let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let request = Request { method, path: &path, query, headers: Headers(&headers), body };
    let (woken, wakes) = std::sync::mpsc::channel();
    let waker = thalweg_http::Waker::from_fn(move || {
        let _ = woken.send(());
    });
    let make = || waker.clone();
    let mut cx = Context::detached(now_ms, &make);
    let mut reply = system.streams.handle(&request, &mut cx);
    loop {
        match reply {
            Reply::Now(response) => return Answer::of(Until::NOW, response),
            Reply::Held(at, response) => return Answer::of(at, response),
            Reply::Later(mut pending) => loop {
                if let thalweg_http::Poll::Ready(ready) = pending.poll(&mut cx) {
                    reply = ready;
                    break;
                }
                let patience = Instant::now() + Duration::from_secs(10);
                while wakes.recv_timeout(Duration::from_millis(1)).is_err() && !system.write_for_readers() {
                    assert!(Instant::now() < patience, "the engine wakes who waits");
                }
            },
        }
    }
}
