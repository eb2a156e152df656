//! The server's process: started, killed, started again.

use anyhow::{Context, bail};
use std::fs::{File, OpenOptions};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Thalweg,
    Peer,
}

/// The outcome of a start on a damaged folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// It did not start, and said this.
    Refused(String),
    /// It served, and said that the end of its journal is not whole.
    Said,
    /// It served without a word.
    Nothing,
}

impl Made {
    pub(crate) fn in_words(&self) -> &'static str {
        match self {
            Made::Refused(_) => "refused",
            Made::Said => "served, and said so",
            Made::Nothing => "served",
        }
    }
}

/// How the server is started.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) binary: PathBuf,
    kind: Kind,
    settings: Vec<(String, String)>,
    /// Of this run: data, log and what else there is.
    pub(crate) folder: PathBuf,
    /// The file of tokens, if they are asked for.
    pub(crate) tokens: Option<PathBuf>,
    /// Where webhooks may go.
    webhooks: &'static str,
}

impl Spec {
    pub(crate) fn new(binary: &Path, kind: Kind, settings: &[String], folder: &Path) -> anyhow::Result<Self> {
        let settings = settings
            .iter()
            .map(|setting| match setting.split_once('=') {
                Some((key, value)) => {
                    Ok((format!("THALWEG_{}", key.replace('-', "_").to_uppercase()), value.to_owned()))
                }
                None => bail!("--set {setting} is not KEY=VALUE"),
            })
            .collect::<anyhow::Result<_>>()?;
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        Ok(Self { binary, kind, settings, folder, tokens: None, webhooks: "local" })
    }

    /// The same server on a restored folder. Its webhooks cannot reach this machine, so that it repeats no wake.
    pub(crate) fn restored(&self, folder: &Path) -> Self {
        Self { folder: folder.to_owned(), webhooks: "public", ..self.clone() }
    }

