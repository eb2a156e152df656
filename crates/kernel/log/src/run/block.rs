//! Blocks of entries, whichever form their object has.

use super::codec::{self, Head};
use super::earlier;
use super::error::RunError;
use super::extent::Entry;
use bytes::Bytes;
use thalweg_base::{DecodeError, LogId, ObjectId, Offset};
use thalweg_container::BlockCursor;

/// The format of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Container,
    Earlier,
}

/// A block whose checksum was verified. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Container(thalweg_container::Block),
    /// The bytes of its entries.
    Earlier(Bytes),
}

impl Block {
    /// `stored` is all of a block that stands at `at` of an object.
    pub(super) fn open(form: Form, object: ObjectId, at: u64, stored: &Bytes) -> Result<Self, RunError> {
        match form {
            Form::Container => Ok(Self::Container(thalweg_container::Block::open(object, at, stored)?)),
            Form::Earlier => earlier::checked(object, at, stored).map(Self::Earlier),
        }
    }

    /// The memory that it takes, about.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Container(block) => block.weight() as u64,
            Self::Earlier(entries) => entries.len() as u64,
        }
    }

    /// The entry that covers `offset` of `log`, else the next one of that log in this block; `None` if there is
    /// neither.
    pub(super) fn find(&self, object: ObjectId, log: LogId, offset: Offset) -> Result<Option<Entry>, DecodeError> {
        match self {
            Self::Container(block) => {
                let Some(end) = offset.0.checked_add(1) else { return Ok(None) };
                let mut cursor = block.cursor();
                if !cursor.seek(&codec::key(log, Offset(end)))? {
                    return Err(DecodeError::Range("last key of a block"));
                }
                let (head, lengths) = codec::head(object, &cursor.entry())?;
                if head.log == log { head.entry(lengths).map(Some) } else { Ok(None) }
            }
            Self::Earlier(entries) => earlier::find(object, entries, log, offset),
        }
    }

    /// The block's entries, from the first one on.
    pub(super) fn entries(&self, object: ObjectId) -> Result<Entries<'_>, DecodeError> {
        match self {
            Self::Container(block) => Ok(Entries::Container { object, cursor: block.cursor() }),
            Self::Earlier(entries) => earlier::Entries::new(object, entries).map(Entries::Earlier),
        }
    }
}

/// Walks over the entries of a block.
pub(super) enum Entries<'a> {
    Container { object: ObjectId, cursor: BlockCursor },
    Earlier(earlier::Entries<'a>),
}

impl Entries<'_> {
    /// The place of the data of the next entry that has any, if the block says so.
    pub(super) fn data(&self) -> Option<u64> {
        match self {
            Self::Container { .. } => None,
            Self::Earlier(entries) => Some(entries.data()),
        }
    }

    pub(super) fn next_head(&mut self) -> Result<Option<Head>, DecodeError> {
        match self {
            Self::Container { object, cursor } => {
                if cursor.advance()? {
                    Ok(Some(codec::head(*object, &cursor.entry())?.0))
                } else {
                    Ok(None)
                }
            }
            Self::Earlier(entries) => Ok(entries.next_head()?.map(|(head, _)| head)),
        }
    }

    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, DecodeError> {
        match self {
            Self::Container { object, cursor } => {
                if !cursor.advance()? {
                    return Ok(None);
                }
                let (head, lengths) = codec::head(*object, &cursor.entry())?;
                head.entry(lengths).map(Some)
            }
            Self::Earlier(entries) => entries.next_entry(),
        }
    }
}
