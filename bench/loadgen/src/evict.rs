//! Keeps a folder's files out of the page cache, so that reads go to the disk.

use rustix::fs::{Advice, fadvise};
use std::fs::{self, File, Metadata};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files below this size are metadata, not content.
const CONTENT_BYTES: u64 = 64 << 10;

/// Recently written data stays: evicting it would begin its write-back, and so slow the writer down, not the reader.
const AT_REST: Duration = Duration::from_secs(3);

/// Asks the system again and again to forget the pages of all larger files at rest below `folder`, until `over`.
pub(crate) fn keep_out(folder: &Path, every: Duration, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        forget(folder);
        std::thread::sleep(every);
    }
}

/// Best effort: files come and go while the server works.
pub(crate) fn forget(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            forget(&entry.path());
        } else if kind.is_file()
            && entry.metadata().is_ok_and(|meta| meta.len() >= CONTENT_BYTES && at_rest(&meta))
            && let Ok(file) = File::open(entry.path())
        {
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}

fn at_rest(meta: &Metadata) -> bool {
    meta.modified().is_ok_and(|time| time.elapsed().is_ok_and(|age| age >= AT_REST))
}
