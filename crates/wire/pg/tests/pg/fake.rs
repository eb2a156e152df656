//! A fake server that a test scripts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_pg::{Config, Host, SslMode};

pub(crate) struct Fake {
    pub(crate) config: Config,
    thread: JoinHandle<()>,
}

impl Fake {
    /// Serves one connection.
    pub(crate) fn new(serve: impl FnOnce(&mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            serve(&mut socket);
        });
        let mut config = Config::new(Host::Tcp { name: "127.0.0.1".to_owned(), port }, "u", "d");
        config.ssl_mode = SslMode::Disable;
        config.connect_timeout = Some(Duration::from_secs(5));
        config.read_timeout = Some(Duration::from_secs(5));
        Self { config, thread }
    }

    /// Lets the client in first.
    pub(crate) fn greeting(serve: impl FnOnce(&mut TcpStream) + Send + 'static) -> Self {
        Self::new(|socket| {
            startup(socket);
            let _ = socket.write_all(&[message(b'R', &[0; 4]), ready()].concat());
            serve(socket);
        })
    }

    pub(crate) fn join(self) {
        self.thread.join().unwrap();
    }
}

pub(crate) fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&[tag][..], &len, body].concat()
}

pub(crate) fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

pub(crate) fn startup(socket: &mut TcpStream) {
    let mut len = [0; 4];
    socket.read_exact(&mut len).unwrap();
    let mut rest = vec![0; u32::from_be_bytes(len) as usize - 4];
    socket.read_exact(&mut rest).unwrap();
}

/// The next message of the client: tag and body.
pub(crate) fn hear(socket: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    socket.read_exact(&mut head).unwrap();
    let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
    socket.read_exact(&mut body).unwrap();
    (head[0], body)
}
