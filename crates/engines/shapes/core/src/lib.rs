//! The decisions of shapes, without IO, clock, thread or lock: encoding of messages, entries and bases of shapes,
//! values selected by subqueries, compaction of logs, and the meaning of requests.
//!
//! Everything here is a function of its arguments, so that tests and fuzzers run it without a server. `../README.md`
//! describes how the engine's crates fit together.

pub mod compact;
pub mod encode;
pub mod request;
pub mod route;
pub mod state;
pub mod subquery;
