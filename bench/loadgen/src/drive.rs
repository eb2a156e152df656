//! The loop that keeps connections busy: one thread, one epoll, raw sockets.
//!
//! A [`Work`] makes the requests and judges the answers. This loop sends at a [`Pace`], takes times and counts. A
//! closed loop sends the next request when an answer came; at a rate, requests are due at fixed times, and latencies
//! count from a request's due time, however late it could be sent.

mod connection;
mod tally;
#[cfg(test)]
mod tests;

use crate::cost::Meter;
use connection::{Connection, Input};
pub(crate) use tally::Tally;

use anyhow::{Context, bail};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds since the program's own beginning; all threads have the same.
pub(crate) type Nanos = u64;

/// Judgement of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// The answer is a part: the same operation continues with another request on the same connection.
    More,
    /// Not yet: the same, after this many nanoseconds.
    Later(Nanos),
}

/// Makes requests and judges answers. Connections are numbered from 0 in each thread.
pub(crate) trait Work {
    /// Puts the next request of a connection at the end of `out`, and gives it a tag; nothing if the connection has no
    /// more. `at` is when the request is due, which is now in a closed loop.
    fn request(&mut self, connection: usize, at: Nanos, out: &mut Vec<u8>) -> Option<u32>;
    /// The head of an answer.
    fn head(&mut self, _connection: usize, _status: u16, _head: &[u8]) {}
    /// A piece of an answer's body.
    fn body(&mut self, _connection: usize, _tag: u32, _bytes: &[u8], _now: Nanos) {}
    /// The end of an answer.
    fn done(&mut self, connection: usize, tag: u32, status: u16) -> Verdict;
    /// The server closed the connection; whether to open it again.
    fn closed(&mut self, _connection: usize) -> bool {
        false
    }
}

/// When to stop.
pub(crate) enum Until<'a> {
    /// Until no connection has a request left.
    Exhausted,
    /// After a warm-up that is not counted, and a time that is.
    Elapsed { warm: Duration, seconds: Duration },
    /// Until another thread sets this.
    Stopped(&'a AtomicBool),
}

pub(crate) struct Pace<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) server_pid: Option<u32>,
    pub(crate) connections: usize,
    /// The number of this thread's first connection, of all threads'.
    pub(crate) first: usize,
    /// Concurrent requests on one connection.
    pub(crate) depth: usize,
    /// Requests per second; `None`: a closed loop.
    pub(crate) rate: Option<f64>,
    pub(crate) until: Until<'a>,
    /// Receives latencies since the last report, for output during the run.
    pub(crate) interval: Option<&'a Mutex<Tally>>,
}

/// How long to wait for outstanding answers after the last request.
const DRAIN: Nanos = 20_000_000_000;
/// How long the loop sleeps at most.
const NAP: Nanos = 50_000_000;
const EVENTS: usize = 256;
const SCRATCH_BYTES: usize = 256 << 10;

pub(crate) fn run<W: Work>(pace: &Pace<'_>, epoch: Instant, work: &mut W) -> anyhow::Result<Tally> {
    let mut drive = Drive::open(pace, epoch, work)?;
    drive.run()?;
    Ok(drive.tally)
}

struct Drive<'a, W> {
    pace: &'a Pace<'a>,
    work: &'a mut W,
    epoch: Instant,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Connections that may ask, one entry for each request that they may.
    ready: VecDeque<u32>,
    /// Connections that may ask again, and when.
    later: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Connections with something to send.
    dirty: Vec<u32>,
    /// Due time of the next request, at a rate.
    due: f64,
    gap: f64,
    on_their_way: usize,
    /// The measured window.
    from: Nanos,
    to: Nanos,
    tally: Tally,
    since_last_look: Tally,
}

