//! `thalweg backup`: copies a cut into a new generation below the target, and makes it one by a rename at the very end.

use super::description::{Description, Kept, generations};
use super::{Listed, Listing, Place, ROOT, Source, folder, place, remote, sync_folder};
use crate::check;
use crate::store::OfFolder;
use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use thalweg_base::{Crc, Lsn, crc};
use thalweg_cli::{Progress, Target, human};
use thalweg_disk::RealDisk;
use thalweg_host::folder::FORMAT;
use thalweg_host::kernel::MANIFEST;
use thalweg_manifest::{FileManifest, Manifest};

/// The folder of a backup in progress; the next backup removes an interrupted one.
const UNFINISHED: &str = "unfinished";
/// How many bytes at an object's end are compared before an earlier generation's object is taken as equal: the end has
/// the checksums of the rest.
const TAIL_BYTES: u64 = 4096;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  thalweg backup --to /backup                 the server on this machine
  thalweg backup --server https://streams.example.org --to /backup --keep 7
  thalweg backup --context prod --to /backup
  thalweg backup --from /var/lib/thalweg --to /backup
                                              a stopped server's data folder

On a server with tokens it needs one with admin over everything.")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    target: Target,
    /// The data folder of a stopped server, instead of a running one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["server", "context"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    store: OfFolder,
    /// The folder of backups: each becomes a folder in it, named by its time. Best on another disk.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Keep this many backups in --to, and remove older ones when the new one is whole.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
}

/// Makes one backup, and prints its summary on standard output.
pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut source: Box<dyn Source> = match &args.from {
        Some(dir) => Box::new(folder::Stopped::open(dir, args.store.location())?),
        None => Box::new(remote::Remote::new(&args.target)?),
    };
    thalweg_host::folder::make(&args.to).with_context(|| format!("cannot make {}", args.to.display()))?;
    let _lock = lock(&args.to)?;
    let unfinished = args.to.join(UNFINISHED);
    remove(&unfinished)?;
    thalweg_host::folder::make(&unfinished)?;
    let mut taking = Taking {
        earlier: Earlier::newest(&args.to)?,
        dir: unfinished,
        folders: Vec::new(),
        progress: Some(Progress::new(None, false)),
        total: 0,
        linked: 0,
        copied: 0,
    };
    let done = taking.run(&mut *source);
    source.end();
    let description = match done {
        Ok(description) => description,
        Err(error) => {
            taking.progress = None;
            remove(&taking.dir)?;
            return Err(error.context("the backup was not made"));
        }
    };
    let generation = publish(&args.to, &taking.dir, &description)?;
    prune(&args.to, args.keep)?;
    println!(
        "{} is whole: position {}, {} files ({} copied, {} objects shared with the backup before), in {:.1} s",
        generation.display(),
        description.position,
        description.files.len(),
        human::size(taking.copied),
        taking.linked,
        began.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// One backup at a time works on a target.
fn lock(target: &Path) -> anyhow::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).mode(0o600).open(target.join("LOCK"))?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another backup into {} is under way", target.display());
    }
    Ok(lock)
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The newest existing generation.
struct Earlier {
    dir: PathBuf,
    lineage: String,
    files: HashMap<String, Kept>,
}

impl Earlier {
    fn newest(target: &Path) -> anyhow::Result<Option<Self>> {
        let Some(dir) = generations(target)?.pop() else { return Ok(None) };
        match Description::read(&dir) {
            Ok(Description { lineage, files, .. }) => {
                let files = files.into_iter().map(|file| (file.path.clone(), file)).collect();
                Ok(Some(Self { dir, lineage, files }))
            }
            Err(error) => {
                tracing::warn!(
                    "the backup copies every file: the earlier backup {} cannot be read: {error:#}",
                    dir.display()
                );
                Ok(None)
            }
        }
    }
}

struct Taking {
    earlier: Option<Earlier>,
    dir: PathBuf,
    /// Made below `dir`, to be synced.
    folders: Vec<PathBuf>,
    progress: Option<Progress>,
    /// Bytes that are to come.
    total: u64,
    linked: u64,
    copied: u64,
}

impl Taking {
    fn run(&mut self, source: &mut dyn Source) -> anyhow::Result<Description> {
        let listing = source.begin()?;
        if listing.format > FORMAT {
            bail!(
                "the data has format {}; this program knows formats up to {FORMAT}: use a newer thalweg",
                listing.format
            );
        }
        let now = jiff::Timestamp::from_millisecond(i64::try_from(thalweg_host::background::now().0)?)?;
        // Always with milliseconds, so that names sort by time.
        let made_at = now.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        self.expect(listing.files.iter().map(|file| file.bytes).sum());
        let mut files = Vec::with_capacity(listing.files.len());
        for listed in &listing.files {
            let kept = self.take(source, &listing, listed);
            files.push(kept.with_context(|| listed.path.clone())?);
        }
        // The server need not hold anything while the copy is read.
        source.end();
        for folder in self.folders.iter().chain([&self.dir]) {
            sync_folder(folder)?;
        }
        let progress = self.progress.insert(Progress::new(Some(self.total), false));
        progress.set_message("checking: ");
        check::whole(&self.dir, Some(Lsn(listing.position)), &mut |so_far| progress.set(so_far.bytes))
            .context("the received copy is not whole")?;
        self.progress = None;
        let Listing { format, version, lineage, position, .. } = listing;
        Ok(Description { format, version, lineage, position, made_at, files })
    }

