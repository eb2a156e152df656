//! Answers that wait for the journal of a unit whose positions the event loop's gate does not count.

use super::engine::Engine;
use super::head;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use thalweg_base::{Lsn, Until};
use thalweg_http::{Context, Pending, Poll, Reply, Response, Waker};

/// Those who wait for positions of one journal. In a remote journal a position is written when it is durable.
#[derive(Default)]
pub(crate) struct OwnGate(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    wakers: BTreeMap<(Lsn, u64), Waker>,
    /// Makes keys of one position differ.
    next: u64,
}

impl OwnGate {
    /// Calls `waker` once the gate is opened up to `at`. The caller checks the journal after this call, or it may miss
    /// an opening.
    fn enter(&self, at: Lsn, waker: Waker) -> (Lsn, u64) {
        let mut waiting = self.0.lock();
        let key = (at, waiting.next);
        waiting.next += 1;
        waiting.wakers.insert(key, waker);
        key
    }

    fn leave(&self, key: (Lsn, u64)) {
        self.0.lock().wakers.remove(&key);
    }

    /// Wakes those who wait for positions up to `durable`.
    pub(crate) fn open(&self, durable: Lsn) {
        let due = {
            let mut waiting = self.0.lock();
            let later = waiting.wakers.split_off(&(durable.plus(1), 0));
            std::mem::replace(&mut waiting.wakers, later)
        };
        due.into_values().for_each(|waker| waker.wake());
    }
}

/// One wait for a position of an engine's journal.
pub(crate) struct Wait {
    engine: Arc<Engine>,
    until: Until,
    key: Option<(Lsn, u64)>,
}

/// Whether what was waited for has come.
pub(crate) enum Waited {
    Yes,
    NotYet,
    /// The journal stopped: it never will.
    Never,
}

impl Wait {
    pub(crate) fn new(engine: &Arc<Engine>, until: Until) -> Self {
        Self { engine: Arc::clone(engine), until, key: None }
    }

    /// Asks, and has `waker` called when the answer may be another one.
    pub(crate) fn ask(&mut self, waker: impl FnOnce() -> Waker) -> Waited {
        match self.look() {
            Waited::NotYet => self.leave(),
            over => return over,
        }
        self.key = Some(self.engine.gate.enter(self.until.position(), waker()));
        self.look()
    }

    fn look(&self) -> Waited {
        let logs = &self.engine.logs;
        match (logs.reached().covers(self.until), logs.journal().poisoned()) {
            (true, _) => Waited::Yes,
            (false, Some(_)) => Waited::Never,
            (false, None) => Waited::NotYet,
        }
    }

    fn leave(&mut self) {
        if let Some(key) = self.key.take() {
            self.engine.gate.leave(key);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A response that waits.
struct Held {
    wait: Wait,
    response: Option<Response>,
    /// The first poll, right after the handler.
    since: Option<Instant>,
}

impl Pending for Held {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll {
        let since = *self.since.get_or_insert(cx.now());
        let response = match self.wait.ask(|| cx.waker()) {
            Waited::NotYet => return Poll::Wait,
            Waited::Yes => {
                cx.count_wait(since);
                self.response.take().unwrap_or_else(head::unconfirmed)
            }
            Waited::Never => head::unconfirmed(),
        };
        Poll::Ready(Reply::Now(response))
    }
}

/// The response, sent when the engine's journal has come so far.
pub(crate) fn hold(after: Until, response: Response, engine: &Arc<Engine>) -> Reply {
    if engine.logs.reached().covers(after) {
        Reply::Now(response)
    } else if engine.is_gated {
        Reply::Held(after, response)
    } else {
        Reply::Later(Box::new(Held { wait: Wait::new(engine, after), response: Some(response), since: None }))
    }
}