impl<'a, W: Work> Drive<'a, W> {
    fn open(pace: &'a Pace<'a>, epoch: Instant, work: &'a mut W) -> anyhow::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(pace.connections);
        for i in 0..pace.connections {
            let connection = Connection::open(pace.server, pace.first + i)?;
            epoll::add(&epoll, &connection.socket, EventData::new_u64(i as u64), EventFlags::IN)?;
            connections.push(connection);
        }
        let all = u32::try_from(pace.connections).context("too many connections")?;
        let ready = (0..pace.depth.max(1)).flat_map(|_| 0..all).collect();
        let now = nanos(epoch);
        let (from, to) = match pace.until {
            Until::Exhausted | Until::Stopped(_) => (now, Nanos::MAX),
            Until::Elapsed { warm, seconds } => {
                let from = now + warm.as_nanos() as Nanos;
                (from, from + seconds.as_nanos() as Nanos)
            }
        };
        let gap = pace.rate.map_or(0.0, |rate| 1e9 / rate.max(1e-3));
        Ok(Self {
            pace,
            work,
            epoch,
            epoll,
            connections,
            ready,
            later: BinaryHeap::new(),
            dirty: Vec::new(),
            due: now as f64,
            gap,
            on_their_way: 0,
            from,
            to,
            tally: Tally::default(),
            since_last_look: Tally::default(),
        })
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        let mut scratch = vec![0; SCRATCH_BYTES];
        let mut meter = None;
        let mut looked = nanos(self.epoch);
        loop {
            let now = nanos(self.epoch);
            if meter.is_none() && now >= self.from {
                // The window is as long as planned, from when it really began.
                self.to = self.to.saturating_add(now - self.from);
                self.from = now;
                meter = Some(Meter::start(self.pace.server_pid));
            }
            if now >= self.to {
                if !self.tally.closed {
                    self.tally.close(meter.as_ref().map(Meter::stop));
                }
                if self.on_their_way == 0 || now > self.to + DRAIN {
                    break;
                }
            } else {
                self.ask(now)?;
                if let Until::Exhausted = self.pace.until
                    && self.on_their_way == 0
                    && self.ready.is_empty()
                    && self.later.is_empty()
                {
                    break;
                }
            }
            if let Until::Stopped(flag) = self.pace.until
                && flag.load(Ordering::Acquire)
            {
                break;
            }
            if let Some(interval) = self.pace.interval
                && now > looked + 200_000_000
            {
                looked = now;
                interval.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(&self.since_last_look);
                self.since_last_look = Tally::default();
            }
            events.clear();
            let timeout = self.timeout(now);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (flags, data) = (event.flags, event.data);
                let i = data.u64() as usize;
                if flags.contains(EventFlags::OUT) {
                    self.flush(i)?;
                }
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                    self.receive(i, &mut scratch)?;
                }
            }
        }
        if !self.tally.closed {
            self.tally.close(meter.as_ref().map(Meter::stop));
        }
        if !matches!(self.pace.until, Until::Stopped(_)) {
            self.tally.bad += self.on_their_way as u64;
        }
        Ok(())
    }

    fn timeout(&self, now: Nanos) -> Timespec {
        let mut nap = NAP.min(self.to.saturating_sub(now).max(1));
        if self.gap > 0.0 && !self.ready.is_empty() {
            nap = nap.min((self.due as Nanos).saturating_sub(now));
        }
        Timespec { tv_sec: 0, tv_nsec: nap as _ }
    }

    /// Sends the requests that are due.
    fn ask(&mut self, now: Nanos) -> anyhow::Result<()> {
        while self.later.peek().is_some_and(|due| due.0.0 <= now)
            && let Some(Reverse((_, i))) = self.later.pop()
        {
            self.ready.push_front(i);
        }
        while self.gap == 0.0 || self.due <= now as f64 {
            let Some(i) = self.ready.pop_front() else { break };
            let connection = &mut self.connections[i as usize];
            let at = match connection.goes_on.take() {
                Some(began) => began,
                None if self.gap > 0.0 => self.due as Nanos,
                None => now,
            };
            let Some(tag) = self.work.request(i as usize, at, &mut connection.out) else { continue };
            if self.gap > 0.0 {
                self.due += self.gap;
            }
            connection.waiting.push_back((at, tag));
            self.on_their_way += 1;
            if self.dirty.last() != Some(&i) {
                self.dirty.push(i);
            }
        }
        while let Some(i) = self.dirty.pop() {
            self.flush(i as usize)?;
        }
        Ok(())
    }

    fn flush(&mut self, i: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[i];
        let wanted = connection.wants_out;
        match connection.flush() {
            Ok(()) => {}
            // The server's answer to the broken request may still be readable.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => connection.wants_out = false,
            Err(error) => return Err(error).context("cannot send"),
        }
        if connection.wants_out != wanted {
            let flags = if connection.wants_out { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, &connection.socket, EventData::new_u64(i as u64), flags)?;
        }
        Ok(())
    }

    fn receive(&mut self, i: usize, scratch: &mut [u8]) -> anyhow::Result<()> {
        let connection = &mut self.connections[i];
        let many = match rustix::io::read(&connection.socket, &mut *scratch) {
            Ok(0) | Err(rustix::io::Errno::CONNRESET) => return self.closed(i),
            Ok(many) => many,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error).context("cannot receive"),
        };
        let now = nanos(self.epoch);
        let mut input = Input::new(connection, &scratch[..many]);
        while let Some((at, tag, status)) = input.next(i, now, connection, self.work)? {
            self.on_their_way -= 1;
            match self.work.done(i, tag, status) {
                Verdict::More => {
                    connection.goes_on = Some(at);
                    self.ready.push_front(i as u32);
                    continue;
                }
                Verdict::Later(after) => {
                    connection.goes_on = Some(at);
                    self.later.push(Reverse((now + after, i as u32)));
                    continue;
                }
                verdict => {
                    let (from, to) = (self.from, self.to);
                    self.tally.record(verdict, now >= from && now < to, at >= from && at < to, now.saturating_sub(at));
                    if self.pace.interval.is_some() {
                        self.since_last_look.record(verdict, true, true, now.saturating_sub(at));
                    }
                }
            }
            self.ready.push_back(i as u32);
        }
        if now < self.to { self.ask(now) } else { Ok(()) }
    }

    fn closed(&mut self, i: usize) -> anyhow::Result<()> {
        if !self.work.closed(i) {
            bail!("the server closed a connection with {} requests in flight", self.connections[i].waiting.len());
        }
        let lost = self.connections[i].waiting.len();
        self.on_their_way -= lost;
        self.tally.reopened += 1;
        self.connections[i] = Connection::open(self.pace.server, self.pace.first + i)?;
        let data = EventData::new_u64(i as u64);
        epoll::add(&self.epoll, &self.connections[i].socket, data, EventFlags::IN)?;
        self.ready.extend(std::iter::repeat_n(i as u32, lost));
        let now = nanos(self.epoch);
        if now < self.to { self.ask(now) } else { Ok(()) }
    }
}

pub(crate) fn nanos(epoch: Instant) -> Nanos {
    epoch.elapsed().as_nanos() as Nanos
}
