//! Connecting: from a [`Config`] to an authenticated connection.

use super::address::Address;
use super::auth;
use super::config::{Config, Host, SslMode, TargetSession};
use super::conn::Conn;
use super::error::{Error, TlsError};
use super::frame::Receiver;
use super::link::{Link, Wait};
use super::{certificate, tls};
use postgres_protocol::message::frontend;
use rustls::{ClientConfig, ClientConnection};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest message before the server has authenticated us (bytes).
const GREETING_MAX: usize = 64 * 1024;

/// The purpose of the session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Queries,
    Replication,
}

/// A server's address and parameters: enough to open another connection to it, which cancellation does.
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) host: Host,
    pub(super) address: Address,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// Connects to the first usable host. Fails with the last host's error.
pub(super) fn connect(config: &Config, purpose: Purpose) -> Result<Conn, Error> {
    let tls = tls::client(config)?;
    let mut last = Error::Refused("no host");
    for host in &config.hosts {
        let deadline = config.connect_timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let addresses = match Address::resolve(host) {
            Ok(addresses) => addresses,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let count = addresses.len();
        for (i, address) in addresses.into_iter().enumerate() {
            // An address that does not answer leaves time for the others.
            let deadline = deadline.map(|end| {
                let now = Instant::now();
                now + end.saturating_duration_since(now) / (count - i) as u32
            });
            let target = Target { config: config.clone(), host: host.clone(), address, tls: tls.clone() };
            match open(target, purpose, deadline) {
                Ok(conn) => return Ok(conn),
                // The failure is in our credentials, not in the host.
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

fn open(mut target: Target, purpose: Purpose, deadline: Option<Instant>) -> Result<Conn, Error> {
    let wait = Wait::deadline(deadline);
    // A local socket has no TLS, whatever sslmode says.
    if matches!(target.address, Address::Unix(_)) {
        target.tls = None;
    }
    let result = match target.dial(wait, deadline) {
        Ok((socket, session)) => {
            let sealed = session.is_some();
            greet(Arc::new(target), socket, session, purpose, wait).map_err(|(error, target)| (error, target, sealed))
        }
        Err(error) => {
            let sealed = matches!(error, Error::Tls(TlsError::Session(_)));
            Err((error, Arc::new(target), sealed))
        }
    };
    match result {
        Ok(conn) => Ok(conn),
        // Preferred TLS is dropped if the server lacks it or refuses the login with it.
        Err((error, target, true)) if target.config.ssl_mode == SslMode::Prefer && without_may_do(&error) => {
            let target = Target {
                config: target.config.clone(),
                host: target.host.clone(),
                address: target.address.clone(),
                tls: None,
            };
            let (socket, session) = target.dial(wait, deadline)?;
            greet(Arc::new(target), socket, session, purpose, wait).map_err(|(error, _)| error)
        }
        Err((Error::Timeout(_), target, _)) => {
            Err(Error::Timeout(target.config.connect_timeout.unwrap_or(Duration::ZERO)))
        }
        Err((error, ..)) => Err(error),
    }
}

fn without_may_do(error: &Error) -> bool {
    matches!(error, Error::Tls(TlsError::Session(_))) || error.code() == Some("28000")
}

impl Target {
    /// A socket to the server, with TLS if it is configured and available.
    pub(super) fn dial(
        &self,
        wait: Wait,
        deadline: Option<Instant>,
    ) -> Result<(OwnedFd, Option<ClientConnection>), Error> {
        let socket = self.address.connect(&self.config, deadline)?;
        let session = match &self.tls {
            Some(tls) => tls::start(&socket, tls, &self.config, &self.host, &self.address, wait)?,
            None => None,
        };
        Ok((socket, session))
    }
}

/// Sends the startup message, and waits until the server is ready.
fn greet(
    target: Arc<Target>,
    socket: OwnedFd,
    session: Option<ClientConnection>,
    purpose: Purpose,
    wait: Wait,
) -> Result<Conn, (Error, Arc<Target>)> {
    let config = &target.config;
    let end_point = session
        .as_ref()
        .and_then(|session| session.peer_certificates())
        .and_then(|chain| chain.first())
        .and_then(|der| certificate::end_point(der));
    let link = Arc::new(Link::new(socket, session, config.write_timeout));
    let receiver = Receiver::new(link.clone(), GREETING_MAX);
    let mut conn = Conn::new(target.clone(), link, receiver, wait);
    let greeted = || {
        let mut words = vec![("user", config.user.as_str()), ("database", config.database.as_str())];
        words.push(("client_encoding", "UTF8"));
        words.extend(config.application_name.as_deref().map(|name| ("application_name", name)));
        words.extend(config.options.as_deref().map(|options| ("options", options)));
        if purpose == Purpose::Replication {
            words.push(("replication", "database"));
        }
        let out = conn.out();
        frontend::startup_message(words, out).map_err(|_| Error::Refused("a zero byte in a parameter"))?;
        conn.flush()?;
        auth::authenticate(&mut conn, config, end_point)?;
        conn.await_first_ready()?;
        let read_only = |name| conn.parameter(name) == Some("on");
        if config.target_session == TargetSession::ReadWrite
            && (read_only("in_hot_standby") || read_only("default_transaction_read_only"))
        {
            return Err(Error::ReadOnly { address: target.address.to_string() });
        }
        Ok(())
    };
    match greeted() {
        Ok(()) => {
            conn.begin(Wait::timeout(config.read_timeout), config.message_bytes_max);
            Ok(conn)
        }
        // A fatal error is how a server says no.
        Err(Error::Closed(Some(error))) => Err((Error::Server(error), target)),
        Err(error) => Err((error, target)),
    }
}
