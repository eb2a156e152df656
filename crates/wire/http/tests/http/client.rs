//! A client that sends raw bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use thalweg_http::Server;

pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    tls: Option<Box<rustls::ClientConnection>>,
    buf: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) fn new(server: &Server) -> Self {
        Self::at(server.local_addr())
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.set_nodelay(true).unwrap();
        let tls = crate::IDENTITY.map(|identity| Box::new(identity().session()));
        Self { socket, tls, buf: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        match &mut self.tls {
            None => self.socket.write_all(bytes.as_ref()).unwrap(),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).write_all(bytes.as_ref()).unwrap(),
        }
    }

    /// Whether it could be sent.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        match &mut self.tls {
            None => self.socket.write_all(bytes).is_ok(),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).write_all(bytes).is_ok(),
        }
    }

    /// Says that nothing more will come.
    pub(crate) fn shut_down(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            tls.write_tls(&mut self.socket).unwrap();
        }
        self.socket.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Reads plain bytes once.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(into),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).read(into),
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send(get(path));
        self.answer()
    }

    /// Reads more; false at the end.
    pub(crate) fn more(&mut self) -> bool {
        let mut chunk = [0; 65536];
        match self.read(&mut chunk) {
            Ok(0) => false,
            Ok(n) => {
                self.buf.extend_from_slice(&chunk[..n]);
                true
            }
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => false,
            // Cut before the announced end.
            Err(e) if self.tls.is_some() && e.kind() == ErrorKind::UnexpectedEof => false,
            Err(e) => panic!("{e}, after {:?}", String::from_utf8_lossy(&self.buf)),
        }
    }

    fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.buf.windows(end.len()).position(|w| w == end) {
                return self.buf.drain(..at + end.len()).collect();
            }
            assert!(self.more(), "the connection ended: {:?}", String::from_utf8_lossy(&self.buf));
        }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        while self.buf.len() < len {
            assert!(self.more(), "the connection ended");
        }
        self.buf.drain(..len).collect()
    }

    pub(crate) fn head(&mut self) -> Answer {
        let head = String::from_utf8(self.until(b"\r\n\r\n")).unwrap();
        Answer { status: head[9..12].parse().unwrap(), head, body: Vec::new() }
    }

    /// One chunk of a chunked body.
    pub(crate) fn chunk(&mut self) -> Vec<u8> {
        let size = String::from_utf8(self.until(b"\r\n")).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = self.take(size + 2);
        chunk.truncate(size);
        chunk
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if answer.field("transfer-encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk();
                if chunk.is_empty() {
                    return answer;
                }
                answer.body.extend(chunk);
            }
        }
        if let Some(len) = answer.field("content-length").map(|len| len.parse().unwrap()) {
            answer.body = self.take(len);
        }
        answer
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.buf)
    }

    pub(crate) fn assert_closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }

    /// Whether nothing comes for a moment.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (mut byte, tls) = ([0], self.tls.is_some());
        let got = if tls { self.read(&mut byte) } else { self.socket.peek(&mut byte) };
        self.buf.extend(&byte[..*got.as_ref().unwrap_or(&0) * usize::from(tls)]);
        let silent = self.buf.is_empty()
            && matches!(got, Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        self.socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        silent
    }
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Waits until something that another thread brings about has come true.
#[track_caller]
pub(crate) fn eventually(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(10), "it never came true");
        std::thread::sleep(Duration::from_millis(1));
    }
}
