//! Work for the threads that own the local disk: reads first, then fills. Both are bounded; at the bound the work is
//! refused, and the caller goes to the remote storage, or does not cache.

use super::format::BlockKey;
use super::gather::Gather;
use super::index::Place;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_base::ObjectId;

/// One block to read for one waiting read.
pub(crate) struct LocalRead {
    pub(crate) key: BlockKey,
    pub(crate) place: Place,
    pub(crate) gather: Arc<Gather>,
}

/// Fetched or written bytes to keep: blocks of one object from `first` on.
pub(crate) struct Fill {
    pub(crate) object: ObjectId,
    pub(crate) first: u32,
    pub(crate) bytes: Bytes,
    pub(crate) object_len: Option<u64>,
}

impl Fill {
    /// The blocks in it, each with its bytes.
    pub(crate) fn blocks(&self, block_bytes: u64) -> impl Iterator<Item = (BlockKey, Bytes)> {
        let (object, first, bytes) = (self.object, self.first, self.bytes.clone());
        (0..bytes.len().div_ceil(block_bytes as usize)).map(move |n| {
            let from = n * block_bytes as usize;
            let to = bytes.len().min(from + block_bytes as usize);
            (BlockKey { object, block: first + n as u32 }, bytes.slice(from..to))
        })
    }
}

pub(crate) enum Job {
    Read(LocalRead),
    Fill(Fill),
}

pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
    idle: Condvar,
    reads_max: usize,
    fill_bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    reads: VecDeque<LocalRead>,
    fills: VecDeque<Fill>,
    fill_bytes: usize,
    /// Jobs that were taken and are not done.
    working: usize,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(reads_max: usize, fill_bytes_max: usize) -> Self {
        let (more, idle) = (Condvar::new(), Condvar::new());
        Self { waiting: Mutex::default(), more, idle, reads_max, fill_bytes_max }
    }

    /// Gives the job back if too many wait, or if the queue is closed.
    pub(crate) fn push_read(&self, read: LocalRead) -> Result<(), LocalRead> {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.reads.len() >= self.reads_max {
            return Err(read);
        }
        waiting.reads.push_back(read);
        self.more.notify_one();
        Ok(())
    }

    /// Like [`Queue::push_read`]. Bytes count until they are written.
    pub(crate) fn push_fill(&self, fill: Fill) -> Result<(), Fill> {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.fill_bytes + fill.bytes.len() > self.fill_bytes_max {
            return Err(fill);
        }
        waiting.fill_bytes += fill.bytes.len();
        waiting.fills.push_back(fill);
        self.more.notify_one();
        Ok(())
    }

    /// The next job; waits for one. `None` once the queue is closed and empty.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.take() {
                Some(job) => return Some(job),
                None if waiting.closed => return None,
                None => self.more.wait(&mut waiting),
            }
        }
    }

    pub(crate) fn try_next(&self) -> Option<Job> {
        self.waiting.lock().take()
    }

    /// A job that was taken is done; `filled` is how many bytes it had to write.
    pub(crate) fn done(&self, filled: usize) {
        let mut waiting = self.waiting.lock();
        waiting.working -= 1;
        waiting.fill_bytes -= filled;
        if waiting.is_idle() {
            self.idle.notify_all();
        }
    }

    /// Waits until nothing is queued and nothing is being done.
    pub(crate) fn wait_idle(&self) {
        let mut waiting = self.waiting.lock();
        while !waiting.is_idle() {
            self.idle.wait(&mut waiting);
        }
    }

    /// Refuses new work; waiting work is still done.
    pub(crate) fn close(&self) {
        self.waiting.lock().closed = true;
        self.more.notify_all();
    }
}

impl Waiting {
    fn take(&mut self) -> Option<Job> {
        let job = match self.reads.pop_front() {
            Some(read) => Job::Read(read),
            None => Job::Fill(self.fills.pop_front()?),
        };
        self.working += 1;
        Some(job)
    }

    fn is_idle(&self) -> bool {
        self.working == 0 && self.reads.is_empty() && self.fills.is_empty()
    }
}
