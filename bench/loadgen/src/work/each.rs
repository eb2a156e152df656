//! A fixed list of requests for each stream: creating, filling, deleting.

use crate::drive::{Nanos, Verdict, Work};
use crate::http::request;
use crate::names::{Names, Share};

/// The requests for one stream, in this order.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// PUT, with a body if there is one.
    Create {
        content_type: &'static str,
        ttl: u64,
        body: Vec<u8>,
    },
    Delete,
    Fill(Fill),
}

/// PUT, then `messages` in requests of `per_post`.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) messages: u64,
    pub(crate) size: usize,
    pub(crate) per_post: u64,
    pub(crate) ttl: u64,
    /// JSON with one producer; else binary, each message with its own content (see [`crate::content`]).
    pub(crate) json: bool,
}

impl Plan {
    fn steps(&self) -> u64 {
        match self {
            Self::Create { .. } | Self::Delete => 1,
            Self::Fill(fill) => 1 + fill.messages.div_ceil(fill.per_post.max(1)),
        }
    }

    fn write(&self, path: &str, stream: u64, step: u64, out: &mut Vec<u8>) {
        match self {
            Self::Create { content_type, ttl, body } => put(out, path, content_type, *ttl, body),
            Self::Delete => request(out, "DELETE", path, &[], b""),
            Self::Fill(fill) if step == 0 => put(out, path, fill.content_type(), fill.ttl, b""),
            Self::Fill(fill) => fill.post(path, stream, step - 1, out),
        }
    }
}

pub(super) fn put(out: &mut Vec<u8>, path: &str, content_type: &str, ttl: u64, body: &[u8]) {
    let ttl = if ttl == 0 { String::new() } else { ttl.to_string() };
    let headers = [("content-type", content_type), ("stream-ttl", ttl.as_str())];
    request(out, "PUT", path, &headers[..if ttl.is_empty() { 1 } else { 2 }], body);
}

impl Fill {
    fn content_type(&self) -> &'static str {
        if self.json { "application/json" } else { "application/octet-stream" }
    }

    fn post(&self, path: &str, stream: u64, number: u64, out: &mut Vec<u8>) {
        let first = number * self.per_post.max(1);
        let many = self.per_post.clamp(1, self.messages - first);
        if self.json {
            let message = format!("{{\"k\":1,\"p\":\"{}\"}}", "x".repeat(self.size.saturating_sub(14)));
            let body = format!("[{}]", vec![message.as_str(); many as usize].join(","));
            let seq = number.to_string();
            let headers = [
                ("content-type", self.content_type()),
                ("producer-id", "p"),
                ("producer-epoch", "0"),
                ("producer-seq", seq.as_str()),
            ];
            request(out, "POST", path, &headers, body.as_bytes());
        } else {
            let mut body = Vec::with_capacity(self.size * many as usize);
            (first..first + many).for_each(|message| crate::content::message(stream, message, self.size, &mut body));
            request(out, "POST", path, &[("content-type", self.content_type())], &body);
        }
    }
}

pub(crate) struct Each {
    names: Names,
    plan: Plan,
    /// All streams take a step before any takes the next; else one stream is finished before the next begins.
    interleave: bool,
    connections: Vec<(Share, u64)>,
    /// The first refusal, for diagnosis.
    pub(crate) refused: Option<(String, u16)>,
}

impl Each {
    pub(crate) fn new(names: &Names, plan: Plan, interleave: bool, first: usize, many: usize, all: usize) -> Self {
        let connections = (first..first + many).map(|connection| {
            let mut share = Share::of(names.count(), connection as u64, all as u64);
            if connection as u64 >= names.count() {
                share.count = 0;
            }
            (share, 0)
        });
        Self { names: names.clone(), plan, interleave, connections: connections.collect(), refused: None }
    }
}

impl Work for Each {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        let (share, done) = &mut self.connections[connection];
        let steps = self.plan.steps();
        if *done >= share.count * steps {
            return None;
        }
        let (turn, step) =
            if self.interleave { (*done % share.count, *done / share.count) } else { (*done / steps, *done % steps) };
        *done += 1;
        let stream = share.stream(turn);
        self.plan.write(&self.names.path(stream), stream, step, out);
        Some(turn as u32)
    }

    fn done(&mut self, connection: usize, turn: u32, status: u16) -> Verdict {
        if status < 300 {
            return Verdict::Good;
        }
        if self.refused.is_none() {
            self.refused = Some((self.names.path(self.connections[connection].0.stream(u64::from(turn))), status));
        }
        Verdict::Bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(interleave: bool) -> Vec<String> {
        let names = Names { streams: 2, from: 0, step: 1, prefix: String::new(), name_bytes: 1 };
        let fill = Fill { messages: 3, size: 32, per_post: 2, ttl: 0, json: false };
        let mut each = Each::new(&names, Plan::Fill(fill), interleave, 0, 1, 1);
        std::iter::from_fn(|| {
            let mut out = Vec::new();
            each.request(0, 0, &mut out)?;
            let head = String::from_utf8_lossy(&out[..19]).into_owned();
            Some(format!("{} {}", head.replace("/v1/stream/", "").trim(), out.len()))
        })
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .collect()
    }

    #[test]
    fn streams_are_filled_one_by_one_or_in_turns() {
        assert_eq!(order(false), ["PUT 0", "POST 0", "POST 0", "PUT 1", "POST 1", "POST 1"]);
        assert_eq!(order(true), ["PUT 0", "PUT 1", "POST 0", "POST 1", "POST 0", "POST 1"]);
    }

    #[test]
    fn a_connection_without_a_stream_has_nothing_to_do() {
        let names = Names { streams: 1, from: 0, step: 1, prefix: String::new(), name_bytes: 1 };
        let mut each = Each::new(&names, Plan::Delete, false, 0, 2, 2);
        assert!(each.request(0, 0, &mut Vec::new()).is_some());
        assert!(each.request(1, 0, &mut Vec::new()).is_none());
    }
}
