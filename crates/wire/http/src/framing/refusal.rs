//! Why a request was refused before any service saw it.

use thiserror::Error;

/// A status and a reason for the client. The connection closes after it: the start of the next request is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{status}: {reason}")]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
}

impl Refusal {
    pub(crate) const PLAIN_HTTP: Self = Self::new(400, "this port speaks TLS: use https");
    pub(crate) const TLS: Self = Self::new(400, "this port speaks plain HTTP: use http://");
    pub(crate) const fn new(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }

    pub(crate) const fn bad(reason: &'static str) -> Self {
        Self::new(400, reason)
    }

    pub(crate) const BODY_TOO_LARGE: Self = Self::new(413, "the body is too large");
    pub(crate) const HEAD_TOO_LARGE: Self = Self::new(431, "the header fields are too large");
    pub(crate) const TARGET_TOO_LONG: Self = Self::new(414, "the request line is too long");
    pub(crate) const TOO_SLOW: Self = Self::new(408, "the request did not arrive in time");
    pub(crate) const NO_ROOM: Self = Self::new(503, "no memory is left for request bodies, try again later");
    pub(crate) const NO_CONNECTION: Self = Self::new(503, "too many connections, try again later");
    pub(crate) const NO_CONNECTION_OF_PEER: Self =
        Self::new(503, "too many connections from this address, close some or try again later");
}
