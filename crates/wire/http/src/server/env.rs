//! State that all connections of an event loop share.

use super::clock::Clock;
use super::config::ServerConfig;
use super::crowd::Crowd;
use super::input::Budget;
use super::mailbox::{Mailbox, Token};
use super::reply::{Slot, State};
use super::stats::Counters;
use super::timers::{NEVER, Tick};
use crate::framing::Limits;
use crate::{BodySource, Context, Gate, Poll, Pull, Reply, Request, Service, Sink, Waker};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Env {
    pub(super) service: Arc<dyn Service>,
    pub(super) gate: Arc<Gate>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) counters: Arc<Counters>,
    pub(super) budget: Arc<Budget>,
    pub(super) crowd: Arc<Crowd>,
    pub(super) config: ServerConfig,
    pub(super) clock: Clock,
    pub(super) stopping: bool,
}

impl Env {
    pub(super) const fn limits(&self) -> Limits {
        Limits { head: self.config.max_head, body: self.config.max_body }
    }

    /// Calls `f` with a context of the connection; also gives the deadline that it wished for.
    fn call<T>(&self, token: Token, f: impl FnOnce(&mut Context<'_>) -> T) -> (T, Option<Instant>) {
        let waker = || -> Waker { self.mailbox.waker(token) };
        let mut cx = Context {
            now_ms: self.clock.unix_ms,
            now: self.clock.now,
            deadline: None,
            stopping: self.stopping,
            waited: None,
            waker: &waker,
        };
        let out = f(&mut cx);
        if let Some(waited) = cx.waited {
            self.counters.waits.add(u32::try_from(waited.as_micros()).unwrap_or(u32::MAX));
        }
        (out, cx.deadline)
    }

    pub(super) fn handle(&self, token: Token, request: &Request<'_>) -> (Reply, Tick) {
        let (reply, deadline) = self.call(token, |cx| self.service.handle(request, cx));
        (reply, deadline.map_or(NEVER, |at| self.clock.tick_of(at)))
    }

    /// The answer to a request whose body is not read.
    pub(super) fn on_head(&self, head: &Request<'_>) -> Option<(Reply, Tick)> {
        self.service.on_head(head, self.clock.unix_ms).map(|response| (Reply::Now(response), NEVER))
    }

    /// The state of a reply that a handler or a pending answer gave.
    pub(super) fn admit(&self, reply: Reply) -> State {
        match reply {
            Reply::Now(response) => State::Ready(response),
            Reply::Held(until, response) if self.gate.reached().covers(until) => State::Ready(response),
            Reply::Held(until, response) => {
                self.counters.held.add(1);
                State::Held(until, self.clock.micros(), response)
            }
            Reply::Later(pending) => {
                self.counters.pending.add(1);
                State::Later(pending)
            }
        }
    }

    /// Polls a pending answer until it waits or is ready.
    pub(super) fn poll(&self, token: Token, slot: &mut Slot) {
        while let State::Later(pending) = &mut slot.state {
            let (poll, wish) = self.call(token, |cx| pending.poll(cx));
            if let Some(at) = wish {
                slot.deadline = self.clock.tick_of(at);
            }
            match poll {
                Poll::Wait => return,
                Poll::Ready(reply) => {
                    self.counters.pending.sub(1);
                    slot.deadline = NEVER;
                    slot.state = self.admit(reply);
                }
            }
        }
    }

    /// Pulls a body source once; returns its result and the number of bytes that it put into `parts`.
    pub(super) fn pull(
        &self,
        token: Token,
        source: &mut dyn BodySource,
        deadline: &mut Tick,
        parts: &mut Vec<Bytes>,
    ) -> (Pull, usize) {
        let mut sink = Sink { parts, len: 0 };
        let (pull, wish) = self.call(token, |cx| source.pull(cx, &mut sink));
        if let Some(at) = wish {
            *deadline = self.clock.tick_of(at);
        }
        (pull, sink.len)
    }

    /// Drops a reply that will not be sent.
    pub(super) fn forget(&self, slot: Slot) {
        match slot.state {
            State::Held(..) => self.counters.held.sub(1),
            State::Later(_) | State::Streaming(..) => self.counters.pending.sub(1),
            State::Ready(_) | State::Interim => {}
        }
    }
}
