//! One event loop: a thread, its listener, its connections.
//!
//! A round: wait; read and handle requests; act on wakes and timers; report the end of the round to the service; send
//! output. The loop waits for nothing but `epoll`.

use super::connection::{Connection, Fill};
use super::env::Env;
use super::held::Held;
use super::input::Input;
use super::listener::{self, Accepted};
use super::mailbox::Token;
use super::output::{Backlog, Gather, TURN_MAX};
use super::timers::{NEVER, Tick, Timers};
use super::tls::{PlainHttp, Tls};
use crate::framing::Refusal;
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use thalweg_base::{Lsn, Reached};

const EVENTS_MAX: usize = 1024;
const ACCEPTS_PER_ROUND: usize = 256;
/// Connections beyond the bound that are answered rather than dropped, per event loop.
const EXTRA_MAX: usize = 256;
/// How long no connection is accepted after descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Sends of one connection per round.
const SENDS_PER_ROUND: usize = 4;
/// Bytes that connections with large output send in a round together, after all small output: the delay that they cause
/// to a request or a wake-up. The last connection may exceed it, by [`TURN_MAX`] at most.
const BULK_PER_ROUND: usize = TURN_MAX;

/// Turns that one connection with large output may have in a row: 4 MiB of copied bytes.
const TURNS_IN_A_ROW: usize = 16;

const LISTENER: Token = Token { index: u32::MAX, serial: u32::MAX };
const BELL: Token = Token { index: u32::MAX, serial: u32::MAX - 1 };

impl Token {
    const fn data(self) -> EventData {
        EventData::new_u64((self.index as u64) << 32 | self.serial as u64)
    }

    fn of(data: EventData) -> Self {
        Self { index: (data.u64() >> 32) as u32, serial: data.u64() as u32 }
    }
}

pub(super) struct Reactor {
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    env: Env,
    connections: Slab<Connection>,
    extras: usize,
    next_serial: u32,
    timers: Timers,
    held: Held,
    stop_at: Tick,
    /// Whether this round has handled a request or polled a pending answer.
    handled: bool,
    scratch: Option<Box<Input>>,
    gather: Gather,
    parts: Vec<Bytes>,
    wakes: Vec<Token>,
    /// Connections that have something to send, or whose registration or timer must change, at the end of this round.
    dirty: Vec<Token>,
    /// Connections with a large answer to send, in the order of their turns: one has several turns in a row before the
    /// next. They stay marked as dirty, so that each is listed once.
    bulk: VecDeque<Token>,
    /// The connection of the last turn that was long enough, and how many such turns it has had in a row.
    favoured: (Token, usize),
    /// Connections that go on in the next round; that round does not wait for events.
    again: Vec<Token>,
}

