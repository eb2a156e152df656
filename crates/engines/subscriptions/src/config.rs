//! Settings of subscriptions.

use crate::webhook::Targets;
use std::time::Duration;

/// Parameters of the engine.
#[derive(Clone, Debug)]
pub struct SubscriptionsConfig {
    /// Prefix of all paths of streams, and of `__ds`.
    pub prefix: String,
    /// The URL at which clients and receivers reach this server, such as `https://streams.example`; empty: as the request that
    /// made the subscription says.
    pub public_url: String,
    /// The server speaks TLS itself, so that its own addresses are `https`.
    pub https: bool,
    /// The addresses that webhooks may go to.
    pub targets: Targets,
    /// Bound on the number of subscriptions.
    pub subscriptions_max: usize,
    /// How many streams one subscription may be linked to.
    pub streams_max: usize,
    /// How many webhook deliveries may be under way.
    pub deliveries_max: usize,
    /// How long one delivery may take; never longer than the lease.
    pub delivery_timeout: Duration,
    /// How many requests may wait for the driver.
    pub queue_max: usize,
}

impl Default for SubscriptionsConfig {
    fn default() -> Self {
        Self {
            prefix: "/v1/stream/".into(),
            public_url: String::new(),
            https: false,
            targets: Targets::Public,
            subscriptions_max: 1_000,
            streams_max: 100_000,
            deliveries_max: 16,
            delivery_timeout: Duration::from_secs(30),
            queue_max: 4_096,
        }
    }
}
