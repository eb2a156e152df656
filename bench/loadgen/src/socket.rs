//! Sockets to the server: connected while blocking (loopback answers at once), then non-blocking.

use anyhow::Context;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// One loopback address has 28,000 ephemeral ports for one server.
const PER_SOURCE: usize = 20_000;

/// The connection with this number. On loopback the first 20,000 come from 127.0.0.1, the next from 127.0.0.2, and so
/// on.
pub(crate) fn open(server: SocketAddr, number: usize) -> anyhow::Result<OwnedFd> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .context("no socket; is `ulimit -n` high enough?")?;
    if let IpAddr::V4(ip) = server.ip()
        && ip.is_loopback()
        && number >= PER_SOURCE
    {
        let source = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + (number / PER_SOURCE) as u32);
        bind(&socket, &SocketAddr::from((source, 0))).with_context(|| format!("cannot use {source} as a source"))?;
    }
    connect(&socket, &server).with_context(|| format!("cannot connect to {server}"))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}
