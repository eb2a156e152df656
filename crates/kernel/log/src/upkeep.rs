//! Background work besides settling: merging runs, and reclaiming the space of dead data.
//!
//! Plans are pure functions ([`crate::run::plan`]); the work reads immutable objects and ends in one edit of the root.
//! Killed at any moment it leaves objects that no root names, which the next start removes.

use crate::attachment::Attachment;
use crate::directory::DirectoryError;
use crate::faults::Moment;
use crate::logs::Logs;
use crate::root::{DirectoryObject, Run, RunObject};
use crate::run::plan::{Liveness, Rewrite, RunShape, plan_merge, plan_rewrite};
use crate::run::{Live, ObjectMeta, RunBuilder, RunError, RunOptions};
use crate::shard::Retained;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use thalweg_base::{LogId, Lsn, Millis, ObjectId};
use thalweg_journal::WaitError;
use thalweg_manifest::ManifestError;
use thalweg_storage::StorageError;
use thalweg_unit::sync::Mutex;
use thalweg_unit::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// Why a round, a merge or a pass failed. Its edit counts as not made, and the job tries again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpkeepError {
    /// An object of a run cannot be read or written.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A directory object cannot be read or written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The manifest refused or failed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The journal cannot become durable.
    #[error(transparent)]
    Journal(#[from] WaitError),
    /// Journal frames cannot be read.
    #[error("journal frames cannot be read, so they are not settled: {0}")]
    Read(String),
}

impl UpkeepError {
    /// The disk is full: the work can be tried again when there is space.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(
            self,
            Self::Directory(DirectoryError::Storage(StorageError::NoSpace(_)))
                | Self::Run(RunError::Storage(StorageError::NoSpace(_)))
                | Self::Manifest(ManifestError::NoSpace)
                | Self::Journal(WaitError::NoSpace)
        )
    }
}

/// The state of background work. Each part has a lock of its own, and the turn of one job changes it.
#[derive(Default)]
pub(crate) struct Pace {
    /// When the oldest unsettled frame was first seen, and where the floor was.
    pub(crate) unsettled_since: Mutex<Option<(Lsn, Millis)>>,
    /// One round at a time: a second one would move the floor past pieces that the first has taken up.
    pub(crate) round: Mutex<()>,
    pub(crate) rested: Mutex<Millis>,
    reclaim: Mutex<Reclaim>,
    /// Held by jobs that replace objects or count them: a merge, a pass of reclaiming.
    pub(crate) upkeep: Mutex<()>,
    pub(crate) settled_bytes: AtomicU64,
    pub(crate) merged_bytes: AtomicU64,
    pub(crate) directory_bytes: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) merges: AtomicU64,
}

impl Pace {
    /// The time until the next pass of reclaiming, in milliseconds; `None` if no pass has work before something dies.
    pub(crate) fn next_reclaim(&self, deaths: u64, now: Millis, every_ms: u64) -> Option<u64> {
        let mut reclaim = self.reclaim.lock();
        let is_wanted = Some(deaths) != reclaim.deaths || reclaim.waiting;
        is_wanted.then(|| every_ms.saturating_sub(reclaim.last.elapsed(now)))
    }
}

#[derive(Default)]
struct Reclaim {
    /// The count of deaths that the last pass knew; `None` before the first, which finds nothing counted.
    deaths: Option<u64>,
    last: Millis,
    /// Dead data is left somewhere, waiting for its time, or objects are not counted yet.
    waiting: bool,
}

