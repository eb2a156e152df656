//! Output of connections.
//!
//! A [`Gather`] is the output of one turn of a connection; it belongs to the event loop and is empty between turns.
//! Bytes that the socket does not take go to the connection's [`Backlog`].

use crate::SharedPages;
use bytes::Bytes;
use rustix::fs::sendfile;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The most pieces that one system call takes (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;
/// Pieces up to this size are copied: cheaper than a separate element in the call.
const COPY_MAX: usize = 256;
/// Pieces up to this size are copied too while little has gathered: then the output is one plain buffer.
const COPY_FIRST: usize = 2048;
const LITTLE: usize = 4096;
const FEW: usize = 8;
/// The most bytes that one connection sends in one turn: a socket can take megabytes, and the other connections would
/// wait for the copying. The rest follows in the connection's next turn.
pub(super) const TURN_MAX: usize = 256 << 10;
/// Sending this many bytes from shared pages takes about as long as copying one.
const PAGED_PER_COPIED: usize = 4;
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Head text and small pieces, copied one after the other, interleaved with large shared pieces.
#[derive(Debug, Default)]
pub(super) struct Gather {
    text: Vec<u8>,
    /// The start of the text that no piece covers yet.
    open: usize,
    pieces: Vec<Piece>,
    shared: usize,
}

#[derive(Debug)]
enum Piece {
    Text(Range<usize>),
    Shared(Bytes),
}

impl Gather {
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_MAX || (bytes.len() <= COPY_FIRST && self.len() <= LITTLE) {
            return self.text.extend_from_slice(&bytes);
        }
        self.end_text();
        self.shared += bytes.len();
        self.pieces.push(Piece::Shared(bytes));
    }

    fn end_text(&mut self) {
        if self.open < self.text.len() {
            self.pieces.push(Piece::Text(self.open..self.text.len()));
            self.open = self.text.len();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.text.len() + self.shared
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.pieces.clear();
        (self.open, self.shared) = (0, 0);
        self.text.shrink_to(64 * 1024);
        self.pieces.shrink_to(1024);
    }

    /// Everything, for a caller that sends it in another way, such as TLS.
    pub(super) fn slices(&mut self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.end_text();
        self.pieces.iter().map(|piece| match piece {
            Piece::Text(range) => &self.text[range.clone()],
            Piece::Shared(bytes) => bytes,
        })
    }

    /// Sends the bytes that the socket takes; returns how many.
    pub(super) fn send(&mut self, socket: &OwnedFd, pages: &SharedPages) -> io::Result<usize> {
        if self.pieces.is_empty() {
            return retry(|| send(socket, &self.text[..self.text.len().min(TURN_MAX)], FLAGS));
        }
        let slices = self.slices();
        let count = slices.len();
        send_all(socket, slices, count, pages)
    }

    /// Moves all but the first `sent` bytes to `backlog`.
    pub(super) fn keep(&mut self, mut sent: usize, backlog: &mut Backlog) {
        self.end_text();
        for piece in self.pieces.drain(..) {
            let len = match &piece {
                Piece::Text(range) => range.len(),
                Piece::Shared(bytes) => bytes.len(),
            };
            let skip = sent.min(len);
            sent -= skip;
            if skip < len {
                backlog.push(match piece {
                    Piece::Text(range) => Bytes::copy_from_slice(&self.text[range.start + skip..range.end]),
                    Piece::Shared(bytes) => bytes.slice(skip..),
                });
            }
        }
        self.clear();
    }
}

/// Output of one connection that waits for its socket.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Backlog {
    fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        self.pieces.push_back(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sends the bytes that the socket takes; returns how many.
    pub(super) fn send(&mut self, socket: &OwnedFd, pages: &SharedPages) -> io::Result<usize> {
        let sent = send_all(socket, self.slices(), self.pieces.len(), pages)?;
        self.advance(sent);
        Ok(sent)
    }

    /// Everything, for a caller that sends it in another way and then calls [`Backlog::advance`].
    pub(super) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|bytes| &bytes[..])
    }

    /// Forgets the first `sent` bytes.
    pub(super) fn advance(&mut self, sent: usize) {
        self.len -= sent;
        let mut left = sent;
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > left {
                bytes::Buf::advance(first, left);
                break;
            }
            left -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// Calls until everything is sent, the socket is full, or the turn is over.
fn send_all<'a>(
    socket: &OwnedFd,
    slices: impl Iterator<Item = &'a [u8]>,
    count: usize,
    pages: &SharedPages,
) -> io::Result<usize> {
    let (mut total, mut left) = (0, TURN_MAX);
    let mut slices = slices.map_while(|slice| {
        let found = pages.find(slice);
        let cost = if found.is_some() { PAGED_PER_COPIED } else { 1 };
        let taken = slice.len().min(left * cost);
        left -= taken / cost;
        (taken > 0 || slice.is_empty()).then(|| (&slice[..taken], found))
    });
    // The few pieces of a live reader's event need no allocation.
    let mut few = [IoSlice::new(&[]); FEW];
    let mut many = if count > FEW { Vec::with_capacity(count.min(PIECES_MAX)) } else { Vec::new() };
    loop {
        many.clear();
        // A slice in a file ends the batch before it.
        let mut in_file = None;
        let mut copied = slices.by_ref().map_while(|(slice, found)| {
            in_file = found.map(|found| (found, slice.len()));
            in_file.is_none().then(|| IoSlice::new(slice))
        });
        let batch = if count > FEW {
            many.extend(copied.by_ref().take(PIECES_MAX));
            &many[..]
        } else {
            let filled = few.iter_mut().zip(copied).map(|(slot, slice)| *slot = slice).count();
            &few[..filled]
        };
        if batch.is_empty() && in_file.is_none() {
            return Ok(total);
        }
        if !batch.is_empty() {
            let asked: usize = batch.iter().map(|slice| slice.len()).sum();
            let flags = if in_file.is_some() { FLAGS | SendFlags::MORE } else { FLAGS };
            let sent = retry(|| sendmsg(socket, batch, &mut SendAncillaryBuffer::default(), flags))?;
            total += sent;
            // A call that takes less than it was given has filled the socket.
            if sent < asked {
                return Ok(total);
            }
        }
        if let Some((found, asked)) = in_file {
            let mut offset = found.offset;
            let sent = retry(|| sendfile(socket, found.file(), Some(&mut offset), asked))?;
            total += sent;
            if sent < asked {
                return Ok(total);
            }
        }
    }
}

/// A full socket takes 0.
fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Ok(sent) => return Ok(sent),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}
