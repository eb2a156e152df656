//! Deliveries to webhooks: valid URLs, allowed addresses, and the threads that deliver.

mod address;
mod client;
mod pool;
mod url;

pub(crate) use client::Client;
pub(crate) use pool::Pool;
pub(crate) use url::check as check_url;

use std::sync::Arc;
use std::time::Duration;
use thalweg_streams::format::offset::Position;

/// The longest URL, in bytes.
pub(crate) const URL_BYTES_MAX: usize = 2_048;

/// The addresses that webhooks may go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Targets {
    /// `https` to public addresses.
    #[default]
    Public,
    /// Public addresses, and `http` to this machine, for development.
    Local,
    /// Any address: for private networks whose clients are all trusted.
    Any,
}

/// Where a wake goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the webhook at this URL.
    Url(String),
    /// To the wake stream of this name, which is in another journal than the subscription.
    Stream(String),
}

/// Appends a JSON value to the stream of a name, and waits until it is durable; otherwise why it could not.
pub type Teller = Arc<dyn Fn(&str, &[u8]) -> Result<(), String> + Send + Sync>;

/// One wake on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) subscription: String,
    pub(crate) generation: u64,
    pub(crate) wake: String,
    pub(crate) target: Target,
    pub(crate) body: Vec<u8>,
    /// Positions that a `done` acknowledges.
    pub(crate) tails: Vec<(Box<str>, Position)>,
    pub(crate) timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The receiver has finished the work.
    Done,
    /// The receiver has accepted the wake, and will call back.
    Taken,
    Failed(String),
}
