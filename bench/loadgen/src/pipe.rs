//! One connection with a pipeline of requests.

use anyhow::{Context, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: bench\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    request("POST", path, &[("content-type", "application/octet-stream")], body)
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Pipe {
    socket: TcpStream,
    buffer: Vec<u8>,
    at: usize,
}

impl Pipe {
    pub(crate) fn open(server: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(120)))?;
        Ok(Self { socket, buffer: Vec::new(), at: 0 })
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> anyhow::Result<()> {
        Ok(self.socket.write_all(requests)?)
    }

    pub(crate) fn receive(&mut self) -> anyhow::Result<Answer> {
        let head_end = loop {
            let unread = &self.buffer[self.at..];
            if let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.fill()?;
        };
        let head = std::str::from_utf8(&self.buffer[self.at..self.at + head_end]).context("the head is not text")?;
        let status: u16 = head.get(9..12).and_then(|code| code.parse().ok()).context("no status")?;
        let length = head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse().ok());
        let length = match length {
            _ if matches!(status, 204 | 304) => 0,
            Some(length) => length,
            None => bail!("an answer without content-length: {head}"),
        };
        self.at += head_end;
        while self.buffer.len() - self.at < length {
            self.fill()?;
        }
        let body = self.buffer[self.at..self.at + length].to_vec();
        self.at += length;
        Ok(Answer { status, body })
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        let mut piece = [0; 64 << 10];
        match self.socket.read(&mut piece)? {
            0 => bail!("the server closed the connection"),
            n => self.buffer.extend_from_slice(&piece[..n]),
        }
        Ok(())
    }
}
