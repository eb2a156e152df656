//! Server-Sent Events: the answers to `live=sse`.
//!
//! Every line of a payload gets its own `data:` field. Lines end at CR, LF or CRLF, as a browser's parser has it, so
//! that nothing in a payload can pass for an event of ours. A line that starts with a space gets one more, since
//! parsers drop the first.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use thalweg_base::Offset;

use super::content_type::Kind;
use super::offset::Position;

/// How a stream's content goes into data events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The messages as one JSON array.
    Json,
    Text,
    Base64,
}

impl From<Kind> for Encoding {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Json => Self::Json,
            Kind::Text => Self::Text,
            Kind::Binary => Self::Base64,
        }
    }
}

/// A control event's fields.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    pub next: Position,
    /// Omitted once the stream is closed: its readers do not return.
    pub cursor: u64,
    pub up_to_date: bool,
    pub closed: bool,
}

/// One data event holding all of `parts`, which must not be empty.
#[must_use]
pub fn data_event(encoding: Encoding, parts: &[Bytes]) -> Vec<u8> {
    let len: usize = parts.iter().map(Bytes::len).sum();
    // Leaves room for a control event behind the data.
    let mut out = Vec::with_capacity(len + len / 3 + 256);
    out.extend_from_slice(b"event: data\ndata:");
    match encoding {
        Encoding::Text => {
            let mut lines = Lines::new(&mut out);
            parts.iter().for_each(|part| lines.put(part));
        }
        Encoding::Json => {
            let mut lines = Lines::new(&mut out);
            lines.put(b"[");
            each_without_last_byte(parts, |part| lines.put(part));
            lines.put(b"]");
        }
        Encoding::Base64 => put_base64(parts, len, &mut out),
    }
    out.extend_from_slice(b"\n\n");
    out
}

/// Calls `f` with each part, the very last byte left out: the comma of the last JSON message.
pub fn each_without_last_byte<'a>(parts: &'a [Bytes], mut f: impl FnMut(&'a [u8])) {
    if let Some((last, before)) = parts.split_last() {
        before.iter().for_each(|part| f(part));
        f(&last[..last.len().saturating_sub(1)]);
    }
}

#[must_use]
pub fn control_event(control: &Control) -> Vec<u8> {
    let mut out = Vec::with_capacity(200);
    out.extend_from_slice(b"event: control\ndata:{\"streamNextOffset\":\"");
    out.extend_from_slice(&control.next.to_text());
    out.push(b'"');
    if !control.closed {
        out.extend_from_slice(b",\"streamCursor\":\"");
        out.extend_from_slice(itoa::Buffer::new().format(control.cursor).as_bytes());
        out.push(b'"');
    }
    if control.up_to_date {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    if control.closed {
        out.extend_from_slice(b",\"streamClosed\":true");
    }
    // A reader of this event resumes at this offset (`Last-Event-ID`).
    out.extend_from_slice(b"}\nid:");
    out.extend_from_slice(&control.next.to_text());
    out.extend_from_slice(b"\n\n");
    out
}

/// A comment: it keeps the connection open and parsers ignore it.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Key of a cached frame: content of one log between two positions, and the control event after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    pub log: thalweg_base::LogId,
    pub from: Offset,
    pub upto: Offset,
    pub closed: bool,
    pub encoding: Encoding,
    pub cursor: u64,
}

struct Lines<'a> {
    out: &'a mut Vec<u8>,
    at_start: bool,
    after_cr: bool,
}

impl<'a> Lines<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, at_start: true, after_cr: false }
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            if self.after_cr && *first == b'\n' {
                bytes = &bytes[1..];
                self.after_cr = false;
                continue;
            }
            self.after_cr = false;
            let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
            if end > 0 {
                if self.at_start && *first == b' ' {
                    self.out.push(b' ');
                }
                self.out.extend_from_slice(&bytes[..end]);
                self.at_start = false;
            }
            let Some(ending) = bytes.get(end) else { return };
            self.out.extend_from_slice(b"\ndata:");
            self.at_start = true;
            self.after_cr = *ending == b'\r';
            bytes = &bytes[end + 1..];
        }
    }
}

