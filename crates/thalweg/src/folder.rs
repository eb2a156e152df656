//! The data folder: who may use it, which format it has, and how the last server left it.
//!
//! Beside what the kernel keeps there, a folder holds `FORMAT` (one line, refused if newer than this program), `LOCK` (held
//! exclusively while a server or `thalweg check` runs), `RUN` (how the last server ran, so that the next one knows whether a
//! crash may have lost what was acknowledged as buffered, or whether the folder was restored) and `LINEAGE` (random; tells the
//! history of object ids of this folder from that of any other, so that a backup knows which objects it has already).

use crate::config::Durability;
use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use thalweg_log::Loss;

/// The format of data folders that this program writes; it reads this one and older ones.
pub(crate) const FORMAT: u32 = 2;

/// A data folder that this process has for itself until this is dropped.
pub(crate) struct Folder {
    path: PathBuf,
    /// Dropping it gives the lock back.
    _lock: File,
}

impl Folder {
    /// Takes a folder, making it if there is none.
    pub(crate) fn take(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot make the data folder {}", path.display()))?;
        let folder = Self::lock(path)?;
        if !path.join("FORMAT").exists() {
            if path.join("manifest").exists() || has_segments(&path.join("journal")) {
                bail!("{} holds data but no FORMAT file: it is not a whole data folder", path.display());
            }
            folder.write("FORMAT", &format!("{FORMAT}\n"))?;
        }
        if folder.check_format()? < FORMAT {
            // What is written from here on is of this format: an older program must not find it.
            folder.write("FORMAT", &format!("{FORMAT}\n"))?;
        }
        if !path.join("LINEAGE").exists() {
            folder.write("LINEAGE", &format!("{:016x}{:016x}\n", random()?, random()?))?;
        }
        Ok(folder)
    }

    /// Takes a folder that must be there.
    pub(crate) fn take_existing(path: &Path) -> anyhow::Result<Self> {
        if !path.join("FORMAT").exists() {
            bail!("{} is not a data folder: it has no FORMAT file", path.display());
        }
        let folder = Self::lock(path)?;
        folder.check_format()?;
        Ok(folder)
    }

