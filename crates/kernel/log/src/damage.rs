//! The register of damage: the stored bytes of a unit that are known to differ from those written, and their logs.
//!
//! Reads, rounds and the scrub note the damage that they meet; [`Logs::refresh_damage`] locates it, and forgets damage
//! that nothing needs, because its object or segment is gone, or the logs that it belongs to. The register is in memory
//! only: an opening notes objects whose length has changed, and the next pass of the scrub notes the rest.

use crate::attachment::Attachment;
use crate::directory::DirectoryError;
use crate::located::{Affected, Located};
use crate::logs::Logs;
use crate::root::Root;
use crate::run::RunError;
use crate::shard::Slot;
use crate::upkeep::UpkeepError;
use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;
use thalweg_base::{Lsn, Millis, ObjectId, Offset};
use thalweg_storage::{Storage, StorageError};
use thalweg_unit::sync::Mutex;

/// Damaged places that are remembered one by one. Of further ones the first of each object is, since merging has to
/// leave that object out; the others are only counted.
pub const DAMAGES_MAX: usize = 1024;

/// The place of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The root's file.
    Manifest,
    /// These positions of the journal; none if it is the header of the segment that starts there.
    Journal { at: Lsn, end: Lsn },
    /// An object of the directory checkpoint, from this byte on.
    Directory { object: ObjectId, at: u64 },
    /// An object of a run, from this byte on.
    Object { object: ObjectId, at: u64 },
    /// A list object: it says which objects a run has.
    List { object: ObjectId },
}

impl Place {
    /// The kinds of places, as labels of metrics.
    pub const KINDS: [&str; 5] = ["manifest", "journal", "directory", "object", "list"];

    pub(crate) fn object(&self) -> Option<ObjectId> {
        match self {
            Self::Manifest | Self::Journal { .. } => None,
            Self::Directory { object, .. } | Self::Object { object, .. } | Self::List { object } => Some(*object),
        }
    }

    /// Whether another place is this one, or lies in it. The header of a segment lies in no positions.
    fn covers(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Journal { at, end }, Self::Journal { at: from, end: upto }) if from < upto => {
                at <= from && upto <= end
            }
            _ => self == other,
        }
    }

    /// The kind's index in [`Place::KINDS`].
    #[must_use]
    pub fn kind(&self) -> usize {
        match self {
            Self::Manifest => 0,
            Self::Journal { .. } => 1,
            Self::Directory { .. } => 2,
            Self::Object { .. } => 3,
            Self::List { .. } => 4,
        }
    }
}

/// A damaged place, with the names that its logs have now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The damaged place.
    pub place: Place,
    /// The file and the byte in it, where the journal knows them better than the place says.
    pub file: Option<(String, u64)>,
    /// How many bytes are not as they were written, at most; zero if that is not known.
    pub bytes: u64,
    /// The kind of damage, for operators.
    pub what: String,
    /// Some of the logs that have live content there.
    pub logs: Vec<DamagedLog>,
    /// How many more logs have.
    pub more_logs: u64,
    /// When it was first reviewed.
    pub first_seen: Option<Millis>,
    /// How often it was met.
    pub times: u64,
}

impl Damage {
    /// Damage that no register knows.
    pub(crate) fn of(place: Place, what: String) -> Self {
        Self { place, file: None, bytes: 0, what, logs: Vec::new(), more_logs: 0, first_seen: None, times: 1 }
    }

    /// Damage of the root's file.
    #[must_use]
    pub fn of_manifest(what: String) -> Self {
        Self::of(Place::Manifest, what)
    }
}

/// The damaged part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedLog {
    /// The log's name.
    pub name: String,
    /// The first damaged position of the log.
    pub start: Offset,
    /// The end of the damaged positions.
    pub end: Offset,
}

/// How much damage there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamageStats {
    /// Places that are damaged now, in the order of [`Place::KINDS`].
    pub places: [u64; Place::KINDS.len()],
    /// Places that the pass under way, or the last one, has found and that are not remembered, because there are too
    /// many.
    pub left_out: u64,
}

