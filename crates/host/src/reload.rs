//! Files that are read again while the server runs: when they change, and on SIGHUP.

use anyhow::Context;
use signal_hook::consts::SIGHUP;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads some files again.
type Read = Box<dyn FnMut() -> anyhow::Result<()> + Send>;

/// Reloads files that have changed.
pub struct Reload {
    watched: Vec<Watched>,
    asked: Arc<AtomicBool>,
}

struct Watched {
    what: &'static str,
    files: Vec<PathBuf>,
    seen: Vec<Option<FileStamp>>,
    read: Read,
}

/// Identifies a file's content without reading it: device, inode, length, time of change.
type FileStamp = (u64, u64, u64, i64, i64);

impl Reload {
    /// From here on SIGHUP asks for a reload, also if there are no files: a closing terminal sends it, and so do
    /// scripts that rotate logs. Call this before anything that takes time.
    pub fn install() -> anyhow::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGHUP, Arc::clone(&asked)).context("cannot listen for SIGHUP")?;
        Ok(Self { watched: Vec::new(), asked })
    }

    /// Calls `read` whenever one of `files` has changed. If it fails, the earlier content stays in force.
    pub fn watch(
        &mut self,
        what: &'static str,
        files: Vec<PathBuf>,
        read: impl FnMut() -> anyhow::Result<()> + Send + 'static,
    ) {
        let seen = stamps(&files);
        self.watched.push(Watched { what, files, seen, read: Box::new(read) });
    }

    /// Checks the files once; reloads the changed ones, or all if a signal asked for it.
    pub fn step(&mut self) {
        let asked = self.asked.swap(false, Ordering::Relaxed);
        for watched in &mut self.watched {
            let now = stamps(&watched.files);
            if !asked && now == watched.seen {
                continue;
            }
            watched.seen = now;
            if let Err(error) = (watched.read)() {
                let what = watched.what;
                tracing::error!(
                    error = format!("{error:#}"),
                    "the {what} could not be reloaded: the old ones stay in force"
                );
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<FileStamp>> {
    let one =
        |file: &PathBuf| fs::metadata(file).ok().map(|is| (is.dev(), is.ino(), is.len(), is.ctime(), is.ctime_nsec()));
    files.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_change_is_read_once_and_a_failure_is_tried_again_with_the_next_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "one").unwrap();
        let reads = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&reads);
        let mut reload = Reload::install().unwrap();
        let read = move || {
            count.fetch_add(1, Ordering::Relaxed);
            anyhow::bail!("broken")
        };
        reload.watch("files", vec![file.clone()], read);
        let step = |reload: &mut Reload| {
            reload.step();
            reads.load(Ordering::Relaxed)
        };
        assert_eq!(step(&mut reload), 0);
        fs::write(&file, "longer").unwrap();
        assert_eq!((step(&mut reload), step(&mut reload)), (1, 1));
        // Replaced by another file of the same length, as editors and certificate tools do.
        fs::write(folder.path().join("new"), "LONGER").unwrap();
        fs::rename(folder.path().join("new"), &file).unwrap();
        assert_eq!(step(&mut reload), 2);
        fs::remove_file(&file).unwrap();
        assert_eq!(step(&mut reload), 3);
        signal_hook::low_level::raise(SIGHUP).unwrap();
        assert_eq!(step(&mut reload), 4);
    }
}
