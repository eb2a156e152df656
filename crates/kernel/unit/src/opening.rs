//! Becoming the owner of a unit.

use crate::error::OpenError;
use crate::ids::{EPOCH_MAX, epoch_of};
use crate::root::{IndexId, Root, Section};
use crate::unit::Unit;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_base::{DecodeError, Lsn, ObjectId};
use thalweg_manifest::{self as manifest, Manifest};
use thalweg_storage::{Storage, StorageError};

/// A unit that was read and is not owned yet: nothing in it has changed.
pub struct Opening {
    storage: Arc<dyn Storage>,
    manifest: Arc<dyn Manifest>,
    /// The manifest's body as it was read; empty if there is none.
    body: Bytes,
    root: Root,
    /// The last owner's.
    epoch: u64,
    /// Every object of the storage, ascending.
    objects: Vec<ObjectId>,
    /// The objects that sections name, of the indexes that have read theirs.
    named: BTreeMap<IndexId, Arc<[(ObjectId, u64)]>>,
}

impl Opening {
    /// Reads the root. `decode` also reads roots of earlier versions, which the logs wrote as the only index. Refuses a
    /// unit that has objects and no root, or whose root is older than some of its objects: their owner is unknown. An
    /// owner commits a root before it makes objects, so an empty root beside objects is not the unit's own.
    pub fn read(
        storage: Arc<dyn Storage>,
        manifest: Arc<dyn Manifest>,
        decode: impl Fn(&[u8]) -> Result<Root, DecodeError>,
    ) -> Result<Self, OpenError> {
        let manifest::Root { epoch, body, .. } = manifest.read()?.unwrap_or_default();
        let root = if body.is_empty() { Root::default() } else { decode(&body).map_err(OpenError::Root)? };
        let objects = storage.list()?;
        if body.is_empty() && !objects.is_empty() {
            return Err(OpenError::RootMissing { objects: objects.len() });
        }
        let epoch = epoch.max(root.epoch);
        if let Some(newest) = objects.last().filter(|newest| epoch_of(**newest) > epoch) {
            return Err(OpenError::OlderRoot { object: *newest, maker: epoch_of(*newest), epoch });
        }
        Ok(Self { storage, manifest, body, root, epoch, objects, named: BTreeMap::new() })
    }

    /// No owner has committed anything to the unit yet.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.body.is_empty()
    }

    /// The section of an index; `None` if it has none yet. Refuses a section that names an object which does not exist.
    pub fn section<S: Section>(&mut self) -> Result<Option<S>, OpenError> {
        let section: Option<S> = self.root.section().map_err(OpenError::Root)?;
        let named = section.as_ref().map(Section::objects).unwrap_or_default();
        if let Some((missing, _)) = named.iter().find(|(id, _)| self.objects.binary_search(id).is_err()) {
            return Err(StorageError::Missing(*missing).into());
        }
        self.named.insert(S::INDEX, named.into());
        Ok(section)
    }

    /// The floor of an index that has no section yet: the journal has nothing below, and nothing of this index above.
    #[must_use]
    pub fn floor(&self) -> Lsn {
        self.root.bounds().floor
    }

    /// A planted fault: the start removes objects that its root does not name before it owns the unit. For tests.
    #[cfg(feature = "faults")]
    pub fn remove_orphans_before_owning(&self, named: &[(ObjectId, u64)]) -> Result<(), OpenError> {
        let is_orphan = |id: &&ObjectId| !named.iter().any(|(named, _)| named == *id);
        Ok(self.objects.iter().filter(is_orphan).try_for_each(|orphan| self.storage.remove(*orphan))?)
    }

    /// The unit's storage.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Makes the caller the owner. Every index must have read its section before: the objects of a section that no
    /// index reads would be taken for orphans.
    pub fn acquire(self) -> Result<Arc<Unit>, OpenError> {
        self.acquire_above(0)
    }

    /// Like [`Self::acquire`], with an epoch above `term`, and above every term of the journal that the root knows: so
    /// the owner's epoch can be the term of its journal, although a journal may have had more openings than the unit
    /// had owners.
    pub fn acquire_above(self, term: u64) -> Result<Arc<Unit>, OpenError> {
        if let Some(unknown) = self.root.sections.keys().find(|index| !self.named.contains_key(index)) {
            return Err(OpenError::UnknownIndex(unknown.0));
        }
        let above = self.root.epoch.max(self.root.claim.term).max(term);
        if self.epoch.max(above) >= EPOCH_MAX {
            return Err(OpenError::Epochs(EPOCH_MAX));
        }
        let acquired = self.manifest.acquire(above)?;
        if acquired.body != self.body {
            return Err(OpenError::Changed);
        }
        Ok(Arc::new(Unit::of(self.storage, self.manifest, &acquired, self.root, self.named)))
    }
}

/// Reads a unit, lets its indexes read their sections, and makes the caller its owner, with an epoch above `term`, the
/// newest of the journal. If the owner before has committed something in between, this starts over once; after the
/// acquisition that owner commits nothing.
pub fn own<T, E: From<OpenError>>(
    term: u64,
    read: impl Fn() -> Result<Opening, OpenError>,
    load: impl Fn(&mut Opening) -> Result<T, E>,
) -> Result<(Arc<Unit>, T), E> {
    let mut is_again = false;
    loop {
        let mut opening = read()?;
        let loaded = load(&mut opening)?;
        match opening.acquire_above(term) {
            Ok(unit) => return Ok((unit, loaded)),
            Err(OpenError::Changed) if !is_again => is_again = true,
            Err(error) => return Err(error.into()),
        }
    }
}
