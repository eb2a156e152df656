//! Walking the bytes of one segment: frame by frame until its end or the first thing that is not whole.

use crate::FrameRef;
use crate::format::{BATCH_HEADER, BatchHeader, FRAME_HEADER, SEGMENT_HEADER, Seal, check_frame};
use bytes::Bytes;
use memchr::memmem;
use std::io;
use thalweg_base::Lsn;
use thalweg_disk::File;

/// The content of one segment behind its header.
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    pub(crate) base: Lsn,
    pub(crate) seal: Seal,
}

/// The end of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) end: Lsn,
    /// The largest position that a batch header on the way said was durable.
    pub(crate) known: Lsn,
    /// Where the batch ends in which the walk did: it may be further.
    pub(crate) batch_end: Lsn,
    /// The reason why the walk stopped before its limit.
    pub(crate) damage: Option<&'static str>,
}

impl Body {
    pub(crate) fn read(file: &dyn File, base: Lsn, seal: Seal) -> io::Result<Self> {
        let len = file.len()?.saturating_sub(SEGMENT_HEADER);
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?];
        let n = file.read_at(&mut bytes, SEGMENT_HEADER)?;
        bytes.truncate(n);
        Ok(Self { bytes: bytes.into(), base, seal })
    }

    fn at(&self, lsn: Lsn) -> &[u8] {
        self.bytes.get(lsn.since(self.base) as usize..).unwrap_or_default()
    }

    /// Calls `f` for each frame from the base on. Ends at `limit` exactly, or at the first header or frame that is not
    /// whole.
    pub(crate) fn walk<E>(
        &self,
        limit: Option<Lsn>,
        f: impl FnMut(FrameRef, Bytes) -> Result<(), E>,
    ) -> Result<Walk, E> {
        self.walk_from(self.base, limit, f)
    }

    /// Like [`Self::walk`], from the batch that starts at `from`.
    pub(crate) fn walk_from<E>(
        &self,
        from: Lsn,
        limit: Option<Lsn>,
        mut f: impl FnMut(FrameRef, Bytes) -> Result<(), E>,
    ) -> Result<Walk, E> {
        let mut walk = Walk { end: from, known: Lsn::ZERO, batch_end: from, damage: None };
        while limit != Some(walk.end) {
            let start = walk.end;
            let Some(header) = BatchHeader::decode(self.at(start), self.seal, start) else {
                walk.damage = Some("no batch starts there");
                return Ok(walk);
            };
            walk.known = walk.known.max(header.known_durable);
            walk.end = start.plus(BATCH_HEADER as u64);
            let batch_end = start.plus(u64::from(header.bytes));
            walk.batch_end = batch_end;
            for _ in 0..header.frames {
                if limit == Some(walk.end) {
                    return Ok(walk);
                }
                let lsn = walk.end;
                let len = match check_frame(self.at(lsn), self.seal, lsn) {
                    Ok(len) => len,
                    Err(what) => {
                        walk.damage = Some(what);
                        return Ok(walk);
                    }
                };
                let end = lsn.plus(FRAME_HEADER as u64 + u64::from(len));
                if end > batch_end || limit.is_some_and(|limit| end > limit) {
                    walk.damage = Some("a frame runs over the end of its batch or segment");
                    return Ok(walk);
                }
                let from = lsn.since(self.base) as usize + FRAME_HEADER;
                f(FrameRef { lsn, len }, self.bytes.slice(from..from + len as usize))?;
                walk.end = end;
            }
            if walk.end != batch_end {
                walk.damage = Some("a batch is longer than its frames");
                return Ok(walk);
            }
        }
        Ok(walk)
    }

    /// Whole batch headers of this segment that stand at `at` or behind it, with their positions.
    fn batches_from(&self, at: Lsn) -> impl Iterator<Item = (Lsn, BatchHeader)> + '_ {
        let rest = self.at(at);
        memmem::find_iter(rest, &self.seal.magic).filter_map(move |found| {
            let lsn = at.plus(found as u64);
            Some((lsn, BatchHeader::decode(&rest[found..], self.seal, lsn)?))
        })
    }

    /// The last whole batch header behind `at` that stands at `upto` or before it.
    pub(crate) fn last_batch(&self, at: Lsn, upto: Lsn) -> Option<Lsn> {
        self.batches_from(at).map(|(lsn, _)| lsn).take_while(|lsn| *lsn <= upto).filter(|lsn| *lsn > at).last()
    }

    /// Searches behind `at` for a batch that was sealed when `at` was durable already: its position, and its
    /// `known_durable`.
    pub(crate) fn proof(&self, at: Lsn) -> Option<(Lsn, Lsn)> {
        let knew =
            |(lsn, header): (Lsn, BatchHeader)| (header.known_durable > at).then_some((lsn, header.known_durable));
        self.batches_from(at).find_map(knew)
    }

    /// The largest position that any batch of this segment, wherever it stands, says was durable; the base if none
    /// does.
    pub(crate) fn known_upto(&self) -> Lsn {
        self.batches_from(self.base).map(|(_, header)| header.known_durable).max().unwrap_or(self.base)
    }

    /// The end of the bytes that were written from `at` on, by the traces that are left: batch headers, the first bytes
    /// of one, or frames behind a damaged one. `at` if there is no trace.
    pub(crate) fn written_upto(&self, at: Lsn) -> Lsn {
        let of_batches = self.batches_from(at).map(|(lsn, header)| lsn.plus(u64::from(header.bytes))).max();
        let header_end = at.plus(BATCH_HEADER as u64);
        let torn = self.at(at).starts_with(&self.seal.magic).then_some(header_end);
        let mut frame = header_end;
        while let Ok(len) = check_frame(self.at(frame), self.seal, frame) {
            frame = frame.plus(FRAME_HEADER as u64 + u64::from(len));
        }
        let of_frames = Some(frame).filter(|end| *end > header_end);
        [of_batches, torn, of_frames].into_iter().flatten().max().unwrap_or(at)
    }
}

