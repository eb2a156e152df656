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
use parking_lot::{Mutex, RwLock};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::ObjectId;
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_storage::{Storage, StorageError};

pub(crate) struct Sealed {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) reader: RunReader,
    manifest: Arc<dyn Manifest>,
    /// The manifest's version; held while an edit is made.
    version: Mutex<u64>,
    root: RwLock<Arc<Root>>,
    next_object: Arc<AtomicU64>,
    pub(crate) holds: Arc<Holds>,
}

impl Sealed {
    /// Puts the first root in force and removes objects that no root names: leftovers of work that did not come to its commit.
    pub(crate) fn open(
        options: &LogsOptions,
        storage: Arc<dyn Storage>,
        manifest: Arc<dyn Manifest>,
        version: u64,
        root: Root,
    ) -> Result<Self, OpenError> {
        let named: HashSet<ObjectId> = root.objects().collect();
        let objects = storage.list()?;
        if let Some(missing) = named.iter().find(|id| objects.binary_search(id).is_err()) {
            return Err(StorageError::Missing(*missing).into());
        }
        let newest = objects.last().map_or(0, |id| id.0 + 1);
        for orphan in objects.iter().filter(|id| !named.contains(id)) {
            storage.remove(*orphan)?;
        }
        let version = manifest.commit(version, &root.encode())?;
        Ok(Self {
            reader: RunReader::new(Arc::clone(&storage), options.index_cache_bytes),
            holds: Arc::new(Holds::new(Arc::clone(&storage))),
            storage,
            manifest,
            version: Mutex::new(version),
            next_object: Arc::new(AtomicU64::new(root.next_object.max(newest))),
            root: RwLock::new(Arc::new(root)),
        })
    }

    pub(crate) fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root.read())
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
    pub(crate) fn edit(&self, made: Vec<ObjectId>, change: impl FnOnce(&mut Root)) -> Result<(), ManifestError> {
        let mut version = self.version.lock();
        let before = self.root();
        let mut root = Root::clone(&before);
        change(&mut root);
        root.next_object = self.next_object.load(Ordering::Relaxed);
        match self.commit(*version, &root.encode()) {
            Ok(new) => *version = new,
            Err(error) => {
                // After an Io error a restart may find either root: the objects stay, the wrong ones become orphans.
                if !matches!(error, ManifestError::Io { .. }) {
                    self.discard(&made);
                }
                return Err(error);
            }
        }
        let root = Arc::new(root);
        *self.root.write() = Arc::clone(&root);
        drop(version);

        let named: HashSet<ObjectId> = root.objects().collect();
        let dropped: Vec<ObjectId> = before.objects().filter(|id| !named.contains(id)).collect();
        self.discard(&dropped);
        Ok(())
    }

    /// Commits, and after an error that leaves it open looks which root is there.
    fn commit(&self, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        let done = self.manifest.commit(expected, body);
        if let Err(ManifestError::Io { .. }) = &done
            && let Ok(Some(found)) = self.manifest.load()
            && found.version == expected + 1
            && found.body == body
        {
            return Ok(found.version);
        }
        done
    }

    /// Removes objects that no root names, at once or when nobody holds them any more.
    pub(crate) fn discard(&self, objects: &[ObjectId]) {
        for object in objects {
            self.reader.forget(*object);
        }
        self.holds.remove(objects);
    }
}
