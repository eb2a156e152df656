//! The inspection of a journal on its device: finds all damage, a piece of a segment at a time.
//!
//! Recovery stops at the first damage; an inspection goes on behind it and reports each damaged range. A damaged frame
//! ends where its header says, if the header can be believed, else with its batch; behind a damaged batch header the
//! inspection searches the next whole one. [`Walker`] does this without IO; the rest feeds it.

use crate::format::{
    BATCH_HEADER, BatchHeader, FRAME_HEADER, SEGMENT_HEADER, Seal, SegmentHeader, frame_header, frame_len, segment_path,
};
use crate::sink::file::FileSink;
use crate::sink::file::segments::Segment;
use memchr::memmem;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{Crc, Lsn};
use thalweg_disk::{File, is_damage, read_device};

/// How much is read in one go.
const PIECE_BYTES: usize = 256 << 10;

/// Positions that are not as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalDamage {
    /// Empty if it is the header of the segment that starts there.
    pub range: Range<Lsn>,
    /// The segment's file.
    pub file: String,
    /// The byte in the file.
    pub at: u64,
    /// The kind of damage, for operators.
    pub what: String,
}

/// How far an inspection is. The default is its beginning.
#[derive(Debug, Default)]
pub struct Inspection {
    /// The synced position when the inspection began: it ends there.
    upto: Option<Lsn>,
    /// The segment to go on in, or the next one that is there.
    number: u64,
    /// If it is begun.
    walker: Option<Walker>,
}

/// The result of one step of an inspection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// Bytes read from the device.
    pub bytes: u64,
    /// The damaged ranges that the step has found.
    pub damage: Vec<JournalDamage>,
}

/// The structure that the walk expects at its position.
#[derive(Debug)]
enum Expected {
    Batch,
    /// `left` frames are left of a batch that ends at `end`. `after_damage`: the frame before was damaged, so perhaps
    /// no frame starts here.
    Frame {
        left: u32,
        end: Lsn,
        after_damage: bool,
    },
    /// The rest of a frame's payload.
    Payload {
        lsn: Lsn,
        header: [u8; FRAME_HEADER],
        crc: Crc,
        left: u32,
        end: Lsn,
        after_damage: bool,
    },
    /// Some batch, at `since` or anywhere behind it.
    AnyBatch {
        since: Lsn,
    },
}

/// Walks over the bytes of one segment up to a limit.
#[derive(Debug)]
pub(crate) struct Walker {
    seal: Seal,
    at: Lsn,
    limit: Lsn,
    expected: Expected,
}

