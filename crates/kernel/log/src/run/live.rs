//! The positions of a log that any reader can still reach, and the part of an object that they are.

use super::error::RunError;
use super::extent::within;
use super::map::Map;
use super::meta::ObjectMeta;
use super::read::{Known, RunReader};
use super::scan::ObjectScan;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{DecodeError, LogId, Offset};
use thalweg_storage::Storage;

/// The live positions of one log: a short list of ranges in order, none of which touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Live {
    ranges: Vec<Range<Offset>>,
}

impl Live {
    /// The union of `ranges`.
    #[must_use]
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<Offset>>) -> Self {
        let mut given: Vec<_> = ranges.into_iter().filter(|range| range.start < range.end).collect();
        given.sort_by_key(|range| range.start);
        let mut ranges: Vec<Range<Offset>> = Vec::with_capacity(given.len());
        for range in given {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }

    #[must_use]
    pub(crate) fn ranges(&self) -> &[Range<Offset>] {
        &self.ranges
    }

    /// The positions that are live in both.
    #[must_use]
    pub(crate) fn and(&self, other: &Self) -> Self {
        let both = |a: &Range<Offset>, b: &Range<Offset>| a.start.max(b.start)..a.end.min(b.end);
        Self::new(self.ranges.iter().flat_map(|a| other.ranges.iter().map(move |b| both(a, b))))
    }

    /// How many of the positions `start..end` are live.
    #[must_use]
    pub(crate) fn bytes_in(&self, start: Offset, end: Offset) -> u64 {
        self.ranges.iter().filter_map(|range| within(start, end, range)).map(|range| range.end - range.start).sum()
    }
}

/// Counts the live bytes of an object, those that it holds and those that it refers to: at most
/// [`ObjectMeta::covered_bytes`]. Reads the object's index, not its data.
pub(crate) fn live_bytes(
    storage: &Arc<dyn Storage>,
    meta: &ObjectMeta,
    live: &dyn Fn(LogId) -> Option<Live>,
) -> Result<u64, RunError> {
    let mut scan = ObjectScan::open(storage, meta.id)?;
    let mut live = Remembered::new(live);
    let mut count = 0;
    while let Some(entry) = scan.next_entry()? {
        count += live.of(entry.log).map_or(0, |live| live.bytes_in(entry.start, entry.end()));
    }
    Ok(count)
}

/// A log of which other positions are live than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveChange {
    pub log: LogId,
    pub before: Live,
    pub after: Live,
    /// Outside of these positions nothing has changed.
    pub within: Range<Offset>,
}

impl LiveChange {
    /// How many more of these positions are live now, and how many fewer.
    fn of(&self, start: Offset, end: Offset) -> i64 {
        self.after.bytes_in(start, end) as i64 - self.before.bytes_in(start, end) as i64
    }
}

/// The change of an object's live bytes. `changes` are sorted by log; `counted` is the number before. Reads,
/// through the caches, the index blocks that hold some of the changed ranges, and none if the object has one log that
/// is now all live or all dead.
pub(crate) fn live_change(
    reader: &RunReader,
    storage: &dyn Storage,
    meta: &ObjectMeta,
    counted: u64,
    changes: &[LiveChange],
) -> Result<i64, RunError> {
    if let ([change], true) = (changes, meta.logs == 1) {
        let (start, end) = (meta.first.1, meta.end);
        match change.after.bytes_in(start, end) {
            0 => return Ok(-(counted as i64)),
            live if live == end.since(start) => return Ok(meta.covered_bytes() as i64 - counted as i64),
            _ => {}
        }
    }
    let known = &mut Known::default();
    let map = reader.wait_for_map(storage, known, meta)?;
    let mut sum = 0;
    for change in changes.iter().filter(|change| map.may_hold(change.log)) {
        sum += change_in(reader, storage, known, &map, change)?;
    }
    Ok(sum)
}

fn change_in(
    reader: &RunReader,
    storage: &dyn Storage,
    known: &mut Known,
    map: &Map,
    change: &LiveChange,
) -> Result<i64, RunError> {
    let LiveChange { log, within: Range { start: from, end: upto }, .. } = change;
    let mut sum = 0;
    for number in map.blocks_of(*log, &(*from..*upto)) {
        let damaged = |error: DecodeError| RunError::corrupt(map.meta.id, map.block_range(number).start, error);
        let block = reader.wait_for_block(storage, known, map, number)?;
        let mut entries = block.entries(map.meta.id).map_err(damaged)?;
        while let Some(head) = entries.next_head().map_err(damaged)? {
            if (head.log, head.start) >= (*log, *upto) {
                break;
            }
            if head.log == *log && head.end > *from {
                sum += change.of(head.start, head.end);
            }
        }
    }
    Ok(sum)
}

/// Asks once per log, since logs come in order.
pub(super) struct Remembered<'a> {
    ask: &'a dyn Fn(LogId) -> Option<Live>,
    last: Option<(LogId, Option<Live>)>,
}

impl<'a> Remembered<'a> {
    pub(super) fn new(ask: &'a dyn Fn(LogId) -> Option<Live>) -> Self {
        Self { ask, last: None }
    }

    pub(super) fn of(&mut self, log: LogId) -> Option<&Live> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != log) {
            self.last = Some((log, (self.ask)(log)));
        }
        self.last.as_ref().and_then(|(_, live)| live.as_ref())
    }
}
