//! Output of commands to standard output and standard error.
//!
//! The macros of the standard library panic when a write fails, and a panic aborts this process: `thalweg check DIR |
//! true` would end with SIGABRT. The macros below have the same names and replace them in this crate and in the binary. A
//! closed standard output is no fault; any other failure, such as a full disk, is kept until [`finish`] and makes the command
//! fail. A failure of standard error is ignored, because it cannot be reported.

use parking_lot::Mutex;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Like the macro of the standard library, but a write that fails does not panic: see [`finish`].
#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::say::out(format_args!($($arg)*)) };
}

/// Like [`print!`], with a line break.
#[macro_export]
macro_rules! println {
    () => { $crate::say::out(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::say::out(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Writes a line to standard error. A failure is ignored.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::say::note(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::say::note(format_args!("{}\n", format_args!($($arg)*))) };
}

/// The first failure of standard output that matters.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes to standard output. A failure other than a closed reader is kept for [`finish`].
pub fn out(text: Arguments<'_>) {
    keep(io::stdout().lock().write_fmt(text));
}

/// Writes to standard error. A failure is ignored.
pub fn note(text: Arguments<'_>) {
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
pub fn finish() -> io::Result<()> {
    keep(io::stdout().lock().flush());
    FAILED.lock().take().map_or(Ok(()), Err)
}

/// Reports success to a person at a terminal. Scripts have the exit code.
pub(crate) fn report(message: impl FnOnce() -> String) {
    if io::stderr().is_terminal() {
        eprintln!("{}", message());
    }
}

/// Prompts a person, if standard input is a terminal.
pub(crate) fn ask_on_terminal(words: &str) {
    if io::stdin().is_terminal() {
        note(format_args!("{words}"));
    }
}
