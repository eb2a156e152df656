//! The cut of a unit of logs that a backup copies.

use crate::attachment::Attachment;
use crate::check::CheckError;
use crate::logs::Logs;
use crate::root::Root;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_manifest::Manifest;
use thalweg_storage::Storage;
use thalweg_unit::Section as _;
pub use thalweg_unit::{Cut, HeldCut};

/// The cut of a unit that no one has open; `None` if nothing was ever written to it. Reads the lists of objects that
/// the root names: the objects in these lists belong to the cut.
pub fn read_cut(manifest: &dyn Manifest, storage: &Arc<dyn Storage>) -> Result<Option<Cut>, CheckError> {
    let Some((unit, mut section)) = Root::read(manifest)? else { return Ok(None) };
    section.read_lists(storage)?;
    Ok(Some(Cut { root: unit.encode().into(), journal: unit.bounds(), objects: section.objects() }))
}

/// Every object that a root's body names, with its length in bytes. Reads the lists of objects from `storage`.
pub fn objects_of_root(body: &[u8], storage: &Arc<dyn Storage>) -> Result<Vec<(ObjectId, u64)>, CheckError> {
    let Some((_, mut section)) = Root::of_body(body).map_err(CheckError::Root)? else { return Ok(Vec::new()) };
    section.read_lists(storage)?;
    Ok(section.objects())
}

impl<A: Attachment> Logs<A> {
    /// Holds the objects and journal frames of the root in force.
    pub fn hold_sealed(&self) -> HeldCut {
        self.sealed.unit().hold()
    }

    /// The objects that every opening reads: those of the directory, and lists.
    pub fn opening_objects(&self) -> Vec<ObjectId> {
        let root = self.sealed.root();
        let lists = root.runs.iter().flat_map(|run| &run.pages).map(|page| page.id);
        root.directory.iter().map(|object| object.id).chain(lists).collect()
    }

    /// An id for an object that no section names.
    pub fn new_object(&self) -> ObjectId {
        self.sealed.unit().new_object()
    }

    /// The owner's epoch.
    pub fn epoch(&self) -> u64 {
        self.sealed.unit().epoch()
    }
}
