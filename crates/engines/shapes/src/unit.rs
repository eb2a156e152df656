//! A kernel unit in a folder, for tests.

use crate::format::note::LogState;
use std::path::Path;
use std::sync::Arc;
use thalweg_disk::{Disk, RealDisk};
use thalweg_journal::{FileJournal, Journal, Options};
use thalweg_log::{Logs, LogsOptions, Loss};
use thalweg_manifest::FileManifest;
use thalweg_storage::FileStorage;

pub(crate) fn open(folder: &Path) -> Arc<Logs<LogState>> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder).unwrap());
    let storage = FileStorage::open(Arc::clone(&disk), "objects").unwrap();
    let manifest = FileManifest::open(Arc::clone(&disk), "manifest", 0).unwrap();
    let (storage, manifest) = (Arc::new(storage), Arc::new(manifest));
    let logs = Logs::open(LogsOptions::default(), storage, manifest, Loss::Nothing, |bounds, replay| {
        let journal =
            FileJournal::open(Arc::clone(&disk), Options::default(), bounds, &mut |at, bytes| replay(at, bytes));
        let journal = Arc::new(journal.map_err(|error| error.to_string())?);
        journal.prepare().and_then(|()| journal.start_writer()).map_err(|error| error.to_string())?;
        Ok(journal as Arc<dyn Journal>)
    });
    Arc::new(logs.unwrap())
}
