//! One index of a unit: its section of the root.

use crate::root::{Claim, Section};
use crate::sync::RwLock;
use crate::unit::{Dropped, Unit};
use std::sync::Arc;
use thalweg_base::{Lsn, ObjectId};
use thalweg_manifest::ManifestError;

/// The section in force of one index, and the way to change it.
pub struct Index<S> {
    unit: Arc<Unit>,
    section: RwLock<Arc<S>>,
}

impl<S: Section> Index<S> {
    /// Puts the first section in force. The first edit commits it.
    pub fn new(unit: Arc<Unit>, section: S) -> Self {
        unit.enter(&section);
        Self { unit, section: RwLock::new(Arc::new(section)) }
    }

    /// The unit of the index.
    pub fn unit(&self) -> &Arc<Unit> {
        &self.unit
    }

    /// The section in force.
    pub fn section(&self) -> Arc<S> {
        Arc::clone(&self.section.read())
    }

    /// Says that the index holds no reference into the journal below `floor`, which is at most the floor of its section
    /// in force. The unit trims the journal up to there, unless another index needs frames below.
    pub fn release(&self, floor: Lsn) {
        let in_force = self.section().floor();
        assert!(floor <= in_force, "{:?} lets {floor} go, and its section in force needs {in_force}", S::INDEX);
        self.unit.release(S::INDEX, floor);
    }

    /// Makes one edit, with objects that were `made` for it. Returns the objects that the new section no longer names:
    /// [`Unit::discard`] removes them. If it is certain that the edit was not made, the new objects are removed again. An
    /// owner that was deposed is not certain: its edit may have been made before.
    ///
    /// After an `Io` error the edit counts as not made, although a restart may find it: the objects of both roots stay
    /// until a later edit is certain, which starts from the section in force.
    pub fn edit(&self, made: Vec<ObjectId>, change: impl FnOnce(&mut S, &mut Claim)) -> Result<Dropped, ManifestError> {
        let changed = |claim: &mut Claim| {
            let mut section = S::clone(&self.section());
            change(&mut section, claim);
            section
        };
        self.unit.edit(made, changed, |section| *self.section.write() = Arc::new(section))
    }
}
