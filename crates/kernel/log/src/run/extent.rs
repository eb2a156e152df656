//! Extents, and their entries in the index.

use crate::lengths::Lengths;
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{LogId, ObjectId, Offset};

/// A contiguous piece of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub log: LogId,
    pub start: Offset,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The bytes, in parts that concatenate. `lengths` are those of the messages in them, in order; they add up to the
    /// bytes. The last message may be cut where a fork cut it.
    Bytes { parts: Vec<Bytes>, lengths: Lengths },
    /// The bytes stand in another log: in `source`, from `from` on.
    Reference { source: LogId, from: Offset, lengths: Lengths },
}

impl Extent {
    #[must_use]
    pub(crate) fn lengths(&self) -> &Lengths {
        match &self.content {
            Content::Bytes { lengths, .. } | Content::Reference { lengths, .. } => lengths,
        }
    }

    /// The position just after the extent.
    #[must_use]
    pub(crate) fn end(&self) -> Offset {
        self.start.plus(self.lengths().bytes())
    }

    /// The part of it in `range`, positions of the log; `None` if it is empty.
    #[must_use]
    pub(crate) fn clip(&self, range: &Range<Offset>) -> Option<Self> {
        let within = within(self.start, self.end(), range)?;
        let content = match &self.content {
            Content::Bytes { parts, lengths } => {
                Content::Bytes { parts: slice_parts(parts, &within), lengths: lengths.slice(within.clone()) }
            }
            Content::Reference { source, from, lengths } => Content::Reference {
                source: *source,
                from: from.plus(within.start),
                lengths: lengths.slice(within.clone()),
            },
        };
        Some(Self { log: self.log, start: self.start.plus(within.start), content })
    }
}

/// The entry of an extent in an object's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub log: LogId,
    pub start: Offset,
    pub place: Place,
    pub lengths: Lengths,
}

/// The place of an entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In `object`, from its byte `at` on.
    Data { object: ObjectId, at: u64 },
    /// In the log `source`, from `from` on.
    Reference { source: LogId, from: Offset },
}

impl Entry {
    /// The position just after the entry.
    #[must_use]
    pub(crate) fn end(&self) -> Offset {
        self.start.plus(self.lengths.bytes())
    }

    #[must_use]
    pub(crate) fn is_reference(&self) -> bool {
        matches!(self.place, Place::Reference { .. })
    }
}

/// The part of `start..end` in `range`, relative to `start`; `None` if it is empty.
pub(super) fn within(start: Offset, end: Offset, range: &Range<Offset>) -> Option<Range<u64>> {
    let from = start.max(range.start);
    let to = end.min(range.end);
    (from < to).then(|| from.since(start)..to.since(start))
}

fn slice_parts(parts: &[Bytes], range: &Range<u64>) -> Vec<Bytes> {
    let mut sliced = Vec::new();
    let mut at = 0u64;
    for part in parts {
        let end = at + part.len() as u64;
        let (from, to) = (range.start.max(at), range.end.min(end));
        if from < to {
            sliced.push(part.slice((from - at) as usize..(to - at) as usize));
        }
        at = end;
    }
    sliced
}
