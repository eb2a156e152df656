//! Live subsets of a Postgres database: Electric's HTTP API on the kernel.
//!
//! `state` decides, [`mod@format`] writes bytes, `serve` speaks HTTP, `source` speaks to Postgres. `README.md` beside this crate has
//! the way of a change, the states of a shape, the invariants and the failure cases.

mod applier;
pub mod definition;
mod engine;
mod follow;
pub mod format;
mod hot;
mod make;
mod matching;
mod predicate;
mod read;
mod recover;
mod registry;
mod router;
#[allow(dead_code, reason = "the engine that calls it comes next")]
pub(crate) mod serve;
mod shape;
mod source;
pub mod state;
pub mod store;
pub mod table;
