//! `thalweg check`: walks manifest, storage and journal of a data folder, contents included; or asks a running server
//! to.

mod remote;

use crate::store::OfFolder;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use thalweg_base::Lsn;
use thalweg_cli::{Target, human};
use thalweg_disk::{Disk, RealDisk};
use thalweg_host::folder::Folder;
use thalweg_host::kernel::{MANIFEST, OBJECTS};
use thalweg_host::listed::Listed;
use thalweg_host::mirror;
use thalweg_journal::{JournalDamage, Report};
use thalweg_log::{CheckError, Checked};
use thalweg_manifest::{FileManifest, ManifestError};
use thalweg_object::Location;
use thalweg_storage::{FileStorage, Storage};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thalweg check /var/lib/thalweg              a stopped server's data folder
  thalweg check DIR --store s3://bucket/prefix
                                              the same, with cold objects
  thalweg check                               the running server on this machine
  thalweg check --server https://streams.example.org
  thalweg check --context prod

On a running server with tokens it needs one with admin over everything.")]
pub(crate) struct CheckArgs {
    /// The data folder of a stopped server, instead of a running one.
    #[arg(conflicts_with_all = ["server", "context"])]
    dir: Option<PathBuf>,
    #[command(flatten)]
    store: OfFolder,
    #[command(flatten)]
    target: Target,
}

/// Lists everything that is damaged, and fails if anything is.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<()> {
    match &args.dir {
        Some(dir) => folder(dir, args.store.location()),
        None => remote::run(&args.target),
    }
}

fn folder(dir: &Path, store: Option<&Location>) -> anyhow::Result<()> {
    let began = Instant::now();
    let folder = Folder::take_existing(dir)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open_read_only(folder.path()).context("cannot open the data folder")?);
    let mut damage = Vec::new();
    let storage = mirror::objects(&folder, &disk, store)?;
    let sealed = sealed(&disk, &storage, &mut damage)?;
    let journal = thalweg_journal::verify(&*disk, sealed.journal.unwrap_or_default());
    damage.extend(journal.damage.iter().map(listed_in_journal));
    for damage in &damage {
        println!("{damage}");
    }
    if let Some(problem) = &journal.problem {
        println!("the journal is not whole: {problem}");
    }
    let places = damage.len().max(usize::from(journal.problem.is_some()));
    if places > 0 {
        bail!("{} is damaged at {places} places", dir.display());
    }
    println!(
        "{} is whole: {} runs, {} objects ({}, {} directory records), journal of {} frames up to {}; read in {:.1} s",
        dir.display(),
        sealed.runs,
        sealed.objects,
        human::size(sealed.bytes),
        sealed.records,
        journal.frames,
        journal.end,
        began.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// Reads the manifest and the objects that it names. Without a manifest the journal is still read.
fn sealed(disk: &Arc<dyn Disk>, storage: &Arc<dyn Storage>, damage: &mut Vec<Listed>) -> anyhow::Result<Checked> {
    let mut shown = thalweg_cli::Progress::new(None, false);
    let checked = FileManifest::open(Arc::clone(disk), MANIFEST, 0)
        .map_err(CheckError::from)
        .and_then(|manifest| thalweg_log::find_damage(storage, &manifest, &mut |so_far| shown.set(so_far.bytes)));
    match checked {
        Ok((checked, found)) => {
            damage.extend(found.into_iter().map(|damage| Listed::of("", damage)));
            Ok(checked)
        }
        Err(error @ (CheckError::Manifest(ManifestError::Corrupt(_)) | CheckError::Root(_))) => {
            damage.push(Listed::of("", thalweg_log::Damage::of_manifest(error.to_string())));
            Ok(Checked::default())
        }
        Err(error) => Err(error).context("sealed data cannot be read"),
    }
}

fn listed_in_journal(damage: &JournalDamage) -> Listed {
    Listed {
        kind: "journal".into(),
        file: damage.file.clone(),
        at: damage.at,
        bytes: damage.range.end.since(damage.range.start),
        what: damage.what.clone(),
        streams: Vec::new(),
        more_streams: 0,
        first_seen_ms: None,
        times: 1,
    }
}

/// Reads all of a folder that no other process uses; fails at the first defect. The journal must reach at least to
/// `upto`.
pub(crate) fn whole(
    dir: &Path,
    upto: Option<Lsn>,
    progress: &mut dyn FnMut(&Checked),
) -> anyhow::Result<(Checked, Report)> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open_read_only(dir).context("cannot open the data folder")?);
    let storage: Arc<dyn Storage> =
        Arc::new(FileStorage::open_read_only(Arc::clone(&disk), OBJECTS).context("cannot open the objects")?);
    let manifest = FileManifest::open(Arc::clone(&disk), MANIFEST, 0).context("the manifest is not whole")?;
    let sealed = thalweg_log::check(&storage, &manifest, progress).context("sealed data is not whole")?;
    let mut bounds = sealed.journal.unwrap_or_default();
    bounds.known_durable = bounds.known_durable.max(upto.unwrap_or(Lsn::ZERO));
    let journal = thalweg_journal::verify(&*disk, bounds);
    if let Some(problem) = &journal.problem {
        bail!("the journal is not whole: {problem}");
    }
    Ok((sealed, journal))
}