impl Reactor {
    pub(super) fn new(listener: OwnedFd, env: Env) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, LISTENER.data(), EventFlags::IN)?;
        epoll::add(&epoll, env.mailbox.bell.event(), BELL.data(), EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            epoll,
            listener: Some(listener),
            env,
            connections: Slab::new(),
            extras: 0,
            next_serial: 0,
            timers: Timers::default(),
            held: Held::default(),
            stop_at: NEVER,
            handled: false,
            scratch: None,
            gather: Gather::default(),
            parts: Vec::new(),
            wakes: Vec::new(),
            dirty: Vec::new(),
            bulk: VecDeque::new(),
            favoured: (LISTENER, 0),
            again: Vec::new(),
        })
    }

    /// Runs until the server has stopped.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.stopped() {
            if let Err(error) = self.round(&mut events) {
                tracing::error!(%error, "the event loop cannot wait for events");
                break;
            }
        }
        self.env.mailbox.close();
        let left: Vec<_> = self.connections.iter().map(|(index, _)| index).collect();
        left.into_iter().for_each(|index| self.close(index));
    }

    fn stopped(&self) -> bool {
        self.env.stopping && (self.connections.is_empty() || self.env.clock.tick >= self.stop_at)
    }

    fn round(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        events.clear();
        let timeout = self.sleep();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.env.mailbox.bell.awake();
        self.env.clock.read();
        if !self.env.stopping && self.env.mailbox.stopping() {
            self.begin_stop();
        }
        for event in events.iter() {
            match Token::of(event.data) {
                BELL => {}
                LISTENER => self.accept(),
                token => self.ready(token, event.flags),
            }
        }
        self.act_on_wakes();
        self.act_on_timers();
        self.go_on();
        if std::mem::take(&mut self.handled) {
            self.env.service.round_done();
        }
        self.pass_gate();
        self.send();
        Ok(())
    }

    /// How long to wait for events; `None` is for ever. Arms the bell if the loop will wait.
    fn sleep(&mut self) -> Option<Timespec> {
        const NOT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !(self.again.is_empty() && self.bulk.is_empty()) {
            return Some(NOT);
        }
        let Env { mailbox, gate, stopping, clock, .. } = &self.env;
        let held = !self.held.is_empty();
        mailbox.bell.fall_asleep(held);
        let passable = held && (self.held.is_passable(gate.reached()) || gate.failed());
        if passable || !mailbox.is_empty() || (mailbox.stopping() && !stopping) {
            mailbox.bell.awake();
            return Some(NOT);
        }
        let wait = self.timers.next()?.saturating_sub(clock.tick).min(60_000);
        Some(Timespec { tv_sec: (wait / 1000) as _, tv_nsec: (wait % 1000 * 1_000_000) as _ })
    }

    fn get(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections.get_mut(token.index as usize).filter(|connection| connection.serial == token.serial)
    }

    fn mark_dirty(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(token.index as usize)
            && connection.serial == token.serial
            && !std::mem::replace(&mut connection.flags.dirty, true)
        {
            self.dirty.push(token);
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let Some(listener) = &self.listener else { return };
            match listener::accept(listener) {
                Accepted::Connection(socket) => self.welcome(socket),
                Accepted::Lost => {}
                Accepted::Nobody => return,
                Accepted::Exhausted => {
                    tracing::warn!("no file descriptor or memory is left for a connection");
                    if epoll::modify(&self.epoll, listener, LISTENER.data(), EventFlags::empty()).is_ok() {
                        self.timers.add(self.env.clock.tick_after(self.env.clock.tick, ACCEPT_PAUSE), LISTENER);
                    }
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let tls = match self.env.config.tls.as_deref().map(Tls::new).transpose() {
            Ok(tls) => tls,
            Err(error) => return tracing::error!(%error, "a TLS session could not be created"),
        };
        let peer = self.env.crowd.counts_peers().then(|| listener::peer(&socket)).flatten();
        let entered = self.env.crowd.enter(peer);
        if entered.is_err() {
            self.env.counters.refused.add(1);
            // An answer needs a handshake first, which would cost more than the answer is worth.
            if self.extras >= EXTRA_MAX || tls.is_some() {
                return;
            }
            self.extras += 1;
        } else {
            self.env.counters.accepted.add(1);
            self.env.counters.active.add(1);
        }
        self.next_serial = self.next_serial.wrapping_add(1);
        let serial = self.next_serial;
        let mut connection = Connection::new(socket, serial, self.env.clock.tick);
        connection.tls = tls;
        match entered {
            Ok(place) => connection.place = place,
            Err(refusal) => {
                connection.flags.extra = true;
                connection.refuse(refusal, &self.env);
            }
        }
        let index = self.connections.insert(connection);
        let token = Token { index: index as u32, serial };
        let connection = &self.connections[index];
        if epoll::add(&self.epoll, &connection.socket, token.data(), connection.interest).is_err() {
            return self.close(index);
        }
        self.mark_dirty(token);
    }

    fn close(&mut self, index: usize) {
        let Some(mut connection) = self.connections.try_remove(index) else { return };
        self.env.counters.handshakes_failed.add(usize::from(connection.has_failed_handshake()));
        connection.say_end();
        while let Some(slot) = connection.replies.pop() {
            self.env.forget(slot);
        }
        if connection.flags.extra {
            self.extras -= 1;
        } else {
            self.env.crowd.leave(&connection.place);
            self.env.counters.active.sub(1);
        }
    }

    /// Something happened at a socket.
    fn ready(&mut self, token: Token, events: EventFlags) {
        let index = token.index as usize;
        let Some(connection) = self.get(token) else { return };
        if events.intersects(EventFlags::ERR | EventFlags::HUP) {
            return self.close(index);
        }
        if events.contains(EventFlags::OUT) {
            connection.flags.writable = true;
            self.mark_dirty(token);
        }
        let Some(connection) = self.get(token) else { return };
        if events.contains(EventFlags::IN) {
            match connection.flags.lingering {
                true => self.discard(token),
                false => self.read(token),
            }
        } else if events.contains(EventFlags::RDHUP) {
            connection.flags.hung_up = true;
            connection.flags.eof |= connection.flags.last;
            if connection.replies.iter().any(|slot| slot.is_pending()) {
                return self.close(index);
            }
            self.mark_dirty(token);
        }
    }

    fn read(&mut self, token: Token) {
        let index = token.index as usize;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let mut input = match connection.input.take() {
            Some(input) => input,
            None => self.scratch.take().unwrap_or_else(|| Box::new(Input::scratch())),
        };
        if let Err(refusal) = input.make_room() {
            connection.refuse(refusal, &self.env);
            return self.mark_dirty(token);
        }
        let received = match &mut connection.tls {
            None => input.receive(&connection.socket),
            Some(tls) => tls.receive(&connection.socket, &mut input.buf),
        };
        match received {
            Ok(None) => {
                let tls = connection.tls.is_some();
                self.keep(token, input, 0);
                // A handshake may have something to send.
                if tls {
                    self.mark_dirty(token);
                }
            }
            Ok(Some(0)) => {
                connection.flags.eof = true;
                if input.is_scratch() {
                    self.scratch = Some(input);
                }
                // Replies that come soon are still sent, to clients that shut down their side after the request.
                if connection.replies.iter().any(|slot| slot.is_pending()) {
                    return self.close(index);
                }
                self.mark_dirty(token);
            }
            Ok(Some(received)) => {
                self.env.counters.bytes_in.add(received);
                input.of_body += received;
                let handled = connection.serve(token, &mut input, &self.env);
                self.keep(token, input, handled);
                self.mark_dirty(token);
            }
            Err(error) => {
                self.env.counters.handshakes_failed.add(usize::from(connection.has_failed_handshake()));
                if error.get_ref().is_some_and(|why| why.is::<PlainHttp>()) {
                    connection.tls = None;
                    connection.refuse(Refusal::PLAIN_HTTP, &self.env);
                    self.mark_dirty(token);
                } else {
                    // An end without TLS's closing message, or garbage, gets no answer.
                    connection.tls = None;
                    self.close(index);
                }
                if input.is_scratch() {
                    self.scratch = Some(input);
                }
            }
        }
    }

    /// Keeps the rest of the connection's input in a buffer of its own.
    fn keep(&mut self, token: Token, mut input: Box<Input>, handled: usize) {
        self.handled |= handled > 0;
        self.env.counters.requests.add(handled);
        let Some(connection) = self.connections.get_mut(token.index as usize) else { return };
        let begun = handled > 0 || input.is_scratch();
        if connection.flags.last {
            connection.flags.linger |= input.rest() > 0;
        } else if input.rest() > 0 {
            let body_begins = input.framer.in_body() && !std::mem::replace(&mut input.body_begun, true);
            if begun || body_begins {
                connection.since = self.env.clock.tick;
                input.of_body = 0;
            }
            if !begun {
                connection.input = Some(input);
                return;
            }
            match input.split_rest(&self.env.budget) {
                Ok(rest) => connection.input = Some(rest),
                Err(refusal) => connection.refuse(refusal, &self.env),
            }
        }
        if input.is_scratch() {
            input.reset();
            self.scratch = Some(input);
        }
    }

    /// Reads on only so that the client gets to see the answer.
    fn discard(&mut self, token: Token) {
        let index = token.index as usize;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let mut input = self.scratch.take().unwrap_or_else(|| Box::new(Input::scratch()));
        let received = recv(&connection.socket, spare_capacity(&mut input.buf), RecvFlags::DONTWAIT);
        input.reset();
        self.scratch = Some(input);
        match received {
            Ok((_, received)) if received > 0 => {
                connection.discarded += received;
                if connection.discarded > self.env.config.linger_bytes {
                    self.close(index);
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            _ => self.close(index),
        }
    }

    fn act_on_wakes(&mut self) {
        let mut wakes = std::mem::take(&mut self.wakes);
        self.env.mailbox.drain(&mut wakes);
        for token in wakes.drain(..) {
            if let Some(connection) = self.connections.get_mut(token.index as usize)
                && connection.serial == token.serial
            {
                connection.wake(token, &self.env);
                // An answer in the making may have started work, as a request does.
                self.handled = true;
                self.mark_dirty(token);
            }
        }
        self.wakes = wakes;
    }

    fn act_on_timers(&mut self) {
        let now = self.env.clock.tick;
        while let Some((at, token)) = self.timers.pop(now) {
            if token == LISTENER {
                if let Some(listener) = &self.listener {
                    let _ = epoll::modify(&self.epoll, listener, LISTENER.data(), EventFlags::IN);
                }
                continue;
            }
            self.handled = true;
            let Some(connection) = self.get(token) else { continue };
            if connection.armed == at {
                connection.armed = NEVER;
                self.expire(token);
            }
        }
        let connections = &self.connections;
        let alive = |token: Token| connections.get(token.index as usize).filter(|c| c.serial == token.serial);
        self.timers
            .sweep(connections.len(), |at, token| token == LISTENER || alive(token).is_some_and(|c| c.armed == at));
        self.held.sweep(connections.len(), |token| alive(token).is_some());
    }

    /// The deadline that a connection has passed, if any.
    fn expire(&mut self, token: Token) {
        let index = token.index as usize;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Env { config, clock, counters, .. } = &self.env;
        let passed = |since: Tick, time: Duration| clock.tick_after(since, time) <= clock.tick;
        let stalled = connection.backlog.is_some() && passed(connection.write_since, config.write_timeout);
        let gone = match &mut connection.input {
            _ if connection.flags.lingering => passed(connection.since, config.linger_time),
            None => connection.is_idle() && passed(connection.since, connection.patience(config)),
            Some(input) => {
                let in_body = input.framer.in_body();
                let time = if in_body { config.body_timeout } else { config.header_timeout };
                if passed(connection.since, time) && !connection.flags.paused && !connection.flags.last {
                    if in_body && input.of_body >= config.body_bytes_min {
                        (input.of_body, connection.since) = (0, clock.tick);
                    } else {
                        counters.timeouts.add(1);
                        connection.input = None;
                        connection.refuse(Refusal::TOO_SLOW, &self.env);
                    }
                }
                false
            }
        };
        if stalled || gone {
            counters.timeouts.add(usize::from(stalled));
            return self.close(index);
        }
        connection.wake_due(token, &self.env);
        self.mark_dirty(token);
    }

    /// Handles input that a bound had delayed.
    fn go_on(&mut self) {
        for token in std::mem::take(&mut self.again) {
            let Some(connection) = self.connections.get_mut(token.index as usize) else { continue };
            if connection.serial != token.serial {
                continue;
            }
            if connection.flags.paused && connection.has_room(&self.env) {
                connection.flags.paused = false;
                if let Some(mut input) = connection.input.take() {
                    let handled = connection.serve(token, &mut input, &self.env);
                    self.keep(token, input, handled);
                }
            }
            if self.connections.get(token.index as usize).is_some_and(Connection::has_unread) {
                self.read(token);
            }
            self.mark_dirty(token);
        }
    }

    /// Releases replies up to the gate's position.
    fn pass_gate(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let all = Reached::from(Lsn::MAX);
        let reached = if self.env.gate.failed() { all } else { self.env.gate.reached() };
        while let Some(token) = self.held.release(reached) {
            if let Some(connection) = self.get(token) {
                connection.flags.at_gate = false;
                self.mark_dirty(token);
            }
        }
    }

    /// Sends the output of every dirty connection: first all small output, then a bounded part of the large.
    fn send(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for token in dirty.drain(..) {
            match self.get(token) {
                None => {}
                Some(connection) if connection.has_much() => self.bulk.push_back(token),
                Some(_) => _ = self.send_to(token),
            }
        }
        self.dirty = dirty;
        let mut sent = 0;
        while sent < BULK_PER_ROUND
            && let Some(token) = self.bulk.pop_front()
        {
            sent += self.send_to(token);
        }
        self.bulk.shrink_to(1024);
    }

    /// Gives a connection its turn; returns how many bytes its socket took.
    fn send_to(&mut self, token: Token) -> usize {
        let Some(connection) = self.get(token) else { return 0 };
        connection.flags.dirty = false;
        match self.flush(token) {
            Ok(sent) => {
                self.settle(token);
                sent
            }
            Err(_) => {
                self.close(token.index as usize);
                0
            }
        }
    }

    fn flush(&mut self, token: Token) -> io::Result<usize> {
        let Some(connection) = self.connections.get_mut(token.index as usize) else { return Ok(0) };
        let Env { counters, clock, config, .. } = &self.env;
        let mut turn = 0;
        if connection.backlog.is_some() && std::mem::take(&mut connection.flags.writable) {
            turn = connection.send_backlog(clock.tick, &config.pages)?;
            counters.bytes_out.add(turn);
        }
        connection.send_handshake(clock.tick)?;
        if connection.backlog.is_some() {
            self.go_on_with(token, turn);
            return Ok(turn);
        }
        for _ in 0..SENDS_PER_ROUND {
            self.gather.clear();
            let fill = connection.fill(token, &self.env, &mut self.gather, &mut self.parts);
            if fill == Fill::Abort {
                self.parts.clear();
                self.gather.clear();
                connection.tls = None;
                // A reset, which no client takes for the end of a body.
                let _ = sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO));
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let len = self.gather.len();
            if len > 0 {
                let sent = connection.send(&mut self.gather, &config.pages)?;
                counters.bytes_out.add(sent);
                turn += sent;
                connection.since = if connection.input.is_none() { clock.tick } else { connection.since };
                if sent < len || connection.tls_waits() {
                    let mut backlog = Box::<Backlog>::default();
                    self.gather.keep(sent, &mut backlog);
                    connection.backlog = Some(backlog);
                    connection.write_since = clock.tick;
                }
            }
            match fill {
                Fill::AtGate(position) if !connection.flags.at_gate => {
                    connection.flags.at_gate = true;
                    self.held.add(position, token);
                    return Ok(turn);
                }
                Fill::Full if connection.backlog.is_none() && len > 0 && turn < TURN_MAX => {}
                Fill::Full if connection.backlog.is_none() => break,
                _ => {
                    if connection.backlog.is_some() {
                        self.go_on_with(token, turn);
                    }
                    return Ok(turn);
                }
            }
        }
        if !self.go_on_with(token, turn) {
            self.again.push(token);
        }
        Ok(turn)
    }

    /// Called after a turn that ended at its size limit, and not because the socket was full. The next turn is the same
    /// connection's, so that its client has its whole answer before the next answer begins: large answers sent all
    /// together fill the memory of clients and sockets. After some turns in a row other connections get theirs. Returns
    /// whether the connection has another turn.
    fn go_on_with(&mut self, token: Token, turn: usize) -> bool {
        if turn < TURN_MAX {
            return false;
        }
        let Some(connection) = self.connections.get_mut(token.index as usize) else { return false };
        (connection.flags.dirty, connection.flags.writable) = (true, true);
        let in_a_row = if self.favoured.0 == token { self.favoured.1 + 1 } else { 1 };
        if in_a_row < TURNS_IN_A_ROW {
            self.favoured = (token, in_a_row);
            self.bulk.push_front(token);
        } else {
            self.favoured = (LISTENER, 0);
            self.bulk.push_back(token);
        }
        true
    }

    /// After sending: closes the connection if it is done, and sees to its interest and timer if not.
    fn settle(&mut self, token: Token) {
        let index = token.index as usize;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let env = &self.env;
        let sent = connection.backlog.is_none();
        if connection.flags.finished && sent && !connection.flags.lingering {
            connection.say_end();
            if !connection.flags.linger
                || connection.flags.eof
                || shutdown(&connection.socket, Shutdown::Write).is_err()
            {
                return self.close(index);
            }
            connection.flags.lingering = true;
            connection.since = env.clock.tick;
            connection.input = None;
        }
        let idle = connection.is_idle() && !connection.flags.lingering;
        if idle && (connection.flags.eof || env.stopping) {
            return self.close(index);
        }
        if (connection.flags.paused && connection.has_room(env)) || connection.has_unread() {
            self.again.push(token);
        }
        let wanted = connection.wanted();
        if wanted != connection.interest {
            connection.interest = wanted;
            if epoll::modify(&self.epoll, &connection.socket, token.data(), wanted).is_err() {
                return self.close(index);
            }
        }
        let deadline = connection.deadline(env);
        if deadline < connection.armed {
            connection.armed = deadline;
            self.timers.add(deadline, token);
        }
    }

    /// Stops accepting and lets everything that waits know.
    fn begin_stop(&mut self) {
        self.env.stopping = true;
        // Connections that the kernel has established already would be reset with the listener.
        self.accept();
        self.listener = None;
        self.stop_at = self.env.clock.tick_after(self.env.clock.tick, self.env.mailbox.grace());
        self.timers.add(self.stop_at, LISTENER);
        let tokens: Vec<_> = self
            .connections
            .iter()
            .map(|(index, connection)| Token { index: index as u32, serial: connection.serial })
            .collect();
        for token in tokens {
            // A request may have arrived that this round has not read yet.
            if self.get(token).is_some_and(|connection| connection.is_idle()) {
                self.read(token);
            }
            if let Some(connection) = self.connections.get_mut(token.index as usize)
                && connection.serial == token.serial
            {
                connection.wake(token, &self.env);
                // An answer in the making may have started work, as a request does.
                self.handled = true;
                self.mark_dirty(token);
            }
        }
    }
}
