//! A run as a plain map, random runs, and a storage that counts and can refuse not to wait.

pub(super) use super::super::build::{ENTRY_BYTES_MAX, ENTRY_MESSAGES_MAX};
pub(super) use super::super::extent::Entry;
pub(super) use super::super::merge::MergeStats;
use super::super::scan::RunScan;
use super::super::*;
use crate::lengths::Lengths;
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_base::{LogId, ObjectId, Offset, Ticket};
use thalweg_storage::{MemoryStorage, ObjectWriter, Storage, StorageError};

/// Every position that extents cover, and where messages end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) cells: BTreeMap<(u64, u64), Cell>,
    pub(super) ends: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Byte(u8),
    At(u64, u64),
}

impl Model {
    pub(super) fn of<'a>(extents: impl IntoIterator<Item = &'a Extent>) -> Self {
        let mut model = Self::default();
        for extent in extents {
            let (log, start) = (extent.log.0, extent.start.0);
            let cells: Vec<Cell> = match &extent.content {
                Content::Bytes { parts, .. } => parts.iter().flatten().map(|byte| Cell::Byte(*byte)).collect(),
                Content::Reference { source, from, lengths } => {
                    (0..lengths.bytes()).map(|n| Cell::At(source.0, from.0 + n)).collect()
                }
            };
            assert_eq!(cells.len() as u64, extent.lengths().bytes());
            for (n, cell) in cells.into_iter().enumerate() {
                assert_eq!(model.cells.insert((log, start + n as u64), cell), None, "covered twice");
            }
            let mut at = start;
            for length in extent.lengths().iter() {
                at += u64::from(length);
                model.ends.insert((log, at));
            }
        }
        model
    }

    /// The live part of the model. A message that a live range cuts ends there.
    pub(super) fn live(mut self, live: &dyn Fn(LogId) -> Option<Live>) -> Self {
        let is_live = |log: u64, at: u64| {
            live(LogId(log)).is_some_and(|live| live.ranges().iter().any(|range| range.contains(&Offset(at))))
        };
        let covered: BTreeSet<_> = self.cells.keys().copied().collect();
        self.cells.retain(|(log, at), _| is_live(*log, *at));
        self.ends.retain(|(log, at)| is_live(*log, at - 1));
        for (log, at) in self.cells.keys() {
            if covered.contains(&(*log, at + 1)) && !is_live(*log, at + 1) {
                self.ends.insert((*log, at + 1));
            }
        }
        self
    }
}

pub(super) fn bytes_extent(log: u64, start: u64, lengths: &[u32]) -> Extent {
    let lengths: Lengths = lengths.iter().copied().collect();
    let bytes: Vec<u8> =
        (0..lengths.bytes()).map(|n| (log.wrapping_mul(31) ^ (start + n).wrapping_mul(7)) as u8).collect();
    let half = bytes.len() / 2;
    let bytes = Bytes::from(bytes);
    let parts = vec![bytes.slice(..half), bytes.slice(half..)];
    Extent { log: LogId(log), start: Offset(start), content: Content::Bytes { parts, lengths } }
}

pub(super) fn reference(log: u64, start: u64, source: u64, from: u64, lengths: &[u32]) -> Extent {
    let lengths: Lengths = lengths.iter().copied().collect();
    let content = Content::Reference { source: LogId(source), from: Offset(from), lengths };
    Extent { log: LogId(log), start: Offset(start), content }
}

/// One arrival: log, gap before it, lengths, and the place it refers to, if it does.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    log: u64,
    gap: u64,
    lengths: Vec<u32>,
    refers: Option<(u64, u64)>,
}

pub(super) fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let one = (1..6u64, 0..4u64, prop::collection::vec(1..40u32, 1..8), prop::option::of((100..103u64, 0..50u64)));
    let one = one.prop_map(|(log, gap, lengths, refers)| Arrival { log, gap: gap.saturating_sub(2), lengths, refers });
    prop::collection::vec(one, 0..40)
}

/// Sorted runs of the arrivals; positions of a log grow from run to run.
pub(super) fn runs_of(batches: &[Vec<Arrival>]) -> Vec<Vec<Extent>> {
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    let sorted = |batch: &Vec<Arrival>| {
        let mut run: Vec<Extent> = Vec::new();
        for arrival in batch {
            let end = ends.entry(arrival.log).or_default();
            let start = *end + arrival.gap;
            let extent = match arrival.refers {
                Some((source, from)) => reference(arrival.log, start, source, from, &arrival.lengths),
                None => bytes_extent(arrival.log, start, &arrival.lengths),
            };
            *end = extent.end().0;
            run.push(extent);
        }
        run.sort_by_key(|extent| (extent.log, extent.start));
        run
    };
    batches.iter().map(sorted).collect()
}

pub(super) fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

pub(super) fn builder(storage: &Arc<dyn Storage>, first_id: u64, object_bytes: u64) -> RunBuilder {
    let mut next = first_id;
    let ids = move || {
        next += 1;
        ObjectId(next - 1)
    };
    RunBuilder::new(Arc::clone(storage), ids, RunOptions { object_bytes })
}

