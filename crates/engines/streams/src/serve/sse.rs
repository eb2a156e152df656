//! SSE responses: content as it becomes visible, each data event followed by its own control event (protocol section
//! 5.8).

use super::chunk::{ChunkAnswer, Content, Place, Reading, Span};
use super::engine::{Engine, Watch};
use super::frames::Frame;
use super::head::Head;
use super::stats::{add, sub};
use super::turn::{Answer, Feed, Turn};
use crate::error::Refusal;
use crate::format::offset::Position;
use crate::format::sse::{Control, Encoding, FrameKey, KEEP_ALIVE, control_event, data_event};
use crate::state::cursor;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Millis;
use thalweg_http::{Body, Pull};
use thalweg_log::ReadError;

struct SseFeed {
    engine: Arc<Engine>,
    /// Content before this span has been sent.
    span: Span,
    encoding: Encoding,
    /// The last cursor sent, since cursors never go backwards; before the first, the cursor that the client echoed.
    cursor: Option<u64>,
    ends: Millis,
    spoke: Millis,
    /// No control event was sent yet.
    greet: bool,
    ended: bool,
    watch: Option<Watch>,
    /// The read of the following content from a device.
    reading: Option<Reading>,
}

/// Opens an SSE response at the place.
pub(crate) fn open(engine: &Arc<Engine>, place: Place, echoed: Option<u64>, now: Millis) -> Answer {
    let encoding = Encoding::from(place.content_type.kind());
    let mut head = Head::new(200).content_type("text/event-stream").line(b"Cache-Control: ", engine.config.no_cache());
    if encoding == Encoding::Base64 {
        head.put(b"Stream-SSE-Data-Encoding: ", b"base64");
    }
    add(&engine.counters.sse_waiters, 1);
    let after = place.after;
    let feed = SseFeed {
        ends: now.plus(millis(engine.config.sse_lifetime)),
        engine: Arc::clone(engine),
        span: place.span,
        encoding,
        cursor: echoed,
        spoke: now,
        greet: true,
        ended: false,
        watch: None,
        reading: None,
    };
    Answer::Live(after, head.finish(Body::Empty), Box::new(feed))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl SseFeed {
    fn next_cursor(&self, now: Millis) -> u64 {
        match self.cursor {
            Some(last) if !self.greet => last.max(cursor::next(now, None)),
            echoed => cursor::next(now, echoed),
        }
    }

    /// A control event that says where the next event starts.
    fn control(&self, next: Position, cursor: u64) -> Vec<u8> {
        let up_to_date = next.offset == self.span.upto.offset;
        control_event(&Control { next, cursor, up_to_date, closed: self.span.closed && up_to_date })
    }

    fn spoke(&mut self, cursor: u64, now: Millis) {
        (self.cursor, self.spoke, self.greet) = (Some(cursor), now, false);
    }

    /// Sends the data event that follows, with its control event; the place moves on.
    fn send(&mut self, frame: Frame, cursor: u64, turn: &mut Turn<'_>, put: &mut dyn FnMut(Bytes)) -> Pull {
        add(&self.engine.counters.reads, 1);
        add(&self.engine.counters.read_bytes, frame.end.since(self.span.from.offset));
        put(frame.event);
        self.span.from = self.engine.position_in(&self.span, frame.end);
        self.spoke(cursor, turn.now);
        if frame.end < self.span.upto.offset {
            return Pull::More;
        }
        self.ended = self.span.closed;
        // Content that came after the check wakes the watch.
        if self.ended { Pull::End } else { self.wait(turn) }
    }

    /// The content as the next two events, for all readers at this place.
    fn encode(&mut self, content: &Content, cursor: u64) -> Frame {
        let Content { from, chunk } = content;
        if *from != self.span.from.offset {
            self.span.from = self.engine.position_in(&self.span, *from);
        }
        let key = self.key(cursor);
        let next = self.engine.position_in(&self.span, chunk.end);
        let mut event = data_event(self.encoding, &chunk.parts);
        event.extend_from_slice(&self.control(next, key.cursor));
        let frame = Frame { event: self.engine.logs.hold(event.into()), end: chunk.end };
        self.engine.frames.put(key, &frame);
        frame
    }

    fn key(&self, cursor: u64) -> FrameKey {
        let Span { log, from, upto, closed, .. } = self.span;
        FrameKey { log, from: from.offset, upto: upto.offset, closed, encoding: self.encoding, cursor }
    }

    /// Reads the newly visible state behind the place; returns whether the stream still exists.
    fn refresh(&mut self, turn: &Turn<'_>) -> bool {
        let log = self.span.log;
        let mut guard = self.engine.logs.lock_logs(&[log], &[]);
        if self.watch.is_none() {
            self.watch = self.engine.watch(&mut guard, log, turn.waker());
        }
        let Some(view) = guard.view(log).filter(|view| !view.attachment.soft_deleted) else { return false };
        self.span = Span::new(&view, self.span.from.offset, self.engine.logs.durable());
        true
    }

    fn wait(&self, turn: &mut Turn<'_>) -> Pull {
        let next = self.ends.min(self.spoke.plus(millis(self.engine.config.sse_keep_alive)));
        turn.wake_after = Some(Duration::from_millis(next.since(turn.now)));
        Pull::Wait
    }
}

impl Feed for SseFeed {
    fn pull(&mut self, turn: &mut Turn<'_>, put: &mut dyn FnMut(Bytes)) -> Pull {
        if self.ended {
            return Pull::End;
        }
        if let Some(reading) = self.reading.take() {
            return match reading.take(|| turn.waker()) {
                None => {
                    self.reading = Some(reading);
                    Pull::Wait
                }
                Some(Ok(content)) => {
                    let cursor = self.next_cursor(turn.now);
                    let frame = self.encode(&content, cursor);
                    self.send(frame, cursor, turn, put)
                }
                Some(Err(ReadError::Trimmed { .. })) => Pull::End,
                Some(Err(_)) => Pull::Abort,
            };
        }
        if turn.now >= self.ends || turn.stopping || self.engine.is_over() || !self.refresh(turn) {
            return Pull::End;
        }
        if !self.span.is_empty() {
            let cursor = self.next_cursor(turn.now);
            if let Some(frame) = self.engine.frames.get(&self.key(cursor)) {
                return self.send(frame, cursor, turn, put);
            }
            return match self.engine.ask(&self.span) {
                Ok(ChunkAnswer::Here(content)) => {
                    let frame = self.encode(&content, cursor);
                    self.send(frame, cursor, turn, put)
                }
                Ok(ChunkAnswer::Reading(reading)) => {
                    self.reading = Some(reading);
                    self.pull(turn, put)
                }
                Ok(ChunkAnswer::Failed(ReadError::Trimmed { .. })) => Pull::End,
                Err(Refusal::Unsent) => {
                    turn.wake_after = Some(Duration::from_secs(1));
                    Pull::Wait
                }
                // The client reconnects with its last offset, and learns the reason from the status.
                Ok(ChunkAnswer::Failed(_)) | Err(_) => Pull::Abort,
            };
        }
        self.ended = self.span.closed;
        if self.ended || self.greet {
            let cursor = self.next_cursor(turn.now);
            put(self.control(self.span.from, cursor).into());
            self.spoke(cursor, turn.now);
        } else if turn.now.since(self.spoke) >= millis(self.engine.config.sse_keep_alive) {
            put(Bytes::from_static(KEEP_ALIVE));
            self.spoke = turn.now;
        }
        if self.ended { Pull::End } else { self.wait(turn) }
    }
}

impl Drop for SseFeed {
    fn drop(&mut self) {
        sub(&self.engine.counters.sse_waiters, 1);
    }
}
