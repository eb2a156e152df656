//! One socket, with or without TLS: read by one thread, written to by any.
//!
//! Lock order: `sending`, `session`. No thread waits for the socket with the session locked, so readers and writers
//! never block each other.

use super::error::{Error, TlsError};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of one receive of a TLS session.
const SEALED: usize = 64 * 1024;

/// How long to wait for bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    Forever,
    Until(Instant),
    /// From when it is first waited for.
    Each(Duration),
}

impl Wait {
    pub(super) fn timeout(timeout: Option<Duration>) -> Self {
        timeout.map_or(Self::Forever, Self::Each)
    }

    pub(super) fn deadline(deadline: Option<Instant>) -> Self {
        deadline.map_or(Self::Forever, Self::Until)
    }

    fn end(self) -> Option<Instant> {
        match self {
            Self::Forever => None,
            Self::Until(at) => Some(at),
            // A timeout that no clock can hold never ends.
            Self::Each(timeout) => Instant::now().checked_add(timeout),
        }
    }
}

pub(super) struct Link {
    socket: OwnedFd,
    session: Option<Mutex<ClientConnection>>,
    /// Locked for one message; the buffer holds its encrypted bytes.
    sending: Mutex<Vec<u8>>,
    write_timeout: Duration,
    broken: AtomicBool,
}

/// Received bytes that the TLS session has not processed yet.
#[derive(Default)]
pub(super) struct Sealed {
    buf: Vec<u8>,
    start: usize,
    end: usize,
}

