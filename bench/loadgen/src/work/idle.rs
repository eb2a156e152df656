//! Connections that ask once and then wait.

use crate::drive::{Nanos, Verdict, Work};
use crate::http;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Kept alive after one read.
    KeepAlive,
    /// A reader by SSE at the end of a stream.
    Sse,
    /// A reader by long-poll at the end of a stream.
    LongPoll,
}

pub(crate) struct Idle<'a> {
    request: Vec<u8>,
    kind: Kind,
    asked: Vec<bool>,
    answered: Vec<bool>,
    pub(crate) ready: &'a AtomicU64,
    pub(crate) refused: u64,
    pub(crate) closed: u64,
}

impl<'a> Idle<'a> {
    pub(crate) fn new(path: &str, end: &str, kind: Kind, many: usize, ready: &'a AtomicU64) -> Self {
        let query = match kind {
            Kind::KeepAlive => "-1".into(),
            Kind::Sse => "now&live=sse".into(),
            Kind::LongPoll => format!("{end}&live=long-poll"),
        };
        let request = format!("GET {path}?offset={query} HTTP/1.1\r\nhost: {}\r\n\r\n", http::host()).into_bytes();
        Self { request, kind, asked: vec![false; many], answered: vec![false; many], ready, refused: 0, closed: 0 }
    }

    fn answer(&mut self, connection: usize) {
        if !std::mem::replace(&mut self.answered[connection], true) {
            self.ready.fetch_add(1, Ordering::Release);
        }
    }
}

impl Work for Idle<'_> {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        if self.kind == Kind::KeepAlive && std::mem::replace(&mut self.asked[connection], true) {
            return None;
        }
        out.extend_from_slice(&self.request);
        if self.kind == Kind::LongPoll {
            self.answer(connection);
        }
        Some(0)
    }

    fn head(&mut self, _connection: usize, status: u16, _head: &[u8]) {
        self.refused += u64::from(!matches!(status, 200 | 204));
    }

    fn body(&mut self, connection: usize, _tag: u32, _bytes: &[u8], _now: Nanos) {
        if self.kind == Kind::Sse {
            self.answer(connection);
        }
    }

    fn done(&mut self, connection: usize, _tag: u32, _status: u16) -> Verdict {
        self.answer(connection);
        Verdict::Good
    }

    fn closed(&mut self, connection: usize) -> bool {
        self.closed += 1;
        self.asked[connection] = false;
        true
    }
}
