//! Entries, and the codecs that give their keys and values a meaning.

use thalweg_base::DecodeError;

/// The largest key, in bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// The largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// The effect of an entry on its key. Merge rules read it; the container only keeps it.
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
    /// At most [`KEY_BYTES_MAX`] bytes, compared as bytes.
    pub key: &'a [u8],
    /// The effect on the key.
    pub kind: Kind,
    /// At most [`VALUE_BYTES_MAX`] bytes.
    pub value: &'a [u8],
}

/// One kind of entries: the meaning of their keys and values. Keys are compared as bytes: [`crate::ordered`] has
/// encodings that keep an order.
pub trait Codec: 'static {
    /// The codec's number. It stands in the container, so that a container of another codec is refused. It never
    /// changes, and it is not the number of an index in a unit's root: one index may write containers of several
    /// codecs. `docs/format/container.md` lists all.
    const ID: u32;

    /// The part of a key that the filter knows, which must be a prefix of it; `None` if lookups need no filter.
    fn prefix(_key: &[u8]) -> Option<&[u8]> {
        None
    }

    /// A number of which the container keeps the least and the greatest, such as the sequence number.
    fn measure(_entry: &Entry<'_>) -> Option<u64> {
        None
    }

    /// Refuses an entry that no writer of this codec writes.
    fn check(_entry: &Entry<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
}
