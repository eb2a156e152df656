//! `thalweg check`: walks manifest, storage and journal of a data folder, contents included.

use crate::folder::Folder;
use crate::kernel::{MANIFEST, OBJECTS};
use anyhow::{Context, bail};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use thalweg_base::Lsn;
use thalweg_disk::{Disk, RealDisk};
use thalweg_journal::Report;
use thalweg_log::Checked;
use thalweg_manifest::FileManifest;
use thalweg_storage::{FileStorage, Storage};

/// How many objects lie between two lines of progress.
const PROGRESS_EVERY: u64 = 16;

/// Reads everything in `dir` and fails with the first thing that is wrong.
pub(crate) fn run(dir: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    let folder = Folder::take_existing(dir)?;
    let (sealed, journal) = whole(folder.path(), None, &mut |so_far| {
        if so_far.objects % PROGRESS_EVERY == 0 {
            eprintln!("  {} objects, {} MiB read", so_far.objects, so_far.bytes >> 20);
        }
    })?;
    println!(
        "{} is whole: {} runs, {} objects ({} MiB, {} directory records), journal of {} frames up to {}; read in {:.1} s",
        dir.display(),
        sealed.runs,
        sealed.objects,
        sealed.bytes >> 20,
        sealed.records,
        journal.frames,
        journal.end,
        began.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// Reads all of a folder that nobody else uses; fails with the first thing that is wrong. The journal must reach at least to `upto`,
/// if that is given.
pub(crate) fn whole(
    dir: &Path,
    upto: Option<Lsn>,
    progress: &mut dyn FnMut(&Checked),
) -> anyhow::Result<(Checked, Report)> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open_read_only(dir).context("cannot open the data folder")?);
    let storage: Arc<dyn Storage> =
        Arc::new(FileStorage::open_read_only(Arc::clone(&disk), OBJECTS).context("cannot open the objects")?);
    let manifest = FileManifest::open(Arc::clone(&disk), MANIFEST).context("the manifest is not whole")?;
    let sealed = thalweg_log::check(&storage, &manifest, progress).context("what is sealed is not whole")?;
    let mut bounds = sealed.journal.unwrap_or_default();
    bounds.known_durable = bounds.known_durable.max(upto.unwrap_or(Lsn::ZERO));
    let journal = thalweg_journal::verify(&*disk, bounds);
    if let Some(problem) = &journal.problem {
        bail!("the journal is not whole: {problem}");
    }
    Ok((sealed, journal))
}
