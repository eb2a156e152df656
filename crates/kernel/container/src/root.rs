//! The root: statistics, where the sections stand, and the list of partitions.

use crate::codec::{KEY_BYTES_MAX, Kind};
use crate::content;
use crate::error::ContainerError;
use crate::footer::HEADER_BYTES;
use crate::frame::{self, BlockType, Place};
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{DecodeError, Decoder, Encoder, ObjectId};

/// The largest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 4 << 10;

/// Statistics of a container's entries, which its root holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries of each kind, by [`Kind`].
    pub(crate) entries: [u64; Kind::COUNT],
    /// Bytes of keys and values.
    pub raw_bytes: u64,
    /// Bytes of data blocks, as they are stored.
    pub stored_bytes: u64,
    /// Number of data blocks.
    pub blocks: u64,
    /// Bytes of the section of content.
    pub content_bytes: u64,
    /// The least and the greatest of [`crate::Codec::measure`].
    pub measures: Option<(u64, u64)>,
    /// The least key; empty without entries.
    pub first: Vec<u8>,
    /// The greatest key; empty without entries.
    pub last: Vec<u8>,
}

impl Stats {
    /// Number of entries of all kinds.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries.iter().sum()
    }

    /// Number of entries of one kind.
    #[must_use]
    pub fn entries_of(&self, kind: Kind) -> u64 {
        self.entries[kind as usize]
    }

    pub(crate) fn measure(&mut self, measure: Option<u64>) {
        if let Some(n) = measure {
            let (least, greatest) = self.measures.unwrap_or((n, n));
            self.measures = Some((least.min(n), greatest.max(n)));
        }
    }
}

/// One partition of the index: its data blocks stand right before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) last: Bytes,
    pub(crate) data: u64,
    pub(crate) at: u64,
    pub(crate) end: u64,
}

impl Part {
    pub(crate) fn data(&self) -> Range<u64> {
        self.data..self.at
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.at..self.end
    }
}

/// The part of a container that stays in memory while it is read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) codec: u32,
    pub(crate) stats: Stats,
    pub(crate) note: Bytes,
    pub(crate) parts: Vec<Part>,
}

impl Root {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let stats = &self.stats;
        out.put_varint(u64::from(self.codec));
        for n in stats.entries {
            out.put_varint(n);
        }
        for n in [stats.raw_bytes, stats.stored_bytes, stats.blocks, stats.content_bytes] {
            out.put_varint(n);
        }
        match stats.measures {
            None => out.put_u8(0),
            Some((least, greatest)) => {
                out.put_u8(1);
                out.put_varint(least);
                out.put_varint(greatest);
            }
        }
        out.put_bytes(&stats.first);
        out.put_bytes(&self.note);
        out.put_varint(self.parts.len() as u64);
        for part in &self.parts {
            out.put_bytes(&part.last);
            out.put_varint(part.at - part.data);
            out.put_varint(part.end - part.at);
        }
        out
    }

    /// Takes the root out of its frame, which stands at `at` of the object.
    pub(crate) fn open(object: ObjectId, at: u64, framed: &Bytes) -> Result<Self, ContainerError> {
        let place = Place { object, at };
        let content = frame::open(place, BlockType::Root, framed)?;
        Self::decode(&content, at).map_err(|error| place.corrupt(format!("its root: {error}")))
    }

    /// `at` is where the root stands: all sections before it must end there.
    pub(crate) fn decode(bytes: &Bytes, at: u64) -> Result<Self, DecodeError> {
        let mut d = Decoder::new(bytes);
        let codec = d.varint_u32()?;
        let mut stats = Stats::default();
        for n in &mut stats.entries {
            *n = d.varint()?;
        }
        for n in [&mut stats.raw_bytes, &mut stats.stored_bytes, &mut stats.blocks, &mut stats.content_bytes] {
            *n = d.varint()?;
        }
        stats.measures = match d.u8()? {
            0 => None,
            1 => Some((d.varint()?, d.varint()?)),
            got => return Err(DecodeError::Unknown { what: "number of measures", got: u64::from(got) }),
        };
        stats.first = bounded("first key", d.bytes()?, KEY_BYTES_MAX)?.to_vec();
        let note = bytes.slice_ref(bounded("note", d.bytes()?, NOTE_BYTES_MAX)?);
        let parts = parts(bytes, &mut d, HEADER_BYTES.checked_add(stats.content_bytes))?;
        d.end()?;
        stats.last = parts.last().map_or_else(Vec::new, |part| part.last.to_vec());
        let root = Self { codec, stats, note, parts };
        let is_whole = root.sums_at().checked_add(content::sums_bytes(root.stats.content_bytes)) == Some(at);
        let entries = root.stats.entries.iter().try_fold(0u64, |all, n| all.checked_add(*n));
        let is_empty = root.parts.is_empty();
        if !is_whole {
            return Err(DecodeError::Range("length of the sections"));
        }
        if entries.is_none_or(|entries| is_empty != (entries == 0)) || root.stats.first > root.stats.last {
            return Err(DecodeError::Range("statistics"));
        }
        Ok(root)
    }

    /// The first byte of the blocks of checksums over the content.
    pub(crate) fn sums_at(&self) -> u64 {
        self.parts.last().map_or(HEADER_BYTES.saturating_add(self.stats.content_bytes), |part| part.end)
    }

    /// The only partition that may hold the first entry at or after `key`; the number of partitions if none does.
    pub(crate) fn part_of(&self, key: &[u8]) -> usize {
        self.parts.partition_point(|part| part.last < key)
    }

    /// An approximation of the memory that it takes.
    pub(crate) fn weight(&self) -> usize {
        let keys: usize = self.parts.iter().map(|part| part.last.len()).sum();
        keys + self.parts.len() * size_of::<Part>() + self.stats.first.len() + self.note.len() + size_of::<Self>()
    }
}

fn parts(bytes: &Bytes, d: &mut Decoder<'_>, start: Option<u64>) -> Result<Vec<Part>, DecodeError> {
    let count = d.varint()?;
    // Each takes three bytes at least.
    if count > d.rest().len() as u64 / 3 {
        return Err(DecodeError::Range("number of partitions"));
    }
    let mut parts: Vec<Part> = Vec::with_capacity(count as usize);
    let mut data = start.ok_or(DecodeError::Range("content"))?;
    for _ in 0..count {
        let last = bytes.slice_ref(bounded("last key", d.bytes()?, KEY_BYTES_MAX)?);
        let overflow = || DecodeError::Range("length of a partition");
        let at = data.checked_add(d.varint()?).ok_or_else(overflow)?;
        let end = at.checked_add(d.varint()?).ok_or_else(overflow)?;
        if parts.last().is_some_and(|before| before.last >= last) || data == at || at == end {
            return Err(DecodeError::Range("key of a partition"));
        }
        parts.push(Part { last, data, at, end });
        data = end;
    }
    Ok(parts)
}

fn bounded<'a>(what: &'static str, bytes: &'a [u8], max: usize) -> Result<&'a [u8], DecodeError> {
    if bytes.len() <= max { Ok(bytes) } else { Err(DecodeError::Range(what)) }
}
