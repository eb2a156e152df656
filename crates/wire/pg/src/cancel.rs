//! Interrupting a query from another thread.

use super::connect::Target;
use super::error::Error;
use super::frame::Receiver;
use super::link::{Link, Wait};
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Asks a server to interrupt the current query of a session.
#[derive(Clone)]
pub struct CancelToken {
    target: Arc<Target>,
    process: i32,
    secret: i32,
}

impl CancelToken {
    pub(super) fn new(target: Arc<Target>, process: i32, secret: i32) -> Self {
        Self { target, process, secret }
    }

    /// Sends the request over a separate connection, and waits until the server has read it. Its effect shows only in
    /// the query: it fails with SQLSTATE 57014, or had finished before.
    pub fn cancel(&self) -> Result<(), Error> {
        let config = &self.target.config;
        let deadline = config.connect_timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let wait = Wait::deadline(deadline);
        let (socket, session) = self.target.dial(wait, deadline)?;
        let link = Arc::new(Link::new(socket, session, config.write_timeout));
        let mut request = BytesMut::new();
        frontend::cancel_request(self.process, self.secret, &mut request);
        link.send(&request)?;
        // The server says nothing, it hangs up.
        match Receiver::new(link, 0).frame(wait) {
            Ok(None) => Err(Error::Timeout(config.connect_timeout.unwrap_or_default())),
            Err(Error::Closed(_) | Error::Io(_)) => Ok(()),
            Ok(Some(_)) => Err(Error::Protocol("an answer to a cancellation")),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("process", &self.process).finish_non_exhaustive()
    }
}
