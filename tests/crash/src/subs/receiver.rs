//! The HTTP server that webhooks are delivered to: one request per connection.

use super::webhook::{Hooks, Reaction, Wake};
use crate::world::World;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The largest delivery that is taken.
const BODY_MAX: usize = 4 << 20;

/// Listens until the run is over; gives the URL.
pub(super) fn start(world: &Arc<World>, hooks: &Arc<Hooks>) -> anyhow::Result<(String, JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let (world, hooks) = (Arc::clone(world), Arc::clone(hooks));
    let thread = std::thread::spawn(move || {
        let mut working: Vec<JoinHandle<()>> = Vec::new();
        while !hooks.is_through() && world.report.clean() {
            match listener.accept() {
                Ok((socket, _)) => {
                    // One after the other, so that a killed server's deliveries are checked before those that the next
                    // one sends.
                    let Some(wake) = receive(&socket).ok().flatten().and_then(|body| hooks.admit(&world, &body)) else {
                        continue;
                    };
                    let (world, hooks) = (Arc::clone(&world), Arc::clone(&hooks));
                    working.push(std::thread::spawn(move || {
                        let _ = work(socket, &world, &hooks, &wake);
                    }));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
            working.retain(|thread| !thread.is_finished());
        }
        working.into_iter().for_each(|thread| drop(thread.join()));
    });
    Ok((url, thread))
}

/// The body of the one request; none if it does not come.
fn receive(socket: &TcpStream) -> std::io::Result<Option<Vec<u8>>> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(socket);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length.min(BODY_MAX)];
    // The sender may have been killed since.
    reader.read_exact(&mut body)?;
    Ok(Some(body))
}

fn work(mut socket: TcpStream, world: &World, hooks: &Hooks, wake: &Wake) -> std::io::Result<()> {
    let reaction = hooks.react(world, wake);
    let (status, text) = match reaction {
        Reaction::Done => ("200 OK", "{\"done\":true}"),
        Reaction::CallBack | Reaction::Forget => ("200 OK", "{}"),
        Reaction::Fail => ("500 Internal Server Error", ""),
        Reaction::Hang => return Ok(()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    socket.write_all(&[head.as_bytes(), text.as_bytes()].concat())?;
    drop(socket);
    if reaction == Reaction::CallBack {
        hooks.call_back(world, wake);
    }
    Ok(())
}
