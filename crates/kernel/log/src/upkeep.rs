//! Background work besides settling: merging runs, and freeing what nobody reads any more.
//!
//! Plans are pure functions ([`crate::run::plan`]); the work reads immutable objects and ends in one edit of the root. Killed at
//! any moment it leaves objects that no root names, which the next start removes.

use crate::attachment::Attachment;
use crate::damage::{Place, place_of_run_error};
use crate::directory::DirectoryError;
use crate::faults::Moment;
use crate::logs::Logs;
use crate::root::{DirectoryObject, Root, Run, Sealed};
use crate::run::plan::{Liveness, Rewrite, RunShape, plan_merge, plan_rewrite};
use crate::run::{Live, ObjectMeta, RunBuilder, RunError, RunOptions, live_bytes, merge};
use crate::shard::Bounds;
use std::collections::HashMap;
use std::ops::Range;
use thalweg_base::{LogId, Lsn, Millis, ObjectId, Offset};
use thalweg_journal::WaitError;
use thalweg_manifest::ManifestError;
use thalweg_storage::StorageError;
use thalweg_unit::sync::Mutex;
use thalweg_unit::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UpkeepError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Journal(#[from] WaitError),
    #[error("reading what is to be settled: {0}")]
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

/// Where background work stands. Only its own thread changes it.
#[derive(Default)]
pub(crate) struct Pace {
    /// When the oldest unsettled frame was first seen, and where the floor was.
    pub(crate) unsettled_since: Mutex<Option<(Lsn, Millis)>>,
    /// One round at a time: a second would move the floor past what the first has taken up.
    pub(crate) round: Mutex<()>,
    pub(crate) rested: Mutex<Millis>,
    reclaim: Mutex<Reclaim>,
    pub(crate) settled_bytes: AtomicU64,
    pub(crate) merged_bytes: AtomicU64,
    pub(crate) directory_bytes: AtomicU64,
    pub(crate) rounds: AtomicU64,
    pub(crate) merges: AtomicU64,
}

#[derive(Default)]
struct Reclaim {
    /// The count of deaths that the last pass knew.
    deaths: u64,
    last: Millis,
    /// Dead data is left somewhere, waiting for its time.
    waiting: bool,
}

/// Numbers for metrics and for whoever wants to know how settling keeps up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogsStats {
    pub logs: u64,
    /// Payload bytes that were appended since the start.
    pub appended_bytes: u64,
    /// Bytes of objects written by settling, by merging and rewriting, and for the directory, since the start.
    pub settled_bytes: u64,
    pub merged_bytes: u64,
    pub directory_bytes: u64,
    pub rounds: u64,
    pub merges: u64,
    /// Runs there are: no log's content is spread over more.
    pub runs: u64,
    pub objects: u64,
    /// Bytes of all objects, and how many of their data are still wanted as last counted.
    pub object_bytes: u64,
    pub data_bytes: u64,
    pub live_bytes: u64,
    /// Durable bytes in the journal that are not settled yet.
    pub lag_bytes: u64,
    /// When the oldest of them was first seen.
    pub lag_since: Option<Millis>,
}

