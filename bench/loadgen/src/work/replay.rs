//! Reads from the beginning to the end, page by page, and says how much came and whether it was right.

use crate::content;
use crate::drive::{Nanos, Verdict, Work};
use crate::http::{self, header};
use crate::names::{Names, Share};
use std::collections::HashMap;

/// Expected content of a whole stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected {
    /// Anything.
    Anything,
    /// Binary content as `fill --binary` wrote it.
    Content { messages: u64, size: usize },
    /// This many JSON objects.
    Objects { messages: u64 },
}

pub(crate) struct Replay {
    names: Names,
    expected: Expected,
    checksums: HashMap<u64, u32>,
    readers: Vec<Reader>,
    /// Replays that ended, and their bytes and pages.
    pub(crate) finished: u64,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
    /// Replays with content other than the expected one.
    pub(crate) wrong: u64,
}

struct Reader {
    share: Share,
    turn: u64,
    /// Number of reads left; `None`: no limit.
    left: Option<u64>,
    /// From where the next page is asked; nothing at the beginning of a replay.
    offset: Vec<u8>,
    up_to_date: bool,
    bytes: u64,
    checksum: u32,
    objects: u64,
}

impl Replay {
    /// `each` is the number of replays of a connection; `None`: no limit.
    pub(crate) fn new(
        names: &Names,
        expected: Expected,
        each: Option<u64>,
        first: usize,
        many: usize,
        all: usize,
    ) -> Self {
        let readers = (first..first + many).map(|connection| Reader {
            share: Share::of(names.count(), connection as u64, all as u64),
            turn: 0,
            left: each,
            offset: Vec::new(),
            up_to_date: false,
            bytes: 0,
            checksum: 0,
            objects: 0,
        });
        Self {
            names: names.clone(),
            expected,
            checksums: HashMap::new(),
            readers: readers.collect(),
            finished: 0,
            bytes: 0,
            pages: 0,
            wrong: 0,
        }
    }

    fn is_right(&mut self, connection: usize) -> bool {
        let reader = &self.readers[connection];
        let stream = reader.share.stream(reader.turn);
        match self.expected {
            Expected::Anything => true,
            Expected::Objects { messages } => reader.objects == messages,
            Expected::Content { messages, size } => {
                let sum = *self.checksums.entry(stream).or_insert_with(|| content::checksum(stream, messages, size));
                reader.bytes == messages * size as u64 && reader.checksum == sum
            }
        }
    }
}

impl Work for Replay {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        let reader = &mut self.readers[connection];
        if reader.left == Some(0) {
            return None;
        }
        out.extend_from_slice(b"GET ");
        out.extend_from_slice(self.names.root().as_bytes());
        self.names.number(reader.share.stream(reader.turn), out);
        out.extend_from_slice(b"?offset=");
        out.extend_from_slice(if reader.offset.is_empty() { b"-1" } else { &reader.offset });
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(http::host().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        Some(0)
    }

    fn head(&mut self, connection: usize, _status: u16, head: &[u8]) {
        let reader = &mut self.readers[connection];
        reader.up_to_date = header(head, "stream-up-to-date").is_some();
        reader.offset.clear();
        reader.offset.extend_from_slice(header(head, "stream-next-offset").unwrap_or_default());
    }

    fn body(&mut self, connection: usize, _tag: u32, bytes: &[u8], _now: Nanos) {
        let reader = &mut self.readers[connection];
        reader.bytes += bytes.len() as u64;
        match self.expected {
            Expected::Anything => {}
            Expected::Content { .. } => reader.checksum = crc32c::crc32c_append(reader.checksum, bytes),
            Expected::Objects { .. } => reader.objects += memchr::memchr_iter(b'{', bytes).count() as u64,
        }
    }

    fn done(&mut self, connection: usize, _tag: u32, status: u16) -> Verdict {
        self.pages += 1;
        let reader = &self.readers[connection];
        let page = status == 200 && !reader.offset.is_empty();
        if page && !reader.up_to_date {
            return Verdict::More;
        }
        let right = page && self.is_right(connection);
        let reader = &mut self.readers[connection];
        self.finished += 1;
        self.bytes += reader.bytes;
        self.wrong += u64::from(page && !right);
        reader.turn += 1;
        reader.left = reader.left.map(|left| left - 1);
        reader.offset.clear();
        (reader.bytes, reader.checksum, reader.objects) = (0, 0, 0);
        if right { Verdict::Good } else { Verdict::Bad }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_follows_pages_and_notices_wrong_content() {
        let names = Names { streams: 1, from: 0, step: 1, prefix: "r".into(), name_bytes: 2 };
        let mut replay = Replay::new(&names, Expected::Content { messages: 2, size: 40 }, None, 0, 1, 1);
        let mut bytes = Vec::new();
        (0..2).for_each(|number| content::message(0, number, 40, &mut bytes));
        let mut pass = |bytes: &[u8]| {
            let mut out = Vec::new();
            replay.request(0, 0, &mut out);
            assert!(out.starts_with(b"GET /v1/stream/r0?offset=-1 HTTP/1.1\r\n"));
            replay.head(0, 200, b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 5_6\r\n\r\n");
            replay.body(0, 0, &bytes[..50], 0);
            assert_eq!(replay.done(0, 0, 200), Verdict::More);
            out.clear();
            replay.request(0, 0, &mut out);
            assert!(out.starts_with(b"GET /v1/stream/r0?offset=5_6 HTTP/1.1\r\n"));
            replay.head(0, 200, b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 7_8\r\nstream-up-to-date: true\r\n\r\n");
            replay.body(0, 0, &bytes[50..], 0);
            replay.done(0, 0, 200)
        };
        assert_eq!(pass(&bytes), Verdict::Good);
        bytes[60] ^= 1;
        assert_eq!(pass(&bytes), Verdict::Bad);
        assert_eq!((replay.finished, replay.wrong, replay.bytes, replay.pages), (2, 1, 160, 4));
    }
}
