//! The bytes of a transaction: the part of a journal frame that belongs to logs.
//!
//! Form: a version byte, a varint count of operations, then each operation: a tag byte and its fields. An append's
//! bytes stand where the operation stands, so a frame is written by parts and read without copying. See
//! `docs/format/log.md`.

use crate::lengths::Lengths;
use bytes::Bytes;
use thalweg_base::{DecodeError, Decoder, Encoder, LogId, Offset};
use thalweg_unit::{IndexId, Part, frame_head, frame_part, shared_frame_head};

const VERSION: u8 = 1;

const CREATE: u8 = 1;
const WRITE: u8 = 2;
const TRIM: u8 = 3;
const UNPIN: u8 = 4;
const DELETE: u8 = 5;

const APPEND_NONE: u8 = 0;
const APPEND_BYTES: u8 = 1;
const APPEND_REFERENCE: u8 = 2;

/// Below `upto`, a log's content is that of log `id` (and not below the ancestor before it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ancestor {
    pub(crate) upto: Offset,
    pub(crate) id: LogId,
}

pub(crate) fn put_lineage(lineage: &[Ancestor], out: &mut Vec<u8>) {
    out.put_varint(lineage.len() as u64);
    for ancestor in lineage {
        out.put_varint(ancestor.upto.0);
        out.put_varint(ancestor.id.0);
    }
}

pub(crate) fn lineage(d: &mut Decoder<'_>) -> Result<Box<[Ancestor]>, DecodeError> {
    let count = d.varint()?;
    // Two bytes an ancestor at least: a count that the bytes cannot hold is refused before anything is allocated.
    if count > d.rest().len() as u64 / 2 {
        return Err(DecodeError::Truncated(1));
    }
    (0..count).map(|_| Ok(Ancestor { upto: Offset(d.varint()?), id: LogId(d.varint()?) })).collect()
}

/// Builds a frame as a list of parts: heads of operations from one scratch buffer, payloads as they lie with the
/// caller.
pub(crate) struct FrameBuilder<'a> {
    /// In a frame of logs alone the frame's head comes before these heads.
    heads: Vec<u8>,
    /// The end of each head, and the payload parts that follow it.
    cuts: Vec<(usize, &'a [&'a [u8]])>,
}

impl<'a> FrameBuilder<'a> {
    pub(crate) fn new(ops: usize) -> Self {
        let mut heads = Vec::with_capacity(96);
        heads.extend_from_slice(&frame_head(IndexId::LOG));
        heads.put_u8(VERSION);
        heads.put_varint(ops as u64);
        Self { heads, cuts: Vec::with_capacity(ops) }
    }