pub(super) fn write(
    storage: &Arc<dyn Storage>,
    first_id: u64,
    object_bytes: u64,
    extents: &[Extent],
) -> Vec<ObjectMeta> {
    let mut out = builder(storage, first_id, object_bytes);
    for extent in extents {
        out.push(extent).unwrap();
    }
    out.finish().unwrap()
}

/// One object.
pub(super) fn write_one(storage: &Arc<dyn Storage>, id: u64, extents: &[Extent]) -> ObjectMeta {
    write(storage, id, 64 << 20, extents).remove(0)
}

/// One object as versions before containers wrote it.
pub(super) fn write_earlier(storage: &Arc<dyn Storage>, id: u64, extents: &[Extent]) -> ObjectMeta {
    let mut writer = storage.create(ObjectId(id)).unwrap();
    writer.write(&super::super::earlier::write(ObjectId(id), extents)).unwrap();
    writer.finish().unwrap();
    load_meta(storage, ObjectId(id)).unwrap()
}

pub(super) fn read(storage: &Arc<dyn Storage>, run: &[ObjectMeta]) -> Vec<Extent> {
    let mut scan = RunScan::new(storage, run);
    std::iter::from_fn(|| scan.next_entry().unwrap().map(|entry| scan.extent(entry).unwrap())).collect()
}

/// A merge that reads the indexes of all objects: nothing was counted.
pub(super) fn merge_uncounted(
    inputs: &[Vec<ObjectMeta>],
    live: &dyn Fn(LogId) -> Option<Live>,
    out: &mut RunBuilder,
) -> Result<MergeStats, RunError> {
    merge(inputs, live, &|_| None, out)
}

/// Every position.
pub(super) fn all_positions() -> Live {
    Live::new([Offset::ZERO..Offset::MAX])
}

/// Counts reads, and answers none at once unless `warm`.
pub(super) struct Counted {
    pub(super) inner: Arc<dyn Storage>,
    pub(super) reads: Arc<AtomicUsize>,
    pub(super) warm: bool,
}

impl Counted {
    pub(super) fn around(inner: &Arc<dyn Storage>, warm: bool) -> (Arc<dyn Storage>, Arc<AtomicUsize>) {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Self { inner: Arc::clone(inner), reads: Arc::clone(&reads), warm };
        (Arc::new(counted), reads)
    }

    fn count(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

impl Storage for Counted {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.inner.create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.count();
        if self.warm { self.inner.try_read(object, range) } else { None }
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.count();
        self.inner.read(object, range)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.inner.len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.inner.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.inner.list()
    }
}

/// Looks up in objects of a storage, and waits for it.
pub(super) struct Waiting {
    pub(super) reader: RunReader,
    storage: Arc<dyn Storage>,
}

impl Waiting {
    pub(super) fn new(storage: &Arc<dyn Storage>, cache_bytes: u64) -> Self {
        Self { reader: RunReader::new(cache_bytes), storage: Arc::clone(storage) }
    }

    pub(super) fn find(&self, meta: &ObjectMeta, log: u64, at: u64) -> Result<Option<Hit>, RunError> {
        find_waiting(&self.reader, self.storage.as_ref(), meta, LogId(log), Offset(at))
    }

    pub(super) fn find_in_run(&self, run: &[ObjectMeta], log: u64, at: u64) -> Result<Option<Hit>, RunError> {
        for meta in run {
            if let Some(hit) = self.find(meta, log, at)? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    /// Bytes of an entry, relative to its start and clipped to it.
    pub(super) fn data(&self, hit: &Hit, range: Range<u64>) -> Result<Bytes, RunError> {
        let Place::Data { at, .. } = hit.entry.place else { return Ok(Bytes::new()) };
        let end = range.end.min(hit.entry.lengths.bytes());
        let pages = Pages::around(&hit.map, at + range.start..at + end)?;
        pages.checked(self.storage.read(pages.object(), pages.range.clone()).wait())
    }
}

/// Writes one wrong byte into every object, at `at`.
pub(super) struct Bent {
    pub(super) inner: Arc<dyn Storage>,
    pub(super) at: u64,
}

struct BentWriter {
    inner: Box<dyn ObjectWriter>,
    at: u64,
}

impl ObjectWriter for BentWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let mut bytes = bytes.to_vec();
        if let Some(byte) = self.at.checked_sub(self.written()).and_then(|n| bytes.get_mut(n as usize)) {
            *byte ^= 4;
        }
        self.inner.write(&bytes)
    }

    fn written(&self) -> u64 {
        self.inner.written()
    }

    fn finish(self: Box<Self>) -> Result<u64, StorageError> {
        self.inner.finish()
    }
}

impl Storage for Bent {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        Ok(Box::new(BentWriter { inner: self.inner.create(object)?, at: self.at }))
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.inner.try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        self.inner.read(object, range)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.inner.len(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.inner.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.inner.list()
    }
}
