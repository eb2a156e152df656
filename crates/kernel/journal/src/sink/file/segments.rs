//! The segment files and the use of each. No IO happens here.
//!
//! A file is *live* (holds frames that may be read), *retired* (trimmed, maybe still held by a reader) or *ready*
//! (blank, under the number it will be used with). The numbers of live and ready files follow each other without a
//! hole, so that a file that is lost shows: ready ones are used in order, and another is made, or a retired one
//! renamed, only behind the last.

use crate::Class;
use crate::format::{SEGMENT_HEADER, Seal};
use crate::options::Options;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_base::Lsn;
use thalweg_disk::File;

/// One segment that holds frames. A reader that holds the `Arc` keeps the file from being reused.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) base: Lsn,
    pub(crate) bytes: u64,
    pub(crate) seal: Seal,
    pub(crate) file: Arc<dyn File>,
    /// The segment's header survives loss of power. Before that the file may come back as a blank.
    pub(crate) header_is_durable: AtomicBool,
}

impl Segment {
    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        SEGMENT_HEADER + lsn.since(self.base)
    }
}

/// A file without frames under the number it will be used with.
pub(crate) struct Blank {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) file: Arc<dyn File>,
}

#[derive(Default)]
pub(crate) struct Segments {
    live: VecDeque<Arc<Segment>>,
    retired: Vec<Arc<Segment>>,
    ready: VecDeque<Blank>,
    /// The size of a file that was taken to be a live segment and is none yet: its header may be lost.
    taken: Option<u64>,
    /// The number given out last.
    last_number: u64,
    /// The least sizes of segments that accepted frames count on and that are not opened: the first ready files, and
    /// beyond these files that are to be made.
    promised: VecDeque<u64>,
    /// The file that was promised first could not be made. Until a file is made nothing is promised beyond those that
    /// are ready: a quota or a limit of open files does not show in the free space.
    is_out: bool,
}

impl Segments {
    pub(crate) fn push_live(&mut self, segment: Arc<Segment>) {
        self.last_number = self.last_number.max(segment.number);
        self.live.push_back(segment);
        self.taken = None;
    }

    pub(crate) fn push_retired(&mut self, segment: Arc<Segment>) {
        self.retired.push(segment);
    }

    /// The number of the next blank. Blanks are made one at a time: under the sink's lock for that.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    /// The first promise that no blank covers. A blank covers a promise if it is large enough for it and those before
    /// it cover the promises before.
    fn uncovered(&self) -> Option<usize> {
        let covers = |(at, least): (usize, &u64)| self.ready.get(at).is_some_and(|blank| blank.bytes >= *least);
        self.promised.iter().enumerate().position(|promise| !covers(promise))
    }

    /// A segment was promised, and its file is to be made.
    pub(crate) fn is_owing(&self) -> bool {
        self.uncovered().is_some()
    }

    /// The size of the next blank, where `ahead` blanks of `bytes` are wanted beside those that are promised. `None` if
    /// there are enough, or if the next promised bytes need a file that is larger than the last one allows.
    pub(crate) fn next_bytes(&self, ahead: usize, bytes: u64) -> Option<u64> {
        let max = self.ready_max();
        match self.uncovered() {
            None => (self.ready.len() - self.promised.len() < ahead).then(|| bytes.min(max)),
            Some(at) if at < self.ready.len() => None,
            Some(at) => self.promised.get(at).copied().filter(|least| *least <= max),
        }
    }

    pub(crate) fn push_ready(&mut self, blank: Blank) {
        assert_eq!(blank.number, self.next_number(), "the numbers of journal segments follow each other");
        assert!(blank.bytes <= self.ready_max(), "no blank is larger than the one before");
        self.last_number = blank.number;
        self.ready.push_back(blank);
        self.is_out = false;
    }

    /// How large the next blank may be. A blank that is shorter than the one behind it is taken for damage when the
    /// journal is opened, and a segment may come back as a blank until its header is durable.
    pub(crate) fn ready_max(&self) -> u64 {
        match (self.ready.back().map(|blank| blank.bytes).or(self.taken), self.live.back()) {
            (Some(bytes), _) => bytes,
            (None, Some(active)) if !active.header_is_durable.load(Ordering::Acquire) => active.bytes,
            (None, _) => u64::MAX,
        }
    }

