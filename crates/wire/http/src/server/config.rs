//! The bounds of a server.

use super::identity::TlsIdentity;
use crate::SharedPages;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Address and bounds of a server. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Port 0 takes any free port.
    pub listen: SocketAddr,
    /// TLS is spoken with this, or plain HTTP without.
    pub tls: Option<Arc<TlsIdentity>>,
    /// Event loops, one thread each.
    pub reactors: usize,
    /// Connections beyond are answered 503.
    pub max_connections: usize,
    /// Connections of one peer's address (of IPv6: network of 64 bits) beyond are answered 503; 0 for no such bound.
    pub max_connections_per_peer: usize,
    /// Request line and header fields; 414 or 431 beyond.
    pub max_head: usize,
    /// One request's body; 413 beyond.
    pub max_body: usize,
    /// Incomplete requests of all connections together; 503 beyond.
    pub max_buffered: usize,
    /// Requests of one connection that were handled but not answered; more are not read.
    pub max_pipeline: usize,
    /// Output of one connection that the socket does not take. Beyond, no body source is pulled and no request is
    /// handled. A single response may be larger.
    pub max_output: usize,
    /// From the first byte of a head to its last; 408 beyond. As long from the start of a connection to the first byte
    /// of its first head, or to the end of its handshake.
    pub header_timeout: Duration,
    /// In each such time this many bytes of a body must arrive, or all that are left of it; otherwise the answer is
    /// 408.
    pub body_timeout: Duration,
    /// The bytes of a body that must arrive within each `body_timeout`.
    pub body_bytes_min: usize,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// How long a client may accept no byte of a pending answer.
    pub write_timeout: Duration,
    /// After a refusal, further input is discarded for this long and up to this many bytes, so that the client sees the
    /// answer.
    pub linger_time: Duration,
    /// The most bytes that are discarded after a refusal.
    pub linger_bytes: usize,
    /// Pages of other origins may not embed responses, except those that allow every page
    /// (`Cross-Origin-Resource-Policy: same-origin`).
    pub same_origin: bool,
    /// Parts of bodies that are in these pages are sent from there, on connections without TLS.
    pub pages: SharedPages,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: None,
            reactors: std::thread::available_parallelism().map_or(1, usize::from),
            max_connections: 65_536,
            max_connections_per_peer: 0,
            max_head: 16 * 1024,
            max_body: 32 * 1024 * 1024,
            max_buffered: 1024 * 1024 * 1024,
            max_pipeline: 64,
            max_output: 256 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_bytes_min: 16 * 1024,
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            linger_time: Duration::from_secs(2),
            linger_bytes: 8 * 1024 * 1024,
            same_origin: false,
            pages: SharedPages::default(),
        }
    }
}