/// Numbers for metrics: how settling keeps up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogsStats {
    /// Number of logs.
    pub logs: u64,
    /// Payload bytes that were appended since the start.
    pub appended_bytes: u64,
    /// Bytes of objects written by settling, since the start.
    pub settled_bytes: u64,
    /// Bytes of objects written by merging and rewriting, since the start.
    pub merged_bytes: u64,
    /// Bytes of directory objects written since the start.
    pub directory_bytes: u64,
    /// Rounds of settling since the start.
    pub rounds: u64,
    /// Merges since the start.
    pub merges: u64,
    /// Runs there are: no log's content is spread over more.
    pub runs: u64,
    /// Objects that the root names: of runs, of lists and of the directory.
    pub objects: u64,
    /// Bytes of all objects.
    pub object_bytes: u64,
    /// Bytes of data in objects of runs.
    pub data_bytes: u64,
    /// Of these, bytes that were live at the last count.
    pub live_bytes: u64,
    /// Durable bytes in the journal that are not settled yet.
    pub lag_bytes: u64,
    /// When the oldest of them was first seen.
    pub lag_since: Option<Millis>,
}

impl<A: Attachment> Logs<A> {
    /// Figures of now.
    pub fn stats(&self) -> LogsStats {
        let (root, pace) = (self.sealed.root(), &self.pace);
        let sealed = || root.runs.iter().flat_map(|run| &run.objects);
        let lists: u64 = root.runs.iter().flat_map(|run| &run.pages).map(|page| page.bytes).sum();
        let directory: u64 = root.directory.iter().map(|object| object.bytes).sum();
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        LogsStats {
            logs: self.len() as u64,
            appended_bytes: get(&self.counters.appended_bytes),
            settled_bytes: get(&pace.settled_bytes),
            merged_bytes: get(&pace.merged_bytes),
            directory_bytes: get(&pace.directory_bytes),
            rounds: get(&pace.rounds),
            merges: get(&pace.merges),
            runs: root.runs.len() as u64,
            objects: root.object_ids().count() as u64,
            object_bytes: sealed().map(|o| o.meta.bytes()).sum::<u64>() + lists + directory,
            data_bytes: sealed().map(|o| o.meta.data_bytes).sum(),
            live_bytes: self.ledger.sum(sealed()),
            lag_bytes: self.durable().since(root.floor),
            lag_since: pace.unsettled_since.lock().map(|(_, since)| since),
        }
    }

    /// Merges the runs that a plan names, or directory objects; whether there was something to do.
    pub fn merge(&self) -> Result<bool, UpkeepError> {
        let merged = self.merge_directory().and_then(|did| Ok(did || self.merge_runs()?));
        merged.inspect_err(|error| self.note_upkeep(error))
    }

    /// The next range to merge. It contains nothing damaged: damaged inputs stay where they are in the order.
    fn plan<T>(&self, all: &[T], bytes: impl Fn(&T) -> u64, is_damaged: impl Fn(&T) -> bool) -> Option<Range<usize>> {
        let mut start = 0;
        for whole in all.split(is_damaged) {
            let shapes: Vec<_> = whole.iter().map(|one| RunShape { bytes: bytes(one) }).collect();
            if let Some(range) = plan_merge(&shapes, self.options.fan_in) {
                return Some(start + range.start..start + range.end);
            }
            start += whole.len() + 1;
        }
        None
    }

