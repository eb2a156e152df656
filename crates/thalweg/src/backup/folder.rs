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
use thalweg_host::kernel::MANIFEST;
use thalweg_log::{Cut, read_cut};
use thalweg_manifest::FileManifest;
use thalweg_object::Location;
use thalweg_storage::Storage;

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
    disk: Arc<dyn Disk>,
    objects: Arc<dyn Storage>,
    root: Bytes,
    extras: Vec<(String, Bytes)>,
    files: Vec<Listed>,
}

impl Stopped {
    /// `store`: where the folder's cold objects are.
    pub(super) fn open(dir: &Path, store: Option<&Location>) -> anyhow::Result<Self> {
        let folder = Folder::take_existing(dir)?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::open_read_only(folder.path())?);
        let objects = thalweg_host::mirror::objects(&folder, &disk, store)?;
        Ok(Self { folder, disk, objects, root: Bytes::new(), extras: Vec::new(), files: Vec::new() })
    }
}

impl Source for Stopped {
    fn begin(&mut self) -> anyhow::Result<Listing> {
        let manifest = FileManifest::open(Arc::clone(&self.disk), MANIFEST, 0).context("the manifest is not whole")?;
        let cut = read_cut(&manifest, &self.objects)?.context("nothing was ever written to this data folder")?;
        let journal = thalweg_journal::verify(&*self.disk, cut.journal);
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
        let piece = listed.bytes.saturating_sub(at).min(READ_BYTES as u64);
        if let Some(Place::Object(object)) = place(path) {
            return Ok(self.objects.read(object, at..at + piece).wait()?.to_vec());
        }
        let mut bytes = vec![0; piece as usize];
        File::open(self.folder.path().join(path))?.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn end(&mut self) {}
}

/// Whether a cut with this end reaches the position that its root claims durable.
pub(super) fn reaches(cut: &Cut, end: Lsn) -> bool {
    end >= cut.journal.known_durable && end >= cut.journal.floor
}
