//! `thalweg restore`: puts a generation into a fresh data folder, each byte checked on the way.
//!
//! The last file written is `FORMAT`: without it no server opens the folder. `RUN` marks the folder as restored, and
//! the first server on it gives every stream a new incarnation, because clients may have seen positions beyond the cut.

use super::description::{Description, Kept, NAME, generations};
use super::{place, sync_folder};
use crate::check;
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thalweg_base::{Crc, Lsn};
use thalweg_cli::Progress;
use thalweg_disk::{Disk, RealDisk};
use thalweg_host::folder::{self, FORMAT, Folder};

const PIECE_BYTES: usize = 1 << 20;

/// Restores `backup`, a generation or a folder of them (then the newest), into `data`.
pub(crate) fn restore(backup: &Path, data: &Path) -> anyhow::Result<()> {
    let generation = find(backup)?;
    let description = Description::read(&generation)?;
    if description.format > FORMAT {
        bail!(
            "{} has format {}; this program knows formats up to {FORMAT}: use a newer thalweg",
            generation.display(),
            description.format
        );
    }
    for file in &description.files {
        place(&file.path).with_context(|| format!("{:?} is no file of a data folder", file.path))?;
    }
    must_be_empty(data)?;
    println!(
        "restoring {}: made {} by thalweg {}, journal position {}",
        generation.display(),
        description.made_at,
        description.version,
        description.position
    );
    folder::make(data).with_context(|| format!("cannot make {}", data.display()))?;
    let done = fill(&generation, &description, data);
    if let Err(error) = done {
        clear(&description, data);
        return Err(error.context("nothing was restored"));
    }
    println!("{} is whole; start it with: thalweg serve --data {}", data.display(), data.display());
    Ok(())
}

fn find(backup: &Path) -> anyhow::Result<PathBuf> {
    if backup.join(NAME).is_file() {
        return Ok(backup.to_owned());
    }
    let newest = generations(backup)?.pop();
    newest.with_context(|| {
        format!("{} holds no whole backup: there is no {NAME} file in it or one level below", backup.display())
    })
}

/// An empty `journal/` may exist: it may be the mount point of another disk.
fn must_be_empty(data: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(data) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let ignored = match name.to_str() {
            Some("journal") => entry.file_type()?.is_dir() && is_empty_disk(&entry.path())?,
            Some("lost+found") => true,
            _ => false,
        };
        if !ignored {
            bail!("{} is not empty ({}): name a new folder", data.display(), name.display());
        }
    }
    Ok(())
}

fn is_empty_disk(dir: &Path) -> std::io::Result<bool> {
    Ok(fs::read_dir(dir)?.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lost+found")))
}

fn fill(generation: &Path, description: &Description, data: &Path) -> anyhow::Result<()> {
    let disk = RealDisk::open(data)?;
    let mut folders = BTreeSet::from([data.to_owned()]);
    let total = description.files.iter().map(|file| file.bytes).sum();
    let mut progress = Progress::new(Some(total), false);
    for file in &description.files {
        let to = data.join(&file.path);
        if let Some(parent) = to.parent().filter(|parent| !folders.contains(*parent)) {
            folder::make(parent)?;
            folders.insert(parent.to_owned());
        }
        copy(&generation.join(&file.path), &to, file, &mut progress)
            .with_context(|| format!("{} in the backup", file.path))?;
        if file.allocated > file.bytes {
            let open = disk.open(&file.path)?;
            open.allocate(file.allocated).with_context(|| format!("no space for {}", file.path))?;
        }
    }
    for folder in &folders {
        sync_folder(folder)?;
    }
    drop(progress);
    let mut progress = Progress::new(Some(total), false);
    progress.set_message("checking: ");
    check::whole(data, Some(Lsn(description.position)), &mut |so_far| progress.set(so_far.bytes))
        .context("the backup is not whole")?;
    Folder::finish_restored(data, description.format)
}

fn copy(from: &Path, to: &Path, kept: &Kept, progress: &mut Progress) -> anyhow::Result<()> {
    let mut source = File::open(from)?;
    let mut options = File::options();
    options.write(true).create_new(true);
    options.mode(0o600);
    let mut target = options.open(to)?;
    let (mut bytes, mut crc, mut piece) = (0, Crc::new(), vec![0; PIECE_BYTES]);
    loop {
        let n = source.read(&mut piece)?;
        if n == 0 {
            break;
        }
        crc = crc.bytes(&piece[..n]);
        bytes += n as u64;
        progress.add(n as u64);
        target.write_all(&piece[..n])?;
    }
    if bytes != kept.bytes {
        bail!("it has {bytes} bytes and not the {} that were written", kept.bytes);
    }
    if crc.finish() != kept.crc {
        bail!("it is damaged: its checksum is {:08x} and not {:08x}", crc.finish(), kept.crc);
    }
    target.sync_all()?;
    Ok(())
}

/// Removes the files of a failed restore, as far as possible; without `FORMAT` no server opens the rest.
fn clear(description: &Description, data: &Path) {
    for file in &description.files {
        let _ = fs::remove_file(data.join(&file.path));
    }
    for folder in ["objects", "manifest", "journal"] {
        let _ = fs::remove_dir(data.join(folder));
    }
    for own in ["RUN", "FORMAT", "LOCK"] {
        let _ = fs::remove_file(data.join(own));
    }
}
