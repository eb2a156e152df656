//! A root in memory: for tests, simulations and data that need not survive.

use crate::{Manifest, ManifestError, Root, grown, next_version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// A root in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryManifest {
    root: Arc<Mutex<Option<Root>>>,
}

impl MemoryManifest {
    /// A manifest without a root.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Manifest for MemoryManifest {
    fn read(&self) -> Result<Option<Root>, ManifestError> {
        Ok(self.root.lock().clone())
    }

    fn load(&self) -> Result<Option<Root>, ManifestError> {
        self.read()
    }

    fn acquire(&self, above: u64) -> Result<Root, ManifestError> {
        let mut root = self.root.lock();
        let Root { version, epoch, body } = root.clone().unwrap_or_default();
        let acquired = Root { version: grown(version)?, epoch: grown(epoch.max(above))?, body };
        *root = Some(acquired.clone());
        Ok(acquired)
    }

    fn commit(&self, epoch: u64, expected: u64, body: &[u8]) -> Result<u64, ManifestError> {
        let mut root = self.root.lock();
        let version = next_version(epoch, expected, root.as_ref().map(|root| (root.version, root.epoch)))?;
        *root = Some(Root { version, epoch, body: Bytes::copy_from_slice(body) });
        Ok(version)
    }
}
