//! Cancellation of a query that another thread runs.

use super::error::SourceError;
use parking_lot::Mutex;
use thalweg_pg::{CancelToken, Error};

/// One piece of work that can be cancelled, before and while it runs.
#[derive(Debug, Default)]
pub struct Cancel(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    cancelled: bool,
    /// The token of the connection that runs it.
    running: Option<CancelToken>,
}

impl Cancel {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels. Interrupts a running query: this takes a separate connection and waits until the server has read the
    /// request.
    pub fn cancel(&self) {
        let token = {
            let mut state = self.0.lock();
            state.cancelled = true;
            state.running.take()
        };
        if let Some(token) = token
            && let Err(error) = token.cancel()
        {
            tracing::debug!("a query could not be interrupted: {error}");
        }
    }

    #[must_use]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.lock().cancelled
    }

    /// Distinguishes a cancellation from a timeout, for which the server sends the same error.
    pub(super) fn explain(&self, error: Error) -> SourceError {
        match SourceError::from(error) {
            SourceError::Interrupted(_) if self.is_cancelled() => SourceError::Cancelled,
            error => error,
        }
    }

    /// The work begins, on the connection of `token`. `false`: it is cancelled already.
    pub(super) fn begin(&self, token: Option<CancelToken>) -> bool {
        let mut state = self.0.lock();
        state.running = token;
        !state.cancelled
    }

    /// Ends the work. `false`: it was cancelled, and the request may still be under way, so that the connection must
    /// not be used again.
    pub(super) fn end(&self) -> bool {
        let mut state = self.0.lock();
        state.running = None;
        !state.cancelled
    }
}
