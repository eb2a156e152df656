//! The ledger: how many bytes of each object are live. It follows the changes of logs, and is not found by scanning all
//! objects.
//!
//! **Counted objects.** When the bounds of a log change (trim, pin, unpin, delete), its shard remembers which content
//! the log retained *when it was last counted* ([`crate::shard::Moved`]). For every object in the ledger this holds at
//! all times:
//!
//! > its number is the sum, over its entries, of the bytes that the entry's log retained when that log was last
//! > counted.
//!
//! A pass ([`Logs::count`]) takes the logs that have moved, finds in each run the index blocks that hold some of the
//! changed ranges, adds the differences, and then marks these logs as counted with their present bounds. So a pass
//! costs in proportion to the content that died. The counted bounds are older than the present ones, and content that
//! was dead once is never needed later; so merges and rewrites that follow the ledger keep too much, never too little.
//!
//! - A round counts its objects when it names them. It holds [`Counting`] from there to the end of its edit, so no pass
//!   marks one of its logs as counted in between. A pass reads every run of the root in force, those that came during
//!   the pass too, before it adds anything.
//! - [`Counting`] is held over an edit of the root, which waits for the device. The numbers have a short lock of their
//!   own ([`Ledger::lock`]), under which nothing waits and no other lock is taken: event loops read sums for metrics.
//! - Merges and rewrites leave out content that is dead now or was dead when it was counted: all that they write is
//!   live by the ledger. No pass runs at the same time (`Pace::upkeep`).
//! - An object is dropped only after its index was read and held nothing that is live: an error in the ledger could
//!   cost space, and no data.
//!
//! **Objects that are not counted.** The ledger is in memory. After a start it is empty, and passes fill it in the
//! background, each from a bounded number of index bytes; until then the numbers of the root serve. The same happens if
//! more logs move between two passes than shards remember. An object whose index is damaged, or whose file is gone, is
//! not counted, and dies with the last log that it may hold.

use crate::attachment::Attachment;
use crate::damage::Place;
use crate::faults::Moment;
use crate::logs::{Logs, shard_of_log};
use crate::root::{Root, Run, RunObject};
use crate::run::{Live, LiveChange, ObjectMeta, RunError, live_bytes, live_change};
use crate::shard::Retained;
use crate::upkeep::UpkeepError;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use thalweg_base::{LogId, Millis, ObjectId, Offset};
use thalweg_manifest::ManifestError;
use thalweg_unit::sync::{Mutex, MutexGuard};

/// Owns the numbers of live bytes.
#[derive(Default)]
pub(crate) struct Ledger {
    counting: Mutex<()>,
    kept: Mutex<Kept>,
}

/// The right to count objects and to edit the root with the numbers. A pass and a round exclude each other by it.
pub(crate) struct Counting<'a>(#[expect(dead_code, reason = "it is held, and never read")] MutexGuard<'a, ()>);

#[derive(Default)]
pub(crate) struct Kept {
    /// The live bytes of objects that are counted.
    live: HashMap<ObjectId, u64>,
    /// Counted objects that are to be counted once more, from their indexes.
    doubted: HashSet<ObjectId>,
}

impl Kept {
    /// Objects whose content is all live have come, others have gone.
    pub(crate) fn replace(&mut self, gone: impl IntoIterator<Item = ObjectId>, made: &[ObjectMeta]) {
        gone.into_iter().for_each(|id| self.forget(id));
        self.live.extend(made.iter().map(|meta| (meta.id, meta.covered_bytes())));
    }

    pub(crate) fn insert(&mut self, objects: &[RunObject]) {
        self.live.extend(objects.iter().map(|object| (object.meta.id, object.live_bytes)));
    }

    fn forget(&mut self, id: ObjectId) {
        self.live.remove(&id);
        self.doubted.remove(&id);
    }
}

impl Ledger {
    /// Waits for a pass or a round that counts, and so for the device.
    pub(crate) fn count(&self) -> Counting<'_> {
        Counting(self.counting.lock())
    }

    /// The numbers. The caller holds them for a moment: no device is waited for, and no other lock taken, under this
    /// lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    /// Live bytes of an object, if they are counted.
    pub(crate) fn get(&self, id: ObjectId) -> Option<u64> {
        self.lock().live.get(&id).copied()
    }

    /// The live bytes of objects: the ledger's numbers, and the root's for objects that are not counted.
    pub(crate) fn sum<'a>(&self, objects: impl Iterator<Item = &'a RunObject>) -> u64 {
        let kept = self.lock();
        objects.map(|object| kept.live.get(&object.meta.id).copied().unwrap_or(object.live_bytes)).sum()
    }

    /// Has an object counted from its index once more, to compare.
    pub(crate) fn doubt(&self, id: ObjectId) {
        let mut kept = self.lock();
        if kept.live.contains_key(&id) {
            kept.doubted.insert(id);
        }
    }

    pub(crate) fn forget(&self, id: ObjectId) {
        self.lock().forget(id);
    }
}

