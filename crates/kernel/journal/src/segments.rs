//! Which segment files there are and what each is for. No IO happens here.
//!
//! A file is *live* (holds frames that may be read), *retired* (trimmed, maybe still held by a reader), *ready* (blank, under the
//! number it will be used with) or *assigned* (promised to a batch that is not written yet). Numbers are generations: positions
//! rise with them.

use crate::Class;
use crate::format::SEGMENT_HEADER;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::File;

/// One segment that holds frames. Whoever has the `Arc` keeps the file from being reused.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) base: Lsn,
    pub(crate) bytes: u64,
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
    assigned: Vec<Blank>,
    next_number: u64,
    last_assigned: u64,
    /// How many more segments the disk had room for when it was last asked, less those promised since.
    allowance: u64,
    /// Numbers promised without a file, which is made when their first batch is written.
    deferred: u64,
}

impl Segments {
    pub(crate) fn new(next_number: u64) -> Self {
        Self { next_number, ..Self::default() }
    }

    pub(crate) fn fresh_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    pub(crate) fn push_live(&mut self, segment: Arc<Segment>) {
        self.last_assigned = self.last_assigned.max(segment.number);
        self.live.push_back(segment);
    }

    pub(crate) fn push_retired(&mut self, segment: Arc<Segment>) {
        self.retired.push(segment);
    }

    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Offers a blank. It is given back if a larger number has been promised in the meantime: it must be renamed.
    pub(crate) fn offer(&mut self, blank: Blank) -> Option<Blank> {
        if blank.number < self.last_assigned {
            return Some(blank);
        }
        self.ready.push_back(blank);
        None
    }

    /// The disk has room for so many more segments.
    pub(crate) fn allow(&mut self, room: u64) {
        self.allowance = room.saturating_sub(self.deferred);
    }

    /// A file was made, or found, for a number that was promised without one.
    pub(crate) fn made_deferred(&mut self) {
        self.deferred = self.deferred.saturating_sub(1);
    }

    /// The generation of the next segment for `class`, or `None` where only the reserve is left and no more can be allocated.
    /// Nothing is promised here that the disk had no room for.
    pub(crate) fn assign(&mut self, class: Class, reserve: usize) -> Option<u64> {
        let spare = match class {
            Class::User => self.ready.len() > reserve,
            Class::Upkeep => !self.ready.is_empty(),
        };
        if !spare {
            self.allowance = self.allowance.checked_sub(1)?;
        }
        let number = match self.ready.pop_front() {
            Some(blank) => {
                let number = blank.number;
                self.assigned.push(blank);
                number
            }
            None => {
                self.deferred += 1;
                self.fresh_number()
            }
        };
        self.last_assigned = number;
        Some(number)
    }

    /// The file that was promised under this number, if it was there then.
    pub(crate) fn take_assigned(&mut self, number: u64) -> Option<Blank> {
        let at = self.assigned.iter().position(|blank| blank.number == number)?;
        Some(self.assigned.remove(at))
    }

    pub(crate) fn take_ready(&mut self) -> Option<Blank> {
        self.ready.pop_back()
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
