//! Live readers of one stream, by SSE or long-poll: every event's delay, and whether each came exactly once.

use super::event::Scanner;
use crate::drive::{Nanos, Verdict, Work};
use crate::http::{self, header};
use crate::latency::Latencies;
use memchr::{memchr, memmem};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Live {
    Sse,
    LongPoll,
}

/// Readers' reports to the thread that waits for them.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Readers that got their first answer (SSE) or asked (long-poll).
    pub(crate) attached: AtomicU64,
    pub(crate) delivered: AtomicU64,
}

pub(crate) struct Readers<'a> {
    path: String,
    live: Live,
    progress: &'a Progress,
    readers: Vec<Reader>,
    /// Events before this one are not counted among the latencies.
    first_measured: u64,
    pub(crate) latencies: Latencies,
    pub(crate) missing: u64,
    pub(crate) duplicates: u64,
    /// Answers other than 200 and 204, and requests in all.
    pub(crate) refused: u64,
    pub(crate) requests: u64,
}

struct Reader {
    attached: bool,
    /// The server's latest offset and cursor, for the next request.
    offset: Vec<u8>,
    cursor: Vec<u8>,
    /// The event that must come next.
    next: u64,
    scanner: Scanner,
    lines: Lines,
}

/// A parser of SSE as far as it is needed: which lines are content and which control.
#[derive(Default)]
struct Lines {
    partial: Vec<u8>,
    control: bool,
}

impl<'a> Readers<'a> {
    /// `offset` is where all begin: `now`, or the end of the stream.
    pub(crate) fn new(
        path: &str,
        offset: &str,
        live: Live,
        many: usize,
        first_measured: u64,
        progress: &'a Progress,
    ) -> Self {
        let reader = || Reader {
            attached: false,
            offset: offset.into(),
            cursor: Vec::new(),
            next: 0,
            scanner: Scanner::default(),
            lines: Lines::default(),
        };
        Self {
            path: path.into(),
            live,
            progress,
            readers: std::iter::repeat_with(reader).take(many).collect(),
            first_measured,
            latencies: Latencies::default(),
            missing: 0,
            duplicates: 0,
            refused: 0,
            requests: 0,
        }
    }

    /// Counts the missing ones of `events`.
    pub(crate) fn finish(&mut self, events: u64) {
        self.missing += self.readers.iter().map(|reader| events.saturating_sub(reader.next)).sum::<u64>();
    }

    fn attach(reader: &mut Reader, progress: &Progress) {
        if !reader.attached {
            reader.attached = true;
            progress.attached.fetch_add(1, Ordering::Release);
        }
    }
}

impl Lines {
    /// Cuts `piece` into lines; `line` gets each `data` field and whether it belongs to a control event.
    fn feed(&mut self, piece: &[u8], mut line: impl FnMut(&[u8], bool)) {
        let mut rest = piece;
        while let Some(end) = memchr(b'\n', rest) {
            let (head, tail) = rest.split_at(end);
            rest = &tail[1..];
            if self.partial.is_empty() {
                Self::field(&mut self.control, head, &mut line);
            } else {
                self.partial.extend_from_slice(head);
                Self::field(&mut self.control, &self.partial, &mut line);
                self.partial.clear();
            }
        }
        self.partial.extend_from_slice(rest);
    }

    fn field(control: &mut bool, text: &[u8], line: &mut impl FnMut(&[u8], bool)) {
        if let Some(data) = text.strip_prefix(b"data:") {
            line(data, *control);
        } else if let Some(kind) = text.strip_prefix(b"event:") {
            *control = kind.trim_ascii() == b"control";
        }
    }
}

/// The value of a member of a control event, which holds strings without escapes only.
fn member<'b>(json: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
    let at = memmem::find(json, name)? + name.len();
    let value = json[at..].strip_prefix(b"\":\"")?;
    Some(&value[..memchr(b'"', value)?])
}

fn replace(bytes: &mut Vec<u8>, with: &[u8]) {
    bytes.clear();
    bytes.extend_from_slice(with);
}