    fn merge_runs(&self) -> Result<bool, UpkeepError> {
        let _upkeep = self.pace.upkeep.lock();
        let root = self.sealed.root();
        let is_damaged = |run: &Run| run.objects.iter().any(|object| self.damage.has_object(object.meta.id));
        let Some(range) = self.plan(&root.runs, Run::bytes, is_damaged) else {
            return Ok(false);
        };
        let inputs = &root.runs[range];
        self.replace_runs(inputs)?;
        self.pace.merges.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Puts one run in the place of `inputs`, which stand next to each other.
    fn replace_runs(&self, inputs: &[Run]) -> Result<(), UpkeepError> {
        let metas: Vec<Vec<ObjectMeta>> =
            inputs.iter().map(|run| run.objects.iter().map(|object| object.meta).collect()).collect();
        let (merged, copied) = self.rebuild(&metas)?;
        self.pace.merged_bytes.fetch_add(copied, Ordering::Relaxed);
        let before: HashMap<ObjectId, RunObject> =
            inputs.iter().flat_map(|run| &run.objects).map(|object| (object.meta.id, *object)).collect();
        let objects: Vec<RunObject> =
            merged.iter().map(|meta| before.get(&meta.id).copied().unwrap_or_else(|| RunObject::new(*meta))).collect();
        let ids: Vec<u64> = inputs.iter().map(|run| run.id).collect();
        let made: Vec<ObjectMeta> = merged.iter().filter(|meta| !before.contains_key(&meta.id)).copied().collect();
        self.sealed.edit(made.iter().map(|meta| meta.id).collect(), |root| {
            let Some(at) = root.runs.iter().position(|run| ids.contains(&run.id)) else {
                return;
            };
            root.runs.retain(|run| !ids.contains(&run.id));
            if !objects.is_empty() {
                root.runs.insert(at, Run::new(ids[ids.len() - 1], objects));
            }
        })?;
        let kept: HashSet<ObjectId> = merged.iter().map(|meta| meta.id).collect();
        self.ledger.lock().replace(before.into_keys().filter(|id| !kept.contains(id)), &made);
        Ok(())
    }

    /// Copies the live content of the inputs, oldest first, into new objects. Returns these and how many bytes were
    /// copied.
    fn rebuild(&self, inputs: &[Vec<ObjectMeta>]) -> Result<(Vec<ObjectMeta>, u64), UpkeepError> {
        let mut builder = self.run_builder();
        let stats = crate::run::merge(inputs, &|log| self.live_kept(log), &|id| self.ledger.get(id), &mut builder)?;
        self.at(Moment::Looked);
        self.deaths_are_durable()?;
        let built = builder.finish()?;
        self.at(Moment::Unnamed);
        Ok((built, stats.copied_bytes))
    }

    /// Waits until every death that was seen so far is durable: a crash must not bring a log back whose content is
    /// gone. Not while the journal has no space: the thread that waits here is the one that frees some.
    pub(crate) fn deaths_are_durable(&self) -> Result<(), WaitError> {
        if self.options.faults().merge_ignores_undurable_deaths() {
            return Ok(());
        }
        self.journal.wait_unless_full(self.journal.end())
    }

    pub(crate) fn run_builder(&self) -> RunBuilder {
        let ids = self.sealed.unit().object_ids();
        let options = RunOptions { object_bytes: self.options.object_bytes };
        RunBuilder::new(std::sync::Arc::clone(&self.sealed.storage), ids, options)
    }

    pub(crate) fn live(&self, log: LogId) -> Option<Live> {
        self.retained(log).map(Retained::live)
    }

    fn merge_directory(&self) -> Result<bool, UpkeepError> {
        let root = self.sealed.root();
        let is_damaged = |object: &DirectoryObject| self.damage.has_object(object.id);
        let Some(range) = self.plan(&root.directory, |object| object.bytes, is_damaged) else {
            return Ok(false);
        };
        // Below the oldest object there is nothing that a tombstone could hide.
        let oldest = range.start == 0;
        let inputs = root.directory[range].to_vec();
        let merged = crate::checkpoint::merge(&self.sealed, &inputs, oldest)?;
        self.pace.directory_bytes.fetch_add(merged.bytes, Ordering::Relaxed);
        let replaced = |object: &DirectoryObject| inputs.iter().any(|input| input.id == object.id);
        self.sealed.edit(vec![merged.id], |root| {
            let Some(at) = root.directory.iter().position(replaced) else {
                return;
            };
            root.directory.retain(|object| !replaced(object));
            root.directory.insert(at, merged);
        })?;
        Ok(true)
    }

    /// Frees dead data if something died since the last pass: drops objects that are wholly dead, rewrites those less
    /// than half live, and rewrites the others when some of their data has been dead for `purge_after_ms`. Counts
    /// objects that are not counted yet, from about `count_bytes` of indexes in each pass. Returns whether it freed
    /// anything.
    pub fn reclaim(&self, now: Millis) -> Result<bool, UpkeepError> {
        let deaths = self.counters.deaths.load(Ordering::Relaxed);
        {
            let mut reclaim = self.pace.reclaim.lock();
            let is_early = reclaim.last.elapsed(now) < self.options.reclaim_every_ms;
            if (reclaim.deaths == Some(deaths) && !reclaim.waiting) || is_early {
                return Ok(false);
            }
        }
        let _upkeep = self.pace.upkeep.lock();
        let is_sure = self.count(now)?;
        let did = self.free(now).inspect_err(|error| self.note_upkeep(error))?;
        let root = self.sealed.root();
        let waiting = root.runs.iter().flat_map(|run| &run.objects).any(|o| o.dead_since.is_some());
        *self.pace.reclaim.lock() = Reclaim { deaths: Some(deaths), last: now, waiting: waiting || !is_sure };
        Ok(did)
    }

    /// Drops and rewrites objects, as planned; whether any was.
    fn free(&self, now: Millis) -> Result<bool, UpkeepError> {
        let root = self.sealed.root();
        let dead: Vec<RunObject> =
            root.runs.iter().flat_map(|run| &run.objects).filter(|o| o.dead_since.is_some()).copied().collect();
        let liveness = |o: &RunObject| {
            let live_bytes = self.ledger.get(o.meta.id).unwrap_or(o.live_bytes);
            Liveness { meta: o.meta, live_bytes, dead_since: o.dead_since }
        };
        let planned = plan_rewrite(&dead.iter().map(liveness).collect::<Vec<_>>(), now, self.options.purge_after_ms);
        let planned: HashMap<ObjectId, Rewrite> = planned.into_iter().map(|plan| (plan.object(), plan)).collect();
        let (mut dropped, mut did) = (HashSet::new(), false);
        for object in &dead {
            match planned.get(&object.meta.id) {
                Some(Rewrite::Drop(id)) if self.is_dead(object)? => {
                    dropped.insert(*id);
                }
                // Live content of it is damaged: it stays as it is, and is known.
                Some(Rewrite::Rewrite(id)) if !self.damage.has_object(*id) => {
                    self.rewrite(object.meta)?;
                    did = true;
                }
                _ => {}
            }
        }
        if !dropped.is_empty() {
            self.drop_objects(&dropped)?;
            did = true;
        }
        Ok(did)
    }

    /// Whether the index of an object that is dead by the ledger says the same.
    fn is_dead(&self, object: &RunObject) -> Result<bool, UpkeepError> {
        match self.count_object(object)?.0 {
            Some(0) => Ok(true),
            Some(live) => {
                let id = object.meta.id;
                tracing::warn!(object = %id, live, "the ledger counted a live object as dead: the object is kept and counted again");
                self.ledger.forget(id);
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// One edit for all: each is a write of the root.
    fn drop_objects(&self, dropped: &HashSet<ObjectId>) -> Result<(), UpkeepError> {
        self.deaths_are_durable()?;
        self.sealed.edit(Vec::new(), |root| {
            for run in &mut root.runs {
                run.objects.retain(|object| !dropped.contains(&object.meta.id));
            }
            root.runs.retain(|run| !run.objects.is_empty());
        })?;
        self.ledger.lock().replace(dropped.iter().copied(), &[]);
        Ok(())
    }

    /// Copies the live content of an object into new ones that take its place.
    fn rewrite(&self, old: ObjectMeta) -> Result<(), UpkeepError> {
        let (fresh, copied) = self.rebuild(&[vec![old]])?;
        self.pace.merged_bytes.fetch_add(copied, Ordering::Relaxed);
        // All of it may be live after all: then it is kept as it is.
        let made = fresh.iter().map(|meta| meta.id).filter(|id| *id != old.id).collect();
        self.sealed.edit(made, |root| {
            for run in &mut root.runs {
                if let Some(at) = run.objects.iter().position(|object| object.meta.id == old.id) {
                    run.objects.splice(at..=at, fresh.iter().copied().map(RunObject::new));
                }
            }
            root.runs.retain(|run| !run.objects.is_empty());
        })?;
        self.ledger.lock().replace([old.id], &fresh);
        Ok(())
    }
}
