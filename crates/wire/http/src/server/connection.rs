//! One connection: requests in, replies out in their order. Its calls to the socket are one receive or one send at a
//! time; when to make them is the event loop's business.

use super::config::ServerConfig;
use super::crowd::Place;
use super::env::Env;
use super::input::Input;
use super::mailbox::Token;
use super::output::{Backlog, Gather};
use super::reply::{Coding, Replies, Slot, State, render, render_parts};
use super::timers::{NEVER, Tick};
use super::tls::Tls;
use crate::framing::{Manner, Refusal, Step};
use crate::{Body, Pull, SharedPages};
use bytes::Bytes;
use rustix::event::epoll::EventFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use thalweg_base::Until;

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    pub(super) place: Place,
    /// Between the socket and all below, if TLS is spoken.
    pub(super) tls: Option<Box<Tls>>,
    pub(super) serial: u32,
    pub(super) interest: EventFlags,
    /// Present while a request is incomplete, or waits because of a bound.
    pub(super) input: Option<Box<Input>>,
    /// Present while the socket is full.
    pub(super) backlog: Option<Box<Backlog>>,
    pub(super) replies: Replies,
    /// When the connection became idle, when its incomplete head began, when the rate of its body was last checked, or
    /// when it began to linger.
    pub(super) since: Tick,
    /// When the socket last accepted bytes of the backlog.
    pub(super) write_since: Tick,
    /// The time of its entry among the timers that counts.
    pub(super) armed: Tick,
    /// While lingering: how much was discarded.
    pub(super) discarded: usize,
    pub(super) flags: Flags,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    /// Listed among the connections that the event loop handles in this round.
    pub(super) dirty: bool,
    /// The socket has room again.
    pub(super) writable: bool,
    /// Whether the list of connections at the gate has it.
    pub(super) at_gate: bool,
    /// Reading has stopped because of a bound; input may be left.
    pub(super) paused: bool,
    /// The client has ended its side of the connection.
    pub(super) eof: bool,
    /// The client closed its side, perhaps with bytes before that are not read yet.
    pub(super) hung_up: bool,
    /// No further request is read: the last reply is in the list, or sent.
    pub(super) last: bool,
    /// The last reply is rendered.
    pub(super) finished: bool,
    /// Input after the last reply is to be discarded for a while, since closing at once could take the reply with it.
    pub(super) linger: bool,
    pub(super) lingering: bool,
    /// The connection exceeds the bound: it has no place, and only gets a refusal.
    pub(super) extra: bool,
    /// A request came whole.
    pub(super) used: bool,
}

/// How filling the output ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// No more output is ready.
    Dry,
    /// More output may be ready once this is sent.
    Full,
    /// The next reply waits for the gate.
    AtGate(Until),
    /// A body source failed midway.
    Abort,
}

/// Answers up to this size are sent before larger ones.
const SMALL_MAX: usize = 16 << 10;

const REFUSED: Manner = Manner { keep_alive: false, http11: true, bodiless: false };

impl Connection {
    pub(super) fn new(socket: OwnedFd, serial: u32, now: Tick) -> Self {
        Self {
            socket,
            place: Place::default(),
            tls: None,
            serial,
            interest: EventFlags::IN.union(EventFlags::RDHUP),
            input: None,
            backlog: None,
            replies: Replies::default(),
            since: now,
            write_since: now,
            armed: NEVER,
            discarded: 0,
            flags: Flags::default(),
        }
    }

    /// Sends the bytes of `out` that the socket takes; returns how many need no further care.
    pub(super) fn send(&mut self, out: &mut Gather, pages: &SharedPages) -> io::Result<usize> {
        match &mut self.tls {
            None => out.send(&self.socket, pages),
            Some(tls) => tls.send(&self.socket, out.slices()),
        }
    }

    /// Sends the bytes of the backlog that the socket takes, and drops the backlog with its last byte; returns how
    /// many. With TLS, encrypted bytes that wait for the socket count as backlog too.
    pub(super) fn send_backlog(&mut self, now: Tick, pages: &SharedPages) -> io::Result<usize> {
        let Some(backlog) = &mut self.backlog else { return Ok(0) };
        let (sent, moved) = match &mut self.tls {
            None => {
                let sent = backlog.send(&self.socket, pages)?;
                (sent, sent > 0)
            }
            Some(tls) => {
                let sent = tls.send(&self.socket, backlog.slices())?;
                backlog.advance(sent);
                (sent, tls.take_moved())
            }
        };
        if moved {
            self.write_since = now;
        }
        if backlog.is_empty() && !self.tls_waits() {
            self.backlog = None;
            self.since = now;
        }
        Ok(sent)
    }

