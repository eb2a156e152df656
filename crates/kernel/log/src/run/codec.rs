//! Entries of extents in a container.
//!
//! The key is the log and where the extent *ends*, so that the first entry at or after (log, offset + 1) is the one
//! that covers the offset, or else the next one of that log. Where it starts follows from its lengths.

use super::extent::{Entry, Place};
use super::meta::ObjectMeta;
use crate::lengths::Lengths;
use thalweg_base::{DecodeError, Decoder, Encoder, LogId, ObjectId, Offset};
use thalweg_container::{Codec, Entry as Stored, Index, Kind, Stats, ordered};

/// Two numbers in their longest form.
const KEY_BYTES_MAX: usize = 18;

pub(super) struct Extents;

impl Codec for Extents {
    const ID: u32 = 2;

    /// The log.
    fn prefix(key: &[u8]) -> Option<&[u8]> {
        ordered::take_encoded_compact(&mut &*key).ok()
    }

    fn check(entry: &Stored<'_>) -> Result<(), DecodeError> {
        head(ObjectId(0), entry).map(|_| ())
    }
}

pub(super) fn key(log: LogId, end: Offset) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEY_BYTES_MAX);
    ordered::put_compact(&mut key, log.0);
    ordered::put_compact(&mut key, end.0);
    key
}

/// The log, and where the extent ends.
pub(super) fn decode_key(mut key: &[u8]) -> Result<(LogId, Offset), DecodeError> {
    let log = LogId(ordered::take_compact(&mut key)?);
    let end = Offset(ordered::take_compact(&mut key)?);
    if key.is_empty() { Ok((log, end)) } else { Err(DecodeError::Trailing(key.len())) }
}

/// The first position of content in an object.
pub(super) fn content_at() -> u64 {
    Index::header().end
}

/// Appends the value of an entry.
pub(super) fn encode(entry: &Entry, out: &mut Vec<u8>) {
    match entry.place {
        Place::Data { at, .. } => out.put_varint(at - content_at() + 1),
        Place::Reference { source, from } => {
            out.put_varint(0);
            out.put_varint(source.0);
            out.put_varint(from.0);
        }
    }
    entry.lengths.encode(out);
}

/// An entry whose lengths were only added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) log: LogId,
    pub(super) start: Offset,
    pub(super) end: Offset,
    pub(super) place: Place,
}

impl Head {
    /// With its lengths.
    pub(super) fn entry(self, mut lengths: Decoder<'_>) -> Result<Entry, DecodeError> {
        let lengths = Lengths::decode(&mut lengths)?;
        Ok(Entry { log: self.log, start: self.start, place: self.place, lengths })
    }
}

/// An entry of `object` without its lengths: they are left in the decoder that comes with it.
pub(super) fn head<'a>(object: ObjectId, stored: &Stored<'a>) -> Result<(Head, Decoder<'a>), DecodeError> {
    if stored.kind != Kind::Value {
        return Err(DecodeError::Unknown { what: "kind of entry", got: stored.kind as u64 });
    }
    let (log, end) = decode_key(stored.key)?;
    let mut from = Decoder::new(stored.value);
    let place = match from.varint()?.checked_sub(1) {
        Some(at) => {
            let at = content_at().checked_add(at).ok_or(DecodeError::Range("data position"))?;
            Place::Data { object, at }
        }
        None => Place::Reference { source: LogId(from.varint()?), from: Offset(from.varint()?) },
    };
    let lengths = from;
    let (bytes, messages) = Lengths::skip(&mut from)?;
    from.end()?;
    let start = end.0.checked_sub(bytes).map(Offset).ok_or(DecodeError::Range("offset"))?;
    let follows = match place {
        Place::Data { at, .. } => at.checked_add(bytes),
        Place::Reference { from, .. } => from.0.checked_add(bytes),
    };
    if messages == 0 || follows.is_none() {
        return Err(DecodeError::Range("messages of an entry"));
    }
    Ok((Head { log, start, end, place }, lengths))
}

/// The fields of an object's meta that neither its length nor the container's statistics contain.
pub(super) fn encode_note(meta: &ObjectMeta) -> Vec<u8> {
    let mut out = Vec::new();
    for n in [meta.first.1.0, meta.reference_bytes, meta.logs, meta.messages] {
        out.put_varint(n);
    }
    out
}

/// The meta of an object of `bytes` bytes.
pub(super) fn decode_meta(id: ObjectId, bytes: u64, stats: &Stats, note: &[u8]) -> Result<ObjectMeta, DecodeError> {
    let mut note = Decoder::new(note);
    let start = Offset(note.varint()?);
    let (reference_bytes, logs, messages) = (note.varint()?, note.varint()?, note.varint()?);
    note.end()?;
    let entries = stats.entries();
    let log_of = |key: &[u8]| if entries == 0 { Ok((LogId::ZERO, Offset::ZERO)) } else { decode_key(key) };
    let (first, (last, end)) = ((log_of(&stats.first)?.0, start), log_of(&stats.last)?);
    let data_bytes = stats.content_bytes;
    let index_bytes = bytes.checked_sub(data_bytes).ok_or(DecodeError::Range("bytes of content"))?;
    Ok(ObjectMeta { id, first, last, end, data_bytes, reference_bytes, index_bytes, entries, logs, messages })
}
