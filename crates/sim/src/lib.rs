//! A simulated disk for tests: deterministic from a seed, and as unkind as a real one is allowed to be.
//!
//! What was not synced may be lost, torn or reordered by a power cut; names and contents fail apart from each other; syncs and
//! writes fail when asked to; space runs out; bits rot. Nothing here reads a clock or any other source of randomness than the seed,
//! so that one seed gives one history.

mod content;
mod disk;
mod folder;
mod histories;
mod state;

pub use disk::SimDisk;
pub use histories::{histories, seeds};
pub use oorandom::Rand64;