fn put_base64(parts: &[Bytes], len: usize, out: &mut Vec<u8>) {
    let joined;
    let input: &[u8] = match parts {
        [one] => one,
        _ => {
            joined = parts.concat();
            &joined
        }
    };
    let start = out.len();
    out.resize(start + len.div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(input, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The events of a stream, by the rules of the HTML standard.
    fn parse(text: &str) -> Vec<(String, String)> {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let (mut events, mut name, mut data) = (Vec::new(), String::new(), Vec::new());
        for line in text.split('\n') {
            if line.is_empty() {
                if !data.is_empty() {
                    events.push((std::mem::take(&mut name), data.join("\n")));
                    data = Vec::new();
                }
            } else if let Some((field, value)) = line.split_once(':') {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "event" => name = value.to_owned(),
                    "data" => data.push(value.to_owned()),
                    _ => {}
                }
            }
        }
        events
    }

    fn event(encoding: Encoding, parts: &[&str]) -> Vec<(String, String)> {
        let parts: Vec<Bytes> = parts.iter().map(|p| Bytes::copy_from_slice(p.as_bytes())).collect();
        parse(std::str::from_utf8(&data_event(encoding, &parts)).unwrap())
    }

    #[test]
    fn every_line_ending_starts_a_new_field() {
        let text = Bytes::from_static(b"a\nb\r\nc\rd\n\ne");
        let encoded = data_event(Encoding::Text, &[text]);
        assert_eq!(&encoded[..], b"event: data\ndata:a\ndata:b\ndata:c\ndata:d\ndata:\ndata:e\n\n");
    }

    #[test]
    fn a_line_ending_cut_in_two_is_one() {
        assert_eq!(event(Encoding::Text, &["a\r", "\nb"]), [("data".into(), "a\nb".into())]);
    }

    #[test]
    fn injected_events_stay_data() {
        let attack = "x\r\n\r\nevent: control\r\ndata: {\"injected\":true}\r\n\r\n";
        let events = event(Encoding::Text, &[attack]);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].0, "data");
    }

    #[test]
    fn json_is_an_array_and_base64_is_whole() {
        assert_eq!(event(Encoding::Json, &["1,", "{\"a\":\n2},"]), [("data".into(), "[1,{\"a\":\n2}]".into())]);
        assert_eq!(event(Encoding::Base64, &["Hel", "lo"]), [("data".into(), "SGVsbG8=".into())]);
    }

    #[test]
    fn control_events_are_pinned() {
        let next = Position { incarnation: 64, offset: Offset(5) };
        let control = |up_to_date, closed| control_event(&Control { next, cursor: 7, up_to_date, closed });
        assert_eq!(
            String::from_utf8(control(true, false)).unwrap(),
            "event: control\ndata:{\"streamNextOffset\":\"0000000000000064_0000000000000005\",\"streamCursor\":\"7\",\
             \"upToDate\":true}\nid:0000000000000064_0000000000000005\n\n"
        );
        assert_eq!(
            String::from_utf8(control(true, true)).unwrap(),
            "event: control\ndata:{\"streamNextOffset\":\"0000000000000064_0000000000000005\",\"upToDate\":true,\
             \"streamClosed\":true}\nid:0000000000000064_0000000000000005\n\n"
        );
    }

    proptest! {
        #[test]
        fn a_parser_gets_back_what_went_in(text in "[ a:\r\n]{0,30}é?", cut in 0usize..30) {
            let cut = text.char_indices().map(|(i, _)| i).nth(cut).unwrap_or(text.len());
            let (a, b) = text.split_at(cut);
            prop_assume!(!text.is_empty());
            let events = event(Encoding::Text, &[a, b]);
            let expected = text.replace("\r\n", "\n").replace('\r', "\n");
            prop_assert_eq!(events, vec![("data".to_owned(), expected)]);
        }

        #[test]
        fn base64_decodes_to_the_bytes(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..5)) {
            let bytes: Vec<Bytes> = parts.iter().map(|p| Bytes::copy_from_slice(p)).collect();
            let encoded = data_event(Encoding::Base64, &bytes);
            let events = parse(std::str::from_utf8(&encoded).unwrap());
            prop_assert_eq!(STANDARD.decode(&events[0].1).unwrap(), parts.concat());
        }
    }
}