impl<A: Attachment> Logs<A> {
    pub fn stats(&self) -> LogsStats {
        let (root, pace) = (self.sealed.root(), &self.pace);
        let sealed = || root.runs.iter().flat_map(|run| &run.objects);
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
            object_bytes: sealed().map(|o| o.meta.bytes()).sum::<u64>() + directory,
            data_bytes: sealed().map(|o| o.meta.data_bytes).sum(),
            live_bytes: sealed().map(|o| o.live_bytes).sum(),
            lag_bytes: self.durable().since(root.floor),
            lag_since: pace.unsettled_since.lock().map(|(_, since)| since),
        }
    }

    /// Merges the runs that a plan names, or directory objects; whether there was something to do.
    pub fn merge(&self) -> Result<bool, UpkeepError> {
        let merged = self.merge_directory().and_then(|did| Ok(did || self.merge_runs()?));
        merged.inspect_err(|error| self.note_upkeep(error))
    }

    /// The next range to merge. What is damaged stays as it is, and so does the order of the rest around it.
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
        let before: HashMap<ObjectId, Sealed> =
            inputs.iter().flat_map(|run| &run.objects).map(|object| (object.meta.id, object.clone())).collect();
        let objects: Vec<Sealed> =
            merged.iter().map(|meta| before.get(&meta.id).cloned().unwrap_or_else(|| sealed(*meta))).collect();
        let ids: Vec<u64> = inputs.iter().map(|run| run.id).collect();
        self.sealed.edit(merged.iter().map(|m| m.id).filter(|id| !before.contains_key(id)).collect(), |root| {
            let Some(at) = root.runs.iter().position(|run| ids.contains(&run.id)) else {
                return;
            };
            root.runs.retain(|run| !ids.contains(&run.id));
            if !objects.is_empty() {
                root.runs.insert(at, Run { id: ids[ids.len() - 1], objects });
            }
        })?;
        Ok(())
    }

    /// Copies what is live of the inputs, oldest first, into new objects; these, and how many bytes were copied.
    fn rebuild(&self, inputs: &[Vec<ObjectMeta>]) -> Result<(Vec<ObjectMeta>, u64), UpkeepError> {
        let mut builder = self.run_builder();
        let stats = merge(inputs, &|log| self.live(log), &mut builder)?;
        self.at(Moment::Looked);
        self.deaths_are_durable()?;
        let built = builder.finish()?;
        self.at(Moment::Unnamed);
        Ok((built, stats.copied_bytes))
    }

    /// Waits until every death that was seen so far is durable: a crash must not bring a log back whose content is gone. Not while the
    /// journal has no space: the thread that waits here is the one that frees some.
    fn deaths_are_durable(&self) -> Result<(), WaitError> {
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
        let Bounds { start, pinned } = self.bounds(log)?;
        Some(Live::new([Offset::ZERO..Offset(pinned), Offset(start)..Offset::MAX]))
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

    /// Looks for dead data if something died since the last look, and frees it: objects that are wholly dead at once, those less
    /// than half alive by a rewrite, and every other dead byte when it has been dead for `purge_after_ms`. Whether it did anything.
    pub fn reclaim(&self, now: Millis) -> Result<bool, UpkeepError> {
        {
            let mut reclaim = self.pace.reclaim.lock();
            let deaths = self.counters.deaths.load(Ordering::Relaxed);
            let is_early = reclaim.last.elapsed(now) < self.options.reclaim_every_ms;
            if (deaths == reclaim.deaths && !reclaim.waiting) || is_early {
                return Ok(false);
            }
        }
        let deaths = self.counters.deaths.load(Ordering::Relaxed);
        let (dead, is_sure) = self.count_dead(now)?;
        let mut did = false;
        for run in &dead {
            did |= self.rewrite(run, now).inspect_err(|error| self.note_upkeep(error))?;
        }
        let root = self.sealed.root();
        let waiting = root.runs.iter().flat_map(|run| &run.objects).any(|o| o.dead_since.is_some());
        *self.pace.reclaim.lock() = Reclaim { deaths, last: now, waiting: waiting || !is_sure };
        Ok(did)
    }

    /// Counts live bytes in every object and notes them in the root; the runs that hold dead data, and whether those are all.
    fn count_dead(&self, now: Millis) -> Result<(Vec<Run>, bool), UpkeepError> {
        let root = self.sealed.root();
        let mut is_sure = true;
        let mut counted: HashMap<ObjectId, u64> = HashMap::new();
        for object in root.runs.iter().flat_map(|run| &run.objects) {
            match live_bytes(&self.sealed.storage, &object.meta, &|log| self.live(log)) {
                Ok(live) => {
                    counted.insert(object.meta.id, live);
                }
                Err(error) => {
                    let (place, what) = place_of_run_error(&error).ok_or(error)?;
                    self.note_found(place, &what);
                    is_sure &= self.count_damaged(object, &mut counted);
                }
            }
        }
        let note = |root: &mut Root| {
            for object in root.runs.iter_mut().flat_map(|run| &mut run.objects) {
                let Some(live) = counted.get(&object.meta.id) else {
                    continue;
                };
                object.live_bytes = *live;
                // Not in the future: the clock may have been set back since.
                let dead_since = object.dead_since.map_or(now, |since| since.min(now));
                object.dead_since = (*live < object.meta.covered_bytes()).then_some(dead_since);
            }
        };
        let mut after = Root::clone(&root);
        note(&mut after);
        self.at(Moment::Looked);
        self.deaths_are_durable()?;
        if after.runs != root.runs {
            self.sealed.edit(Vec::new(), note)?;
        }
        let root = self.sealed.root();
        let dead = root.runs.iter().filter(|run| run.objects.iter().any(|object| object.dead_since.is_some()));
        Ok((dead.cloned().collect(), is_sure))
    }

    /// An object whose index is damaged is dead if none of the logs that it may hold is live, else it counts as it did. Whether that is
    /// sure: while a round is under way, the logs of its run are not known.
    fn count_damaged(&self, object: &Sealed, counted: &mut HashMap<ObjectId, u64>) -> bool {
        let all = Place::Object { object: object.meta.id, at: object.meta.bytes() };
        let located = self.locate(&self.sealed.root(), all);
        if located.logs.is_empty() {
            counted.insert(object.meta.id, 0);
        }
        !located.is_provisional
    }

    /// Rewrites or drops objects of one run, as planned; whether any was.
    fn rewrite(&self, run: &Run, now: Millis) -> Result<bool, UpkeepError> {
        let liveness = |o: &Sealed| Liveness { meta: o.meta, live_bytes: o.live_bytes, dead_since: o.dead_since };
        let objects: Vec<Liveness> = run.objects.iter().map(liveness).collect();
        let planned = plan_rewrite(&objects, now, self.options.purge_after_ms);
        for rewrite in &planned {
            // Live content of it is damaged: it stays as it is, and is known.
            if matches!(rewrite, Rewrite::Rewrite(id) if self.damage.has_object(*id)) {
                continue;
            }
            let (id, fresh) = match rewrite {
                Rewrite::Drop(id) => (*id, Vec::new()),
                Rewrite::Rewrite(id) => {
                    let metas = run.objects.iter().map(|object| object.meta).filter(|meta| meta.id == *id).collect();
                    let (fresh, copied) = self.rebuild(&[metas])?;
                    self.pace.merged_bytes.fetch_add(copied, Ordering::Relaxed);
                    (*id, fresh)
                }
            };
            self.sealed.edit(fresh.iter().map(|meta| meta.id).collect(), |root| {
                for run in &mut root.runs {
                    if let Some(at) = run.objects.iter().position(|object| object.meta.id == id) {
                        run.objects.splice(at..=at, fresh.iter().copied().map(sealed));
                    }
                }
                root.runs.retain(|run| !run.objects.is_empty());
            })?;
        }
        Ok(!planned.is_empty())
    }
}

/// An object that was just built: all of it is live.
pub(crate) fn sealed(meta: ObjectMeta) -> Sealed {
    Sealed { meta, live_bytes: meta.covered_bytes(), dead_since: None }
}
