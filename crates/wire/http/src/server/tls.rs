//! The TLS side of one connection: between the socket and the plain bytes that the rest works with.
//!
//! Never waits. Holds at most 64 KiB for the socket, and of the input at most one incomplete and one unread record.
//! Bytes count as sent only once the socket took them: see [`Tls::waits`].

use super::identity::TlsIdentity;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use rustls::ServerConnection;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;

/// Receives of one connection per call; each takes 4 KiB.
const READS_MAX: usize = 16;
/// Plain bytes that are encrypted before the socket is tried.
const BATCH: usize = 64 * 1024;
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

pub(super) struct Tls {
    session: ServerConnection,
    /// Plain bytes that were received and not read yet.
    unread: usize,
    /// No bytes have been received yet.
    fresh: bool,
    end: End,
    /// The socket took something since this was asked last.
    moved: bool,
}

/// Whether the client has sent its closing message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    /// The client has sent it, and the connection has not been informed yet.
    Received,
    Reported,
}

/// A client sent plain HTTP to a port for TLS.
#[derive(Debug, thiserror::Error)]
#[error("plain HTTP")]
pub(super) struct PlainHttp;

impl Tls {
    pub(super) fn new(identity: &TlsIdentity) -> Result<Box<Self>, rustls::Error> {
        let mut session = identity.session()?;
        session.set_buffer_limit(Some(BATCH));
        Ok(Box::new(Self { session, unread: 0, fresh: true, end: End::No, moved: false }))
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// Whether the client has sent anything.
    pub(super) fn has_begun(&self) -> bool {
        !self.fresh
    }

    /// Encrypted bytes wait for the socket to have room.
    pub(super) fn waits(&self) -> bool {
        self.session.wants_write()
    }

    /// Input is available that the socket will not announce.
    pub(super) fn has_unread(&self) -> bool {
        self.unread > 0 || self.end == End::Received
    }

    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Puts plain bytes into the spare room of `buf`. `None`: no bytes are available; `Some(0)`: the input has ended.
    pub(super) fn receive(&mut self, socket: &OwnedFd, buf: &mut Vec<u8>) -> io::Result<Option<usize>> {
        if self.fresh && self.is_plain_http(socket) {
            return Err(io::Error::other(PlainHttp));
        }
        let before = buf.len();
        let mut cut = false;
        for _ in 0..READS_MAX {
            self.take(buf)?;
            if buf.len() == buf.capacity() || self.end != End::No {
                break;
            }
            match self.session.read_tls(&mut Pipe(socket)) {
                Ok(0) => {
                    cut = true;
                    break;
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            let state = match self.session.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // An alert that says why is ready.
                    let _ = self.flush(socket);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            };
            self.unread = state.plaintext_bytes_to_read();
            if state.peer_has_closed() {
                self.end = End::Received;
            }
            self.flush(socket)?;
        }
        self.take(buf)?;
        if buf.len() > before {
            return Ok(Some(buf.len() - before));
        }
        if self.end == End::No {
            // An end without a closing message may be an attacker's.
            return if cut { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
        }
        self.end = End::Reported;
        Ok(Some(0))
    }

    fn take(&mut self, buf: &mut Vec<u8>) -> io::Result<()> {
        let (len, room) = (buf.len(), buf.capacity() - buf.len());
        let taken = self.unread.min(room);
        if taken > 0 {
            buf.resize(len + taken, 0);
            self.session.reader().read_exact(&mut buf[len..])?;
            self.unread -= taken;
        }
        Ok(())
    }

    /// A method begins with a capital letter, a TLS record never does.
    fn is_plain_http(&mut self, socket: &OwnedFd) -> bool {
        let mut first = [0];
        match recv(socket, &mut first, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((_, 1..)) => {
                self.fresh = false;
                first[0].is_ascii_uppercase()
            }
            _ => false,
        }
    }

    /// Encrypts and sends; returns how many plain bytes were taken. If all were, some of them may still wait here.
    pub(super) fn send<'a>(&mut self, socket: &OwnedFd, slices: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut taken = 0;
        let (mut batch, mut len): (Vec<&[u8]>, usize) = (Vec::new(), 0);
        for mut slice in slices {
            while !slice.is_empty() {
                let (now, later) = slice.split_at(slice.len().min(BATCH - len));
                batch.push(now);
                (len, slice) = (len + now.len(), later);
                if len == BATCH && !self.send_batch(socket, &mut batch, &mut len, &mut taken)? {
                    return Ok(taken);
                }
            }
        }
        self.send_batch(socket, &mut batch, &mut len, &mut taken)?;
        Ok(taken)
    }

    /// Returns whether the socket took everything, so that more can be sent.
    fn send_batch(
        &mut self,
        socket: &OwnedFd,
        batch: &mut Vec<&[u8]>,
        len: &mut usize,
        taken: &mut usize,
    ) -> io::Result<bool> {
        // Earlier bytes must be flushed first, so that all of the batch fits.
        if !self.flush(socket)? {
            return Ok(false);
        }
        let slices: Vec<_> = batch.iter().map(|slice| IoSlice::new(slice)).collect();
        let mut now = 0;
        if *len > 0 {
            now = self.session.writer().write_vectored(&slices)?;
            *taken += now;
        }
        let whole = now == *len;
        batch.clear();
        *len = 0;
        Ok(self.flush(socket)? && whole)
    }

    /// Sends encrypted bytes; returns whether the socket took all.
    pub(super) fn flush(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Pipe(socket)) {
                Ok(sent) => self.moved |= sent > 0,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Says that nothing more will come, if the socket takes it: then the client knows that it has seen everything.
    pub(super) fn say_end(&mut self, socket: &OwnedFd) {
        self.session.send_close_notify();
        let _ = self.flush(socket);
    }
}

/// The socket as the session sees it.
struct Pipe<'a>(&'a OwnedFd);

impl Read for Pipe<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(self.0, &mut *buf, RecvFlags::DONTWAIT) {
                Ok((_, received)) => return Ok(received),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(self.0, bytes, FLAGS) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match sendmsg(self.0, slices, &mut SendAncillaryBuffer::default(), FLAGS) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
