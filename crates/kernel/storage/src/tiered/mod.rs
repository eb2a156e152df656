//! A storage on the local disk, with copies of its objects in a remote storage.
//!
//! An object is made on the local disk, and exists when it is durable there: the remote storage is never waited for. In
//! the background its owner has it copied ([`TieredStorage::copy`]), and later gives up the local file
//! ([`TieredStorage::evict`]): from then on the object is *cold*, and reads of it go to the remote storage, through a
//! cache if there is one.
//!
//! A *mark* says that the remote storage has a copy. Marks are empty files (`docs/format/objects.md` §1), so that an
//! opening knows every object without asking the remote storage. A mark is durable before the local file goes. Should
//! marks be lost all the same, [`TieredStorage::find_copies`] asks the remote storage for what it has.
//!
//! Copies of objects that were removed here stay until [`TieredStorage::remove_copies`]: whoever keeps a root in the
//! remote storage removes them once that root does not name them any more.

mod marks;

use crate::{FileStorage, ObjectWriter, Storage, StorageError, copy_object};
use bytes::Bytes;
use marks::{Mark, Marks};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::{ObjectId, Ticket};
use thalweg_disk::Disk;

/// Where the copies are.
#[derive(Clone)]
pub struct Remote {
    /// Keeps the copies. Objects are written to it, and removed from it.
    pub copies: Arc<dyn Storage>,
    /// Reads copies: a cache before `copies`, or `copies` itself.
    pub reads: Arc<dyn Storage>,
}

/// A storage on the local disk with copies in a remote one. Clones share everything.
#[derive(Clone)]
pub struct TieredStorage {
    shared: Arc<Shared>,
}

/// The two folders of a tiered storage.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// Has the files of objects.
    pub objects: &'a str,
    /// Has the marks.
    pub marks: &'a str,
}

struct Shared {
    marks: Marks,
    local: FileStorage,
    remote: Remote,
    state: Mutex<State>,
    cold_reads: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Objects with a mark: the length of each in bytes.
    copied: BTreeMap<ObjectId, u64>,
    /// Marks that may not survive loss of power yet.
    unsynced: BTreeSet<ObjectId>,
    /// Copies of objects that were removed here.
    unneeded: BTreeSet<ObjectId>,
    /// Lengths of objects on the local disk, as far as they were asked for.
    lengths: BTreeMap<ObjectId, u64>,
}

/// How the objects of a storage are spread over its tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Objects on the local disk.
    pub local_objects: u64,
    /// Their bytes.
    pub local_bytes: u64,
    /// Of these, objects without a copy.
    pub uncopied_objects: u64,
    /// Their bytes.
    pub uncopied_bytes: u64,
    /// Objects that are in the remote storage only.
    pub cold_objects: u64,
    /// Their bytes.
    pub cold_bytes: u64,
    /// Reads of such objects since the start.
    pub cold_reads: u64,
}

impl TieredStorage {
    /// Takes over the folders, and removes unfinished files of an earlier run.
    pub fn open(disk: Arc<dyn Disk>, folders: Folders<'_>, remote: Remote) -> Result<Self, StorageError> {
        let local = FileStorage::open(Arc::clone(&disk), folders.objects)?;
        let opened = Self::over(disk, folders.marks, local, remote)?;
        if !opened.shared.state.lock().copied.is_empty() {
            // The process before may have been killed between putting a mark and syncing it.
            opened.shared.marks.sync()?;
        }
        Ok(opened)
    }

    /// The finished objects, to read them: nothing in the folders is changed.
    pub fn open_read_only(disk: Arc<dyn Disk>, folders: Folders<'_>, remote: Remote) -> Result<Self, StorageError> {
        let local = FileStorage::open_read_only(Arc::clone(&disk), folders.objects)?;
        Self::over(disk, folders.marks, local, remote)
    }

    fn over(disk: Arc<dyn Disk>, dir: &str, local: FileStorage, remote: Remote) -> Result<Self, StorageError> {
        let marks = Marks { disk, dir: dir.to_owned() };
        let copied = marks.list()?.into_iter().map(|mark| (mark.object, mark.len)).collect();
        let state = Mutex::new(State { copied, ..State::default() });
        let cold_reads = AtomicU64::new(0);
        Ok(Self { shared: Arc::new(Shared { marks, local, remote, state, cold_reads }) })
    }