/// A log that is about to be counted.
struct MovedLog {
    after: Option<Retained>,
    change: LiveChange,
}

/// The source of a pass's numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NumbersFrom {
    /// The whole index of each object.
    Indexes,
    /// The earlier number, and the changes of moved logs.
    Differences,
}

/// Live bytes of the objects that a pass has counted; `None` for objects that cannot be counted.
type Found = HashMap<ObjectId, Option<u64>>;

impl<A: Attachment> Logs<A> {
    /// Brings the ledger up to date, within the bounds of one pass. Returns whether every object is counted.
    pub(crate) fn count(&self, now: Millis) -> Result<bool, UpkeepError> {
        self.start_over_if_lost();
        self.count_moved(now)?;
        self.count_rest(now)
    }

    /// The content of a log that was live when the log was last counted.
    fn live_counted(&self, log: LogId) -> Option<Live> {
        self.shards[shard_of_log(log)].lock().counted_retained(log).map(Retained::live)
    }

    /// The content of a log that a merge keeps: live now, and live when the log was counted.
    pub(crate) fn live_kept(&self, log: LogId) -> Option<Live> {
        let shard = self.shards[shard_of_log(log)].lock();
        let now = shard.retained(log)?.live();
        Some(shard.counted_retained(log).map_or(now.clone(), |counted| counted.live().and(&now)))
    }

    /// If a shard could not remember all logs that have moved, every object is counted once more.
    fn start_over_if_lost(&self) {
        // No round counts its objects while this is held.
        let _counting = self.ledger.count();
        if self.shards.iter().any(|shard| shard.lock().moved.is_lost) {
            for shard in &self.shards {
                shard.lock().moved.clear();
            }
            *self.ledger.lock() = Kept::default();
        }
    }

    /// Counts the logs that have moved.
    fn count_moved(&self, now: Millis) -> Result<(), UpkeepError> {
        let moved = self.moved();
        if moved.is_empty() {
            return Ok(());
        }
        let (mut found, mut looked) = (Found::new(), HashSet::new());
        let counting = loop {
            for run in self.sealed.root().runs.iter().filter(|run| looked.insert(run.id)) {
                self.look(run, &moved, &mut found)?;
            }
            self.at(Moment::Looked);
            self.deaths_are_durable()?;
            let counting = self.ledger.count();
            if self.sealed.root().runs.iter().all(|run| looked.contains(&run.id)) {
                break counting;
            }
        };
        self.note_counted(&counting, found, NumbersFrom::Differences, now)?;
        for MovedLog { after, change } in moved {
            let mut shard = self.shards[shard_of_log(change.log)].lock();
            let now = shard.retained(change.log);
            let now = if self.options.faults().pass_forgets_later_deaths() { after } else { now };
            shard.moved.counted(change.log, after, now);
        }
        Ok(())
    }

