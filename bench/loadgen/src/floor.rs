//! The cheapest possible append server: a lower bound of the cost on this machine.
//!
//! One thread, one epoll. The requests of all ready connections are written at once, synced, and answered with a fixed
//! reply. The server finds only the end of each request; nothing can be read back.

use anyhow::Context;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::{SendFlags, send, sockopt};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Effort {
    /// Writes nothing.
    None,
    /// One write per batch.
    Write,
    /// One write and one `fdatasync` per batch.
    Sync,
}

const REPLY: &[u8] = b"HTTP/1.1 204 No Content\r\nstream-next-offset: 0000000000000000_0000000000000256\r\n\
x-content-type-options: nosniff\r\ncross-origin-resource-policy: cross-origin\r\n\r\n";
/// The log is allocated in advance and written round and round.
const LOG_BYTES: u64 = 1 << 30;
/// Bytes in front of each record's content.
const HEADER_BYTES: usize = 38;
const LISTENER: u64 = u64::MAX;

struct Client {
    socket: OwnedFd,
    input: Vec<u8>,
    /// Requests of this batch.
    asked: usize,
}

/// Serves for ever; prints the address once it listens.
pub(crate) fn serve(listen: SocketAddr, log: &Path, effort: Effort) -> anyhow::Result<()> {
    let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LOG_BYTES)?;
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    println!("{}", listener.local_addr()?);
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let mut events: Vec<Event> = Vec::with_capacity(1024);
    let (mut scratch, mut batch, mut asking) = (vec![0; 64 << 10], Vec::new(), Vec::new());
    let mut position = 0;
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let data = event.data;
            if data.u64() == LISTENER {
                while let Ok((socket, _)) = listener.accept() {
                    let socket = OwnedFd::from(socket);
                    rustix::io::ioctl_fionbio(&socket, true)?;
                    sockopt::set_tcp_nodelay(&socket, true)?;
                    epoll::add(&epoll, &socket, EventData::new_u64(clients.len() as u64), EventFlags::IN)?;
                    clients.push(Some(Client { socket, input: Vec::new(), asked: 0 }));
                }
                continue;
            }
            let i = data.u64() as usize;
            let Some(client) = clients[i].as_mut() else { continue };
            match rustix::io::read(&client.socket, &mut scratch[..]) {
                Ok(0) => clients[i] = None,
                Ok(many) => {
                    take(client, &scratch[..many], &mut batch);
                    if client.asked > 0 {
                        asking.push(i);
                    }
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => clients[i] = None,
            }
        }
        if asking.is_empty() {
            continue;
        }
        if effort != Effort::None {
            if position + batch.len() as u64 > LOG_BYTES {
                position = 0;
            }
            file.write_all_at(&batch, position)?;
            position += batch.len() as u64;
            if effort == Effort::Sync {
                rustix::fs::fdatasync(&file)?;
            }
        }
        batch.clear();
        for i in asking.drain(..) {
            let Some(client) = clients[i].as_mut() else { continue };
            let reply = REPLY.repeat(std::mem::take(&mut client.asked));
            // Drop clients that do not read their answers.
            if send(&client.socket, &reply, SendFlags::NOSIGNAL) != Ok(reply.len()) {
                clients[i] = None;
            }
        }
    }
}

/// Counts the requests that are whole now and puts their content into the batch.
fn take(client: &mut Client, fresh: &[u8], batch: &mut Vec<u8>) {
    client.input.extend_from_slice(fresh);
    let mut at = 0;
    while let Some(end) = memchr::memmem::find(&client.input[at..], b"\r\n\r\n") {
        let head = &client.input[at..at + end + 2];
        let length = crate::http::header(head, "content-length")
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok())
            .unwrap_or(0);
        let body = at + end + 4;
        if client.input.len() < body + length {
            break;
        }
        batch.extend_from_slice(&[0; HEADER_BYTES]);
        batch.extend_from_slice(&client.input[body..body + length]);
        client.asked += 1;
        at = body + length;
    }
    client.input.drain(..at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_when_they_are_whole() {
        let mut client = Client { socket: File::open("/dev/null").unwrap().into(), input: Vec::new(), asked: 0 };
        let mut batch = Vec::new();
        let text = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPUT /b HTTP/1.1\r\n\r\n";
        for byte in text {
            take(&mut client, &[*byte], &mut batch);
        }
        assert_eq!((client.asked, batch.len()), (2, 2 * HEADER_BYTES + 3));
        assert!(client.input.is_empty());
    }
}
