//! A kernel unit in a folder, for tests.

use crate::format::note::LogState;
use std::path::Path;
use std::sync::Arc;
use thalweg_disk::RealDisk;
use thalweg_journal::Options;
use thalweg_log::{FileUnit, Logs, LogsOptions, Loss};

pub(crate) fn open(folder: &Path) -> Arc<Logs<LogState>> {
    open_with(folder, Options::default())
}

pub(crate) fn open_with(folder: &Path, journal: Options) -> Arc<Logs<LogState>> {
    let disk = Arc::new(RealDisk::open(folder).unwrap());
    let unit = FileUnit::open(disk, journal, LogsOptions::default(), Loss::Nothing).unwrap();
    unit.journal.prepare().and_then(|()| unit.journal.start_writer()).unwrap();
    unit.logs
}
