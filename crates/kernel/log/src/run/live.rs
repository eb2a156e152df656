//! Which positions of a log anything can still read, and how much of an object that is.

use super::error::RunError;
use super::extent::within;
use super::meta::ObjectMeta;
use super::scan::ObjectScan;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{LogId, Offset};
use thalweg_storage::Storage;

/// The live positions of one log: a short list of ranges in order, none of which touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    ranges: Vec<Range<Offset>>,
}

impl Live {
    /// The union of `ranges`.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range<Offset>>) -> Self {
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

    /// Every position.
    #[must_use]
    pub fn all() -> Self {
        Self::new([Offset::ZERO..Offset::MAX])
    }

    #[must_use]
    pub fn ranges(&self) -> &[Range<Offset>] {
        &self.ranges
    }

    /// How many of the positions `start..end` are live.
    #[must_use]
    pub fn bytes_in(&self, start: Offset, end: Offset) -> u64 {
        self.ranges.iter().filter_map(|range| within(start, end, range)).map(|range| range.end - range.start).sum()
    }
}

/// Counts what is live in an object, bytes that it holds and bytes that it refers to alike: at most
/// [`ObjectMeta::covered_bytes`]. Reads its index, not its data.
pub fn live_bytes(
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
