//! SIGTERM and SIGINT ask for a graceful stop; a second one ends the process at once.

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

/// The signals that stop a server. Install it before serving, so that none is missed.
pub(crate) struct Stop {
    signals: Signals,
}

impl Stop {
    pub(crate) fn install() -> anyhow::Result<Self> {
        let signals = Signals::new([SIGTERM, SIGINT]).context("cannot listen for SIGTERM and SIGINT")?;
        Ok(Self { signals })
    }

    /// Whether a stop signal has come.
    pub(crate) fn is_asked(&mut self) -> bool {
        self.signals.pending().next().is_some()
    }

    /// Blocks until a stop signal; returns its name.
    pub(crate) fn wait(&mut self) -> &'static str {
        let signal = self.signals.forever().next();
        // From here on no code waits for a signal: a hanging stop must not swallow a second one.
        for signal in [SIGTERM, SIGINT] {
            let installed = signal_hook::flag::register_conditional_default(
                signal,
                std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true)),
            );
            if let Err(error) = installed {
                tracing::warn!(%error, "a second signal will not end the process at once");
            }
        }
        signal.and_then(low_level::signal_name).unwrap_or("a signal")
    }
}
