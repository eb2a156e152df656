//! Log lines on standard error.

use crate::config::LogFormat;
use anyhow::Context;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Who reads the lines.
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
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A failure of standard error would be told on standard error, which panics.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match (format, audience) {
        (LogFormat::Json, _) => lines.json().try_init(),
        (LogFormat::Text, Audience::Operator) => lines.try_init(),
        (LogFormat::Text, Audience::Developer) => lines.without_time().with_target(false).compact().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
