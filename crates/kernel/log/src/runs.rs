//! What is sealed: the root in force, and the edits that replace it.
//!
//! Readers take the root as it is and keep it for one read; an object that an edit has dropped meanwhile is missing for them, and
//! they start over with the new root. Edits are made one at a time: read the root, change a copy, commit it to the manifest, put
//! it in force, remove the objects that it no longer names.

use crate::cut::Holds;
use crate::error::OpenError;
use crate::logs::LogsOptions;
use crate::root::Root;
use crate::run::RunReader;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};
use std::collections::HashSet;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_manifest::{self as manifest, Manifest, ManifestError};
use thalweg_storage::{Storage, StorageError};

pub(crate) struct Sealed {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) reader: RunReader,
    manifest: Arc<dyn Manifest>,
    /// Held while an edit is made.
    editing: Mutex<Editing>,
    root: RwLock<Arc<Root>>,
    next_object: Arc<AtomicU64>,
    pub(crate) holds: Arc<Holds>,
}

/// Where the manifest stands.
struct Editing {
    version: u64,
    /// The body of an edit that failed: a restart may find it, or the root in force.
    doubt: Option<Vec<u8>>,
    /// Objects made for such edits. They go once a later edit is certain.
    doubtful: Vec<ObjectId>,
}

impl Sealed {
    /// Refuses a unit that lacks objects which its root names, or its root: what is there then belongs to something that is not known.
    /// The smallest id above those of all objects that are there.
    pub(crate) fn must_have(storage: &Arc<dyn Storage>, root: &Root, is_new: bool) -> Result<u64, OpenError> {
        let objects = storage.list()?;
        if let Some(missing) = root.objects().find(|id| objects.binary_search(id).is_err()) {
            return Err(StorageError::Missing(missing).into());
        }
        if is_new && !objects.is_empty() {
            return Err(OpenError::RootMissing { objects: objects.len() });
        }
        Ok(objects.last().map_or(0, |id| id.0.saturating_add(1)))
    }

    /// Puts the first root in force. The first edit commits it.
    pub(crate) fn new(
        options: &LogsOptions,
        storage: Arc<dyn Storage>,
        manifest: Arc<dyn Manifest>,
        version: u64,
        root: Root,
    ) -> Self {
        Self {
            reader: RunReader::new(Arc::clone(&storage), options.index_cache_bytes),
            holds: Arc::new(Holds::new(Arc::clone(&storage))),
            storage,
            manifest,
            editing: Mutex::new(Editing { version, doubt: None, doubtful: Vec::new() }),
            next_object: Arc::new(AtomicU64::new(root.next_object)),
            root: RwLock::new(Arc::new(root)),
        }
    }

    /// Removes objects that the root in force does not name: leftovers of work that did not come to its commit. The root is durable and
    /// reserves their ids: an opening after this one does not find them and must not give them out.
    pub(crate) fn remove_orphans(&self) -> Result<(), StorageError> {
        let named: HashSet<ObjectId> = self.root().objects().collect();
        for orphan in self.storage.list()?.iter().filter(|id| !named.contains(id)) {
            self.storage.remove(*orphan)?;
        }
        Ok(())
    }

    pub(crate) fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root.read())
    }

    /// What the manifest holds now.
    pub(crate) fn read_manifest(&self) -> Result<Option<manifest::Root>, ManifestError> {
        self.manifest.read()
    }

    /// Has the manifest written once more if it has rotted. It stays noted as damage until the next pass finds it whole.
    pub(crate) fn mend_manifest(&self) {
        let _editing = self.editing.lock();
        if let Err(error) = self.manifest.load() {
            tracing::error!(%error, "the manifest is damaged and could not be written once more");
        }
    }

    pub(crate) fn new_object(&self) -> ObjectId {
        ObjectId(self.next_object.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives out ids for new objects.
    pub(crate) fn object_ids(&self) -> impl FnMut() -> ObjectId + Send + 'static {
        let next = Arc::clone(&self.next_object);
        move || ObjectId(next.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes one edit with objects that were `made` for it. If it is certain that the edit was not made, they are removed again.
    ///
    /// After an `Io` error the edit counts as not made, although a restart may find it: the objects of both roots stay until a later
    /// edit is certain, which starts from the root in force.
    pub(crate) fn edit(&self, made: Vec<ObjectId>, change: impl FnOnce(&mut Root)) -> Result<(), ManifestError> {
        let mut editing = self.editing.lock();
        let before = self.root();
        let mut root = Root::clone(&before);
        change(&mut root);
        root.next_object = self.next_object.load(Ordering::Relaxed);
        let body = root.encode();
        match self.resolve(&mut editing).and_then(|()| self.manifest.commit(editing.version, &body)) {
            Ok(version) => editing.version = version,
            Err(error) => {
                if matches!(error, ManifestError::Io { .. }) {
                    editing.doubt.get_or_insert(body);
                    editing.doubtful.extend(made);
                } else {
                    self.discard(&made);
                }
                return Err(error);
            }
        }
        let doubtful = std::mem::take(&mut editing.doubtful);
        let root = Arc::new(root);
        *self.root.write() = Arc::clone(&root);
        drop(editing);

        let named: HashSet<ObjectId> = root.objects().collect();
        let dropped = before.objects().chain(doubtful).filter(|id| !named.contains(id));
        self.discard(&dropped.collect::<Vec<_>>());
        Ok(())
    }

    /// Finds the manifest's version after an edit whose outcome is in doubt.
    fn resolve(&self, editing: &mut Editing) -> Result<(), ManifestError> {
        let Some(body) = &editing.doubt else { return Ok(()) };
        let found = self.manifest.load()?;
        let version = found.as_ref().map_or(0, |root| root.version);
        if version != editing.version {
            let ours = version == editing.version + 1 && found.is_some_and(|root| root.body == body);
            if !ours {
                return Err(ManifestError::Conflict { expected: editing.version, found: version });
            }
        }
        (editing.version, editing.doubt) = (version, None);
        Ok(())
    }

    /// Removes objects that no root names, at once or when nobody holds them any more.
    pub(crate) fn discard(&self, objects: &[ObjectId]) {
        for object in objects {
            self.reader.forget(*object);
        }
        self.holds.remove(objects);
    }
}
