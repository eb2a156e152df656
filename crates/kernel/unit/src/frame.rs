//! The content of a unit's journal frame: the part of one index, or the parts of several in one transaction.
//!
//! The first byte says the form (`docs/format/unit.md`). A frame from before frames named their index begins with 1,
//! which is the version of a transaction of logs: all of it is the logs' part.

use crate::root::IndexId;
use bytes::Bytes;
use thalweg_base::{DecodeError, Decoder, Encoder};

const OF_LOGS: u8 = 1;
const OF_ONE: u8 = 2;
const OF_SEVERAL: u8 = 3;

/// The part of one index in a frame: its bytes, in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The index that wrote the part.
    pub index: IndexId,
    /// The part's bytes, in pieces that concatenate.
    pub pieces: &'a [&'a [u8]],
}

/// The head of a frame whose rest is the part of one index.
#[must_use]
pub const fn frame_head(index: IndexId) -> [u8; 2] {
    [OF_ONE, index.0]
}

/// The head of a frame with the parts of several indexes, one after the other: each index with the length of its part
/// in bytes.
///
/// # Panics
///
/// If there are fewer than two parts, or if their indexes do not ascend: each index has one part of a frame.
#[must_use]
pub fn shared_frame_head(parts: &[(IndexId, usize)]) -> Vec<u8> {
    assert!(parts.len() > 1 && parts.is_sorted_by(|(a, _), (b, _)| a < b), "parts of a shared frame: {parts:?}");
    let mut head = vec![OF_SEVERAL];
    head.put_varint(parts.len() as u64);
    for (index, bytes) in parts {
        head.put_u8(index.0);
        head.put_varint(*bytes as u64);
    }
    head
}

/// Every part of a frame, ascending by index. The parts are slices of `frame`, not copies.
pub fn frame_parts(frame: &Bytes) -> Result<Vec<(IndexId, Bytes)>, DecodeError> {
    let mut parts = Vec::with_capacity(1);
    each_part(frame, |index, part| parts.push((index, part)))?;
    Ok(parts)
}

/// The part of one index, if the frame has one.
pub fn frame_part(frame: &Bytes, index: IndexId) -> Result<Option<Bytes>, DecodeError> {
    let mut found = None;
    each_part(frame, |of, part| {
        if of == index {
            found = Some(part);
        }
    })?;
    Ok(found)
}

fn each_part(frame: &Bytes, mut f: impl FnMut(IndexId, Bytes)) -> Result<(), DecodeError> {
    let mut d = Decoder::new(frame);
    match d.u8()? {
        OF_LOGS => f(IndexId::LOG, frame.clone()),
        OF_ONE => {
            let index = IndexId(d.u8()?);
            f(index, frame.slice_ref(d.rest()));
        }
        OF_SEVERAL => return each_shared_part(frame, d, f),
        got => return Err(DecodeError::Unknown { what: "form of a frame", got: got.into() }),
    }
    Ok(())
}

fn each_shared_part(frame: &Bytes, mut d: Decoder<'_>, mut f: impl FnMut(IndexId, Bytes)) -> Result<(), DecodeError> {
    let count = d.varint()?;
    // Each index is named by one byte and has one part.
    if !(2..=256).contains(&count) {
        return Err(DecodeError::Range("count of a frame's parts"));
    }
    let mut heads: Vec<(IndexId, u64)> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let head = (IndexId(d.u8()?), d.varint()?);
        if heads.last().is_some_and(|(last, _)| *last >= head.0) {
            return Err(DecodeError::Range("index of a frame's part"));
        }
        heads.push(head);
    }
    let mut parts = Vec::with_capacity(heads.len());
    for (index, bytes) in heads {
        let bytes = usize::try_from(bytes).map_err(|_| DecodeError::Range("length of a frame's part"))?;
        parts.push((index, frame.slice_ref(d.take(bytes)?)));
    }
    d.end()?;
    parts.into_iter().for_each(|(index, part)| f(index, part));
    Ok(())
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: IndexId = IndexId(2);

    fn shared(parts: &[(IndexId, &[u8])]) -> Bytes {
        let heads: Vec<_> = parts.iter().map(|(index, part)| (*index, part.len())).collect();
        let mut frame = shared_frame_head(&heads);
        parts.iter().for_each(|(_, part)| frame.extend_from_slice(part));
        frame.into()
    }

    #[test]
    fn the_bytes_are_pinned() {
        let one = [&frame_head(TWO)[..], b"part"].concat();
        assert_eq!(one, b"\x02\x02part");
        let several = shared(&[(IndexId::LOG, b"logs"), (TWO, b""), (IndexId(7), b"more")]);
        assert_eq!(several[..], *b"\x03\x03\x01\x04\x02\x00\x07\x04logsmore");
    }

    #[test]
    fn each_index_finds_its_part_and_no_other() {
        let frame = shared(&[(IndexId::LOG, b"logs"), (TWO, b"two")]);
        assert_eq!(frame_part(&frame, IndexId::LOG), Ok(Some(Bytes::from_static(b"logs"))));
        assert_eq!(frame_part(&frame, TWO), Ok(Some(Bytes::from_static(b"two"))));
        assert_eq!(frame_part(&frame, IndexId(3)), Ok(None));
        let alone = Bytes::from_static(b"\x02\x02two");
        assert_eq!(frame_parts(&alone), Ok(vec![(TWO, Bytes::from_static(b"two"))]));
        assert_eq!(frame_part(&alone, IndexId::LOG), Ok(None));
    }

    #[test]
    fn a_frame_from_before_frames_named_their_index_is_that_of_logs() {
        let frame = Bytes::from_static(&[1, 1, 5, 64]);
        assert_eq!(frame_parts(&frame), Ok(vec![(IndexId::LOG, frame.clone())]));
    }

    #[test]
    fn frames_of_other_forms_and_parts_out_of_order_are_refused() {
        for bytes in [&b""[..], b"\x00", b"\x04\x01", b"\x02", b"\x03\x01\x01\x00", b"\x03\x02\x02\x00\x01\x00"] {
            assert!(frame_parts(&Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
        let whole = shared(&[(IndexId::LOG, b"logs"), (TWO, b"two")]);
        for len in 0..whole.len() {
            assert!(frame_parts(&whole.slice(..len)).is_err(), "{len}");
        }
        assert!(frame_parts(&[&whole[..], b"x"].concat().into()).is_err());
    }

    proptest! {
        #[test]
        fn parts_round_trip(parts in proptest::collection::btree_map(any::<u8>(), any::<Vec<u8>>(), 2..6)) {
            let parts: Vec<_> = parts.iter().map(|(index, part)| (IndexId(*index), &part[..])).collect();
            let found = frame_parts(&shared(&parts)).unwrap();
            let found: Vec<_> = found.iter().map(|(index, part)| (*index, &part[..])).collect();
            prop_assert_eq!(found, parts);
        }

        #[test]
        fn garbage_never_panics(form in 0u8..5, bytes: Vec<u8>) {
            let _ = frame_parts(&[&[form], &bytes[..]].concat().into());
        }
    }
}
