//! One file per object, under one folder of a [`Disk`].
//!
//! An object is written as `<16 hex digits>.tmp`, synced, renamed to `<16 hex digits>.obj`, and its folder is synced:
//! only then does it exist. Long writes sync now and then, so that the device's queue stays short and syncs of the
//! journal do not wait long. `docs/format/objects.md` §1 has the names.

use crate::handles::{Handle, Handles};
use crate::{ObjectWriter, Storage, StorageError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{ObjectId, Ticket};
use thalweg_disk::{Disk, File, is_damage, read_device};

/// Writes below this size are gathered.
const GATHER_BYTES: usize = 256 << 10;
/// After so many bytes a long write syncs.
const SYNC_EVERY_BYTES: u64 = 1 << 20;
/// How many files stay open between reads. Readers that are under way may hold a few more.
const OPEN_FILES_MAX: usize = 128;

/// One file per object. Clones share everything.
#[derive(Clone)]
pub struct FileStorage {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    dir: String,
    objects: Mutex<BTreeMap<ObjectId, State>>,
    handles: Handles,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    Finished,
}

impl FileStorage {
    /// Takes over the folder `dir` of `disk`, and removes unfinished files of an earlier run.
    pub fn open(disk: Arc<dyn Disk>, dir: &str) -> Result<Self, StorageError> {
        Self::with_open_files(disk, dir, OPEN_FILES_MAX)
    }

    /// The finished objects in the folder `dir`, to read them: nothing there is changed.
    pub fn open_read_only(disk: Arc<dyn Disk>, dir: &str) -> Result<Self, StorageError> {
        Self::take(disk, dir, OPEN_FILES_MAX, false)
    }

    /// Like [`FileStorage::open`], with a bound of its own on the files kept open.
    pub fn with_open_files(disk: Arc<dyn Disk>, dir: &str, open_files_max: usize) -> Result<Self, StorageError> {
        Self::take(disk, dir, open_files_max, true)
    }

    fn take(disk: Arc<dyn Disk>, dir: &str, open_files_max: usize, clean: bool) -> Result<Self, StorageError> {
        let folder = |operation| move |error: io::Error| StorageError::Folder { operation, cause: error.to_string() };
        let mut objects = BTreeMap::new();
        for name in disk.list(dir).map_err(folder("listing"))? {
            if let Some(object) = parse(&name, ".obj") {
                objects.insert(object, State::Finished);
            } else if clean && parse(&name, ".tmp").is_some() {
                disk.remove(&format!("{dir}/{name}")).map_err(folder("cleaning"))?;
            }
        }
        let handles = Handles::new(open_files_max);
        Ok(Self { shared: Arc::new(Shared { disk, dir: dir.to_owned(), objects: Mutex::new(objects), handles }) })
    }

    /// Whether the object exists. Waits for nothing.
    pub(crate) fn is_there(&self, object: ObjectId) -> bool {
        self.shared.exists(object)
    }
}

/// The object that a file name stands for.
fn parse(name: &str, suffix: &str) -> Option<ObjectId> {
    parse_id(name.strip_suffix(suffix)?)
}

/// A number of 16 lower-case hexadecimal digits.
pub(crate) fn parse_id(digits: &str) -> Option<ObjectId> {
    let canonical = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if canonical { u64::from_str_radix(digits, 16).ok().map(ObjectId) } else { None }
}

fn io_error(object: ObjectId, operation: &'static str, error: &io::Error) -> StorageError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StorageError::NoSpace(object),
        _ => StorageError::Io { object, operation, cause: error.to_string() },
    }
}

fn read_error(object: ObjectId, at: u64, error: &io::Error) -> StorageError {
    if is_damage(error) {
        return StorageError::Unreadable { object, at, cause: error.to_string() };
    }
    io_error(object, "reading", error)
}

impl Shared {
    fn path(&self, object: ObjectId, suffix: &str) -> String {
        format!("{}/{:016x}{suffix}", self.dir, object.0)
    }

    fn exists(&self, object: ObjectId) -> bool {
        self.objects.lock().get(&object) == Some(&State::Finished)
    }

    fn handle(&self, object: ObjectId) -> Result<Handle, StorageError> {
        if let Some(handle) = self.handles.get(object) {
            return Ok(handle);
        }
        let handle = self.open(object)?;
        self.handles.insert(object, handle.clone());
        if !self.exists(object) {
            self.handles.remove(object);
        }
        Ok(handle)
    }

    fn open(&self, object: ObjectId) -> Result<Handle, StorageError> {
        if !self.exists(object) {
            return Err(StorageError::Missing(object));
        }
        let file = match self.disk.open(&self.path(object, ".obj")) {
            Ok(file) => file,
            // It may have been removed since; a file that vanished by other hands is missing as well.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StorageError::Missing(object));
            }
            Err(error) => return Err(io_error(object, "opening", &error)),
        };
        let len = file.len().map_err(|error| io_error(object, "measuring", &error))?;
        Ok(Handle { file, len })
    }

    fn read(
        &self,
        object: ObjectId,
        range: Range<u64>,
        handle: &Handle,
        read: impl FnOnce(&dyn File, &mut [u8], u64) -> io::Result<usize>,
    ) -> Result<Bytes, StorageError> {
        crate::check_range(object, &range, handle.len)?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        match read(handle.file.as_ref(), &mut bytes, range.start) {
            Ok(read) if read < bytes.len() => {
                let cause = format!("the file ends after {read} of {} bytes", bytes.len());
                Err(StorageError::Unreadable { object, at: range.start, cause })
            }
            Ok(_) => Ok(Bytes::from(bytes)),
            Err(error) => Err(read_error(object, range.start, &error)),
        }
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        let Some(handle) = self.handles.get(object) else {
            // Opening may wait for a device; that an object is missing is known without one.
            return (!self.exists(object)).then_some(Err(StorageError::Missing(object)));
        };
        if let Err(error) = crate::check_range(object, &range, handle.len) {
            return Some(Err(error));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        match handle.file.try_read_at(&mut bytes, range.start) {
            Ok(Some(read)) if read == bytes.len() => Some(Ok(Bytes::from(bytes))),
            // A short answer is told apart from damage by the read that waits.
            Ok(_) => None,
            Err(error) => Some(Err(read_error(object, range.start, &error))),
        }
    }
}

