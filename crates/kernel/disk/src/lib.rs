//! Files of one data folder.
//!
//! The file backends of the journal, the storage and the manifest see the world only through [`Disk`] and [`File`], so
//! that the code that ships also runs on `thalweg-sim`'s disk, which loses, tears and reorders writes that were not
//! synced. Paths are relative to the data folder, with `/` between parts.

mod path;
mod real;

pub use path::{check_path, folder_of};
pub use real::RealDisk;

use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Whether an error says that the disk, a quota or the process's open files are at their limit: later it may work
/// again, and nothing is broken.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    full || [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error())
}

/// Whether an error says that the device could not read back data that was written to it.
#[must_use]
pub fn is_damage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // File systems return EUCLEAN and EBADMSG when their own checksums differ.
    let damage = [Errno::IO, Errno::UCLEAN, Errno::BADMSG].map(|errno| Some(errno.raw_os_error()));
    damage.contains(&error.raw_os_error()) || error.kind() == io::ErrorKind::UnexpectedEof
}

/// The files of one data folder. Names become durable with [`Disk::sync_dir`], contents with [`File::sync`].
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file and its missing parent folders; fails if it exists.
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Replaces `to` by `from`, atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. The removal is durable after `sync_dir` of its folder.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// The file names in a folder, sorted; empty if the folder does not exist.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Bytes that an unprivileged writer could still allocate.
    fn free(&self) -> io::Result<u64>;
}

/// Whether data is in the page cache is asked in pieces of this size, the least that readers of objects fetch.
const DEVICE_PIECE_BYTES: usize = 16 << 10;

/// Reads like [`File::read_at`], but from the device and not from the page cache, where the system can do that. Pages
/// that were in the page cache are there afterwards, too; pages that this read has brought there are not.
pub fn read_device(file: &dyn File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    for piece in buf.chunks_mut(DEVICE_PIECE_BYTES) {
        let from = at + read as u64;
        let range = from..from + piece.len() as u64;
        let in_use = matches!(file.try_read_at(piece, from), Ok(Some(known)) if known > 0);
        file.forget(range.clone());
        let n = file.read_at(piece, from)?;
        if !in_use {
            file.forget(range);
        }
        read += n;
        if n < piece.len() {
            break;
        }
    }
    Ok(read)
}

/// One open file. All positions are explicit: a file has no cursor and may be shared by threads.
pub trait File: Send + Sync + 'static {
    /// Reads until `buf` is full or the file ends; the number of bytes read.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Like `read_at`, but `None` where the answer would have to wait for a device (`RWF_NOWAIT`).
    fn try_read_at(&self, buf: &mut [u8], at: u64) -> io::Result<Option<usize>>;
    /// Writes all of `buf`.
    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()>;
    /// Makes the contents durable (`fdatasync`). After an error nothing may be assumed about the durability of earlier
    /// writes.
    fn sync(&self) -> io::Result<()>;
    /// Reserves space for `len` bytes from the start, and grows the file to it; new bytes read as zero.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Cuts or extends the file to `len` bytes, without reserving.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Asks the system to drop the pages of `range` from the page cache, those that are on the disk already, so that
    /// the next read comes from the device. A file system may ignore this.
    fn forget(&self, range: Range<u64>) {
        let _ = range;
    }
    /// The file's length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}
