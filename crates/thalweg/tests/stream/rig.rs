//! A server that can be killed and started again on its address, and commands against it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_thalweg");

pub(crate) struct Rig {
    folder: tempfile::TempDir,
    server: Option<Child>,
    address: String,
}

impl Rig {
    pub(crate) fn start() -> Self {
        let mut rig = Self { folder: tempfile::tempdir().unwrap(), server: None, address: "127.0.0.1:0".to_owned() };
        rig.start_again();
        rig
    }

    pub(crate) fn start_again(&mut self) {
        let ready = self.path("ready");
        let _ = std::fs::remove_file(&ready);
        let server = Command::new(BINARY)
            .args(["serve", "--listen", &self.address, "--reactors", "1", "--log", "warn", "--data"])
            .arg(self.path("data"))
            .arg("--ready-file")
            .arg(&ready)
            .args(["--long-poll-timeout", "500ms", "--journal-segment-bytes", "8MiB", "--reserve-bytes", "1MiB"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(server);
        until("the server is ready", || {
            let text = std::fs::read_to_string(&ready).ok()?;
            self.address = text.trim().to_owned();
            Some(())
        });
    }

    /// As a crash of the process does it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        command(&self.url(), line)
    }

    /// Runs a command with this on its standard input.
    pub(crate) fn run(&self, line: &str, input: &str) -> Output {
        finish(self.command(line), input)
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn ok(&self, line: &str, input: &str) -> String {
        let output = self.run(line, input);
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail with this code; returns its message.
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let output = self.run(line, "x");
        assert_eq!(output.status.code(), Some(code), "{line}: {}", said(&output));
        said(&output)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `thalweg stream LINE` for a server; nothing of our own environment gets in its way.
pub(crate) fn command(server: &str, line: &str) -> Command {
    let mut command = Command::new(BINARY);
    command.arg("stream").args(line.split_whitespace()).env("THALWEG_SERVER", server);
    command.env_remove("THALWEG_TOKEN").env_remove("THALWEG_CA").env("XDG_CONFIG_HOME", "/nowhere");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn finish(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().unwrap();
    // A command that refuses at once does not read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits for something that happens in another process.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
