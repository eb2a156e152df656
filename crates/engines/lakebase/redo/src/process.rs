//! One redo process: its folder, its start, and requests on its pipes.
//!
//! Requests are sent before earlier ones are answered, as many as have room for their answers in the pipe: so neither side
//! ever waits for the other one to read while that one waits, too.

use crate::error::{RedoError, StartError};
use crate::wire::{ANSWER_BYTES, DONE, Page};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use thalweg_lakebase_wal::PAGE_BYTES;

/// How many bytes the pipe of answers holds, if the system allows it; 64 KiB otherwise.
const PIPE_BYTES: usize = 1 << 20;
const PIPE_BYTES_AT_LEAST: usize = 64 << 10;
/// A pipe holds so many bytes at a time, or fewer: each write begins a new piece.
const PIPE_PAGE_BYTES: usize = 4096;
/// How much of what a process has said is kept for an error.
const SAID_MAX: usize = 2_000;
/// Folders that Postgres expects in its data folder, beside those of databases.
pub const DATA_FOLDERS: [&str; 19] = [
    "global",
    "base",
    "pg_commit_ts",
    "pg_dynshmem",
    "pg_logical/mappings",
    "pg_logical/snapshots",
    "pg_multixact/members",
    "pg_multixact/offsets",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_tblspc",
    "pg_twophase",
    "pg_wal/archive_status",
    "pg_xact",
];
/// The folder of the database that a redo process says it is for.
const DATABASE: &str = "base/5";

/// What runs as a redo process.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program `postgres` of a stock installation.
    pub postgres: PathBuf,
    /// Its major version.
    pub major: u32,
    /// The module of this crate, built for that version.
    pub module: PathBuf,
    /// User and group of the processes. Needed if this process is root: Postgres refuses to run so.
    pub owner: Option<(u32, u32)>,
    /// A request that takes longer ends its process; at least a second, in whole seconds.
    pub request_within: Duration,
    /// The content of `global/pg_control` of any cluster of that version: it says how long segments are.
    pub control: Vec<u8>,
}

/// A process that runs.
pub(crate) struct Process {
    child: Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// How many answers have room.
    ahead_max: usize,
    log: PathBuf,
}

/// Why a process answers no more.
pub(crate) struct Failed {
    pub(crate) error: RedoError,
    /// One of so many requests is the cause, from the first one on that was not answered. Answers to those before it may
    /// have been lost with the process.
    pub(crate) suspects: usize,
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |error| StartError::File { what, path, error }
}

impl Program {
    /// Makes the folder that Postgres takes for a data folder: it has nothing but what its start reads.
    pub(crate) fn make_folder(&self, folder: &Path) -> Result<(), StartError> {
        let mut made = vec![folder.to_owned()];
        fs::create_dir_all(folder).map_err(failed("cannot make", folder))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(failed("cannot make", folder))?;
        for name in DATA_FOLDERS.into_iter().chain([DATABASE]) {
            let mut path = folder.to_owned();
            for part in name.split('/') {
                path.push(part);
                fs::create_dir_all(&path).map_err(failed("cannot make", &path))?;
                made.push(path.clone());
            }
        }
        let version = format!("{}\n", self.major);
        let files: [(&str, &[u8]); 6] = [
            ("PG_VERSION", version.as_bytes()),
            ("global/pg_control", &self.control),
            ("postgresql.conf", b""),
            ("postgresql.auto.conf", b""),
            ("pg_hba.conf", b""),
            ("pg_ident.conf", b""),
        ];
        for (name, content) in files {
            let path = folder.join(name);
            fs::write(&path, content).map_err(failed("cannot write", &path))?;
            made.push(path);
        }
        if let Some((user, group)) = self.owner {
            for path in made {
                chown(&path, Some(user), Some(group)).map_err(failed("cannot give away", &path))?;
            }
        }
        Ok(())
    }

