//! One owner of a journal, a storage and a manifest, and the services that every index over them needs.
//!
//! A *unit* has one root, kept in the manifest: the owner's epoch, how far the journal is known to be durable, and a
//! *section* for each *index* (an index maps bytes of the journal and of the objects to names: `thalweg-log` is one).
//! Several indexes share the root, the journal and the storage of a unit, and each edits its own section.
//!
//! The safety of an opening rests on the order of its steps:
//!
//! 1. [`Opening::read`] reads the root and changes nothing; every index checks that the objects which its section names
//!    exist.
//! 2. [`Opening::acquire`] takes the next epoch. From here on no edit of an earlier owner succeeds.
//! 3. Every index puts its section in force ([`Index::new`]). The caller opens the journal, which it may trim and
//!    append to only now, within [`Unit::bounds`], and passes its frames to [`Unit::replay`], which gives each part to
//!    its index.
//! 4. [`Unit::start`] commits the journal's term, how far the journal is durable, and the sections of new indexes.
//!    Objects are made only after it.
//! 5. [`Unit::start`] then removes the objects of earlier owners that no section names.
//!
//! One journal serves all indexes: each part of a frame names its index ([`frame_parts`]), one sync makes the frames of
//! all indexes durable, and the unit trims the frames that no index needs ([`Index::release`]).
//!
//! Object ids hold the epoch of their maker ([`object_id`]), so no two owners ever make the same one: an object that a
//! deposed owner finishes late is an orphan, and never stands for another one.

mod error;
mod faults;
mod frame;
mod holds;
mod ids;
mod index;
mod opening;
mod replay;
mod root;
#[doc(hidden)]
pub mod sync;
mod unit;

pub use error::{OpenError, StartError};
#[cfg(feature = "faults")]
pub use faults::Faults;
pub use frame::{Part, frame_head, frame_part, frame_parts, shared_frame_head};
pub use holds::{Cut, HeldCut};
pub use ids::{EPOCH_MAX, epoch_of, object_id};
pub use index::Index;
pub use opening::{Opening, own};
pub use replay::{Replay, ReplayError};
pub use root::{Claim, IndexId, Root, Section, Stored};
pub use unit::{Dropped, Unit};
