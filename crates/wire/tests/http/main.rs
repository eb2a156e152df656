//! The server's promises, over real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod client;
mod service;

mod bodies;
mod bounds;
mod disconnects;
mod held;
mod order;
mod stop;
mod streams;
mod timeouts;
