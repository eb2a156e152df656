//! Output of commands to standard output and standard error.
//!
//! The macros of the standard library panic when a write fails, and a panic aborts this process: `thalweg check DIR |
//! true` would end with SIGABRT. The macros below have the same names and replace them in the whole crate. A closed
//! standard output is no fault; any other failure, such as a full disk, is kept until [`finish`] and makes the command
//! fail. A failure of standard error is ignored, because it cannot be reported.

use anyhow::Context;
use parking_lot::Mutex;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

macro_rules! print {
    ($($arg:tt)*) => { $crate::say::out(format_args!($($arg)*)) };
}

macro_rules! println {
    () => { $crate::say::out(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::say::out(format_args!("{}\n", format_args!($($arg)*))) };
}

macro_rules! eprintln {
    () => { $crate::say::note(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::say::note(format_args!("{}\n", format_args!($($arg)*))) };
}

/// The first failure of standard output that matters.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

pub(crate) fn out(text: Arguments<'_>) {
    keep(io::stdout().lock().write_fmt(text));
}

pub(crate) fn note(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

fn keep(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        FAILED.lock().get_or_insert(error);
    }
}

/// Writes buffered output. Fails if an earlier write failed for a reason other than a closed reader.
pub(crate) fn finish() -> anyhow::Result<()> {
    keep(io::stdout().lock().flush());
    FAILED.lock().take().map_or(Ok(()), |error| Err(error).context("cannot write to standard output"))
}
