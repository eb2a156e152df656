//! Reading objects from the device, past the caches of the operating system.

use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::{ObjectId, Ticket};
use thalweg_storage::{ObjectWriter, Storage, StorageError};

/// The objects of a storage; reads come from the device and leave nothing in memory.
pub(crate) struct Device(pub(crate) Arc<dyn Storage>);

impl Storage for Device {
    fn create(&self, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
        self.0.create(object)
    }

    fn try_read(&self, _: ObjectId, _: Range<u64>) -> Option<Result<Bytes, StorageError>> {
        None
    }

    fn read(&self, object: ObjectId, range: Range<u64>) -> Ticket<Result<Bytes, StorageError>> {
        Ticket::ready(self.0.read_device(object, range))
    }

    fn len(&self, object: ObjectId) -> Result<u64, StorageError> {
        self.0.len_device(object)
    }

    fn remove(&self, object: ObjectId) -> Result<(), StorageError> {
        self.0.remove(object)
    }

    fn list(&self) -> Result<Vec<ObjectId>, StorageError> {
        self.0.list()
    }
}
