//! Just enough HTTP/1.1 for a client that knows its requests: request bytes out, heads and chunked bodies in.

use anyhow::{Context, bail};
use memchr::{memchr, memmem};
use std::net::SocketAddr;
use std::sync::OnceLock;

/// How the body of an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Bytes(u64),
    Chunked(Chunks),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// The length of the head itself, with the empty line.
    pub(crate) bytes: usize,
    pub(crate) body: Body,
}

const HEAD_BYTES_MAX: usize = 16 << 10;

/// The head at the beginning of `input`, or `None` while it is incomplete.
pub(crate) fn head(input: &[u8]) -> anyhow::Result<Option<Head>> {
    let Some(end) = memmem::find(input, b"\r\n\r\n") else {
        if input.len() > HEAD_BYTES_MAX {
            bail!("a head of more than {HEAD_BYTES_MAX} bytes");
        }
        return Ok(None);
    };
    let text = &input[..end + 2];
    let status = text
        .get(9..12)
        .and_then(|code| std::str::from_utf8(code).ok()?.parse().ok())
        .with_context(|| format!("no status in {:?}", String::from_utf8_lossy(text)))?;
    let body = if matches!(status, 204 | 304) {
        Body::Bytes(0)
    } else if let Some(length) = header(text, "content-length") {
        Body::Bytes(number(length).context("content-length is not a number")?)
    } else if header(text, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"chunked")) {
        Body::Chunked(Chunks::default())
    } else {
        bail!("an answer without content-length or chunks: {:?}", String::from_utf8_lossy(text));
    };
    Ok(Some(Head { status, bytes: end + 4, body }))
}

/// The value of a header; `name` in lower case.
pub(crate) fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let name = name.as_bytes();
    let mut rest = head;
    while let Some(end) = memchr(b'\n', rest) {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.len() > name.len()
            && line[name.len()] == b':'
            && line[0] | 0x20 == name[0]
            && line[..name.len()].eq_ignore_ascii_case(name)
        {
            return Some(line[name.len() + 1..].trim_ascii());
        }
    }
    None
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// State of a decoder of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunks {
    at: At,
    /// In the size line: the value so far. In content: the bytes left.
    left: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Size,
    /// Behind the digits of the size line.
    Extension,
    Content,
    /// The line end behind content.
    Gap,
    /// At the beginning of a line behind the last chunk.
    Trailer,
    /// Inside of such a line.
    TrailerLine,
    Done,
}

impl Chunks {
    /// Decodes from `input`, giving content to `sink`; how much of `input` it took. It stops at the end of the body.
    pub(crate) fn feed(&mut self, input: &[u8], mut sink: impl FnMut(&[u8])) -> anyhow::Result<usize> {
        let mut i = 0;
        while i < input.len() && self.at != At::Done {
            if self.at == At::Content {
                let many = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len() - i);
                sink(&input[i..i + many]);
                i += many;
                self.left -= many as u64;
                if self.left == 0 {
                    self.at = At::Gap;
                }
                continue;
            }
            let byte = input[i];
            i += 1;
            self.at = match (self.at, byte) {
                (At::Size | At::Extension, b'\n') if self.left > 0 => At::Content,
                (At::Size | At::Extension, b'\n') => At::Trailer,
                (At::Size, digit) if digit.is_ascii_hexdigit() => {
                    let value = char::from(digit).to_digit(16).unwrap_or(0);
                    self.left = self
                        .left
                        .checked_mul(16)
                        .context("a chunk of too many bytes")?
                        .saturating_add(u64::from(value));
                    At::Size
                }
                (At::Size, b'\r' | b';' | b' ') | (At::Extension, _) => At::Extension,
                (At::Size, other) => bail!("a chunk's size has the byte {other:#x}"),
                (At::Gap, b'\n') => {
                    self.left = 0;
                    At::Size
                }
                (At::Gap, b'\r') => At::Gap,
                (At::Gap, other) => bail!("the byte {other:#x} behind a chunk"),
                (At::Trailer | At::TrailerLine, b'\r') => self.at,
                (At::Trailer, b'\n') => At::Done,
                (At::TrailerLine, b'\n') => At::Trailer,
                (At::Trailer | At::TrailerLine, _) => At::TrailerLine,
                (At::Content | At::Done, _) => self.at,
            };
        }
        Ok(i)
    }

    pub(crate) fn done(self) -> bool {
        self.at == At::Done
    }
}

static HOST: OnceLock<String> = OnceLock::new();

/// Sets the host of all requests: the server's address, because a server may check it.
pub(crate) fn set_host(server: SocketAddr) {
    let _ = HOST.set(server.to_string());
}

pub(crate) fn host() -> &'static str {
    HOST.get().map_or("bench", String::as_str)
}

/// Puts a request at the end of `out`.
pub(crate) fn request(out: &mut Vec<u8>, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    out.extend_from_slice(host().as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in headers {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !matches!(method, "GET" | "HEAD") {
        out.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

/// Puts a number at the end of `out`, with zeros in front up to `width`.
pub(crate) fn digits(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut text = [b'0'; 20];
    let (mut at, mut rest) = (text.len(), number);
    while rest > 0 {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let least = width.clamp(1, text.len());
    for _ in text.len()..width {
        out.push(b'0');
    }
    out.extend_from_slice(&text[at.min(text.len() - least)..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_only_when_it_is_whole() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nStream-Next-Offset: a_b\r\n\r\nbody";
        for cut in 0..text.len() - 4 {
            assert_eq!(head(&text[..cut]).unwrap(), None, "{cut}");
        }
        let read = head(text).unwrap().unwrap();
        assert_eq!((read.status, read.bytes, read.body), (200, text.len() - 4, Body::Bytes(12)));
        assert_eq!(header(text, "stream-next-offset"), Some(&b"a_b"[..]));
        assert_eq!(header(text, "stream-next"), None);
    }

    #[test]
    fn an_answer_without_content_needs_no_length_and_others_do() {
        assert_eq!(head(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap().body, Body::Bytes(0));
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(head(b"nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn chunks_give_the_same_content_however_they_are_cut() {
        let text = b"5\r\nhello\r\n10;ext=1\r\n0123456789abcdef\r\n0\r\nTrailer: x\r\n\r\nnext";
        for cut in 0..text.len() {
            let (mut chunks, mut content) = (Chunks::default(), Vec::new());
            let mut taken = chunks.feed(&text[..cut], |bytes| content.extend_from_slice(bytes)).unwrap();
            taken += chunks.feed(&text[taken..], |bytes| content.extend_from_slice(bytes)).unwrap();
            assert_eq!(content, b"hello0123456789abcdef", "{cut}");
            assert!(chunks.done());
            assert_eq!(&text[taken..], b"next");
        }
        assert!(Chunks::default().feed(b"zz\r\n", |_| ()).is_err());
    }

    #[test]
    fn digits_are_as_wide_as_wanted() {
        for (number, width, text) in
            [(0, 0, "0"), (7, 3, "007"), (1234, 2, "1234"), (5, 25, "0000000000000000000000005")]
        {
            let mut out = Vec::new();
            digits(&mut out, number, width);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
