//! Merging runs into one, without content that is not live.

use super::build::RunBuilder;
use super::error::RunError;
use super::extent::{Entry, Extent};
use super::live::{Live, Remembered, live_bytes};
use super::meta::ObjectMeta;
use super::scan::RunScan;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_base::{LogId, ObjectId, Offset};
use thalweg_storage::Storage;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MergeStats {
    pub entries_read: u64,
    /// Data of all inputs, adopted objects included.
    pub input_bytes: u64,
    /// Data copied into new objects.
    pub copied_bytes: u64,
    /// Data left out because it is not live.
    pub dropped_bytes: u64,
    /// Data in objects that were adopted as they are.
    pub adopted_bytes: u64,
    pub adopted_objects: u64,
}

/// Merges runs, oldest first, into `out`. Bytes that are not live are left out, so that afterwards all of `out` is
/// live.
///
/// An object is adopted, not copied, if no other input object reaches between its keys, it is wholly live, and it has
/// at least half the size that objects should have. `counted` knows of some objects how many of their bytes are live by
/// `live`; of the others the index is read. Two runs that hold the same position of a log are damaged:
/// [`RunError::Overlap`].
pub(crate) fn merge(
    inputs: &[Vec<ObjectMeta>],
    live: &dyn Fn(LogId) -> Option<Live>,
    counted: &dyn Fn(ObjectId) -> Option<u64>,
    out: &mut RunBuilder,
) -> Result<MergeStats, RunError> {
    let storage = Arc::clone(out.storage());
    let adopted = adoptable(inputs, live, counted, out)?;
    let mut sources = Vec::with_capacity(inputs.len());
    for run in inputs {
        sources.push(Source::new(&storage, run, &adopted)?);
    }
    let mut merge = Merge { stats: MergeStats::default(), live: Remembered::new(live), last: None, out };
    merge.stats.input_bytes = inputs.iter().flatten().map(|object| object.data_bytes).sum();
    while let Some(source) =
        sources.iter_mut().filter(|source| source.key().is_some()).min_by_key(|source| source.key())
    {
        merge.step(source)?;
    }
    Ok(merge.stats)
}

/// The input objects that can be taken over as they are.
fn adoptable(
    inputs: &[Vec<ObjectMeta>],
    live: &dyn Fn(LogId) -> Option<Live>,
    counted: &dyn Fn(ObjectId) -> Option<u64>,
    out: &RunBuilder,
) -> Result<Vec<ObjectMeta>, RunError> {
    let live_of = |object: &ObjectMeta| match counted(object.id) {
        Some(counted) => Ok(counted),
        None => live_bytes(out.storage(), object, live),
    };
    let mut objects: Vec<&ObjectMeta> = inputs.iter().flatten().collect();
    objects.sort_by_key(|object| object.first);
    let mut adopted = Vec::new();
    let mut reached = None;
    for (n, object) in objects.iter().enumerate() {
        let apart = reached.is_none_or(|end| end <= object.first)
            && objects.get(n + 1).is_none_or(|next| (object.last, object.end) <= next.first);
        reached = reached.max(Some((object.last, object.end)));
        let large = object.bytes() >= out.options().object_bytes / 2;
        if apart && large && live_of(object)? == object.covered_bytes() {
            adopted.push(**object);
        }
    }
    Ok(adopted)
}

/// One input run: stretches of entries between adopted objects.
struct Source {
    storage: Arc<dyn Storage>,
    stretches: VecDeque<Stretch>,
    scan: Option<RunScan>,
    head: Option<Head>,
}

enum Stretch {
    Scan(Vec<ObjectMeta>),
    Adopt(ObjectMeta),
}

enum Head {
    Entry(Entry),
    Adopt(ObjectMeta),
}

impl Source {
    fn new(storage: &Arc<dyn Storage>, run: &[ObjectMeta], adopted: &[ObjectMeta]) -> Result<Self, RunError> {
        let mut stretches = VecDeque::new();
        for object in run {
            if adopted.contains(object) {
                stretches.push_back(Stretch::Adopt(*object));
            } else if let Some(Stretch::Scan(objects)) = stretches.back_mut() {
                objects.push(*object);
            } else {
                stretches.push_back(Stretch::Scan(vec![*object]));
            }
        }
        let mut source = Self { storage: Arc::clone(storage), stretches, scan: None, head: None };
        source.advance()?;
        Ok(source)
    }

    fn key(&self) -> Option<(LogId, Offset)> {
        self.head.as_ref().map(|head| match head {
            Head::Entry(entry) => (entry.log, entry.start),
            Head::Adopt(object) => object.first,
        })
    }

    fn advance(&mut self) -> Result<(), RunError> {
        loop {
            if let Some(scan) = &mut self.scan
                && let Some(entry) = scan.next_entry()?
            {
                self.head = Some(Head::Entry(entry));
                return Ok(());
            }
            self.scan = None;
            match self.stretches.pop_front() {
                None => {
                    self.head = None;
                    return Ok(());
                }
                Some(Stretch::Adopt(object)) => {
                    self.head = Some(Head::Adopt(object));
                    return Ok(());
                }
                Some(Stretch::Scan(objects)) => self.scan = Some(RunScan::new(&self.storage, &objects)),
            }
        }
    }

    fn extent(&mut self, entry: Entry) -> Result<Extent, RunError> {
        match &mut self.scan {
            Some(scan) => scan.extent(entry),
            None => Err(RunError::Order { log: entry.log, start: entry.start }),
        }
    }
}

struct Merge<'a> {
    stats: MergeStats,
    live: Remembered<'a>,
    /// The end of the last key, live or not.
    last: Option<(LogId, Offset)>,
    out: &'a mut RunBuilder,
}

impl Merge<'_> {
    /// Takes the first key of the source that has the smallest.
    fn step(&mut self, source: &mut Source) -> Result<(), RunError> {
        match source.head.take() {
            Some(Head::Entry(entry)) => self.entry(source, entry)?,
            Some(Head::Adopt(object)) => {
                self.follow(object.first, (object.last, object.end))?;
                self.out.adopt(object)?;
                self.stats.adopted_objects += 1;
                self.stats.adopted_bytes += object.data_bytes;
            }
            None => {}
        }
        source.advance()
    }

    fn entry(&mut self, source: &mut Source, entry: Entry) -> Result<(), RunError> {
        self.stats.entries_read += 1;
        let (log, start, end) = (entry.log, entry.start, entry.end());
        self.follow((log, start), (log, end))?;
        let reference = entry.is_reference();
        let live = self.live.of(log).cloned().unwrap_or_default();
        let kept = live.bytes_in(start, end);
        if !reference {
            self.stats.copied_bytes += kept;
            self.stats.dropped_bytes += entry.lengths.bytes() - kept;
        }
        if kept == 0 {
            return Ok(());
        }
        let extent = source.extent(entry)?;
        if kept == end.since(start) {
            return self.out.push(&extent);
        }
        for range in live.ranges() {
            if let Some(piece) = extent.clip(range) {
                self.out.push(&piece)?;
            }
        }
        Ok(())
    }

    /// Refuses a key that starts before the one before it ended.
    fn follow(&mut self, first: (LogId, Offset), end: (LogId, Offset)) -> Result<(), RunError> {
        if self.last.is_some_and(|last| first < last) {
            return Err(RunError::Overlap { log: first.0, at: first.1 });
        }
        self.last = Some(end);
        Ok(())
    }
}
