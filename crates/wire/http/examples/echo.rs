//! The smallest service that acknowledges as a log does: a POST is answered once the gate has reached its position, and
//! a thread advances the gate after every round. `echo ADDRESS [REACTORS] [now]`; with `now`, every answer goes out at
//! once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use thalweg_base::Lsn;
use thalweg_http::{Context, Gate, Method, Reply, Request, Response, Server, ServerConfig, Service};

struct Echo {
    now: bool,
    position: AtomicU64,
    committed: AtomicU64,
    idle: AtomicBool,
    committer: Thread,
}

fn answer() -> Response {
    Response::new(204)
        .header("stream-next-offset", "0000000000000000_0000000000000256")
        .header("cross-origin-resource-policy", "cross-origin")
}

impl Service for Echo {
    fn handle(&self, request: &Request<'_>, _: &mut Context<'_>) -> Reply {
        match request.method {
            Method::Post if self.now => Reply::Now(answer()),
            Method::Post => Reply::Held(Lsn(self.position.fetch_add(1, Ordering::AcqRel) + 1).into(), answer()),
            _ => Reply::Now(Response::new(200).body("POST something\n")),
        }
    }

    fn round_done(&self) {
        self.committed.store(self.position.load(Ordering::Acquire), Ordering::Release);
        if !self.now && self.idle.swap(false, Ordering::AcqRel) {
            self.committer.unpark();
        }
    }

    fn gate_failed(&self) -> Response {
        Response::new(500)
    }
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let listen = args.first().map_or("127.0.0.1:8080", String::as_str).parse().map_err(std::io::Error::other)?;
    let reactors = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let gate = Arc::new(Gate::default());
    let service = Arc::new(Echo {
        now: args.get(2).is_some_and(|mode| mode == "now"),
        position: AtomicU64::new(0),
        committed: AtomicU64::new(0),
        idle: AtomicBool::new(true),
        committer: thread::current(),
    });
    let config = ServerConfig { listen, reactors, ..ServerConfig::default() };
    let server = Server::start(config, Arc::<Echo>::clone(&service), Arc::clone(&gate))?;
    println!("http://{}", server.local_addr());
    loop {
        let committed = service.committed.load(Ordering::Acquire);
        if Lsn(committed) > gate.reached().durable {
            gate.advance(Lsn(committed).into());
            continue;
        }
        service.idle.store(true, Ordering::SeqCst);
        if service.committed.load(Ordering::SeqCst) == committed {
            thread::park();
        }
    }
}
