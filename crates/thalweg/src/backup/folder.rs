//! Cuts of the data folder itself: its files outside the kernel's units, and a stopped folder as a source.

use super::{Listed, Listing, Place, ROOT, Source, object_path, place};
use anyhow::{Context, bail};
use bytes::Bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use thalweg_base::Lsn;
use thalweg_disk::{Disk, RealDisk};
use thalweg_host::folder::{FORMAT, Folder};
use thalweg_host::kernel::{MANIFEST, OBJECTS};
use thalweg_log::{Cut, read_cut};
use thalweg_manifest::FileManifest;
use thalweg_storage::FileStorage;

/// How much of a file one read gives.
pub(super) const READ_BYTES: usize = 1 << 20;
/// The folder's own files that belong to a cut, whole.
pub(super) fn extras(folder: &Path) -> anyhow::Result<Vec<(String, Bytes)>> {
    let mut found = thalweg_host::folder::beside(folder)?;
    found.retain(|(name, _)| place(name) == Some(Place::Extra));
    Ok(found)
}

/// The listing's rows of a cut's files outside the journal.
pub(super) fn listed(cut: &Cut, extras: &[(String, Bytes)]) -> Vec<Listed> {
    let row = |path: String, bytes| Listed { path, bytes, allocated: 0 };
    let root = row(ROOT.to_owned(), cut.root.len() as u64);
    let objects = cut.objects.iter().map(|(object, bytes)| row(object_path(*object), *bytes));
    let extras = extras.iter().map(|(name, bytes)| row(name.clone(), bytes.len() as u64));
    std::iter::once(root).chain(objects).chain(extras).collect()
}

/// At most [`READ_BYTES`] of `bytes` from `at` on.
pub(super) fn piece(bytes: &Bytes, at: u64) -> Bytes {
    let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    bytes.slice(from..bytes.len().min(from + READ_BYTES))
}

/// The folder of a stopped server, locked while this lives.
pub(super) struct Stopped {
    folder: Folder,
    root: Bytes,
    extras: Vec<(String, Bytes)>,
    files: Vec<Listed>,
}

impl Stopped {
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let folder = Folder::take_existing(dir)?;
        Ok(Self { folder, root: Bytes::new(), extras: Vec::new(), files: Vec::new() })
    }
}

impl Source for Stopped {
    fn begin(&mut self) -> anyhow::Result<Listing> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open_read_only(self.folder.path())?);
        let manifest = FileManifest::open(Arc::clone(&disk), MANIFEST, 0).context("the manifest is not whole")?;
        let objects = FileStorage::open_read_only(Arc::clone(&disk), OBJECTS).context("the objects cannot be read")?;
        let cut =
            read_cut(&manifest, &(Arc::new(objects) as _))?.context("nothing was ever written to this data folder")?;
        let journal = thalweg_journal::verify(&*disk, cut.journal);
        if let Some(problem) = journal.problem {
            bail!("the journal is not whole: {problem}");
        }
        self.extras = extras(self.folder.path())?;
        self.files = listed(&cut, &self.extras);
        self.files.extend(journal.files.into_iter().map(|f| Listed {
            path: f.path,
            bytes: f.bytes,
            allocated: f.allocated,
        }));
        self.root = cut.root;
        Ok(Listing {
            backup: String::new(),
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lineage: self.folder.lineage(),
            position: journal.end.0,
            files: self.files.clone(),
        })
    }

    fn read(&mut self, path: &str, at: u64) -> anyhow::Result<Vec<u8>> {
        if path == ROOT {
            return Ok(piece(&self.root, at).to_vec());
        }
        if let Some((_, bytes)) = self.extras.iter().find(|(name, _)| name == path) {
            return Ok(piece(bytes, at).to_vec());
        }
        let listed = self.files.iter().find(|file| file.path == path).context("it is not in the cut")?;
        let mut bytes = vec![0; listed.bytes.saturating_sub(at).min(READ_BYTES as u64) as usize];
        File::open(self.folder.path().join(path))?.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn end(&mut self) {}
}

/// Whether a cut with this end reaches the position that its root claims durable.
pub(super) fn reaches(cut: &Cut, end: Lsn) -> bool {
    end >= cut.journal.known_durable && end >= cut.journal.floor
}
