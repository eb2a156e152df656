//! Data blocks: entries in key order, each key as its difference to the one before, and restart points with whole keys.
//!
//! A search halves the restart points, then walks over at most [`RESTART_EVERY`] entries.

use crate::codec::{Entry, KEY_BYTES_MAX, Kind};
use bytes::Bytes;
use std::ops::Range;
use thalweg_base::{DecodeError, Decoder, Encoder};

/// One of so many entries stores its whole key, and is a restart point.
pub(crate) const RESTART_EVERY: usize = 16;
const RESTART_BYTES: usize = 4;
/// Lengths below stand in the half of an entry's first byte.
const SHORT: usize = 15;
const KIND_BITS: u32 = 2;

/// Gathers the entries of one block.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last: Vec<u8>,
}

impl BlockBuilder {
    pub(crate) fn push(&mut self, entry: &Entry<'_>) {
        let shared = if self.entries.is_multiple_of(RESTART_EVERY) {
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            self.last.iter().zip(entry.key).take_while(|(a, b)| a == b).count()
        };
        let own = &entry.key[shared..];
        self.bytes.put_u8((shared.min(SHORT) << 4 | own.len().min(SHORT)) as u8);
        for len in [shared, own.len()] {
            if len >= SHORT {
                self.bytes.put_varint((len - SHORT) as u64);
            }
        }
        self.bytes.put_varint((entry.value.len() as u64) << KIND_BITS | entry.kind as u64);
        self.bytes.extend_from_slice(own);
        self.bytes.extend_from_slice(entry.value);
        self.last.truncate(shared);
        self.last.extend_from_slice(own);
        self.entries += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The key of the last entry that was pushed, also after [`BlockBuilder::take`].
    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    /// The finished block; `self` is empty again.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        for restart in &self.restarts {
            bytes.put_u32(*restart);
        }
        bytes.put_u32(self.restarts.len() as u32);
        self.restarts.clear();
        self.entries = 0;
        bytes
    }
}

/// A data block whose checksum was verified. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    /// The byte where entries end and restart points begin.
    end: usize,
    restarts: usize,
}

impl Block {
    pub(crate) fn new(bytes: Bytes) -> Result<Self, DecodeError> {
        let Some((body, count)) = bytes.split_last_chunk::<RESTART_BYTES>() else {
            return Err(DecodeError::Truncated(RESTART_BYTES - bytes.len()));
        };
        let restarts = u32::from_le_bytes(*count) as usize;
        let end = restarts.checked_mul(RESTART_BYTES).and_then(|len| body.len().checked_sub(len));
        let end = end.ok_or(DecodeError::Range("number of restart points"))?;
        let block = Self { bytes, end, restarts };
        let mut before = None;
        for n in 0..restarts {
            let at = block.restart(n);
            let follows = before.map_or(at == 0, |before| before < at);
            if !follows || at >= end {
                return Err(DecodeError::Range("restart point"));
            }
            before = Some(at);
        }
        if restarts == 0 { Err(DecodeError::Range("number of restart points")) } else { Ok(block) }
    }

    /// A cursor before the first entry.
    #[must_use]
    pub fn cursor(&self) -> BlockCursor {
        BlockCursor::new(self.clone())
    }

    /// The memory that it takes, about, in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.bytes.len()
    }

    fn restart(&self, n: usize) -> usize {
        let at = self.end + n * RESTART_BYTES;
        let bytes = self.bytes.get(at..at + RESTART_BYTES).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(usize::MAX, |bytes| u32::from_le_bytes(*bytes) as usize)
    }

    /// Every restart point must be an entry with its whole key, or a search would miss entries that a walk finds.
    pub(crate) fn check_restarts(&self) -> Result<(), DecodeError> {
        let (mut at, mut restart) = (0, 0);
        while at < self.end {
            let parts = self.parts(at)?;
            if restart < self.restarts && self.restart(restart) == at {
                if parts.shared > 0 {
                    return Err(DecodeError::Range("restart point"));
                }
                restart += 1;
            }
            at = parts.next;
        }
        if restart == self.restarts { Ok(()) } else { Err(DecodeError::Range("restart point")) }
    }

    /// The parts of the entry at `at`.
    fn parts(&self, at: usize) -> Result<Parts, DecodeError> {
        self.short_parts(at).map_or_else(|| self.any_parts(at), Ok)
    }

    /// The parts of an entry whose lengths take a byte or two, as those of nearly all entries do; else `None`.
    #[inline]
    fn short_parts(&self, at: usize) -> Option<Parts> {
        let entries = &self.bytes[..self.end];
        let (&[head, low, high], _) = entries.get(at..)?.split_first_chunk::<3>()?;
        let (shared, own) = (usize::from(head >> 4), usize::from(head & 0x0f));
        let (value, key) = match (low & 0x80, high & 0x80) {
            (0, _) => (u64::from(low), at + 2),
            (_, 0) => (u64::from(low & 0x7f) | u64::from(high) << 7, at + 3),
            _ => return None,
        };
        let kind = Kind::from_code(value & ((1 << KIND_BITS) - 1)).ok()?;
        let next = key + own + (value >> KIND_BITS) as usize;
        let is_short = shared < SHORT && own < SHORT && next <= self.end;
        is_short.then(|| Parts { shared, key: key..key + own, value: key + own..next, kind, next })
    }

    fn any_parts(&self, at: usize) -> Result<Parts, DecodeError> {
        let entries = &self.bytes[..self.end];
        let mut from = Decoder::new(entries.get(at..).unwrap_or_default());
        let head = from.u8()?;
        let mut long = |short: u8| match usize::from(short) {
            SHORT => usize::try_from(from.varint()?)
                .ok()
                .and_then(|more| more.checked_add(SHORT))
                .filter(|len| *len <= KEY_BYTES_MAX)
                .ok_or(DecodeError::Range("length of a key")),
            short => Ok(short),
        };
        let (shared, own) = (long(head >> 4)?, long(head & 0x0f)?);
        let value = from.varint()?;
        let kind = Kind::from_code(value & ((1 << KIND_BITS) - 1))?;
        let value = usize::try_from(value >> KIND_BITS).map_err(|_| DecodeError::Range("length of a value"))?;
        let key = self.end - from.rest().len();
        from.take(own)?;
        from.take(value)?;
        let next = self.end - from.rest().len();
        Ok(Parts { shared, key: key..key + own, value: key + own..next, kind, next })
    }
}

