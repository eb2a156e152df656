//! The writer that live readers wait for.

use super::event;
use crate::cost::Meter;
use crate::drive::{Nanos, Verdict, Work, nanos};
use crate::http::request;
use std::time::Instant;

pub(crate) struct Writer {
    pub(crate) path: String,
    pub(crate) size: usize,
    /// Events in all, and how many of them come before the measured ones.
    pub(crate) events: u64,
    pub(crate) warm: u64,
    pub(crate) epoch: Instant,
    pub(crate) server_pid: Option<u32>,
    pub(crate) sent: u64,
    /// Began with the first measured event.
    pub(crate) meter: Option<Meter>,
}

impl Work for Writer {
    fn request(&mut self, _connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        if self.sent == self.events {
            return None;
        }
        if self.sent == self.warm {
            self.meter = Some(Meter::start(self.server_pid));
        }
        let mut body = Vec::with_capacity(self.size);
        event::write(nanos(self.epoch), self.sent, self.size, &mut body);
        request(out, "POST", &self.path, &[("content-type", "text/plain")], &body);
        self.sent += 1;
        Some(0)
    }

    fn done(&mut self, _connection: usize, _tag: u32, status: u16) -> Verdict {
        if status < 300 { Verdict::Good } else { Verdict::Bad }
    }
}
