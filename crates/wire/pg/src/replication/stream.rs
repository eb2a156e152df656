//! The stream itself.

use super::super::conn::Conn as Session;
use super::super::error::Error;
use super::super::frame::Frame;
use super::super::link::Wait;
use super::super::lsn::PgLsn;
use super::{Acker, Conn};
use postgres_protocol::message::frontend;
use std::time::Instant;

/// Start, end and clock of an `XLogData`, after its kind.
const DATA_HEAD: usize = 1 + 3 * 8;

/// Stream of a slot's changes. One thread reads it; any can acknowledge, see [`Stream::acker`].
#[derive(Debug)]
pub struct Stream {
    session: Session,
    acker: Acker,
}

/// An event of the stream. Nothing is copied: a body stays in the receive buffer until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// One message of the output plugin, see [`pgoutput`](crate::pgoutput).
    XLogData {
        /// The message's position in the log; zero for messages without one, such as the description of a table.
        start: PgLsn,
        /// The end of the log when it was sent: the current one, not that of this message.
        end: PgLsn,
        /// The server's, microseconds since 2000.
        clock: i64,
        /// The plugin's message.
        body: &'a [u8],
    },
    /// The server is alive.
    Keepalive {
        /// How far the server has read its log: if no change is outstanding, everything before it can be acknowledged.
        end: PgLsn,
        /// The server's clock, in microseconds since 2000.
        clock: i64,
        /// The server hangs up if it hears nothing soon.
        reply: bool,
    },
    /// No message came in time.
    Idle,
}

/// An event without its bytes.
enum Kind {
    Data { start: PgLsn, end: PgLsn, clock: i64, frame: Frame },
    Keepalive { end: PgLsn, clock: i64, reply: bool },
    Idle,
}

impl Stream {
    pub(super) fn new(session: Session) -> Self {
        let acker = Acker::new(session.link.clone());
        Self { session, acker }
    }

    /// The next event. Waits until `deadline`, or for ever; a deadline in the past returns an event that has already
    /// arrived.
    ///
    /// An end by the server, also by a restart, is [`Error::Closed`]; an error of decoding is [`Error::Server`]. Either
    /// ends the stream.
    pub fn next(&mut self, deadline: Option<Instant>) -> Result<Event<'_>, Error> {
        if self.session.is_poisoned() {
            return Err(self.ended());
        }
        match self.kind(Wait::deadline(deadline)) {
            Ok(Kind::Idle) => Ok(Event::Idle),
            Ok(Kind::Keepalive { end, clock, reply }) => Ok(Event::Keepalive { end, clock, reply }),
            Ok(Kind::Data { start, end, clock, frame }) => {
                let body = &self.session.receiver.body(&frame)[DATA_HEAD..];
                Ok(Event::XLogData { start, end, clock, body })
            }
            Err(error) => Err(self.session.fail(error)),
        }
    }

    /// Another thread saw the end first: the server's last error may still be in the buffer.
    fn ended(&mut self) -> Error {
        match self.session.fail(Error::Closed(None)) {
            Error::Closed(Some(words)) => Error::Closed(Some(words)),
            _ => Error::Poisoned,
        }
    }

    #[inline]
    fn kind(&mut self, wait: Wait) -> Result<Kind, Error> {
        loop {
            let Some(frame) = self.session.receiver.frame(wait)? else { return Ok(Kind::Idle) };
            if frame.tag != b'd' {
                self.other(&frame)?;
                continue;
            }
            let body = self.session.receiver.body(&frame);
            match body.split_first() {
                Some((b'w', rest)) => {
                    let ([start, end, clock], _) = numbers(rest)?;
                    let (start, end) = (PgLsn(start), PgLsn(end));
                    return Ok(Kind::Data { start, end, clock: clock as i64, frame });
                }
                Some((b'k', rest)) => {
                    let ([end, clock], rest) = numbers(rest)?;
                    let [reply @ (0 | 1)] = *rest else { return Err(Error::Protocol("a keepalive of another length")) };
                    return Ok(Kind::Keepalive { end: PgLsn(end), clock: clock as i64, reply: reply == 1 });
                }
                _ => return Err(Error::Protocol("replication data of an unknown kind")),
            }
        }
    }

    /// Messages other than data: notices, and the end.
    #[cold]
    fn other(&mut self, frame: &Frame) -> Result<(), Error> {
        match frame.tag {
            b'E' => {
                let error = Box::new(self.session.receiver.db_error(frame)?);
                Err(if error.is_fatal() { Error::Closed(Some(error)) } else { Error::Server(error) })
            }
            // A server that shuts down ends the command when everything is sent.
            b'c' | b'C' | b'Z' => Err(Error::Closed(None)),
            _ if self.session.note(frame)? => Ok(()),
            _ => Err(Error::Protocol("not a part of a stream")),
        }
    }

    /// See [`Acker::ack`].
    pub fn ack(&self, written: PgLsn, flushed: PgLsn, applied: PgLsn, reply: bool) -> Result<(), Error> {
        self.acker.ack(written, flushed, applied, reply)
    }

    /// A handle for other threads; it outlives the stream, and then fails.
    pub fn acker(&self) -> Acker {
        self.acker.clone()
    }

    /// Ends the stream in order and returns the connection, with the slot free. Undelivered events are discarded.
    pub fn stop(mut self, deadline: Instant) -> Result<Conn, Error> {
        self.session.check()?;
        frontend::copy_done(self.session.out());
        self.session.flush()?;
        let (wait, mut failed) = (Wait::Until(deadline), None);
        loop {
            let frame = match self.session.receiver.frame(wait) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Err(self.session.fail(Error::Timeout(std::time::Duration::ZERO))),
                Err(error) => return Err(self.session.fail(error)),
            };
            match frame.tag {
                b'd' | b'c' | b'C' => {}
                b'Z' => {
                    self.session.set_status(&frame)?;
                    return failed.map_or(Ok(Conn { session: self.session }), Err);
                }
                _ => match self.other(&frame) {
                    Err(Error::Server(error)) => failed = Some(Error::Server(error)),
                    Err(error) => return Err(self.session.fail(error)),
                    Ok(()) => {}
                },
            }
        }
    }
}

/// Numbers of 8 bytes, and the rest.
#[inline]
fn numbers<const N: usize>(mut bytes: &[u8]) -> Result<([u64; N], &[u8]), Error> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let (head, rest) = bytes.split_first_chunk().ok_or(Error::Protocol("replication data that is cut off"))?;
        (*number, bytes) = (u64::from_be_bytes(*head), rest);
    }
    Ok((numbers, bytes))
}