    /// Starts a process on a folder of [`Self::make_folder`].
    pub(crate) fn start(&self, folder: &Path) -> Result<Process, StartError> {
        let log = folder.join("log");
        let said = File::create(&log).map_err(failed("cannot write", &log))?;
        let _ = fs::remove_file(folder.join("postmaster.pid"));
        let mut command = Command::new(&self.postgres);
        command.arg("--single").arg("-D").arg(folder);
        let module = format!("shared_preload_libraries={}", self.module.display());
        // A page and what a record refers to beside it: a small pool is searched and emptied faster.
        for setting in [
            &*module,
            "shared_buffers=1MB",
            "dynamic_shared_memory_type=mmap",
            "huge_pages=off",
            "log_min_messages=error",
            "logging_collector=off",
            "max_connections=5",
            "autovacuum_max_workers=1",
            "max_worker_processes=0",
            "max_wal_senders=0",
        ] {
            command.args(["-c", setting]);
        }
        command
            .arg("postgres")
            .env_clear()
            .env("THALWEG_REDO_SECONDS", self.request_within.as_secs().to_string())
            .env("LC_ALL", "C")
            .current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said);
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        let mut child = command.spawn().map_err(failed("cannot run", &self.postgres))?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are pipes")
        };
        let room = rustix::pipe::fcntl_setpipe_size(&answers, PIPE_BYTES).unwrap_or(PIPE_BYTES_AT_LEAST);
        let mut process = Process {
            child,
            requests: BufWriter::with_capacity(256 << 10, requests),
            answers: BufReader::with_capacity(256 << 10, answers),
            ahead_max: (room / (ANSWER_BYTES.div_ceil(PIPE_PAGE_BYTES) * PIPE_PAGE_BYTES)).max(1),
            log,
        };
        let Ok((_, said)) = process.answer() else {
            let (ended, said) = process.end();
            return Err(StartError::Ended { ended, said });
        };
        let found = String::from_utf8_lossy(&said).into_owned();
        if !found.starts_with(&format!("PostgreSQL {}.", self.major)) {
            return Err(StartError::Version { found, expected: self.major });
        }
        Ok(process)
    }
}

impl Process {
    /// Sends requests, at most `ahead_max` before their answers, and passes on the answers, in order, until one fails or the
    /// process ends. `None`: all were answered. Else no more can be asked of the process.
    pub(crate) fn ask(
        &mut self,
        requests: usize,
        ahead_max: usize,
        encode: &dyn Fn(usize, &mut Vec<u8>),
        answered: &mut dyn FnMut(Page),
    ) -> Option<Failed> {
        let (mut sent, mut done, mut buffer) = (0, 0, Vec::new());
        while done < requests {
            let mut write = || {
                while sent < requests && sent - done < ahead_max.min(self.ahead_max) {
                    buffer.clear();
                    encode(sent, &mut buffer);
                    self.requests.write_all(&buffer)?;
                    sent += 1;
                }
                self.requests.flush()
            };
            match write().and_then(|()| self.answer()) {
                Ok((DONE, page)) if page.len() == PAGE_BYTES => {
                    let page =
                        page.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("it has that length"));
                    answered(page);
                    done += 1;
                }
                Ok((_, message)) => {
                    let error = RedoError::Refused { message: String::from_utf8_lossy(&message).into_owned() };
                    return Some(Failed { error, suspects: 1 });
                }
                Err(_) => {
                    let (ended, said) = self.end();
                    return Some(Failed { error: RedoError::Died { ended, said }, suspects: (sent - done).max(1) });
                }
            }
        }
        None
    }

    fn answer(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut len = [0; 4];
        self.answers.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len == 0 || len > 2 * ANSWER_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (mut status, mut body) = ([0], vec![0; len - 1]);
        self.answers.read_exact(&mut status)?;
        self.answers.read_exact(&mut body)?;
        Ok((status[0], body))
    }

    /// Ends the process: how it has ended, and the last that it said.
    fn end(&mut self) -> (String, String) {
        let _ = self.child.kill();
        let ended = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let said = fs::read(&self.log).unwrap_or_default();
        let last = &said[said.len().saturating_sub(SAID_MAX)..];
        (ended, String::from_utf8_lossy(last).trim().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
