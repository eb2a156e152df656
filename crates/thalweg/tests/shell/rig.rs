//! A separate server, and commands for it that see nothing of our environment.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const THALWEG: &str = env!("CARGO_BIN_EXE_thalweg");

pub(crate) struct Rig {
    folder: tempfile::TempDir,
    server: Option<Child>,
    pub(crate) address: String,
}

impl Rig {
    /// Without a server.
    pub(crate) fn alone() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), server: None, address: String::new() }
    }

    pub(crate) fn start(flags: &[&str]) -> Self {
        let mut rig = Self::alone();
        let log = File::create(rig.path("log")).unwrap();
        rig.serve(flags, |command| command.stdout(Stdio::null()).stderr(log));
        rig
    }

    /// Starts a server; `set` says where its output goes.
    pub(crate) fn serve(&mut self, flags: &[&str], set: impl FnOnce(&mut Command) -> &mut Command) {
        let ready = self.path("ready");
        let mut command =
            self.command("serve --listen 127.0.0.1:0 --reactors 1 --reserve-bytes 0 --journal-segment-bytes 1MiB");
        command.arg("--data").arg(self.path("data")).arg("--ready-file").arg(&ready).args(flags);
        self.server = Some(set(&mut command).spawn().unwrap());
        self.address = self.until("the server is ready", || {
            std::fs::read_to_string(&ready).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
        });
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Stops the server; its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut server = self.server.take().unwrap();
        let pid = rustix::process::Pid::from_child(&server);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        server.wait().unwrap().code()
    }

    /// `thalweg LINE`; `@` at the beginning of a word is the folder.
    pub(crate) fn command(&self, line: &str) -> Command {
        let folder = self.folder.path().to_str().unwrap();
        let mut command = Command::new(THALWEG);
        let words = line.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(rest) => format!("{folder}/{rest}"),
            None => word.to_owned(),
        });
        command.args(words).env_clear().env("HOME", folder).env("PATH", std::env::var("PATH").unwrap_or_default());
        if !self.address.is_empty() {
            command.env("THALWEG_SERVER", self.url());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that must succeed; returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail with this code; returns its message.
    #[track_caller]
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", said(&output));
        said(&output)
    }

    /// Appends a text to a stream, which is made if need be.
    pub(crate) fn append(&self, name: &str, text: &str) {
        let file = self.path("input");
        std::fs::write(&file, text).unwrap();
        self.ok(&format!("stream append {name} --create --content-type text/plain --input @input"));
    }

    /// Runs a line of a shell at a terminal, with `thalweg` on its path; returns the terminal's content.
    pub(crate) fn at_terminal(&self, line: &str) -> String {
        let bin = self.path("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let _ = std::os::unix::fs::symlink(THALWEG, bin.join("thalweg"));
        let mut command = Command::new("script");
        command.args(["-qec", line, "/dev/null"]).env_clear().env("HOME", self.folder.path()).env("TERM", "xterm");
        command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()));
        command.env("THALWEG_SERVER", self.url()).current_dir(self.folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it takes too long until {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
