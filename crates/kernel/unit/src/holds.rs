//! Holding everything that one root names, while background work goes on: for backups.
//!
//! A held object is not removed when an edit drops it, but when its last hold goes. Nothing of this is durable: after a
//! crash the next owner removes objects that its root does not name.

use crate::sync::Mutex;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_journal::Bounds;
use thalweg_storage::{Storage, StorageError};

/// The part of a unit that a backup copies for one root, apart from the journal's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The manifest's body.
    pub root: Bytes,
    /// The range that the journal's copy must hold.
    pub journal: Bounds,
    /// Every object that the root names, with its length in bytes.
    pub objects: Vec<(ObjectId, u64)>,
}

/// A cut whose objects stay until this is dropped. Dropping it may remove files: not on a reactor.
pub struct HeldCut {
    /// The root's content that is held.
    pub cut: Cut,
    holds: Arc<Holds>,
}

impl HeldCut {
    pub(crate) fn take(holds: &Arc<Holds>, cut: impl FnOnce() -> Cut) -> Self {
        Self { cut: holds.hold(cut), holds: Arc::clone(holds) }
    }

    /// A range of an object of the cut. Waits for the device.
    pub fn read(&self, object: ObjectId, range: Range<u64>) -> Result<Bytes, StorageError> {
        self.holds.storage.read(object, range).wait()
    }
}

impl Drop for HeldCut {
    fn drop(&mut self) {
        self.holds.release(self.cut.objects.iter().map(|(object, _)| *object));
    }
}

/// The objects that are held, and those among them that go with their last hold, because no root names them.
pub(crate) struct Holds {
    storage: Arc<dyn Storage>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: HashMap<ObjectId, usize>,
    /// Held objects that no root names: they are removed with their last hold.
    dropped: HashSet<ObjectId>,
}

impl Holds {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, state: Mutex::default() }
    }

    fn hold(&self, cut: impl FnOnce() -> Cut) -> Cut {
        let mut state = self.state.lock();
        let cut = cut();
        for (object, _) in &cut.objects {
            *state.held.entry(*object).or_default() += 1;
        }
        cut
    }

    fn release(&self, objects: impl Iterator<Item = ObjectId>) {
        let mut free = Vec::new();
        {
            let mut state = self.state.lock();
            for object in objects {
                let Some(count) = state.held.get_mut(&object) else { continue };
                *count -= 1;
                if *count == 0 {
                    state.held.remove(&object);
                    if state.dropped.remove(&object) {
                        free.push(object);
                    }
                }
            }
        }
        self.remove_now(&free);
    }

    /// Removes objects that no root names: at once, or with their last hold.
    pub(crate) fn remove(&self, objects: &[ObjectId]) {
        let mut free = objects.to_vec();
        {
            let mut state = self.state.lock();
            free.retain(|object| {
                let held = state.held.contains_key(object);
                if held {
                    state.dropped.insert(*object);
                }
                !held
            });
        }
        self.remove_now(&free);
    }

    fn remove_now(&self, objects: &[ObjectId]) {
        for object in objects {
            if let Err(error) = self.storage.remove(*object) {
                tracing::warn!(%object, %error, "an unneeded object could not be removed: the next start removes it");
            }
        }
    }
}
