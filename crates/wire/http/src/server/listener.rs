//! Listening sockets: one per event loop on the same port, so that the kernel spreads the connections.

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, getpeername, getsockname, listen, socket_with, sockopt,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

const BACKLOG: i32 = 4096;

/// Refuses an address that another process listens on. The listeners of one server share their port, and the kernel
/// would share it with another server just as well.
pub(super) fn must_be_free(address: SocketAddr) -> io::Result<()> {
    if address.port() != 0 {
        let socket = socket(address)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &address)?;
    }
    Ok(())
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?)
}

/// One listener of many on `address`.
pub(super) fn open(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// The peer's address; `None` if the peer is gone.
pub(super) fn peer(socket: &OwnedFd) -> Option<IpAddr> {
    SocketAddr::try_from(getpeername(socket).ok()??).ok().map(|address| address.ip())
}

/// Result of accepting a connection.
pub(super) enum Accepted {
    Connection(OwnedFd),
    Nobody,
    /// The connection is gone already: accept the next.
    Lost,
    /// No descriptor or memory is free: accept again after some time.
    Exhausted,
}

pub(super) fn accept(listener: &OwnedFd) -> Accepted {
    use rustix::io::Errno;
    match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(socket) => {
            // Fails only if the peer is gone, which the next read reports.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            Accepted::Connection(socket)
        }
        Err(Errno::AGAIN) => Accepted::Nobody,
        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Accepted::Exhausted,
        Err(_) => Accepted::Lost,
    }
}