impl DamageStats {
    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.places.iter_mut().zip(other.places).for_each(|(sum, places)| *sum += places);
        self.left_out += other.left_out;
        self
    }

    /// Damaged places of all kinds, those that are not remembered included.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.places.iter().sum::<u64>() + self.left_out
    }
}

/// The damage at one place.
#[derive(Clone, Debug, Default)]
struct Known {
    what: String,
    times: u64,
    first_seen: Option<Millis>,
    /// The present pass of the scrub has not met it yet.
    doubted: bool,
    /// `None` until it is reviewed.
    located: Option<Located>,
}

#[derive(Default)]
struct State {
    places: BTreeMap<Place, Known>,
    left_out: u64,
}

/// Owns the known damage of a unit.
#[derive(Default)]
pub(crate) struct Register {
    state: Mutex<State>,
    /// Called when damage is met that the register did not have.
    tell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Register {
    /// Remembers damage, and counts how often it was met; `false` if there are too many places to remember this one.
    pub(crate) fn note(&self, place: Place, what: impl ToString) -> bool {
        let mut state = self.state.lock();
        if let Some(known) = state.covering(place) {
            known.times += 1;
            known.doubted = false;
            return true;
        }
        let known = state.absorb(place, what.to_string());
        if state.places.len() >= DAMAGES_MAX && place.object().is_none_or(|object| state.has_object(object)) {
            return false;
        }
        state.places.insert(place, known);
        drop(state);
        if let Some(tell) = self.tell.get() {
            tell();
        }
        true
    }

    /// Notes objects that are not as long as the root says. The start goes on, and reads serve the rest of these
    /// objects.
    pub(crate) fn note_lengths(&self, root: &Root, storage: &dyn Storage) -> Result<(), StorageError> {
        let sealed = root.runs.iter().flat_map(|run| &run.objects);
        let sealed = sealed.map(|object| (Place::Object { object: object.meta.id, at: 0 }, object.meta.bytes()));
        let directory = root.directory.iter();
        let directory = directory.map(|object| (Place::Directory { object: object.id, at: 0 }, object.bytes));
        for (place, bytes) in sealed.chain(directory) {
            let Some(object) = place.object() else { continue };
            let what = match storage.len_device(object) {
                Ok(found) if found == bytes => continue,
                Ok(found) => format!("it has {found} bytes, and had {bytes} when it was written"),
                Err(StorageError::Unreadable { cause, .. }) => format!("it cannot be read: {cause}"),
                Err(error) => return Err(error),
            };
            tracing::error!(%object, what, "an object is damaged");
            self.note(place, what);
        }
        Ok(())
    }

    /// Counts damage that is not remembered, because there are too many places already. A pass of the scrub meets each
    /// of them once.
    fn leave_out(&self) {
        self.state.lock().left_out += 1;
    }

    fn locate(&self, place: Place, located: Located) {
        if let Some(known) = self.state.lock().places.get_mut(&place) {
            known.located = Some(located);
        }
    }

    fn stamp(&self, now: Millis) {
        self.state.lock().places.values_mut().for_each(|known| {
            known.first_seen.get_or_insert(now);
        });
    }

    pub(crate) fn forget(&self, place: Place) {
        self.state.lock().places.remove(&place);
    }

    /// Called when a pass of the scrub begins: damage that the pass does not meet was mended, or was only in memory.
    pub(crate) fn doubt_all(&self) {
        let mut state = self.state.lock();
        state.left_out = 0;
        state.places.values_mut().for_each(|known| known.doubted = true);
    }

    /// A pass has read all of these places.
    pub(crate) fn forget_doubted(&self, of: impl Fn(&Place) -> bool) {
        self.state.lock().places.retain(|place, known| !(known.doubted && of(place)));
    }

    fn all(&self) -> Vec<(Place, Known)> {
        self.state.lock().places.iter().map(|(place, known)| (*place, known.clone())).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().places.is_empty()
    }

    /// Whether live content of this object is damaged.
    pub(crate) fn has_object(&self, id: ObjectId) -> bool {
        self.state.lock().has_object(id)
    }

    fn stats(&self) -> DamageStats {
        let state = self.state.lock();
        let mut stats = DamageStats { left_out: state.left_out, ..DamageStats::default() };
        for place in state.places.keys() {
            stats.places[place.kind()] += 1;
        }
        stats
    }
}

impl State {
    fn has_object(&self, id: ObjectId) -> bool {
        let within = |from: Place, to: Place| self.places.range(from..=to).next().is_some();
        within(Place::Object { object: id, at: 0 }, Place::Object { object: id, at: u64::MAX })
            || within(Place::Directory { object: id, at: 0 }, Place::Directory { object: id, at: u64::MAX })
    }

