//! The owner's state: the root in force, and the edits that replace it.
//!
//! Edits are made one at a time: change a copy of a section, commit the root to the manifest, put it in force, and
//! remove the objects that it no longer names. Readers take a section as it is and keep it for one read. If an edit
//! drops an object during the read, the reader does not find it, and starts over with the new section.

use crate::error::StartError;
use crate::faults::Faults;
use crate::holds::{Cut, HeldCut, Holds};
use crate::ids::{Ids, epoch_of};
use crate::root::{Claim, IndexId, Root, Section};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};
use thalweg_base::{Lsn, ObjectId};
use thalweg_journal::{Bounds, Journal};
use thalweg_manifest::{self as manifest, Manifest, ManifestError};
use thalweg_storage::{Storage, StorageError};

/// An owned unit.
pub struct Unit {
    storage: Arc<dyn Storage>,
    manifest: Arc<dyn Manifest>,
    /// Ids of objects, with the owner's epoch.
    ids: Ids,
    /// Held while an edit is made.
    editing: Mutex<Editing>,
    state: RwLock<Arc<State>>,
    holds: Arc<Holds>,
    /// No owner had committed anything.
    is_new: bool,
    /// An edit met the root of a later owner.
    is_deposed: AtomicBool,
    /// The first frame that could not be replayed.
    refused: Mutex<Option<Lsn>>,
    /// Set when the unit is started.
    journal: OnceLock<Arc<dyn Journal>>,
    /// The position of each index below which it holds no reference into the journal. It follows the floor of the
    /// index's section in force.
    released: Mutex<BTreeMap<IndexId, Lsn>>,
    #[cfg(feature = "faults")]
    faults: Mutex<Faults>,
}

/// The root in force, and the objects that it names.
#[derive(Clone, Debug, Default)]
struct State {
    root: Root,
    /// Each object with its length in bytes, those of sections whose index is not entered yet included.
    objects: BTreeMap<IndexId, Arc<[(ObjectId, u64)]>>,
    /// Indexes that have put their section in force.
    entered: BTreeSet<IndexId>,
}

impl State {
    fn objects(&self) -> impl Iterator<Item = (ObjectId, u64)> + '_ {
        self.objects.values().flat_map(|objects| objects.iter().copied())
    }

    /// An index that has a section and has not put it in force.
    fn absent(&self) -> Option<IndexId> {
        self.root.sections.keys().find(|index| !self.entered.contains(index)).copied()
    }
}

/// The version of the manifest that the next edit expects, and edits whose outcome is unknown.
struct Editing {
    version: u64,
    /// The body of an edit that failed: a restart may find it, or the root in force.
    doubt: Option<Vec<u8>>,
    /// Objects made for such edits. They go once a later edit is certain.
    doubtful: Vec<ObjectId>,
}

/// Objects that an edit has made useless. They are removed by [`Unit::discard`].
#[must_use]
#[derive(Debug, Default)]
pub struct Dropped(pub Vec<ObjectId>);

impl Unit {
    pub(crate) fn of(
        storage: Arc<dyn Storage>,
        manifest: Arc<dyn Manifest>,
        acquired: &manifest::Root,
        root: Root,
        objects: BTreeMap<IndexId, Arc<[(ObjectId, u64)]>>,
    ) -> Self {
        assert!(acquired.epoch > root.epoch, "epoch {} was acquired, and the root has {}", acquired.epoch, root.epoch);
        let root = Root { epoch: acquired.epoch, ..root };
        let released = root.sections.iter().map(|(index, section)| (*index, section.floor)).collect();
        Self {
            is_new: acquired.body.is_empty(),
            is_deposed: AtomicBool::new(false),
            refused: Mutex::new(None),
            journal: OnceLock::new(),
            released: Mutex::new(released),
            #[cfg(feature = "faults")]
            faults: Mutex::new(Faults::default()),
            holds: Arc::new(Holds::new(Arc::clone(&storage))),
            storage,
            manifest,
            ids: Ids::of(acquired.epoch),
            editing: Mutex::new(Editing { version: acquired.version, doubt: None, doubtful: Vec::new() }),
            state: RwLock::new(Arc::new(State { root, objects, entered: BTreeSet::new() })),
        }
    }

