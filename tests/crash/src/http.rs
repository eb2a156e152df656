//! A small HTTP/1.1 client on a blocking socket: keep-alive, pipelining, chunked answers, server-sent events.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One request, in the bytes that are sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    head_only: bool,
    bytes: Vec<u8>,
    /// Method and path, for messages.
    pub(crate) line: String,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !body.is_empty() || method == "POST" || method == "PUT" {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        Self { head_only: method == "HEAD", bytes, line: format!("{method} {path}") }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, &[], &[])
    }

    /// The same with one more header.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let at = self.line.len() + " HTTP/1.1\r\n".len();
        let mut bytes = Vec::with_capacity(self.bytes.len() + name.len() + value.len() + 4);
        bytes.extend_from_slice(&self.bytes[..at]);
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        bytes.extend_from_slice(&self.bytes[at..]);
        Self { bytes, ..self.clone() }
    }

    pub(crate) fn changes_something(&self) -> bool {
        !self.line.starts_with("GET ") && !self.line.starts_with("HEAD ")
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    /// As it was before compressing.
    pub(crate) body: Vec<u8>,
    pub(crate) compressed: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The beginning of the body, for messages.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(160).collect()
    }

    /// The next offset after the request.
    pub(crate) fn position(&self) -> Option<String> {
        self.header("stream-next-offset").map(str::to_owned)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.header(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

pub(crate) struct Conn {
    socket: TcpStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Conn {
    pub(crate) fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        Ok(Self { socket, buffer: Vec::new(), at: 0 })
    }

    pub(crate) fn send(&mut self, requests: &[Request]) -> io::Result<()> {
        let all: Vec<u8> = requests.iter().flat_map(|request| request.bytes.iter().copied()).collect();
        self.socket.write_all(&all)
    }

    pub(crate) fn receive(&mut self, request: &Request) -> io::Result<Answer> {
        loop {
            let mut answer = self.head()?;
            if answer.status == 100 {
                continue;
            }
            if request.head_only || matches!(answer.status, 204 | 304) {
                return Ok(answer);
            }
            if answer.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
                while let Some(chunk) = self.chunk()? {
                    answer.body.extend_from_slice(&chunk);
                }
            } else {
                let len = answer.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
                answer.body = self.take(len)?;
            }
            if answer.header("content-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("gzip")) {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut plain)?;
                (answer.body, answer.compressed) = (plain, true);
            }
            return Ok(answer);
        }
    }

    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        let status_line = self.line()?;
        let status =
            status_line.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| broken("status line"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(Answer { status, headers, body: Vec::new(), compressed: false });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| broken("header line"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The next chunk of a chunked body; none at its end.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = self.line()?;
        let size =
            usize::from_str_radix(size.split(';').next().unwrap_or("").trim(), 16).map_err(|_| broken("chunk size"))?;
        let chunk = self.take(size)?;
        if !self.line()?.is_empty() {
            return Err(broken("chunk end"));
        }
        Ok((size > 0).then_some(chunk))
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer[self.at..].iter().position(|b| *b == b'\n') {
                let line = &self.buffer[self.at..self.at + end];
                let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
                self.at += end + 1;
                return Ok(line);
            }
            self.fill()?;
        }
    }

    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() - self.at < len {
            self.fill()?;
        }
        let taken = self.buffer[self.at..self.at + len].to_vec();
        self.at += len;
        Ok(taken)
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        let mut piece = [0; 64 << 10];
        match self.socket.read(&mut piece)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
            n => {
                self.buffer.extend_from_slice(&piece[..n]);
                Ok(())
            }
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad {what} in the answer"))
}

/// Cuts server-sent events out of the bytes of a body.
#[derive(Default)]
pub(crate) struct Events {
    pending: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) data: String,
}

impl Events {
    /// Adds bytes; the events that are complete now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.pending.push_str(&String::from_utf8_lossy(bytes));
        let mut events = Vec::new();
        while let Some(end) = self.pending.find("\n\n") {
            let block: String = self.pending.drain(..end + 2).collect();
            let mut event = Event::default();
            let mut data: Vec<&str> = Vec::new();
            for line in block.lines() {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "event" => value.clone_into(&mut event.kind),
                    "data" => data.push(value),
                    _ => {}
                }
            }
            event.data = data.join("\n");
            if !event.kind.is_empty() || !event.data.is_empty() {
                events.push(event);
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_wherever_the_bytes_break() {
        let text = "event: data\ndata: one\ndata:two\n\n: comment\n\nevent: control\ndata: {}\n\n";
        for cut in 0..text.len() {
            let mut events = Events::default();
            let mut all = events.push(&text.as_bytes()[..cut]);
            all.extend(events.push(&text.as_bytes()[cut..]));
            assert_eq!(all.len(), 2, "cut at {cut}");
            assert_eq!(all[0].data, "one\ntwo");
            assert_eq!(all[1].kind, "control");
        }
    }
}