    pub(crate) fn create(
        &mut self,
        log: LogId,
        name: &str,
        start: Offset,
        lineage: &[Ancestor],
        note: &[u8],
        append: Option<(Offset, &crate::op::Append<'a>)>,
    ) {
        self.heads.put_u8(CREATE);
        self.heads.put_varint(log.0);
        self.heads.put_bytes(name.as_bytes());
        self.heads.put_varint(start.0);
        put_lineage(lineage, &mut self.heads);
        self.heads.put_bytes(note);
        self.append(append);
    }

    pub(crate) fn write(&mut self, log: LogId, note: &[u8], append: Option<(Offset, &crate::op::Append<'a>)>) {
        self.heads.put_u8(WRITE);
        self.heads.put_varint(log.0);
        self.heads.put_bytes(note);
        self.append(append);
    }

    pub(crate) fn trim(&mut self, log: LogId, start: Offset) {
        self.heads.put_u8(TRIM);
        self.heads.put_varint(log.0);
        self.heads.put_varint(start.0);
    }

    pub(crate) fn unpin(&mut self, log: LogId) {
        self.heads.put_u8(UNPIN);
        self.heads.put_varint(log.0);
    }

    pub(crate) fn delete(&mut self, log: LogId) {
        self.heads.put_u8(DELETE);
        self.heads.put_varint(log.0);
    }

    fn append(&mut self, append: Option<(Offset, &crate::op::Append<'a>)>) {
        use crate::op::Append;
        match append {
            None => self.heads.put_u8(APPEND_NONE),
            Some((start, Append::Bytes { parts, lengths })) => {
                self.heads.put_u8(APPEND_BYTES);
                self.heads.put_varint(start.0);
                lengths.encode(&mut self.heads);
                self.cuts.push((self.heads.len(), parts));
            }
            Some((start, Append::Reference { source, from, lengths })) => {
                self.heads.put_u8(APPEND_REFERENCE);
                self.heads.put_varint(start.0);
                self.heads.put_varint(source.0);
                self.heads.put_varint(from.0);
                lengths.encode(&mut self.heads);
            }
        }
    }

    /// Calls `f` with the pieces of a frame that holds this transaction alone.
    pub(crate) fn finish<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        if let [(end, [payload])] = self.cuts[..]
            && end == self.heads.len()
        {
            // The one append of most frames, without a list.
            return f(&[&self.heads, payload]);
        }
        f(&self.pieces(0))
    }

    /// Like [`Self::finish`], for a frame that also holds the parts that other indexes of the unit write in this
    /// transaction.
    ///
    /// # Panics
    ///
    /// If two parts are of one index.
    pub(crate) fn finish_beside<R>(&self, others: &[Part<'_>], f: impl FnOnce(&[&[u8]]) -> R) -> R {
        if others.is_empty() {
            return self.finish(f);
        }
        let own = self.pieces(frame_head(IndexId::LOG).len());
        let mut parts = vec![Part { index: IndexId::LOG, pieces: &own }];
        parts.extend_from_slice(others);
        parts.sort_unstable_by_key(|part| part.index);
        let lengths: Vec<_> =
            parts.iter().map(|part| (part.index, part.pieces.iter().map(|piece| piece.len()).sum())).collect();
        let head = shared_frame_head(&lengths);
        let pieces: Vec<&[u8]> =
            std::iter::once(&head[..]).chain(parts.iter().flat_map(|part| part.pieces.iter().copied())).collect();
        f(&pieces)
    }

    /// Heads from `from` on, and payloads where they stand.
    fn pieces(&self, from: usize) -> Vec<&[u8]> {
        let mut pieces = Vec::with_capacity(2 * self.cuts.len() + 1);
        let mut at = from;
        for (end, payload) in &self.cuts {
            pieces.push(&self.heads[at..*end]);
            pieces.extend_from_slice(payload);
            at = *end;
        }
        pieces.push(&self.heads[at..]);
        pieces
    }
}

/// An append as it stands in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) start: Offset,
    pub(crate) lengths: Lengths,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Bytes),
    Reference { source: LogId, from: Offset },
}

/// An operation as it stands in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Create { log: LogId, name: String, start: Offset, lineage: Box<[Ancestor]>, note: Bytes, append: Option<Appended> },
    Write { log: LogId, note: Bytes, append: Option<Appended> },
    Trim { log: LogId, start: Offset },
    Unpin { log: LogId },
    Delete { log: LogId },
}

impl Entry {
    pub(crate) fn log(&self) -> LogId {
        match self {
            Entry::Create { log, .. }
            | Entry::Write { log, .. }
            | Entry::Trim { log, .. }
            | Entry::Unpin { log }
            | Entry::Delete { log } => *log,
        }
    }

    pub(crate) fn into_append(self) -> Option<Appended> {
        match self {
            Entry::Create { append, .. } | Entry::Write { append, .. } => append,
            _ => None,
        }
    }
}