impl Link {
    pub(super) fn new(socket: OwnedFd, session: Option<ClientConnection>, write_timeout: Duration) -> Self {
        let session = session.map(Mutex::new);
        Self { socket, session, sending: Mutex::default(), write_timeout, broken: AtomicBool::new(false) }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whether the socket holds unread bytes, or the end of the stream, or an error. Never waits.
    pub(super) fn has_unread(&self) -> bool {
        let read = recv(&self.socket, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(read, Err(Errno::AGAIN | Errno::INTR))
    }

    /// Marks both directions as unusable.
    pub(super) fn break_off(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Ends both directions, so that waiting threads see the end.
    pub(super) fn hang_up(&self) {
        self.break_off();
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Sends all of `bytes`; after an error the link cannot send.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        let mut sealed = self.sending.lock();
        if self.is_broken() {
            return Err(Error::Poisoned);
        }
        let sent = match &self.session {
            None => send_all(&self.socket, bytes, self.write_timeout),
            Some(session) => {
                let taken = session.lock().writer().write_all(bytes).map_err(Error::Io);
                taken.and_then(|()| self.flush(session, &mut sealed))
            }
        };
        if sent.is_err() {
            self.break_off();
        }
        sent
    }

    /// Sends the session's pending output.
    fn flush(&self, session: &Mutex<ClientConnection>, sealed: &mut Vec<u8>) -> Result<(), Error> {
        sealed.clear();
        {
            let mut session = session.lock();
            while session.wants_write() {
                session.write_tls(sealed).map_err(Error::Io)?;
            }
        }
        let sent = send_all(&self.socket, sealed, self.write_timeout);
        if sealed.capacity() > 2 * SEALED {
            *sealed = Vec::new();
        }
        sent
    }

    /// Puts the next bytes at the beginning of `buf`, which must not be empty. `None`: no bytes came in time;
    /// `Some(0)`: the input has ended.
    pub(super) fn receive(&self, buf: &mut [u8], sealed: &mut Sealed, wait: Wait) -> Result<Option<usize>, Error> {
        let Some(session) = &self.session else { return recv_until(&self.socket, buf, wait).map_err(broke) };
        loop {
            let opened = {
                let mut session = session.lock();
                let opened = open(&mut session, sealed, buf);
                opened.map(|got| (got, session.wants_write()))
            };
            let (got, wants_write) = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    // An alert that says why is ready.
                    let _ = self.flush(session, &mut self.sending.lock());
                    return Err(error);
                }
            };
            if wants_write {
                self.flush(session, &mut self.sending.lock())?;
            }
            if got.is_some() {
                return Ok(got);
            }
            sealed.buf.resize(SEALED, 0);
            match recv_until(&self.socket, &mut sealed.buf, wait).map_err(broke)? {
                None => return Ok(None),
                // The session ended without its closing message: an incomplete message will stay incomplete.
                Some(0) => return Ok(Some(0)),
                Some(n) => (sealed.start, sealed.end) = (0, n),
            }
        }
    }
}

/// Decrypts as much as `buf` holds. `None`: more must come first.
fn open(session: &mut ClientConnection, sealed: &mut Sealed, buf: &mut [u8]) -> Result<Option<usize>, Error> {
    let mut got = 0;
    loop {
        while got < buf.len() {
            match session.reader().read(&mut buf[got..]) {
                Ok(0) => return Ok(Some(got)),
                Ok(n) => got += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(Error::Io(error)),
            }
        }
        if got == buf.len() || sealed.start == sealed.end {
            return Ok((got > 0).then_some(got));
        }
        let mut rest = &sealed.buf[sealed.start..sealed.end];
        session.read_tls(&mut rest).map_err(Error::Io)?;
        sealed.start = sealed.end - rest.len();
        session.process_new_packets().map_err(TlsError::Session)?;
    }
}

/// The TLS handshake, which precedes the [`Link`].
pub(super) fn handshake(
    socket: &OwnedFd,
    session: &mut ClientConnection,
    wait: Wait,
    write: Duration,
) -> Result<(), Error> {
    let mut buf = [0; 8192];
    loop {
        let mut out = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut out).map_err(Error::Io)?;
        }
        send_all(socket, &out, write)?;
        if !session.is_handshaking() {
            return Ok(());
        }
        let got = match recv_until(socket, &mut buf, wait).map_err(broke)? {
            Some(0) => return Err(Error::Closed(None)),
            Some(n) => n,
            None => return Err(Error::Timeout(Duration::ZERO)),
        };
        let mut rest = &buf[..got];
        while !rest.is_empty() {
            session.read_tls(&mut rest).map_err(Error::Io)?;
            if let Err(error) = session.process_new_packets() {
                let mut alert = Vec::new();
                while session.wants_write() && session.write_tls(&mut alert).is_ok() {}
                let _ = send_all(socket, &alert, write);
                return Err(TlsError::Session(error).into());
            }
        }
    }
}

/// One receive, which waits only if no bytes are available. Under load that is one system call for all pending bytes.
pub(super) fn recv_until(socket: &OwnedFd, buf: &mut [u8], wait: Wait) -> io::Result<Option<usize>> {
    let mut end = None;
    loop {
        match recv(socket, &mut *buf, RecvFlags::DONTWAIT) {
            Ok((_, n)) => return Ok(Some(n)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        let end = *end.get_or_insert_with(|| wait.end());
        if !ready(socket, PollFlags::IN, end)? {
            return Ok(None);
        }
    }
}

pub(super) fn send_all(socket: &OwnedFd, mut bytes: &[u8], timeout: Duration) -> Result<(), Error> {
    while !bytes.is_empty() {
        match send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if !ready(socket, PollFlags::OUT, Wait::Each(timeout).end()).map_err(broke)? {
                    return Err(Error::Timeout(timeout));
                }
            }
            Err(errno) => return Err(broke(errno.into())),
        }
    }
    Ok(())
}

/// Whether the socket is ready before `end`.
fn ready(socket: &OwnedFd, flags: PollFlags, end: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        // A time that does not fit is for ever.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(socket, flags)], timeout.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Every form of an end by the other side is `Closed`.
pub(super) fn broke(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Error::Closed(None),
        _ => Error::Io(error),
    }
}
