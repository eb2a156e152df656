//! The options that the owner of a journal chooses.

use crate::faults::Faults;
use crate::format::{BATCH_HEADER, FRAME_HEADER, SEGMENT_HEADER, Seal, SegmentHeader};
use std::time::Duration;

/// How much larger a segment is than the one before. A journal that becomes busy has a few small segments to get
/// through, in each of which the writer may have to wait for the next: 3 until 64 MiB.
const GROWTH: u64 = 8;

/// Parameters of one opening of a journal. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of a segment file, header included. The first ones of an opening are smaller: from `first_segment_bytes` on
    /// each is 8 times as large as the one before.
    pub segment_bytes: u64,
    /// Size of the first segment file of an opening, header included.
    pub first_segment_bytes: u64,
    /// Largest payload of a frame.
    pub max_payload: usize,
    /// A batch that has reached this size is closed, so that a write and its sync stay bounded.
    pub batch_bytes: usize,
    /// Users are refused when the journal would hold more than this.
    pub bound_bytes: u64,
    /// Segments that only [`crate::Class::Upkeep`] may use once no more can be allocated.
    pub reserve_segments: usize,
    /// Trimmed segments kept for reuse, besides the reserve.
    pub spare_segments: usize,
    /// How much of the journal's end stays in memory for readers.
    pub window_bytes: usize,
    /// How many batches stay in memory for readers.
    pub window_batches: usize,
    /// Buffered frames, for whose durability no acknowledgement waits, are synced after so many bytes or, if a writer
    /// thread runs, so much time.
    pub sync_bytes: u64,
    /// The longest time that buffered frames stay unsynced, if a writer thread runs.
    pub sync_after: Duration,
    /// A writer thread sends a batch to a remote sink at most this often, unless the batch is full: a request costs the
    /// same however many frames it makes durable. Zero: as soon as there is a frame.
    pub commit_interval: Duration,
    /// The term of this opening, as its owner chose it: larger than any before. Zero: one above the largest that is
    /// known.
    pub term: u64,
    /// Drawn at random for each opening: a client that chooses payloads cannot forge a batch, and bytes that an earlier
    /// opening left in a reused file are not taken for a batch of this one.
    pub salt: u64,
    #[cfg(feature = "faults")]
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            first_segment_bytes: 64 << 10,
            max_payload: 48 << 20,
            batch_bytes: 8 << 20,
            bound_bytes: 1 << 30,
            reserve_segments: 1,
            spare_segments: 2,
            window_bytes: 64 << 20,
            window_batches: 1 << 16,
            sync_bytes: 16 << 20,
            sync_after: Duration::from_millis(200),
            commit_interval: Duration::ZERO,
            term: 0,
            salt: 0,
            #[cfg(feature = "faults")]
            faults: Faults::default(),
        }
    }
}

impl Options {
    /// Bytes of a segment file of `bytes` that batches may fill, but for the room that one idle mark needs at the end.
    pub(crate) fn room(bytes: u64) -> u64 {
        bytes.saturating_sub(SEGMENT_HEADER + BATCH_HEADER as u64)
    }

    /// The size of a journal's smallest segment files.
    pub(crate) fn first_bytes(&self) -> u64 {
        self.first_segment_bytes.min(self.segment_bytes)
    }

    /// The size of the segment behind one of `bytes` that is used up.
    pub(crate) fn grown(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(GROWTH).clamp(self.first_bytes(), self.segment_bytes)
    }

    /// The least of these sizes in which a batch of one frame with such a payload has room.
    pub(crate) fn bytes_for(&self, len: usize) -> u64 {
        let mut bytes = self.first_bytes();
        while Self::room(bytes) < (BATCH_HEADER + FRAME_HEADER + len) as u64 && bytes < self.segment_bytes {
            bytes = self.grown(bytes);
        }
        bytes
    }

    /// Whether a file of `bytes` may be a segment of this opening.
    pub(crate) fn is_size(&self, bytes: u64) -> bool {
        (self.first_bytes()..=self.segment_bytes).contains(&bytes)
    }

    /// The largest payload that is allowed and fits a segment.
    pub(crate) fn payload_max(&self) -> usize {
        self.max_payload.min(Self::room(self.segment_bytes) as usize - BATCH_HEADER - FRAME_HEADER)
    }

    pub(crate) fn faults(&self) -> Faults {
        #[cfg(feature = "faults")]
        return self.faults;
        #[cfg(not(feature = "faults"))]
        Faults
    }

    /// The seal of the segments that the opening of this term writes.
    pub(crate) fn seal(&self, term: u64) -> Seal {
        if self.faults().seal_without_term() { Seal::of_term(1, 0) } else { Seal::of_term(term, self.salt) }
    }

    /// The seal of a segment that was found.
    pub(crate) fn seal_of(&self, header: &SegmentHeader) -> Seal {
        if self.faults().seal_without_term() { Seal::of_term(1, 0) } else { header.seal() }
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.segment_bytes < 2 * SEGMENT_HEADER || self.segment_bytes > 2 << 30 {
            return Err("segment_bytes must be from 8 KiB to 2 GiB");
        }
        if self.first_segment_bytes < 2 * SEGMENT_HEADER {
            return Err("first_segment_bytes must be at least 8 KiB");
        }
        if self.batch_bytes == 0 {
            return Err("batch_bytes must not be zero");
        }
        Ok(())
    }
}