    fn command(&self, port: u16) -> anyhow::Result<Command> {
        let log: File = OpenOptions::new().create(true).append(true).open(self.folder.join("server.log"))?;
        let data = self.folder.join("data");
        let mut command = Command::new(&self.binary);
        match self.kind {
            Kind::Thalweg => {
                command
                    .args([
                        "serve",
                        "--listen",
                        "127.0.0.1:0",
                        "--allow-host",
                        "test",
                        "--long-poll-timeout",
                        "2s",
                        "--durability",
                        "durable",
                    ])
                    .args(["--webhook-targets", self.webhooks])
                    .arg("--data")
                    .arg(&data)
                    .arg("--ready-file")
                    .arg(self.ready_file());
                if let Some(tokens) = &self.tokens {
                    command.arg("--tokens").arg(tokens);
                }
            }
            Kind::Peer => {
                command
                    .args(["--host", "127.0.0.1", "--long-poll-timeout-ms", "2000", "--durability", "wal"])
                    .arg("--port")
                    .arg(port.to_string())
                    .arg("--data-dir")
                    .arg(&data);
            }
        }
        command.envs(self.settings.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    pub(crate) fn is_peer(&self) -> bool {
        self.kind == Kind::Peer
    }

    fn ready_file(&self) -> PathBuf {
        self.folder.join("ready")
    }
}

struct State {
    child: Option<Child>,
    /// Counts starts and stops: even while it serves at `address`.
    generation: u64,
    address: Option<SocketAddr>,
    /// No thread may wait for another start.
    abandoned: bool,
}

pub(crate) struct Server {
    pub(crate) spec: Spec,
    state: Mutex<State>,
    changed: Condvar,
}

impl Server {
    pub(crate) fn new(spec: Spec) -> Self {
        let state = State { child: None, generation: 1, address: None, abandoned: false };
        Self { spec, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the server and waits until it serves.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let (child, port) = self.spawn()?;
        self.state().child = Some(child);
        let address = self.ready(port)?;
        let mut state = self.state();
        state.address = Some(address);
        state.generation += 1;
        self.changed.notify_all();
        Ok(())
    }

    fn spawn(&self) -> anyhow::Result<(Child, u16)> {
        let _ = std::fs::remove_file(self.spec.ready_file());
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child =
            self.spec.command(port)?.spawn().with_context(|| format!("cannot run {}", self.spec.binary.display()))?;
        Ok((child, port))
    }

    fn ready(&self, port: u16) -> anyhow::Result<SocketAddr> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match self.spec.kind {
                Kind::Thalweg => {
                    if let Ok(text) = std::fs::read_to_string(self.spec.ready_file())
                        && let Ok(address) = text.trim().parse()
                    {
                        return Ok(address);
                    }
                }
                Kind::Peer => {
                    let address = SocketAddr::from(([127, 0, 0, 1], port));
                    if TcpStream::connect(address).is_ok() {
                        return Ok(address);
                    }
                }
            }
            if let Some(child) = &mut self.state().child
                && let Some(status) = child.try_wait()?
            {
                bail!("it ended with {status}: {}", self.last_words());
            }
            if Instant::now() > deadline {
                bail!("it is not ready after 60 s: {}", self.last_words());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.spec.folder.join("server.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// kill -9.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.go_down() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills it again this long after it was started, ready or not.
    pub(crate) fn start_and_kill(&self, after: Duration) -> anyhow::Result<()> {
        let (mut child, _) = self.spawn()?;
        std::thread::sleep(after);
        if let Some(status) = child.try_wait()? {
            bail!("it ended with {status}: {}", self.last_words());
        }
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// SIGTERM; it must end with code 0 in time.
    pub(crate) fn terminate(&self) -> anyhow::Result<()> {
        let Some(mut child) = self.go_down() else { return Ok(()) };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = child.try_wait()? {
                // The peer has no graceful stop: the signal ends it.
                if status.success() || self.spec.kind == Kind::Peer {
                    return Ok(());
                }
                bail!("the server ended with {status}: {}", self.last_words());
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the server did not end within 30 s");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Records that it is down before it is: a thread with a broken connection after this knows why.
    fn go_down(&self) -> Option<Child> {
        let mut state = self.state();
        if state.address.take().is_some() {
            state.generation += 1;
        }
        state.child.take()
    }

    /// No start will follow: releases threads that wait for one.
    pub(crate) fn abandon(&self) {
        self.state().abandoned = true;
        self.changed.notify_all();
    }

    /// Waits until the server serves; its address and generation. None if it never will again.
    pub(crate) fn serving(&self) -> Option<(SocketAddr, u64)> {
        let mut state = self.state();
        loop {
            if state.abandoned {
                return None;
            }
            if let Some(address) = state.address {
                return Some((address, state.generation));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether it has served without a break since that generation.
    pub(crate) fn is_still(&self, generation: u64) -> bool {
        self.state().generation == generation
    }

    /// Starts it on a folder that was damaged on purpose, for nobody: what it made of that. It is down again
    /// afterwards.
    pub(crate) fn try_damaged(&self) -> anyhow::Result<Made> {
        let before = self.log().len();
        let (mut child, _) = self.spawn()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let ended = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if self.spec.ready_file().exists() {
                break None;
            }
            if Instant::now() > deadline {
                child.kill()?;
                bail!("it neither serves a damaged folder nor refuses it after 60 s: {}", self.last_words());
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if ended.is_none() {
            child.kill()?;
        }
        child.wait()?;
        let said = self.log().get(before..).unwrap_or_default().to_owned();
        Ok(match ended {
            Some(status) if status.success() => bail!("it ended with {status} on a damaged folder: {said}"),
            Some(_) => Made::Refused(said),
            None if said.contains("recovery discards the torn end of the journal") => Made::Said,
            None => Made::Nothing,
        })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.spec.folder.join("server.log")).unwrap_or_default()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.spec.folder.join("data")
    }

    /// Overwrites the newest bytes of the file that was written last.
    pub(crate) fn spoil_disk(&self) {
        let mut files = Vec::new();
        collect(&self.spec.folder.join("data"), &mut files);
        files.sort();
        // The newest of each kind: any one may hold only bytes that nothing needs any more.
        for kind in ["seg", "obj"] {
            let of_kind = files.iter().rev().filter(|(_, path)| path.extension().is_some_and(|found| found == kind));
            for (_, path) in of_kind {
                let Ok(mut bytes) = std::fs::read(path) else { continue };
                let Some(end) = bytes.iter().rposition(|b| *b != 0) else { continue };
                if end < 4096 {
                    continue;
                }
                let start = end.saturating_sub(256 << 10);
                bytes[start..=end].fill(0);
                println!("spoiled bytes {start}..={end} of {}", path.display());
                if std::fs::write(path, bytes).is_ok() {
                    break;
                }
            }
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<(std::time::SystemTime, PathBuf)>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => collect(&entry.path(), files),
            Ok(meta) => files.push((meta.modified().unwrap_or(std::time::UNIX_EPOCH), entry.path())),
            Err(_) => {}
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
