//! The server's process, on a port that it keeps.

use anyhow::{Context, bail};
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Server {
    binary: PathBuf,
    folder: PathBuf,
    database: String,
    settings: Vec<(String, String)>,
    port: u16,
    child: Mutex<Option<Child>>,
}

impl Server {
    pub(crate) fn new(
        binary: &Path,
        folder: &Path,
        database: &str,
        settings: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self {
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            database: database.to_owned(),
            settings: settings.to_vec(),
            port,
            child: Mutex::new(None),
        })
    }

    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts it; returns when it listens, which is before it serves shapes.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("server.log"))?;
        let ready = self.folder.join("ready");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--listen").arg(format!("127.0.0.1:{}", self.port));
        command.arg("--data").arg(self.folder.join("data")).arg("--ready-file").arg(&ready);
        command.env("DATABASE_URL", &self.database).env("ELECTRIC_INSECURE", "true");
        command.env("ELECTRIC_LONG_POLL_TIMEOUT", "1000").env("ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD", "20000");
        command.envs(self.settings.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.binary.display()))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !ready.exists() {
            if let Some(status) = child.try_wait()? {
                bail!("the server ended with {status}: {}", self.last_words());
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                bail!("the server is not ready after 60 s: {}", self.last_words());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// kill -9.
    pub(crate) fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// How it ended, if it did so by itself.
    pub(crate) fn ended(&self) -> Option<String> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let status = child.as_mut()?.try_wait().ok()??;
        Some(format!("{status}: {}", self.last_words()))
    }

    fn last_words(&self) -> String {
        let log = std::fs::read(self.folder.join("server.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().rev().take(4).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
