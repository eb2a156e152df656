//! The decisions of shapes, without IO, clock, thread or lock: how messages are encoded, what a shape's entries and bases are, which values
//! subqueries select, when and how a log is compacted, and what a request means.
//!
//! Everything here is a function of its arguments, so that tests and fuzzers run it without a server. `../README.md` has how the engine's
//! crates fit.

pub mod compact;
pub mod encode;
pub mod request;
pub mod route;
pub mod state;
pub mod subquery;
