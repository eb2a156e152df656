//! The decision when a shape gets a new base, and the merge of its rows with its changes.

pub mod body;
pub mod delta;
pub mod moves;
pub mod plan;
