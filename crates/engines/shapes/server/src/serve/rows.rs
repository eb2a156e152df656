//! The rows of a large answer, read while they are sent: however large a chunk of a snapshot is, and however many
//! clients fetch one, little of it is in memory.

use super::state::ServeState;
use crate::store::read_from;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::LogId;
use thalweg_http::{BodySource, Context, Fetch, Pull, Sink};
use thalweg_log::{Chunk, ChunkRead, ReadError};

const AGAIN: Duration = Duration::from_millis(20);

/// An array of the rows between two positions of a log, and of its ending.
pub(crate) struct RowsBody {
    inner: Arc<ServeState>,
    log: LogId,
    at: u64,
    upto: u64,
    begun: bool,
    /// The ending of the array. Empty: the last row's comma is left out instead.
    tail: Bytes,
    reading: Option<Fetch<Result<Chunk, ReadError>>>,
}

impl RowsBody {
    /// `tail` are messages without a comma after the last one.
    pub(crate) fn new(inner: Arc<ServeState>, log: LogId, from: u64, upto: u64, tail: Vec<u8>) -> Self {
        Self { inner, log, at: from, upto, begun: false, tail: tail.into(), reading: None }
    }

    /// The array's length. There must be a row.
    pub(crate) fn len(&self) -> u64 {
        let rows = self.upto - self.at;
        let messages = if self.tail.is_empty() { rows.saturating_sub(1) } else { rows + self.tail.len() as u64 };
        messages + 2
    }

    fn push(&mut self, chunk: Chunk, sink: &mut Sink<'_>) -> Pull {
        if !self.begun {
            self.begun = true;
            sink.push(Bytes::from_static(b"["));
        }
        let mut left = usize::try_from(self.upto - self.at).unwrap_or(usize::MAX);
        if self.tail.is_empty() {
            left -= 1;
        }
        for mut part in chunk.parts {
            part.truncate(left);
            left -= part.len();
            sink.push(part);
        }
        self.at = chunk.end.0;
        if self.at < self.upto {
            return Pull::More;
        }
        sink.push(std::mem::take(&mut self.tail));
        sink.push(Bytes::from_static(b"]"));
        Pull::End
    }

    fn told(&mut self, read: Result<Chunk, ReadError>, sink: &mut Sink<'_>) -> Pull {
        match read {
            // Nothing more would come.
            Ok(chunk) if chunk.end.0 <= self.at => Pull::Abort,
            Ok(chunk) => self.push(chunk, sink),
            // The base was given up during the read, or the disk is at fault: the client's next request tells which.
            Err(_) => Pull::Abort,
        }
    }
}

impl BodySource for RowsBody {
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        if let Some(fetch) = self.reading.take() {
            return match fetch.take(|| cx.waker()) {
                Some(read) => self.told(read, sink),
                None => {
                    self.reading = Some(fetch);
                    Pull::Wait
                }
            };
        }
        if self.inner.server.changes.is_memory_short() {
            cx.wake_after(AGAIN);
            return Pull::Wait;
        }
        let from = read_from(self.log, self.at..self.upto);
        if let Some(read) = self.inner.server.changes.store.try_chunk(from) {
            return self.told(read, sink);
        }
        let (server, mut read) = (Arc::clone(&self.inner.server), ChunkRead::new(from));
        match self.inner.io.steps(move || read.step(server.changes.store.logs())) {
            Some(fetch) => {
                self.reading = Some(fetch);
                self.pull(cx, sink)
            }
            // Too many reads wait for the disk.
            None => {
                cx.wake_after(AGAIN);
                Pull::Wait
            }
        }
    }
}
