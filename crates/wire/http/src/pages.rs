//! Bytes that are also in a file of memory, so that the system sends them to many sockets without a copy for each.
//!
//! When many clients read the same large content at once, each send copies it into buffers of the socket, and by the
//! next client's copy no cache has those buffers. `sendfile` gives the socket the file's pages themselves. The file is
//! in memory (`memfd_create`), with content that its maker verified. It is no file of the data folder, because those
//! pages may be read again from a device that has changed them. A page that a socket still has to send outlives the
//! file.

use bytes::Bytes;
use parking_lot::RwLock;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smaller slices are sent as cheaply by copying.
const SENT_MIN: usize = 32 << 10;
/// Smaller bytes get no file: with two system calls and a descriptor for each, many of them would cost more than they
/// save.
const HELD_MIN: usize = 128 << 10;
/// Each file takes a descriptor of the process: docs/ops/deploy.md counts them.
const FILES_MAX: usize = 256;

/// The shared pages of one process. A clone is the same set.
#[derive(Clone, Debug, Default)]
pub struct SharedPages(Arc<Set>);

#[derive(Debug, Default)]
struct Set {
    bytes_max: u64,
    bytes: AtomicU64,
    /// The file of each, by the address of its first byte.
    files: RwLock<BTreeMap<usize, Arc<PagedFile>>>,
}

#[derive(Debug)]
struct PagedFile {
    file: File,
    len: usize,
}

/// A slice's place in its file.
#[derive(Debug)]
pub(super) struct InFile {
    file: Arc<PagedFile>,
    pub(super) offset: u64,
}

impl InFile {
    pub(super) fn file(&self) -> &File {
        &self.file.file
    }
}

/// Owns bytes that have a file. Slices of them keep it.
struct Held {
    bytes: Bytes,
    set: Arc<Set>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Removed while the bytes exist: no other bytes can have their address.
        let gone = self.set.files.write().remove(&address(&self.bytes));
        // Closing the file frees its pages, which takes time: readers of the set do not wait for that.
        drop(gone);
        self.set.bytes.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}

fn address(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr()
}

impl SharedPages {
    /// A set whose files hold at most this many bytes together. With 0 no bytes get a file.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self(Arc::new(Set { bytes_max, ..Set::default() }))
    }

    /// Number of bytes in the files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Returns the same bytes, kept also in a file until their last slice is dropped. Without a file they are returned
    /// unchanged: few bytes, a set that is full of bytes or of files, or a system that gives no file. No other holder
    /// of `bytes` may have added them to a set.
    #[must_use]
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        if bytes.len() < HELD_MIN {
            return bytes;
        }
        let len = bytes.len() as u64;
        let has_room = self.0.bytes.fetch_add(len, Ordering::Relaxed) + len <= self.0.bytes_max
            && self.0.files.read().len() < FILES_MAX;
        let Some(file) = has_room.then(|| file_of(&bytes).ok()).flatten() else {
            self.0.bytes.fetch_sub(len, Ordering::Relaxed);
            return bytes;
        };
        self.0.files.write().insert(address(&bytes), Arc::new(PagedFile { file, len: bytes.len() }));
        Bytes::from_owner(Held { bytes, set: Arc::clone(&self.0) })
    }

    /// The place of a slice in a file, if it is in one and large enough to be sent from there.
    pub(super) fn find(&self, slice: &[u8]) -> Option<InFile> {
        if slice.len() < SENT_MIN || self.bytes() == 0 {
            return None;
        }
        let files = self.0.files.read();
        let (first, file) = files.range(..=address(slice)).next_back()?;
        let offset = address(slice) - first;
        (offset + slice.len() <= file.len).then(|| InFile { file: Arc::clone(file), offset: offset as u64 })
    }
}

fn file_of(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("thalweg-pages", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn bytes(len: usize, seed: u8) -> Bytes {
        (0..len).map(|at| (at / 7) as u8 ^ seed).collect::<Vec<_>>().into()
    }

    #[test]
    fn a_slice_is_found_in_the_file_of_its_bytes_while_somebody_holds_them() {
        let pages = SharedPages::new(1 << 20);
        let (one, two) = (pages.hold(bytes(HELD_MIN, 1)), pages.hold(bytes(2 * HELD_MIN, 2)));
        assert_eq!(pages.bytes(), 3 * HELD_MIN as u64);
        let part = two.slice(HELD_MIN + 5..2 * HELD_MIN - 9);
        drop(two);
        let found = pages.find(&part).unwrap();
        let mut read = vec![0; part.len()];
        found.file().read_exact_at(&mut read, found.offset).unwrap();
        assert!(read == part);
        drop(part);
        assert_eq!((pages.bytes(), pages.0.files.read().len()), (HELD_MIN as u64, 1));
        assert!(pages.find(&one).is_some());
        assert!(pages.find(&one[..SENT_MIN - 1]).is_none(), "it is copied as cheaply");
        assert!(pages.find(&bytes(HELD_MIN, 1)).is_none(), "the same content elsewhere");
    }

    #[test]
    fn a_full_set_and_few_bytes_get_no_file() {
        let pages = SharedPages::new(3 * HELD_MIN as u64);
        let held = pages.hold(bytes(2 * HELD_MIN, 1));
        let more = pages.hold(bytes(2 * HELD_MIN, 2));
        assert!(pages.find(&more).is_none());
        assert!(pages.find(&pages.hold(bytes(HELD_MIN - 1, 2))).is_none());
        assert_eq!(pages.bytes(), 2 * HELD_MIN as u64);
        drop(held);
        assert!(pages.find(&pages.hold(bytes(2 * HELD_MIN, 2))).is_some());
        assert_eq!((pages.bytes(), pages.0.files.read().len()), (0, 0));
    }
}