    /// Puts marks for `objects`, with their lengths in bytes, into folders that no storage has open: the remote storage
    /// has all of them.
    pub fn mark_all(
        disk: Arc<dyn Disk>,
        folders: Folders<'_>,
        objects: &[(ObjectId, u64)],
    ) -> Result<(), StorageError> {
        let marks = Marks { disk, dir: folders.marks.to_owned() };
        objects.iter().try_for_each(|(object, len)| marks.put(Mark { object: *object, len: *len }))?;
        if objects.is_empty() { Ok(()) } else { marks.sync() }
    }

    /// The marked objects without a local file, of folders that no storage has open: with their lengths in bytes.
    pub fn cold_in(disk: Arc<dyn Disk>, folders: Folders<'_>) -> Result<Vec<(ObjectId, u64)>, StorageError> {
        let local: BTreeSet<ObjectId> =
            FileStorage::open_read_only(Arc::clone(&disk), folders.objects)?.list()?.into_iter().collect();
        let marks = Marks { disk, dir: folders.marks.to_owned() }.list()?.into_iter();
        Ok(marks.filter(|mark| !local.contains(&mark.object)).map(|mark| (mark.object, mark.len)).collect())
    }

    /// Marks every object that the remote storage has and this one does not know; how many there are. For an opening
    /// that lacks objects, because marks were lost. Waits for the remote storage.
    pub fn find_copies(&self) -> Result<u64, StorageError> {
        let shared = &self.shared;
        let known: BTreeSet<ObjectId> = self.list()?.into_iter().collect();
        let mut found = 0;
        for object in shared.remote.copies.list()?.into_iter().filter(|object| !known.contains(object)) {
            let len = shared.remote.copies.len(object)?;
            shared.mark(object, len)?;
            found += 1;
        }
        self.sync_marks().map(|()| found)
    }

    /// Has the remote storage keep a copy of an object that is on the local disk. Waits for both; takes back nothing
    /// when it fails, and does nothing if there is a mark.
    ///
    /// The mark is durable after [`TieredStorage::sync_marks`]. Without it the object is copied again: to the remote
    /// storage it exists then.
    pub fn copy(&self, object: ObjectId) -> Result<u64, StorageError> {
        let shared = &self.shared;
        if let Some(len) = shared.copied(object) {
            return Ok(len);
        }
        let len = shared.local.len(object)?;
        match copy_object(object, &shared.local, &*shared.remote.copies) {
            Ok(_) => {}
            // An earlier copy whose mark was lost.
            Err(StorageError::Exists(_)) if same_bytes(object, &shared.local, &*shared.remote.copies)? => {}
            Err(error) => return Err(error),
        }
        shared.mark(object, len)?;
        let is_gone = !shared.has_local(object);
        if is_gone {
            // It was removed meanwhile.
            self.remove(object)?;
        }
        Ok(len)
    }

    /// Compares the marks with the objects that the remote storage has, sorted, with their lengths in bytes. A mark
    /// without its copy goes, if the object is on the local disk; the other objects are lost, and returned.
    pub fn compare_copies(&self, found: &[(ObjectId, u64)]) -> Result<Vec<ObjectId>, StorageError> {
        let shared = &self.shared;
        let copied: Vec<(ObjectId, u64)> =
            shared.state.lock().copied.iter().map(|(object, len)| (*object, *len)).collect();
        let mut lost = Vec::new();
        let mut is_changed = false;
        for (object, len) in copied.into_iter().filter(|copy| found.binary_search(copy).is_err()) {
            if !shared.has_local(object) {
                // Or it was removed meanwhile.
                lost.extend(shared.copied(object).map(|_| object));
                continue;
            }
            shared.marks.remove(Mark { object, len })?;
            let mut state = shared.state.lock();
            state.copied.remove(&object);
            state.unsynced.remove(&object);
            is_changed = true;
        }
        if is_changed {
            shared.marks.sync()?;
        }
        Ok(lost)
    }

