//! Subscriptions: durable cursors that wake workers when streams change (Durable Streams protocol, sections 6 and 7).
//!
//! [`state`] decides the effect of an event on a subscription; `core` owns all of them on one thread, the *driver*,
//! whose inputs are requests, reports of streams and results of deliveries; `store` keeps events in one log each beside
//! the streams; `webhook` delivers from a few threads of its own; `routes` is HTTP. An answer or delivery leaves only
//! when the events that it follows from are durable.

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
