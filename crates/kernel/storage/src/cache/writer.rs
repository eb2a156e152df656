//! Writing through: the remote storage gets every byte; a small object is remembered until it is finished, and then
//! cached.

use super::options::REQUEST_BYTES_MAX;
use super::shared::Shared;
use crate::{ObjectWriter, StorageError};
use std::sync::Arc;
use thalweg_base::ObjectId;

struct Writer {
    remote: Box<dyn ObjectWriter>,
    shared: Arc<Shared>,
    object: ObjectId,
    /// All that was written; `None` once that is too much to remember.
    kept: Option<Vec<u8>>,
}

pub(crate) fn create(shared: &Arc<Shared>, object: ObjectId) -> Result<Box<dyn ObjectWriter>, StorageError> {
    let remote = shared.remote.create(object)?;
    Ok(Box::new(Writer { remote, shared: Arc::clone(shared), object, kept: Some(Vec::new()) }))
}

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.remote.write(bytes)?;
        self.kept = self.kept.take().filter(|kept| (kept.len() + bytes.len()) as u64 <= REQUEST_BYTES_MAX);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn written(&self) -> u64 {
        self.remote.written()
    }

    fn finish(self: Box<Self>) -> Result<u64, StorageError> {
        let Self { remote, shared, object, kept } = *self;
        let removals = shared.state.lock().index.removals();
        let len = remote.finish()?;
        shared.written(object, len, kept, removals);
        Ok(len)
    }
}