    /// Makes the marks durable that were put since the last call.
    pub fn sync_marks(&self) -> Result<(), StorageError> {
        let unsynced = self.shared.state.lock().unsynced.clone();
        if unsynced.is_empty() {
            return Ok(());
        }
        let synced = self.shared.marks.sync();
        let mut state = self.shared.state.lock();
        for object in unsynced {
            state.unsynced.remove(&object);
            // Whether the mark survives loss of power will never be known: it is put once more, with the next copy.
            if synced.is_err()
                && self.shared.has_local(object)
                && let Some(len) = state.copied.remove(&object)
            {
                let _ = self.shared.marks.remove(Mark { object, len });
            }
        }
        synced
    }

    /// Gives up the local file of a copied object, if its mark is durable; the bytes that this has freed. Reads that
    /// are under way go on.
    pub fn evict(&self, object: ObjectId) -> Result<u64, StorageError> {
        let shared = &self.shared;
        let len = {
            let state = shared.state.lock();
            match state.copied.get(&object) {
                Some(len) if !state.unsynced.contains(&object) && shared.has_local(object) => *len,
                _ => return Ok(0),
            }
        };
        shared.local.remove(object)?;
        shared.state.lock().lengths.remove(&object);
        Ok(len)
    }

    /// Brings a cold object back to the local disk. Its copy stays. Waits for both.
    pub fn bring_home(&self, object: ObjectId) -> Result<(), StorageError> {
        let shared = &self.shared;
        match copy_object(object, &*shared.remote.copies, &shared.local) {
            Ok(_) | Err(StorageError::Exists(_)) => {}
            Err(error) => return Err(error),
        }
        if shared.copied(object).is_none() {
            // It was removed meanwhile.
            shared.local.remove(object)?;
        }
        Ok(())
    }

    /// The objects on the local disk that have a copy, oldest first, with their lengths in bytes.
    pub fn evictable(&self) -> Result<Vec<(ObjectId, u64)>, StorageError> {
        let local = self.shared.local.list()?;
        let state = self.shared.state.lock();
        Ok(local.into_iter().filter_map(|object| Some((object, *state.copied.get(&object)?))).collect())
    }

    /// Whether the remote storage has a copy.
    #[must_use]
    pub fn is_copied(&self, object: ObjectId) -> bool {
        self.shared.copied(object).is_some()
    }

    /// The objects that have a copy.
    #[must_use]
    pub fn copied(&self) -> BTreeSet<ObjectId> {
        self.shared.state.lock().copied.keys().copied().collect()
    }

    /// Copies of objects that were removed here by now.
    #[must_use]
    pub fn unneeded(&self) -> Vec<ObjectId> {
        self.shared.state.lock().unneeded.iter().copied().collect()
    }

    /// Removes copies that [`TieredStorage::unneeded`] has named, when nothing in the remote storage names them any
    /// more. Waits for the remote storage.
    pub fn remove_copies(&self, unneeded: &[ObjectId]) -> Result<(), StorageError> {
        for object in unneeded {
            self.shared.remote.reads.remove(*object)?;
            self.shared.state.lock().unneeded.remove(object);
        }
        Ok(())
    }

    /// How the objects are spread over the tiers now.
    pub fn stats(&self) -> Result<TierStats, StorageError> {
        let local = self.shared.local.list()?;
        let mut stats =
            TierStats { cold_reads: self.shared.cold_reads.load(Ordering::Relaxed), ..TierStats::default() };
        for object in &local {
            let known = { self.shared.state.lock().lengths.get(object).copied() };
            let len = match known {
                Some(len) => len,
                None => match self.shared.local.len(*object) {
                    Ok(len) => len,
                    Err(StorageError::Missing(_)) => continue,
                    Err(error) => return Err(error),
                },
            };
            let mut state = self.shared.state.lock();
            if self.shared.has_local(*object) {
                state.lengths.insert(*object, len);
            }
            stats.local_objects += 1;
            stats.local_bytes += len;
            if !state.copied.contains_key(object) {
                stats.uncopied_objects += 1;
                stats.uncopied_bytes += len;
            }
        }
        let state = self.shared.state.lock();
        for (object, len) in &state.copied {
            if local.binary_search(object).is_err() {
                stats.cold_objects += 1;
                stats.cold_bytes += len;
            }
        }
        Ok(stats)
    }
}