    fn lock(path: &Path) -> anyhow::Result<Self> {
        let file = path.join("LOCK");
        let lock = File::options().create(true).truncate(false).write(true).open(&file);
        let lock = lock.with_context(|| format!("cannot open {}", file.display()))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "the data folder {} is in use by another thalweg process; stop that one, or give each its own --data",
                path.display()
            );
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The folder's format, if this program knows it.
    fn check_format(&self) -> anyhow::Result<u32> {
        let text = fs::read_to_string(self.path.join("FORMAT"))
            .with_context(|| format!("cannot read the format of {}", self.path.display()))?;
        match text.trim().parse::<u32>() {
            Ok(found) if found <= FORMAT => Ok(found),
            Ok(found) => bail!(
                "the data folder {} has format {found}; this program knows formats up to {FORMAT}: use a newer thalweg",
                self.path.display()
            ),
            Err(_) => bail!("{} does not hold a format number", self.path.join("FORMAT").display()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What of the acknowledged data may be gone. If the last server did not stop by itself and the machine was started anew since,
    /// it is what had reached only the operating system. If the folder was restored from a backup and has not been served since, it
    /// is everything: positions that it will give out were given out before, for other bytes.
    pub(crate) fn loss(&self) -> Loss {
        let Ok(last) = fs::read_to_string(self.path.join("RUN")) else { return Loss::Nothing };
        let mut words = last.split_whitespace();
        let (state, same_boot) = (words.next(), words.next() == Some(boot().as_str()));
        match state {
            Some("restored") => Loss::Everything,
            Some("buffered") if !same_boot => Loss::Unsaid,
            // Streams may be buffered of which the server is not.
            Some("durable") if !same_boot => Loss::Buffered,
            _ => Loss::Nothing,
        }
    }

    /// Makes a folder that holds a whole restored copy one that a server takes.
    pub(crate) fn finish_restored(path: &Path, format: u32) -> anyhow::Result<()> {
        let folder = Self::lock(path)?;
        folder.write("RUN", "restored\n")?;
        folder.write("FORMAT", &format!("{format}\n"))
    }

    /// Empty in a folder that no server of this version has taken yet.
    pub(crate) fn lineage(&self) -> String {
        fs::read_to_string(self.path.join("LINEAGE")).map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    /// Notes that a server runs from now on.
    pub(crate) fn note_running(&self, durability: Durability) -> anyhow::Result<()> {
        self.write("RUN", &format!("{durability} {}\n", boot()))
    }

    /// Notes that a write or sync has failed under a server: what had not reached the disk may never do, although the machine goes on.
    pub(crate) fn note_failed(path: &Path, durability: Durability) -> anyhow::Result<()> {
        write(path, "RUN", &format!("{durability} no-boot\n"))
    }

    /// Notes that the server stopped by itself, with everything on the disk.
    pub(crate) fn note_stopped(&self) -> anyhow::Result<()> {
        self.write("RUN", "stopped\n")
    }

    /// Replaces a small file, durably and as a whole.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        write(&self.path, name, text)
    }
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let unfinished = folder.join(format!("{name}.tmp"));
    let done = (|| {
        let mut file = File::create(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, folder.join(name))?;
        File::open(folder)?.sync_all()
    })();
    done.with_context(|| format!("cannot write {} in {}", name, folder.display()))
}

/// An empty `journal/` may be there before the first start: it may be another disk.
fn has_segments(journal: &Path) -> bool {
    fs::read_dir(journal).is_ok_and(|mut files| {
        files.any(|file| file.is_ok_and(|file| file.path().extension().is_some_and(|extension| extension == "seg")))
    })
}

pub(crate) fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if n < bytes.len() {
        bail!("the system gave {n} random bytes of {}", bytes.len());
    }
    Ok(u64::from_le_bytes(bytes))
}

/// The machine's present boot; empty where the system does not say.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_used_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        let refused = Folder::take(dir.path()).err().unwrap().to_string();
        assert!(refused.contains("in use by another thalweg process"), "{refused}");
        drop(folder);
        Folder::take(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_without_its_format_is_refused_unless_it_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        fs::create_dir(&journal).unwrap();
        drop(Folder::take(dir.path()).unwrap());
        fs::remove_file(dir.path().join("FORMAT")).unwrap();
        fs::write(journal.join("0000000000000001.seg"), "x").unwrap();
        let refused = Folder::take(dir.path()).err().unwrap().to_string();
        assert!(refused.contains("not a whole data folder"), "{refused}");
    }

    #[test]
    fn a_newer_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(Folder::take(dir.path()).unwrap());
        fs::write(dir.path().join("FORMAT"), "3\n").unwrap();
        let refused = Folder::take(dir.path()).err().unwrap().to_string();
        assert!(refused.contains("format 3"), "{refused}");
    }

    #[test]
    fn a_folder_of_an_older_format_is_of_this_one_once_it_is_served() {
        let dir = tempfile::tempdir().unwrap();
        drop(Folder::take(dir.path()).unwrap());
        fs::write(dir.path().join("FORMAT"), "1\n").unwrap();
        drop(Folder::take_existing(dir.path()).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("FORMAT")).unwrap(), "1\n", "who only looks changes nothing");
        drop(Folder::take(dir.path()).unwrap());
        assert_eq!(fs::read_to_string(dir.path().join("FORMAT")).unwrap(), "2\n");
    }

    #[test]
    fn what_a_boot_has_cut_off_may_be_lost_unless_it_was_durable() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::take(dir.path()).unwrap();
        assert_eq!(folder.loss(), Loss::Nothing);
        for (durability, loss) in [(Durability::Buffered, Loss::Unsaid), (Durability::Durable, Loss::Buffered)] {
            folder.note_running(durability).unwrap();
            assert_eq!(folder.loss(), Loss::Nothing, "the machine has not been started anew");
            fs::write(dir.path().join("RUN"), format!("{durability} another-boot\n")).unwrap();
            assert_eq!(folder.loss(), loss);
            folder.note_running(durability).unwrap();
            Folder::note_failed(dir.path(), durability).unwrap();
            assert_eq!(folder.loss(), loss);
        }
        folder.note_stopped().unwrap();
        assert_eq!(folder.loss(), Loss::Nothing);
        fs::write(dir.path().join("RUN"), "restored\n").unwrap();
        assert_eq!(folder.loss(), Loss::Everything);
    }
}
