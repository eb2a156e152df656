//! A bucket in a folder of this machine, for trying things out: `file:///path`. Several processes may use it. It is not
//! synced: it survives killed processes, and no loss of power.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};
use std::fmt;
use std::fs::{File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
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
        self.files.list(prefix)
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
