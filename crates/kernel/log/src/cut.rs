//! The cut of a unit of logs that a backup copies.

use crate::attachment::Attachment;
use crate::check::CheckError;
use crate::logs::Logs;
use crate::root::Root;
use std::sync::Arc;
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

impl<A: Attachment> Logs<A> {
    /// Holds the objects and journal frames of the root in force.
    pub fn hold_sealed(&self) -> HeldCut {
        self.sealed.unit().hold()
    }
}
