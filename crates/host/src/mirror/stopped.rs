//! The objects of a stopped server's folder, those included that are in a bucket only.

use super::{FOLDERS, UNIT};
use crate::folder::Folder;
use anyhow::{Context as _, bail};
use std::sync::Arc;
use thalweg_disk::Disk;
use thalweg_object::{Bucket, BucketOptions, Location, Mirror};
use thalweg_storage::{FileStorage, Remote, Storage, TieredStorage};

/// The objects of a folder that no server has open, to read them. Refuses if some are in a bucket only and `store` does
/// not name it.
pub fn objects(folder: &Folder, disk: &Arc<dyn Disk>, store: Option<&Location>) -> anyhow::Result<Arc<dyn Storage>> {
    let cold = TieredStorage::cold_in(Arc::clone(disk), FOLDERS).context("the objects cannot be listed")?;
    if cold.is_empty() {
        let objects = FileStorage::open_read_only(Arc::clone(disk), FOLDERS.objects);
        return Ok(Arc::new(objects.context("the objects cannot be read")?));
    }
    let dir = folder.path().display();
    let Some(location) = store else {
        bail!(
            "{} objects ({} bytes) of {dir} are in {} only: name it with --store, and they are read from there",
            cold.len(),
            cold.iter().map(|(_, bytes)| bytes).sum::<u64>(),
            folder.store().as_deref().unwrap_or("a bucket")
        );
    };
    let mirror = mirror_of(folder, location)?;
    let copies: Arc<dyn Storage> = Arc::clone(mirror.objects()) as _;
    let remote = Remote { reads: Arc::clone(&copies), copies };
    Ok(Arc::new(TieredStorage::open_read_only(Arc::clone(disk), FOLDERS, remote)?))
}

/// The mirror at `location`, which must be the folder's.
pub(super) fn mirror_of(folder: &Folder, location: &Location) -> anyhow::Result<Mirror> {
    let bucket = Bucket::open(location, BucketOptions::default())?;
    bucket.check()?;
    let mirror = Mirror::new(bucket, UNIT, crate::folder::random()?);
    let mirrored = mirror.read()?.and_then(|(_, mirrored)| mirrored);
    if mirrored.is_none_or(|mirrored| mirrored.lineage != folder.lineage()) {
        let dir = folder.path().display();
        bail!("{location} does not hold the objects of {dir}: name the store that it was served with");
    }
    Ok(mirror)
}
