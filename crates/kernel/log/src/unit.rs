//! A kernel unit of files: the journal, the objects and the manifest of one folder, and the logs on them.

use crate::attachment::Attachment;
use crate::error::UnitError;
use crate::logs::{Logs, LogsOptions, Loss};
use std::sync::Arc;
use thalweg_disk::Disk;
use thalweg_journal::{FileJournal, OpenError as JournalError, Options};
use thalweg_manifest::FileManifest;
use thalweg_storage::{FileStorage, Storage};

/// The kernel unit of an engine, with its parts. Every user of a part shares it, so no part depends on the life of
/// another.
pub struct FileUnit<A: Attachment> {
    /// The data folder's files.
    pub disk: Arc<dyn Disk>,
    /// The unit's journal.
    pub journal: Arc<FileJournal>,
    /// The logs, the unit's only index.
    pub logs: Arc<Logs<A>>,
}

/// The folder of objects in a unit's folder.
pub const OBJECTS: &str = "objects";
/// The manifest's file in a unit's folder.
pub const MANIFEST: &str = "manifest/root";

impl<A: Attachment> FileUnit<A> {
    /// Opens the unit that is on the disk, or makes it, and recovers. The caller starts the journal's writer.
    pub fn open(disk: Arc<dyn Disk>, journal: Options, logs: LogsOptions, loss: Loss) -> Result<Self, UnitError> {
        let storage = FileStorage::open(Arc::clone(&disk), OBJECTS).map_err(UnitError::Objects)?;
        Self::open_over(disk, Arc::new(storage), 0, journal, logs, loss)
    }

    /// Like [`FileUnit::open`], with objects in another storage than files of the folder. The owner's epoch is above
    /// `above`.
    pub fn open_over(
        disk: Arc<dyn Disk>,
        storage: Arc<dyn Storage>,
        above: u64,
        journal: Options,
        logs: LogsOptions,
        loss: Loss,
    ) -> Result<Self, UnitError> {
        let manifest = FileManifest::open(Arc::clone(&disk), MANIFEST, journal.salt).map_err(UnitError::Manifest)?;
        // Journals from before owners had epochs, and those of openings that ended early, may have larger terms than
        // the root.
        let newest_term = FileJournal::newest_term(disk.as_ref()).map_err(UnitError::Journal)?;
        let opening = Logs::begin_above(newest_term.max(above), logs, storage, Arc::new(manifest), loss);
        let mut opening = opening.map_err(UnitError::Logs)?;
        let bounds = opening.bounds();
        let journal = Options { term: opening.epoch(), ..journal };
        let journal =
            FileJournal::open(Arc::clone(&disk), journal, bounds, &mut |at, bytes| opening.replay(at, &bytes));
        let journal = Arc::new(journal.map_err(|error| match error {
            JournalError::Replay { error, .. } => UnitError::Logs(error),
            error => UnitError::Journal(error),
        })?);
        let logs = opening.finish(Arc::clone(&journal) as _).map_err(UnitError::Logs)?;
        Ok(Self { disk, journal, logs: Arc::new(logs) })
    }
}