impl Work for Readers<'_> {
    fn request(&mut self, connection: usize, _at: Nanos, out: &mut Vec<u8>) -> Option<u32> {
        let reader = &mut self.readers[connection];
        self.requests += 1;
        out.extend_from_slice(b"GET ");
        out.extend_from_slice(self.path.as_bytes());
        out.extend_from_slice(b"?offset=");
        out.extend_from_slice(&reader.offset);
        out.extend_from_slice(if self.live == Live::Sse { b"&live=sse" } else { b"&live=long-poll" });
        if !reader.cursor.is_empty() {
            out.extend_from_slice(b"&cursor=");
            out.extend_from_slice(&reader.cursor);
        }
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(http::host().as_bytes());
        out.extend_from_slice(b"\r\n\r\n");
        if self.live == Live::LongPoll {
            Self::attach(reader, self.progress);
        }
        Some(0)
    }

    fn head(&mut self, connection: usize, status: u16, head: &[u8]) {
        let reader = &mut self.readers[connection];
        self.refused += u64::from(!matches!(status, 200 | 204));
        if self.live == Live::LongPoll && matches!(status, 200 | 204) {
            reader.scanner.clear();
            if let Some(offset) = header(head, "stream-next-offset") {
                replace(&mut reader.offset, offset);
            }
            if let Some(cursor) = header(head, "stream-cursor") {
                replace(&mut reader.cursor, cursor);
            }
        }
    }

    fn body(&mut self, connection: usize, _tag: u32, bytes: &[u8], now: Nanos) {
        let Reader { attached, offset, cursor, next, scanner, lines } = &mut self.readers[connection];
        let mut delivered = 0;
        let (missing, duplicates) = (&mut self.missing, &mut self.duplicates);
        let (latencies, first_measured) = (&mut self.latencies, self.first_measured);
        let mut found = |sent: Nanos, number: u64| {
            delivered += 1;
            if number < *next {
                *duplicates += 1;
                return;
            }
            *missing += number - *next;
            *next = number + 1;
            if number >= first_measured {
                latencies.record(Duration::from_nanos(now.saturating_sub(sent)));
            }
        };
        match self.live {
            Live::LongPoll => scanner.feed(bytes, found),
            Live::Sse => lines.feed(bytes, |line, control| {
                if !control {
                    // An event is one line.
                    scanner.clear();
                    scanner.feed(line, &mut found);
                } else if let Some(value) = member(line, b"streamNextOffset") {
                    replace(offset, value);
                    replace(cursor, member(line, b"streamCursor").unwrap_or_default());
                    if !*attached {
                        *attached = true;
                        self.progress.attached.fetch_add(1, Ordering::Release);
                    }
                }
            }),
        }
        if delivered > 0 {
            self.progress.delivered.fetch_add(delivered, Ordering::Relaxed);
        }
    }

    fn done(&mut self, _connection: usize, _tag: u32, status: u16) -> Verdict {
        if matches!(status, 200 | 204) { Verdict::Good } else { Verdict::Bad }
    }

    /// The server ends a connection after some time; readers continue at their offset.
    fn closed(&mut self, connection: usize) -> bool {
        self.readers[connection].lines = Lines::default();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::event;

    fn sse(numbers: &[u64]) -> Vec<u8> {
        let mut text = b"event: control\ndata:{\"streamNextOffset\":\"1_2\",\"streamCursor\":\"7\"}\n\n".to_vec();
        for number in numbers {
            text.extend_from_slice(b"event: data\ndata:");
            event::write(1_000, *number, 40, &mut text);
            text.extend_from_slice(
                b"\n\nevent: control\ndata:{\"streamNextOffset\":\"1_9\",\"streamCursor\":\"8\"}\n\n",
            );
        }
        text
    }

    #[test]
    fn readers_by_sse_count_each_event_and_go_on_where_they_were() {
        let text = sse(&[0, 1, 2]);
        for cut in 0..text.len() {
            let progress = Progress::default();
            let mut readers = Readers::new("/s", "now", Live::Sse, 1, 1, &progress);
            readers.body(0, 0, &text[..cut], 5_000);
            readers.body(0, 0, &text[cut..], 5_000);
            readers.finish(3);
            assert_eq!((readers.missing, readers.duplicates), (0, 0), "{cut}");
            assert_eq!(progress.delivered.load(Ordering::Relaxed), 3);
            assert_eq!(progress.attached.load(Ordering::Relaxed), 1);
            assert_eq!(readers.latencies.permille(1000), 4);
            assert!(readers.closed(0));
            let mut out = Vec::new();
            readers.request(0, 0, &mut out);
            assert!(out.starts_with(b"GET /s?offset=1_9&live=sse&cursor=8 HTTP/1.1\r\n"));
        }
    }

    #[test]
    fn missing_and_repeated_events_are_noticed() {
        let progress = Progress::default();
        let mut readers = Readers::new("/s", "now", Live::Sse, 1, 0, &progress);
        readers.body(0, 0, &sse(&[0, 2, 2, 3]), 5_000);
        readers.finish(6);
        assert_eq!((readers.missing, readers.duplicates), (3, 1));
    }

    #[test]
    fn readers_by_long_poll_echo_offset_and_cursor() {
        let progress = Progress::default();
        let mut readers = Readers::new("/s", "1_0", Live::LongPoll, 1, 0, &progress);
        readers.head(0, 200, b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 1_40\r\nStream-Cursor: 9\r\n\r\n");
        let mut body = Vec::new();
        event::write(1_000, 0, 40, &mut body);
        readers.body(0, 0, &body[..10], 2_000);
        readers.body(0, 0, &body[10..], 2_000);
        readers.finish(1);
        assert_eq!((readers.missing, progress.delivered.load(Ordering::Relaxed)), (0, 1));
        let mut out = Vec::new();
        readers.request(0, 0, &mut out);
        assert!(out.starts_with(b"GET /s?offset=1_40&live=long-poll&cursor=9 HTTP/1.1\r\n"));
    }
}
