//! A separate server, its tokens, and a client that sends raw bytes.

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
        let log = fs::File::create(folder.path().join("log")).unwrap();
        Self::start_with(folder, args, Stdio::null(), log.into())
    }

    /// The same, with another destination for the server's output.
    pub(crate) fn start_with(folder: tempfile::TempDir, args: &[&str], out: Stdio, error: Stdio) -> Self {
        let path = |name: &str| folder.path().join(name);
        let args = args.iter().map(|arg| arg.replace('$', folder.path().to_str().unwrap()));
        let mut server = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--journal-segment-bytes", "1MiB", "--reserve-bytes", "0"])
            .args(["--long-poll-timeout", "200ms", "--log", "trace"])
            .arg("--data")
            .arg(path("data"))
            .arg("--ready-file")
            .arg(path("ready"))
            .args(args)
            .env_clear()
            .stdout(out)
            .stderr(error)
            .spawn()
            .unwrap();
        eventually(|| {
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?} {}", fs::read_to_string(path("log")).unwrap_or_default());
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

    /// The code with which the server ends by itself.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let mut ended = None;
        eventually(|| {
            ended = self.server.try_wait().unwrap();
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }

    /// Sends a request line, header lines and a body as they are; status and the whole answer.
    pub(crate) fn raw(&self, line: &[u8], headers: &[&str], body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut request = line.to_vec();
        let host = format!(" HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        request.extend_from_slice(host.as_bytes());
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