    /// The known place that this one is or lies in.
    fn covering(&mut self, place: Place) -> Option<&mut Known> {
        let Place::Journal { at, .. } = place else { return self.places.get_mut(&place) };
        // No known range lies in another one, but headers of segments may stand between.
        let mut before = self.places.range_mut(..=Place::Journal { at, end: Lsn::MAX }).rev();
        before.find(|(known, _)| known.covers(&place)).map(|(_, known)| known)
    }

    /// Takes out the known places that lie in this one, which is not known: they are the same damage.
    fn absorb(&mut self, place: Place, what: String) -> Known {
        let mut absorbed = Known { what, times: 1, ..Known::default() };
        self.places.retain(|known, within| {
            let is_within = place.covers(known);
            if is_within {
                absorbed.times += within.times;
                absorbed.first_seen = absorbed.first_seen.into_iter().chain(within.first_seen).min();
            }
            !is_within
        });
        absorbed
    }
}

impl<A: Attachment> Logs<A> {
    /// `tell` is called when damage is met that was not known: [`Logs::refresh_damage`] has work. Locks may be held
    /// then, so `tell` must neither block nor call the logs. Only the first call of this counts.
    pub fn on_damage(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.damage.tell.set(Box::new(tell));
    }

    /// The number of damaged places now.
    pub fn damage_stats(&self) -> DamageStats {
        self.damage.stats()
    }

    /// Every damaged place that is remembered, with the names of its logs. Never waits.
    pub fn damages(&self) -> Vec<Damage> {
        let list = self.damage.all();
        list.into_iter().map(|(place, known)| self.describe(place, known)).collect()
    }

    fn describe(&self, place: Place, known: Known) -> Damage {
        let Located { bytes, logs, more, .. } = known.located.unwrap_or_default();
        let named = logs.into_iter().filter_map(|Affected { log, range }| {
            let name = self.name_of(log)?;
            Some(DamagedLog { name, start: range.start, end: range.end })
        });
        let file = match place {
            Place::Journal { at, end } => {
                let file = self.journal.file_of(at);
                if at == end { file.map(|(file, _)| (file, 0)) } else { file }
            }
            _ => None,
        };
        Damage {
            place,
            file,
            bytes,
            what: known.what,
            logs: named.collect(),
            more_logs: more,
            first_seen: known.first_seen,
            times: known.times,
        }
    }

    /// The name of a log, without waking it.
    pub fn name_of(&self, log: thalweg_base::LogId) -> Option<String> {
        let shard = self.shards[crate::logs::shard_of_log(log)].lock();
        let slot = shard.slot_of(log)?;
        match &shard.slots()[slot as usize] {
            Slot::Vacant => None,
            slot => Some(String::from_utf8_lossy(slot.name()).into_owned()),
        }
    }

    /// Locates damage that was noted since the last time, and forgets damage of bytes that nothing needs. Waits for the
    /// device: call it from a thread of background work, now and then.
    pub fn refresh_damage(&self, now: Millis) {
        if self.damage.is_empty() {
            return;
        }
        let root = self.sealed.root();
        let named: HashSet<ObjectId> = root.object_ids().collect();
        for (place, known) in self.damage.all() {
            if !self.is_needed(place, &named) {
                self.damage.forget(place);
                continue;
            }
            let stale =
                known.located.as_ref().is_none_or(|located| located.is_provisional || !self.is_live(place, located));
            if !stale {
                continue;
            }
            let located = self.locate(&root, place);
            if self.is_live(place, &located) {
                self.damage.locate(place, located);
            } else {
                self.damage.forget(place);
            }
        }
        self.damage.stamp(now);
        // A round is due at once that writes the directory once more.
        if self.is_directory_damaged() {
            self.awakened.note();
        }
    }