    /// Promises a segment to a frame of `class` with a payload of `len` bytes; its size. `None` where only the reserve
    /// is left and no more can be allocated: nothing is promised that the disk has no room for. `free` asks the disk,
    /// where that matters.
    pub(crate) fn promise(
        &mut self,
        class: Class,
        len: usize,
        options: &Options,
        free: impl Fn() -> u64,
    ) -> Option<u64> {
        let least = options.bytes_for(len);
        let reserve = match class {
            Class::User => options.reserve_segments,
            Class::Upkeep => 0,
        };
        let covered = self.uncovered().unwrap_or(self.promised.len());
        let owed: u64 = self.promised.iter().skip(covered).sum();
        let spare = self.ready.len() - covered;
        let room = || if self.is_out { 0 } else { free().saturating_sub(owed) };
        let next = self.ready.get(covered).map(|blank| blank.bytes);
        let bytes = match next.filter(|bytes| *bytes >= least && covered == self.promised.len()) {
            // Where a blank of the reserve is taken, the disk must have room for another one.
            Some(bytes) if spare > reserve || room() >= (reserve + 1 - spare) as u64 * bytes => bytes,
            Some(_) => return None,
            None => {
                let before = self.promised.back().copied().or(self.live.back().map(|active| active.bytes));
                let wanted = before.map_or(least, |bytes| options.grown(bytes)).max(least);
                let missing = reserve.saturating_sub(spare) as u64 * options.first_bytes();
                let room = room().checked_sub(missing)?;
                [wanted, least].into_iter().find(|bytes| *bytes <= room)?
            }
        };
        self.promised.push_back(bytes);
        Some(bytes)
    }

    /// The least size of the next segment that was promised.
    pub(crate) fn next_promised(&self) -> u64 {
        self.promised.front().copied().unwrap_or_default()
    }

    /// The file of the next segment that was promised, if there is one that is large enough.
    pub(crate) fn take_ready(&mut self) -> Option<Blank> {
        let least = self.next_promised();
        let blank = self.ready.pop_front_if(|blank| blank.bytes >= least)?;
        self.promised.pop_front();
        self.taken = Some(blank.bytes);
        Some(blank)
    }

    /// Takes all blanks out of the row: a larger one comes in their place.
    pub(crate) fn take_all_ready(&mut self) -> VecDeque<Blank> {
        if let Some(first) = self.ready.front() {
            self.last_number = first.number - 1;
        }
        std::mem::take(&mut self.ready)
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// There are blanks, none is promised or about to be a segment, and all are smaller than `bytes`.
    pub(crate) fn all_are_smaller(&self, bytes: u64) -> bool {
        self.promised.is_empty() && self.taken.is_none() && self.ready.front().is_some_and(|blank| blank.bytes < bytes)
    }

    /// A file was made under the next number, for a segment that was promised.
    pub(crate) fn made_promised(&mut self, bytes: u64) {
        self.taken = Some(bytes);
        self.last_number += 1;
        self.promised.pop_front();
        self.is_out = false;
    }

    /// The file that was promised first cannot be made for the time being.
    pub(crate) fn note_out(&mut self) {
        self.is_out = true;
    }

    /// A trimmed segment of at least `bytes` that no reader holds.
    pub(crate) fn take_retired(&mut self, bytes: u64, held_too: bool) -> Option<Arc<Segment>> {
        let is_free = |segment: &Arc<Segment>| held_too || Arc::strong_count(segment) == 1;
        let at = self.retired.iter().position(|segment| segment.bytes >= bytes && is_free(segment))?;
        Some(self.retired.swap_remove(at))
    }

    pub(crate) fn has_retired(&self) -> bool {
        self.retired.iter().any(|segment| Arc::strong_count(segment) == 1)
    }

    /// Retires segments below `start`. A segment stays until something in its successor is synced: until then the
    /// successor's header, and with it the proof that this one is whole, may be lost.
    pub(crate) fn trim(&mut self, start: Lsn, synced: Lsn) {
        while let [_, next, ..] = self.live.make_contiguous()
            && next.base <= start
            && next.base < synced
        {
            self.retired.extend(self.live.pop_front());
        }
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.live.iter()
    }

    /// The live segment that holds `lsn`.
    pub(crate) fn find(&self, lsn: Lsn) -> Option<Arc<Segment>> {
        let after = self.live.partition_point(|segment| segment.base <= lsn);
        after.checked_sub(1).and_then(|at| self.live.get(at)).cloned()
    }

    /// The live segments from this one on, in order.
    pub(crate) fn live_from(&self, first: &Segment) -> impl Iterator<Item = &Arc<Segment>> {
        self.live.iter().skip_while(move |segment| segment.number != first.number)
    }

    /// The end of a live segment, if it has a successor.
    pub(crate) fn end_of(&self, segment: &Segment) -> Option<Lsn> {
        let at = self.live.iter().rposition(|live| live.number == segment.number)?;
        self.live.get(at + 1).map(|next| next.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_disk::Disk;

    #[test]
    fn no_larger_blank_stands_behind_a_file_that_is_about_to_be_a_segment() {
        let disk = thalweg_sim::SimDisk::new(1);
        let mut segments = Segments::default();
        segments.promised.push_back(8192);
        assert_eq!(segments.ready_max(), u64::MAX);
        let file = disk.create("journal/1").unwrap_or_else(|e| panic!("{e}"));
        segments.push_ready(Blank { number: 1, bytes: 8192, file });
        segments.take_ready();
        assert_eq!(segments.ready_max(), 8192);
    }
}
