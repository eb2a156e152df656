//! One request on a connection of its own, to prepare a measurement.

use crate::http::{self, header, request};
use anyhow::{Context, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The status and the head of the answer.
pub(crate) fn ask(
    server: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<(u16, Vec<u8>)> {
    let mut socket = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut out = Vec::new();
    request(&mut out, method, path, headers, body);
    socket.write_all(&out)?;
    let mut input = Vec::new();
    loop {
        if let Some(head) = http::head(&input)? {
            input.truncate(head.bytes);
            return Ok((head.status, input));
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece)? {
            0 => bail!("{method} {path}: the connection was closed without an answer"),
            many => input.extend_from_slice(&piece[..many]),
        }
    }
}

/// Creates a stream with this content, unless it exists.
pub(crate) fn create(server: SocketAddr, path: &str, content_type: &str, body: &[u8]) -> anyhow::Result<()> {
    match ask(server, "PUT", path, &[("content-type", content_type)], body)?.0 {
        200 | 201 => Ok(()),
        status => bail!("{path} cannot be created: status {status}"),
    }
}

/// The offset behind the last message of a stream.
pub(crate) fn end(server: SocketAddr, path: &str) -> anyhow::Result<String> {
    let (status, head) = ask(server, "GET", &format!("{path}?offset=now"), &[], b"")?;
    let offset = header(&head, "stream-next-offset").filter(|_| status == 200);
    Ok(String::from_utf8(offset.with_context(|| format!("{path} has no end: status {status}"))?.to_vec())?)
}

/// The number of requests that a thalweg server has answered.
pub(crate) fn requests(server: SocketAddr) -> anyhow::Result<u64> {
    let mut socket = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut out = Vec::new();
    request(&mut out, "GET", "/metrics", &[("connection", "close")], b"");
    socket.write_all(&out)?;
    let mut page = String::new();
    socket.read_to_string(&mut page)?;
    let count = page.lines().find_map(|line| line.strip_prefix("thalweg_requests_total "));
    count.and_then(|count| count.trim().parse().ok()).with_context(|| format!("{server} does not count requests"))
}
