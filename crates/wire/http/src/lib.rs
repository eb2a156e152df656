//! HTTP/1.1 on a thread-per-core event loop.
//!
//! [`Service`] is the interface to an engine: a request arrives whole; a reply leaves at once, when a position is
//! durable, later from another thread, or as a stream with back-pressure. The rest of the crate is framing and
//! sockets. The crate knows no engine, and of the kernel only positions.

pub mod clock;
mod framing;
mod pages;
mod pool;
mod server;
mod service;

#[doc(hidden)]
pub use framing::fuzz_framing;
pub use pages::SharedPages;
pub use pool::{Fetch, Place, Pool, Promise};
pub use server::{Bound, IdentityError, Server, ServerConfig, ServerStats, TlsIdentity, Waits};
pub use service::{
    Body, BodySource, Context, Gate, Headers, Method, Pending, Poll, Pull, Reply, Request, Response, Service, Sink,
    Waker,
};
