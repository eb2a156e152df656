//! Long-polls: answers that wait at the tail for something to read, for the stream's end, or for their time to be up.

use super::chunk::{Caching, Mode, Place};
use super::engine::{Engine, Watch, closed_visibly, position};
use super::head::Head;
use super::stats::{add, sub};
use super::turn::{Answer, Task, Turn};
use crate::error::{Refusal, Refused};
use crate::format::offset::Position;
use crate::state::cursor;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{Millis, Until};
use thalweg_http::Body;

pub(crate) struct LongPoll {
    engine: Arc<Engine>,
    place: Place,
    echoed: Option<u64>,
    deadline: Millis,
    watch: Option<Watch>,
    /// The awaited content has arrived, but must be read from a device.
    reading: Option<Box<dyn Task>>,
}

impl LongPoll {
    pub(crate) fn new(engine: &Arc<Engine>, place: Place, echoed: Option<u64>, now: Millis) -> Self {
        add(&engine.counters.long_poll_waiters, 1);
        let timeout = u64::try_from(engine.config.long_poll_timeout.as_millis()).unwrap_or(u64::MAX);
        Self { engine: Arc::clone(engine), place, echoed, deadline: now.plus(timeout), watch: None, reading: None }
    }

    fn check(&mut self, turn: &mut Turn<'_>) -> Result<Option<Answer>, Refused> {
        if self.engine.is_over() {
            return Err(Refusal::UnitLeft.into());
        }
        let mut guard = self.engine.logs.lock_logs(&[self.place.span.log], &[]);
        let Some(view) = guard.view(self.place.span.log) else {
            drop(guard);
            return Err(self.engine.vanished(&self.place.name));
        };
        let state = view.attachment;
        if state.soft_deleted {
            return Err(Refusal::Gone.after(state.configured));
        }
        let reached = self.engine.logs.reached();
        let closed = closed_visibly(&view, reached.durable);
        let from = self.place.span.from.offset;
        if view.published > from {
            let place = Place { moving: self.place.moving, ..Place::new(&view, from, reached) };
            drop(guard);
            let answer =
                self.engine.chunk(place, Mode::LongPoll { echoed: self.echoed }, Caching::default(), turn.now)?;
            let Answer::Later(task) = answer else { return Ok(Some(answer)) };
            self.reading = Some(task);
            return Ok(self.reading.as_mut().and_then(|task| task.step(turn)));
        }
        let (tail, after) = (position(&view, view.published), view.when(view.created));
        if closed || turn.stopping || turn.now >= self.deadline {
            drop(guard);
            return Ok(Some(self.nothing(tail, closed, after, turn.now)));
        }
        if self.watch.is_none() {
            self.watch = self.engine.watch(&mut guard, self.place.span.log, turn.waker());
        }
        drop(guard);
        turn.wake_after = Some(Duration::from_millis(self.deadline.since(turn.now)));
        Ok(None)
    }

    /// 204: at the tail, and nothing new.
    fn nothing(&self, tail: Position, closed: bool, after: Until, now: Millis) -> Answer {
        let mut head = Head::new(204).next_offset(tail).up_to_date(true).closed(closed).no_store();
        if !closed {
            head = head.number(b"Stream-Cursor: ", cursor::next(now, self.echoed));
        }
        Answer::Response(after, head.finish(Body::Empty))
    }
}

impl Task for LongPoll {
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer> {
        if let Some(task) = &mut self.reading {
            return task.step(turn);
        }
        match self.check(turn) {
            Ok(answer) => answer,
            Err(refused) => Some(self.engine.refuse(&refused)),
        }
    }
}

impl Drop for LongPoll {
    fn drop(&mut self) {
        sub(&self.engine.counters.long_poll_waiters, 1);
    }
}
