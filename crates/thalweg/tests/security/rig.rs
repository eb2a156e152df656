//! A server of its own, the tokens that it knows, and a client that sends exactly what it is told to.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_thalweg");

pub(crate) struct Rig {
    pub(crate) folder: tempfile::TempDir,
    server: Child,
    pub(crate) address: SocketAddr,
}

/// Runs `thalweg` to its end.
pub(crate) fn thalweg(args: &[&str]) -> Output {
    Command::new(BINARY).args(args).env_clear().output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes a token and appends its lines to the file.
pub(crate) fn token(file: &Path, name: &str, scopes: &[&str]) -> String {
    let made = thalweg(&[&["token", "new", "--name", name], scopes].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut file = fs::File::options().append(true).create(true).open(file).unwrap();
    file.write_all(&made.stdout).unwrap();
    text(&made.stderr).lines().last().unwrap().to_owned()
}

#[track_caller]
pub(crate) fn eventually(mut what: impl FnMut() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(20), "it never came true");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Rig {
    /// Starts a server; `$` in the arguments is the folder.
    pub(crate) fn start(folder: tempfile::TempDir, args: &[&str]) -> Self {
        let path = |name: &str| folder.path().join(name);
        let args = args.iter().map(|arg| arg.replace('$', folder.path().to_str().unwrap()));
        let log = fs::File::create(path("log")).unwrap();
        let mut server = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--journal-segment-bytes", "1MiB", "--reserve-bytes", "0"])
            .args(["--long-poll-timeout", "200ms", "--log", "trace"])
            .arg("--data")
            .arg(path("data"))
            .arg("--ready-file")
            .arg(path("ready"))
            .args(args)
            .env_clear()
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        eventually(|| {
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "{}", fs::read_to_string(path("log")).unwrap());
            fs::read_to_string(path("ready")).is_ok_and(|text| text.ends_with('\n'))
        });
        let address = fs::read_to_string(path("ready")).unwrap().trim().parse().unwrap();
        Self { folder, server, address }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.server.id().to_string()]).status().unwrap().success());
    }

    /// Sends a request line, header lines and a body as they are; status and the whole answer.
    pub(crate) fn raw(&self, line: &[u8], headers: &[&str], body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut request = line.to_vec();
        request.extend_from_slice(b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
        for header in headers {
            request.extend_from_slice(header.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        socket.write_all(&request).unwrap();
        let mut said = Vec::new();
        socket.read_to_end(&mut said).unwrap();
        let said = text(&said);
        (said.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0), said)
    }

    pub(crate) fn ask(&self, token: &str, line: &str, body: &str) -> u16 {
        self.raw(line.as_bytes(), &["content-type: text/plain", &format!("Authorization: Bearer {token}")], body).0
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
