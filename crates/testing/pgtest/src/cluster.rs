//! One cluster.

use crate::installation::{Installation, installations};
use crate::owner::Owner;
use std::ffi::OsStr;
use std::fmt::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Settings of every cluster; an option of the same name comes later and wins.
const SETTINGS: &str = "\
listen_addresses = '127.0.0.1'
wal_level = logical
max_wal_senders = 40
max_replication_slots = 40
max_connections = 200
max_prepared_transactions = 10
fsync = off
shared_buffers = 32MB
max_wal_size = 512MB
timezone = 'UTC'
";

/// Stops the server and removes its files, once the other end of the pipe is closed.
const GUARD: &str = r#"
cat >/dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
  kill -QUIT "$pid" 2>/dev/null
  for _ in $(seq 200); do [ -e "$1/data/postmaster.pid" ] || break; sleep 0.05; done
fi
rm -rf "$1"
"#;

/// A server that runs, or can be started again.
#[derive(Debug)]
pub struct Cluster {
    installation: Installation,
    owner: Owner,
    folder: PathBuf,
    port: u16,
    guard: Child,
}

/// Special settings of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Lines of `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// The whole of `pg_hba.conf`; by default all connections are trusted.
    pub access: Option<String>,
    /// Files of the data folder, readable by the server only.
    pub files: Vec<(String, Vec<u8>)>,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended in good order.
    Fast,
    /// As in a crash: the next start recovers.
    Immediate,
}

impl Options {
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn file(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), content.into()));
        self
    }

    #[must_use]
    pub fn access(mut self, lines: &str) -> Self {
        self.access = Some(lines.to_owned());
        self
    }
}

impl Cluster {
    /// A cluster of the newest installed version; `None` (with a message) if there is none.
    pub fn any() -> Option<Self> {
        installations().last().map(|installation| Self::start(installation, &Options::default()))
    }

    /// Makes and starts one. The superuser is `postgres`.
    pub fn start(installation: &Installation, options: &Options) -> Self {
        let owner = Owner::find();
        let folder = tempfile::Builder::new().prefix("thalweg-pg-").tempdir().expect("a temporary folder").keep();
        owner.give(&folder);
        let guard = owner
            .command("/bin/sh")
            .args([OsStr::new("-c"), OsStr::new(GUARD), OsStr::new("sh"), folder.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal that interrupts the tests must not reach the guard.
            .process_group(0)
            .spawn()
            .expect("/bin/sh");
        let mut cluster = Self { installation: installation.clone(), owner, folder, port: 0, guard };
        cluster.initialize(options);
        // The port that is free now may be taken a moment later.
        for attempt in 1.. {
            cluster.port = free_port();
            match cluster.try_start() {
                Ok(()) => break,
                Err(log) => assert!(attempt < 10 && log.contains("could not bind"), "Postgres does not start:\n{log}"),
            }
        }
        cluster
    }

    fn initialize(&self, options: &Options) {
        let data = self.data();
        let mut initdb = self.program("initdb");
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let made = initdb.output().expect("initdb");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let path = data.join("postgresql.conf");
        let mut settings = std::fs::read_to_string(&path).expect("postgresql.conf");
        settings.push_str(SETTINGS);
        let _ = writeln!(settings, "unix_socket_directories = '{}'", self.folder.display());
        for (name, value) in &options.settings {
            let _ = writeln!(settings, "{name} = '{}'", value.replace('\'', "''"));
        }
        self.write("postgresql.conf", settings.as_bytes());
        if let Some(access) = &options.access {
            self.write("pg_hba.conf", access.as_bytes());
        }
        for (name, content) in &options.files {
            self.write(name, content);
        }
    }

    /// Replaces a file of the data folder; the server sees it after [`Cluster::reload`] or a restart.
    pub fn write(&self, name: &str, content: &[u8]) {
        let path = self.data().join(name);
        std::fs::write(&path, content).expect("a file of the data folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        self.owner.give(&path);
    }

    fn try_start(&self) -> Result<(), String> {
        let _ = std::fs::remove_file(self.log_path());
        let mut start = self.control("start");
        start.arg("-l").arg(self.log_path()).arg("-o").arg(format!("-p {}", self.port));
        if run(&mut start) { Ok(()) } else { Err(self.log()) }
    }

    /// Starts a server that was stopped, on its port.
    pub fn start_again(&self) {
        self.try_start().unwrap_or_else(|log| panic!("Postgres does not start again:\n{log}"));
    }

    pub fn stop(&self, how: Stop) {
        let mode = if how == Stop::Fast { "fast" } else { "immediate" };
        assert!(run(self.control("stop").args(["-m", mode])), "Postgres does not stop:\n{}", self.log());
    }

    /// Has the server read its configuration again; it does so a moment later.
    pub fn reload(&self) {
        assert!(run(&mut self.control("reload")), "Postgres does not reload:\n{}", self.log());
    }

    /// As the superuser, over TCP.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn major(&self) -> u32 {
        self.installation.major
    }

    /// Holds the server's socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The server's log since its last start.
    pub fn log(&self) -> String {
        std::fs::read(self.log_path()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// One of the programs of this version, as the server's owner.
    pub fn program(&self, name: &str) -> Command {
        let mut command = self.owner.command(self.installation.bin.join(name));
        // Messages are read by tests.
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    fn control(&self, what: &str) -> Command {
        let mut command = self.program("pg_ctl");
        command.args([what, "-s", "-D"]).arg(self.data());
        if what != "reload" {
            command.args(["-w", "-t", "60"]);
        }
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// The server must not inherit the tests' output: a reader of it would wait for the server's end.
fn run(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("pg_ctl").success()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its number").port()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_cluster_goes_with_its_owner_also_in_a_panic() {
        for installation in installations() {
            let (mut folder, mut port) = (PathBuf::new(), 0);
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let cluster = Cluster::start(&installation, &Options::default());
                (folder, port) = (cluster.folder().to_owned(), cluster.port());
                assert!(TcpStream::connect(("127.0.0.1", port)).is_ok() && folder.exists());
                panic!("on purpose");
            }));
            assert!(panicked.is_err());
            assert!(!folder.exists() && TcpStream::connect(("127.0.0.1", port)).is_err());
        }
    }
}
