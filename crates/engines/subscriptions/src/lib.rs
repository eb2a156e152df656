//! Subscriptions: durable cursors that wake workers when streams change (Durable Streams protocol, sections 6 and 7).
//!
//! [`state`] decides what an event makes of a subscription; `core` owns all of them on one thread, the *driver*, which takes
//! requests, news of streams and results of deliveries as inputs; `store` keeps events in one log each beside the streams;
//! `webhook` delivers from a few threads of its own; `routes` is HTTP. Nothing is answered or sent out before the events that it
//! follows from are durable.

mod config;
mod core;
mod driver;
mod error;
mod glob;
mod keys;
mod routes;
pub mod state;
mod store;
#[cfg(test)]
mod tests;
mod webhook;

pub use config::SubscriptionsConfig;
pub use driver::{Stats, Subscriptions};
pub use error::{OpenError, Refusal};
pub use keys::{Keys, KeysError};
pub use webhook::Targets;
