//! Sorted entries in one immutable object.
//!
//! A *container* holds entries (a key, a kind, a value) in the order of their keys as bytes: in data blocks that may be
//! compressed, under an index in *partitions*, each with an optional filter, under a *root* with statistics that stays
//! in memory while the container is read. A section of *content* may stand before them: opaque bytes in one piece, for
//! data that readers send as it is, by ranges. `docs/format/container.md` has the bytes.
//!
//! It is written from front to back ([`Builder`]) and read by ranges. Readers ([`Lookup`], [`Cursor`], [`ContentRead`])
//! never wait: a step says which range it wants, and is called again with its bytes ([`Need`]). A lookup wants three
//! ranges at most, one after the other: the tail of the object, a partition, a data block; a [`BlockCache`] that all
//! readers share spares those that it has. An index that is short enough is one partition, and is taken as a whole
//! ([`Index`]). Work in the background reads whole containers ([`Scan`], [`verify()`]) and merges them ([`Merge`]) with
//! bounded memory.
//!
//! A [`Codec`] gives keys their meaning; a [`Rule`] says which entries a merge drops: the newest of a key wins, or
//! versions are kept from a lowest one on. Two promises: an entry is given out only if the checksum over its block's
//! content and place fits; no bytes make a reader panic, or take memory beyond the object's length and a fixed bound.
//!
//! Logs use the builder, the scan, the index of one partition and the merge with [`NewestWins`]. [`Lookup`],
//! [`Cursor`], [`SharedCache`], [`Versions`] and [`write_merged`] are for the sorted table (LSM), which is to be the
//! unit's second index; until then only tests use them.

mod block;
mod build;
mod cache;
mod codec;
mod compress;
mod content;
mod cursor;
mod error;
mod filter;
mod footer;
mod frame;
mod fuzz;
mod index;
mod load;
mod lookup;
mod merge;
mod object;
pub mod ordered;
mod partition;
mod read_content;
mod root;
mod rule;
mod scan;
mod verify;

pub use block::{Block, BlockCursor};
pub use build::{Builder, HELD_BYTES_MAX, Options, Written};
pub use cache::{BlockCache, Cached, NoCache, SharedCache};
pub use codec::{Codec, Entry, KEY_BYTES_MAX, Kind, VALUE_BYTES_MAX};
pub use compress::Compression;
pub use content::PAGE_BYTES;
pub use cursor::Cursor;
pub use error::ContainerError;
pub use footer::{END_MAGIC, FOOTER_BYTES};
pub use fuzz::{fuzz_container, fuzz_samples};
pub use index::Index;
pub use load::{Need, wait};
pub use lookup::{Found, Lookup};
pub use merge::{Merge, Source, write_merged};
pub use object::Object;
pub use read_content::{CONTENT_READ_MAX, ContentRead};
pub use root::{NOTE_BYTES_MAX, Stats};
pub use rule::{NewestWins, Rule, Versions};
pub use scan::Scan;
pub use verify::verify;
