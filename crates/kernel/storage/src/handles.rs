//! The open files of a [`crate::FileStorage`]: a bounded number, the longest unused closed first.
//!
//! Files are opened and closed outside the lock, so that no holder of the lock waits for a device.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_disk::File;

/// One open object. A reader's clone keeps the file's space until it is dropped, even if the object is removed.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) file: Arc<dyn File>,
    pub(crate) len: u64,
}

pub(crate) struct Handles {
    open: Mutex<Open>,
    max: usize,
}

struct Open {
    files: HashMap<ObjectId, (Handle, u64)>,
    uses: u64,
}

impl Handles {
    pub(crate) fn new(max: usize) -> Self {
        Self { open: Mutex::new(Open { files: HashMap::new(), uses: 0 }), max: max.max(1) }
    }

    pub(crate) fn get(&self, object: ObjectId) -> Option<Handle> {
        let mut open = self.open.lock();
        open.uses += 1;
        let now = open.uses;
        let (handle, used) = open.files.get_mut(&object)?;
        *used = now;
        Some(handle.clone())
    }

    /// Keeps `handle`, and lets go of the one that was not used for longest if there are too many.
    pub(crate) fn insert(&self, object: ObjectId, handle: Handle) {
        let mut open = self.open.lock();
        open.uses += 1;
        let now = open.uses;
        let replaced = open.files.insert(object, (handle, now));
        let oldest = if open.files.len() > self.max {
            open.files.iter().min_by_key(|(_, (_, used))| *used).map(|(object, _)| *object)
        } else {
            None
        };
        let evicted = oldest.and_then(|object| open.files.remove(&object));
        drop(open);
        drop((replaced, evicted));
    }

    pub(crate) fn remove(&self, object: ObjectId) {
        let removed = self.open.lock().files.remove(&object);
        drop(removed);
    }
}
