//! One connection: bytes to send, outstanding requests, and the position in the present answer.

use super::{Nanos, Work};
use crate::http::{self, Body};
use crate::socket;
use anyhow::Context;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) out: Vec<u8>,
    out_at: usize,
    /// Sending has to wait until the socket takes more.
    pub(super) wants_out: bool,
    /// Due time and tag of each outstanding request.
    pub(super) waiting: VecDeque<(Nanos, u32)>,
    /// Due time of the operation whose next request is still to be sent.
    pub(super) goes_on: Option<Nanos>,
    /// The beginning of a head that has not come as a whole.
    partial: Vec<u8>,
    /// The answer whose body is arriving.
    answer: Option<(u16, Body)>,
}

impl Connection {
    pub(super) fn open(server: SocketAddr, number: usize) -> anyhow::Result<Self> {
        Ok(Self {
            socket: socket::open(server, number)?,
            out: Vec::new(),
            out_at: 0,
            wants_out: false,
            waiting: VecDeque::new(),
            goes_on: None,
            partial: Vec::new(),
            answer: None,
        })
    }

    pub(super) fn flush(&mut self) -> rustix::io::Result<()> {
        while self.out_at < self.out.len() {
            match send(&self.socket, &self.out[self.out_at..], SendFlags::NOSIGNAL) {
                Ok(many) => self.out_at += many,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    self.wants_out = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.out_at = 0;
        self.wants_out = false;
        Ok(())
    }
}

/// Bytes that came, and how far they were understood.
pub(super) struct Input<'a> {
    fresh: &'a [u8],
    /// Instead of `fresh`, if the last ones ended inside of a head.
    joined: Vec<u8>,
    at: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(connection: &mut Connection, fresh: &'a [u8]) -> Self {
        let mut joined = std::mem::take(&mut connection.partial);
        if !joined.is_empty() {
            joined.extend_from_slice(fresh);
        }
        Self { fresh, joined, at: 0 }
    }

    /// The end of the next answer in these bytes: when it was due, its tag and its status.
    pub(super) fn next<W: Work>(
        &mut self,
        i: usize,
        now: Nanos,
        connection: &mut Connection,
        work: &mut W,
    ) -> anyhow::Result<Option<(Nanos, u32, u16)>> {
        let bytes = if self.joined.is_empty() { self.fresh } else { &self.joined };
        if connection.answer.is_none() {
            let Some(head) = http::head(&bytes[self.at..])? else {
                connection.partial.extend_from_slice(&bytes[self.at..]);
                self.at = bytes.len();
                return Ok(None);
            };
            work.head(i, head.status, &bytes[self.at..self.at + head.bytes]);
            self.at += head.bytes;
            connection.answer = Some((head.status, head.body));
        }
        let Some((status, body)) = &mut connection.answer else { return Ok(None) };
        let &(due, tag) = connection.waiting.front().context("an answer that nothing asked for")?;
        let rest = &bytes[self.at..];
        let over = match body {
            Body::Bytes(left) => {
                let many = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                if many > 0 {
                    work.body(i, tag, &rest[..many], now);
                }
                self.at += many;
                *left -= many as u64;
                *left == 0
            }
            Body::Chunked(chunks) => {
                self.at += chunks.feed(rest, |piece| work.body(i, tag, piece, now))?;
                chunks.done()
            }
        };
        if !over {
            return Ok(None);
        }
        let status = *status;
        connection.answer = None;
        connection.waiting.pop_front();
        Ok(Some((due, tag, status)))
    }
}