struct Parts {
    shared: usize,
    /// The rest of the key.
    key: Range<usize>,
    value: Range<usize>,
    kind: Kind,
    next: usize,
}

/// Walks over the entries of a block, both ways.
#[derive(Clone, Debug)]
pub struct BlockCursor {
    block: Block,
    /// The first byte of the entry at hand.
    at: usize,
    /// The first byte of the next entry.
    next: usize,
    /// The key of the current entry; empty before the first one and before a restart point that was jumped to.
    key: Vec<u8>,
    is_after_jump: bool,
    kind: Kind,
    value: Range<usize>,
}

impl BlockCursor {
    /// Before the first entry.
    pub(crate) fn new(block: Block) -> Self {
        Self { block, at: 0, next: 0, key: Vec::new(), is_after_jump: true, kind: Kind::Value, value: 0..0 }
    }

    /// The entry at hand; before the first move an empty one.
    #[must_use]
    pub fn entry(&self) -> Entry<'_> {
        Entry { key: &self.key, kind: self.kind, value: &self.block.bytes[self.value.clone()] }
    }

    /// The value, shared with the block.
    pub(crate) fn value(&self) -> Bytes {
        self.block.bytes.slice(self.value.clone())
    }

    /// To the next entry; false at the end: the cursor then stays at the last one.
    pub fn advance(&mut self) -> Result<bool, DecodeError> {
        if self.next >= self.block.end {
            return Ok(false);
        }
        let parts = self.block.parts(self.next)?;
        if parts.shared > self.key.len() {
            return Err(DecodeError::Range("length of a key"));
        }
        let own = &self.block.bytes[parts.key];
        // The shared prefix is equal, so the rest decides the order.
        if !self.is_after_jump && *own <= self.key[parts.shared..] {
            return Err(DecodeError::Range("order of keys"));
        }
        if parts.shared + own.len() > KEY_BYTES_MAX {
            return Err(DecodeError::Range("length of a key"));
        }
        self.key.truncate(parts.shared);
        self.key.extend_from_slice(own);
        self.is_after_jump = false;
        (self.kind, self.value) = (parts.kind, parts.value);
        (self.at, self.next) = (self.next, parts.next);
        Ok(true)
    }

    /// False at the first entry: the cursor then stays there.
    pub(crate) fn previous(&mut self) -> Result<bool, DecodeError> {
        let end = self.at;
        if end == 0 {
            return Ok(false);
        }
        self.walk_to(end)
    }

    /// The last entry.
    pub(crate) fn last(&mut self) -> Result<bool, DecodeError> {
        self.walk_to(self.block.end)
    }

    /// To the entry that ends at `end`.
    fn walk_to(&mut self, end: usize) -> Result<bool, DecodeError> {
        let restart = self.partition_point(|_, at| Ok(at < end))?;
        self.restart_at(restart.saturating_sub(1));
        while self.advance()? {
            if self.next >= end {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// To the first entry at or after `key`; false if there is none in this block.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool, DecodeError> {
        let restart = self.partition_point(|block, at| {
            let parts = block.parts(at)?;
            if parts.shared > 0 { Err(DecodeError::Range("restart point")) } else { Ok(&block.bytes[parts.key] < key) }
        })?;
        self.restart_at(restart.saturating_sub(1));
        while self.advance()? {
            if self.key[..] >= *key {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn restart_at(&mut self, restart: usize) {
        self.next = self.block.restart(restart);
        self.key.clear();
        self.is_after_jump = true;
    }

    /// How many restart points come before the first of which `is_before` is false.
    fn partition_point(
        &self,
        is_before: impl Fn(&Block, usize) -> Result<bool, DecodeError>,
    ) -> Result<usize, DecodeError> {
        let (mut low, mut high) = (0, self.block.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(&self.block, self.block.restart(middle))? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}
