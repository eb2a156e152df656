//! SSE responses: content as it becomes visible, each data event followed by its own control event (protocol section 5.8).

use super::chunk::{Asked, Place, Reading};
use super::engine::{Engine, Watch, closed_visibly};
use super::frames::Frame;
use super::head::Head;
use super::stats::{add, sub};
use super::turn::{Answer, Feed, Turn};
use crate::format::sse::{Control, Encoding, FrameKey, KEEP_ALIVE, control_event, data_event};
use crate::state::cursor;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::Millis;
use thalweg_log::Chunk;
use thalweg_wire::http::{Body, Pull};

struct SseFeed {
    engine: Arc<Engine>,
    /// What was sent ends where this starts.
    place: Place,
    encoding: Encoding,
    echoed: Option<u64>,
    /// The last cursor that was sent: they never go backwards.
    cursor: Option<u64>,
    ends: Millis,
    spoke: Millis,
    /// Nothing was said of the tail yet.
    greet: bool,
    ended: bool,
    watch: Option<Watch>,
    reading: Option<(Place, Reading)>,
}

/// Opens an SSE response at the place.
pub(crate) fn open(engine: &Arc<Engine>, place: Place, echoed: Option<u64>, now: Millis) -> Answer {
    let encoding = Encoding::from(place.content_type.kind());
    let mut head = Head::new(200).content_type("text/event-stream").line(b"Cache-Control: ", b"no-cache");
    if encoding == Encoding::Base64 {
        head.put(b"Stream-SSE-Data-Encoding: ", b"base64");
    }
    add(&engine.counters.sse_waiters, 1);
    let after = place.after;
    let feed = SseFeed {
        ends: now.plus(millis(engine.config.sse_lifetime)),
        engine: Arc::clone(engine),
        place,
        encoding,
        echoed,
        cursor: None,
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
    fn control(&mut self, closed: bool, now: Millis, out: &mut Vec<Bytes>) {
        let cursor = match self.cursor {
            Some(last) => last.max(cursor::next(now, None, 0)),
            None => cursor::next(now, self.echoed, self.engine.random()),
        };
        self.cursor = Some(cursor);
        let (next, up_to_date) = (self.place.from, self.place.from.offset == self.place.upto.offset);
        out.push(control_event(&Control { next, cursor, up_to_date, closed }));
        self.spoke = now;
        self.greet = false;
    }

    /// Sends a data event and its control event; the place moves on.
    fn send(&mut self, place: Place, frame: Frame, now: Millis, out: &mut Vec<Bytes>) -> Pull {
        add(&self.engine.counters.reads, 1);
        add(&self.engine.counters.read_bytes, frame.end.since(place.from.offset));
        out.push(frame.event);
        let from = self.engine.position_in(&place, frame.end);
        let up_to_date = frame.end == place.upto.offset;
        let closed = place.closed && up_to_date;
        self.place = Place { from, ..place };
        self.control(closed, now, out);
        self.ended = closed;
        if closed { Pull::End } else { Pull::More }
    }

    fn encoded(&self, place: &Place, chunk: &Chunk) -> Frame {
        let frame = Frame { event: data_event(self.encoding, &chunk.parts), end: chunk.end };
        self.engine.frames.put(self.key(place), &frame);
        frame
    }

    fn key(&self, place: &Place) -> FrameKey {
        FrameKey { log: place.log, from: place.from.offset, upto: place.upto.offset, encoding: self.encoding }
    }

    /// The place of what became visible; `None` when the stream is gone.
    fn look(&mut self, turn: &Turn<'_>) -> Option<Place> {
        let log = self.place.log;
        let mut guard = self.engine.logs.lock_logs(&[log], &[]);
        if self.watch.is_none() {
            self.watch = self.engine.watch(&mut guard, log, turn.waker());
        }
        let view = guard.view(log)?;
        if view.attachment.soft_deleted {
            return None;
        }
        let durable = self.engine.logs.durable();
        let closed = closed_visibly(&view, durable);
        let place = Place::new(&view, self.place.from.offset, closed, durable);
        Some(place)
    }
}

impl Feed for SseFeed {
    fn pull(&mut self, turn: &mut Turn<'_>, out: &mut Vec<Bytes>) -> Pull {
        if self.ended {
            return Pull::End;
        }
        if let Some((place, reading)) = self.reading.take() {
            return match reading.take(|| turn.waker()) {
                None => {
                    self.reading = Some((place, reading));
                    Pull::Wait
                }
                Some(Ok(chunk)) => {
                    let frame = self.encoded(&place, &chunk);
                    self.send(place, frame, turn.now, out)
                }
                Some(Err(_)) => Pull::Abort,
            };
        }
        if turn.now >= self.ends || turn.stopping {
            return Pull::End;
        }
        let Some(place) = self.look(turn) else { return Pull::End };
        if place.upto.offset > place.from.offset {
            if let Some(frame) = self.engine.frames.get(&self.key(&place)) {
                return self.send(place, frame, turn.now, out);
            }
            return match self.engine.ask(&place) {
                Ok(Asked::Here(chunk)) => {
                    let frame = self.encoded(&place, &chunk);
                    self.send(place, frame, turn.now, out)
                }
                Ok(Asked::Reading(reading)) => {
                    self.reading = Some((place, reading));
                    self.pull(turn, out)
                }
                // The client comes back with its last offset, and learns the reason from the status.
                Err(_) => Pull::Abort,
            };
        }
        let closed = place.closed;
        self.place = place;
        if closed {
            self.control(true, turn.now, out);
            self.ended = true;
            return Pull::End;
        }
        let keep_alive = millis(self.engine.config.sse_keep_alive);
        if self.greet {
            self.control(false, turn.now, out);
        } else if turn.now.since(self.spoke) >= keep_alive {
            out.push(Bytes::from_static(KEEP_ALIVE));
            self.spoke = turn.now;
        }
        let next = self.ends.min(self.spoke.plus(keep_alive));
        turn.wake_after = Some(Duration::from_millis(next.since(turn.now)));
        Pull::Wait
    }
}

impl Drop for SseFeed {
    fn drop(&mut self) {
        sub(&self.engine.counters.sse_waiters, 1);
    }
}
