//! A bucket in a folder of this machine, for trying things out: `file:///path`. Several processes may use it. It is not
//! synced: it survives killed processes, and no loss of power.

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

/// Held by whoever replaces an object on a condition.
const LOCK: &str = ".lock";

/// Files as objects, with conditional writes.
#[derive(Debug)]
pub(crate) struct FolderStore {
    files: LocalFileSystem,
    root: PathBuf,
}

impl FolderStore {
    /// The bucket in `root`, which is made if it is missing.
    pub(crate) fn open(root: PathBuf) -> Result<Self> {
        let failed = |source: std::io::Error| Error::Generic { store: "folder", source: source.into() };
        // Its owner's alone: what is in it is as secret as a data folder.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&root).map_err(failed)?;
        let mut mode = std::fs::metadata(&root).map_err(failed)?.permissions().mode() & 0o777;
        let is_empty = || std::fs::read_dir(&root).map(|mut entries| entries.next().is_none());
        if mode & 0o077 != 0 && is_empty().map_err(failed)? {
            mode = 0o700;
            std::fs::set_permissions(&root, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
        }
        if mode & 0o077 != 0 {
            let root = root.display();
            let why = format!("other users of this machine may enter {root} (mode {mode:o}): chmod 700 {root}");
            return Err(Error::Generic { store: "folder", source: why.into() });
        }
        let files = LocalFileSystem::new_with_prefix(&root)?.with_automatic_cleanup(false);
        Ok(Self { files, root })
    }

    /// The lock over all replacements, of all processes. Held for the time of a small write. Waiting for it holds no
    /// thread: whoever has it may need one.
    async fn lock(&self) -> Result<File> {
        let failed = |source: std::io::Error| Error::Generic { store: "folder", source: source.into() };
        let path = self.root.join(LOCK);
        let file = File::options().create(true).write(true).truncate(false).open(path).map_err(failed)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

impl fmt::Display for FolderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a folder, {}", self.root.display())
    }
}

#[async_trait]
impl ObjectStore for FolderStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        let PutMode::Update(expected) = &options.mode else {
            return self.files.put_opts(location, payload, options).await;
        };
        let _lock = self.lock().await?;
        let path = location.to_string();
        let found = match self.files.head(location).await {
            Ok(found) => found.e_tag,
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        if found.is_none() || found != expected.e_tag {
            return Err(Error::Precondition { path, source: "it has another version".into() });
        }
        options.mode = PutMode::Overwrite;
        self.files.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let root = self.root.clone();
        let folder = prefix.map_or_else(|| root.clone(), |prefix| root.join(prefix.as_ref()));
        let walk = async move {
            let mut found = Vec::new();
            let walked = tokio::task::spawn_blocking(move || walk(&root, &folder, &mut found).map(|()| found)).await;
            match walked {
                Ok(walked) => walked.map_err(|source| Error::Generic { store: "folder", source: source.into() }),
                Err(error) => Err(Error::Generic { store: "folder", source: error.into() }),
            }
        };
        let items = |walked: Result<Vec<ObjectMeta>>| match walked {
            Ok(found) => stream::iter(found).map(Ok).boxed(),
            Err(error) => stream::once(std::future::ready(Err(error))).boxed(),
        };
        stream::once(walk).flat_map(items).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.files.rename_opts(from, to, options).await
    }
}

/// All objects of a folder and of those below it. The library's own walk ends at the first name that is no key, such as
/// one with a control character: a stranger's, which is left out here.
fn walk(root: &std::path::Path, folder: &std::path::Path, found: &mut Vec<ObjectMeta>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        // Removed meanwhile, or a link to nothing.
        let Ok(about) = std::fs::metadata(&path) else { continue };
        if about.is_dir() {
            walk(root, &path, found)?;
            continue;
        }
        let key = path.strip_prefix(root).ok().and_then(std::path::Path::to_str).and_then(|key| Path::parse(key).ok());
        let Some(location) = key.filter(|key| about.is_file() && !is_staged(key)) else { continue };
        let last_modified = about.modified()?.into();
        found.push(ObjectMeta { location, last_modified, size: about.len(), e_tag: None, version: None });
    }
    Ok(())
}

/// A file that is being written: its name ends with `#` and a number.
fn is_staged(key: &Path) -> bool {
    let suffix = key.filename().and_then(|name| name.rsplit_once('#')).map(|(_, suffix)| suffix);
    suffix.is_some_and(|suffix| !suffix.is_empty() && suffix.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;

    #[test]
    fn a_list_has_every_object_whatever_strangers_have_put_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let store = FolderStore::open(folder.path().to_owned()).unwrap();
        let list = |prefix: &str| {
            let all = store.list(Some(&Path::from(prefix))).try_collect::<Vec<_>>();
            let mut keys: Vec<String> =
                runtime.block_on(all).unwrap().into_iter().map(|meta| meta.location.to_string()).collect();
            keys.sort_unstable();
            keys
        };
        for key in ["n/a", "n/b", "n/below/c", "m/d"] {
            runtime.block_on(store.put(&Path::from(key), key.into())).unwrap();
        }
        for name in ["n/\u{1b}[31mx", "n/a#1", "n/\u{9b}y"] {
            std::fs::write(folder.path().join(name), "junk").unwrap();
        }
        std::fs::create_dir(folder.path().join("n/\u{1b}")).unwrap();
        std::os::unix::fs::symlink("nothing", folder.path().join("n/link")).unwrap();
        let keys = list("n");
        assert!(["n/a", "n/b", "n/below/c"].iter().all(|key| keys.iter().any(|found| found == key)), "{keys:?}");
        assert!(!keys.iter().any(|key| key.contains('#') || key.contains('\u{1b}')), "{keys:?}");
        assert_eq!((list("m"), list("none").len()), (vec!["m/d".to_owned()], 0));
    }

    #[test]
    fn a_folder_that_others_may_enter_is_taken_only_while_it_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("bucket");
        std::fs::create_dir(&root).unwrap();
        let mode = |mode| std::fs::set_permissions(&root, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        FolderStore::open(root.clone()).unwrap();
        assert_eq!(std::fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(root.join("units"), "secret").unwrap();
        FolderStore::open(root.clone()).unwrap();
        mode(0o750);
        let refused = FolderStore::open(root.clone()).unwrap_err().to_string();
        assert!(refused.contains("chmod 700"), "{refused}");
    }
}
