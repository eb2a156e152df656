//! The server: event loops, one per core, on one port.
//!
//! Owns sockets, threads, buffers and timers. Replies leave in the order of their requests, all memory that a client
//! can make the server hold has a bound, and an idle connection holds no buffer. Knows nothing of the meaning of
//! requests.

mod clock;
mod config;
mod connection;
mod crowd;
mod env;
mod held;
mod identity;
mod input;
mod listener;
mod mailbox;
mod output;
mod reactor;
mod reply;
mod stats;
mod status;
mod timers;
mod tls;
mod waits;

pub use config::ServerConfig;
pub use identity::{IdentityError, TlsIdentity};
pub use stats::ServerStats;
pub use waits::Waits;

use super::{Gate, Service, SharedPages};
use clock::Clock;
use crowd::Crowd;
use env::Env;
use input::Budget;
use mailbox::Mailbox;
use parking_lot::Mutex;
use reactor::Reactor;
use stats::Counters;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A running server. Dropping it stops it without grace.
pub struct Server {
    address: SocketAddr,
    gate: Arc<Gate>,
    pages: SharedPages,
    loops: Vec<EventLoop>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The server's handle on a running event loop.
struct EventLoop {
    mailbox: Arc<Mailbox>,
    counters: Arc<Counters>,
    /// Called by the gate.
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Server {
    /// Binds the port and starts the event loops. Replies that `service` holds are released by `gate`.
    pub fn start(config: ServerConfig, service: Arc<dyn Service>, gate: Arc<Gate>) -> io::Result<Self> {
        Self::bind(config)?.serve(service, gate)
    }

    /// Binds the address. New connections wait until the server serves.
    ///
    /// # Errors
    ///
    /// If the address is not free, or not of this machine.
    pub fn bind(config: ServerConfig) -> io::Result<Bound> {
        let mut address = config.listen;
        listener::must_be_free(address)?;
        let mut listeners = Vec::new();
        for _ in 0..config.reactors.max(1) {
            let (listener, bound) = listener::open(address)?;
            address = bound;
            listeners.push(listener);
        }
        Ok(Bound { config, address, listeners })
    }

    /// The bound address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, closes idle connections, notifies pending answers and body sources, and waits until all
    /// requests are answered, or until `grace` has passed and the rest is cut. Later calls return at once.
    pub fn stop(&self, grace: Duration) {
        let mut threads = self.threads.lock();
        for one in &self.loops {
            one.mailbox.stop(grace);
        }
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an event loop has panicked");
            }
        }
        self.gate.loops.write().retain(|wake| !self.loops.iter().any(|one| Arc::ptr_eq(&one.wake, wake)));
    }

    /// The counters as they are now.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let mut sum = ServerStats { pages_bytes: self.pages.bytes(), ..ServerStats::default() };
        self.loops.iter().for_each(|one| one.counters.add_to(&mut sum));
        sum
    }
}

/// A bound address without a server yet.
pub struct Bound {
    config: ServerConfig,
    address: SocketAddr,
    listeners: Vec<OwnedFd>,
}

impl Bound {
    /// The bound address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Starts the event loops.
    ///
    /// # Errors
    ///
    /// If the system gives no thread or no event queue.
    pub fn serve(self, service: Arc<dyn Service>, gate: Arc<Gate>) -> io::Result<Server> {
        let Self { config, address, listeners } = self;
        let budget = Arc::new(Budget::new(config.max_buffered));
        let crowd = Crowd::new(config.max_connections, config.max_connections_per_peer);
        let pages = config.pages.clone();
        let mut server = Server { address, gate, pages, loops: Vec::new(), threads: Mutex::new(Vec::new()) };
        let mut reactors = Vec::new();
        for listener in listeners {
            let mailbox = Arc::new(Mailbox::new()?);
            let counters = Arc::new(Counters::default());
            let env = Env {
                service: Arc::clone(&service),
                gate: Arc::clone(&server.gate),
                mailbox: Arc::clone(&mailbox),
                counters: Arc::clone(&counters),
                budget: Arc::clone(&budget),
                crowd: Arc::clone(&crowd),
                config: config.clone(),
                clock: Clock::new(),
                stopping: false,
            };
            reactors.push(Reactor::new(listener, env)?);
            let bell = Arc::clone(&mailbox);
            let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || bell.bell.ring_at_gate());
            server.loops.push(EventLoop { mailbox, counters, wake });
        }
        server.gate.loops.write().extend(server.loops.iter().map(|one| Arc::clone(&one.wake)));
        for (number, reactor) in reactors.into_iter().enumerate() {
            let thread = std::thread::Builder::new().name(format!("http-{number}")).spawn(move || reactor.run())?;
            server.threads.lock().push(thread);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
