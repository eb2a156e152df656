//! Messages in the receive buffer.

use super::error::{DbError, Error};
use super::link::{Link, Sealed, Wait};
use bytes::{BufMut, BytesMut};
use postgres_protocol::message::backend::Message;
use std::ops::Range;
use std::sync::Arc;

/// One receive takes at most this much, and as many messages as that holds.
const BUFFER: usize = 256 * 1024;
/// A larger buffer is given back when its message is done.
const BUFFER_KEPT: usize = 1 << 20;
/// Tag and length.
const HEAD: usize = 5;

/// One message: its body is at `body` of the buffer until the next message is read.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) tag: u8,
    pub(super) body: Range<usize>,
}

pub(super) struct Receiver {
    link: Arc<Link>,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    sealed: Sealed,
    /// The largest message (bytes).
    pub(super) message_max: usize,
}

impl Receiver {
    pub(super) fn new(link: Arc<Link>, message_max: usize) -> Self {
        Self { link, buf: vec![0; BUFFER], start: 0, end: 0, sealed: Sealed::default(), message_max }
    }

    /// The next message; `None` if it is not complete in time, and then a later call continues it.
    #[inline]
    pub(super) fn frame(&mut self, wait: Wait) -> Result<Option<Frame>, Error> {
        loop {
            let need = match self.head()? {
                Some((tag, total)) if self.end - self.start >= total => {
                    let body = self.start + HEAD..self.start + total;
                    self.start += total;
                    return Ok(Some(Frame { tag, body }));
                }
                Some((_, total)) => total,
                None => HEAD,
            };
            self.make_room(need);
            match self.link.receive(&mut self.buf[self.end..], &mut self.sealed, wait)? {
                None => return Ok(None),
                Some(0) => return Err(Error::Closed(None)),
                Some(n) => self.end += n,
            }
        }
    }

    /// Tag and whole length of the next message, once they have arrived.
    #[inline]
    fn head(&self) -> Result<Option<(u8, usize)>, Error> {
        let [tag, a, b, c, d, ..] = self.buf[self.start..self.end] else { return Ok(None) };
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if len < 4 {
            return Err(Error::Protocol("a message of negative length"));
        }
        if len > self.message_max {
            return Err(Error::TooLarge { what: "a message", max: self.message_max });
        }
        Ok(Some((tag, len + 1)))
    }

    /// Makes room for at least one byte. A full buffer doubles, so that it grows with received bytes and not with
    /// announced ones.
    fn make_room(&mut self, need: usize) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buf.len() > BUFFER_KEPT {
                self.buf = vec![0; BUFFER];
            }
        }
        if self.start + need > self.buf.len() || self.end == self.buf.len() {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buf.len() {
            let len = need.min(self.buf.len() * 2).max(self.buf.len() + 1);
            self.buf.resize(len, 0);
        }
    }

    #[inline]
    pub(super) fn body(&self, frame: &Frame) -> &[u8] {
        &self.buf[frame.body.clone()]
    }

    /// The message in the codec library's form: a copy, for rare messages.
    pub(super) fn message(&self, frame: &Frame) -> Result<Message, Error> {
        let body = self.body(frame);
        let mut bytes = BytesMut::with_capacity(HEAD + body.len());
        bytes.put_u8(frame.tag);
        bytes.put_u32(body.len() as u32 + 4);
        bytes.put_slice(body);
        let message = Message::parse(&mut bytes).map_err(|_| Error::Protocol("a message that cannot be read"))?;
        message.ok_or(Error::Protocol("a message that is not whole"))
    }

    pub(super) fn db_error(&self, frame: &Frame) -> Result<DbError, Error> {
        match self.message(frame)? {
            Message::ErrorResponse(body) => DbError::read(body.fields()),
            Message::NoticeResponse(body) => DbError::read(body.fields()),
            _ => Err(Error::Protocol("an error that is none")),
        }
    }

    /// The server's last error before the session ended, if any.
    pub(super) fn last_words(&mut self, wait: Wait) -> Option<Box<DbError>> {
        while let Ok(Some(frame)) = self.frame(wait) {
            if frame.tag == b'E' {
                return self.db_error(&frame).ok().map(Box::new);
            }
        }
        None
    }
}