    /// Sends pending bytes of a handshake. Bytes that the socket does not take become backlog.
    pub(super) fn send_handshake(&mut self, now: Tick) -> io::Result<()> {
        if let Some(tls) = &mut self.tls
            && self.backlog.is_none()
            && !tls.flush(&self.socket)?
        {
            self.backlog = Some(Box::default());
            self.write_since = now;
        }
        Ok(())
    }

    /// Encrypted bytes wait for the socket.
    pub(super) fn tls_waits(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.waits())
    }

    /// Wanted input is available that the socket will not announce.
    pub(super) fn has_unread(&self) -> bool {
        let Flags { last, eof, paused, .. } = self.flags;
        !(last || eof || paused) && self.tls.as_ref().is_some_and(|tls| tls.has_unread())
    }

    /// Lets the client know that it has seen everything, if it has.
    pub(super) fn say_end(&mut self) {
        if let Some(tls) = &mut self.tls
            && self.replies.is_empty()
            && self.backlog.is_none()
        {
            tls.say_end(&self.socket);
        }
    }

    /// How long the connection may be idle. A new client must begin its first request within the time limit of a head.
    pub(super) fn patience(&self, config: &ServerConfig) -> Duration {
        if self.flags.used { config.idle_timeout } else { config.header_timeout.min(config.idle_timeout) }
    }

    /// The TLS handshake failed.
    pub(super) fn has_failed_handshake(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking() && tls.has_begun())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.replies.is_empty() && self.backlog.is_none() && self.input.is_none()
    }

    /// Whether its output is large enough to delay other connections.
    pub(super) fn has_much(&self) -> bool {
        match &self.backlog {
            Some(backlog) => self.flags.writable && backlog.len() > SMALL_MAX,
            None => self.replies.first_len() > SMALL_MAX as u64,
        }
    }

    /// Whether a bound allows to handle one more request.
    pub(super) fn has_room(&self, env: &Env) -> bool {
        self.backlog.is_none() && self.replies.len() < env.config.max_pipeline
    }

    /// Handles the whole requests in `input`; gives how many.
    pub(super) fn serve(&mut self, token: Token, input: &mut Input, env: &Env) -> usize {
        let mut handled = 0;
        while input.rest() > 0 && !self.flags.last {
            if !self.has_room(env) {
                self.flags.paused = true;
                break;
            }
            let step = input.framer.step(
                &mut input.buf,
                input.at,
                env.limits(),
                |head| env.on_head(head),
                |request, _| env.handle(token, request),
            );
            match step {
                Ok(Step::More(whole)) => {
                    input.whole = whole;
                    break;
                }
                Ok(Step::Continue) => self.replies.push(Slot::new(State::Interim, REFUSED)),
                Ok(Step::Request(used, manner, (reply, deadline))) => {
                    input.request_done(used);
                    handled += 1;
                    self.flags.used = true;
                    let mut slot = Slot::new(env.admit(reply), manner);
                    slot.deadline = deadline;
                    env.poll(token, &mut slot);
                    self.replies.push(slot);
                    self.flags.last = !manner.keep_alive;
                }
                Ok(Step::Turned(manner, (reply, _))) => {
                    handled += 1;
                    let mut slot = Slot::new(env.admit(reply), manner);
                    // The body may be arriving.
                    slot.refusal = true;
                    self.replies.push(slot);
                    self.flags.last = true;
                }
                Err(refusal) => {
                    if refusal == Refusal::TLS {
                        env.crowd.misled();
                    }
                    self.refuse(refusal, env);
                }
            }
        }
        handled
    }

    /// Puts the last reply in the list.
    pub(super) fn refuse(&mut self, refusal: Refusal, env: &Env) {
        let Refusal { status, reason } = refusal;
        let mut response = env.service.refused(status, reason);
        if status == 503 {
            response = response.header("retry-after", "1");
        }
        let mut slot = Slot::new(State::Ready(response), REFUSED);
        slot.refusal = true;
        self.replies.push(slot);
        self.flags.last = true;
        env.counters.requests_refused.add(1);
    }

    /// Polls all pending replies: after a wake, or when the server stops.
    pub(super) fn wake(&mut self, token: Token, env: &Env) {
        for slot in self.replies.iter_mut() {
            slot.due = true;
            env.poll(token, slot);
        }
    }

    /// Polls the replies whose deadline has passed.
    pub(super) fn wake_due(&mut self, token: Token, env: &Env) {
        for slot in self.replies.iter_mut().filter(|slot| slot.deadline <= env.clock.tick) {
            (slot.deadline, slot.due) = (NEVER, true);
            env.poll(token, slot);
        }
    }

    /// Puts ready output into `out`, up to the bound on output.
    pub(super) fn fill(&mut self, token: Token, env: &Env, out: &mut Gather, parts: &mut Vec<Bytes>) -> Fill {
        while !self.flags.finished {
            if out.len() >= env.config.max_output {
                return Fill::Full;
            }
            let only = self.replies.len() == 1 && self.input.is_none();
            let Some(slot) = self.replies.first() else { return Fill::Dry };
            match &mut slot.state {
                State::Later(_) => return Fill::Dry,
                State::Interim => {
                    out.text().extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                    self.replies.pop();
                }
                State::Held(until, since, response) => {
                    let (until, since) = (*until, *since);
                    // In this order: a release before the failure is seen together with it.
                    let failed = env.gate.failed();
                    if !env.gate.reached().covers(until) {
                        if !failed {
                            return Fill::AtGate(until);
                        }
                        *response = env.service.gate_failed();
                    }
                    env.counters.held.sub(1);
                    env.counters.waits.add(env.clock.micros().wrapping_sub(since));
                    let response = std::mem::replace(
                        response,
                        crate::Response { status: 0, head: Vec::new(), body: Body::Empty, close: false, page: false },
                    );
                    slot.state = State::Ready(response);
                }
                State::Ready(_) => self.send_ready(only, env, out),
                State::Streaming(source, coding) => {
                    let coding = *coding;
                    if !slot.due {
                        return Fill::Dry;
                    }
                    slot.due = false;
                    let (pull, len) = env.pull(token, source.as_mut(), &mut slot.deadline, parts);
                    render_parts(parts, len, coding, out);
                    match pull {
                        Pull::More => slot.due = true,
                        Pull::Wait => {}
                        Pull::Abort => return Fill::Abort,
                        Pull::End => {
                            if coding == Coding::Chunked {
                                out.text().extend_from_slice(b"0\r\n\r\n");
                            }
                            env.counters.pending.sub(1);
                            self.flags.finished = !slot.manner.keep_alive;
                            self.replies.pop();
                        }
                    }
                    // A source that has more but gives nothing must not hold up the event loop.
                    if matches!(pull, Pull::More) && len == 0 {
                        return Fill::Full;
                    }
                }
            }
        }
        Fill::Dry
    }

    /// Renders the first reply, which is ready.
    fn send_ready(&mut self, only: bool, env: &Env, out: &mut Gather) {
        let Some(Slot { state: State::Ready(response), mut manner, refusal, deadline, .. }) = self.replies.pop() else {
            return;
        };
        let until_close = response.close || (!manner.http11 && matches!(response.body, Body::Stream(_)));
        if until_close || (env.stopping && only) {
            manner.keep_alive = false;
            self.flags.last = true;
        }
        match render(response, manner, !manner.keep_alive, &env.clock, env.config.same_origin, out) {
            None => {
                self.flags.finished = !manner.keep_alive;
                self.flags.linger |= refusal;
            }
            Some((source, coding)) => {
                env.counters.pending.add(1);
                let mut slot = Slot::new(State::Streaming(source, coding), manner);
                (slot.due, slot.deadline) = (true, deadline);
                self.replies.push_first(slot);
            }
        }
    }

    /// The latest time at which to handle this connection again.
    pub(super) fn deadline(&self, env: &Env) -> Tick {
        let (config, clock) = (&env.config, &env.clock);
        if self.flags.lingering {
            return clock.tick_after(self.since, config.linger_time);
        }
        let mut deadline = self.replies.iter().map(|slot| slot.deadline).min().unwrap_or(NEVER);
        if self.backlog.is_some() {
            deadline = deadline.min(clock.tick_after(self.write_since, config.write_timeout));
        }
        match &self.input {
            _ if self.flags.last || self.flags.paused => deadline,
            Some(input) if input.framer.in_body() => deadline.min(clock.tick_after(self.since, config.body_timeout)),
            Some(_) => deadline.min(clock.tick_after(self.since, config.header_timeout)),
            None if self.is_idle() => deadline.min(clock.tick_after(self.since, self.patience(config))),
            None => deadline,
        }
    }

    /// The socket events that matter in the present state.
    pub(super) fn wanted(&self) -> EventFlags {
        let Flags { lingering, last, eof, paused, hung_up, .. } = self.flags;
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, lingering || !(last || eof || paused));
        wanted.set(EventFlags::RDHUP, !(eof || hung_up));
        wanted.set(EventFlags::OUT, self.backlog.is_some());
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        let size = size_of::<Connection>();
        println!(
            "Connection: {size} B, of which Slot: {} B; Input: {} B; Backlog: {} B",
            size_of::<Slot>(),
            size_of::<Input>(),
            size_of::<Backlog>()
        );
        // A slab that has just doubled is half empty; one timer entry is 16 bytes, twice for the same reason.
        assert!(2 * (size + 16) + 32 <= 480, "{size}");
        assert!(size <= 224, "{size}");
    }
}
