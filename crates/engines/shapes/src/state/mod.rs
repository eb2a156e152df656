//! What decides, without clock, randomness or IO: entries of shapes, snapshots of Postgres, and the way of a change.

pub(crate) mod bases;
pub mod entries;
pub(crate) mod holding;
pub mod recent;
pub mod snapshot;
pub mod transaction;