/// Every operation of a transaction, in order. Payloads are slices of `part`, not copies.
pub(crate) fn entries(part: &Bytes) -> Result<Vec<Entry>, DecodeError> {
    let mut d = Decoder::new(part);
    let count = header(&mut d)?;
    let mut entries = Vec::with_capacity(count.min(64) as usize);
    for _ in 0..count {
        entries.push(entry(part, &mut d)?);
    }
    d.end()?;
    Ok(entries)
}

/// The append of `log` that starts at `start` in a whole frame, without decoding the rest of the frame.
pub(crate) fn find_append(frame: &Bytes, log: LogId, start: Offset) -> Result<Option<Appended>, DecodeError> {
    let Some(part) = frame_part(frame, IndexId::LOG)? else { return Ok(None) };
    let mut d = Decoder::new(&part);
    for _ in 0..header(&mut d)? {
        let entry = entry(&part, &mut d)?;
        if entry.log() == log
            && let Some(append) = entry.into_append()
            && append.start == start
        {
            return Ok(Some(append));
        }
    }
    Ok(None)
}

fn header(d: &mut Decoder<'_>) -> Result<u64, DecodeError> {
    match d.u8()? {
        VERSION => d.varint(),
        got => Err(DecodeError::Unknown { what: "version of a transaction of logs", got: got.into() }),
    }
}

fn entry(frame: &Bytes, d: &mut Decoder<'_>) -> Result<Entry, DecodeError> {
    let tag = d.u8()?;
    let log = LogId(d.varint()?);
    Ok(match tag {
        CREATE => Entry::Create {
            log,
            name: d.str()?.to_owned(),
            start: Offset(d.varint()?),
            lineage: lineage(d)?,
            note: frame.slice_ref(d.bytes()?),
            append: append(frame, d)?,
        },
        WRITE => Entry::Write { log, note: frame.slice_ref(d.bytes()?), append: append(frame, d)? },
        TRIM => Entry::Trim { log, start: Offset(d.varint()?) },
        UNPIN => Entry::Unpin { log },
        DELETE => Entry::Delete { log },
        got => {
            return Err(DecodeError::Unknown { what: "operation", got: got.into() });
        }
    })
}

fn append(frame: &Bytes, d: &mut Decoder<'_>) -> Result<Option<Appended>, DecodeError> {
    let kind = d.u8()?;
    if kind == APPEND_NONE {
        return Ok(None);
    }
    let start = Offset(d.varint()?);
    match kind {
        APPEND_BYTES => {
            let lengths = Lengths::decode(d)?;
            let n = usize::try_from(lengths.bytes()).map_err(|_| DecodeError::Range("append"))?;
            let content = Content::Bytes(frame.slice_ref(d.take(n)?));
            Ok(Some(Appended { start, lengths, content }))
        }
        APPEND_REFERENCE => {
            let (source, from) = (LogId(d.varint()?), Offset(d.varint()?));
            let lengths = Lengths::decode(d)?;
            Ok(Some(Appended { start, lengths, content: Content::Reference { source, from } }))
        }
        got => Err(DecodeError::Unknown { what: "append", got: got.into() }),
    }
}

