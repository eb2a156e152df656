//! Log lines on standard error.
//!
//! The reader of standard error may stall: a full pipe, a stopped terminal. Nothing in the server waits for that: lines
//! wait in a bounded queue, and lines without room are dropped and counted ([`queue`]).

mod queue;

use anyhow::Context;
use queue::Queue;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use thalweg_host::config::LogFormat;
use tracing_subscriber::EnvFilter;

/// How long the end of the process waits for the last lines.
const END_MAX: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// The kind of reader that log lines are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// A collector: one line has its time and its module.
    Operator,
    /// A person at a terminal: short lines.
    Developer,
}

pub(crate) fn start(filter: &str, format: LogFormat, audience: Audience) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .with_context(|| format!("`{filter}` is not a log filter; write for example info"))?;
    let error = std::io::stderr().as_fd().try_clone_to_owned().context("cannot write to standard error")?;
    let queue = Queue::start(std::fs::File::from(error)).context("cannot start logging")?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(queue.clone())
        .with_ansi(std::io::stderr().is_terminal());
    let started = match (format, audience) {
        (LogFormat::Json, _) => lines.json().try_init(),
        (LogFormat::Text, Audience::Operator) => lines.try_init(),
        (LogFormat::Text, Audience::Developer) => lines.without_time().with_target(false).compact().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    let _ = QUEUE.set(queue);
    // The usual hook writes to standard error itself, and a panicking thread without a reader would never end the
    // process.
    std::panic::set_hook(Box::new(|panicked| {
        end();
        say(&format!("thalweg: {panicked}\n{}", std::backtrace::Backtrace::capture()));
    }));
    Ok(())
}

/// Lines that were dropped since the start.
pub(crate) fn dropped() -> u64 {
    QUEUE.get().map_or(0, Queue::dropped)
}

/// Gives the lines so far a moment to be written: after this the process may end.
pub(crate) fn end() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(END_MAX);
    }
}

/// Writes a line to standard error, and waits only a moment for its reader.
pub(crate) fn say(line: &str) {
    write_within(END_MAX, std::io::stderr(), line);
}

/// Writes a line to standard output, and waits only a moment for its reader.
pub(crate) fn print(line: &str) {
    write_within(END_MAX, std::io::stdout(), line);
}

/// Does not use the lock of the standard library: the end of the process takes that, and would wait for a stalled
/// write.
fn write_within(max: Duration, to: impl AsFd, line: &str) {
    let Ok(mut out) = to.as_fd().try_clone_to_owned().map(std::fs::File::from) else { return };
    let (line, (done, written)) = (format!("{line}\n"), sync_channel(1));
    let writing = std::thread::Builder::new().name("say".into()).spawn(move || {
        // A failed write has nowhere to be reported.
        let _ = out.write_all(line.as_bytes());
        let _ = done.send(());
    });
    if writing.is_ok() {
        let _ = written.recv_timeout(max);
    }
}