impl Shared {
    fn mark(&self, object: ObjectId, len: u64) -> Result<(), StorageError> {
        self.marks.put(Mark { object, len })?;
        let mut state = self.state.lock();
        state.copied.insert(object, len);
        state.unsynced.insert(object);
        Ok(())
    }

    fn copied(&self, object: ObjectId) -> Option<u64> {
        self.state.lock().copied.get(&object).copied()
    }

    fn has_local(&self, object: ObjectId) -> bool {
        self.local.is_there(object)
    }

    /// Whether a read that did not find the local file is to go to the remote storage.
    fn is_cold(&self, object: ObjectId) -> bool {
        let is_cold = self.copied(object).is_some();
        self.cold_reads.fetch_add(u64::from(is_cold), Ordering::Relaxed);
        is_cold
    }
}

impl Storage for TieredStorage {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        if self.shared.copied(object).is_some() {
            return Err(StorageError::Exists(object));
        }
        self.shared.local.create(object)
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        match self.shared.local.try_read(object, range.clone()) {
            Some(Err(StorageError::Missing(_))) if self.shared.copied(object).is_some() => {
                let read = self.shared.remote.reads.try_read(object, range);
                self.shared.cold_reads.fetch_add(u64::from(read.is_some()), Ordering::Relaxed);
                read
            }
            read => read,
        }
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        let shared = &self.shared;
        match shared.local.read(object, range.clone()).take() {
            Ok(Err(StorageError::Missing(_))) if shared.is_cold(object) => shared.remote.reads.read(object, range),
            Ok(read) => Ticket::ready(read),
            Err(pending) => pending,
        }
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        match self.shared.local.len(object) {
            Err(StorageError::Missing(_)) => self.shared.copied(object).ok_or(StorageError::Missing(object)),
            len => len,
        }
    }

    fn read_device(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        match self.shared.local.read_device(object, range.clone()) {
            Err(StorageError::Missing(_)) if self.is_cold(object) => {
                self.shared.remote.copies.read_device(object, range)
            }
            read => read,
        }
    }

    /// Of a cold object it is the length that was copied: an opening asks for that of every object, and needs no remote
    /// storage for it.
    fn len_device(&self, object: ObjectId) -> Result<u64, StorageError> {
        match self.shared.local.len_device(object) {
            Err(StorageError::Missing(_)) => self.shared.copied(object).ok_or(StorageError::Missing(object)),
            len => len,
        }
    }

    fn is_cold(&self, object: ObjectId) -> bool {
        self.shared.copied(object).is_some() && !self.shared.has_local(object)
    }

    /// The copy stays until [`TieredStorage::remove_copies`].
    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        let shared = &self.shared;
        shared.local.remove(object)?;
        let Some(len) = shared.copied(object) else {
            shared.state.lock().lengths.remove(&object);
            return Ok(());
        };
        shared.marks.remove(Mark { object, len })?;
        let mut state = shared.state.lock();
        state.copied.remove(&object);
        state.unsynced.remove(&object);
        state.lengths.remove(&object);
        state.unneeded.insert(object);
        Ok(())
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        let local = self.shared.local.list()?;
        let state = self.shared.state.lock();
        let all: BTreeSet<ObjectId> = local.into_iter().chain(state.copied.keys().copied()).collect();
        Ok(all.into_iter().collect())
    }
}

/// Whether both storages have the same bytes under an id. Waits for both.
fn same_bytes(object: ObjectId, one: &dyn Storage, other: &dyn Storage) -> Result<bool, StorageError> {
    const PIECE_BYTES: u64 = 4 << 20;
    let len = one.len(object)?;
    if other.len(object)? != len {
        return Ok(false);
    }
    let mut at = 0;
    while at < len {
        let range = at..len.min(at + PIECE_BYTES);
        if one.read(object, range.clone()).wait()? != other.read(object, range.clone()).wait()? {
            return Ok(false);
        }
        at = range.end;
    }
    Ok(true)
}

/// The failure of an operation on the folder of objects.
fn folder_error(operation: &'static str) -> impl FnOnce(io::Error) -> StorageError {
    move |error| StorageError::Folder { operation, cause: error.to_string() }
}