    /// The storage of the unit's objects.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// The owner's epoch: above the epochs of all owners before.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.ids.epoch
    }

    /// The range that the journal must hold.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        self.state.read().root.bounds()
    }

    /// How far the journal is known to be durable.
    #[must_use]
    pub fn claim(&self) -> Claim {
        self.state.read().root.claim
    }

    /// The root that the manifest holds now.
    pub fn read_manifest(&self) -> Result<Option<manifest::Root>, ManifestError> {
        self.manifest.read()
    }

    /// Has the manifest written once more if it has rotted.
    pub fn mend_manifest(&self) {
        let _editing = self.editing.lock();
        if let Err(error) = self.manifest.load() {
            tracing::error!(%error, "the manifest is damaged, and rewriting it failed");
        }
    }

    /// An id that no object has had.
    #[must_use]
    pub fn new_object(&self) -> ObjectId {
        self.ids.next()
    }

    /// Gives out ids for new objects.
    pub fn object_ids(&self) -> impl FnMut() -> ObjectId + Send + 'static {
        let ids = self.ids.clone();
        move || ids.next()
    }

    /// Puts an index's section and the objects that it names into the state, before the index's first edit.
    ///
    /// # Panics
    ///
    /// If the index was entered before: each would overwrite the edits of the other. If its floor is below the
    /// journal's first frame: see [`crate::Opening::floor`].
    pub(crate) fn enter<S: Section>(&self, section: &S) {
        let mut state = self.state.write();
        let mut after = State::clone(&state);
        assert!(after.entered.insert(S::INDEX), "{:?} of a unit has one owner", S::INDEX);
        let (floor, lowest) = (section.floor(), state.root.bounds().floor);
        assert!(floor >= lowest, "the floor of {:?} is {floor}, and the journal begins at {lowest}", S::INDEX);
        after.root.put(section);
        after.objects.insert(S::INDEX, section.objects().into());
        *state = Arc::new(after);
        self.released.lock().insert(S::INDEX, floor);
    }

    /// Nothing was committed before this owner: the journal must be empty.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn refuse(&self, at: Lsn) {
        self.refused.lock().get_or_insert(at);
    }

    /// Ends the opening, when every index is in force and has its frames of `journal`: commits how far the journal is
    /// durable and the sections of indexes that are new, and removes the objects that no section names. The unit trims
    /// this journal from here on.
    ///
    /// # Panics
    ///
    /// If an index of the unit is not in force, if the unit was started before, or if the journal was not opened within
    /// [`Unit::bounds`]: it ends earlier or has an older term than the root knows.
    pub fn start(&self, journal: Arc<dyn Journal>) -> Result<(), StartError> {
        if let Some(at) = *self.refused.lock() {
            return Err(StartError::Refused { at });
        }
        let missing = { self.state.read().absent() };
        assert!(missing.is_none(), "{missing:?} of the unit is not in force");
        let (before, claim) = (self.claim(), Claim { durable: journal.durable(), term: journal.term() });
        let is_kept = claim.durable >= before.durable && claim.term >= before.term;
        assert!(is_kept, "the journal has lost frames, and was opened: {claim:?}, and the root has {before:?}");
        let _ = self.commit(Vec::new(), |after| after.root.claim = claim, |()| {})?;
        assert!(self.journal.set(journal).is_ok(), "a unit is started once");
        self.remove_orphans()?;
        Ok(())
    }

    /// Notes in the root how far the journal is durable, so that the next opening sees if some of that is lost. Call it
    /// after the journal was closed: before, the journal grows on. Does nothing on a unit that was not started.
    pub fn close(&self) -> Result<(), ManifestError> {
        let Some(journal) = self.journal.get() else { return Ok(()) };
        let durable = journal.durable();
        if self.claim().durable < durable {
            let _ = self.commit(Vec::new(), |after| after.root.claim.durable = durable, |()| {})?;
        }
        Ok(())
    }

    /// Notes that an index holds no reference into the journal below `floor`, which is at most its section's floor, and
    /// trims the journal up to the lowest of these positions.
    pub(crate) fn release(&self, index: IndexId, floor: Lsn) {
        let lowest = {
            let mut released = self.released.lock();
            let of_index = released.entry(index).or_default();
            *of_index = (*of_index).max(floor);
            match self.faults().trims_to_the_fastest_index() {
                true => released.values().max().copied(),
                false => released.values().min().copied(),
            }
        };
        let in_force = self.bounds().floor;
        if let (Some(journal), Some(lowest)) = (self.journal.get(), lowest) {
            let is_allowed = lowest <= in_force || self.faults().trims_to_the_fastest_index();
            assert!(is_allowed, "{lowest} is let go, and the root in force needs {in_force}");
            journal.trim(lowest);
        }
    }

    /// Asks the manifest whether this is still the unit's owner: a later one may have removed what this one cannot read. An
    /// answer that does not come says nothing.
    pub fn confirm_owner(&self) {
        if let Ok(found) = self.manifest.read()
            && found.unwrap_or_default().epoch != self.epoch()
        {
            self.is_deposed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an edit has met the root of a later owner, or another one than this owner has written last: no other edit
    /// will be made.
    #[must_use]
    pub fn is_deposed(&self) -> bool {
        self.is_deposed.load(Ordering::Relaxed)
    }

    fn faults(&self) -> Faults {
        #[cfg(feature = "faults")]
        return *self.faults.lock();
        #[cfg(not(feature = "faults"))]
        Faults
    }

    /// Plants faults, for tests.
    #[cfg(feature = "faults")]
    pub fn plant(&self, faults: Faults) {
        *self.faults.lock() = faults;
    }

    /// The index that a part goes to: its own, unless a fault is planted.
    pub(crate) fn planted_route(&self, index: IndexId) -> IndexId {
        if self.faults().routes_to_the_first_index() { IndexId::LOG } else { index }
    }

    /// Commits a root with this section and claim, made with the objects `made`; then `put_in_force` is called, before
    /// anything is removed. If it is certain that the edit was not made, `made` is removed again.
    ///
    /// After an `Io` error the edit counts as not made, although a restart may find it: the objects of both roots stay
    /// until a later edit is certain, which starts from the root in force.
    pub(crate) fn edit<S: Section>(
        &self,
        made: Vec<ObjectId>,
        change: impl FnOnce(&mut Claim) -> S,
        put_in_force: impl FnOnce(S),
    ) -> Result<Dropped, ManifestError> {
        let changed = |after: &mut State| {
            let section = change(&mut after.root.claim);
            let before = after.root.sections.get(&S::INDEX).map_or(Lsn::ZERO, |stored| stored.floor);
            let floor = section.floor();
            assert!(floor >= before, "the floor of {:?} goes from {before} back to {floor}", S::INDEX);
            after.root.put(&section);
            after.objects.insert(S::INDEX, section.objects().into());
            section
        };
        self.commit(made, changed, put_in_force)
    }

    /// Commits a changed root, made with the objects `made`; then `put_in_force` is called, before anything is removed.
    fn commit<T>(
        &self,
        made: Vec<ObjectId>,
        change: impl FnOnce(&mut State) -> T,
        put_in_force: impl FnOnce(T),
    ) -> Result<Dropped, ManifestError> {
        let mut editing = self.editing.lock();
        let before = Arc::clone(&self.state.read());
        let mut after = State::clone(&before);
        let changed = change(&mut after);
        let body = after.root.encode();
        match self.resolve(&mut editing).and_then(|()| self.manifest.commit(self.epoch(), editing.version, &body)) {
            Ok(version) => editing.version = version,
            Err(error) => {
                if matches!(error, ManifestError::Io { .. }) {
                    editing.doubt.get_or_insert(body);
                    editing.doubtful.extend(made);
                } else if matches!(error, ManifestError::Fenced { .. } | ManifestError::Conflict { .. }) {
                    // Nobody else commits under this owner's epoch: on a conflict the root was set back, or replaced.
                    self.is_deposed.store(true, Ordering::Relaxed);
                    // The root may have been committed, its answer lost, and a later owner may have acquired it since:
                    // then its objects are that owner's. If not, that owner finds orphans.
                } else {
                    // An index may keep an object that it has, and hand it over with those that it made.
                    let named: HashSet<ObjectId> = before.objects().map(|(id, _)| id).collect();
                    self.holds.remove(&made.into_iter().filter(|id| !named.contains(id)).collect::<Vec<_>>());
                }
                return Err(error);
            }
        }
        let doubtful = std::mem::take(&mut editing.doubtful);
        let after = Arc::new(after);
        *self.state.write() = Arc::clone(&after);
        put_in_force(changed);
        drop(editing);

        let named: HashSet<ObjectId> = after.objects().map(|(id, _)| id).collect();
        let dropped = before.objects().map(|(id, _)| id).chain(doubtful).filter(|id| !named.contains(id));
        Ok(Dropped(dropped.collect()))
    }

    /// Finds the manifest's version after an edit whose outcome is in doubt.
    fn resolve(&self, editing: &mut Editing) -> Result<(), ManifestError> {
        let Some(body) = &editing.doubt else { return Ok(()) };
        let found = self.manifest.load()?.unwrap_or_default();
        if found.epoch != self.epoch() {
            return Err(ManifestError::Fenced { epoch: self.epoch(), found: found.epoch });
        }
        if found.version != editing.version {
            let ours = found.version == editing.version + 1 && found.body == body;
            if !ours {
                return Err(ManifestError::Conflict { expected: editing.version, found: found.version });
            }
        }
        (editing.version, editing.doubt) = (found.version, None);
        Ok(())
    }

    /// Removes the objects that an edit has dropped: at once, or with their last hold.
    pub fn discard(&self, dropped: &Dropped) {
        self.holds.remove(&dropped.0);
    }

    /// Removes objects that were made for an edit which is not made after all.
    pub fn abandon(&self, made: &[ObjectId]) {
        self.holds.remove(made);
    }

    /// Removes objects of earlier owners that no section in force names: leftovers of work that did not come to its
    /// commit. An earlier owner that does not know yet that it is none may finish another one later, which then stays
    /// until the next call.
    pub fn remove_orphans(&self) -> Result<(), StorageError> {
        let named: HashSet<ObjectId> = self.state.read().objects().map(|(id, _)| id).collect();
        for orphan in self.storage.list()? {
            if epoch_of(orphan) < self.epoch() && !named.contains(&orphan) {
                self.holds.remove(&[orphan]);
            }
        }
        Ok(())
    }

    /// Holds the objects that the root in force names.
    pub fn hold(&self) -> HeldCut {
        // Under the lock of the holds: an edit that drops an object of this root looks there after it.
        HeldCut::take(&self.holds, || {
            let state = self.state.read();
            Cut { root: state.root.encode().into(), journal: state.root.bounds(), objects: state.objects().collect() }
        })
    }
}
