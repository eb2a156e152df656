//! One owner of a journal, a storage and a manifest, and what every index over them needs.
//!
//! A *unit* has one root, kept in the manifest: who owns it, how far the journal is known to be durable, and a *section* for each
//! *index* (an index says which bytes of the journal and of the objects belong to what: `thalweg-log` is one). Several indexes share
//! the root, the journal and the storage of a unit, and each edits its own section.
//!
//! The order in which an owner begins is what its safety rests on:
//!
//! 1. [`Opening::read`] reads the root and changes nothing; every index looks whether the objects are there that its section names.
//! 2. [`Opening::acquire`] takes the next epoch. From here on no edit of an earlier owner succeeds.
//! 3. The caller opens the journal, which it may trim and append to only now, within [`Unit::bounds`].
//! 4. The first edit says how far the journal is durable. Objects are made only after it.
//! 5. [`Unit::remove_orphans`] removes the objects of earlier owners that no section names.
//!
//! Object ids hold the epoch of their maker ([`object_id`]), so no two owners ever make the same one: an object that a deposed owner
//! finishes late is an orphan, and never stands for another one.

mod error;
mod holds;
mod ids;
mod index;
mod opening;
mod root;
#[doc(hidden)]
pub mod sync;
mod unit;

pub use error::OpenError;
pub use holds::{Cut, HeldCut};
pub use ids::{EPOCH_MAX, epoch_of, object_id};
pub use index::Index;
pub use opening::Opening;
pub use root::{Claim, IndexId, Root, Section, Stored};
pub use unit::{Dropped, Unit};
