//! Many named append-only logs multiplexed over one journal.
//!
//! No file, descriptor, task or timer per log: a log at rest is one compact record in memory. A transaction on one or
//! many logs is one journal frame ([`Op`], [`Guard::commit`]). Content stands in the journal until a *round* settles it
//! into a *run*: objects that hold pieces of many logs, sorted by (log, offset). Runs of like size are merged, so the
//! number of runs per log stays bounded. The *directory* (names, positions, engine state) is checkpointed in the same
//! rounds, and the manifest names runs and directory objects, not logs. See `README.md` beside this crate for states,
//! invariants and failure cases.
//!
//! This crate knows nothing of protocols: the meaning of a log is its engine's, in an [`Attachment`].

mod attachment;
mod check;
mod checkpoint;
mod chunk_cache;
mod cut;
mod damage;
mod device;
mod directory;
mod error;
mod faults;
mod frame;
mod fuzz;
mod guard;
mod held_bytes;
mod ids;
mod ledger;
mod lengths;
mod lists;
mod located;
mod log;
mod logs;
mod op;
mod read;
mod recovery;
mod root;
mod run;
mod scrub;
mod sealed;
mod settle;
mod shard;
mod tally;
mod unit;
mod upkeep;
mod wakeup;

pub use attachment::Attachment;
pub use check::{CheckError, Checked, check, find_damage, find_damage_beyond};
pub use cut::{Cut, HeldCut, objects_of_root, read_cut};
pub use damage::{DAMAGES_MAX, Damage, DamageStats, DamagedLog, Place};
pub use directory::DirectoryError;
pub use error::{CommitError, OpenError, ReadError, UnitError};
#[cfg(feature = "faults")]
pub use faults::{Faults, Moment};
pub use frame::fuzz_frame;
pub use fuzz::{fuzz_object, fuzz_record, fuzz_root};
pub use guard::{Committed, Guard, LogView, NAME_BYTES_MAX};
#[cfg(feature = "faults")]
pub use ledger::Miscount;
pub use lengths::Lengths;
pub use lists::ListOptions;
pub use logs::{Logs, LogsOptions, Loss, ReadFrom, Seen, SweepCursor};
pub use op::{Append, Op, Origin};
pub use read::{BoundaryRead, Chunk, ChunkRead, EndRead, PieceRead, Seek, SeekError, SeekRead};
pub use recovery::{Alone, Loaded, Replaying, decode_root};
pub use run::RunError;
pub use scrub::{Scrub, Unchecked};
pub use settle::When;
pub use tally::Tally;
pub use thalweg_unit::epoch_of;
pub use unit::{FileUnit, MANIFEST, OBJECTS};
pub use upkeep::{LogsStats, UpkeepError};
pub use wakeup::NextRound;
