//! A disk in memory with a bound on its size, which counts the files that are open.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use thalweg_disk::{Disk, File};

type Content = Arc<Mutex<Vec<u8>>>;

#[derive(Default)]
pub(crate) struct RamDisk {
    files: Mutex<BTreeMap<String, Content>>,
    counters: Arc<Counters>,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) open: AtomicUsize,
    pub(crate) syncs: AtomicUsize,
    pub(crate) read_bytes: AtomicUsize,
    /// The read with this number from now on fails; zero means none.
    pub(crate) fail_read: AtomicUsize,
    /// Runs before the next write.
    pub(crate) on_write: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Bytes that may still be written; zero means no bound.
    pub(crate) room: AtomicU64,
}

impl RamDisk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.files.lock().keys().cloned().collect()
    }

    /// The bytes of all files together.
    pub(crate) fn used(&self) -> u64 {
        self.files.lock().values().map(|content| content.lock().len() as u64).sum()
    }

    /// Changes the bytes of a file without a write of the disk.
    pub(crate) fn tamper(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.files.lock()[path].lock());
    }

    fn file(&self, content: &Content) -> Arc<dyn File> {
        self.counters.open.fetch_add(1, Ordering::Relaxed);
        Arc::new(RamFile { content: Arc::clone(content), counters: Arc::clone(&self.counters) })
    }
}

impl Disk for RamDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let content = Content::default();
        files.insert(path.to_owned(), Arc::clone(&content));
        Ok(self.file(&content))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let files = self.files.lock();
        let content = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(content))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.files.lock().remove(path).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{dir}/");
        Ok(self.files.lock().keys().filter_map(|path| path.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

struct RamFile {
    content: Content,
    counters: Arc<Counters>,
}

impl Drop for RamFile {
    fn drop(&mut self) {
        self.counters.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl File for RamFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        if self.counters.fail_read.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) == Ok(1) {
            return Err(io::Error::other("a read that fails"));
        }
        let content = self.content.lock();
        let from = content.get(at as usize..).unwrap_or_default();
        let n = from.len().min(buf.len());
        buf[..n].copy_from_slice(&from[..n]);
        self.counters.read_bytes.fetch_add(n, Ordering::Relaxed);
        Ok(n)
    }

    fn try_read_at(&self, buf: &mut [u8], at: u64) -> io::Result<Option<usize>> {
        self.read_at(buf, at).map(Some)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        let on_write = self.counters.on_write.lock().take();
        on_write.into_iter().for_each(|act| act());
        let room = self.counters.room.load(Ordering::Relaxed);
        if room > 0 {
            if buf.len() as u64 >= room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.counters.room.fetch_sub(buf.len() as u64, Ordering::Relaxed);
        }
        let mut content = self.content.lock();
        let end = at as usize + buf.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[at as usize..end].copy_from_slice(buf);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.set_len(len.max(self.len()?))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.content.lock().resize(len as usize, 0);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.content.lock().len() as u64)
    }
}