    fn take(&mut self, source: &mut dyn Source, listing: &Listing, listed: &Listed) -> anyhow::Result<Kept> {
        let place = place(&listed.path).context("no file of a data folder has this name")?;
        let path = self.dir.join(&listed.path);
        self.make_folder(&path)?;
        let crc = match place {
            Place::Root => return self.take_root(source, listed),
            Place::Object(_) => match self.link(source, &listing.lineage, listed)? {
                Some(crc) => crc,
                None => self.copy(source, listed, &path)?,
            },
            Place::Segment | Place::Extra => self.copy(source, listed, &path)?,
        };
        Ok(Kept { path: listed.path.clone(), bytes: listed.bytes, allocated: listed.allocated, crc })
    }

    fn make_folder(&mut self, path: &Path) -> anyhow::Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if parent != self.dir && !self.folders.iter().any(|made| made == parent) {
            thalweg_host::folder::make(parent)?;
            self.folders.push(parent.to_owned());
        }
        Ok(())
    }

    /// The copied root gets a manifest of its own. The first start of a restored folder takes an epoch above the one in
    /// the root.
    fn take_root(&mut self, source: &mut dyn Source, listed: &Listed) -> anyhow::Result<Kept> {
        let mut body = Vec::new();
        while (body.len() as u64) < listed.bytes {
            let piece = source.read(&listed.path, body.len() as u64)?;
            self.received(piece.len())?;
            body.extend(piece);
        }
        let manifest =
            FileManifest::open(Arc::new(RealDisk::open(&self.dir)?), MANIFEST, thalweg_host::folder::random()?)?;
        let owner = manifest.acquire(0)?;
        manifest.commit(owner.epoch, owner.version, &body)?;
        let written = fs::read(self.dir.join(ROOT))?;
        Ok(Kept { path: ROOT.to_owned(), bytes: written.len() as u64, allocated: 0, crc: crc(&written) })
    }

    /// Shares an object with the generation before, if it is the same one; its checksum.
    fn link(&mut self, source: &mut dyn Source, lineage: &str, listed: &Listed) -> anyhow::Result<Option<u32>> {
        let Some(earlier) = self.earlier.as_ref().filter(|e| !lineage.is_empty() && e.lineage == lineage) else {
            return Ok(None);
        };
        let (old, new) = (earlier.dir.join(&listed.path), self.dir.join(&listed.path));
        let Some(kept) = earlier.files.get(&listed.path).filter(|kept| kept.bytes == listed.bytes) else {
            return Ok(None);
        };
        let crc = kept.crc;
        let tail_at = listed.bytes.saturating_sub(TAIL_BYTES);
        let tail = source.read(&listed.path, tail_at)?;
        if !ends_with(&old, listed.bytes, &tail).unwrap_or(false) || fs::hard_link(&old, &new).is_err() {
            return Ok(None);
        }
        self.linked += 1;
        self.expect(self.total.saturating_sub(listed.bytes));
        Ok(Some(crc))
    }

    /// Copies a file, durably; its checksum.
    fn copy(&mut self, source: &mut dyn Source, listed: &Listed, path: &Path) -> anyhow::Result<u32> {
        let mut options = File::options();
        options.write(true).create_new(true);
        // Files beside the data may be secret.
        options.mode(0o600);
        let mut file = options.open(path)?;
        let (mut at, mut crc) = (0, Crc::new());
        while at < listed.bytes {
            let piece = source.read(&listed.path, at)?;
            self.received(piece.len())?;
            at += piece.len() as u64;
            if at > listed.bytes {
                bail!("the source gives more than the {} bytes that it listed", listed.bytes);
            }
            crc = crc.bytes(&piece);
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        self.copied += at;
        Ok(crc.finish())
    }

    fn received(&mut self, bytes: usize) -> anyhow::Result<()> {
        if bytes == 0 {
            bail!("the source ends before the length that it listed");
        }
        if let Some(progress) = &mut self.progress {
            progress.add(bytes as u64);
        }
        Ok(())
    }

    fn expect(&mut self, total: u64) {
        self.total = total;
        if let Some(progress) = &mut self.progress {
            progress.set_total(total);
        }
    }
}

/// Whether the file has this length and end.
fn ends_with(path: &Path, bytes: u64, tail: &[u8]) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() != bytes || tail.len() as u64 != bytes.min(TAIL_BYTES) {
        return Ok(false);
    }
    file.seek(SeekFrom::Start(bytes - tail.len() as u64))?;
    let mut found = Vec::with_capacity(tail.len());
    file.read_to_end(&mut found)?;
    Ok(found == tail)
}

/// Publishes the received files as a generation.
fn publish(target: &Path, unfinished: &Path, description: &Description) -> anyhow::Result<PathBuf> {
    description.write(unfinished)?;
    let time: String = description.made_at.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let generation = target.join(time);
    if generation.exists() {
        bail!("{} is there already: the clock stands still or went back", generation.display());
    }
    fs::rename(unfinished, &generation)?;
    sync_folder(target)?;
    Ok(generation)
}

fn prune(target: &Path, keep: Option<u32>) -> anyhow::Result<()> {
    let Some(keep) = keep else { return Ok(()) };
    let generations = generations(target)?;
    for old in generations.iter().take(generations.len().saturating_sub(keep as usize)) {
        // Without its description the folder is no backup; hard links keep objects that other generations need.
        fs::remove_file(old.join(super::description::NAME))?;
        remove(old)?;
    }
    Ok(())
}
