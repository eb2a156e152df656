//! A root in one file, replaced as a whole: written beside it, synced, renamed over it, and the folder synced.

use crate::frame::Frame;
use crate::{Manifest, ManifestError, Root, grown, next_version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use thalweg_disk::{Disk, is_damage};

/// A root in one file of a [`Disk`]. Comparing and replacing are two steps, so the lock of the data folder has to keep
/// other processes away: without it two processes could acquire at once, and an owner whose file has rotted could write
/// over a later owner's root. If the lock fails, the next commit notices it by the epoch and the version.
pub struct FileManifest {
    disk: Arc<dyn Disk>,
    path: String,
    /// Held during a commit: there is one writer at a time.
    writer: Mutex<Writer>,
}

struct Writer {
    /// The nonce of the next body that is written.
    nonce: u64,
    /// The root that the folder shows is known to be durable. Not so after a failed commit, or when an earlier process
    /// died during one.
    confirmed: bool,
    /// The root that was durable last, to write it once more should its file rot.
    known: Option<Frame>,
}

impl FileManifest {
    /// The root at `path`. A root that cannot be read is refused here already. The first body that is written carries
    /// `nonce`, and each later one the number after; two owners should start far apart, at random.
    pub fn open(disk: Arc<dyn Disk>, path: &str, nonce: u64) -> Result<Self, ManifestError> {
        let writer = Mutex::new(Writer { nonce, confirmed: false, known: None });
        let manifest = Self { disk, path: path.to_owned(), writer };
        manifest.find()?;
        Ok(manifest)
    }

    /// The stored root; if the file has rotted, the root that was durable last. If the rotten file came from a commit
    /// whose outcome is in doubt, this undoes that commit, which had failed. A missing file stays missing: perhaps the
    /// folder was replaced.
    fn known(&self, writer: &mut Writer) -> Result<Option<Frame>, ManifestError> {
        match (self.find(), &writer.known) {
            (Err(error @ ManifestError::Corrupt(_)), Some(known)) => {
                tracing::error!(path = self.path, %error, "the manifest's file is damaged: the root in memory replaces it; check the disk");
                writer.confirmed = false;
                Ok(Some(known.clone()))
            }
            (found, _) => found,
        }
    }

    /// The root that a restart would find, made durable: its owner must not act on a root that a power failure could
    /// take back. Syncing the folder once more would not help: after a failed sync the system may have dropped the
    /// rename and still report success the next time. So the root that is found is written and renamed again.
    fn confirm(&self, writer: &mut Writer) -> Result<Option<Frame>, ManifestError> {
        let found = self.known(writer)?;
        if !writer.confirmed {
            if let Some(frame) = &found {
                self.replace(frame)?;
            }
            writer.confirmed = true;
            writer.known.clone_from(&found);
        }
        Ok(found)
    }

    /// Replaces the stored frame.
    fn put(&self, writer: &mut Writer, version: u64, epoch: u64, body: Bytes) -> Result<Root, ManifestError> {
        let frame = Frame { version, epoch, nonce: writer.nonce, body };
        writer.nonce = writer.nonce.wrapping_add(1);
        writer.confirmed = false;
        self.replace(&frame)?;
        let root = frame.root();
        (writer.confirmed, writer.known) = (true, Some(frame));
        Ok(root)
    }

    fn find(&self) -> Result<Option<Frame>, ManifestError> {
        let file = match self.disk.open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("opening", &error)),
        };
        let len = file.len().map_err(|error| failed("measuring", &error))?;
        let mut stored = vec![0; usize::try_from(len).map_err(|_| ManifestError::Corrupt(format!("{len} bytes")))?];
        let read = file.read_at(&mut stored, 0).map_err(|error| match is_damage(&error) {
            true => ManifestError::Corrupt(format!("it cannot be read: {error}")),
            false => failed("reading", &error),
        })?;
        Frame::decode(&stored[..read]).map(Some)
    }

    fn replace(&self, frame: &Frame) -> Result<(), ManifestError> {
        let beside = format!("{}.tmp", self.path);
        let file = match self.disk.create(&beside) {
            // Left over from a crash or a failed commit.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.disk.remove(&beside).map_err(|error| failed("removing a leftover", &error))?;
                self.disk.create(&beside)
            }
            created => created,
        }
        .map_err(|error| failed("creating", &error))?;
        let written = file
            .write_at(&frame.encode(), 0)
            .map_err(|error| failed("writing", &error))
            .and_then(|()| file.sync().map_err(|error| failed("syncing", &error)));
        drop(file);
        if let Err(error) = written {
            // The old root still stands. A leftover that cannot be removed is harmless.
            let _ = self.disk.remove(&beside);
            return Err(error);
        }
        self.disk.rename(&beside, &self.path).map_err(|error| failed("renaming", &error))?;
        let dir = self.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        // `NoSpace` would say that the old root still stands: from here on that is not known.
        self.disk.sync_dir(dir).map_err(|error| io_failed("syncing the folder", &error))
    }
}

fn failed(operation: &'static str, error: &io::Error) -> ManifestError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ManifestError::NoSpace,
        _ => io_failed(operation, error),
    }
}

fn io_failed(operation: &'static str, error: &io::Error) -> ManifestError {
    ManifestError::Io { operation, cause: error.to_string() }
}

impl Manifest for FileManifest {
    fn read(&self) -> Result<Option<Root>, ManifestError> {
        Ok(self.find()?.map(|frame| frame.root()))
    }

    fn load(&self) -> Result<Option<Root>, ManifestError> {
        let mut writer = self.writer.lock();
        Ok(self.confirm(&mut writer)?.map(|frame| frame.root()))
    }

    fn acquire(&self, above: u64) -> Result<Root, ManifestError> {
        let mut writer = self.writer.lock();
        // The root that is found may come from a commit that was cut short, and may not be durable. The new root, which
        // replaces it, is.
        let (version, epoch, body) = self.find()?.map_or_else(Default::default, |f| (f.version, f.epoch, f.body));
        self.put(&mut writer, grown(version)?, grown(epoch.max(above))?, body)
    }

    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        let mut writer = self.writer.lock();
        // The epoch is checked before anything is written: the root that is found may be a later owner's.
        let found = self.known(&mut writer)?;
        let version = next_version(epoch, expected, found.map(|frame| (frame.version, frame.epoch)))?;
        Ok(self.put(&mut writer, version, epoch, Bytes::copy_from_slice(body))?.version)
    }
}
