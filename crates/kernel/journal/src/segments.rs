//! Which segment files there are and what each is for. No IO happens here.
//!
//! A file is *live* (holds frames that may be read), *retired* (trimmed, maybe still held by a reader) or *ready* (blank, under the
//! number it will be used with). The numbers of live and ready files follow each other without a hole, so that a file that is lost shows:
//! ready ones are used in order, and another is made, or a retired one renamed, only behind the last.

use crate::Class;
use crate::format::{SEGMENT_HEADER, Seal};
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::File;

/// One segment that holds frames. Whoever has the `Arc` keeps the file from being reused.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) base: Lsn,
    pub(crate) bytes: u64,
    pub(crate) seal: Seal,
    pub(crate) file: Arc<dyn File>,
}

impl Segment {
    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        SEGMENT_HEADER + lsn.since(self.base)
    }
}

/// A file without frames under the number it will be used with.
pub(crate) struct Blank {
    pub(crate) number: u64,
    pub(crate) file: Arc<dyn File>,
}

#[derive(Default)]
pub(crate) struct Segments {
    live: VecDeque<Arc<Segment>>,
    retired: Vec<Arc<Segment>>,
    ready: VecDeque<Blank>,
    /// The number given out last.
    last_number: u64,
    /// Segments that accepted frames count on and that are not opened: the first ready files, and beyond these files that are to be made.
    promised: u64,
    /// How many more segments the disk had room for when it was last asked, less those promised since.
    allowance: u64,
}

impl Segments {
    pub(crate) fn push_live(&mut self, segment: Arc<Segment>) {
        self.last_number = self.last_number.max(segment.number);
        self.live.push_back(segment);
    }

    pub(crate) fn push_retired(&mut self, segment: Arc<Segment>) {
        self.retired.push(segment);
    }

    /// The number of the next blank. Blanks are made one at a time: under [`crate::FileJournal`]'s lock for that.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number + 1
    }

    /// Blanks that are not promised.
    pub(crate) fn spare_len(&self) -> usize {
        self.ready.len().saturating_sub(self.promised as usize)
    }

    pub(crate) fn push_ready(&mut self, blank: Blank) {
        assert_eq!(blank.number, self.next_number(), "the numbers of journal segments follow each other");
        self.last_number = blank.number;
        self.ready.push_back(blank);
    }

    /// The disk has room for so many more segments.
    pub(crate) fn allow(&mut self, room: u64) {
        self.allowance = room.saturating_sub(self.promised.saturating_sub(self.ready.len() as u64));
    }

    /// Promises a segment to a frame of `class`. `false` where only the reserve is left and no more can be allocated: nothing is
    /// promised that the disk had no room for.
    pub(crate) fn promise(&mut self, class: Class, reserve: usize) -> bool {
        let spare = match class {
            Class::User => self.spare_len() > reserve,
            Class::Upkeep => self.spare_len() > 0,
        };
        if !spare {
            let Some(left) = self.allowance.checked_sub(1) else { return false };
            self.allowance = left;
        }
        self.promised += 1;
        true
    }

    /// The file of the next segment that was promised, if there is one.
    pub(crate) fn take_ready(&mut self) -> Option<Blank> {
        let blank = self.ready.pop_front()?;
        self.promised = self.promised.saturating_sub(1);
        Some(blank)
    }

    /// A file was made under the next number, for a segment that was promised.
    pub(crate) fn made_promised(&mut self) {
        self.last_number += 1;
        self.promised = self.promised.saturating_sub(1);
    }

    /// A trimmed segment that no reader holds.
    pub(crate) fn take_retired(&mut self, held_too: bool) -> Option<Arc<Segment>> {
        let at = self.retired.iter().position(|segment| held_too || Arc::strong_count(segment) == 1)?;
        Some(self.retired.swap_remove(at))
    }

    pub(crate) fn has_retired(&self) -> bool {
        self.retired.iter().any(|segment| Arc::strong_count(segment) == 1)
    }

    /// Retires what lies below `start`. A segment stays until something in its successor is synced: until then the successor's
    /// header, and with it the proof that this one is whole, may be lost.
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

    /// Where a live segment ends, if it has a successor.
    pub(crate) fn end_of(&self, segment: &Segment) -> Option<Lsn> {
        let at = self.live.iter().rposition(|live| live.number == segment.number)?;
        self.live.get(at + 1).map(|next| next.base)
    }
}
