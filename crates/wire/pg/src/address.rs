//! Places to connect to.

use super::config::{Config, Host};
use super::error::Error;
use rustix::net::sockopt;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Unanswered probes after which TCP closes the connection.
const KEEPALIVE_PROBES: u32 = 4;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// All addresses of a host, in the resolver's order. Waits as long as the system's resolver does.
    pub(super) fn resolve(host: &Host) -> Result<Vec<Self>, Error> {
        match host {
            Host::Unix { folder, port } => Ok(vec![Self::Unix(folder.join(format!(".s.PGSQL.{port}")))]),
            Host::Tcp { name, port } => {
                let failed = |source| Error::Resolve { host: name.clone(), source };
                let found: Vec<_> = (name.as_str(), *port).to_socket_addrs().map_err(failed)?.map(Self::Tcp).collect();
                if found.is_empty() { Err(failed(io::ErrorKind::NotFound.into())) } else { Ok(found) }
            }
        }
    }

    pub(super) fn connect(&self, config: &Config, deadline: Option<Instant>) -> Result<OwnedFd, Error> {
        let failed = |source| Error::Connect { address: self.to_string(), source };
        match self {
            Self::Unix(path) => Ok(UnixStream::connect(path).map_err(failed)?.into()),
            Self::Tcp(address) => {
                let stream = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                    None => TcpStream::connect(address),
                    Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
                    Some(left) => TcpStream::connect_timeout(address, left),
                };
                let socket = stream.map_err(failed)?.into();
                tune(&socket, config).map_err(|errno| failed(errno.into()))?;
                Ok(socket)
            }
        }
    }
}

fn tune(socket: &OwnedFd, config: &Config) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    // Unacknowledged bytes have the same time limit as bytes that the system does not accept.
    sockopt::set_tcp_user_timeout(socket, config.write_timeout.as_millis().try_into().unwrap_or(u32::MAX))?;
    if let Some(idle) = config.keepalive {
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, idle)?;
        sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    }
    Ok(())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
