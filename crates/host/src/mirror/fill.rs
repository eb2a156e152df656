//! Fills a new folder from the mirror: everything but the objects, which stay in the bucket until they are read.
//!
//! The file `FILLING` is there from before the first change until the mirror says that it is this folder's: a start that
//! finds it begins anew. The mirror is acquired first, so that the folder before cannot change it meanwhile.

use super::FOLDERS;
use crate::folder::{Folder, random};
use anyhow::Context as _;
use std::io;
use std::sync::Arc;
use thalweg_disk::Disk;
use thalweg_journal::TailFiles;
use thalweg_log::{Loss, MANIFEST, objects_of_root};
use thalweg_manifest::{FileManifest, Manifest};
use thalweg_object::{Mirror, Mirrored};
use thalweg_storage::{Storage, StorageError, TieredStorage};

/// What a refused or interrupted filling may leave: these folders' files.
const FILLED: [&str; 4] = ["journal", "objects", "copies", "manifest"];

/// Fills the folder; what clients of the folder before may have seen and is not there.
pub(super) fn fill(folder: &Folder, disk: &Arc<dyn Disk>, mirror: &Mirror) -> anyhow::Result<Loss> {
    folder.begin_filling()?;
    empty(&**disk)?;
    let mirrored = mirror.acquire(0)?.context("the mirror is empty")?;
    let loss = copy(disk, mirror, &mirrored, random()?)?;
    for (name, content) in &mirrored.files {
        folder.put_beside(name, content)?;
    }
    folder.note_filled(loss)?;
    tracing::info!(
        position = %mirrored.tail.map_or(thalweg_base::Lsn::ZERO, |tail| tail.end),
        closed = mirrored.is_closed,
        "the folder was filled from the bucket"
    );
    Ok(loss)
}

/// Removes, durably, what a filling has written.
pub(super) fn empty(disk: &dyn Disk) -> io::Result<()> {
    FILLED.into_iter().try_for_each(|dir| {
        let names = disk.list(dir)?;
        names.iter().try_for_each(|name| disk.remove(&format!("{dir}/{name}")))?;
        if names.is_empty() { Ok(()) } else { disk.sync_dir(dir) }
    })
}

/// Writes the journal's end, the marks of all objects, and the root, durably.
pub(super) fn copy(disk: &Arc<dyn Disk>, mirror: &Mirror, mirrored: &Mirrored, nonce: u64) -> anyhow::Result<Loss> {
    let tail = mirrored.tail.context("the mirror has no root yet")?;
    let mut files = TailFiles::new(&**disk);
    mirror.read_tail(tail, &mut |piece| files.write(piece).map_err(Failed::Disk)).map_err(Failed::into_error)?;
    files.finish().context("the journal's end in the bucket")?;
    let storage: Arc<dyn Storage> = Arc::clone(mirror.objects()) as _;
    let objects = objects_of_root(&mirrored.root, &storage).context("the root in the bucket")?;
    TieredStorage::mark_all(Arc::clone(disk), FOLDERS, &objects)?;
    let manifest = FileManifest::open(Arc::clone(disk), MANIFEST, nonce)?;
    let owner = manifest.acquire(0)?;
    manifest.commit(owner.epoch, owner.version, &mirrored.root)?;
    Ok(if mirrored.is_closed { Loss::Nothing } else { Loss::Everything })
}

enum Failed {
    Disk(io::Error),
    Bucket(StorageError),
}

impl From<StorageError> for Failed {
    fn from(error: StorageError) -> Self {
        Self::Bucket(error)
    }
}

impl Failed {
    fn into_error(self) -> anyhow::Error {
        match self {
            Self::Disk(error) => anyhow::Error::from(error).context("writing the journal's end"),
            Self::Bucket(error) => error.into(),
        }
    }
}
