//! What a start does with a folder and the mirror that the settings name.

use super::FOLDERS;
use crate::folder::Folder;
use anyhow::{Context as _, bail};
use thalweg_base::ObjectId;
use thalweg_disk::Disk;
use thalweg_log::epoch_of;
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
    /// Its last server has stopped and left everything to the bucket: another one may serve that by now.
    pub(super) is_closed: bool,
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
    /// The mirror's root is gone, and the folder was used with it.
    Rebuild,
    /// The folder has nothing yet: it is to be filled from the mirror.
    Fill,
}

/// Why a folder cannot be served without asking its bucket first.
const CLOSED: &str = "the last server on this folder stopped in order and left everything to the bucket, so that another one may serve \
                      it by now";

/// Decides for a store of this `name`, or refuses. A folder that was used with the store before goes on without an
/// answer of the bucket.
pub(super) fn decide(
    folder: &FolderIs,
    name: &str,
    read: anyhow::Result<Found>,
) -> anyhow::Result<(Option<Found>, Start)> {
    let found = match read {
        Ok(found) => found,
        Err(error) if folder.is_closed && !folder.is_new => {
            return Err(error).context(format!("{CLOSED}, and {name} cannot be asked: start when it answers"));
        }
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
        None if folder.cold > 0 && !folder.is_new && folder.attached.as_deref() == Some(name) => Start::Rebuild,
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

/// Refuses if the bucket, whose root is gone, lacks an object that is not on this disk. The newest epoch of the objects
/// there.
pub(super) fn every_cold_object_is_in(mirror: &Mirror, cold: &[(ObjectId, u64)], name: &str) -> anyhow::Result<u64> {
    let listed = mirror.objects().list_with_bytes()?;
    let missing = cold.iter().filter(|copy| listed.binary_search(copy).is_err()).count();
    if missing > 0 {
        bail!(
            "{missing} of the {} objects of this folder that are in {name} only are missing there, and so is its root: restore the \
             bucket, or name the store with which the folder was used last",
            cold.len()
        );
    }
    tracing::warn!(store = name, "the mirror's root is missing: it is made again");
    Ok(listed.last().map_or(0, |(object, _)| epoch_of(*object)))
}

/// Refuses a folder that cannot be served without its store.
pub(super) fn without_store(
    folder: &Folder,
    disk: &dyn Disk,
    attached: Option<&str>,
    cold: &[(ObjectId, u64)],
) -> anyhow::Result<()> {
    let store = attached.unwrap_or("its bucket");
    if folder.is_filling() {
        bail!("{} was being filled from a bucket: start again with the same --store", folder.path().display());
    }
    if let Some(store) = folder.replicated_store() {
        bail!(
            "replicated streams are in {store}, and without it their names would be free: start with --store, or remove the \
             file REPLICATED in {} to give them up",
            folder.path().display()
        );
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
    if folder.is_closed() {
        bail!("{CLOSED}: start with --store, or take the folder out of {store} with `thalweg store fetch` first");
    }
    if let Some(store) = attached {
        tracing::warn!("without --store nothing is copied to {store} any longer");
    }
    // Objects that this server removes would keep their marks, and seem to be in the bucket only. The store and the
    // owners of its mirror stay noted: the folder may come back to it.
    forget_marks(disk)?;
    folder.note_left_store()
}

/// Removes all marks, durably: they are of another store, and no object is in that one only.
pub(super) fn forget_marks(disk: &dyn Disk) -> anyhow::Result<()> {
    let names = disk.list(FOLDERS.marks)?;
    names.iter().try_for_each(|name| disk.remove(&format!("{}/{name}", FOLDERS.marks)))?;
    if !names.is_empty() {
        // One that came back after a loss of power would stand for a copy that the next store does not have.
        disk.sync_dir(FOLDERS.marks)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use thalweg_base::Lsn;
    use thalweg_object::MirroredTail;

    const STORE: &str = "s3://b/p";

    fn folder(is_new: bool, attached: Option<&str>, cold: u64) -> FolderIs {
        FolderIs { is_new, is_closed: false, lineage: "mine".into(), attached: attached.map(str::to_owned), cold }
    }

    fn found(lineage: Option<&str>, is_whole: bool) -> anyhow::Result<Found> {
        let mirrored = lineage.map(|lineage| match is_whole {
            false => Mirrored::nothing_of(lineage),
            true => Mirrored {
                root: Bytes::from_static(b"root"),
                tail: Some(MirroredTail { object: ObjectId(1), bytes: 1, end: Lsn(1) }),
                ..Mirrored::nothing_of(lineage)
            },
        });
        Ok(Found { epoch: 1, mirrored })
    }

    /// What is decided; `None`: the start is refused.
    fn decided(folder: &FolderIs, found: anyhow::Result<Found>) -> Option<Start> {
        decide(folder, STORE, found).ok().map(|(_, start)| start)
    }

    #[test]
    fn a_folder_and_a_mirror_meet_in_one_way() {
        let (new, used) = (folder(true, None, 0), folder(false, None, 0));
        let (attached, cold) = (folder(false, Some(STORE), 0), folder(false, Some(STORE), 3));
        let closed = FolderIs { is_closed: true, ..folder(false, Some(STORE), 0) };
        let moved = folder(false, Some("s3://other/p"), 3);
        let (empty, begun) = (|| found(None, false), |lineage| found(Some(lineage), false));
        let whole = |lineage| found(Some(lineage), true);
        let away = || Err(anyhow::anyhow!("no answer"));
        for (name, folder, found, expected) in [
            ("a new folder, an empty bucket", &new, empty(), Some(Start::Attach)),
            ("a used folder, an empty bucket", &used, empty(), Some(Start::Attach)),
            ("an emptied bucket, with all on this disk", &attached, empty(), Some(Start::Attach)),
            ("a bucket without a root, with cold objects", &cold, empty(), Some(Start::Rebuild)),
            ("cold objects in another bucket", &moved, empty(), None),
            ("cold objects in another bucket, which is not empty", &moved, whole("its"), None),
            ("a new folder, a mirror that was only begun", &new, begun("its"), Some(Start::Attach)),
            ("a new folder, a whole mirror", &new, whole("its"), Some(Start::Fill)),
            ("the folder's own mirror", &cold, whole("mine"), Some(Start::GoOn)),
            ("the folder's own mirror, only begun", &attached, begun("mine"), Some(Start::GoOn)),
            ("a used folder, a mirror of another", &used, whole("its"), None),
            ("a used folder, a mirror that another has begun", &used, begun("its"), None),
            ("a taken over folder", &cold, whole("its"), None),
            ("a new folder, no answer", &new, away(), None),
            ("a used folder's first start with the store, no answer", &used, away(), None),
            ("a folder with another store, no answer", &moved, away(), None),
            ("a folder with this store, no answer", &attached, away(), Some(Start::GoOn)),
            ("a folder with cold objects in this store, no answer", &cold, away(), Some(Start::GoOn)),
            ("a closed folder, no answer: another one may have gone on", &closed, away(), None),
            ("a closed folder, its own mirror", &closed, whole("mine"), Some(Start::GoOn)),
            ("a closed folder, an emptied bucket", &closed, empty(), Some(Start::Attach)),
        ] {
            assert_eq!(decided(folder, found), expected, "{name}");
        }
    }

    #[test]
    fn a_refusal_names_the_store_that_has_the_objects() {
        let refused = decide(&folder(false, Some("s3://other/p"), 3), STORE, found(None, false)).unwrap_err();
        assert!(refused.to_string().contains("3 objects of this folder are in s3://other/p only"), "{refused}");
    }
}
