//! Every refusal, and the one place that maps it to HTTP. `docs/protocol/refusals.md` has the table.

use crate::keys::KeysError;
use thalweg_log::{CommitError, ReadError};
use thiserror::Error;

/// Why a request is refused. `docs/protocol/refusals.md` lists status, code and remedy of each.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("{0}")]
    Invalid(String),
    #[error("the webhook's URL is refused: {0}")]
    Url(&'static str),
    #[error("the Authorization header must hold the Bearer token that came with the wake")]
    Token,
    #[error("there is no such subscription")]
    NotFound,
    #[error("there is no such control route")]
    NoRoute,
    #[error("this route takes {0}")]
    Method(&'static str),
    #[error("the subscription exists with another configuration")]
    Exists,
    #[error("the wake is over: its generation or its id is not the current one")]
    Fenced,
    #[error("another worker holds the lease")]
    Claimed { holder: String, generation: u64 },
    #[error("no stream of the subscription has new content")]
    NoWork,
    #[error(
        "the offset of `{0}` cannot be acknowledged: the stream is not linked, or the offset is not one of its own up to its end"
    )]
    Offset(String),
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the limit of {0} subscriptions is reached; delete some")]
    TooManySubscriptions(usize),
    #[error("a subscription can have at most {0} streams")]
    TooManyStreams(usize),
    #[error("too many requests wait for subscriptions; retry in a second")]
    Busy,
    #[error("the request cannot be served now: {0}; retry in a second")]
    Unavailable(String),
    /// Meant for the node that has sent the request: it asks the next owner.
    #[error("this node does not own the subscription")]
    NotHere,
}

impl Refusal {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.mapping().0
    }

    /// The protocol's error code, or one in its style.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.mapping().1
    }

    fn mapping(&self) -> (u16, &'static str) {
        match self {
            Self::Invalid(_) => (400, "INVALID_REQUEST"),
            Self::Url(_) => (400, "WEBHOOK_URL_REJECTED"),
            Self::Token => (401, "TOKEN_INVALID"),
            Self::NotFound => (404, "SUBSCRIPTION_NOT_FOUND"),
            Self::NoRoute => (404, "NOT_FOUND"),
            Self::Method(_) => (405, "METHOD_NOT_ALLOWED"),
            Self::Exists => (409, "SUBSCRIPTION_ALREADY_EXISTS"),
            Self::Fenced => (409, "FENCED"),
            Self::Claimed { .. } => (409, "ALREADY_CLAIMED"),
            Self::NoWork => (409, "NO_PENDING_WORK"),
            Self::Offset(_) => (409, "INVALID_OFFSET"),
            Self::TooLarge(_) => (413, "TOO_LARGE"),
            Self::TooManySubscriptions(_) => (429, "TOO_MANY_SUBSCRIPTIONS"),
            Self::TooManyStreams(_) => (429, "TOO_MANY_STREAMS"),
            Self::Busy => (503, "BUSY"),
            Self::Unavailable(_) => (503, "UNAVAILABLE"),
            Self::NotHere => (421, "NOT_HERE"),
        }
    }
}

impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Why subscriptions could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("the log of subscription `{id}` cannot be read: {error}")]
    Read { id: String, error: ReadError },
    #[error("the log of subscription `{id}` is damaged: {why}")]
    Corrupt { id: String, why: String },
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}
