//! Subscriptions: durable cursors that wake workers when streams change (Durable Streams protocol, sections 6 and 7).
//!
//! [`state`] decides the effect of an event on a subscription; `core` owns all of them on one thread, the *driver*,
//! whose inputs are requests, reports of streams and results of deliveries; `store` keeps events in one log each beside
//! the streams; `webhook` delivers from a few threads of its own; `routes` is HTTP. An answer or delivery leaves only
//! when the events that it follows from are durable.
//!
//! On nodes each unit has subscriptions, which its owner serves. The streams that they follow may be in any unit:
//! [`spread`] knows where those of all nodes end.

mod config;
mod core;
mod driver;
mod error;
mod glob;
mod keys;
mod routes;
pub mod spread;
pub mod state;
mod store;
#[cfg(test)]
mod tests;
mod watched;
mod webhook;

pub use config::SubscriptionsConfig;
pub use driver::{MAIN, Prepared, Stats, Subscriptions};
pub use error::{OpenError, Refusal};
pub use keys::{Keys, KeysError};
pub use watched::{Interest, Watched};
pub use webhook::{Targets, Teller};
