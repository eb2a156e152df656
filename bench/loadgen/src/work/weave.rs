//! Streams filled while others grow between their messages.

use super::each::put;
use crate::content;
use crate::drive::{Nanos, Verdict, Work};
use crate::http::request;
use crate::names::{Names, Share};

const BINARY: &str = "application/octet-stream";

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// Number of messages of each stream.
    pub(crate) messages: u64,
    /// Bytes of each message, the others' too.
    pub(crate) size: usize,
    pub(crate) others: u64,
    pub(crate) between: u64,
}

pub(crate) struct Weave {
    names: Names,
    others: Names,
    pattern: Pattern,
    connections: Vec<Mine>,
}

struct Mine {
    streams: Share,
    others: Share,
    done: u64,
}

impl Weave {
    /// At least as many streams as connections.
    pub(crate) fn new(names: &Names, pattern: &Pattern, first: usize, many: usize, all: usize) -> Self {
        let share = |count, connection| Share::of(count, connection as u64, all as u64);
        let connections = (first..first + many).map(|connection| Mine {
            streams: share(names.count(), connection),
            others: share(pattern.others.max(1), connection),
            done: 0,
        });
        let others = Names { streams: pattern.others, from: 0, step: 1, prefix: "other-".into(), ..names.clone() };
        Self { names: names.clone(), others, pattern: pattern.clone(), connections: connections.collect() }
    }
}

impl Work for Weave {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        let mine = &mut self.connections[connection];
        let pattern = &self.pattern;
        let step = mine.done;
        mine.done += 1;
        // First all streams are created.
        if step < mine.streams.count {
            put(out, &self.names.path(mine.streams.stream(step)), BINARY, 0, b"");
            return Some(0);
        }
        let others = if pattern.others == 0 { 0 } else { mine.others.count };
        let step = step - mine.streams.count;
        if step < others {
            put(out, &self.others.path(mine.others.stream(step)), BINARY, 0, b"");
            return Some(0);
        }
        // Then a message to each stream in turn, each followed by some to others.
        let step = step - others;
        let between = if others == 0 { 0 } else { pattern.between };
        let (turn, inside) = (step / (1 + between), step % (1 + between));
        if turn >= mine.streams.count * pattern.messages {
            return None;
        }
        let mut body = Vec::with_capacity(pattern.size);
        let path = if inside == 0 {
            let stream = mine.streams.stream(turn);
            content::message(stream, turn / mine.streams.count, pattern.size, &mut body);
            self.names.path(stream)
        } else {
            body.resize(pattern.size, b'o');
            self.others.path(mine.others.stream(turn * between + inside - 1))
        };
        request(out, "POST", &path, &[("content-type", BINARY)], &body);
        Some(0)
    }

    fn done(&mut self, _connection: usize, _tag: u32, status: u16) -> Verdict {
        if status < 300 { Verdict::Good } else { Verdict::Bad }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_grow_between_the_messages_of_a_stream() {
        let names = Names { streams: 1, from: 0, step: 1, prefix: "s".into(), name_bytes: 2 };
        let pattern = Pattern { messages: 2, size: 40, others: 3, between: 2 };
        let mut weave = Weave::new(&names, &pattern, 0, 1, 1);
        let mut order = Vec::new();
        loop {
            let mut out = Vec::new();
            if weave.request(0, 0, &mut out).is_none() {
                break;
            }
            let text = String::from_utf8_lossy(&out).replace("/v1/stream/", "");
            order.push(text.split(" HTTP").next().unwrap().to_string());
        }
        let expected = [
            "PUT s0",
            "PUT other-0",
            "PUT other-1",
            "PUT other-2", //
            "POST s0",
            "POST other-0",
            "POST other-1",
            "POST s0",
            "POST other-2",
            "POST other-0",
        ];
        assert_eq!(order, expected);
    }
}
