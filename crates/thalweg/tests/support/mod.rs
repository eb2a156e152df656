//! The binary as its users see it: a process, a data folder, HTTP.

#![allow(dead_code, clippy::unwrap_used, reason = "a test that cannot go on has failed; no test file uses all of this")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::{Request, Response};

pub(crate) const THALWEG: &str = env!("CARGO_BIN_EXE_thalweg");

/// Runs the binary to its end.
pub(crate) fn thalweg(args: &[&str]) -> Output {
    Command::new(THALWEG).args(args).output().unwrap()
}

/// Text on standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server on a free port; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    agent: Agent,
}

impl Server {
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Self {
        Self::start_saying(data, flags, "error", Stdio::inherit())
    }

    /// A server whose warnings go to a file beside its folder, and a function that reads them.
    pub(crate) fn start_logged(data: &Path, flags: &[&str]) -> (Self, impl Fn() -> String) {
        let log = data.with_extension("log");
        let server = Self::start_saying(data, flags, "warn", std::fs::File::create(&log).unwrap().into());
        (server, move || std::fs::read_to_string(&log).unwrap())
    }

    fn start_saying(data: &Path, flags: &[&str], level: &str, log: Stdio) -> Self {
        let ready = data.with_extension("ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(THALWEG);
        command.args(["serve", "--listen", "127.0.0.1:0", "--log", level, "--reserve-bytes", "0"]);
        command.arg("--data").arg(data).arg("--ready-file").arg(&ready).args(flags);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let began = Instant::now();
        let address = loop {
            match std::fs::read_to_string(&ready) {
                Ok(text) if !text.trim().is_empty() => break text.trim().to_owned(),
                _ => {}
            }
            let ended = child.try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < Duration::from_secs(60),
                "the server does not start: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        Self { child, url: format!("http://{address}"), agent: agent() }
    }

    /// Status, headers and body.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (Response<()>, Vec<u8>) {
        ask(&self.agent, &self.url, method, path, headers, body).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Vec<u8>) {
        let (head, body) = self.ask("GET", path, &[], b"");
        (head.status().as_u16(), body)
    }

    pub(crate) fn create(&self, name: &str) {
        let (head, _) = self.ask("PUT", &format!("/v1/stream/{name}"), &[("content-type", "text/plain")], b"");
        assert_eq!(head.status(), 201, "creating {name}");
    }

    pub(crate) fn append(&self, name: &str, body: &[u8]) {
        // The journal is small in these tests: it may be full until settling has caught up.
        let began = Instant::now();
        let (head, _) = loop {
            let answer = self.ask("POST", &format!("/v1/stream/{name}"), &[("content-type", "text/plain")], body);
            if answer.0.status() != 503 || began.elapsed() > Duration::from_secs(30) {
                break answer;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(head.status().is_success(), "appending to {name}: {}", head.status());
    }

    pub(crate) fn next_offset(&self, name: &str) -> String {
        let (head, _) = self.ask("HEAD", &format!("/v1/stream/{name}"), &[], b"");
        head.headers()["stream-next-offset"].to_str().unwrap().to_owned()
    }

    /// All of a stream, chunk by chunk.
    pub(crate) fn read(&self, name: &str) -> String {
        let (mut from, mut all) = ("-1".to_owned(), Vec::new());
        loop {
            let (head, body) = self.ask("GET", &format!("/v1/stream/{name}?offset={from}"), &[], b"");
            assert_eq!(head.status(), 200, "reading {name}: {}", String::from_utf8_lossy(&body));
            all.extend(body);
            from = head.headers()["stream-next-offset"].to_str().unwrap().to_owned();
            if head.headers().contains_key("stream-up-to-date") {
                return String::from_utf8(all).unwrap();
            }
        }
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn agent() -> Agent {
    let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(30)));
    config.allow_non_standard_methods(true).build().into()
}

pub(crate) fn ask(
    agent: &Agent,
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<(Response<()>, Vec<u8>), ureq::Error> {
    let mut request = Request::builder().method(method).uri(format!("{url}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = if body.is_empty() && method != "POST" && method != "PUT" {
        agent.run(request.body(()).unwrap())?
    } else {
        agent.run(request.body(body).unwrap())?
    };
    let (head, body) = answer.into_parts();
    let body = body.into_with_config().limit(1 << 30).read_to_vec()?;
    Ok((Response::from_parts(head, ()), body))
}