/// A fuzz target's way in: decodes anything without panicking.
#[doc(hidden)]
pub fn fuzz_frame(data: &[u8]) {
    let frame = Bytes::copy_from_slice(data);
    let Ok(Some(part)) = frame_part(&frame, IndexId::LOG) else { return };
    if let Ok(entries) = entries(&part) {
        for entry in entries {
            let log = entry.log();
            if let Some(append) = entry.into_append() {
                let found = find_append(&frame, log, append.start);
                assert!(matches!(found, Ok(Some(_))));
            }
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::op::Append;
    use proptest::prelude::*;

    fn with_sample<R>(f: impl FnOnce(&FrameBuilder<'_>) -> R) -> R {
        let lengths = Lengths::repeated(2, 3);
        let lineage = [Ancestor { upto: Offset(9), id: LogId(64) }];
        let parts: [&[u8]; 2] = [b"ab", b"cdef"];
        let bytes = Append::Bytes { parts: &parts, lengths: &lengths };
        let reference = Append::Reference { source: LogId(64), from: Offset(3), lengths: &lengths };
        let mut builder = FrameBuilder::new(5);
        builder.create(LogId(128), "a/b", Offset(2), &lineage, b"config", Some((Offset(9), &bytes)));
        builder.write(LogId(65), b"", Some((Offset(700), &reference)));
        builder.trim(LogId(64), Offset(5));
        builder.unpin(LogId(64));
        builder.delete(LogId(66));
        f(&builder)
    }

    fn sample() -> Bytes {
        with_sample(|builder| builder.finish(|parts| Bytes::from(parts.concat())))
    }

    /// The part of logs, with which a frame from before frames named their index ends and begins.
    fn part() -> Bytes {
        sample().slice(2..)
    }

    #[test]
    fn a_frame_round_trips() {
        let frame = sample();
        let entries = entries(&part()).unwrap();
        assert_eq!(entries.len(), 5);
        let Entry::Create { log, name, start: Offset(2), lineage, note, append } = &entries[0] else {
            panic!("{entries:?}")
        };
        assert_eq!((*log, name.as_str(), &note[..]), (LogId(128), "a/b", &b"config"[..]));
        assert_eq!(lineage[..], [Ancestor { upto: Offset(9), id: LogId(64) }]);
        assert_eq!(append.as_ref().unwrap().content, Content::Bytes(Bytes::from_static(b"abcdef")));
        assert_eq!(entries[4], Entry::Delete { log: LogId(66) });
        let found = find_append(&frame, LogId(65), Offset(700)).unwrap().unwrap();
        assert_eq!(found.content, Content::Reference { source: LogId(64), from: Offset(3) });
        assert_eq!(find_append(&frame, LogId(65), Offset(0)).unwrap(), None);
    }

    #[test]
    fn the_bytes_are_pinned() {
        let hex: String = sample().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "0201".to_owned()
                + "010501800103612f6202010940"
                + "06636f6e666967"
                + "0109"
                + "010702"
                + "616263646566"
                + "02410002bc054003010702"
                + "034005"
                + "0440"
                + "0542"
        );
    }

    #[test]
    fn a_frame_from_before_frames_named_their_index_is_read() {
        let found = find_append(&part(), LogId(65), Offset(700)).unwrap().unwrap();
        assert_eq!(found.content, Content::Reference { source: LogId(64), from: Offset(3) });
    }

    #[test]
    fn one_frame_holds_the_parts_of_several_indexes() {
        let other = |index| Part { index: IndexId(index), pieces: &[b"ot", b"her"] };
        let frame =
            with_sample(|builder| builder.finish_beside(&[other(7), other(0)], |pieces| Bytes::from(pieces.concat())));
        assert_eq!(frame_part(&frame, IndexId::LOG), Ok(Some(part())));
        for index in [0, 7] {
            assert_eq!(frame_part(&frame, IndexId(index)), Ok(Some(Bytes::from_static(b"other"))));
        }
        let found = find_append(&frame, LogId(65), Offset(700)).unwrap().unwrap();
        assert_eq!(found.content, Content::Reference { source: LogId(64), from: Offset(3) });
        let of_another = Bytes::from([&frame_head(IndexId(7))[..], b"other"].concat());
        assert_eq!(find_append(&of_another, LogId(65), Offset(700)), Ok(None));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(form in 0u8..4, mut data: Vec<u8>) {
            fuzz_frame(&data);
            data.splice(0..0, [form, 1, 1]);
            fuzz_frame(&data);
        }

        #[test]
        fn a_damaged_frame_never_panics(at in 0usize..60, bit in 0u8..8, cut in 0usize..60) {
            let mut bytes = sample().to_vec();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
            fuzz_frame(&bytes);
            bytes.truncate(cut);
            fuzz_frame(&bytes);
        }
    }
}