    fn is_needed(&self, place: Place, named: &HashSet<ObjectId>) -> bool {
        match place {
            Place::Manifest => true,
            // The next start reads a segment from its beginning.
            Place::Journal { at, .. } => at >= self.journal.oldest(),
            Place::Directory { object, .. } | Place::Object { object, .. } | Place::List { object } => {
                named.contains(&object)
            }
        }
    }

    /// Whether something that is still wanted is damaged there.
    fn is_live(&self, place: Place, located: &Located) -> bool {
        match place {
            Place::Object { .. } => located.logs.iter().any(|affected| self.is_wanted(affected)),
            _ => true,
        }
    }

    /// Notes damage that background work met, unless the damaged place holds nothing live. Waits for the device.
    pub(crate) fn note_found(&self, place: Place, what: &str) {
        let located = self.locate(&self.sealed.root(), place);
        if self.is_live(place, &located) {
            if !self.damage.note(place, what) {
                self.damage.leave_out();
            }
            self.damage.locate(place, located);
        }
    }

    /// Notes the damage that a failed round met.
    pub(crate) fn note_upkeep(&self, error: &UpkeepError) {
        let met = match error {
            UpkeepError::Run(error) => self.damage_of_run_error(error),
            UpkeepError::Directory(DirectoryError::Storage(StorageError::Missing(object))) if self.names(*object) => {
                Some((Place::Directory { object: *object, at: 0 }, GONE.to_owned()))
            }
            UpkeepError::Directory(error) => place_of_directory_error(error),
            _ => None,
        };
        if let Some((place, what)) = met {
            self.note_found(place, &what);
        }
    }

    /// The damaged place that an error of a run's object tells of, and the damage; a missing object is damage if the
    /// root in force names it.
    pub(crate) fn damage_of_run_error(&self, error: &RunError) -> Option<(Place, String)> {
        match error {
            RunError::Storage(StorageError::Missing(object)) if self.names(*object) => {
                Some((Place::Object { object: *object, at: 0 }, GONE.to_owned()))
            }
            error => place_of_run_error(error),
        }
    }

    /// Whether the root in force names an object. An edit puts its root in force before it removes objects of the root
    /// before. So a caller that did not find an object, and asks then, learns whether the object must exist.
    pub(crate) fn names(&self, object: ObjectId) -> bool {
        self.sealed.root().object_ids().any(|named| named == object)
    }

