//! Entries, and what an index says of its own.

use thalweg_base::DecodeError;

/// The largest key, in bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// The largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// What an entry does to its key. Merge rules read it; the container only keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The value, whole: a row, a record, an extent, the image of a page.
    Value = 0,
    /// Hides every older entry of its key.
    Tombstone = 1,
    /// A change that needs the entries before it: an operand, the delta of a page.
    Operand = 2,
}

impl Kind {
    pub(crate) const COUNT: usize = 3;

    pub(crate) fn from_code(code: u64) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Value),
            1 => Ok(Self::Tombstone),
            2 => Ok(Self::Operand),
            got => Err(DecodeError::Unknown { what: "kind of entry", got }),
        }
    }
}

/// One entry, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    pub kind: Kind,
    pub value: &'a [u8],
}

/// What an index says of its entries. Keys are compared as bytes: [`crate::ordered`] has encodings that keep an order.
pub trait Codec: 'static {
    /// Stands in the container, so that the container of another index is refused. Never changes; `docs/format/container.md` lists all.
    const ID: u32;

    /// The part of a key that the filter knows, which must be a prefix of it; `None` if lookups need no filter.
    fn prefix(_key: &[u8]) -> Option<&[u8]> {
        None
    }

    /// A number of which the container keeps the least and the greatest, such as the sequence number.
    fn measure(_entry: &Entry<'_>) -> Option<u64> {
        None
    }

    /// Refuses what no writer of this index writes.
    fn check(_entry: &Entry<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
}
