//! Appends: each connection walks through its streams, round and round.

use crate::drive::{Nanos, Verdict, Work};
use crate::http::{self, digits};
use crate::names::{Names, Share};
use clap::Args;

#[derive(Args, Clone, Debug)]
pub(crate) struct Body {
    /// Bytes of one append's body.
    #[arg(long, alias = "bytes", default_value_t = 256)]
    pub(crate) size: usize,
    /// JSON streams; octet-stream otherwise.
    #[arg(long)]
    pub(crate) json: bool,
    /// With Producer-* headers: a producer per stream, or per connection if there are fewer streams than connections.
    #[arg(long)]
    pub(crate) producers: bool,
    /// Speak S2's API to this basin instead: one record of `size` bytes per request, as JSON.
    #[arg(long, conflicts_with_all = ["json", "producers"])]
    pub(crate) s2_basin: Option<String>,
}

impl Body {
    pub(crate) fn content_type(&self) -> &'static str {
        if self.json || self.s2_basin.is_some() { "application/json" } else { "application/octet-stream" }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        if self.s2_basin.is_some() {
            format!("{{\"records\":[{{\"body\":\"{}\"}}]}}", "x".repeat(self.size)).into_bytes()
        } else if self.json {
            format!("{{\"k\":1,\"p\":\"{}\"}}", "x".repeat(self.size.saturating_sub(14))).into_bytes()
        } else {
            vec![b'x'; self.size]
        }
    }
}

pub(crate) struct Append {
    /// The pieces of a request; between them the stream's number, and with producers its connection, epoch and
    /// sequence.
    start: Vec<u8>,
    middle: Vec<u8>,
    end: Vec<u8>,
    names: Names,
    first: usize,
    connections: Vec<Mine>,
    producers: bool,
    pub(crate) duplicates: u64,
}

/// One connection's streams.
struct Mine {
    share: Share,
    turn: u64,
    /// Epoch and next sequence of its producer in each stream.
    producers: Vec<(u64, u64)>,
}

impl Append {
    /// For the connections from `first` on of `all`. `epoch` begins the producers' epochs: a later run needs a higher
    /// one.
    pub(crate) fn new(names: &Names, body: &Body, first: usize, connections: usize, all: usize, epoch: u64) -> Self {
        let bytes = body.bytes();
        let (start, path_end, more) = match &body.s2_basin {
            Some(basin) => (format!("POST /v1/streams/{}", names.prefix), "/records", format!("s2-basin: {basin}\r\n")),
            None => (format!("POST {}", names.root()), "", String::new()),
        };
        let start = start.into_bytes();
        let middle = format!(
            "{path_end} HTTP/1.1\r\nhost: {}\r\ncontent-type: {}\r\n{more}content-length: {}\r\n",
            http::host(),
            body.content_type(),
            bytes.len()
        );
        let end = [b"\r\n", &bytes[..]].concat();
        let connections = (first..first + connections).map(|connection| {
            let share = Share::of(names.count(), connection as u64, all as u64);
            let many = if body.producers { share.count as usize } else { 0 };
            // The connections begin at different places of their shares.
            Mine { share, turn: connection as u64 * 7919, producers: vec![(epoch, 0); many] }
        });
        Self {
            start,
            middle: middle.into_bytes(),
            end,
            names: names.clone(),
            first,
            connections: connections.collect(),
            producers: body.producers,
            duplicates: 0,
        }
    }
}

impl Work for Append {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        let mine = &mut self.connections[connection];
        let turn = mine.turn % mine.share.count;
        mine.turn += 1;
        out.extend_from_slice(&self.start);
        self.names.number(mine.share.stream(turn), out);
        out.extend_from_slice(&self.middle);
        if self.producers {
            let (epoch, seq) = &mut mine.producers[turn as usize];
            out.extend_from_slice(b"producer-id: load-");
            digits(out, (self.first + connection) as u64, 1);
            out.extend_from_slice(b"\r\nproducer-epoch: ");
            digits(out, *epoch, 1);
            out.extend_from_slice(b"\r\nproducer-seq: ");
            digits(out, *seq, 1);
            out.extend_from_slice(b"\r\n");
            *seq += 1;
        }
        out.extend_from_slice(&self.end);
        Some(turn as u32)
    }

    fn done(&mut self, connection: usize, turn: u32, status: u16) -> Verdict {
        match status {
            // A producer's new append is answered with 200, a duplicate with 204.
            204 if self.producers => {
                self.duplicates += 1;
                Verdict::Bad
            }
            200 | 204 => Verdict::Good,
            _ => {
                if self.producers {
                    // The next append begins a new epoch; outstanding appends behind this one are refused as well.
                    let (epoch, seq) = &mut self.connections[connection].producers[turn as usize];
                    (*epoch, *seq) = (*epoch + 1, 0);
                }
                Verdict::Bad
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(streams: u64, connections: usize, producers: bool) -> Append {
        let names = Names { streams, from: 0, step: 1, prefix: "t-".into(), name_bytes: 8 };
        Append::new(&names, &Body { size: 4, json: false, producers, s2_basin: None }, 0, connections, connections, 9)
    }

    #[test]
    fn a_request_is_http_as_written() {
        let mut out = Vec::new();
        append(1, 1, false).request(0, 0, &mut out);
        let expected = "POST /v1/stream/t-000000 HTTP/1.1\r\nhost: bench\r\ncontent-type: application/octet-stream\r\n\
                        content-length: 4\r\n\r\nxxxx";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_record_of_s2_is_json_for_its_basin() {
        let names = Names { streams: 1, from: 0, step: 1, prefix: "t-".into(), name_bytes: 8 };
        let body = Body { size: 4, json: false, producers: false, s2_basin: Some("bench".into()) };
        let mut out = Vec::new();
        Append::new(&names, &body, 0, 1, 1, 9).request(0, 0, &mut out);
        let expected = "POST /v1/streams/t-000000/records HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
                        s2-basin: bench\r\ncontent-length: 29\r\n\r\n{\"records\":[{\"body\":\"xxxx\"}]}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_producer_counts_per_stream_and_begins_anew_after_a_refusal() {
        let mut work = append(2, 1, true);
        let mut ask = |refused: bool| {
            let mut out = Vec::new();
            let tag = work.request(0, 0, &mut out).unwrap();
            work.done(0, tag, if refused { 503 } else { 200 });
            let text = String::from_utf8(out).unwrap();
            let part = |name: &str| text.split(name).nth(1).unwrap().split("\r\n").next().unwrap().to_string();
            (part("/t-")[..6].to_string(), part("epoch: "), part("seq: "))
        };
        let step = |a: &str, b: &str, c: &str| (a.to_string(), b.to_string(), c.to_string());
        assert_eq!(ask(false), step("000000", "9", "0"));
        assert_eq!(ask(false), step("000001", "9", "0"));
        assert_eq!(ask(true), step("000000", "9", "1"));
        assert_eq!(ask(false), step("000001", "9", "1"));
        assert_eq!(ask(false), step("000000", "10", "0"));
    }
}