impl Storage for FileStorage {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        let shared = &self.shared;
        {
            let mut objects = shared.objects.lock();
            if objects.contains_key(&object) {
                return Err(StorageError::Exists(object));
            }
            objects.insert(object, State::Writing);
        }
        let path = shared.path(object, ".tmp");
        match shared.disk.create(&path) {
            Ok(file) => Ok(Box::new(Writer {
                shared: Arc::clone(shared),
                object,
                path,
                file: Some(file),
                gathered: Vec::new(),
                at: 0,
                unsynced: 0,
                outcome: Outcome::Open,
            })),
            Err(error) => {
                shared.objects.lock().remove(&object);
                Err(io_error(object, "creating", &error))
            }
        }
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        self.shared.try_read(object, range)
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        let handle = self.shared.handle(object);
        Ticket::ready(
            handle.and_then(|handle| self.shared.read(object, range, &handle, |file, buf, at| file.read_at(buf, at))),
        )
    }

    /// Opens the file once more: a handle that is open would still read a file that was removed or replaced.
    fn read_device(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.shared.read(object, range, &self.shared.open(object)?, read_device)
    }

    fn len_device(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.shared.open(object).map(|handle| handle.len)
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.shared.handle(object).map(|handle| handle.len)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        let shared = &self.shared;
        if !shared.exists(object) {
            return Ok(());
        }
        match shared.disk.remove(&shared.path(object, ".obj")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error(object, "removing", &error));
            }
            _ => {}
        }
        shared.objects.lock().remove(&object);
        shared.handles.remove(object);
        Ok(())
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        let objects = self.shared.objects.lock();
        Ok(objects.iter().filter(|(_, state)| **state == State::Finished).map(|(object, _)| *object).collect())
    }
}

struct Writer {
    shared: Arc<Shared>,
    object: ObjectId,
    path: String,
    /// Closed before the file is renamed or removed.
    file: Option<Arc<dyn File>>,
    /// Written by the caller, not yet to the file.
    gathered: Vec<u8>,
    /// The place of `gathered` in the file.
    at: u64,
    /// Written to the file since its last sync.
    unsynced: u64,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Open,
    /// A write or sync failed: the file's content is unknown, and it will not become an object.
    Failed,
    Finished,
}

impl Writer {
    /// Runs `step` unless an earlier one failed, and remembers if it fails.
    fn attempt(
        &mut self,
        operation: &'static str,
        step: impl FnOnce(&mut Self, &dyn File) -> io::Result<()>,
    ) -> Result<(), StorageError> {
        let file = match (&self.file, self.outcome) {
            (Some(file), Outcome::Open) => Arc::clone(file),
            _ => {
                let cause = "an earlier write failed".to_owned();
                return Err(StorageError::Io { object: self.object, operation, cause });
            }
        };
        step(self, file.as_ref()).map_err(|error| {
            self.outcome = Outcome::Failed;
            io_error(self.object, operation, &error)
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        for piece in bytes.chunks(SYNC_EVERY_BYTES as usize) {
            self.attempt("writing", |writer, file| {
                file.write_at(piece, writer.at)?;
                writer.at += piece.len() as u64;
                writer.unsynced += piece.len() as u64;
                if writer.unsynced >= SYNC_EVERY_BYTES {
                    file.sync()?;
                    writer.unsynced = 0;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        let gathered = std::mem::take(&mut self.gathered);
        self.put(&gathered)?;
        self.gathered = gathered;
        self.gathered.clear();
        Ok(())
    }
}

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        if self.gathered.len() + bytes.len() > GATHER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= GATHER_BYTES {
            return self.put(bytes);
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.at + self.gathered.len() as u64
    }

    fn finish(mut self: Box<Self>) -> Result<u64, StorageError> {
        self.flush()?;
        self.attempt("syncing", |_, file| file.sync())?;
        self.file = None;
        let shared = Arc::clone(&self.shared);
        let path = shared.path(self.object, ".obj");
        shared.disk.rename(&self.path, &path).map_err(|error| io_error(self.object, "renaming", &error))?;
        // From here on the file has its final name: remove it under that name if the folder does not become durable.
        self.path = path;
        shared.disk.sync_dir(&shared.dir).map_err(|error| io_error(self.object, "syncing the folder", &error))?;
        shared.objects.lock().insert(self.object, State::Finished);
        self.outcome = Outcome::Finished;
        Ok(self.at)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.outcome != Outcome::Finished {
            self.file = None;
            // The next opening removes a file that stays here; only then is the id free again.
            if self.shared.disk.remove(&self.path).is_ok() {
                self.shared.objects.lock().remove(&self.object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_objects() {
        assert_eq!(parse("00000000000000ff.obj", ".obj"), Some(ObjectId(255)));
        for name in ["00000000000000FF.obj", "ff.obj", "00000000000000ff.tmp", "+0000000000000ff.obj"] {
            assert_eq!(parse(name, ".obj"), None, "{name}");
        }
    }
}
