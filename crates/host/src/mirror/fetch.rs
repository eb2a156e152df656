//! Brings cold objects back to the local disk, so that the folder needs no bucket any longer.

use super::{FOLDERS, UNIT, start};
use crate::folder::{Folder, random};
use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thalweg_base::ObjectId;
use thalweg_disk::{Disk, RealDisk};
use thalweg_object::{Bucket, BucketOptions, Location, Mirror};
use thalweg_storage::{FileStorage, Storage, TieredStorage};

const PIECE_BYTES: u64 = 4 << 20;
const FETCHES_AT_ONCE: usize = 4;

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
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(data).context("cannot open the data folder")?);
    let cold = TieredStorage::cold_in(Arc::clone(&disk), FOLDERS)?;
    let bucket = Bucket::open(location, BucketOptions::default())?;
    let mirror = Mirror::new(bucket, UNIT, random()?);
    let mirrored = mirror.read()?.and_then(|(_, mirrored)| mirrored);
    if !cold.is_empty() && mirrored.is_none_or(|mirrored| mirrored.lineage != folder.lineage()) {
        bail!("{location} does not hold the objects of {}: name the store that it was served with", data.display());
    }
    let total = cold.iter().map(|(_, bytes)| bytes).sum();
    let local = FileStorage::open(Arc::clone(&disk), FOLDERS.objects)?;
    let fetched = Mutex::new(Fetched::default());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        while let Some((object, len)) = cold.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = copy(&**mirror.objects(), &local, *object, *len) {
                next.store(cold.len(), Ordering::Relaxed);
                failed.lock().get_or_insert(error);
                return;
            }
            let mut fetched = fetched.lock();
            fetched.objects += 1;
            fetched.bytes += len;
            progress(fetched.bytes, total);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..FETCHES_AT_ONCE.min(cold.len()) {
            scope.spawn(work);
        }
    });
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    start::forget_marks(&*disk)?;
    folder.forget_store()?;
    Ok(fetched.into_inner())
}

fn copy(from: &dyn Storage, to: &FileStorage, object: ObjectId, len: u64) -> anyhow::Result<()> {
    let found = from.len(object)?;
    if found != len {
        bail!("object {object} has {found} bytes in the bucket, and {len} were copied there");
    }
    let mut writer = to.create(object)?;
    let mut at = 0;
    while at < len {
        let end = len.min(at + PIECE_BYTES);
        writer.write(&from.read(object, at..end).wait()?)?;
        at = end;
    }
    writer.finish()?;
    Ok(())
}