type Found = Vec<(Range<Lsn>, &'static str)>;

impl Walker {
    /// `limit` is where a batch or a frame ends.
    pub(crate) fn new(seal: Seal, base: Lsn, limit: Lsn) -> Self {
        Self { seal, at: base, limit, expected: Expected::Batch }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.limit
    }

    /// Takes the bytes that stand at the position, of which there are at least a few or all up to the limit; moves on
    /// over those that it needs no more.
    pub(crate) fn feed(&mut self, bytes: &[u8], found: &mut Found) {
        let start = self.at;
        let is_last = start.plus(bytes.len() as u64) >= self.limit;
        let bytes = &bytes[..bytes.len().min(self.limit.since(start) as usize)];
        while !self.is_done() {
            let rest = &bytes[self.at.since(start).min(bytes.len() as u64) as usize..];
            let before = self.at;
            if !self.step(rest, is_last, found) {
                break;
            }
            debug_assert!(self.at >= before, "the walk never goes back");
        }
    }

    /// One step; whether there may be another one with the bytes at hand.
    fn step(&mut self, rest: &[u8], is_last: bool, found: &mut Found) -> bool {
        match self.expected {
            Expected::Batch => self.batch(rest, is_last),
            Expected::Frame { left, end, after_damage } => self.frame(rest, is_last, left, end, after_damage, found),
            Expected::Payload { .. } => self.payload(rest, found),
            Expected::AnyBatch { since } => self.search(rest, is_last, since, found),
        }
    }

    fn batch(&mut self, rest: &[u8], is_last: bool) -> bool {
        if rest.len() < BATCH_HEADER && !is_last {
            return false;
        }
        match BatchHeader::decode(rest, self.seal, self.at) {
            Some(header) => {
                let end = self.at.plus(u64::from(header.bytes));
                self.at = self.at.plus(BATCH_HEADER as u64);
                self.expected = Expected::Frame { left: header.frames, end, after_damage: false };
            }
            None => self.expected = Expected::AnyBatch { since: self.at },
        }
        true
    }

    fn frame(
        &mut self,
        rest: &[u8],
        is_last: bool,
        left: u32,
        end: Lsn,
        after_damage: bool,
        found: &mut Found,
    ) -> bool {
        if left == 0 {
            if self.at != end {
                found.push((self.at..end.min(self.limit), "a batch is longer than its frames"));
            }
            self.skip_to(end);
            return true;
        }
        if rest.len() < FRAME_HEADER && !is_last {
            return false;
        }
        let header = rest.first_chunk::<FRAME_HEADER>();
        let len = header.and_then(|header| frame_len(header));
        let frame_end = len.map(|len| self.at.plus(FRAME_HEADER as u64 + u64::from(len)));
        match (header, len, frame_end) {
            (Some(header), Some(len), Some(frame_end)) if frame_end <= end && frame_end <= self.limit => {
                let lsn = self.at;
                self.at = lsn.plus(FRAME_HEADER as u64);
                self.expected = Expected::Payload { lsn, header: *header, crc: Crc::new(), left, end, after_damage };
                // A frame without a payload is judged at once.
                if len == 0 { self.payload(&[], found) } else { true }
            }
            _ => {
                found.push((self.at..end.min(self.limit), "a frame runs over the end of its batch or segment"));
                self.skip_to(end);
                true
            }
        }
    }

    fn payload(&mut self, rest: &[u8], found: &mut Found) -> bool {
        let Expected::Payload { lsn, header, crc, left, end, after_damage } = &mut self.expected else { return false };
        let len = frame_len(&header[..]).unwrap_or_default();
        let frame_end = lsn.plus(FRAME_HEADER as u64 + u64::from(len));
        let take = rest.len().min(frame_end.since(self.at) as usize);
        *crc = crc.bytes(&rest[..take]);
        self.at = self.at.plus(take as u64);
        if self.at < frame_end {
            return false;
        }
        let (lsn, left, end, after_damage) = (*lsn, *left, *end, *after_damage);
        let is_whole = frame_header(*crc, len, self.seal, lsn) == *header;
        match (is_whole, after_damage) {
            (true, _) => self.expected = Expected::Frame { left: left - 1, end, after_damage: false },
            // The damaged frame's length may be right. If no frame follows at its end either, the rest of the batch
            // cannot be told apart.
            (false, false) => {
                found.push((lsn..frame_end, "its checksum does not match"));
                self.expected = Expected::Frame { left: left - 1, end, after_damage: true };
            }
            (false, true) => {
                found.push((lsn..end.min(self.limit), "its checksum does not match"));
                self.skip_to(end);
            }
        }
        true
    }

    /// Goes on with the batch that follows.
    fn skip_to(&mut self, end: Lsn) {
        self.at = end.min(self.limit);
        self.expected = Expected::Batch;
    }

    /// Goes on at `at`, and reports the bytes from `since` to there as damaged.
    fn resume(&mut self, since: Lsn, at: Lsn, found: &mut Found) {
        if since < at {
            found.push((since..at, "no batch starts there"));
        }
        self.skip_to(at);
    }

    fn search(&mut self, rest: &[u8], is_last: bool, since: Lsn, found: &mut Found) -> bool {
        for at in memmem::find_iter(rest, &self.seal.magic) {
            let lsn = self.at.plus(at as u64);
            if BatchHeader::decode(&rest[at..], self.seal, lsn).is_some() {
                self.resume(since, lsn, found);
                return true;
            }
        }
        if is_last {
            self.resume(since, self.limit, found);
            return true;
        }
        // The last bytes may be the beginning of a header.
        self.at = self.at.plus(rest.len().saturating_sub(BATCH_HEADER - 1) as u64);
        false
    }
}

impl Walker {
    /// Reads and inspects the next piece of the segment's file. Returns how many bytes were read.
    pub(crate) fn advance(
        &mut self,
        number: u64,
        base: Lsn,
        file: &dyn File,
        damage: &mut Vec<JournalDamage>,
    ) -> io::Result<u64> {
        let wanted = self.limit.since(self.at).min(PIECE_BYTES as u64) as usize;
        let at = SEGMENT_HEADER + self.at.since(base);
        let mut bytes = vec![0; wanted];
        let name = |range: Range<Lsn>, what: &str| JournalDamage {
            file: segment_path(number),
            at: SEGMENT_HEADER + range.start.since(base),
            what: what.to_owned(),
            range,
        };
        match read_device(file, &mut bytes, at) {
            Ok(n) if n == wanted => {
                let mut found = Found::new();
                self.feed(&bytes, &mut found);
                damage.extend(found.into_iter().map(|(range, what)| name(range, what)));
            }
            Ok(_) => {
                damage.push(name(self.at..self.limit, "the file ends before"));
                self.skip_to(self.limit);
            }
            Err(error) if is_damage(&error) => {
                let end = self.at.plus(wanted as u64);
                damage.push(name(self.at..end, &format!("it cannot be read: {error}")));
                self.expected = Expected::AnyBatch { since: end };
                self.at = end;
            }
            Err(error) => return Err(error),
        }
        Ok(wanted as u64)
    }
}

/// The damage of a segment's header page; `None` if it is whole.
pub(crate) fn inspect_header(number: u64, base: Lsn, seal: Seal, file: &dyn File) -> io::Result<Option<JournalDamage>> {
    let mut page = vec![0; SEGMENT_HEADER as usize];
    let what = match read_device(file, &mut page, 0) {
        Ok(n) if n < page.len() => Some("it is cut short".to_owned()),
        Ok(_) => match SegmentHeader::decode(&page) {
            Ok(header) if header.number != number || header.base != base || header.seal() != seal => {
                Some("it is that of another segment".to_owned())
            }
            // Version 1 has one copy, and nothing is known of the rest of the page.
            Ok(header) if header.term > 0 && header.encode() != page => {
                Some("it is not as it was written; one of its two copies is whole".to_owned())
            }
            Ok(_) => None,
            Err(_) => Some("neither of its copies is whole".to_owned()),
        },
        Err(error) if is_damage(&error) => Some(format!("it cannot be read: {error}")),
        Err(error) => return Err(error),
    };
    Ok(what.map(|what| JournalDamage {
        range: base..base,
        file: segment_path(number),
        at: 0,
        what: format!("the segment's header: {what}"),
    }))
}

impl FileSink {
    /// The segment that an inspection goes on in, and where it ends.
    fn inspected(&self, inspection: &mut Inspection, synced: Lsn) -> Option<(Arc<Segment>, Lsn)> {
        // The caller has read `synced` before this locks the segments, so frames below `synced` lie in segments that
        // are live.
        let upto = *inspection.upto.get_or_insert(synced);
        let segments = self.segments.lock();
        // A segment that was trimmed since the last step is left out.
        let segment = segments.live().find(|segment| segment.number >= inspection.number)?;
        let end = segments.end_of(segment).map_or(upto, |next| next.min(upto));
        // Nothing of a segment that starts at the end was synced, perhaps not even its header.
        (segment.base < upto).then(|| (Arc::clone(segment), end))
    }

    /// The next step of an inspection of the frames that were synced when it began; `None` at its end. Waits for the
    /// device. It holds only the segment that it reads, so that the file is not reused during the read.
    pub(super) fn inspect_piece(&self, inspection: &mut Inspection, synced: Lsn) -> io::Result<Option<Inspected>> {
        let mut inspected = Inspected::default();
        let Some((segment, end)) = self.inspected(inspection, synced) else { return Ok(None) };
        let Segment { number, base, seal, ref file, .. } = *segment;
        if number != inspection.number {
            (inspection.number, inspection.walker) = (number, None);
        }
        let mut walker = match inspection.walker.take() {
            Some(walker) => walker,
            None => {
                inspected.damage.extend(inspect_header(number, base, seal, file.as_ref())?);
                inspected.bytes += SEGMENT_HEADER;
                Walker::new(seal, base, end)
            }
        };
        if !walker.is_done() {
            inspected.bytes += walker.advance(number, base, file.as_ref(), &mut inspected.damage)?;
        }
        if walker.is_done() {
            inspection.number += 1;
        } else {
            inspection.walker = Some(walker);
        }
        Ok(Some(inspected))
    }
}
