//! Objects in memory: for tests, simulations and data that need not survive.

use crate::{ObjectWriter, Storage, StorageError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{ObjectId, Ticket};

/// Objects in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    objects: Arc<Mutex<BTreeMap<ObjectId, Slot>>>,
}

enum Slot {
    /// A writer is at it.
    Writing,
    Finished(Bytes),
}

impl MemoryStorage {
    /// A storage without objects.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn get(&self, object: ObjectId) -> Result<Bytes, StorageError> {
        match self.objects.lock().get(&object) {
            Some(Slot::Finished(bytes)) => Ok(bytes.clone()),
            _ => Err(StorageError::Missing(object)),
        }
    }

    fn slice(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        let bytes = self.get(object)?;
        crate::check_range(object, &range, bytes.len() as u64)?;
        Ok(bytes.slice(range.start as usize..range.end as usize))
    }
}

impl Storage for MemoryStorage {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        let mut objects = self.objects.lock();
        if objects.contains_key(&object) {
            return Err(StorageError::Exists(object));
        }
        objects.insert(object, Slot::Writing);
        Ok(Box::new(Writer { storage: self.clone(), object, bytes: Vec::new(), finished: false }))
    }

    fn try_read(&self, object: ObjectId, range: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        Some(self.slice(object, range))
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        Ticket::ready(self.slice(object, range))
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.get(object).map(|bytes| bytes.len() as u64)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        let mut objects = self.objects.lock();
        if let Some(Slot::Finished(_)) = objects.get(&object) {
            objects.remove(&object);
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        let objects = self.objects.lock();
        Ok(objects.iter().filter(|(_, slot)| matches!(slot, Slot::Finished(_))).map(|(id, _)| *id).collect())
    }
}

struct Writer {
    storage: MemoryStorage,
    object: ObjectId,
    bytes: Vec<u8>,
    finished: bool,
}

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn finish(mut self: Box<Self>) -> Result<u64, StorageError> {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let len = bytes.len() as u64;
        self.storage.objects.lock().insert(self.object, Slot::Finished(bytes));
        self.finished = true;
        Ok(len)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            self.storage.objects.lock().remove(&self.object);
        }
    }
}