    /// The logs that have moved, in the order of their ids.
    fn moved(&self) -> Vec<MovedLog> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(shard.moved.logs().map(|(log, before)| {
                let after = shard.retained(log);
                let within = between(before, after);
                let live = |retained: Option<Retained>| retained.map(Retained::live).unwrap_or_default();
                MovedLog { after, change: LiveChange { log, before: live(Some(before)), after: live(after), within } }
            }));
        }
        all.sort_unstable_by_key(|moved| moved.change.log);
        all
    }

    /// Counts the changes of these logs in the counted objects of a run.
    fn look(&self, run: &Run, moved: &[MovedLog], found: &mut Found) -> Result<(), UpkeepError> {
        for RunObject { meta, .. } in &run.objects {
            let from = moved.partition_point(|moved| moved.change.log < meta.first.0);
            let reaches = |moved: &&MovedLog| {
                let LiveChange { log, within, .. } = &moved.change;
                (*log, within.start) < (meta.last, meta.end) && meta.first < (*log, within.end)
            };
            let of_object = moved[from..].iter().take_while(|moved| moved.change.log <= meta.last);
            let changes: Vec<_> = of_object.filter(reaches).map(|moved| moved.change.clone()).collect();
            if changes.is_empty() {
                continue;
            }
            let Some(counted) = self.ledger.get(meta.id) else { continue };
            let live = match live_change(&self.sealed.reader, self.sealed.storage.as_ref(), meta, counted, &changes) {
                Ok(0) => continue,
                Ok(change) => counted.checked_add_signed(change).filter(|live| *live <= meta.covered_bytes()),
                Err(error) => self.damage_of_run_error(&error).map(|_| None).ok_or(error)?,
            };
            found.insert(meta.id, live);
        }
        Ok(())
    }

    /// Objects to count from their indexes: those that are not counted, and doubted ones with the number that the
    /// ledger has.
    fn uncounted(&self) -> Vec<(RunObject, Option<u64>)> {
        let root = self.sealed.root();
        let kept = self.ledger.lock();
        let all = root.runs.iter().flat_map(|run| &run.objects);
        let all = all.map(|object| (*object, kept.live.get(&object.meta.id).copied()));
        all.filter(|(object, counted)| counted.is_none() || kept.doubted.contains(&object.meta.id)).collect()
    }

    /// Counts objects that are not counted, or doubted, from their indexes; whether none is left.
    fn count_rest(&self, now: Millis) -> Result<bool, UpkeepError> {
        let (mut found, mut damaged, mut read, mut is_sure) = (Found::new(), Vec::new(), 0, true);
        for (object, counted) in self.uncounted() {
            if read >= self.options.count_bytes {
                is_sure = false;
                break;
            }
            read += object.meta.index_bytes;
            let id = object.meta.id;
            let (live, is_whole) = self.count_object(&object)?;
            is_sure &= live.is_some();
            if !is_whole {
                damaged.push(id);
            } else if let Some(counted) = counted.filter(|counted| Some(*counted) != live) {
                tracing::warn!(object = %id, counted, ?live, "the ledger's number of live bytes of an object was wrong");
            }
            found.insert(id, live);
        }
        self.at(Moment::Looked);
        self.deaths_are_durable()?;
        self.note_counted(&self.ledger.count(), found, NumbersFrom::Indexes, now)?;
        // The device may give them back later.
        self.ledger.lock().doubted.extend(damaged);
        Ok(is_sure)
    }

    /// The live bytes of an object, by the bounds with which its logs are counted; `None` if they cannot be known now.
    /// And whether the number comes from the object's index.
    pub(crate) fn count_object(&self, object: &RunObject) -> Result<(Option<u64>, bool), RunError> {
        let error = match live_bytes(&self.sealed.storage, &object.meta, &|log| self.live_counted(log)) {
            Ok(live) => return Ok((Some(live), true)),
            Err(error) => error,
        };
        let (place, what) = self.damage_of_run_error(&error).ok_or(error)?;
        self.note_found(place, &what);
        // The object is dead if none of the logs that it may hold is live, else its number stays as it was. While a
        // round is under way, the logs of its run are not known.
        let all = Place::Object { object: object.meta.id, at: object.meta.bytes() };
        let located = self.locate(&self.sealed.root(), all);
        match (located.logs.is_empty(), located.is_provisional) {
            (_, true) => Ok((None, false)),
            (true, false) => Ok((Some(0), false)),
            (false, false) => Ok((Some(object.live_bytes.max(1)), false)),
        }
    }

    /// Puts new numbers into the ledger. An edit of the root notes the objects in which content has died for the first
    /// time, and those that are wholly live again.
    fn note_counted(
        &self,
        _: &Counting<'_>,
        found: Found,
        from: NumbersFrom,
        now: Millis,
    ) -> Result<(), ManifestError> {
        let noted = self.to_note(&found, now);
        if !noted.is_empty() {
            self.sealed.edit(Vec::new(), |root: &mut Root| {
                for object in root.runs.iter_mut().flat_map(|run| &mut run.objects) {
                    if let Some((live, dead_since)) = noted.get(&object.meta.id) {
                        (object.live_bytes, object.dead_since) = (*live, *dead_since);
                    }
                }
            })?;
        }
        let mut kept = self.ledger.lock();
        for (id, live) in found {
            // A doubted number stays doubted when only differences are added: a wrong number plus a difference is
            // wrong, too.
            if from == NumbersFrom::Indexes || live.is_none() {
                kept.forget(id);
            }
            kept.live.extend(live.map(|live| (id, live)));
        }
        Ok(())
    }

    /// The objects that the root is to be told of, each with its live bytes and since when it is not all live.
    fn to_note(&self, found: &Found, now: Millis) -> HashMap<ObjectId, (u64, Option<Millis>)> {
        let root = self.sealed.root();
        let kept = self.ledger.lock();
        let mut noted = HashMap::new();
        for object in root.runs.iter().flat_map(|run| &run.objects) {
            let counted = || kept.live.get(&object.meta.id).copied();
            let live = found.get(&object.meta.id).copied().unwrap_or_else(counted);
            let is_dead = live.map_or(object.dead_since.is_some(), |live| live < object.meta.covered_bytes());
            // Not in the future: the clock may have been set back since.
            let dead_since = is_dead.then(|| object.dead_since.map_or(now, |since| since.min(now)));
            if dead_since != object.dead_since {
                noted.insert(object.meta.id, (live.unwrap_or(object.live_bytes), dead_since));
            }
        }
        noted
    }

    /// Counts objects that a round has made, of these ranges of logs. The round goes on counting until they are in the
    /// root.
    pub(crate) fn count_made(
        &self,
        _: &Counting<'_>,
        made: &[ObjectMeta],
        ranges: &[(LogId, Range<Offset>)],
        now: Millis,
    ) -> Vec<RunObject> {
        let mut sealed: Vec<RunObject> = made.iter().map(|meta| RunObject::new(*meta)).collect();
        if self.options.faults().round_counts_all_as_live() {
            return sealed;
        }
        for (log, range) in ranges {
            let live = self.live_counted(*log).unwrap_or_default();
            if live.bytes_in(range.start, range.end) == range.end.since(range.start) {
                continue;
            }
            let first = sealed.partition_point(|o| (o.meta.last, o.meta.end) <= (*log, range.start));
            for object in sealed[first..].iter_mut().take_while(|o| o.meta.first < (*log, range.end)) {
                let meta = &object.meta;
                let start = if meta.first.0 == *log { range.start.max(meta.first.1) } else { range.start };
                let end = if meta.last == *log { range.end.min(meta.end) } else { range.end };
                object.live_bytes -= end.since(start) - live.bytes_in(start, end);
                object.dead_since = (object.live_bytes < meta.covered_bytes()).then_some(now);
            }
        }
        if sealed.iter().any(|object| object.dead_since.is_some()) {
            self.note_death();
        }
        sealed
    }

    /// Objects whose number in the ledger differs from a count of their index, and the number of uncounted objects. For
    /// tests.
    #[cfg(feature = "faults")]
    pub fn miscounted(&self) -> Result<(Vec<Miscount>, usize), RunError> {
        let _upkeep = self.pace.upkeep.lock();
        let _counting = self.ledger.count();
        if self.shards.iter().any(|shard| shard.lock().moved.is_lost) {
            return Ok((Vec::new(), usize::MAX));
        }
        let (mut wrong, mut uncounted) = (Vec::new(), 0);
        for object in self.sealed.root().runs.iter().flat_map(|run| &run.objects) {
            let live = live_bytes(&self.sealed.storage, &object.meta, &|log| self.live_counted(log))?;
            let kept = self.ledger.lock();
            match kept.live.get(&object.meta.id) {
                None => uncounted += 1,
                Some(counted) if *counted != live && !kept.doubted.contains(&object.meta.id) => {
                    wrong.push((object.meta.id, *counted, live))
                }
                Some(_) => {}
            }
        }
        Ok((wrong, uncounted))
    }
}

/// An object with the number of live bytes that is kept, and the one that its index gives.
#[cfg(feature = "faults")]
pub type Miscount = (ObjectId, u64, u64);

/// Outside of these positions, the same content is wanted before and after.
fn between(before: Retained, after: Option<Retained>) -> Range<Offset> {
    let Some(after) = after else { return Offset::ZERO..Offset::MAX };
    let (before, after) = (before.unwanted(), after.unwanted());
    let Range { start, end } = match (before.is_empty(), after.is_empty()) {
        (true, _) => after,
        (_, true) => before,
        _ if before.start == after.start => before.end.min(after.end)..before.end.max(after.end),
        _ if before.end == after.end => before.start.min(after.start)..before.start.max(after.start),
        _ => before.start.min(after.start)..before.end.max(after.end),
    };
    Offset(start)..Offset(end)
}
