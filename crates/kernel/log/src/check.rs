//! Reading everything that is sealed: for `thalweg check` and the scrub.

use crate::directory;
use crate::root::Root;
use crate::run;
use std::sync::Arc;
use thalweg_base::ObjectId;
use thalweg_journal::Bounds;
use thalweg_manifest::{Manifest, ManifestError};
use thalweg_storage::Storage;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum CheckError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("the manifest's body is damaged: {0}")]
    Root(thalweg_base::DecodeError),
    #[error(transparent)]
    Run(#[from] run::RunError),
    #[error("object {object} is whole, but not the one that the manifest names")]
    Other { object: ObjectId },
    #[error(transparent)]
    Directory(#[from] directory::DirectoryError),
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub runs: u64,
    pub objects: u64,
    pub bytes: u64,
    /// Records of logs in directory objects, superseded ones included.
    pub records: u64,
    /// What the journal must hold; `None` if there is no manifest yet.
    pub journal: Option<Bounds>,
}

/// Reads the manifest and every object that it names, contents included; fails with the first thing that is wrong. `progress` is
/// told of each object.
pub fn check(
    storage: &Arc<dyn Storage>,
    manifest: &dyn Manifest,
    progress: &mut dyn FnMut(&Checked),
) -> Result<Checked, CheckError> {
    let mut checked = Checked::default();
    let Some(found) = manifest.read()? else { return Ok(checked) };
    let root = Root::decode(&found.body).map_err(CheckError::Root)?;
    checked.journal = Some(root.bounds());
    checked.runs = root.runs.len() as u64;
    for object in root.runs.iter().flat_map(|run| &run.objects) {
        if run::verify(storage, object.meta.id)? != object.meta {
            return Err(CheckError::Other { object: object.meta.id });
        }
        checked.objects += 1;
        checked.bytes += object.meta.bytes();
        progress(&checked);
    }
    for object in &root.directory {
        let meta = directory::verify(storage, object.id)?;
        if meta.bytes != object.bytes {
            return Err(CheckError::Other { object: object.id });
        }
        checked.objects += 1;
        checked.bytes += object.bytes;
        checked.records += object.records;
        progress(&checked);
    }
    Ok(checked)
}
