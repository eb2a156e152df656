//! A simulated disk for tests: deterministic from a seed, with every failure that a real disk may have.
//!
//! A power cut may lose, tear or reorder writes that were not synced; names and contents fail apart from each other;
//! syncs and writes fail when a test asks for it; space runs out; bits rot. Nothing here reads a clock or any other
//! source of randomness than the seed, so that one seed gives one history.

mod content;
mod disk;
mod folder;
mod histories;
mod scheduler;
mod state;

pub use disk::SimDisk;
pub use histories::{histories, is_replay, seeds, stay_on_this_core};
pub use oorandom::Rand64;
pub use scheduler::{Process, Scheduler, silently};
