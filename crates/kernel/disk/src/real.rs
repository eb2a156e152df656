//! The operating system's files under one root folder.

use crate::{Disk, File, check_path, folder_of};
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Zeros are written in pieces of this size where the file system cannot reserve space.
const ZEROS: usize = 1 << 20;

/// The data folder on a real file system. Only the process's own user may read files that are created in it.
#[derive(Clone, Debug)]
pub struct RealDisk {
    root: PathBuf,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Write,
    Read,
}

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

struct RealFile {
    file: fs::File,
}

impl RealDisk {
    /// The data folder at `root`, which is created if it is missing.
    pub fn open(root: &Path) -> io::Result<Self> {
        if !root.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(root)?;
            if let Some(parent) = root.parent().filter(|p| !p.as_os_str().is_empty()) {
                sync_folder(parent)?;
            }
        }
        Ok(Self { root: root.canonicalize()?, access: Access::Write })
    }

    /// The data folder at `root`, which must be there. Files are opened for reading alone, so that it may be on a
    /// medium that cannot be written.
    pub fn open_read_only(root: &Path) -> io::Result<Self> {
        Ok(Self { root: root.canonicalize()?, access: Access::Read })
    }

    fn path(&self, path: &str) -> io::Result<PathBuf> {
        check_path(path)?;
        Ok(self.root.join(path))
    }

    fn folder(&self, dir: &str) -> io::Result<PathBuf> {
        if dir.is_empty() { Ok(self.root.clone()) } else { self.path(dir) }
    }

    /// Creates missing folders from the root down, and makes each one's name durable.
    fn make_folders(&self, dir: &str) -> io::Result<()> {
        let mut at = self.root.clone();
        for part in dir.split('/').filter(|part| !part.is_empty()) {
            let parent = at.clone();
            at.push(part);
            match fs::DirBuilder::new().mode(FOLDER_MODE).create(&at) {
                Ok(()) => sync_folder(&parent)?,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

impl Disk for RealDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let full = self.path(path)?;
        let create = || fs::OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&full);
        let file = match create() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.make_folders(folder_of(path))?;
                create()?
            }
            other => other?,
        };
        Ok(Arc::new(RealFile { file }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let write = self.access == Access::Write;
        let file = fs::OpenOptions::new().read(true).write(write).open(self.path(path)?)?;
        // Readers ask for whole ranges. The bytes behind them, which the kernel would read ahead, mostly belong to
        // other logs.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Arc::new(RealFile { file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from)?, self.path(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.folder(dir)?) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            // A name that is not UTF-8 is not ours.
            if let (true, Ok(name)) = (entry.file_type()?.is_file(), entry.file_name().into_string()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        sync_folder(&self.folder(dir)?)
    }

    fn free(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn try_read_at(&self, buf: &mut [u8], at: u64) -> io::Result<Option<usize>> {
        let wanted = buf.len();
        match rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(buf)], at, ReadWriteFlags::NOWAIT) {
            Ok(n) if n == wanted => Ok(Some(n)),
            // Short: either the file ends here, or the next page is not in memory.
            Ok(n) => Ok((at + n as u64 >= self.len()?).then_some(n)),
            Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(buf, at)
    }

    fn sync(&self) -> io::Result<()> {
        // Not retried: after an error the kernel may have dropped the dirty pages, and a second call would lie.
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let old = self.len()?;
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len)) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(&self.file, old, len),
            Err(e) => Err(e.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// The system drops whole pages only, and none that is not written yet.
    fn forget(&self, range: Range<u64>) {
        let page = rustix::param::page_size() as u64;
        let start = range.start / page * page;
        if let Some(len) = NonZeroU64::new(range.end.next_multiple_of(page).saturating_sub(start)) {
            let _ = rustix::fs::fadvise(&self.file, start, Some(len), Advice::DontNeed);
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// Grows the file to `len` by writing zeros, so that later writes cannot run out of space.
fn write_zeros(file: &fs::File, from: u64, len: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    let mut at = from;
    while at < len {
        let n = (len - at).min(ZEROS as u64);
        file.write_all_at(&zeros[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_written_in_place_of_a_reservation_keep_old_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(dir.path().join("f")).unwrap();
        file.write_all_at(b"old", 0).unwrap();
        write_zeros(&file, 3, (2 << 20) + 5).unwrap();
        let file = disk.open("f").unwrap();
        assert_eq!(file.len().unwrap(), (2 << 20) + 5);
        let mut head = [1; 6];
        assert_eq!(file.read_at(&mut head, 0).unwrap(), 6);
        assert_eq!(&head, b"old\0\0\0");
    }
    #[test]
    fn a_read_of_the_device_leaves_in_memory_what_was_there_and_nothing_else() {
        const LEN: usize = 1 << 20;
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        let file = disk.create("f").unwrap();
        file.write_at(&vec![7; LEN], 0).unwrap();
        file.sync().unwrap();
        drop(file);
        let file = disk.open("f").unwrap();
        let mut page = [0; 16 << 10];
        let mut is_in_memory = |at: u64| matches!(file.try_read_at(&mut page, at), Ok(Some(n)) if n > 0);
        file.forget(0..LEN as u64);
        if is_in_memory(LEN as u64 / 2) {
            eprintln!("not tested: this file system keeps what it is asked to forget");
            return;
        }
        let mut wanted = [0; 16 << 10];
        file.read_at(&mut wanted, 64 << 10).unwrap();
        let mut all = vec![0; LEN];
        assert_eq!(crate::read_device(file.as_ref(), &mut all, 0).unwrap(), LEN);
        assert!(all.iter().all(|byte| *byte == 7));
        assert!(is_in_memory(64 << 10), "somebody may want it again");
        // Not where it was looked before: looking may bring it there.
        assert!(!is_in_memory(768 << 10), "nobody has asked for it");
        assert_eq!(crate::read_device(file.as_ref(), &mut all, 100).unwrap(), LEN - 100, "it ends there");
    }
}
