//! The server's promises, over real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

/// `../https` runs the same tests over TLS.
pub(crate) const IDENTITY: Option<fn() -> identity::Identity> = None;

mod client;
#[path = "../https/identity.rs"]
mod identity;
mod service;

mod bodies;
mod bounds;
mod disconnects;
mod held;
mod order;
mod pages;
mod policy;
mod stop;
mod streams;
mod timeouts;
mod turns;
