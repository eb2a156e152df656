//! What a start does with a folder and the mirror that the settings name.

use super::FOLDERS;
use crate::folder::Folder;
use anyhow::{Context as _, bail};
use thalweg_base::ObjectId;
use thalweg_disk::Disk;
use thalweg_object::{Mirror, Mirrored};

/// The mirror as a start has found it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) epoch: u64,
    /// `None`: nobody has said yet whose it is.
    pub(super) mirrored: Option<Mirrored>,
}

impl Found {
    pub(super) fn read(mirror: &Mirror) -> anyhow::Result<Self> {
        let (epoch, mirrored) = mirror.read()?.unwrap_or_default();
        Ok(Self { epoch, mirrored })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.mirrored.as_ref().is_some_and(|mirrored| mirrored.is_closed)
    }

    /// The lineage of the folder whose mirror it is.
    pub(super) fn lineage(&self) -> Option<&str> {
        self.mirrored.as_ref().map(|mirrored| mirrored.lineage.as_str())
    }
}

/// The facts of a folder that a start depends on.
pub(super) struct FolderIs {
    /// No server has run on it.
    pub(super) is_new: bool,
    pub(super) lineage: String,
    /// The store that it was used with last.
    pub(super) attached: Option<String>,
    /// How many of its objects are in a bucket only.
    pub(super) cold: u64,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Folder and mirror belong together.
    GoOn,
    /// The mirror has nothing yet: all of the folder is to be copied.
    Attach,
    /// The folder has nothing yet: it is to be filled from the mirror.
    Fill,
}

/// Decides for a store of this `name`, or refuses. A folder that was used with the store before goes on without an
/// answer of the bucket.
pub(super) fn decide(
    folder: &FolderIs,
    name: &str,
    read: anyhow::Result<Found>,
) -> anyhow::Result<(Option<Found>, Start)> {
    let found = match read {
        Ok(found) => found,
        Err(error) if !folder.is_new && folder.attached.as_deref() == Some(name) => {
            tracing::warn!(
                store = name,
                error = format!("{error:#}"),
                cold = folder.cold,
                "the bucket does not answer: what is on this disk is served, and nothing is copied until it does"
            );
            return Ok((None, Start::GoOn));
        }
        Err(error) => return Err(error).context(format!("--store {name} cannot be used")),
    };
    let start = match &found.mirrored {
        None if folder.cold > 0 && !folder.is_new => bail!(
            "{} objects of this folder are in {} only, and {name} holds nothing: name the store with which the folder was \
             used last",
            folder.cold,
            folder.attached.as_deref().unwrap_or("a bucket")
        ),
        None => Start::Attach,
        Some(mirrored) if folder.is_new && mirrored.root.is_empty() => Start::Attach,
        Some(_) if folder.is_new => Start::Fill,
        Some(mirrored) if mirrored.lineage == folder.lineage => Start::GoOn,
        Some(_) => bail!(
            "{name} holds the data of another folder, or this folder's was taken over by another server: take another prefix, \
             or name an empty folder as --data to serve what {name} holds"
        ),
    };
    Ok((Some(found), start))
}

/// Refuses a folder that cannot be served without its store.
pub(super) fn without_store(folder: &Folder, attached: Option<&str>, cold: &[(ObjectId, u64)]) -> anyhow::Result<()> {
    let store = attached.unwrap_or("its bucket");
    if folder.is_filling() {
        bail!("{} was being filled from a bucket: start again with the same --store", folder.path().display());
    }
    if !cold.is_empty() {
        let bytes: u64 = cold.iter().map(|(_, bytes)| bytes).sum();
        bail!(
            "{} objects ({bytes} bytes) of {} are in {store} only: start with --store, or bring them back with `thalweg store \
             fetch` first",
            cold.len(),
            folder.path().display()
        );
    }
    if let Some(store) = attached {
        tracing::warn!("without --store nothing is copied to {store} any longer");
    }
    Ok(())
}

/// Removes all marks: they are of another store, and no object is in that one only.
pub(super) fn forget_marks(disk: &dyn Disk) -> anyhow::Result<()> {
    for name in disk.list(FOLDERS.marks)? {
        disk.remove(&format!("{}/{name}", FOLDERS.marks))?;
    }
    Ok(())
}