/// The entry of a fuzz target: decodes `data` as a segment header and as a segment's content, in a term and salt that
/// `data` may hold.
#[doc(hidden)]
pub fn fuzz_segment(data: &[u8]) {
    let header = crate::format::SegmentHeader::decode(data);
    let seal = header.map_or(Seal::of_term(1, 7), |header| header.seal());
    let base = header.map_or(Lsn(24), |header| header.base);
    let rest = data.get(SEGMENT_HEADER as usize..).unwrap_or(data);
    let body = Body { bytes: Bytes::copy_from_slice(rest), base, seal };
    let mut frames = Vec::new();
    let walk = body.walk(None, |frame, payload| {
        frames.push((frame, payload));
        Ok::<(), std::convert::Infallible>(())
    });
    let Ok(walk) = walk;
    let end = base.plus(rest.len() as u64);
    assert!(walk.end >= base && walk.end <= end, "the walk stays within the bytes");
    assert!(frames.iter().all(|(frame, payload)| frame.len as usize == payload.len() && frame.end() <= walk.end));
    for at in [base, walk.end, end] {
        assert!(body.written_upto(at) >= at);
        let _ = body.proof(at);
    }
    // A limit ends the walk there, or before it at the same damage.
    let limit = frames.len().checked_sub(1).map_or(walk.end, |last| frames[last].0.lsn);
    let Ok(shorter) = body.walk(Some(limit), |_, _| Ok::<(), std::convert::Infallible>(()));
    assert!(shorter.end <= limit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{SegmentHeader, frame_header};
    use proptest::prelude::*;
    use thalweg_base::Crc;

    /// A segment with two batches.
    fn segment() -> Vec<u8> {
        let header = SegmentHeader { number: 1, base: Lsn(500), bytes: 1 << 20, term: 2, salt: 9 };
        let mut bytes = header.encode();
        let mut lsn = header.base;
        for payloads in [&[&b"one"[..], b"two"][..], &[b"three"]] {
            let len: usize = payloads.iter().map(|payload| FRAME_HEADER + payload.len()).sum();
            let batch = BatchHeader {
                frames: payloads.len() as u32,
                bytes: (BATCH_HEADER + len) as u32,
                known_durable: Lsn(500),
            };
            bytes.extend(batch.encode(header.seal(), lsn));
            lsn = lsn.plus(BATCH_HEADER as u64);
            for payload in payloads {
                let state = Crc::new().bytes(payload);
                bytes.extend(frame_header(state, payload.len() as u32, header.seal(), lsn));
                bytes.extend_from_slice(payload);
                lsn = lsn.plus((FRAME_HEADER + payload.len()) as u64);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn segments_never_panic(
            changes in proptest::collection::vec((0..4300usize, any::<u8>()), 0..4), cut in 0..300usize, garbage: Vec<u8>,
        ) {
            let mut bytes = segment();
            for (at, byte) in changes {
                // Mostly behind the header.
                let at = if at < 3000 { 4096 + at % 90 } else { at };
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(bytes.len() - cut.min(90));
            fuzz_segment(&bytes);
            fuzz_segment(&garbage);
        }
    }
}
