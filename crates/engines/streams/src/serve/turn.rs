//! The engine's results for the event loop, and the loop's turns for unfinished ones.
//!
//! The engine speaks in [`Answer`]s, [`Task`]s and [`Feed`]s, which tests can drive without an event loop; [`reply`] is
//! the thin shell around them.

use super::engine::Engine;
use super::gate::hold;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_base::{Millis, Until};
use thalweg_http::{Body, BodySource, Context, Pending, Poll, Pull, Reply, Response, Sink, Waker};

/// An answer to a request.
pub(crate) enum Answer {
    /// Sent when that is so.
    Response(Until, Response),
    /// An answer that is not ready yet.
    Later(Box<dyn Task>),
    /// A head, sent when its position is reached, and a body that continues.
    Live(Until, Response, Box<dyn Feed>),
}

/// An answer in the making.
pub(crate) trait Task: Send {
    /// Called once at first, then after each wake and at the time wished for. `None`: still waiting.
    fn step(&mut self, turn: &mut Turn<'_>) -> Option<Answer>;
}

/// A body in the making.
pub(crate) trait Feed: Send {
    fn pull(&mut self, turn: &mut Turn<'_>, put: &mut dyn FnMut(Bytes)) -> Pull;
}

/// One call of a task or feed.
pub(crate) struct Turn<'a> {
    pub(crate) now: Millis,
    pub(crate) stopping: bool,
    /// When to be called again at the latest.
    pub(crate) wake_after: Option<Duration>,
    waker: &'a dyn Fn() -> Waker,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(now: Millis, stopping: bool, waker: &'a dyn Fn() -> Waker) -> Self {
        Self { now, stopping, wake_after: None, waker }
    }

    pub(crate) fn waker(&self) -> Waker {
        (self.waker)()
    }
}

/// Runs `f` with the turn that an event loop gives.
fn turn<T>(cx: &mut Context<'_>, f: impl FnOnce(&mut Turn<'_>) -> T) -> T {
    let (result, wake_after) = {
        let waker = || cx.waker();
        let mut turn = Turn::new(Millis(cx.now_ms), cx.stopping(), &waker);
        (f(&mut turn), turn.wake_after)
    };
    if let Some(delay) = wake_after {
        cx.wake_after(delay);
    }
    result
}

/// The answer of the engine as the event loop takes it.
pub(crate) fn reply(answer: Answer, engine: &Arc<Engine>) -> Reply {
    match answer {
        Answer::Response(after, response) => hold(after, response, engine),
        Answer::Later(task) => Reply::Later(Box::new(Running(task, Arc::clone(engine)))),
        Answer::Live(after, mut response, feed) => {
            response.body = Body::Stream(Box::new(Flowing(feed)));
            response.close = true;
            hold(after, response, engine)
        }
    }
}

/// A task of an engine.
struct Running(Box<dyn Task>, Arc<Engine>);

impl Pending for Running {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        match turn(cx, |turn| self.0.step(turn)) {
            Some(answer) => Poll::Ready(reply(answer, &self.1)),
            None => Poll::Wait,
        }
    }
}

/// A feed as the event loop pulls it.
pub(crate) struct Flowing(pub(crate) Box<dyn Feed>);

impl BodySource for Flowing {
    fn pull(&mut self, cx: &mut Context<'_>, sink: &mut Sink<'_>) -> Pull {
        turn(cx, |turn| self.0.pull(turn, &mut |bytes| sink.push(bytes)))
    }
}