    /// Notes the damage that a read met. Never waits.
    pub(crate) fn note_run(&self, error: &RunError) {
        if let Some((place, what)) = place_of_run_error(error) {
            self.damage.note(place, what);
        }
    }
}

/// The damage of an object that the root names and that does not exist.
pub(crate) const GONE: &str = "its file is gone";

/// The damaged place that an error of a run's object tells of, and the damage; `None` if the error tells of none. A
/// missing object is not damage by itself: only the caller knows whether the root in force names it
/// ([`Logs::damage_of_run_error`]).
pub(crate) fn place_of_run_error(error: &RunError) -> Option<(Place, String)> {
    match error {
        RunError::Corrupt { object, at, what } => Some((Place::Object { object: *object, at: *at }, what.clone())),
        RunError::Storage(StorageError::Unreadable { object, at, cause }) => {
            Some((Place::Object { object: *object, at: *at }, format!("it cannot be read: {cause}")))
        }
        // The data folder has this program's format: a flipped bit says so.
        RunError::Newer { object, .. } => Some((Place::Object { object: *object, at: 0 }, error.to_string())),
        _ => None,
    }
}

/// Like [`place_of_run_error`], for an object of the directory.
pub(crate) fn place_of_directory_error(error: &DirectoryError) -> Option<(Place, String)> {
    match error {
        DirectoryError::Corrupt { object, at, what } => {
            Some((Place::Directory { object: *object, at: *at }, what.clone()))
        }
        DirectoryError::Storage(StorageError::Unreadable { object, at, cause }) => {
            Some((Place::Directory { object: *object, at: *at }, format!("it cannot be read: {cause}")))
        }
        DirectoryError::Newer { object, .. } => Some((Place::Directory { object: *object, at: 0 }, error.to_string())),
        _ => None,
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn so_many_places_are_remembered_and_no_more() {
        let register = Register::default();
        let place = |at| Place::Object { object: ObjectId(1), at };
        for at in 0..DAMAGES_MAX as u64 {
            assert!(register.note(place(at), "rotten"));
        }
        assert!(!register.note(place(u64::MAX), "one more"));
        assert!(register.note(place(0), "known already"));
        register.leave_out();
        assert_eq!(register.stats().total(), DAMAGES_MAX as u64 + 1);
        register.doubt_all();
        assert!(register.note(place(7), "still so"));
        register.forget_doubted(|place| place.object() == Some(ObjectId(1)));
        assert_eq!(register.stats().total(), 1, "the rest was mended");
    }

    #[test]
    fn damage_that_was_not_known_is_told_once() {
        let (register, told) = (Register::default(), Arc::<AtomicU64>::default());
        let tell = Arc::clone(&told);
        let _ = register.tell.set(Box::new(move || _ = tell.fetch_add(1, Ordering::Relaxed)));
        for (at, times) in [(1, 1), (1, 1), (2, 2), (1, 2)] {
            register.note(Place::Object { object: ObjectId(1), at }, "rotten");
            assert_eq!(told.load(Ordering::Relaxed), times);
        }
    }

    #[test]
    fn every_damaged_object_is_known_however_many_places_there_are() {
        let register = Register::default();
        for at in 0..2 * DAMAGES_MAX as u64 {
            register.note(Place::Object { object: ObjectId(1), at }, "rotten");
        }
        for id in [2, 3] {
            assert!(register.note(Place::Object { object: ObjectId(id), at: 9 }, "rotten too"));
            assert!(!register.note(Place::Object { object: ObjectId(id), at: 10 }, "and more of it"));
            assert!(register.has_object(ObjectId(id)));
        }
        assert!(!register.note(Place::Journal { at: Lsn(1), end: Lsn(2) }, "no object"));
        assert_eq!(register.stats().total(), DAMAGES_MAX as u64 + 2);
    }

    #[test]
    fn damage_within_known_damage_of_the_journal_is_the_same() {
        let register = Register::default();
        let place = |at, end| Place::Journal { at: Lsn(at), end: Lsn(end) };
        register.note(place(100, 200), "a batch");
        register.note(place(120, 150), "a frame of it");
        register.note(place(190, 250), "more than that");
        assert_eq!(register.stats().total(), 2);
    }

    #[test]
    fn damage_of_the_journal_counts_once_in_whatever_order_it_is_met() {
        let register = Register::default();
        let place = |at, end| Place::Journal { at: Lsn(at), end: Lsn(end) };
        let total = |at, end, what| {
            register.note(place(at, end), what);
            register.stats().total()
        };
        assert_eq!(total(120, 130, "a frame"), 1);
        register.stamp(Millis(5));
        assert_eq!(total(140, 150, "another"), 2);
        assert_eq!(total(100, 200, "the batch of both"), 1);
        let all = register.all();
        assert_eq!((all[0].0, all[0].1.times, all[0].1.first_seen), (place(100, 200), 3, Some(Millis(5))));
        assert_eq!(total(120, 130, "the frame once more"), 1);
        assert_eq!(total(190, 210, "what overlaps is another place"), 2);
        assert_eq!(total(192, 198, "this lies in both"), 2);
        assert_eq!(total(150, 150, "the header of a segment that starts there"), 3);
        assert_eq!(total(150, 150, "and again"), 3);
        assert_eq!(total(160, 170, "the nearest place before is not the only one"), 3);
    }
}
