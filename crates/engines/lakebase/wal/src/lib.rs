//! Records of a Postgres write-ahead log (WAL): framed across pages, checked, and decoded.
//!
//! Input: the bytes of the log, as a walsender streams them or as segment files hold them, in any pieces. Output: one
//! [`Framed`] record at a time, with its position, and on request its decoded form, [`Record`]: block references with
//! their images and data, and main data. [`Effect`] says which state beside the blocks of relations a record changes.
//!
//! The crate promises that no input makes it panic, and that it holds no more memory than the longest record has bytes
//! that have arrived. It knows no files, sockets, pages of relations or threads.
//!
//! What differs between major versions of Postgres is in [`PgVersion`] and behind it. Source: `xlogreader.c`,
//! `xlogrecord.h` and `xlog_internal.h` of Postgres 15 to 18; names of fields are those of Postgres where they are given.

mod effect;
mod error;
mod framing;
mod fuzz;
mod image;
mod pglz;
mod record;
mod rmgr;
mod version;

pub use effect::{Checkpoint, Effect, TransactionEnd};
pub use error::{ImageError, RecordError, WalError};
pub use framing::{Framed, WalFramer};
pub use fuzz::fuzz_wal;
pub use image::{Image, PAGE_BYTES};
pub use record::{BlockRef, Fork, Record, RecordHeader, Relation};
pub use rmgr::Rmgr;
pub use version::PgVersion;
