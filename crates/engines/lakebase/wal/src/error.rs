//! Why a log, a record or an image cannot be read.

use thalweg_pg::PgLsn;
use thiserror::Error;

/// Why the bytes at a position are no log of Postgres, or not the expected one. The framer goes no further.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WalError {
    /// A page has a magic number of no version that can be read.
    #[error("the page at {at} has the magic number {magic:#06x}: it is no page of the log of Postgres 15 to 18")]
    Magic { at: PgLsn, magic: u16 },
    /// A page is of another version than the pages before.
    #[error("the page at {at} is of Postgres {found}, and those before are of Postgres {expected}")]
    Version { at: PgLsn, expected: u32, found: u32 },
    /// A page says that it stands elsewhere: a recycled segment, or the wrong file.
    #[error("the page at {at} says that it stands at {found}")]
    Address { at: PgLsn, found: PgLsn },
    /// The log is of another cluster.
    #[error("the page at {at} is of the cluster {found}, and {expected} is the expected one")]
    System { at: PgLsn, expected: u64, found: u64 },
    /// The cluster was made with other sizes.
    #[error(
        "the page at {at} says that segments have {segment_bytes} bytes and pages {page_bytes}; expected are {expected} and 8192"
    )]
    Sizes { at: PgLsn, segment_bytes: u32, page_bytes: u32, expected: u32 },
    /// A page's header contradicts itself, or the record that goes on in the page.
    #[error("the header of the page at {at} is damaged: {why}")]
    Page { at: PgLsn, why: &'static str },
    /// A record's header contradicts itself.
    #[error("the record at {at} is damaged: {why}")]
    Header { at: PgLsn, why: &'static str },
    /// A record names another one before it than the one that was read.
    #[error("the record at {at} follows one at {found}, and the one before stands at {expected}")]
    Previous { at: PgLsn, expected: PgLsn, found: PgLsn },
    /// A record's checksum differs.
    #[error("the record at {at} has the checksum {found:#010x}, and {expected:#010x} is that of its bytes")]
    Checksum { at: PgLsn, expected: u32, found: u32 },
}

/// Why a record whose checksum is right cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It ends within the named part.
    #[error("the record ends within {0}")]
    Truncated(&'static str),
    /// A part has an impossible value.
    #[error("the record is damaged: {0}")]
    Invalid(&'static str),
    /// Its main data is not of the length that its kind has.
    #[error("main data of {rmgr} with info {info:#04x} has {len} bytes, which is too few")]
    MainData { rmgr: &'static str, info: u8, len: usize },
}

/// Why the image of a page cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// It does not decompress to the length that its page has without its hole.
    #[error("the image of a page does not decompress ({0})")]
    Compression(&'static str),
}
