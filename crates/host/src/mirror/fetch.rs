//! Brings cold objects back to the local disk, so that the folder needs no bucket any longer.

use super::at_once::at_once;
use super::{COPIES_AT_ONCE, FOLDERS, start, stopped};
use crate::folder::Folder;
use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use thalweg_disk::{Disk, RealDisk};
use thalweg_object::{Location, Mirrored};
use thalweg_storage::{FileStorage, TieredStorage, copy_object};

/// What was brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Brings every cold object of a stopped server's folder back, then makes the folder one without a store. `progress` is
/// told how many bytes are there of how many. May be repeated after a failure: what is there already is not read again.
pub fn fetch(data: &Path, location: &Location, progress: &(dyn Fn(u64, u64) + Sync)) -> anyhow::Result<Fetched> {
    if !data.join("FORMAT").exists() {
        bail!("{} is not a data folder: to make one of what {location} holds, serve it with --store", data.display());
    }
    let folder = Folder::take(data)?;
    folder.note_served();
    if folder.is_filling() {
        bail!("{} was being filled from a bucket: start it again with --store first", data.display());
    }
    if let Some(store) = folder.replicated_store() {
        bail!(
            "replicated streams are in {store} only, and stay there: delete them, or read them into other streams; then remove the \
             file REPLICATED in {}",
            data.display()
        );
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(data).context("cannot open the data folder")?);
    let cold = TieredStorage::cold_in(Arc::clone(&disk), FOLDERS)?;
    let is_needed = !cold.is_empty() || folder.is_closed();
    let mirror = if is_needed { Some(stopped::mirror_of(&folder, location)?) } else { None };
    let total = cold.iter().map(|(_, bytes)| bytes).sum();
    let local = FileStorage::open(Arc::clone(&disk), FOLDERS.objects)?;
    let fetched = Mutex::new(Fetched::default());
    at_once(&cold, COPIES_AT_ONCE, &|(object, len)| {
        let Some(mirror) = &mirror else { return Ok(()) };
        let found = copy_object(*object, &**mirror.objects(), &local)?;
        if found != *len {
            bail!("object {object} has {found} bytes in the bucket, and {len} were copied there");
        }
        let mut fetched = fetched.lock();
        fetched.objects += 1;
        fetched.bytes += len;
        progress(fetched.bytes, total);
        Ok(())
    })?;
    if let Some(mirror) = mirror.filter(|_| folder.is_closed()) {
        // This folder goes on alone: whoever is filled from the bucket now is behind it.
        let state = mirror.acquire(0)?.context("the mirror is empty")?;
        mirror.commit(&Mirrored { is_closed: false, ..state })?;
        folder.note_reopened()?;
    }
    start::forget_marks(&*disk)?;
    folder.note_left_store()?;
    Ok(fetched.into_inner())
}
