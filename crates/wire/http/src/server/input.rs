//! Bytes of requests that are not whole yet.
//!
//! Every first read goes to a buffer of the event loop. Only the rest that its complete requests leave moves to the
//! connection's own buffer, which is charged to the server's budget, and is dropped with its last byte.

use crate::framing::{Framer, Refusal};
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes of one read for a connection without a buffer.
const SCRATCH: usize = 64 * 1024;
const ROOM_MIN: usize = 4 * 1024;

/// Memory for incomplete requests, of all event loops together.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(super) const fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    fn take(&self, bytes: usize) -> Result<(), Refusal> {
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes > self.max {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Refusal::NO_ROOM);
        }
        Ok(())
    }
}

/// A buffer, and the request in it that is being framed.
pub(super) struct Input {
    pub(super) buf: Vec<u8>,
    /// The start of the present request.
    pub(super) at: usize,
    pub(super) framer: Framer,
    /// Length of the present request in bytes, if known.
    pub(super) whole: Option<usize>,
    /// Whether its body has begun.
    pub(super) body_begun: bool,
    /// Bytes of the body since then, or since the last check of its rate.
    pub(super) of_body: usize,
    /// The budget this is charged to; the event loop's own buffer is charged to none.
    budget: Option<Arc<Budget>>,
    charged: usize,
}

impl Input {
    pub(super) fn scratch() -> Self {
        Self {
            buf: Vec::with_capacity(SCRATCH),
            at: 0,
            framer: Framer::new(),
            whole: None,
            body_begun: false,
            of_body: 0,
            budget: None,
            charged: 0,
        }
    }

    pub(super) fn is_scratch(&self) -> bool {
        self.budget.is_none()
    }

    /// Bytes that are not handled yet.
    pub(super) fn rest(&self) -> usize {
        self.buf.len() - self.at
    }

    pub(super) fn request_done(&mut self, used: usize) {
        (self.at, self.framer, self.whole, self.body_begun) = (self.at + used, Framer::new(), None, false);
    }

    /// Forgets everything.
    pub(super) fn reset(&mut self) {
        (self.at, self.framer, self.whole, self.body_begun) = (0, Framer::new(), None, false);
        self.buf.clear();
    }

    /// Moves the rest, with the state of its framing, to a buffer of the connection.
    pub(super) fn split_rest(&mut self, budget: &Arc<Budget>) -> Result<Box<Self>, Refusal> {
        let rest = self.rest();
        budget.take(rest)?;
        let kept = Self {
            buf: self.buf[self.at..].to_vec(),
            at: 0,
            framer: std::mem::replace(&mut self.framer, Framer::new()),
            whole: self.whole.take(),
            body_begun: self.body_begun,
            of_body: 0,
            budget: Some(Arc::clone(budget)),
            charged: rest,
        };
        self.reset();
        Ok(Box::new(kept))
    }

    /// Makes room for a read. The buffer grows with the bytes that arrive, not with the announced length.
    pub(super) fn make_room(&mut self) -> Result<(), Refusal> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let (len, capacity) = (self.buf.len(), self.buf.capacity());
        let missing = self.whole.map_or(usize::MAX, |whole| whole.saturating_sub(len)).max(1);
        if capacity - len >= missing.min(ROOM_MIN) {
            return Ok(());
        }
        let step = if self.framer.in_body() { len.max(SCRATCH) } else { ROOM_MIN };
        let target = len + missing.min(step);
        budget.take(target - self.charged)?;
        self.charged = target;
        self.buf.reserve_exact(target - len);
        Ok(())
    }

    /// Reads once. `None`: no bytes are available; `Some(0)`: the input has ended.
    pub(super) fn receive(&mut self, socket: &OwnedFd) -> io::Result<Option<usize>> {
        match recv(socket, spare_capacity(&mut self.buf), RecvFlags::DONTWAIT) {
            Ok((_, received)) => Ok(Some(received)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.used.fetch_sub(self.charged, Ordering::Relaxed);
        }
    }
}
